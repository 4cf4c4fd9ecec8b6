//! What is remembered of a subflow while nothing touches it: figures that follow from it alone, and which looks at it have found
//! nothing to do.
//!
//! Whoever gets a subflow to change it touches it ([`Subflows`](super::Subflows) sees to that), and so it is looked at again.
//! A packet for one subflow costs no look at the others, but where one depends on them.

use core::cell::OnceCell;
use plait_base::{Duration, Instant};
use plait_tcp::State;
use plait_tcp::congestion::Member;

use super::subflow::{Stage, Subflow, UNKNOWN_RTT};

/// Who looks at subflows after something has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// For what TCP reports.
    Events,
    /// For segments to send.
    Segments,
    /// For what has become of blocks.
    Deliveries,
    /// For progress that is missing.
    Stall,
    /// For the window that was offered.
    Window,
}

/// What is remembered of one subflow.
#[derive(Debug)]
pub(super) struct Memo {
    figures: OnceCell<Figures>,
    /// A bit for each [`Look`] that has nothing to do before the subflow is touched.
    done: u8,
    /// The window that was offered last.
    window: Option<u32>,
}

/// What follows from one subflow alone, and from no moment.
#[derive(Debug)]
pub(crate) struct Figures {
    /// When TCP asks to be called.
    pub(crate) tcp: Option<Instant>,
    /// When its third ACK is to be repeated.
    pub(crate) third_ack: Option<Instant>,
    /// When it counts as stalled by the measure of its TCP.
    pub(crate) stall: Option<Instant>,
    /// Retransmission timeout.
    pub(crate) rto: Duration,
    /// Timeouts in a row.
    pub(crate) backoff: u8,
    /// Stream offset below which TCP has seen everything acknowledged.
    pub(crate) acked: u64,
    /// What the congestion control of others has to know of it.
    pub(crate) member: Member,
    /// The peer sends nothing more on it, and we may.
    pub(crate) is_half_closed: bool,
}

impl Default for Memo {
    fn default() -> Self {
        Self { figures: OnceCell::new(), done: 0, window: None }
    }
}

impl Memo {
    pub(super) fn forget(&mut self) {
        self.figures.take();
        self.done = 0;
    }

    pub(super) fn forget_figures(&mut self) {
        self.figures.take();
    }

    pub(super) fn is_done(&self, look: Look) -> bool {
        self.done & 1 << look as u8 != 0
    }

    pub(super) fn set_done(&mut self, look: Look) {
        self.done |= 1 << look as u8;
    }

    /// Whether this window is another than that which was offered last; it is noted as offered.
    pub(super) fn offers_another(&mut self, window: u32) -> bool {
        self.window.replace(window) != Some(window)
    }

    #[cfg(test)]
    pub(super) fn offers(&self, window: u32) -> bool {
        self.window == Some(window)
    }
}

impl Subflow {
    /// What follows from it alone.
    pub(crate) fn figures(&self) -> &Figures {
        self.memo.figures.get_or_init(|| Figures::of(self))
    }

    #[cfg(test)]
    pub(super) fn has_figures(&self) -> bool {
        self.memo.figures.get().is_some()
    }
}

impl Figures {
    fn of(subflow: &Subflow) -> Self {
        let (stats, congestion) = (subflow.tcp.stats(), subflow.tcp.congestion());
        Self {
            tcp: subflow.tcp.poll_timeout().map(|deadline| deadline.at),
            third_ack: match subflow.state.stage {
                Stage::Unconfirmed { again, tries: _ } => Some(again),
                Stage::Opening | Stage::Open | Stage::Leaving | Stage::Over => None,
            },
            stall: subflow.stall_deadline(&stats),
            rto: stats.rto,
            backoff: stats.backoff,
            acked: subflow.tcp.acked_offset(),
            member: Member {
                window: congestion.window(),
                srtt: stats.srtt.unwrap_or(UNKNOWN_RTT),
                bytes_between_losses: congestion.bytes_between_losses(),
            },
            is_half_closed: subflow.tcp.state() == State::CloseWait,
        }
    }
}
