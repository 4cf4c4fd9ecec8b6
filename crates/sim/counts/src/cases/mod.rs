//! The counted cases: one case is one event on a connection at rest, repeated.

mod endpoint;
mod mptcp;
mod tcp;

use crate::gauge::Gauge;

/// Rounds before the counted ones: windows open, and buffers have their sizes.
const WARM_UP: usize = 16;
/// Rounds that are counted; what is reported is their mean.
const ROUNDS: usize = 32;
/// Bytes that fill one segment of a path of 1,500 bytes, whatever the options.
const SEGMENT: usize = 1200;
/// A long super-segment, which is one block sealed too.
const SUPER_SEGMENT: usize = 60_000;

/// The counted part of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Bytes are handed to the sender, and leave.
    Out,
    /// They arrive, are read, and lead to whatever the receiver has to answer.
    In,
    /// The answer arrives.
    Ack,
}

type Case = (&'static str, fn(&mut Gauge));

/// In the order of the baseline. A case has its name, and does all that leads to what it counts itself.
const CASES: &[(&str, &[Case])] =
    &[("tcp", tcp::CASES), ("mptcp", mptcp::CASES), ("endpoint", endpoint::CASES)];

/// The names of all cases.
pub(crate) fn names() -> impl Iterator<Item = String> {
    CASES.iter().flat_map(|(layer, cases)| cases.iter().map(move |(name, _)| format!("{layer}/{name}")))
}

/// Runs the cases, or those with `only` in their names.
pub(crate) fn run(only: Option<&str>) {
    let works = CASES.iter().flat_map(|(_, cases)| cases.iter().map(|(_, work)| work));
    for (name, work) in names().zip(works) {
        if only.is_none_or(|part| name.contains(part)) {
            let mut gauge = Gauge::default();
            work(&mut gauge);
            gauge.close(&name);
        }
    }
}
