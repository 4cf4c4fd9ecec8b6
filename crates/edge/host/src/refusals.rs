//! Unknown peers that were refused because they cannot be sealed: a line in the log, but not one for each. A sender
//! can be refused as often as it likes, and under any source address.

use plait_base::{Instant, LogLimit};
use plait_endpoint::{Endpoint, Unsealed};

/// The refusals that the log contains.
#[derive(Default)]
pub(crate) struct Refusals {
    log: LogLimit,
    /// Refused, as of the last line.
    told: u64,
}

/// A line for the log.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Line {
    unsealed: Unsealed,
    /// Refused since the last line, without those of this line.
    others: u64,
}

impl Refusals {
    /// Returns the line that is due, if a peer was refused.
    pub(crate) fn look(&mut self, now: Instant, endpoint: &mut Endpoint) -> Option<Line> {
        let (unsealed, total) = endpoint.take_unsealed()?;
        self.log.note(now, 1)?;
        // Several may have been refused since the last look.
        let others = total.saturating_sub(self.told + 1);
        self.told = total;
        Some(Line { unsealed, others })
    }
}

impl Line {
    pub(crate) fn write(&self) {
        let Self { unsealed: Unsealed { remote, why }, others } = self;
        crate::log::warn!(from = %remote, why, others, "refused a peer that cannot be sealed as required; nothing less is allowed");
    }
}
