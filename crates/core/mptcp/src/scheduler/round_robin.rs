//! Each subflow in turn, except those without room.

use super::{Candidate, Candidates, Demand, Schedule, holding_back};

/// Each subflow in turn, except those that would delay the end of the stream.
pub(super) struct RoundRobin;

/// Each subflow in turn.
pub(super) struct AnyRoom;

impl Schedule for RoundRobin {
    fn choose(&self, candidates: &[Candidate], demand: &Demand) -> Option<usize> {
        let helps = |candidate: &&Candidate| !holding_back::waits(candidate, candidates, demand);
        let those: Candidates = candidates.iter().filter(helps).copied().collect();
        AnyRoom.choose(&those, demand)
    }
}

impl Schedule for AnyRoom {
    fn choose(&self, candidates: &[Candidate], demand: &Demand) -> Option<usize> {
        let has_room = |candidate: &&Candidate| candidate.room > 0;
        let behind_last = |candidate: &&Candidate| demand.last.is_none_or(|last| candidate.id > last);
        candidates
            .iter()
            .filter(has_room)
            .filter(behind_last)
            .min_by_key(|candidate| candidate.id)
            .or_else(|| candidates.iter().filter(has_room).min_by_key(|candidate| candidate.id))
            .map(|candidate| candidate.index)
    }
}

#[cfg(test)]
mod tests {
    use plait_base::{Duration, SubflowId};

    use super::*;
    use crate::scheduler::Backlog;

    #[test]
    fn each_subflow_has_a_turn_and_the_full_are_skipped() {
        let candidates: Vec<_> = [(4, 10), (7, 0), (9, 10)]
            .iter()
            .enumerate()
            .map(|(index, &(id, room))| Candidate {
                index,
                id: SubflowId(id),
                srtt: Duration::from_millis(1),
                room,
                paced: 0,
                window: 10,
                in_flight: 0,
                rate: 10_000.0,
                is_slow_start: false,
            })
            .collect();
        let after =
            |last| AnyRoom.choose(&candidates, &Demand { backlog: Backlog::Bytes(9), window_left: 9, last });
        assert_eq!(after(None), Some(0));
        assert_eq!(after(Some(SubflowId(4))), Some(2));
        assert_eq!(after(Some(SubflowId(9))), Some(0));
    }
}
