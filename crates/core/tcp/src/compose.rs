//! Segments as values: flags, options in their order, acknowledgment and window.

use arrayvec::ArrayVec;
use bytes::Bytes;
use plait_base::{Instant, SeqNum};
use plait_wire::{Flags, OptionBytes, SackBlocks, Segment};

use crate::ack_policy::Urgency;
use crate::connection::{Connection, SegmentKind, SegmentOptions};
use crate::earlier_acks::{Duplicate, EarlierAck};
use crate::header_options::{self, SynOptions};
use crate::log;
use crate::receive_queue::{Block, MAX_BLOCKS};
use crate::{State, Timer};

/// The length of a piece that may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) len: usize,
    pub(crate) size: u16,
}

/// The content of a segment to be made.
#[derive(Debug)]
struct Draft {
    offset: u64,
    flags: Flags,
    payload: Bytes,
    options: OptionBytes,
    segment_size: u16,
    /// The offset that it acknowledges.
    ack: u64,
    /// Whether its options are those of an earlier segment. Their acknowledgment above TCP is old, so a new one is still owed to the peer.
    is_stale: bool,
}

impl Connection {
    /// Makes the segment for bytes in flight; `again` if they have left before.
    pub(crate) fn cut(
        &mut self,
        now: Instant,
        start: u64,
        grant: Grant,
        with_fin: bool,
        again: bool,
        options: &mut impl SegmentOptions,
    ) -> Segment {
        let fin = if with_fin { Flags::FIN } else { Flags::default() };
        let piece = if grant.len > 0 { self.send.queue.piece(start, grant.len) } else { None };
        let Some(piece) = piece else {
            return self.bare(now, start, Flags::ACK.with(fin), options);
        };
        let end = start + grant.len as u64;
        // RFC 9293, section 3.9.1.2: PSH on the last segment of what is queued.
        let push = piece.push || end == self.send.queue.end();
        let flags = Flags::ACK.with(fin).with(if push { Flags::PSH } else { Flags::default() });
        let ack = self.receive.to_acknowledge();
        // An acknowledgment that is older than the peer can remember is omitted (RFC 5961, section 5).
        let oldest = ack.saturating_sub(u64::from(self.receive.window.size()) / 2);
        // SACK blocks refer to the cumulative acknowledgment.
        let is_dated = !again && !self.receive.queue.has_gaps();
        let dated = piece.ack.filter(|_| is_dated).map_or(ack, |dated| dated.clamp(oldest, ack));
        let draft = Draft {
            offset: start,
            flags,
            payload: piece.payload,
            ack: dated,
            is_stale: again && !piece.options.is_empty(),
            options: piece.options,
            segment_size: grant.size,
        };
        let mut all = OptionBytes::new();
        self.put_stamp(now, self.receive.duplicate.as_ref(), &mut all);
        let _ = all.try_extend_from_slice(&draft.options);
        self.put_blocks_beside(&draft, &mut all);
        self.finish_segment(draft, all)
    }

    /// Bytes of a full segment that are given up to report data after a gap (RFC 2018, section 3: in all acknowledgments sent meanwhile).
    /// An owner with options has made its records as long as segments, so that little room is left. Then only short segments report the
    /// gap, and pure acknowledgments do.
    pub(crate) fn reserved_for_blocks(&self, options: usize) -> u16 {
        if options > 0 || !self.sack {
            return 0;
        }
        let blocks = self.receive.queue.runs().min(header_options::sack_room(self.stamp_len()));
        if blocks == 0 { 0 } else { header_options::sack_len(blocks) as u16 }
    }

    /// Adds SACK blocks if the segments of `draft` are not full.
    fn put_blocks_beside(&self, draft: &Draft, all: &mut OptionBytes) {
        if !self.sack || !self.receive.queue.has_gaps() {
            return;
        }
        let full = self.segment_payload(draft.options.len());
        let full = usize::from(self.cautious_size(draft.options.len()).unwrap_or(full));
        let spare = full.saturating_sub(draft.payload.len().min(draft.segment_size.into()));
        let most = MAX_BLOCKS.min(spare.saturating_sub(header_options::sack_len(0)) / 8);
        if most > 0 {
            let mut held = ArrayVec::<Block, MAX_BLOCKS>::new();
            self.receive.queue.blocks(most, &mut |block| held.push(block));
            self.put_blocks(None, held, all);
        }
    }

    /// A segment without payload. It carries SACK blocks where there is room.
    pub(crate) fn bare(
        &mut self,
        now: Instant,
        offset: u64,
        flags: Flags,
        options: &mut impl SegmentOptions,
    ) -> Segment {
        let mut all = OptionBytes::new();
        self.put_stamp(now, self.receive.duplicate.as_ref(), &mut all);
        self.put_opaque(SegmentKind::Ack, options, &mut all);
        self.put_sack(&mut all);
        let draft = Draft {
            offset,
            flags,
            payload: Bytes::new(),
            options: OptionBytes::new(),
            segment_size: self.segment_payload(0),
            ack: self.receive.to_acknowledge(),
            is_stale: false,
        };
        self.finish_segment(draft, all)
    }

    /// Returns the acknowledgment that is still owed to an earlier segment than the last one.
    pub(crate) fn ack_of(
        &mut self,
        now: Instant,
        earlier: &EarlierAck,
        options: &mut impl SegmentOptions,
    ) -> Segment {
        let mut all = OptionBytes::new();
        self.put_stamp(now, earlier.duplicate.as_ref(), &mut all);
        self.put_opaque(SegmentKind::Ack, options, &mut all);
        if self.sack {
            self.put_blocks(earlier.duplicate, earlier.blocks.iter().copied(), &mut all);
        }
        let draft = Draft {
            offset: self.send.next,
            flags: Flags::ACK,
            payload: Bytes::new(),
            options: OptionBytes::new(),
            segment_size: self.segment_payload(0),
            ack: self.receive.to_acknowledge(),
            is_stale: false,
        };
        let segment = self.finish_segment(draft, all);
        self.receive.acks.want(Urgency::Alone);
        segment
    }

    fn put_stamp(&self, now: Instant, duplicate: Option<&Duplicate>, all: &mut OptionBytes) {
        if let Some(clock) = &self.timestamps {
            let stamp = match duplicate.and_then(|duplicate| duplicate.stamp) {
                Some(repeated) => clock.answer_to(now, repeated),
                None => clock.stamp(now),
            };
            header_options::emit_timestamps(stamp, all);
        }
    }

    fn put_opaque(&self, kind: SegmentKind, options: &mut impl SegmentOptions, all: &mut OptionBytes) {
        let room = all.remaining_capacity();
        let mut opaque = OptionBytes::new();
        options.write(kind, room, &mut opaque);
        debug_assert!(opaque.len() <= room && opaque.len().is_multiple_of(4), "what the trait asks for");
        let _ = all.try_extend_from_slice(&opaque);
    }

    /// D-SACK first, then the runs behind gaps, latest first (RFC 2018, section 4; RFC 2883).
    fn put_sack(&mut self, all: &mut OptionBytes) {
        let duplicate = self.receive.duplicate.take();
        if !self.sack || (duplicate.is_none() && !self.receive.queue.has_gaps()) {
            return;
        }
        let mut held = ArrayVec::<Block, MAX_BLOCKS>::new();
        self.receive.queue.blocks(MAX_BLOCKS, &mut |block| held.push(block));
        self.put_blocks(duplicate, held, all);
    }

    fn put_blocks(
        &self,
        duplicate: Option<Duplicate>,
        held: impl IntoIterator<Item = Block>,
        all: &mut OptionBytes,
    ) {
        let room = header_options::sack_room(all.len());
        let irs = self.receive.irs;
        let blocks: SackBlocks = duplicate
            .map(|duplicate| duplicate.block)
            .into_iter()
            .chain(held)
            .take(room)
            .map(|(start, end)| (irs + start as u32, irs + end as u32))
            .collect();
        if !blocks.is_empty() {
            header_options::emit_sack(&blocks, all);
        }
    }

    fn finish_segment(&mut self, draft: Draft, options: OptionBytes) -> Segment {
        let next = self.receive.next();
        let window = if draft.flags.contains(Flags::SYN) {
            self.receive.window.field_of_syn()
        } else {
            self.receive.window.field(next, self.send.path.link_mss())
        };
        let echo = if draft.flags.contains(Flags::SYN) {
            Flags::default()
        } else {
            self.ecn.ack_flags(draft.payload.is_empty())
        };
        self.receive.last_ack = self.receive.last_ack.max(draft.ack);
        let is_bare = draft.payload.is_empty();
        if is_bare || !(draft.is_stale || draft.ack < next) {
            self.receive.acks.on_sent(is_bare);
        }
        if is_bare && draft.ack < next {
            self.receive.acks.want(Urgency::Delayed);
        }
        if self.receive.acks.urgency() == Urgency::None && self.receive.held.is_none() {
            self.timers.stop(Timer::DelayedAck);
        }
        let segment = Segment {
            source: self.tuple.local,
            destination: self.tuple.remote,
            seq: self.send.seq(draft.offset),
            ack: self.receive.irs + draft.ack as u32,
            flags: draft.flags.with(echo),
            window,
            urgent: 0,
            options,
            payload: draft.payload,
            segment_size: draft.segment_size,
            ecn: 0,
            flow_label: self.flow_label.get(),
        };
        let sent = segment.wire_segments() as u64;
        self.stats.segments_sent += sent;
        if !segment.payload.is_empty() {
            self.stats.data_segments_sent += sent;
        }
        segment
    }

    pub(crate) fn syn_segment(&mut self, now: Instant, options: &mut impl SegmentOptions) -> Segment {
        let attempt = self.opening.attempts;
        let answers = self.state == State::SynReceived;
        let kind = if answers { SegmentKind::SynAck { attempt } } else { SegmentKind::Syn { attempt } };
        let scale = self.receive.window.offered_scale();
        let scaling = !answers || self.receive.window.scaling();
        let mut all = OptionBytes::new();
        SynOptions {
            mss: Some(self.send.path.link_mss()),
            scale: scaling.then_some(scale),
            sack: self.sack,
            timestamps: self.timestamps.map(|clock| clock.stamp(now)),
        }
        .emit(&mut all);
        self.put_opaque(kind, options, &mut all);
        self.opening.due = false;
        self.opening.attempts = attempt.saturating_add(1);
        self.opening.sent_at = now;
        if attempt == 0 {
            self.opening.began_at = now;
        }
        self.restart_rto(now);
        self.watch_user_timeout(now, false);
        let flags = if answers { Flags::SYN.with(Flags::ACK) } else { Flags::SYN };
        let flags = flags.with(self.ecn.syn_flags(answers, attempt));
        let draft = Draft {
            offset: 0,
            flags,
            payload: Bytes::new(),
            options: OptionBytes::new(),
            segment_size: self.segment_payload(0),
            ack: self.receive.to_acknowledge(),
            is_stale: false,
        };
        let mut segment = self.finish_segment(draft, all);
        if !answers {
            segment.ack = SeqNum::new(0);
        }
        segment
    }

    pub(crate) fn reset_segment(
        &mut self,
        now: Instant,
        seq: SeqNum,
        with_ack: bool,
        options: &mut impl SegmentOptions,
    ) -> Segment {
        let mut all = OptionBytes::new();
        if with_ack {
            self.put_stamp(now, self.receive.duplicate.as_ref(), &mut all);
        }
        self.put_opaque(SegmentKind::Reset, options, &mut all);
        self.stats.segments_sent += 1;
        log::debug!(seq = seq.bits(), state = ?self.state, answers_nothing_of_ours = !with_ack, "reset leaves");
        let next = self.receive.irs + self.receive.next() as u32;
        Segment {
            source: self.tuple.local,
            destination: self.tuple.remote,
            seq,
            ack: if with_ack { next } else { SeqNum::new(0) },
            flags: if with_ack { Flags::RST.with(Flags::ACK) } else { Flags::RST },
            window: 0,
            urgent: 0,
            options: all,
            payload: Bytes::new(),
            segment_size: self.segment_payload(0),
            ecn: 0,
            flow_label: self.flow_label.get(),
        }
    }
}
