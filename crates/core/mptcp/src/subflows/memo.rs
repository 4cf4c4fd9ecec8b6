//! A memo per subflow: values that depend on this subflow alone, and the checks that have found nothing to do.
//!
//! A subflow changes through [`touch`](super::Subflows::touch) only, which clears its memo, so that the subflow is checked again. A packet
//! for one subflow causes no check of the others, unless one depends on them.

use core::cell::OnceCell;
use plait_base::{Duration, Instant};
use plait_tcp::State;
use plait_tcp::congestion::Member;

use super::stage::Stage;
use super::stall::UNKNOWN_RTT;
use super::subflow::Subflow;

/// The checks of subflows after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Events of TCP.
    Events,
    /// Segments to send.
    Segments,
    /// Deliveries of blocks.
    Deliveries,
    /// Missing progress.
    Stall,
    /// The offered window.
    Window,
}

/// The memo of one subflow.
#[derive(Debug)]
pub(super) struct Memo {
    figures: OnceCell<Figures>,
    /// A bit for each [`Look`] that has nothing to do until the subflow changes.
    done: u8,
    /// The window that was offered last.
    window: Option<u32>,
}

/// Values that depend on one subflow alone, and not on the time.
#[derive(Debug)]
pub(crate) struct Figures {
    /// TCP's deadline.
    pub(crate) tcp: Option<Instant>,
    /// When its third ACK must be repeated.
    pub(crate) third_ack: Option<Instant>,
    /// When it counts as stalled by its TCP.
    pub(crate) stall: Option<Instant>,
    /// Retransmission timeout.
    pub(crate) rto: Duration,
    /// Timeouts in a row.
    pub(crate) backoff: u8,
    /// Stream offset below which TCP has seen everything acknowledged.
    pub(crate) acked: u64,
    /// The values that the congestion control of other subflows needs.
    pub(crate) member: Member,
    /// Whether the peer sends nothing more on it while we may send.
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

    /// Whether this window differs from the last one offered. Stores it as offered.
    pub(super) fn offers_another(&mut self, window: u32) -> bool {
        self.window.replace(window) != Some(window)
    }

    #[cfg(test)]
    pub(super) fn offers(&self, window: u32) -> bool {
        self.window == Some(window)
    }
}

impl Subflow {
    /// Returns the values that depend on it alone.
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
            third_ack: match subflow.state.stage() {
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
