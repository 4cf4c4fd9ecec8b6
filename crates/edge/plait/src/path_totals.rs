//! The traffic of a connection over each path.

use ::plait_host::{Path, PathCarriers, PathReport};

use crate::Carrier;

/// Totals of all subflows that a connection had over one path, those included that have ended and that
/// [`Status::subflows`](crate::Status::subflows) does not list any more.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PathTotals {
    /// The device; empty if the host has no such path any more.
    pub device: String,
    /// The carrier of the segments.
    pub carrier: Carrier,
    /// Subflows, present and past.
    pub subflows: u64,
    /// Bytes of payload sent for the first time on a subflow, those among them that another subflow had sent before.
    pub bytes_sent: u64,
    /// Bytes of payload received, in order.
    pub bytes_received: u64,
    /// Bytes of payload that a subflow has sent more than once.
    pub bytes_retransmitted: u64,
    /// Bytes sent after a subflow, on this path or another, had sent them.
    pub bytes_reinjected: u64,
    /// Segments sent, as they are on the wire.
    pub segments_sent: u64,
    /// Segments with data among them.
    pub data_segments_sent: u64,
    /// Segments of ours that were taken for lost.
    pub segments_lost: u64,
    /// Sealed blocks of the peer that failed verification here.
    pub blocks_failed: u64,
    /// Option tags that were wrong here.
    pub tags_failed: u64,
}

impl PathTotals {
    pub(crate) fn new(report: &PathReport, paths: &[Path], carriers: &PathCarriers) -> Self {
        let path = paths.iter().find(|path| path.id == report.path);
        Self {
            device: path.map_or_else(String::new, |path| path.name.clone()),
            carrier: carriers.of(report.path),
            subflows: report.subflows,
            bytes_sent: report.bytes_sent,
            bytes_received: report.bytes_received,
            bytes_retransmitted: report.bytes_retransmitted,
            bytes_reinjected: report.bytes_reinjected,
            segments_sent: report.segments_sent,
            data_segments_sent: report.data_segments_sent,
            segments_lost: report.segments_lost,
            blocks_failed: report.blocks_failed,
            tags_failed: report.tags_failed,
        }
    }
}
