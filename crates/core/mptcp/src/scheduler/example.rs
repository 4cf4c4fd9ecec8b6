//! The example of `docs/extending.md`: the subflow with the most room.

use plait_base::{Duration, SubflowId};

use super::{Backlog, Candidate, Demand, Schedule};

struct MostRoom;

impl Schedule for MostRoom {
    fn choose(&self, candidates: &[Candidate], _demand: &Demand) -> Option<usize> {
        let with_room = candidates.iter().filter(|candidate| candidate.room > 0);
        with_room.max_by_key(|candidate| candidate.room).map(|candidate| candidate.index)
    }
}

fn candidate(index: usize, room: usize) -> Candidate {
    Candidate {
        index,
        id: SubflowId(index as u32),
        srtt: Duration::from_millis(10),
        room,
        paced: 0,
        window: 100_000,
        in_flight: 100_000 - room as u32,
        rate: 1_000_000.0,
        is_slow_start: false,
    }
}

#[test]
fn the_subflow_with_the_most_room_is_chosen() {
    let demand = Demand { backlog: Backlog::Bytes(9), window_left: 9, last: None };
    assert_eq!(MostRoom.choose(&[candidate(0, 10), candidate(1, 20), candidate(2, 0)], &demand), Some(1));
    assert_eq!(MostRoom.choose(&[candidate(0, 0)], &demand), None);
}
