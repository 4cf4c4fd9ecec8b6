//! The subflow with the smallest round-trip time that has room; a slower path only if that helps.

use super::{Candidate, Demand, Schedule, holding_back};

pub(super) struct LowestRtt;

impl Schedule for LowestRtt {
    fn choose(&self, candidates: &[Candidate], demand: &Demand) -> Option<usize> {
        let best = candidates
            .iter()
            .filter(|candidate| candidate.room > 0)
            .min_by_key(|candidate| (candidate.srtt, candidate.id))?;
        (!holding_back::waits(best, candidates, demand)).then_some(best.index)
    }
}

#[cfg(test)]
mod tests {
    use plait_base::{Duration, SubflowId};

    use super::*;
    use crate::scheduler::Backlog;

    const PLENTY: Demand = Demand { backlog: Backlog::Endless, window_left: 10_000_000, last: None };

    fn subflow(index: usize, millis: u64, room: usize) -> Candidate {
        let window = 100_000;
        Candidate {
            index,
            id: SubflowId(index as u32),
            srtt: Duration::from_millis(millis),
            room,
            paced: 0,
            window,
            in_flight: window - room as u32,
            rate: f64::from(window) * 1000.0 / millis as f64,
            is_slow_start: false,
        }
    }

    #[test]
    fn the_fastest_with_room_is_chosen() {
        assert_eq!(LowestRtt.choose(&[subflow(0, 20, 1000), subflow(1, 10, 1000)], &PLENTY), Some(1));
        assert_eq!(
            LowestRtt.choose(&[subflow(0, 20, 1000), subflow(1, 10, 0)], &PLENTY),
            Some(0),
            "there is enough for both"
        );
        assert_eq!(LowestRtt.choose(&[subflow(0, 20, 0), subflow(1, 10, 0)], &PLENTY), None);
    }

    #[test]
    fn the_tail_waits_for_the_fast_path() {
        let tail = Demand { backlog: Backlog::Bytes(50_000), ..PLENTY };
        assert_eq!(LowestRtt.choose(&[subflow(0, 200, 1000), subflow(1, 10, 0)], &tail), None);
        assert_eq!(
            LowestRtt.choose(&[subflow(0, 12, 1000), subflow(1, 10, 0)], &tail),
            Some(0),
            "it would not be sooner"
        );
    }

    #[test]
    fn a_window_that_doubles_is_through_with_a_backlog_long_before_one_that_does_not() {
        let backlog = Demand { backlog: Backlog::Bytes(3_000_000), ..PLENTY };
        let growing =
            |is_slow_start| [subflow(0, 200, 1000), Candidate { is_slow_start, ..subflow(1, 10, 0) }];
        assert_eq!(LowestRtt.choose(&growing(true), &backlog), None, "60 ms");
        assert_eq!(LowestRtt.choose(&growing(false), &backlog), Some(0), "310 ms");
    }

    #[test]
    fn a_slow_path_may_not_block_the_window() {
        let tight = Demand { window_left: 500_000, ..PLENTY };
        assert_eq!(LowestRtt.choose(&[subflow(0, 200, 1000), subflow(1, 10, 0)], &tight), None);
        assert_eq!(LowestRtt.choose(&[subflow(0, 15, 1000), subflow(1, 10, 0)], &tight), Some(0));
    }

    #[test]
    fn all_faster_paths_together_are_what_a_slow_one_is_measured_by() {
        let tight = Demand { window_left: 3_000_000, ..PLENTY };
        assert_eq!(LowestRtt.choose(&[subflow(0, 200, 1000), subflow(1, 10, 0)], &tight), Some(0));
        assert_eq!(
            LowestRtt.choose(&[subflow(0, 200, 1000), subflow(1, 10, 0), subflow(2, 10, 0)], &tight),
            None
        );
    }

    #[test]
    fn a_fast_path_that_is_stuck_with_nothing_in_flight_is_not_waited_for() {
        let stuck = Candidate { in_flight: 0, ..subflow(1, 10, 0) };
        let tail = Demand { backlog: Backlog::Bytes(1), ..PLENTY };
        assert_eq!(LowestRtt.choose(&[subflow(0, 200, 1000), stuck], &tail), Some(0));
    }

    #[test]
    fn a_path_that_delivers_nothing_is_not_waited_for() {
        let liar = Candidate { rate: 0.0, ..subflow(1, 10, 0) };
        let tight = Demand { window_left: 500_000, ..PLENTY };
        assert_eq!(LowestRtt.choose(&[subflow(0, 200, 1000), liar], &tight), Some(0));
        let tail = Demand { backlog: Backlog::Bytes(50_000), ..PLENTY };
        assert_eq!(LowestRtt.choose(&[subflow(0, 200, 1000), liar], &tail), Some(0));
    }

    #[test]
    fn what_fits_in_the_window_of_a_fast_path_waits_there_for_its_turn_by_pacing() {
        let paced = Candidate { in_flight: 40_000, paced: 60_000, ..subflow(1, 10, 0) };
        let backlog = |bytes| Demand { backlog: Backlog::Bytes(bytes), ..PLENTY };
        assert_eq!(LowestRtt.choose(&[subflow(0, 12, 1000), paced], &backlog(60_000)), None);
        assert_eq!(
            LowestRtt.choose(&[subflow(0, 12, 1000), paced], &backlog(200_000)),
            Some(0),
            "there is more"
        );
        let full = Candidate { paced: 0, ..paced };
        assert_eq!(LowestRtt.choose(&[subflow(0, 12, 1000), full], &backlog(60_000)), Some(0));
    }
}
