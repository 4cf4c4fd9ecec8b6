//! Local ports for subflows that we open (RFC 6056).

use plait_base::Random;

/// The first port of the range. RFC 6056, section 3.2 asks for a range as wide as possible. The lower half is left to services, so that a
/// forwarded or filtered service port is never used by chance.
const FIRST: u16 = 32_768;
/// Number of ports in the range.
const COUNT: u64 = 1 << 15;

/// Independent draws before the range is searched in order. With half of the ports taken, all draws fail in one of 65,536 cases.
const DRAWS: u32 = 16;

/// Returns a port for which `is_free` holds, drawn unpredictably (RFC 6056, section 3.3.1, algorithm 1; the search after the draws also
/// begins at a random place). `None` if all are taken.
pub(crate) fn draw_port(random: &mut dyn Random, mut is_free: impl FnMut(u16) -> bool) -> Option<u16> {
    for _ in 0..DRAWS {
        let port = port_number(random.below(COUNT));
        if is_free(port) {
            return Some(port);
        }
    }
    let start = random.below(COUNT);
    (0..COUNT).map(|step| port_number((start + step) % COUNT)).find(|port| is_free(*port))
}

/// Returns the port at `index` below [`COUNT`].
fn port_number(index: u64) -> u16 {
    FIRST | index as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_base::SeededRandom;
    use std::collections::BTreeSet;

    #[test]
    fn every_port_is_handed_out_once_and_then_none() {
        let mut random = SeededRandom::from_number(1);
        let mut taken = BTreeSet::new();
        for _ in 0..COUNT {
            let port = draw_port(&mut random, |port| !taken.contains(&port)).expect("one is free");
            assert!(port >= FIRST);
            assert!(taken.insert(port), "{port} was free");
        }
        assert_eq!(draw_port(&mut random, |port| !taken.contains(&port)), None);
    }

    #[test]
    fn ports_do_not_follow_one_another() {
        let mut random = SeededRandom::from_number(2);
        let ports: Vec<_> = (0..100).filter_map(|_| draw_port(&mut random, |_| true)).collect();
        let neighbours = ports.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 8).count();
        assert!(neighbours < 5, "{neighbours} of 99");
    }
}
