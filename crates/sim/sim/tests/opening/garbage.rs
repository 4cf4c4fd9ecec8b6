//! Garbage in the place of blocks, from the first one on and for ever, on one path. It costs the subflows of that path,
//! whichever side gets it, and whether they are the first or have joined.

use plait_handshake::Tep;
use plait_sim::{Direction, Workload};
use plait_wire::{Segment, TcpOption};

use crate::fixture::{BYTES, Fate, Fixture, MINUTE, TEPS, alter, assert_complete, is_block, kept, sealed};

/// What stands in the place of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Garbage {
    /// The block with a byte changed.
    Altered,
    /// As many bytes that no mapping covers.
    Unmapped,
    /// A fatal alert of TLS in clear, as a handshake may end with one.
    Alert,
    /// A block that is too short to be one.
    Short,
}

const GARBAGE: [Garbage; 4] = [Garbage::Altered, Garbage::Unmapped, Garbage::Alert, Garbage::Short];

impl Garbage {
    fn put(self, segment: &mut Segment) {
        match self {
            Self::Altered => return alter(segment),
            Self::Short => segment.payload.truncate(5),
            Self::Unmapped => {
                segment.options = kept(segment, |option| !matches!(option, TcpOption::Mptcp(_)));
                segment.payload = vec![0x5a; segment.payload.len()].into();
            }
            Self::Alert => {
                segment.options = kept(segment, |option| !matches!(option, TcpOption::Mptcp(_)));
                segment.payload = [0x15, 3, 3, 0, 2, 2, 40].repeat(segment.payload.len() / 7 + 1).into();
            }
        }
        segment.segment_size = segment.payload.len() as u16;
    }
}

fn survives(tep: Tep, garbage: Garbage, path: usize, to: &'static [Direction]) {
    let mut fixture = Fixture::new(4);
    fixture.meddle(path, move |_, direction, segment| {
        if to.contains(&direction) && is_block(segment) {
            garbage.put(segment);
        }
        Fate::Pass
    });
    let begin = fixture.world.now();
    let id = fixture.open(&sealed(tep), Workload::of(BYTES), Workload::of(BYTES));
    let client = assert_complete(&mut fixture, id, (BYTES, BYTES));
    let took = client.at.saturating_since(begin);
    assert!(took < MINUTE, "{took:?} for {tep:?}, {garbage:?} on path {path} to {to:?}");
    let honest = |flow: &&plait_mptcp::SubflowStatus| usize::from(flow.path.0) != path;
    let left: Vec<_> = client.status.subflows.iter().filter(honest).collect();
    assert!(!left.is_empty() && left.iter().all(|flow| flow.blocks_failed == 0), "{:?}", client.status);
}

#[test]
fn on_either_path_it_costs_that_path_alone_at_either_end() {
    const BOTH: &[Direction] = &[Direction::Forward, Direction::Backward];
    for tep in TEPS {
        for garbage in GARBAGE {
            for path in [0, 1] {
                for to in [&BOTH[..1], &BOTH[1..], BOTH] {
                    survives(tep, garbage, path, to);
                }
            }
        }
    }
}
