//! What the network itself says about segments: ICMP errors, and silence about large ones.

use plait_base::Instant;
use plait_wire::{IcmpError, IcmpReason};

use crate::flight::Sent;
use crate::header_options::TIMESTAMPS_LEN;
use crate::log;
use crate::subflow::Subflow;
use crate::{Closed, Event, State};

/// Opaque options of a segment, at most: what a segment cut for an earlier MTU may have carried beside its
/// payload.
pub(crate) const MOST_OPAQUE: u16 = 28;

impl Subflow {
    /// Full segments that vanish again and again: the path may be narrower than it says (RFC 4821).
    pub(crate) fn shrink_black_hole(&mut self) {
        let full = self.send.flight.first().is_some_and(|first| {
            let sent = first.len().min(u64::from(first.size));
            sent + u64::from(MOST_OPAQUE) >= u64::from(self.segment_payload(0))
        });
        let before = self.send.mss();
        // A peer whose window is shut gets the segments and answers them.
        let is_open = self.send.window.size() > 0;
        if full && is_open && self.send.path.on_timeout(self.send.timeouts) {
            self.segment_size_changed(before);
        }
    }

    /// An ICMP error. It is believed only if it quotes something that is in flight (RFC 5927, section 4).
    pub(crate) fn icmp_arrives(&mut self, now: Instant, error: &IcmpError) {
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let quoted = i64::from(error.seq.distance(self.send.seq(self.send.una)));
        let outstanding = (self.send.next - self.send.una) as i64;
        if self.state == State::Closed || !(0..outstanding).contains(&quoted) {
            log::debug!(reason = ?error.reason, state = ?self.state, "ICMP error quotes nothing in flight");
            self.stats.segments_dropped += 1;
            return;
        }
        match error.reason {
            IcmpReason::TooBig { mtu } => {
                let before = self.send.mss();
                if !opening && self.send.path.on_too_big(mtu) {
                    self.segment_size_changed(before);
                    self.restart_rto(now);
                }
            }
            // RFC 5461: an error ends a connection only before it is established; later the path may heal.
            IcmpReason::Unreachable { .. } if opening => self.close(Closed::Unreachable),
            IcmpReason::Unreachable { .. } | IcmpReason::TimeExceeded | IcmpReason::ParameterProblem => {}
        }
    }

    /// Segments are cut smaller from now on; those that were too large are sent again, which says nothing
    /// about congestion.
    fn segment_size_changed(&mut self, before: u16) {
        let mss = self.send.mss();
        if mss >= before {
            return;
        }
        log::debug!(before, mss, "segments are cut smaller");
        self.send.congestion.set_mss(self.segment_payload(0));
        let stamps = if self.timestamps.is_some() { TIMESTAMPS_LEN as u16 } else { 0 };
        let fits = u64::from(mss - stamps - MOST_OPAQUE);
        let (una, next) = (self.send.una, self.send.next);
        let too_large = |sent: &Sent| sent.len().min(u64::from(sent.size)) > fits;
        self.send.flight.lose(una, next, too_large, |_| {});
        self.report(Event::MssReduced { mss });
    }
}
