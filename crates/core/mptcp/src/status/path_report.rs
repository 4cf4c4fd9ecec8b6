//! Totals of a connection per path: its traffic, and the ends of its subflows.

use core::fmt;
use plait_base::PathId;
use plait_tcp::{Closed, Stats};

use crate::{Status, SubflowStatus};

/// Totals of all subflows of a connection over one path, including ended ones that are no longer listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathReport {
    /// The path.
    pub path: PathId,
    /// Subflows over it.
    pub subflows: u64,
    /// Of these, the number on which nothing arrived any more.
    pub silent: u64,
    /// Of these, the number reset by the peer, or by an attacker in its name.
    pub reset: u64,
    /// Of these, the number with a SYN that was refused or could not reach the peer.
    pub refused: u64,
    /// Blocks of the peer that failed verification.
    pub blocks_failed: u64,
    /// Wrong option tags.
    pub tags_failed: u64,
    /// Payload bytes sent for the first time on a subflow, including reinjections.
    pub bytes_sent: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Payload bytes that a subflow has sent again.
    pub bytes_retransmitted: u64,
    /// Bytes of blocks that were first sent on another subflow.
    pub bytes_reinjected: u64,
    /// Wire segments sent.
    pub segments_sent: u64,
    /// Of these, the number with data.
    pub data_segments_sent: u64,
    /// Wire segments declared lost.
    pub segments_lost: u64,
}

/// Totals for each path that has had a subflow. There are at most 256, one per path id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathReports(Vec<PathReport>);

impl Status {
    /// Returns the totals of each path, in the order of the path ids.
    pub fn path_reports(&self) -> Vec<PathReport> {
        let mut reports = self.forgotten.clone();
        self.subflows.iter().for_each(|subflow| reports.add(subflow));
        reports.0
    }
}

impl PathReports {
    /// Adds the totals of a subflow to those of its path.
    pub(crate) fn add(&mut self, subflow: &SubflowStatus) {
        let at = match self.0.binary_search_by_key(&subflow.path, |report| report.path) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, PathReport::of(subflow.path));
                at
            }
        };
        self.0[at].add(subflow);
    }
}

impl PathReport {
    fn of(path: PathId) -> Self {
        Self {
            path,
            subflows: 0,
            silent: 0,
            reset: 0,
            refused: 0,
            blocks_failed: 0,
            tags_failed: 0,
            bytes_sent: 0,
            bytes_received: 0,
            bytes_retransmitted: 0,
            bytes_reinjected: 0,
            segments_sent: 0,
            data_segments_sent: 0,
            segments_lost: 0,
        }
    }

    fn add(&mut self, subflow: &SubflowStatus) {
        let is_silent = match subflow.end {
            Some(Closed::TimedOut) => true,
            // It was given up while its retransmissions went unanswered.
            Some(Closed::Aborted) | None => subflow.tcp.backoff > 0,
            Some(Closed::Finished | Closed::ResetByPeer | Closed::Refused | Closed::Unreachable) => false,
        };
        self.subflows += 1;
        self.silent += u64::from(is_silent);
        self.reset += u64::from(subflow.end == Some(Closed::ResetByPeer));
        self.refused += u64::from(matches!(subflow.end, Some(Closed::Refused | Closed::Unreachable)));
        self.blocks_failed += subflow.blocks_failed;
        self.tags_failed += subflow.tags_failed;
        self.bytes_reinjected += subflow.reinjected;
        self.add_traffic(&subflow.tcp);
    }

    fn add_traffic(&mut self, tcp: &Stats) {
        self.bytes_sent += tcp.bytes_sent;
        self.bytes_received += tcp.bytes_received;
        self.bytes_retransmitted += tcp.bytes_retransmitted;
        self.segments_sent += tcp.segments_sent;
        self.data_segments_sent += tcp.data_segments_sent;
        self.segments_lost += tcp.segments_lost;
    }
}

/// The suspected problem of the path, in a few words.
impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subflows, silent, reset, refused, blocks_failed, tags_failed, .. } = *self;
        let counted = [
            (blocks_failed, "blocks were changed on the path"),
            (tags_failed, "tags of options were wrong"),
            (silent, "subflows became silent"),
            (reset, "subflows were reset by the peer, or in its name"),
            (refused, "subflows were refused"),
        ];
        write!(f, "{subflows} subflows")?;
        let said: Vec<_> = counted.iter().filter(|(count, _)| *count > 0).collect();
        for (count, what) in &said {
            write!(f, "; {count} {what}")?;
        }
        if said.is_empty() {
            f.write_str("; no problem is known")?;
        }
        Ok(())
    }
}
