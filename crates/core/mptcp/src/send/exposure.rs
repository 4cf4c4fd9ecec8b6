//! The bytes of the stream that each untrusted path has carried in a row.
//!
//! An eavesdropper on a path sees all that it carries: new data and reinjected data. Both count.

use core::net::IpAddr;
use plait_base::PathId;
use std::collections::BTreeMap;

use crate::PathClass;
use crate::subflows::SubflowState;

/// A shorter gap does not end a row. A byte on the wire is a sum over the 64 bytes before it, so the text before the gap reveals the text
/// in it.
const GAP: u64 = 64;

/// An eavesdropper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listener {
    /// It is on a path of ours.
    Path(PathId),
    /// It is on the peer's path to this address of the peer.
    Peer(IpAddr),
}

/// Rows of bytes (start to end, by data offset) that each eavesdropper has seen, as long as they can still grow.
#[derive(Debug, Default)]
pub(crate) struct ExposureTracker(Vec<(Listener, BTreeMap<u64, u64>)>);

/// Returns the eavesdroppers on a subflow.
fn listeners(subflow: &SubflowState) -> impl Iterator<Item = Listener> + use<> {
    let ours = (subflow.class() != PathClass::Trusted).then_some(Listener::Path(subflow.path()));
    let theirs =
        (subflow.class_theirs() != PathClass::Trusted).then_some(Listener::Peer(subflow.tuple().remote.ip()));
    ours.into_iter().chain(theirs)
}

impl ExposureTracker {
    /// Whether each eavesdropper on this subflow sees at most `limit` bytes in a row if the subflow carries those from `start` to `end`.
    pub(crate) fn allows(&self, subflow: &SubflowState, start: u64, end: u64, limit: u64) -> bool {
        listeners(subflow).all(|listener| {
            let Some(rows) = self.rows(listener) else { return end - start <= limit };
            let (first, last) = joined(rows, start, end);
            let is_known = rows.range(..=start).next_back().is_some_and(|(_, &known)| known >= end);
            is_known || last - first <= limit
        })
    }

    /// Returns how many bytes from `start` on, which no path has carried yet, this subflow may carry; `None` for any number.
    pub(crate) fn allowance(&self, subflow: &SubflowState, start: u64, limit: u64) -> Option<u64> {
        let left = |listener| {
            let first = self.rows(listener).map_or(start, |rows| joined(rows, start, start).0);
            limit.saturating_sub(start - first)
        };
        listeners(subflow).map(left).min()
    }

    /// Notes that the subflow carries these bytes.
    pub(crate) fn note(&mut self, subflow: &SubflowState, start: u64, end: u64) {
        for listener in listeners(subflow) {
            let at = self.0.iter().position(|(known, _)| *known == listener).unwrap_or_else(|| {
                self.0.push((listener, BTreeMap::new()));
                self.0.len() - 1
            });
            let rows = &mut self.0[at].1;
            let (first, last) = joined(rows, start, end);
            let parts: Vec<u64> = rows.range(first..last).map(|(&part, _)| part).collect();
            for part in parts {
                rows.remove(&part);
            }
            rows.insert(first, last);
        }
    }

    /// Drops the rows before `start`, which will not be sent again.
    pub(crate) fn forget_below(&mut self, start: u64) {
        for (_, rows) in &mut self.0 {
            while let Some(row) = rows.first_entry()
                && row.get() + GAP <= start
            {
                row.remove();
            }
        }
    }

    fn rows(&self, listener: Listener) -> Option<&BTreeMap<u64, u64>> {
        self.0.iter().find(|(known, _)| *known == listener).map(|(_, rows)| rows)
    }
}

/// Returns the row that the bytes from `start` to `end` become part of.
fn joined(rows: &BTreeMap<u64, u64>, start: u64, end: u64) -> (u64, u64) {
    let (mut first, mut last) = (start, end);
    // At most one row from before overlaps them. Several rows may begin within.
    if let Some((&before, &reach)) = rows.range(..=start).next_back()
        && reach + GAP > start
    {
        first = before;
        last = last.max(reach);
    }
    for (&part, &reach) in rows.range(first + 1..) {
        if part >= last + GAP {
            break;
        }
        last = last.max(reach);
    }
    (first, last)
}
