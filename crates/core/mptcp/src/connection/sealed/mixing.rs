//! Shares of the keys over single paths: requesting, sending and taking them.

use bytes::Bytes;
use plait_base::{Instant, PathId, Random};
use plait_protect::sealed::{ShareLog, SubflowTag};
use plait_tcp::Record;
use plait_wire::{ResetReason, Segment};

use crate::log;
use crate::protection::options::{is_check, is_path_key, path_key_options};
use crate::protection::sealed::{PathKey, Sealed};
use crate::subflows::{ResetInfo, Subflow};
use crate::{Connection, ConnectionError, Host};

impl Connection {
    /// A whole message of an exchange has come on a subflow: it is taken when the host is at hand.
    pub(super) fn on_path_key(&mut self, index: usize, message: Bytes) {
        if !self.subflows.touch(index).state.sealed_mut().on_path_key(message) {
            self.on_failed(Some(index));
        }
    }

    /// Sends what is owed, takes what has come, and asks a path for another share when that is due.
    pub(super) fn exchange_shares(&mut self, now: Instant, host: &mut dyn Host) {
        if self.closing.is_over() || !self.protection.has_sealing_keys() {
            return;
        }
        for index in 0..self.subflows.len() {
            if self.subflows[index].state.sealed().owes_offer() {
                self.offer_path(index, host);
            }
            if self.subflows[index].state.sealed().has_path_key() {
                self.take_path_key(now, index, host);
            }
        }
        self.turn_ratchet(now, host);
    }

    fn offer_path(&mut self, index: usize, host: &mut dyn Host) {
        let Some(established) = self.protection.established_mut() else { return };
        let subflow = self.subflows.touch(index);
        subflow.state.sealed_mut().on_offered();
        let us = established.speaker(subflow.state.device_way(host.paths()), host.paths());
        if let Some(message) = established.offer_path(subflow.state.sealed_mut(), us, host.secrets()) {
            send(subflow, message);
        }
    }

    fn take_path_key(&mut self, now: Instant, index: usize, host: &mut dyn Host) {
        let maker = self.protection.sealed().and_then(Sealed::maker);
        let log = |session_id: &[u8; 33], agreed: &[u8]| {
            if let Some(maker) = &maker {
                maker.log_share(session_id, agreed);
            }
        };
        let Some(established) = self.protection.established_mut() else { return };
        let subflow = self.subflows.touch(index);
        let Some(message) = subflow.state.sealed_mut().take_path_key() else { return };
        let us = established.speaker(subflow.state.device_way(host.paths()), host.paths());
        let with: (&mut dyn Random, ShareLog<'_>) = (host.secrets(), &log);
        match established.take_path_key(subflow.state.sealed_mut(), us, &message, with) {
            PathKey::Answer(answer) => send(subflow, answer),
            PathKey::Agreed | PathKey::Ignored => {}
            PathKey::Wrong => {
                log::debug!(subflow = subflow.state.id().0, "a share of the keys was altered");
                let path = subflow.state.path();
                // Nothing comes of this exchange any more, and there is no other before the path is joined again.
                self.counters.blocks_failed += 1;
                self.counters.attacked_closed += 1;
                subflow.reset(ResetInfo::for_now(ResetReason::MiddleboxInterference));
                self.on_path_missing(now, path, "the share of the keys was altered there");
            }
        }
    }

    /// Asks the paths in turn.
    fn turn_ratchet(&mut self, now: Instant, host: &mut dyn Host) {
        let Some(limits) = self.protection.sealed().map(Sealed::ratchet) else { return };
        let bytes = self.outgoing.next() + self.incoming.next();
        let established = self.protection.established_mut();
        let Some(turn) = established.and_then(|established| established.poll_ratchet(now, bytes, limits))
        else {
            return;
        };
        // On one that has joined, the responder of the join has spoken before.
        let may = |subflow: &Subflow| {
            let sealed = subflow.state.sealed();
            subflow.is_good() && (sealed.tag() == Some(SubflowTag::FIRST) || sealed.next_exchange() > 0)
        };
        let candidates = self.subflows.iter().filter(|subflow| may(subflow)).count() as u64;
        let Some(nth) = turn.checked_rem(candidates) else { return };
        let chosen = (0..self.subflows.len()).filter(|&index| may(&self.subflows[index])).nth(nth as usize);
        if let Some(index) = chosen {
            self.offer_path(index, host);
        }
    }

    /// A join, or an exchange, over this path came to nothing.
    pub(crate) fn on_path_missing(&mut self, now: Instant, path: PathId, why: &'static str) {
        if let Some(established) = self.protection.established_mut() {
            established.note_refusal(now, path, why);
        }
    }

    /// Ends the wait for required paths.
    pub(super) fn give_up_paths(&mut self, host: &dyn Host) {
        let Some(established) = self.protection.established() else { return };
        let (required, [sent, received]) = (established.required(), established.mixed_paths());
        let mixed = sent.min(received);
        let reason = match established.refusal() {
            None => "no other path has joined in time".to_owned(),
            Some((path, why)) => {
                let name = host.paths().get(path).map_or("a path that is gone", |path| &path.name);
                format!("on path {name}: {why}")
            }
        };
        let shared = host.paths().shared_networks();
        let shared = shared.values().map(|devices| {
            let devices: Vec<_> = devices.iter().copied().collect();
            format!("; {} share a network and count as one path", devices.join(" and "))
        });
        let reason = reason + &shared.collect::<String>();
        let why = format!("{required} paths have to give a share to the keys, {mixed} did; {reason}");
        self.fail_sealing(why, ConnectionError::PathsMissing);
    }
}

/// Sends a message of an exchange: bytes of this subflow that no block covers.
fn send(subflow: &mut Subflow, message: Vec<u8>) {
    let start = subflow.tcp.next_offset();
    subflow.state.sealed_mut().on_message_sent(start + message.len() as u64);
    let options = path_key_options(start, message.len() as u16);
    subflow.tcp.send(Record { payload: message.into(), options, push: true });
}

impl Subflow {
    /// Whether a segment of ours was a CHECK, and something else waits to be said beside the stream: another one, or a Data-ACK that
    /// had no room beside it.
    pub(in crate::connection) fn owes_check(&self, segment: &Segment) -> bool {
        is_check(&segment.options) && segment.payload.is_empty()
    }

    /// Whether a segment acknowledges to TCP what no Data-ACK has acknowledged here yet: `next` is what is to be acknowledged. The segments of a
    /// message of an exchange have no room for one; to the peer its blocks would look like delivered and changed.
    pub(in crate::connection) fn owes_data_ack(&self, segment: &Segment, next: u64) -> bool {
        let sealed = self.state.sealed();
        let may_be_message = self.tcp.acked_offset() < sealed.message_end() && !segment.payload.is_empty();
        may_be_message && !sealed.has_told(next) && is_path_key(&segment.options)
    }
}
