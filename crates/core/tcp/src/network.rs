//! Signals of the network about segments: ICMP errors, and loss of large ones.

use plait_base::Instant;
use plait_wire::{IcmpError, IcmpReason};

use crate::connection::Connection;
use crate::flight::Sent;
use crate::log;
use crate::path_mtu::Verdict;
use crate::{Closed, Event, State};

/// Opaque options of a segment, at most: what a segment cut for an earlier MTU may have carried beside its
/// payload.
pub(crate) const MOST_OPAQUE: u16 = 28;

impl Connection {
    /// Handles full segments that are lost again and again: the path may be narrower than it reports (RFC 4821).
    pub(crate) fn shrink_black_hole(&mut self, now: Instant) {
        let Some(&first) = self.send.flight.first() else { return };
        let sent = first.len().min(u64::from(first.size));
        // It may have been repeated in smaller pieces already.
        let size = self.cautious_size(0).unwrap_or_else(|| self.segment_payload(0));
        let full = sent + u64::from(MOST_OPAQUE) >= u64::from(size);
        let before = self.send.mss();
        // A peer whose window is shut gets the segments and answers them.
        let is_open = self.send.window.size() > 0;
        let path = &mut self.send.path;
        if is_open
            && (path.on_lost_until(now, first.end, true)
                || (full && path.on_timeout(now, self.send.timeouts)))
        {
            self.segment_size_changed(before);
        }
    }

    /// Handles an ICMP error. It is accepted only if it quotes a segment in flight (RFC 5927, section 4).
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
            IcmpReason::TooBig { mtu } if !opening => self.take_too_big(now, mtu, quoted as u64),
            IcmpReason::TooBig { .. } => {}
            // RFC 5461: an error ends a connection only before it is established; later the path may heal.
            IcmpReason::Unreachable { .. } if opening => self.close(Closed::Unreachable),
            IcmpReason::Unreachable { .. } | IcmpReason::TimeExceeded | IcmpReason::ParameterProblem => {}
        }
    }

    /// Handles a router's report that a segment, `quoted` bytes beyond the acknowledged ones, is too large.
    fn take_too_big(&mut self, now: Instant, mtu: u32, quoted: u64) {
        let before = self.send.mss();
        match self.send.path.on_too_big(now, mtu, self.send.una + quoted) {
            Verdict::Ignored => {}
            Verdict::Believed => {
                self.segment_size_changed(before);
                self.restart_rto(now);
            }
            // It is lost if something smaller overtakes it.
            Verdict::Doubted => {
                let quiet = self.send.recovery.is_open() && !self.send.probe.is_outstanding();
                self.send.probe.due |= self.sack && quiet && self.send.timeouts == 0;
            }
        }
    }

    /// Applies a new segment size. Segments that are too large are sent again, which does not indicate congestion.
    pub(crate) fn segment_size_changed(&mut self, before: u16) {
        let mss = self.send.mss();
        if mss == before {
            return;
        }
        log::debug!(before, mss, "segments are cut to another size");
        self.send.congestion.set_mss(self.segment_payload(0));
        if mss < before {
            let fits = u64::from(mss - self.stamp_len() as u16 - MOST_OPAQUE);
            let (una, next) = (self.send.una, self.send.next);
            let too_large = |sent: &Sent| sent.len().min(u64::from(sent.size)) > fits;
            self.send.flight.lose(una, next, too_large, |_| {});
        }
        self.report(Event::MssChanged { mss });
    }
}
