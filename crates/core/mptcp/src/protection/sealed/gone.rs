//! GONE: the subflows that an end no longer has, sent inside the stream, over any path.
//!
//! TCP reports the end of a subflow to the other end by a segment that an attacker on its path can drop. Therefore each end also sends a
//! record. The record takes effect as soon as its block is verified, like an update of the window.

use plait_protect::sealed::{GoneReason, Record, SubflowTag};
use std::collections::VecDeque;

use super::established::Established;

/// Largest number of remembered names of abandoned joins, of each kind; the oldest is dropped. If an attacker delays a third segment for
/// longer, it creates a subflow that the next question shows to be dead. This memory only saves the time of three questions.
const MAX_NAMES: usize = 256;

/// Names of subflows that no longer exist.
#[derive(Default)]
pub(super) struct Names {
    /// Subflows that the peer does not have, and that this end did not have when the peer reported it: joins with the third segment in
    /// flight.
    gone: VecDeque<SubflowTag>,
    /// Subflows that have ended here.
    closed: VecDeque<SubflowTag>,
    /// Reports of the peer that are not handled yet.
    heard: Vec<SubflowTag>,
}

impl Names {
    /// Whether the peer has given up the join that would have this name.
    pub(super) fn is_gone(&self, name: SubflowTag) -> bool {
        self.gone.contains(&name)
    }

    /// Notes that a subflow has ended here.
    pub(super) fn on_closed(&mut self, name: SubflowTag) {
        remember(&mut self.closed, name);
    }
}

fn remember(names: &mut VecDeque<SubflowTag>, name: SubflowTag) {
    if names.contains(&name) {
        return;
    }
    if names.len() >= MAX_NAMES {
        names.pop_front();
    }
    names.push_back(name);
}

impl Established {
    /// Tells the peer that this subflow no longer exists.
    pub(crate) fn say_gone(&mut self, name: SubflowTag, reason: GoneReason) {
        self.say(Record::Gone { subflow: name, reason });
    }

    /// Handles the peer's report, in a verified block, that it has no subflow of this name.
    pub(super) fn hear_gone(&mut self, name: SubflowTag) {
        self.names.heard.push(name);
    }

    /// Returns the next subflow that the peer has reported as gone.
    pub(crate) fn poll_gone(&mut self) -> Option<SubflowTag> {
        self.names.heard.pop()
    }

    /// Notes that this end does not have the subflow either. It ended before, or is an incomplete join that will be refused.
    pub(crate) fn note_gone(&mut self, name: SubflowTag) {
        if !self.names.closed.contains(&name) {
            remember(&mut self.names.gone, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_names_are_forgotten_and_none_is_kept_twice() {
        let mut names = Names::default();
        for number in (0..2 * MAX_NAMES as u64).chain([5]) {
            remember(&mut names.gone, SubflowTag(number));
            remember(&mut names.gone, SubflowTag(number));
        }
        assert_eq!(names.gone.len(), MAX_NAMES);
        assert!(names.is_gone(SubflowTag(5)) && !names.is_gone(SubflowTag(6)));
    }
}
