//! Forward RTO-Recovery (RFC 5682): detects a premature timeout by the segments that arrive next. It needs neither timestamps nor SACK.
//!
//! After the timeout only the first segment is sent again. If its acknowledgment leaves others open, new data leaves before anything else
//! is repeated. Then there are two cases. Either a segment arrives that was sent before the timeout and never again: the path was only
//! slow. Or the new data causes duplicates: the data before it was lost.
//!
//! The rule is that of section 3.1 (with SACK): it requires the delivery of a segment that was sent once. Without SACK this is any
//! acknowledgment that advances, which is the rule of section 2.1.

/// New segments that leave before anything else is sent again (section 2.1, step 2b).
const NEW_SEGMENTS: u64 = 2;

/// Doubt about the last timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Doubt {
    /// None: there was no timeout, or its cause is known.
    #[default]
    Settled,
    /// The first segment was sent again, and no acknowledgment has come since (step 1).
    Repeated,
    /// It was acknowledged, and others were not (step 2b). This many bytes of new data may leave.
    Forward { left: u64, has_sent: bool },
}

/// The content of an acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckAfterTimeout {
    /// The cumulative acknowledgment has moved on.
    pub(crate) advanced: bool,
    /// All that was sent before the timeout is acknowledged.
    pub(crate) ends: bool,
    /// Something was delivered that was sent before the timeout, and only once.
    pub(crate) delivers_original: bool,
    /// It is a duplicate, or reports bytes behind a gap.
    pub(crate) repeats: bool,
    /// Payload of a full segment.
    pub(crate) segment: u64,
}

impl Doubt {
    /// Returns whether the timeout came too early.
    pub(crate) fn on_ack(&mut self, ack: AckAfterTimeout) -> bool {
        let was_early = matches!(self, Self::Forward { .. }) && ack.delivers_original;
        *self = match *self {
            Self::Settled => Self::Settled,
            Self::Repeated | Self::Forward { .. } if was_early || ack.ends => Self::Settled,
            Self::Repeated | Self::Forward { .. } if !ack.advanced && ack.repeats => Self::Settled,
            Self::Repeated if ack.advanced => {
                Self::Forward { left: NEW_SEGMENTS * ack.segment, has_sent: false }
            }
            unsettled @ (Self::Repeated | Self::Forward { .. }) => unsettled,
        };
        was_early
    }

    /// Returns how many bytes of new data leave before anything else is sent again; `None` if nothing waits for them.
    pub(crate) fn room(&self) -> Option<u64> {
        match *self {
            Self::Settled | Self::Repeated => None,
            Self::Forward { left, .. } => Some(left),
        }
    }

    /// Notes that this many new bytes have left.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        if let Self::Forward { left, has_sent } = self {
            *left = left.saturating_sub(bytes);
            *has_sent = true;
        }
    }

    /// Notes that there is no (more) new data, or no room for it.
    pub(crate) fn on_nothing_new(&mut self) {
        if let Self::Forward { left, has_sent } = self {
            if *has_sent { *left = 0 } else { *self = Self::Settled }
        }
    }
}
