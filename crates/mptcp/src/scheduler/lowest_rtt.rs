//! The smallest round-trip time that has room; but a slow path only where it helps.
//!
//! When the fast subflow is full there are two reasons to wait for it instead of using a slower one: what is
//! left would be through sooner that way (the estimate of ECF, Lim et al. 2017), or the slow block would keep
//! the window from moving while the fast subflow could use it (BLEST, Ferlin et al. 2016).

use super::{Candidate, Demand};

pub(super) fn choose(candidates: &[Candidate], demand: &Demand) -> Option<usize> {
    let best = candidates
        .iter()
        .filter(|candidate| candidate.room > 0)
        .min_by_key(|candidate| (candidate.srtt, candidate.id))?;
    // Only a subflow with something in flight will have room again by itself.
    let faster = candidates
        .iter()
        .filter(|other| other.room == 0 && other.in_flight > 0 && other.srtt < best.srtt)
        .min_by_key(|other| (other.srtt, other.id));
    match faster {
        Some(fast) if is_sooner(fast, best, demand) || would_block(fast, best, demand) => None,
        Some(_) | None => Some(best.index),
    }
}

/// Whether all that is queued would be through on `fast` alone before one round trip of `slow`.
fn is_sooner(fast: &Candidate, slow: &Candidate, demand: &Demand) -> bool {
    let rounds = 1.0 + demand.queued as f64 / f64::from(fast.window.max(1));
    rounds * fast.srtt.as_secs_f64() < slow.srtt.as_secs_f64()
}

/// Whether `fast` could fill the window during one round trip of `slow`, so that a block on `slow` makes it
/// stand still. Round trips that differ little mean nothing.
fn would_block(fast: &Candidate, slow: &Candidate, demand: &Demand) -> bool {
    let turns = slow.srtt.as_secs_f64() / fast.srtt.as_secs_f64().max(1e-6);
    turns >= 2.0 && f64::from(fast.window) * turns > demand.window_left as f64
}

#[cfg(test)]
mod tests {
    use plait_base::{Duration, SubflowId};

    use super::*;

    const PLENTY: Demand = Demand { queued: 10_000_000, window_left: 10_000_000, last: None };

    fn flow(index: usize, millis: u64, room: usize) -> Candidate {
        Candidate {
            index,
            id: SubflowId(index as u32),
            srtt: Duration::from_millis(millis),
            room,
            window: 100_000,
            in_flight: 100_000 - room as u32,
        }
    }

    #[test]
    fn the_fastest_with_room_is_chosen() {
        assert_eq!(choose(&[flow(0, 20, 1000), flow(1, 10, 1000)], &PLENTY), Some(1));
        assert_eq!(
            choose(&[flow(0, 20, 1000), flow(1, 10, 0)], &PLENTY),
            Some(0),
            "there is enough for both"
        );
        assert_eq!(choose(&[flow(0, 20, 0), flow(1, 10, 0)], &PLENTY), None);
    }

    #[test]
    fn the_tail_waits_for_the_fast_path() {
        let tail = Demand { queued: 50_000, ..PLENTY };
        assert_eq!(choose(&[flow(0, 200, 1000), flow(1, 10, 0)], &tail), None);
        assert_eq!(choose(&[flow(0, 12, 1000), flow(1, 10, 0)], &tail), Some(0), "it would not be sooner");
    }

    #[test]
    fn a_slow_path_may_not_block_the_window() {
        let tight = Demand { window_left: 500_000, ..PLENTY };
        assert_eq!(choose(&[flow(0, 200, 1000), flow(1, 10, 0)], &tight), None);
        assert_eq!(choose(&[flow(0, 15, 1000), flow(1, 10, 0)], &tight), Some(0));
    }

    #[test]
    fn nobody_waits_for_a_fast_path_that_is_stuck_with_nothing_in_flight() {
        let stuck = Candidate { in_flight: 0, ..flow(1, 10, 0) };
        let tail = Demand { queued: 1, ..PLENTY };
        assert_eq!(choose(&[flow(0, 200, 1000), stuck], &tail), Some(0));
    }
}
