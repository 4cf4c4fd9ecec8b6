//! The handshake of a sealed connection, carried on where its subflow has brought bytes, and its end.

use crate::log;
use plait_base::{Instant, SubflowId};
use plait_protect::handshake::Complete;
use plait_protect::sealed::SubflowTag;
use plait_tcp::Record;

use crate::protection::sealed::{Begun, INITIAL_WINDOW};
use crate::role::Role;
use crate::{Connection, ConnectionError, Host};

impl Connection {
    /// Does what can be done: begins the handshake, carries it on, ends it; then what the sealed connection
    /// has to do.
    pub(crate) fn progress_sealing(&mut self, now: Instant, host: &mut dyn Host) {
        if self.protection.sealed().is_none() || self.closing.is_over() {
            return;
        }
        self.begin_handshake(now, host);
        self.pump_handshake(now, host);
        self.act_on_records(now, host);
        self.exchange_shares(now, host);
        self.run_life(now, host);
        self.repair(now);
    }

    fn begin_handshake(&mut self, now: Instant, host: &mut dyn Host) {
        let Some(sealed) = self.protection.sealed_mut() else { return };
        match sealed.begin_handshake(now, host) {
            Begun::NotDue => {}
            Begun::On(subflow) => {
                if let Some(index) = self.subflows.index_of(subflow) {
                    self.read_handshake(index);
                }
            }
            Begun::Failed(why) => self.fail_sealing(why, ConnectionError::HandshakeFailed),
        }
    }

    /// The subflow at `index` has brought bytes while a handshake runs.
    pub(super) fn read_handshake(&mut self, index: usize) {
        let Some(sealed) = self.protection.sealed_mut() else { return };
        let state = &mut self.subflows.touch(index).state;
        if sealed.handshake_subflow() == Some(state.id()) {
            sealed.read_handshake(state.sealed_mut().inbox_mut());
        }
    }

    fn pump_handshake(&mut self, now: Instant, host: &mut dyn Host) {
        let Some(sealed) = self.protection.sealed_mut() else { return };
        let Some(subflow) = sealed.handshake_subflow() else { return };
        let Some(index) = self.subflows.index_of(subflow) else { return };
        let Some(step) = sealed.poll_handshake() else { return };
        let speaks = !step.messages.is_empty();
        for payload in step.messages {
            self.subflows.touch(index).tcp.send(Record {
                payload,
                options: step.options.clone(),
                push: true,
            });
        }
        match step.outcome {
            Some(Ok(complete)) => self.start_sealed(now, index, complete, host),
            Some(Err(error)) if speaks && !error.is_altered => {
                self.fail_behind_alert(now, error.why, subflow);
            }
            Some(Err(error)) if error.is_altered => {
                self.fail_sealing(error.why, ConnectionError::NegotiationAltered);
            }
            Some(Err(error)) => self.fail_sealing(error.why, ConnectionError::HandshakeFailed),
            None => {}
        }
    }

    fn start_sealed(&mut self, now: Instant, index: usize, complete: Complete, host: &mut dyn Host) {
        let Some(sealed) = self.protection.sealed_mut() else { return };
        let way = self.subflows[index].state.device_way(host.paths());
        if let Err(why) = sealed.establish(now, complete, way, host) {
            return self.fail_sealing(why.to_owned(), ConnectionError::HandshakeFailed);
        }
        self.outgoing.hold_fin(1 + INITIAL_WINDOW);
        self.subflows.touch(index).state.sealed_mut().on_named(Some(SubflowTag::FIRST));
        if self.role == Role::Active {
            // A listener's application is told when OPENING has come.
            self.notices.connected();
        }
        self.open_blocks(now, index);
    }

    /// A handshake that takes too long, or a peer that never finishes one, ends here.
    pub(crate) fn give_up_handshake(&mut self, host: &dyn Host) {
        if self.protection.is_settled() {
            return self.give_up_paths(host);
        }
        if self.protection.has_sealing_keys() {
            return self.give_up_claim();
        }
        self.fail_sealing(
            "the peer did not finish the handshake in time".into(),
            ConnectionError::HandshakeFailed,
        );
    }

    /// Returns when a handshake is given up.
    pub(crate) fn handshake_deadline(&self) -> Option<Instant> {
        let sealed = self.protection.sealed().filter(|_| !self.closing.is_over())?;
        sealed.handshake_deadline(self.closing.no_subflow_since())
    }

    /// Fails the connection: it can be neither sealed nor plain.
    pub(super) fn fail_sealing(&mut self, why: String, error: ConnectionError) {
        self.fail(error);
        self.note_failure(why);
    }

    /// As [`Connection::fail_sealing`] for a handshake whose last bytes, an alert, tell the peer why: they are with TCP,
    /// and a reset would overtake them.
    fn fail_behind_alert(&mut self, now: Instant, why: String, subflow: SubflowId) {
        self.fail_and(ConnectionError::HandshakeFailed, |each, reset_info| {
            if each.state.id() == subflow {
                each.leave();
                each.tcp.orphan(now);
            } else {
                each.reset(reset_info);
            }
        });
        self.note_failure(why);
    }

    fn note_failure(&mut self, why: String) {
        log::debug!(why, "sealing has failed");
        if let Some(sealed) = self.protection.sealed_mut() {
            sealed.note_failure(Some(why));
        }
    }
}
