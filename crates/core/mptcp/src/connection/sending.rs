//! Selection of what is sent next: queued records of the subflows, then blocks that must be sent again, then new blocks.

use crate::log;
use bytes::Bytes;
use plait_base::Instant;
use plait_tcp::Record;
use plait_wire::{Flags, OptionBytes, Segment};

use crate::protection::Mode;
use crate::protection::options::{DATA_OPTIONS, data_options, first_data_options, infinite_options};
use crate::protection::sealed::Established;
use crate::protection::{OptionsOut, StreamFacts};
use crate::scheduler::{Candidate, Candidates, Demand, MAX_CANDIDATES, choose};
use crate::send::blocks::{Block, Body, Carrier};
use crate::subflows::{Kind, Subflow};

use crate::{Connection, Event};

impl Connection {
    pub(crate) fn next_segment(&mut self, now: Instant) -> Option<Segment> {
        // Before the stream: their room beside it is limited.
        if let Some(datagram) = self.next_datagram(now) {
            return Some(datagram);
        }
        loop {
            if let Some(segment) = self.poll_subflows(now) {
                return Some(segment);
            }
            if !self.schedule(now) {
                return None;
            }
        }
    }

    fn poll_subflows(&mut self, now: Instant) -> Option<Segment> {
        let stream = StreamFacts {
            next: self.acknowledged(),
            fin: self.outgoing.fin().filter(|_| !self.outgoing.is_complete()),
            has_sent: self.outgoing.next() > 1,
        };
        for index in 0..self.subflows.len() {
            if !self.subflows.may_speak(now, index) {
                continue;
            }
            let subflow = self.subflows.speaker(index);
            subflow.state.sealed_mut().note_gaps(subflow.tcp.has_gaps());
            let waiting = subflow.state.waiting_signals();
            let mut options =
                OptionsOut { subflow: &mut subflow.state, protection: &mut self.protection, stream };
            let mut segment = subflow.tcp.poll_transmit(now, &mut options);
            if let Some(segment) = &mut segment {
                let owes_fin = stream.fin.is_some() && !stream.has_sent && subflow.state.has_told_keys();
                if owes_fin || (1..waiting).contains(&subflow.state.waiting_signals()) {
                    // One at a time; the next one goes with an ACK of its own.
                    subflow.tcp.request_ack();
                }
                let has_payload = !segment.payload.is_empty();
                if subflow.state.sealed_mut().owes_after_report(has_payload, stream.next)
                    || subflow.owes_data_ack(segment, stream.next)
                    || subflow.owes_check(segment)
                {
                    subflow.tcp.request_ack();
                }
                self.subflows.on_spoken(index, true);
                if segment.flags.contains(Flags::SYN) {
                    self.fill_syn(now, index, segment);
                }
            }
            if segment.is_some() {
                return segment;
            }
            self.subflows.on_spoken(index, false);
        }
        None
    }

    /// Gives one record to one subflow. Returns `false` if there is no record, or no subflow to take it.
    fn schedule(&mut self, now: Instant) -> bool {
        if self.closing.is_over() {
            return false;
        }
        match self.mode() {
            Mode::Opening => false,
            Mode::Plain(_) => self.schedule_plain(now),
            Mode::Multipath => {
                let [may_control, may_carry] = self.protection.may_speak();
                (may_control && self.schedule_control(now)) || (may_carry && self.schedule_block(now))
            }
        }
    }

    fn schedule_plain(&mut self, now: Instant) -> bool {
        let Some(index) = self.plain_subflow().filter(|_| self.outgoing.queued() > 0) else { return false };
        let subflow = self.subflows.touch(index);
        let mut room = subflow.tcp.capacity(now);
        if room == 0 {
            // TCP probes a closed window only if it has something to send.
            if subflow.is_busy() || subflow.tcp.unsent() > 0 || !subflow.is_open() {
                return false;
            }
            room = usize::from(subflow.tcp.segment_payload(0));
        }
        let limit = whole_segments(subflow.tcp.quantum(), subflow.tcp.segment_payload(0));
        let Some((start, payload)) = self.outgoing.take(room.min(limit)) else { return false };
        let mut options = OptionBytes::new();
        if subflow.state.take_infinite_mapping()
            && let Some(session) = self.protection.session()
        {
            options = infinite_options(session, start, subflow.tcp.next_offset());
        }
        let push = self.outgoing.queued() == 0;
        subflow.tcp.send(Record { payload, options, push });
        true
    }

    fn schedule_block(&mut self, now: Instant) -> bool {
        if self.schedule_again(now) || self.schedule_copy(now) {
            return true;
        }
        let holds_data = self.protection.established().is_some_and(Established::holds_data);
        if self.outgoing.queued() == 0 || holds_data {
            return self.schedule_overtaking(now);
        }
        if self.must_gather() {
            return false;
        }
        let mut candidates = self.candidates_for_new(now);
        if !self.seal_ahead(&mut candidates) {
            return false;
        }
        let window_left = self.outgoing.window_left();
        if window_left == 0 {
            return self.schedule_probe(now, &candidates) || self.schedule_overtaking(now);
        }
        let room_left = (self.config.send_buffer as u64).saturating_sub(self.outgoing.in_doubt());
        let demand = Demand {
            backlog: self.outgoing.backlog(),
            window_left: window_left.min(room_left),
            last: self.outgoing.last_chosen(),
        };
        match choose(self.config.scheduler, &candidates, &demand) {
            Some(index) => {
                let room = candidates.iter().find(|c| c.index == index).map_or(0, |c| c.room);
                self.send_new(now, index, room.min(usize::try_from(window_left).unwrap_or(usize::MAX)))
            }
            None => self.schedule_probe(now, &candidates),
        }
    }

    /// Returns the subflows that may carry the next bytes, each with the number of bytes that it may carry.
    fn candidates_for_new(&self, now: Instant) -> Candidates {
        let next = self.outgoing.next();
        let trusted = self.trusted_paths();
        let limit = self.exposure_limit(trusted);
        let allowance = |subflow: &Subflow| {
            limit.and_then(|limit| self.outgoing.exposure_allowance(&subflow.state, limit))
        };
        let mut candidates = self.candidates(now, |subflow| {
            self.protection.may_carry(subflow.state.trust(), trusted, next) && allowance(subflow) != Some(0)
        });
        if let Some(max_exposure) = self.config.scheduler.max_exposure() {
            for candidate in &mut candidates {
                let subflow = &self.subflows[candidate.index];
                // The limit of exposed bytes in a row, or one segment for subflows that may carry more. All subflows take turns.
                let turn = max_exposure.get().max(subflow.tcp.segment_payload(DATA_OPTIONS)).into();
                let most = allowance(subflow).map_or(turn, |bytes| usize::try_from(bytes).unwrap_or(turn));
                candidate.room = candidate.room.min(most);
            }
        }
        candidates
    }

    /// Returns the subflows that `may_carry` it and should get data now. Regular subflows come first, then backups if no regular one works,
    /// then stalled subflows if nothing else is left.
    pub(crate) fn candidates(&self, now: Instant, may_carry: impl Fn(&Subflow) -> bool) -> Candidates {
        let may_carry = |subflow: &&Subflow| may_carry(subflow);
        let has_proof = self.protection.authenticates_data_acks();
        let open = || self.subflows.iter().filter(|subflow| subflow.is_open()).filter(may_carry);
        let has_good = open().any(Subflow::is_good);
        // A subflow that is suspect, or slow at the moment, does not prevent the use of a backup.
        let is_slow = |subflow: &Subflow| {
            self.is_queue_long(now, subflow) || subflow.state.sealed().delivery().is_slow(now)
        };
        let has_regular = open().any(|subflow| subflow.is_regular() && !is_slow(subflow));
        let is_held_back = |subflow: &Subflow| {
            let mut others = open().filter(|other| other.state.id() != subflow.state.id());
            if has_regular {
                (self.is_disputed(subflow) || self.has_too_much(now, subflow))
                    && others.any(Subflow::is_regular)
            } else {
                self.is_disputed(subflow) && others.any(Subflow::is_good)
            }
        };
        let is_candidate = |subflow: &Subflow| {
            if has_regular {
                subflow.is_good() && !subflow.state.is_backup()
            } else {
                subflow.is_good() || !has_good
            }
        };
        let figures = |(index, subflow): (usize, &Subflow)| {
            let stats = subflow.tcp.stats();
            let srtt = subflow.round_trip(&stats);
            let window = stats.congestion_window;
            let room = subflow.room(now, &stats);
            let [room, paced] = if subflow.tcp.is_paced(now) { [0, room] } else { [room, 0] };
            let claimed = f64::from(window) / srtt.as_secs_f64().max(1e-6);
            Candidate {
                index,
                id: subflow.state.id(),
                srtt,
                room,
                paced,
                window,
                in_flight: stats.in_flight,
                rate: if has_proof {
                    subflow.state.sealed().delivery().believed(now, claimed)
                } else {
                    claimed
                },
                is_slow_start: window < stats.slow_start_threshold,
            }
        };
        let subflows = self.subflows.iter().enumerate();
        subflows
            .filter(|(_, subflow)| {
                subflow.is_open() && is_candidate(subflow) && may_carry(subflow) && !is_held_back(subflow)
            })
            .map(figures)
            .take(MAX_CANDIDATES)
            .collect()
    }

    /// Sends blocks that other subflows could not deliver.
    fn schedule_again(&mut self, now: Instant) -> bool {
        let Some(first) = self.outgoing.first_again() else { return false };
        let end = self.outgoing.block_from(first).map_or(first, Block::end);
        // The first block may need a subflow that nothing else would use, or wait although a block behind it need not.
        let is_new = |subflow: &Subflow| {
            !self.outgoing.block(first).is_some_and(|block| block.is_carried_by(subflow.state.id()))
        };
        let for_first =
            self.candidates(now, |subflow| is_new(subflow) && self.may_carry(subflow, first, end));
        if self.resend_on_one_of(now, for_first) {
            return true;
        }
        let others = self.candidates(now, |_| true);
        self.resend_on_one_of(now, others)
    }

    fn resend_on_one_of(&mut self, now: Instant, mut candidates: Candidates) -> bool {
        candidates.retain(|candidate| candidate.room > 0);
        candidates.sort_by_key(|candidate| (candidate.srtt, candidate.id));
        for candidate in candidates {
            let subflow = &self.subflows[candidate.index];
            let may_carry = |block: &Block| self.may_carry(subflow, block.start, block.end());
            if let Some(start) = self.outgoing.again_for(candidate.id, may_carry).map(|block| block.start) {
                return self.resend(now, candidate.index, start);
            }
        }
        false
    }

    /// Redundant scheduler: each subflow that has room sends the blocks that it has not sent yet.
    fn schedule_copy(&mut self, now: Instant) -> bool {
        if !self.config.scheduler.copies() {
            return false;
        }
        for candidate in self.candidates(now, |_| true).iter().filter(|candidate| candidate.room > 0) {
            while let Some(block) = self.outgoing.block_from(self.subflows[candidate.index].state.copied()) {
                let subflow = &self.subflows[candidate.index];
                let may_carry = self.may_carry(subflow, block.start, block.end());
                let (start, is_here) = (block.start, block.is_carried_by(candidate.id));
                self.subflows.touch(candidate.index).state.on_copied(block.end());
                if !is_here && may_carry {
                    return self.resend(now, candidate.index, start);
                }
            }
        }
        false
    }

    /// Gives a segment for probing to a subflow with a closed window and nothing in flight. Without it the subflow would never learn that
    /// the window has opened. One such subflow is enough if the whole connection has to wait.
    fn schedule_probe(&mut self, now: Instant, candidates: &[Candidate]) -> bool {
        if self.outgoing.window_left() == 0 && self.outgoing.first().is_some() {
            return false;
        }
        let is_stuck = |candidate: &&Candidate| {
            let subflow = &self.subflows[candidate.index];
            candidate.room == 0 && !subflow.is_busy() && subflow.tcp.unsent() == 0
        };
        match candidates.iter().find(is_stuck) {
            // A whole segment: TCP waits until the window is worth one, or sends what fits after a while.
            Some(candidate) => {
                let segment = self.subflows[candidate.index].tcp.segment_payload(DATA_OPTIONS);
                self.send_new(now, candidate.index, segment.into())
            }
            None => false,
        }
    }

    /// Nagle, over all subflows: a short block waits while something is in flight.
    fn must_gather(&self) -> bool {
        if self.config.tcp.no_delay || self.outgoing.is_finished() || self.outgoing.first().is_none() {
            return false;
        }
        let shortest = self
            .subflows
            .iter()
            .filter(|subflow| subflow.is_good())
            .map(|subflow| subflow.tcp.segment_payload(DATA_OPTIONS))
            .min();
        self.outgoing.queued() < usize::from(shortest.unwrap_or(0))
    }

    /// Cuts a block for the selected subflow.
    fn send_new(&mut self, now: Instant, index: usize, room: usize) -> bool {
        if self.protection.sends_blocks() {
            return self.send_sealed(now, index, room);
        }
        let subflow = &self.subflows[index];
        let is_first_data = subflow.state.kind() == Kind::FirstActive && self.outgoing.next() == 1;
        let segment = subflow.tcp.segment_payload(DATA_OPTIONS);
        let limit =
            if is_first_data { usize::from(segment) } else { whole_segments(subflow.tcp.quantum(), segment) };
        // Whole segments, unless this is all there is.
        let room = room.max(1);
        let whole = room - room % usize::from(segment.max(1));
        let max = if whole == 0 || room >= self.outgoing.queued() { room } else { whole };
        let Some((start, payload)) = self.outgoing.cut(max.min(limit), |data| self.protection.accept(data))
        else {
            return false;
        };
        let Some(session) = self.protection.session() else { return false };
        let offset = subflow.tcp.next_offset();
        let options = if is_first_data {
            first_data_options(session, &payload)
        } else {
            data_options(session, self.incoming.next(), start, offset, &payload)
        };
        self.outgoing.on_chosen(subflow.state.id());
        self.give(now, index, start, payload, options);
        true
    }

    /// Sends a block once more on this subflow.
    pub(crate) fn resend(&mut self, now: Instant, index: usize, start: u64) -> bool {
        let Some(block) = self.outgoing.block_from(start).filter(|block| block.start == start) else {
            return false;
        };
        let payload = match &block.body {
            Body::Clear(payload) => payload.clone(),
            Body::Sealed(sealed) => {
                let subflow = self.subflows.touch(index);
                subflow.state.on_reinjected(sealed.len());
                if block.ends_stream() {
                    // What has arrived is acknowledged before, in a segment of its own: an attacker could drop the segment with the
                    // DATA_FIN on every path.
                    subflow.tcp.request_ack();
                }
                return self.transmit_block(now, index, start);
            }
        };
        let Some(session) = self.protection.session() else { return false };
        let offset = self.subflows[index].tcp.next_offset();
        let options = data_options(session, self.incoming.next(), start, offset, &payload);
        self.subflows.touch(index).state.on_reinjected(payload.len());
        self.give(now, index, start, payload, options);
        true
    }

    pub(crate) fn give(
        &mut self,
        now: Instant,
        index: usize,
        start: u64,
        payload: Bytes,
        options: OptionBytes,
    ) {
        log::trace!(subflow = self.subflows[index].state.id().0, path = ?self.subflows[index].state.path(), start, len = payload.len(), "block leaves");
        let length = payload.len() as u64;
        self.note_carried(index, start, length);
        let subflow = self.subflows.touch(index);
        let push = self.outgoing.queued() == 0;
        let record = Record { payload, options, push };
        let is_dated = self.protection.sends_blocks();
        let offset = if is_dated { subflow.tcp.send_dated(record) } else { subflow.tcp.send(record) };
        self.outgoing.on_carried(
            start,
            Carrier { subflow: subflow.state.id(), end: offset + length, since: now, is_denied: false },
        );
    }

    /// Removes subflows that TCP has finished with and that have nothing left to send.
    pub(crate) fn reap(&mut self) {
        while let Some(subflow) = self.subflows.take_closed() {
            self.protection.forget(&subflow.state);
            if let Some(datagrams) = &mut self.datagrams {
                datagrams.forget(subflow.state.id());
            }
            self.notices.push(Event::SubflowClosed { id: subflow.state.id(), tuple: subflow.state.tuple() });
        }
    }
}

/// Returns the length of the longest super-segment of whole segments.
pub(crate) fn whole_segments(longest: u16, segment: u16) -> usize {
    let segment = segment.max(1);
    usize::from((longest / segment).max(1)) * usize::from(segment)
}
