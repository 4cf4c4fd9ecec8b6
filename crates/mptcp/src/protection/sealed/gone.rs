//! GONE: which subflows an end has no more, said inside the stream, over whatever path.
//!
//! TCP tells the end of a subflow to the other end by a segment that an attacker on its path can swallow. So each end says it in a
//! record as well. The record counts as soon as its block is verified, as news of the window do.

use plait_protect::sealed::{GoneReason, Record, SubflowTag};
use std::collections::VecDeque;

use super::established::Established;

/// Names of joins that are remembered as given up, of each kind; the oldest is forgotten. A third segment that an attacker holds back
/// for longer than that makes a subflow that the next question shows to be dead: this memory only saves the time of three questions.
const MAX_NAMES: usize = 256;

/// Names of subflows that are no more.
#[derive(Default)]
pub(super) struct Names {
    /// The peer has none of these, and there was none here when it said so: a join whose third segment is under way.
    gone: VecDeque<SubflowTag>,
    /// Subflows that have ended here.
    closed: VecDeque<SubflowTag>,
    /// What the peer has said of subflows and nothing has followed from yet.
    heard: Vec<SubflowTag>,
}

impl Names {
    /// Whether the peer has given up the join that would have this name.
    pub(super) fn is_gone(&self, name: SubflowTag) -> bool {
        self.gone.contains(&name)
    }

    /// A subflow has ended here.
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
    /// Tells the peer that this subflow is no more.
    pub(crate) fn say_gone(&mut self, name: SubflowTag, reason: GoneReason) {
        self.say(Record::Gone { subflow: name, reason });
    }

    /// The peer says in a verified block that it has no subflow of this name.
    pub(super) fn hear_gone(&mut self, name: SubflowTag) {
        self.names.heard.push(name);
    }

    /// The next subflow of which the peer has said so.
    pub(crate) fn poll_gone(&mut self) -> Option<SubflowTag> {
        self.names.heard.pop()
    }

    /// There is none here, either: it ended before, or is a join that is not complete yet and is refused when it comes.
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
