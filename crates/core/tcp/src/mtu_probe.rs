//! Segments that probe the path MTU: larger ones with new data (RFC 4821, section 7; RFC 8899), and smaller ones if large ones are lost.

use plait_base::Instant;
use plait_wire::Segment;

use crate::compose::Grant;
use crate::connection::{Connection, SegmentOptions};
use crate::flight::Sent;

/// Losses, as far as they matter for congestion and path MTU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    /// Lost wire segments that may indicate congestion.
    pub(crate) segments: u64,
    /// Some of the probe is among what was lost.
    probe: bool,
    /// End of the last that was lost.
    end: u64,
}

impl Losses {
    /// Notes a range that was declared lost, `headers` bytes in front of each of its segments. Returns whether it tells of
    /// congestion, perhaps.
    pub(crate) fn add(&mut self, sent: &Sent, path: &mut crate::path_mtu::PathMtu, headers: u64) -> bool {
        self.end = self.end.max(sent.end);
        if path.probe().is_some_and(|probe| probe.start <= sent.start && sent.end <= probe.end) {
            self.probe = true;
            return false;
        }
        self.segments += sent.segments();
        path.on_loss(sent.at, sent.segments(), sent.len().min(sent.size.into()) + headers);
        true
    }
}

impl Connection {
    /// Returns a segment larger than the proven size, cut from a record that is long enough. It carries the record's options like any
    /// other, and smaller segments can repeat it.
    pub(crate) fn mtu_probe(&mut self, now: Instant, options: &mut impl SegmentOptions) -> Option<Segment> {
        let calm = self.sack
            && self.may_send_data()
            && self.send.recovery.is_open()
            && self.send.timeouts == 0
            && self.send.flight.lost() == 0;
        if !calm {
            return None;
        }
        let mss = self.send.path.next_probe(now)?;
        let start = self.send.next;
        let plain = usize::from(mss).saturating_sub(self.stamp_len());
        self.send.queue.fill(start, plain);
        let record = self.send.queue.record_at(start)?;
        let len = plain.saturating_sub(record.options);
        let size = len as u64;
        let fits = record.end - start >= size
            && self.congestion_room() >= size
            && self.window_room() >= size
            && self.send.pace.budget(now).is_ok();
        if !fits || len <= usize::from(self.segment_payload(record.options)) {
            return None;
        }
        let grant = Grant { len, size: len as u16 };
        self.send.path.on_probe_sent(start, start + size, mss);
        Some(self.send_new(now, start, grant, options))
    }

    /// Returns the payload of segments that repeat lost ones, if full segments are larger than the size that passes nearly everywhere. They
    /// carry the same bytes, and pass if the path has become narrower.
    pub(crate) fn cautious_size(&self, options: usize) -> Option<u16> {
        let base = self.send.path.base_mss().filter(|&base| base < self.send.mss())?;
        Some(self.segment_payload(options) - (self.send.mss() - base))
    }

    /// A range that left at `at` was delivered: a packet of its size passes.
    pub(crate) fn note_passing(&mut self, largest: Option<(u64, Instant)>) {
        if let Some((largest, at)) = largest {
            let headers = (self.send.path.headers() + self.stamp_len()) as u64;
            self.send.path.on_delivery(at, largest + headers);
        }
    }

    /// The last segment of a flight was lost, and its bytes have arrived in smaller ones.
    pub(crate) fn note_vanished(&mut self, now: Instant) {
        if self.cautious_size(0).is_some() {
            let bytes = self.send.path.headers() as u64 + u64::from(self.send.mss());
            self.send.path.on_loss(now, 1, bytes);
        }
    }

    /// Judges the path after an acknowledgment with this largest delivery: it may take larger segments, or only smaller ones.
    pub(crate) fn judge_path(&mut self, now: Instant, largest: Option<(u64, Instant)>) {
        let before = self.send.mss();
        let is_small = largest.is_some_and(|(largest, _)| {
            largest > 0 && self.cautious_size(0).is_some_and(|size| largest <= u64::from(size))
        });
        let round_trip = self.send.rtt.smoothed().unwrap_or_default();
        let changed = self.send.path.on_progress(self.send.una)
            | (is_small && self.send.path.on_small_delivery(now, round_trip));
        if changed {
            self.segment_size_changed(before);
        }
    }

    /// Judges losses: those of probes, and those that a router has announced, do not indicate congestion.
    pub(crate) fn judge_losses(&mut self, now: Instant, losses: Losses) {
        if losses.probe {
            self.send.path.on_probe_lost(now, losses.segments == 0);
        }
        if losses.segments == 0 {
            return;
        }
        let before = self.send.mss();
        if self.send.path.on_lost_until(now, losses.end, false) {
            self.segment_size_changed(before);
        } else {
            self.stats.segments_lost += losses.segments;
        }
    }
}
