//! Control records: the content of blocks of type 10.
//!
//! They are part of the stream, so they arrive once and in order. Several may share a block.

use core::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use bytes::Bytes;

use super::option_tag::SubflowTag;
use super::path_key::Exchange;
use super::record_fields::Fields;
pub use super::record_fields::{RecordError, RefusalReason};
use super::session_ticket::{MAX_TICKET, SessionTicket};

/// Largest number of records in one block, without padding. A connection has a handful of addresses and subflows.
pub const MAX_RECORDS: usize = 64;

/// One control record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// 01: the stream ends here. Only padding may follow in its block.
    Eof,
    /// 02: the next block has the next generation of keys. Only padding may follow in its block.
    KeyUpdate,
    /// 04: data sequence numbers from the start of the stream up to this one may be sent. It is the flow-control window of the connection.
    MaxData(u64),
    /// 05: another address of the sender.
    AddAddr {
        /// Address id.
        id: u8,
        /// The address.
        address: IpAddr,
        /// The port, or 0 for that of the first subflow.
        port: u16,
    },
    /// 06: the address is gone.
    RemoveAddr {
        /// Address id.
        id: u8,
    },
    /// 07: the priority of a subflow.
    Prio {
        /// The subflow, which need not be the one that carries the record.
        subflow: SubflowTag,
        /// Whether it is a backup from now on.
        backup: bool,
    },
    /// 08: the sender's token from now on, because the derived one was taken.
    Token(u32),
    /// 03: the result of this exchange over one path goes into the sender's next generation of keys.
    Mix(Exchange),
    /// 10: the sender no longer has this subflow. It counts as soon as its block is verified, whatever is missing before it.
    Gone {
        /// The subflow, or the join that was on its way to become one.
        subflow: SubflowTag,
        /// The reason, for the receiver's log and status only.
        reason: GoneReason,
    },
    /// 11: the sender no longer knows this exchange: it has no result in either direction.
    Void(Exchange),
    /// 14: the sender has both messages of this exchange, and hence its secret. [`Record::Mix`] or [`Record::Void`] answers.
    Agreed(Exchange),
    /// 0a: the opener's first record.
    Opening {
        /// This connection is an attempt of the opening with this name, which its other attempts have too.
        name: [u8; OPENING_LEN],
        /// Disjoint paths that must be in the keys, on both sides, before a byte of the application is sent. The path of the handshake is
        /// one of them. 0 and 1 require nothing.
        paths: u8,
    },
    /// 0b: the listener's answer if another attempt has claimed the opening: the token derived from the secrets of that attempt.
    Opened(u32),
    /// 0c: the listener requires this many paths in the keys, and the opener has not: the connection ends.
    Require(u8),
    /// 0d: the listener's first record, if it gives the opener a ticket for its next handshake.
    Ticket(SessionTicket),
    /// 0e: the question for the state of the sender's subflows at the other end. The answer is no longer than the block of the question.
    Look,
    /// 0f: the state of a subflow at the sender, in answer to [`Record::Look`].
    Seen {
        /// The subflow.
        subflow: SubflowTag,
        /// Its state.
        seen: Seen,
    },
    /// 12: the listener refuses the opening, whichever attempt brings it.
    Refused(RefusalReason),
    /// 15: the sender opens a flow of datagrams. Its number is higher than those that it has opened before.
    OpenFlow {
        /// The number: even from host A, odd from host B.
        flow: u32,
        /// The destination, for the application of the receiver.
        destination: Bytes,
    },
    /// 16: the flow has ended in both directions.
    CloseFlow {
        /// The number.
        flow: u32,
        /// The number of datagrams that the sender has sent in it.
        sent: u64,
    },
    /// 17: a datagram inside the stream, where no subflow carries datagrams.
    Datagram {
        /// The flow.
        flow: u32,
        /// The ECN codepoint, two bits.
        ecn: u8,
        /// The payload.
        payload: Bytes,
    },
    /// 18: the date at the sender, in seconds since 1970, in answer to [`Record::Look`].
    Date(u64),
}

/// Bytes of the longest destination of a flow.
pub const MAX_DESTINATION: usize = 255;

/// The reason for which a subflow has ended at the sender of [`Record::Gone`]. Unknown values are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GoneReason(pub u8);

impl GoneReason {
    /// TCP has closed it, in whatever way.
    pub const CLOSED: Self = Self(0);
    /// TCP said that the peer has reset it.
    pub const RESET: Self = Self(1);
    /// TCP was not answered in time.
    pub const TIMED_OUT: Self = Self(2);
    /// Nothing was verified for too long.
    pub const UNVERIFIED: Self = Self(3);
    /// Its bytes were altered.
    pub const INTERFERENCE: Self = Self(4);
    /// A younger subflow has taken its place.
    pub const DISPLACED: Self = Self(5);
    /// Its path, or its address, is gone.
    pub const PATH_GONE: Self = Self(6);
}

/// The state of a subflow as the receiving host sees it: a middlebox may have changed it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seen {
    /// The source address of its segments.
    pub address: SocketAddr,
    /// The segment size that its SYN named, or its SYN/ACK; 0 if none.
    pub mss: u16,
    /// Which other options of TCP were in that: [`Seen::WINDOW_SCALE`], [`Seen::SACK`], [`Seen::TIMESTAMPS`]; other bits mean nothing yet.
    pub options: u8,
}

impl Seen {
    /// It offered to scale windows (RFC 7323).
    pub const WINDOW_SCALE: u8 = 1;
    /// It permitted selective acknowledgments (RFC 2018).
    pub const SACK: u8 = 2;
    /// It had a timestamp (RFC 7323).
    pub const TIMESTAMPS: u8 = 4;
    /// Bytes of the longest [`Record::Seen`].
    pub const MAX_RECORD: usize = 1 + 8 + 1 + 16 + 2 + 2 + 1;
}

/// Bytes of the name of an opening.
pub const OPENING_LEN: usize = 16;

impl Record {
    /// Its bytes.
    pub fn to_bytes(&self) -> ArrayVec<u8, MAX_RECORD_LEN> {
        let mut out = ArrayVec::new();
        let mut put = |bytes: &[u8]| out.try_extend_from_slice(bytes).expect("MAX_RECORD_LEN is the longest");
        match self {
            Self::Eof => put(&[EOF]),
            Self::KeyUpdate => put(&[KEY_UPDATE]),
            Self::MaxData(limit) => {
                put(&[MAX_DATA]);
                put(&limit.to_be_bytes());
            }
            Self::AddAddr { id, address, port } => {
                put(&[ADD_ADDR, *id]);
                put_address(&mut put, *address, *port);
            }
            Self::RemoveAddr { id } => put(&[REMOVE_ADDR, *id]),
            Self::Prio { subflow, backup } => {
                put(&[PRIO]);
                put(&subflow.0.to_be_bytes());
                put(&[u8::from(*backup)]);
            }
            Self::Token(token) => {
                put(&[TOKEN]);
                put(&token.to_be_bytes());
            }
            Self::Mix(exchange) => put_exchange(&mut put, MIX, *exchange),
            Self::Void(exchange) => put_exchange(&mut put, VOID, *exchange),
            Self::Agreed(exchange) => put_exchange(&mut put, AGREED, *exchange),
            Self::Gone { subflow, reason } => {
                put(&[GONE]);
                put(&subflow.0.to_be_bytes());
                put(&[reason.0]);
            }
            Self::Opening { name, paths } => {
                put(&[OPENING]);
                put(name);
                put(&[*paths]);
            }
            Self::Opened(token) => {
                put(&[OPENED]);
                put(&token.to_be_bytes());
            }
            Self::Require(paths) => put(&[REQUIRE, *paths]),
            Self::Ticket(ticket) => {
                let bytes = ticket.as_bytes();
                put(&[TICKET, bytes.len() as u8]);
                put(bytes);
            }
            Self::Look => put(&[LOOK]),
            Self::Refused(reason) => put(&[REFUSED, reason.to_byte()]),
            Self::Seen { subflow, seen: Seen { address, mss, options } } => {
                put(&[SEEN]);
                put(&subflow.0.to_be_bytes());
                put_address(&mut put, address.ip(), address.port());
                put(&mss.to_be_bytes());
                put(&[*options]);
            }
            Self::OpenFlow { flow, destination } => {
                put(&[OPEN_FLOW]);
                put(&flow.to_be_bytes());
                let destination = &destination[..destination.len().min(MAX_DESTINATION)];
                put(&[destination.len() as u8]);
                put(destination);
            }
            Self::CloseFlow { flow, sent } => {
                put(&[CLOSE_FLOW]);
                put(&flow.to_be_bytes());
                put(&sent.to_be_bytes());
            }
            // Its payload is longer than the buffer: the caller appends it.
            Self::Datagram { flow, ecn, payload } => {
                put(&[DATAGRAM]);
                put(&flow.to_be_bytes());
                put(&[*ecn]);
                put(&(payload.len() as u16).to_be_bytes());
            }
            Self::Date(unix_time) => {
                put(&[DATE]);
                put(&unix_time.to_be_bytes());
            }
        }
        out
    }

    /// Bytes in front of the payload of [`Record::Datagram`].
    pub const DATAGRAM_HEAD: usize = 1 + 4 + 1 + 2;
    /// Bytes of [`Record::Date`].
    pub const DATE_LEN: usize = 1 + 8;

    /// One byte of padding, which hides the real length of a control block.
    pub const PADDING: u8 = 9;

    /// Whether nothing but padding may follow in the same block.
    const fn is_last(&self) -> bool {
        match self {
            Self::Eof | Self::KeyUpdate => true,
            Self::MaxData(_)
            | Self::AddAddr { .. }
            | Self::RemoveAddr { .. }
            | Self::Prio { .. }
            | Self::Token(_)
            | Self::Mix(_)
            | Self::Void(_)
            | Self::Agreed(_)
            | Self::Gone { .. }
            | Self::Opening { .. }
            | Self::Opened(_)
            | Self::Require(_)
            | Self::Ticket(_)
            | Self::Look
            | Self::Seen { .. }
            | Self::Refused(_)
            | Self::OpenFlow { .. }
            | Self::CloseFlow { .. }
            | Self::Datagram { .. }
            | Self::Date(_) => false,
        }
    }
}

const EOF: u8 = 1;
const KEY_UPDATE: u8 = 2;
const MIX: u8 = 3;
const MAX_DATA: u8 = 4;
const ADD_ADDR: u8 = 5;
const REMOVE_ADDR: u8 = 6;
const PRIO: u8 = 7;
const TOKEN: u8 = 8;
const OPENING: u8 = 10;
const OPENED: u8 = 11;
const REQUIRE: u8 = 12;
const TICKET: u8 = 13;
const LOOK: u8 = 14;
const SEEN: u8 = 15;
const GONE: u8 = 16;
const VOID: u8 = 17;
const AGREED: u8 = 20;
const REFUSED: u8 = 18;
const OPEN_FLOW: u8 = 21;
const CLOSE_FLOW: u8 = 22;
const DATAGRAM: u8 = 23;
const DATE: u8 = 24;

pub(super) const FAMILY_V4: u8 = 4;
pub(super) const FAMILY_V6: u8 = 6;

/// Kind, subflow and number.
fn put_exchange(mut put: impl FnMut(&[u8]), kind: u8, Exchange { subflow, number }: Exchange) {
    put(&[kind]);
    put(&subflow.0.to_be_bytes());
    put(&number.to_be_bytes());
}

/// The family, the address and the port.
fn put_address(mut put: impl FnMut(&[u8]), address: IpAddr, port: u16) {
    match address {
        IpAddr::V4(address) => {
            put(&[FAMILY_V4]);
            put(&address.octets());
        }
        IpAddr::V6(address) => {
            put(&[FAMILY_V6]);
            put(&address.octets());
        }
    }
    put(&port.to_be_bytes());
}

/// The longest record, without the payload of a datagram: the longest destination.
const MAX_RECORD_LEN: usize = 1 + 4 + 1 + MAX_DESTINATION;
const _: () = assert!(1 + 1 + MAX_TICKET <= MAX_RECORD_LEN, "a ticket fits, too");

/// The records of one control block, in order.
///
/// The peer sealed the block, so an error here is not an attack but a violation by the peer: the connection ends. Read all records before
/// acting on the first.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    seen: usize,
    is_over: bool,
}

impl<'a> Records<'a> {
    /// The records in the plain text of a control block.
    pub fn new(plain: &'a [u8]) -> Self {
        Self { rest: plain, seen: 0, is_over: false }
    }

    fn parse_next(&mut self) -> Result<Option<Record>, RecordError> {
        while let [Record::PADDING, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let Some((&kind, rest)) = self.rest.split_first() else { return Ok(None) };
        if self.is_over {
            return Err(RecordError::BehindTheLast);
        }
        if self.seen == MAX_RECORDS {
            return Err(RecordError::TooMany);
        }
        let mut fields = Fields::new(rest);
        let record = Self::parse_one(kind, &mut fields)?;
        self.rest = fields.rest();
        self.seen += 1;
        self.is_over = record.is_last();
        Ok(Some(record))
    }

    fn parse_one(kind: u8, fields: &mut Fields<'_>) -> Result<Record, RecordError> {
        Ok(match kind {
            EOF => Record::Eof,
            KEY_UPDATE => Record::KeyUpdate,
            MAX_DATA => Record::MaxData(u64::from_be_bytes(fields.take()?)),
            ADD_ADDR => {
                let [id] = fields.take()?;
                let address = fields.take_address()?;
                Record::AddAddr { id, address: address.ip(), port: address.port() }
            }
            REMOVE_ADDR => {
                let [id] = fields.take()?;
                Record::RemoveAddr { id }
            }
            PRIO => {
                let subflow = SubflowTag(u64::from_be_bytes(fields.take()?));
                match fields.take()? {
                    [0] => Record::Prio { subflow, backup: false },
                    [1] => Record::Prio { subflow, backup: true },
                    [_] => return Err(RecordError::Value),
                }
            }
            TOKEN => Record::Token(u32::from_be_bytes(fields.take()?)),
            MIX => Record::Mix(fields.take_exchange()?),
            VOID => Record::Void(fields.take_exchange()?),
            AGREED => Record::Agreed(fields.take_exchange()?),
            GONE => {
                let subflow = SubflowTag(u64::from_be_bytes(fields.take()?));
                let [reason] = fields.take()?;
                Record::Gone { subflow, reason: GoneReason(reason) }
            }
            OPENING => {
                let name = fields.take()?;
                let [paths] = fields.take()?;
                Record::Opening { name, paths }
            }
            REQUIRE => {
                let [paths] = fields.take()?;
                Record::Require(paths)
            }
            OPENED => Record::Opened(u32::from_be_bytes(fields.take()?)),
            TICKET => {
                let [length] = fields.take()?;
                let ticket = SessionTicket::new(fields.take_slice(usize::from(length))?);
                Record::Ticket(ticket.ok_or(RecordError::Value)?)
            }
            LOOK => Record::Look,
            DATE => Record::Date(u64::from_be_bytes(fields.take()?)),
            REFUSED => {
                let [reason] = fields.take()?;
                Record::Refused(RefusalReason::from_byte(reason))
            }
            SEEN => {
                let subflow = SubflowTag(u64::from_be_bytes(fields.take()?));
                let address = fields.take_address()?;
                let mss = u16::from_be_bytes(fields.take()?);
                let [options] = fields.take()?;
                Record::Seen { subflow, seen: Seen { address, mss, options } }
            }
            OPEN_FLOW => {
                let flow = fields.take_flow()?;
                let [length] = fields.take()?;
                let destination = Bytes::copy_from_slice(fields.take_slice(usize::from(length))?);
                Record::OpenFlow { flow, destination }
            }
            CLOSE_FLOW => {
                let flow = fields.take_flow()?;
                Record::CloseFlow { flow, sent: u64::from_be_bytes(fields.take()?) }
            }
            DATAGRAM => {
                let flow = fields.take_flow()?;
                let [ecn] = fields.take()?;
                let length = u16::from_be_bytes(fields.take()?);
                let payload = Bytes::copy_from_slice(fields.take_slice(usize::from(length))?);
                let is_codepoint = ecn < 4;
                is_codepoint.then_some(Record::Datagram { flow, ecn, payload }).ok_or(RecordError::Value)?
            }
            unknown => return Err(RecordError::Unknown(unknown)),
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, RecordError>;

    /// After an error there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.parse_next();
        if next.is_err() {
            self.rest = &[];
        }
        next.transpose()
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
