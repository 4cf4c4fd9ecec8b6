//! State of loss recovery: its phase, its pace, and whether it was justified.

use plait_base::Instant;

use crate::forward::{AckAfterTimeout, Doubt};
use crate::prr::Prr;

/// Phase of loss recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Losses are repaired at the pace of [`Prr`] (RFC 6675, 8985).
    Fast(Prr),
    /// The retransmission timer has fired: slow start from one segment.
    Timeout,
}

/// Evidence for or against the last reduction (RFC 3522, 4015, 3708).
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// The first retransmission of the recovery.
    first: Option<Retransmission>,
    /// Retransmitted bytes that no D-SACK has reported as unnecessary.
    needed: u64,
    /// What was sent again lies between these offsets.
    from: u64,
    to: u64,
}

/// Something that was sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retransmission {
    pub(crate) at: Instant,
    /// First offset of it.
    pub(crate) start: u64,
    /// First offset behind it.
    pub(crate) end: u64,
    /// Whether it had been sent again before: then an answer proves nothing.
    pub(crate) repeated: bool,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    phase: Phase,
    /// The recovery ends when this offset is acknowledged.
    end: u64,
    /// Where the recovery began, while it can be undone.
    undo: Option<u64>,
    evidence: Evidence,
    doubt: Doubt,
}

impl Recovery {
    pub(crate) fn new() -> Self {
        let evidence = Evidence::default();
        Self { phase: Phase::Open, end: 0, undo: None, evidence, doubt: Doubt::default() }
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self.phase, Phase::Timeout)
    }

    /// Begins to repair: from `una`, until all that was sent so far (`next`) is acknowledged.
    pub(crate) fn enter_fast(&mut self, una: u64, next: u64, prr: Prr) {
        self.phase = Phase::Fast(prr);
        self.doubt = Doubt::Settled;
        self.begin(una, next);
    }

    /// Begins the recovery after the retransmission timer has expired. A timeout in a recovery that began with one continues it. A timeout
    /// that interrupts a recovery is not doubted: a segment was sent again before it (RFC 5682, section 2.1, step 1).
    pub(crate) fn enter_timeout(&mut self, una: u64, next: u64) {
        let goes_on = self.is_timeout() && una < self.end;
        self.doubt = if self.is_open() { Doubt::Repeated } else { Doubt::Settled };
        self.phase = Phase::Timeout;
        if goes_on {
            self.end = next;
        } else {
            self.begin(una, next);
        }
    }

    fn begin(&mut self, una: u64, next: u64) {
        self.end = next;
        self.undo = Some(una);
        self.evidence = Evidence::default();
    }

    /// Paces a recovery that is paced.
    pub(crate) fn on_ack(&mut self, delivered: u64, pipe: u64, safe: bool) {
        match &mut self.phase {
            Phase::Fast(prr) => prr.on_ack(delivered, pipe, safe),
            Phase::Open | Phase::Timeout => {}
        }
    }

    /// Notes that this many bytes have left.
    pub(crate) fn on_send(&mut self, bytes: u64) {
        if let Phase::Fast(prr) = &mut self.phase {
            prr.on_send(bytes);
        }
    }

    /// They were sent again.
    pub(crate) fn on_retransmission(&mut self, retransmission: Retransmission) {
        let Retransmission { start, end, .. } = retransmission;
        if self.undo.is_some() {
            let Evidence { first, needed, from, to } = &mut self.evidence;
            (*from, *to) = if first.is_none() { (start, end) } else { (start.min(*from), end.max(*to)) };
            first.get_or_insert(retransmission);
            *needed += end - start;
        }
    }

    /// Handles a D-SACK for these bytes. It counts for segments repeated since the recovery began: an earlier probe may have been
    /// unnecessary although the recovery is not.
    pub(crate) fn on_duplicate(&mut self, left: u64, right: u64) {
        let Evidence { first: _, needed, from, to } = &mut self.evidence;
        if self.undo.is_some() && *from <= left && right <= *to {
            *needed = needed.saturating_sub(right - left);
        }
    }

    /// Whether an acknowledgment shows that the timeout at the start of the recovery was premature (RFC 5682).
    pub(crate) fn was_early(&mut self, ack: AckAfterTimeout) -> bool {
        self.doubt.on_ack(ack)
    }

    /// Where it was sent before the recovery began.
    pub(crate) fn is_original(&self, start: u64) -> bool {
        start < self.end
    }

    /// Doubt about the timeout.
    pub(crate) fn doubt(&self) -> &Doubt {
        &self.doubt
    }

    /// See [`Recovery::doubt`].
    pub(crate) fn doubt_mut(&mut self) -> &mut Doubt {
        &mut self.doubt
    }

    /// Returns when the first retransmission of the recovery left, if an acknowledgment of all below `una` covers it and its echo shows
    /// which transmission it answers (RFC 3522, section 3.2).
    pub(crate) fn answered_retransmission(&self, una: u64) -> Option<Instant> {
        if self.is_open() {
            // Clocks wrap: an echo that comes long after the recovery may seem to lie before it.
            return None;
        }
        let first = self.undo.and(self.evidence.first)?;
        (!first.repeated && first.end <= una).then_some(first.at)
    }

    /// Whether the last recovery ended with an acknowledgment of just the bytes below `una`.
    pub(crate) fn ended_with(&self, una: u64) -> bool {
        self.is_open() && una <= self.end
    }

    /// Whether an acknowledgment up to `una` ends the recovery.
    pub(crate) fn ends_at(&self, una: u64) -> bool {
        !self.is_open() && una >= self.end
    }

    /// Whether, by all that is known at `una`, the recovery was a mistake: every retransmission arrived twice, or nothing had to be sent
    /// again.
    pub(crate) fn was_mistake(&self, una: u64) -> bool {
        let Some(start) = self.undo else { return false };
        if self.evidence.first.is_some() {
            self.evidence.needed == 0 && una > start
        } else {
            self.ends_at(una)
        }
    }

    /// Ends the recovery. It can still be undone by late D-SACKs.
    pub(crate) fn finish(&mut self) {
        self.phase = Phase::Open;
        self.doubt = Doubt::Settled;
    }

    /// Takes the recovery back.
    pub(crate) fn undo(&mut self) {
        self.phase = Phase::Open;
        self.undo = None;
        self.doubt = Doubt::Settled;
    }
}
