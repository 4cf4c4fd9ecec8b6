//! Handling of segments: first the options, then the bytes to which they refer.

use crate::log;
use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_tcp::{Arrival, Closed, Event as TcpEvent};
use plait_wire::{Dss, Flags, ResetReason, Segment};

use crate::connection::options_in::Signals;
use crate::paths::Refusal;
use crate::protection::Mode;
use crate::receive::mapping::{Declaration, Declared, Mapping, Placed};
use crate::role::Role;
use crate::send::Acked;
use crate::subflows::{Kind, ResetInfo, Stage};
use crate::{Connection, ConnectionError, Host};

/// Bytes of a subflow that may wait for a late mapping.
pub(crate) const MAX_UNMAPPED: usize = 256 << 10;
/// Time for which they may wait.
const MAX_UNMAPPED_TIME: Duration = Duration::from_millis(500);

/// An acceptable segment.
pub(crate) struct Arrived<'a> {
    pub(crate) index: usize,
    pub(crate) segment: &'a Segment,
    pub(crate) signals: &'a Signals,
    /// Stream offset of its first byte.
    pub(crate) offset: u64,
    /// The window that the segment offers.
    pub(crate) window: u32,
}

impl Connection {
    pub(crate) fn take_segment(
        &mut self,
        now: Instant,
        index: usize,
        segment: &Segment,
        host: &mut dyn Host,
    ) {
        let signals = Signals::read(segment);
        self.counters.malformed_options += u64::from(signals.malformed);
        if self.subflows[index].lacks_room_for(segment) {
            self.counters.mappings_refused += 1;
            return;
        }
        self.couple(index);
        let tcp = &mut self.subflows.touch(index).tcp;
        let arrival = match signals.is_message() {
            true => tcp.handle_message(now, segment),
            false => tcp.handle_segment(now, segment),
        };
        match arrival {
            Arrival::Dropped(_) => {
                self.counters.segments_refused += 1;
                // A reset that overtook lost data does not have the sequence number that RFC 5961 requires, and its sender is gone before
                // our challenge arrives. Its key proves more than a sequence number.
                if let Some(key) = signals.fast_close {
                    self.on_fast_close(index, key);
                }
            }
            Arrival::Accepted { offset, window } => {
                self.subflows.watch_delay(now, index);
                let arrived = Arrived { index, segment, signals: &signals, offset, window };
                self.on_accepted(now, &arrived, host);
            }
        }
        self.read_subflow(now, index);
    }

    fn on_accepted(&mut self, now: Instant, arrived: &Arrived<'_>, host: &mut dyn Host) {
        let Arrived { index, segment, signals, .. } = *arrived;
        if let Some(key) = signals.fast_close
            && self.on_fast_close(index, key)
        {
            return;
        }
        if segment.flags.contains(Flags::RST) {
            let state = &self.subflows[index].state;
            // The reason is not authenticated: on a sealed connection it must not keep us from a path.
            if let Some(reset) = signals.reset.filter(|_| self.protection.trusts_options()) {
                self.paths.on_refused(state.path(), state.tuple().remote, Refusal::of(reset));
            }
            return;
        }
        let is_syn = segment.flags.contains(Flags::SYN);
        if !self.protection.verifies_life() {
            self.follow_trial(now, index);
        }
        let state = &self.subflows[index].state;
        match (state.stage(), state.kind()) {
            (Stage::Opening, Kind::FirstActive) if is_syn && segment.flags.contains(Flags::ACK) => {
                self.on_first_syn_ack(arrived);
            }
            (Stage::Opening, Kind::FirstPassive) => self.on_first_third_ack(arrived),
            (Stage::Opening, Kind::JoinActive { .. }) if is_syn => {
                self.note_syn_data(now, index, host);
                self.on_join_syn_ack(now, arrived);
            }
            (Stage::Open, _) => self.heed_answers(now, arrived),
            (Stage::Opening, Kind::JoinPassive { .. }) => self.on_join_third_ack(now, arrived),
            (Stage::Unconfirmed { .. }, _) if !is_syn => self.on_join_confirmed(now, index),
            (Stage::Opening | Stage::Unconfirmed { .. } | Stage::Leaving | Stage::Over, _) => {}
        }
        match self.mode() {
            _ if !self.protection.takes_clear_bytes() => self.take_sealed_signals(now, arrived),
            Mode::Multipath if !is_syn => self.take_signals(now, arrived, host),
            Mode::Plain(_) if !segment.payload.is_empty() => {
                self.watch_for_infinite(index, signals.dss.and_then(|dss| dss.mapping));
            }
            Mode::Opening | Mode::Multipath | Mode::Plain(_) => {}
        }
    }

    /// Handles the options of an acceptable segment on an established subflow.
    fn take_signals(&mut self, now: Instant, arrived: &Arrived<'_>, host: &mut dyn Host) {
        let Arrived { index, signals, .. } = *arrived;
        match self.subflows[index].state.stage() {
            Stage::Open | Stage::Leaving => {}
            Stage::Opening | Stage::Unconfirmed { .. } | Stage::Over => return,
        }
        if let Some(length) = signals.capable.and_then(|capable| capable.data_length) {
            let checksum = signals.capable.and_then(|capable| capable.checksum);
            self.declare_first(index, length, checksum);
        }
        if let Some(dss) = signals.dss {
            self.subflows.touch(index).state.on_dss();
            self.take_dss(arrived, &dss);
        } else if !signals.any {
            self.check_stripped(index);
        }
        if self.mode() != Mode::Multipath {
            return;
        }
        if let Some(backup) = signals.prio {
            self.subflows.touch(index).state.on_priority(backup);
        }
        if let Some(add) = signals.add_addr {
            self.on_add_addr(now, index, &add, host);
        }
        for &id in &signals.removed {
            self.on_remove_addr(now, id);
        }
        if signals.fail.is_some() {
            self.on_fail(index);
        }
    }

    /// Handles DSS options that came before the key.
    pub(crate) fn take_early_mappings(&mut self, index: usize) {
        for (dss, offset) in self.incoming.take_early_mappings() {
            self.subflows.touch(index).state.on_dss();
            self.take_mapping(index, offset, &dss);
        }
    }

    fn take_dss(&mut self, arrived: &Arrived<'_>, dss: &Dss) {
        let Some(numbers) = self.protection.numbers_mut() else { return };
        if let Some(ack) = dss.data_ack {
            let acked = numbers.outgoing.ack(ack, self.outgoing.acked());
            match acked.map(|acked| self.outgoing.on_data_ack(acked, arrived.window)) {
                Some(Acked::New(_)) => {
                    numbers.is_confirmed = true;
                }
                Some(Acked::Old) => numbers.is_confirmed = true,
                Some(Acked::Beyond) | None => self.counters.forged_acks += 1,
            }
        }
        let is_infinite = dss.mapping.is_some_and(|mapping| mapping.length == 0);
        if is_infinite && !arrived.segment.payload.is_empty() {
            if self.can_fall_back(arrived.index) {
                let reason = crate::PlainReason::PeerFellBack;
                self.fall_back(arrived.index, reason, crate::connection::fallback::Mapped::Announce);
            } else {
                self.subflows
                    .touch(arrived.index)
                    .reset(ResetInfo::because(ResetReason::MiddleboxInterference));
            }
            return;
        }
        self.take_mapping(arrived.index, arrived.offset, dss);
    }

    fn take_mapping(&mut self, index: usize, near: u64, dss: &Dss) {
        let use_checksum = self.protection.has_checksums();
        let (Some(numbers), Some(mapping)) = (self.protection.numbers_mut(), dss.mapping) else { return };
        let dsn = numbers.incoming.sequence(mapping.dsn, self.incoming.next());
        let is_long = matches!(mapping.dsn, plait_wire::DataSequence::Long(_));
        let length = u64::from(mapping.length).saturating_sub(u64::from(dss.data_fin));
        // A DATA_FIN alone has no bytes to be checked.
        if mapping.checksum.is_some() != use_checksum && (!use_checksum || length > 0) {
            self.refuse_mapping(index);
            return;
        }
        numbers.long_acks = is_long;
        if dss.data_fin {
            self.on_data_fin(index, dsn + length);
        }
        let ahead = mapping.ssn.wrapping_sub(near as u32).cast_signed();
        let Some(offset) = near.checked_add_signed(i64::from(ahead)) else { return };
        let checksum = mapping.checksum.filter(|_| use_checksum).map(|checksum| Declared {
            ssn: mapping.ssn,
            length: mapping.length,
            checksum,
        });
        self.declare(index, Mapping { offset, dsn, length, checksum });
    }

    /// Ends a subflow with a mapping that has a checksum although none was negotiated, or lacks the negotiated one.
    fn refuse_mapping(&mut self, index: usize) {
        //= rfc8684 3.3-02
        //= rfc8684 3.3-03
        //= rfc8684 3.3-04
        log::debug!(
            subflow = self.subflows[index].state.id().0,
            "subflow dropped: a checksum is missing, or was not negotiated"
        );
        self.subflows.touch(index).reset(ResetInfo::because(ResetReason::Mptcp));
    }

    /// Declares the mapping of the opener's first data: the keys determine its place.
    fn declare_first(&mut self, index: usize, length: u16, checksum: Option<u16>) {
        let Some(session) = self.protection.session() else { return };
        if checksum.is_some() != session.checksum {
            self.refuse_mapping(index);
            return;
        }
        let dsn = session.numbers.incoming.dsn(1);
        let checksum =
            checksum.filter(|_| session.checksum).map(|checksum| Declared { ssn: 1, length, checksum });
        self.subflows.touch(index).state.on_dss();
        self.declare(index, Mapping { offset: 1, dsn, length: u64::from(length), checksum });
    }

    fn declare(&mut self, index: usize, mapping: Mapping) {
        if let Some(numbers) = self.protection.numbers_mut() {
            numbers.is_mapped = true;
        }
        let state = &mut self.subflows.touch(index).state;
        match state.declare(mapping) {
            Declaration::Fine => {}
            Declaration::Conflict => {
                log::debug!(subflow = state.id().0, "mapping dropped: it contradicts another");
                self.counters.mapping_conflicts += 1;
            }
            Declaration::TooMany => {
                log::debug!(subflow = state.id().0, "mapping dropped: there are too many");
                self.counters.mappings_refused += 1;
            }
        }
    }

    /// Checks for stripped options: a segment that acknowledges data has no MPTCP option at all.
    fn check_stripped(&mut self, index: usize) {
        let subflow = &self.subflows[index];
        let acked = subflow.tcp.acked_offset();
        if acked > 1 && !(self.protection.is_confirmed() && subflow.state.has_dss()) {
            self.on_stripped(index);
        } else if acked > self.outgoing.acked() && self.can_fall_back(index) {
            // The subflow used Multipath TCP before. Only a peer that has fallen back acknowledges data like that. Its infinite mapping
            // would come with its next data, and it may have none.
            self.fall_back(
                index,
                crate::PlainReason::PeerFellBack,
                crate::connection::fallback::Mapped::Announce,
            );
        }
    }

    /// Takes the bytes that TCP has put in order.
    fn read_subflow(&mut self, now: Instant, index: usize) {
        if !self.protection.takes_clear_bytes() {
            return self.read_sealed(now, index);
        }
        let mode = self.mode();
        let (had_nothing, was_finished) = (self.incoming.next() == 1, self.incoming.is_finished());
        while let Some(chunk) = self.subflows.touch(index).tcp.read() {
            let state = &mut self.subflows.touch(index).state;
            state.on_read(&chunk);
            match mode {
                Mode::Plain(_) => self.incoming.append(chunk.data),
                Mode::Multipath | Mode::Opening => state.hold(chunk),
            }
        }
        if mode == Mode::Multipath {
            self.place_bytes(now, index);
        }
        if had_nothing && self.incoming.next() > 1 {
            // Like Linux: the first data is acknowledged at once, so that the opener knows that its keys and its options get through.
            self.subflows.touch(index).tcp.request_ack();
        }
        if was_finished != self.incoming.is_finished() {
            // The end of the stream, which TCP does not see, is acknowledged at once as well.
            self.acknowledge_end();
        }
        self.tell_reader();
    }

    fn place_bytes(&mut self, now: Instant, index: usize) {
        while let Some(placed) = self.subflows.touch(index).state.place() {
            match placed {
                Placed::Data { dsn, data } => self.insert(dsn, data),
                Placed::Corrupted { dsn } => {
                    self.on_corrupted(index, dsn);
                    return;
                }
            }
        }
        let is_first_data = self.protection.numbers().is_some_and(|numbers| !numbers.is_mapped);
        let state = &mut self.subflows.touch(index).state;
        let unmapped = state.unmapped();
        if unmapped == 0 {
            state.on_all_mapped();
            return;
        }
        state.on_unmapped(now);
        if is_first_data || unmapped > MAX_UNMAPPED {
            self.on_stripped(index);
        }
    }

    /// Handles bytes that have waited too long for their mapping.
    pub(crate) fn check_unmapped(&mut self, now: Instant) {
        for index in 0..self.subflows.len() {
            let since = self.subflows[index].state.unmapped_since();
            if self.mode() == Mode::Multipath && since.is_some_and(|since| since + MAX_UNMAPPED_TIME <= now) {
                self.subflows.touch(index).state.on_all_mapped();
                log::debug!(
                    subflow = self.subflows[index].state.id().0,
                    "bytes have no mapping: options are stripped on the way"
                );
                self.counters.stripped += 1;
                self.subflows.touch(index).reset(ResetInfo::because(ResetReason::MiddleboxInterference));
            }
        }
    }

    pub(crate) fn unmapped_deadline(&self) -> Option<Instant> {
        let since = self.subflows.iter().filter_map(|subflow| subflow.state.unmapped_since()).min()?;
        Some(since + MAX_UNMAPPED_TIME)
    }

    fn insert(&mut self, dsn: plait_base::Dsn, data: Bytes) {
        let Some(numbers) = self.protection.numbers() else { return };
        let length = data.len() as u64;
        let Some(offset) = numbers.incoming.offset(dsn) else {
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.8
            //# DSN out of window (during normal operation): drop the data; do not
            //# send Data ACKs
            self.counters.bytes_outside += length;
            return;
        };
        let result = self.incoming.insert(offset, data);
        self.counters.bytes_outside += result.outside as u64;
        self.counters.bytes_duplicate += result.duplicate as u64;
        self.counters.content_conflicts += u64::from(result.conflict);
    }

    /// Acts on the reports of the subflows.
    pub(crate) fn drain_subflows(&mut self, now: Instant) {
        for index in 0..self.subflows.len() {
            while let Some(event) = self.subflows.poll_event(index) {
                match event {
                    TcpEvent::Established => self.on_established(index),
                    TcpEvent::Readable => self.read_subflow(now, index),
                    TcpEvent::Acked { offset: _ } => self.follow_plain_acks(),
                    TcpEvent::Finished => self.on_subflow_finished(index),
                    TcpEvent::MssChanged { mss: _ } => {}
                    TcpEvent::Closed(why) => self.on_subflow_closed(now, index, why),
                }
            }
        }
    }

    /// Handles the end of the peer's data on this subflow.
    fn on_subflow_finished(&mut self, index: usize) {
        if let Mode::Plain(tcp) = self.mode() {
            if tcp.subflow() == self.subflows[index].state.id() {
                self.incoming.finish_here();
                self.tell_reader();
            }
            return;
        }
        if self.subflows[index].is_open() && !self.closing.is_over() {
            self.leave_half_closed(index);
        }
    }

    /// Leaves a subflow on which the peer sends nothing more, unless our bytes have no other path. Returns `true` if it is left.
    pub(crate) fn leave_half_closed(&mut self, index: usize) -> bool {
        let id = self.subflows[index].state.id();
        let others_work = self.subflows.has_other_good(id);
        // After its DATA_FIN the peer waits for our stream and opens no other subflow, however long we are silent.
        let is_needed = self.outgoing.queued() > 0 || self.incoming.has_fin();
        // A subflow with a FIN that may be forged is left in any case, and another takes its place. The peer's DATA_FIN shows that it has
        // all of our stream.
        let is_left = others_work || !is_needed || !self.protection.believes_fin();
        if is_left {
            self.outgoing.on_stalled(id, |_| true);
            self.subflows.touch(index).leave();
        }
        is_left
    }

    fn on_subflow_closed(&mut self, now: Instant, index: usize, why: Closed) {
        let was = self.subflows.touch(index).state.on_closed(why);
        if self.closing.is_over() {
            return;
        }
        match self.mode() {
            Mode::Opening if self.role == Role::Active && was != Stage::Open => self.fail_to_open(why),
            Mode::Opening => self.fail(end_of(why)),
            Mode::Plain(tcp) if tcp.subflow() == self.subflows[index].state.id() => {
                self.on_plain_closed(now, why);
            }
            Mode::Plain(_) => {}
            Mode::Multipath if self.is_beyond_repair() => self.fail(end_of(why)),
            Mode::Multipath => {
                self.say_gone(index, why);
                self.on_subflow_lost(now, index, was);
            }
        }
    }

    /// Handles a SYN that got no acceptable answer.
    fn fail_to_open(&mut self, why: Closed) {
        let error = match why {
            Closed::Unreachable => ConnectionError::Unreachable,
            Closed::Refused | Closed::ResetByPeer => ConnectionError::Refused,
            Closed::TimedOut | Closed::Finished | Closed::Aborted => ConnectionError::TimedOut,
        };
        if error == ConnectionError::Refused {
            self.protection.explain_refusal();
        }
        self.fail(error);
    }

    /// Whether no other subflow may be opened: the subflow that has just closed was the first and only one, and the peer has not shown that
    /// options get through.
    fn is_beyond_repair(&self) -> bool {
        self.role == Role::Active && !self.protection.has_shown_options() && !self.subflows.has_present()
    }

    fn on_plain_closed(&mut self, now: Instant, why: Closed) {
        if why == Closed::Finished {
            self.follow_plain_acks();
            self.complete(now);
        } else {
            self.fail(end_of(why));
        }
    }

    /// Sets the window that is left on all subflows.
    pub(crate) fn offer_window(&mut self) {
        let window = self.protection.tcp_window(self.incoming.offer_window());
        self.update_window();
        for index in 0..self.subflows.len() {
            self.subflows.offer_window(index, window);
        }
    }
}

/// Returns how a connection with one subflow has ended.
pub(crate) fn end_of(why: Closed) -> ConnectionError {
    match why {
        Closed::Refused => ConnectionError::Refused,
        Closed::ResetByPeer => ConnectionError::Reset,
        Closed::TimedOut => ConnectionError::TimedOut,
        Closed::Unreachable => ConnectionError::Unreachable,
        Closed::Aborted | Closed::Finished => ConnectionError::Aborted,
    }
}
