//! The fields of control records.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::datagram::MAX_FLOW;
use super::option_tag::SubflowTag;
use super::path_key::Exchange;
use super::record::{FAMILY_V4, FAMILY_V6};

/// The reason for which a listener refuses an opening.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RefusalReason {
    /// 00: a reason that has no number, or a number that this version does not know.
    Other,
    /// 01: the opener's authenticated key is not on the listener's list, or the opener has none.
    NotAuthorized,
    /// 02: the listener has reached its limit of connections or of remembered openings.
    Full,
    /// 03: the listener is ending, and accepts no new connection.
    Draining,
    /// 04: the opener's authenticated key was on the listener's list until a time that is over.
    Expired,
    /// 05: this opener, by its authenticated key, has as many connections as it may have.
    TooMany,
}

impl RefusalReason {
    pub(super) const fn to_byte(self) -> u8 {
        match self {
            Self::Other => 0,
            Self::NotAuthorized => 1,
            Self::Full => 2,
            Self::Draining => 3,
            Self::Expired => 4,
            Self::TooMany => 5,
        }
    }

    pub(super) const fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::NotAuthorized,
            2 => Self::Full,
            3 => Self::Draining,
            4 => Self::Expired,
            5 => Self::TooMany,
            // Later versions may have more reasons. The opening is refused for every reason.
            0 | 6..=u8::MAX => Self::Other,
        }
    }
}

/// The reason for display.
impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Other => "for a reason of its own",
            Self::NotAuthorized => "the key of this client is not authorized there",
            Self::Full => "the server is full",
            Self::Draining => "the server is stopping",
            Self::Expired => "the access of this client has expired there",
            Self::TooMany => "this client has as many connections there as it may have",
        })
    }
}

/// The violation of the rules for control records by a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordError {
    /// The block ends within a record.
    Truncated,
    /// A record type that does not exist.
    Unknown(u8),
    /// An address family, a flag or a length that does not exist.
    Value,
    /// A record behind EOF or KEY_UPDATE.
    BehindTheLast,
    /// More than [`MAX_RECORDS`](super::MAX_RECORDS).
    TooMany,
}

/// The bytes of a block behind the kind of a record.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes behind those that were taken.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(RecordError::Truncated)?;
        self.0 = rest;
        Ok(*field)
    }

    /// A family, an address of it, and a port.
    pub(super) fn take_address(&mut self) -> Result<SocketAddr, RecordError> {
        let [family] = self.take()?;
        let address = match family {
            FAMILY_V4 => IpAddr::V4(Ipv4Addr::from(self.take::<4>()?)),
            FAMILY_V6 => IpAddr::V6(Ipv6Addr::from(self.take::<16>()?)),
            _ => return Err(RecordError::Value),
        };
        Ok(SocketAddr::new(address, u16::from_be_bytes(self.take()?)))
    }

    pub(super) fn take_exchange(&mut self) -> Result<Exchange, RecordError> {
        let subflow = SubflowTag(u64::from_be_bytes(self.take()?));
        Ok(Exchange { subflow, number: u32::from_be_bytes(self.take()?) })
    }

    pub(super) fn take_slice(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let (field, rest) = self.0.split_at_checked(length).ok_or(RecordError::Truncated)?;
        self.0 = rest;
        Ok(field)
    }

    /// The number of a flow.
    pub(super) fn take_flow(&mut self) -> Result<u32, RecordError> {
        let flow = u32::from_be_bytes(self.take()?);
        (flow <= MAX_FLOW).then_some(flow).ok_or(RecordError::Value)
    }
}
