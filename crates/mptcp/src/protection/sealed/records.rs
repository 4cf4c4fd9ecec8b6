//! Control records: what regular Multipath TCP says in options, said inside the stream.

use core::net::IpAddr;
use plait_base::{Dsn, Instant};
use plait_protect::sealed::{Record, Records};

use super::Sealed;
use super::claim::Claim;
use crate::subflows::sealed::SealedFlow;
use crate::{Connection, ConnectionError, Host};

impl Sealed {
    /// Another address of ours.
    pub(crate) fn announce(&mut self, id: u8, address: IpAddr) {
        self.say(Record::AddAddr { id, address, port: 0 });
    }

    /// An address of ours is gone.
    pub(crate) fn withdraw(&mut self, id: u8) {
        self.say(Record::RemoveAddr { id });
    }

    /// What a subflow is to be used for.
    pub(crate) fn prioritise(&mut self, flow: &SealedFlow, backup: bool) {
        if let Some(subflow) = flow.tag {
            self.say(Record::Prio { subflow, backup });
        }
    }

    fn say(&mut self, record: Record) {
        if let Some(established) = self.established_mut() {
            established.say(record);
        }
    }
}

impl Connection {
    /// The records of a block that is in order.
    pub(super) fn take_records(&mut self, records: Vec<Record>, generation: u64) {
        let Some(established) = self.protection.established_mut() else { return };
        for record in records {
            if !established.admits(&record) {
                self.fail(ConnectionError::Protocol);
                return;
            }
            match record {
                Record::Eof if established.eof_received => {
                    self.fail(ConnectionError::Protocol);
                    return;
                }
                Record::Eof => {
                    established.eof_received = true;
                    self.incoming.end_data();
                }
                Record::KeyUpdate => {
                    if established.opener.handle_key_update(generation).is_err() {
                        self.fail(ConnectionError::Protocol);
                        return;
                    }
                }
                Record::Token(token) => established.peer_token = token,
                // News of the window have counted since their block was verified.
                Record::MaxData(_) | Record::Opened(_) => {}
                Record::Opening(_)
                | Record::AddAddr { .. }
                | Record::RemoveAddr { .. }
                | Record::Prio { .. } => {
                    // At most as many as one window of blocks holds; acted upon before the next segment.
                    established.arrived.push_back(record);
                }
            }
        }
    }

    /// News of the window in a block that was verified, in order or not: the largest window counts, and each is said but once.
    pub(super) fn take_window_news(&mut self, plain: &[u8]) {
        let Some(established) = self.protection.established() else { return };
        let numbers = &established.numbers.outgoing;
        for record in Records::new(plain) {
            if let Ok(Record::MaxData(dsn)) = record
                && let Some(edge) = numbers.offset(Dsn::new(dsn))
            {
                self.outgoing.raise_edge(edge);
            }
        }
    }

    /// Acts on records that need the host.
    pub(super) fn act_on_records(&mut self, now: Instant, host: &mut dyn Host) {
        while let Some(record) = self.protection.established_mut().and_then(|e| e.arrived.pop_front()) {
            match record {
                Record::AddAddr { id, address, port } => {
                    let port = Some(port).filter(|&port| port != 0);
                    self.learn_address(now, id, address, port, host);
                }
                Record::RemoveAddr { id } => self.on_remove_addr(id),
                Record::Prio { subflow, backup } => {
                    for flow in &mut self.flows {
                        if flow.state.sealed.tag == Some(subflow) {
                            flow.state.backup_theirs = backup;
                        }
                    }
                }
                Record::Opening(id) => self.claim_opening(now, id, host),
                Record::Eof
                | Record::KeyUpdate
                | Record::MaxData(_)
                | Record::Token(_)
                | Record::Opened(_) => {}
            }
        }
    }

    /// Tells the peer how much more it may send, once that is worth a block.
    pub(crate) fn update_window(&mut self) {
        let Some(established) = self.protection.established_mut() else { return };
        if established.is_silent() || !(established.claim.may_carry() || established.claim == Claim::Unsaid) {
            return;
        }
        let edge = self.incoming.next() + u64::from(self.incoming.free());
        let step = (self.incoming.buffer_size() / 4).max(1);
        let is_first = established.announced == 1 + super::opening::INITIAL_WINDOW;
        if edge < established.announced + step && !(is_first && edge > established.announced) {
            return;
        }
        established.announced = edge;
        established.pending.retain(|record| !matches!(record, Record::MaxData(_)));
        established.say(Record::MaxData(established.numbers.incoming.dsn(edge).bits()));
    }
}
