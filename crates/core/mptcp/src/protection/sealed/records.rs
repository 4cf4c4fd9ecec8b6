//! Control records: the signals that regular Multipath TCP sends in options, inside the stream.

use core::net::IpAddr;
use plait_base::Dsn;
use plait_protect::sealed::{OPENING_LEN, Record, Records, RefusalReason, Seen, SessionTicket, SubflowTag};

use super::Sealed;
use super::claim::Claim;
use super::established::Established;
use super::handshaking::INITIAL_WINDOW;
use crate::subflows::sealed::SealedSubflow;

impl Sealed {
    /// Announces another address of ours.
    pub(crate) fn announce(&mut self, id: u8, address: IpAddr) {
        self.say(Record::AddAddr { id, address, port: 0 });
    }

    /// Withdraws an address of ours.
    pub(crate) fn withdraw(&mut self, id: u8) {
        self.say(Record::RemoveAddr { id });
    }

    /// Sets the priority of a subflow.
    pub(crate) fn prioritise(&mut self, subflow: &SealedSubflow, backup: bool) {
        if let Some(tag) = subflow.tag() {
            self.say(Record::Prio { subflow: tag, backup });
        }
    }

    fn say(&mut self, record: Record) {
        if let Some(established) = self.established_mut() {
            established.say(record);
        }
    }
}

/// The peer has broken the rules for records.
pub(crate) struct Broken;

/// A record that the connection handles.
pub(crate) enum ForConnection {
    /// An address of the peer, with a port if it differs.
    AddAddr { id: u8, address: IpAddr, port: Option<u16> },
    /// An address of the peer is gone.
    RemoveAddr { id: u8 },
    /// The priority of a subflow.
    Prio { subflow: SubflowTag, backup: bool },
    /// The opening of this attempt, and the number of paths that it requires in the keys.
    Opening([u8; OPENING_LEN], u8),
    /// The listener requires more.
    Require(u8),
    /// The listener refuses the opening.
    Refused(RefusalReason),
    /// The peer asks for the state of its subflows here.
    Look,
    /// The state of a subflow of ours at the peer.
    Seen { subflow: SubflowTag, seen: Seen },
    /// A record about flows of datagrams.
    Flow(Record),
}

impl Established {
    /// Handles the records of a block that is in order. Returns `true` if the peer's data ends with them.
    ///
    /// # Errors
    /// The records are malformed, or break the rules.
    pub(super) fn take_records(&mut self, plain: &[u8], generation: u64) -> Result<bool, Broken> {
        let mut ends = false;
        // If a block cannot be parsed, none of its records counts.
        let records = Records::new(plain).collect::<Result<Vec<_>, _>>().map_err(|_| Broken)?;
        for record in records {
            if !self.admits(&record) {
                return Err(Broken);
            }
            if let Record::OpenFlow { .. } | Record::CloseFlow { .. } | Record::Datagram { .. } = record
                && !self.takes_flows(generation)
            {
                return Err(Broken);
            }
            if record == Record::Look {
                self.look.on_question(plain.len());
            }
            match record {
                Record::Eof if self.eof_received => return Err(Broken),
                Record::Eof => {
                    self.eof_received = true;
                    ends = true;
                }
                Record::KeyUpdate => self.opener.handle_key_update(generation).map_err(|_| Broken)?,
                Record::Mix(exchange) => self.mix_theirs(exchange, generation)?,
                Record::Agreed(exchange) => self.confirm_exchange(exchange)?,
                Record::Void(exchange) => self.void_exchange(exchange),
                Record::Token(token) => self.peer_token = token,
                Record::Date(unix_time) => self.peer_date = Some(unix_time),
                Record::Ticket(ticket) => self.take_ticket(&ticket)?,
                // Urgent records took effect when their block was verified.
                Record::MaxData(_) | Record::Gone { .. } | Record::Opened(_) => {}
                Record::Opening { .. }
                | Record::Require(_)
                | Record::Refused(_)
                | Record::AddAddr { .. }
                | Record::RemoveAddr { .. }
                | Record::Prio { .. }
                | Record::Look
                | Record::Seen { .. }
                | Record::OpenFlow { .. }
                | Record::CloseFlow { .. }
                | Record::Datagram { .. } => {
                    // At most as many as one window of blocks holds. They are handled before the next segment.
                    self.arrived.push_back(record);
                }
            }
        }
        Ok(ends)
    }

    /// Handles the listener's ticket for our next handshake: at most one, in its first block.
    fn take_ticket(&mut self, ticket: &SessionTicket) -> Result<(), Broken> {
        // A listener has dropped its handshake before.
        let mut handshake = self.handshake.take().ok_or(Broken)?;
        handshake.handle_ticket(ticket);
        Ok(())
    }

    /// Handles the urgent records of a verified block, in order or not: the limit of sending (the largest counts), and the subflows that
    /// the peer no longer has.
    pub(super) fn urgent_in(&mut self, plain: &[u8]) -> Option<u64> {
        let mut edge = None;
        for record in Records::new(plain).map_while(Result::ok) {
            if let Record::MaxData(dsn) = record {
                edge = edge.max(self.numbers.outgoing.offset(Dsn::new(dsn)));
            } else if let Record::Gone { subflow, reason: _ } = record {
                self.hear_gone(subflow);
            }
        }
        edge
    }

    /// Returns the next record of the peer that the connection must handle.
    pub(crate) fn poll_record(&mut self) -> Option<ForConnection> {
        loop {
            return Some(match self.arrived.pop_front()? {
                Record::AddAddr { id, address, port } => {
                    ForConnection::AddAddr { id, address, port: Some(port).filter(|&port| port != 0) }
                }
                Record::RemoveAddr { id } => ForConnection::RemoveAddr { id },
                Record::Prio { subflow, backup } => ForConnection::Prio { subflow, backup },
                Record::Opening { name, paths } => ForConnection::Opening(name, paths),
                Record::Require(paths) => ForConnection::Require(paths),
                Record::Refused(reason) => ForConnection::Refused(reason),
                Record::Look => ForConnection::Look,
                Record::Seen { subflow, seen } => ForConnection::Seen { subflow, seen },
                flow @ (Record::OpenFlow { .. } | Record::CloseFlow { .. } | Record::Datagram { .. }) => {
                    ForConnection::Flow(flow)
                }
                Record::Eof
                | Record::KeyUpdate
                | Record::Mix(_)
                | Record::Agreed(_)
                | Record::Void(_)
                | Record::Gone { .. }
                | Record::MaxData(_)
                | Record::Token(_)
                | Record::Date(_)
                | Record::Ticket(_)
                | Record::Opened(_) => continue,
            });
        }
    }

    /// Queues a MAX_DATA once the increase is worth a block. Everything below `next` has arrived, and `free` bytes of a buffer of `size`
    /// are free.
    pub(crate) fn update_window(&mut self, next: u64, free: u32, size: u64) {
        if self.eof_received || !(self.claim.may_carry() || self.claim == Claim::Unsaid) {
            return;
        }
        let edge = next + u64::from(free);
        let step = (size / 4).max(1);
        let is_first = self.announced == 1 + INITIAL_WINDOW;
        if edge < self.announced + step && !(is_first && edge > self.announced) {
            return;
        }
        self.announced = edge;
        self.say_window();
    }

    /// Sends MAX_DATA at the next occasion.
    pub(crate) fn say_window(&mut self) {
        self.pending.retain(|record| !matches!(record, Record::MaxData(_)));
        self.say(Record::MaxData(self.numbers.incoming.dsn(self.announced).bits()));
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    use bytes::Bytes;
    use plait_base::{Instant, PathId};
    use plait_protect::handshake::{Capabilities, Complete, Failed, Handshake, Peer, Tep};
    use plait_protect::sealed::{ConnectionSecrets, MasterSecret, Role as End, Suite};

    use super::super::established::{About, Left};
    use super::super::mixing::Mixing;
    use super::*;
    use crate::paths::Way;

    /// A handshake that is over, and counts the tickets that it receives.
    struct Over(Arc<AtomicUsize>);

    impl Handshake for Over {
        fn handle_bytes(&mut self, _: &[u8]) -> Result<usize, Failed> {
            Ok(0)
        }

        fn poll_transmit(&mut self) -> Option<Bytes> {
            None
        }

        fn poll_complete(&mut self) -> Option<Complete> {
            None
        }

        fn handle_ticket(&mut self, _: &SessionTicket) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns an opener after its handshake, and the number of tickets that the handshake received.
    fn opener() -> (Established, Arc<AtomicUsize>) {
        let master = MasterSecret::filled_by::<()>(|bytes| {
            bytes.fill(1);
            Ok(())
        });
        let secrets = ConnectionSecrets::derive(master.expect("it was filled"), 0xa0);
        let suite = Suite::Aes128Gcm;
        let started = secrets.start(End::A, suite, suite.limits(), Instant::ZERO);
        let given = Arc::new(AtomicUsize::new(0));
        let (peer, key_exchange) = (Peer::Certificate, "X25519MLKEM768");
        let about = About {
            tep: Tep::Tls13,
            suite,
            key_exchange,
            peer,
            capabilities: Capabilities::OURS,
            instance: None,
            is_resumed: false,
            sent: 1,
            received: 1,
        };
        let handshake = Box::new(Over(Arc::clone(&given)));
        let left = Left { began: Instant::ZERO, handshake, ticket: None };
        let mixing = Mixing::new(0, Way { path: PathId(0), remote: Ipv4Addr::LOCALHOST.into() });
        (Established::new(End::A, about, started, left, mixing), given)
    }

    fn ticket(byte: u8) -> Vec<u8> {
        Record::Ticket(SessionTicket::new(&[byte; 100]).expect("of a length that is fine"))
            .to_bytes()
            .to_vec()
    }

    #[test]
    fn one_ticket_is_taken_and_a_second_breaks_the_rules() {
        for same in [true, false] {
            let (mut opener, given) = opener();
            let second = ticket(if same { 1 } else { 2 });
            assert!(opener.take_records(&[ticket(1), second].concat(), 0).is_err(), "in one block");
            assert_eq!(given.load(Ordering::Relaxed), 1);
        }
        let (mut opener, given) = opener();
        assert!(opener.take_records(&ticket(1), 0).is_ok_and(|ends| !ends));
        assert!(opener.take_records(&ticket(2), 0).is_err(), "in the next block");
        assert_eq!(given.load(Ordering::Relaxed), 1);
    }
}
