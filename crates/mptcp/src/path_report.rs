//! What each path did to a connection, for people who are told that it has failed.

use core::fmt;
use plait_base::PathId;
use plait_tcp::Closed;

use crate::{Status, SubflowStatus};

/// What became of the subflows over one path, those included that are over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathReport {
    /// The path.
    pub path: PathId,
    /// Subflows over it that are remembered.
    pub subflows: u64,
    /// Of these, those on which nothing more came.
    pub silent: u64,
    /// Of these, those that were reset by the peer, or in its name.
    pub reset: u64,
    /// Of these, those whose SYN was refused, or could not reach the peer.
    pub refused: u64,
    /// Blocks of the peer that did not verify.
    pub blocks_failed: u64,
    /// Tags of options that were wrong.
    pub tags_failed: u64,
}

impl Status {
    /// What each path did, in the order of their ids.
    pub fn path_reports(&self) -> Vec<PathReport> {
        let mut reports: Vec<PathReport> = Vec::new();
        for subflow in &self.subflows {
            match reports.iter_mut().find(|report| report.path == subflow.path) {
                Some(report) => report.add(subflow),
                None => {
                    let mut report = PathReport::of(subflow.path);
                    report.add(subflow);
                    reports.push(report);
                }
            }
        }
        reports.sort_by_key(|report| report.path);
        reports
    }
}

impl PathReport {
    fn of(path: PathId) -> Self {
        Self { path, subflows: 0, silent: 0, reset: 0, refused: 0, blocks_failed: 0, tags_failed: 0 }
    }

    fn add(&mut self, subflow: &SubflowStatus) {
        let is_silent = match subflow.end {
            Some(Closed::TimedOut) => true,
            // It was given up while its retransmissions were not answered.
            Some(Closed::Aborted) | None => subflow.tcp.backoff > 0,
            Some(Closed::Finished | Closed::ResetByPeer | Closed::Refused | Closed::Unreachable) => false,
        };
        self.subflows += 1;
        self.silent += u64::from(is_silent);
        self.reset += u64::from(subflow.end == Some(Closed::ResetByPeer));
        self.refused += u64::from(matches!(subflow.end, Some(Closed::Refused | Closed::Unreachable)));
        self.blocks_failed += subflow.blocks_failed;
        self.tags_failed += subflow.tags_failed;
    }
}

/// What is suspected of the path, in a few words.
impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path: _, subflows, silent, reset, refused, blocks_failed, tags_failed } = *self;
        let counted = [
            (blocks_failed, "blocks were changed on the way"),
            (tags_failed, "tags of options were wrong"),
            (silent, "subflows fell silent"),
            (reset, "subflows were reset by the peer, or in its name"),
            (refused, "subflows were refused"),
        ];
        write!(f, "{subflows} subflows")?;
        let said: Vec<_> = counted.iter().filter(|(count, _)| *count > 0).collect();
        for (count, what) in &said {
            write!(f, "; {count} {what}")?;
        }
        if said.is_empty() {
            f.write_str("; nothing is known against it")?;
        }
        Ok(())
    }
}
