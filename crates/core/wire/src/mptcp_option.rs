//! The options of Multipath TCP, kind 30 (RFC 8684, section 3).

mod emit;
mod parse;

use core::net::IpAddr;

/// One MPTCP option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MptcpOption<'a> {
    /// Subtype 0x0.
    Capable(MpCapable),
    /// Subtype 0x1.
    Join(MpJoin),
    /// Subtype 0x2.
    Dss(Dss),
    /// Subtype 0x3.
    AddAddr(AddAddr),
    /// Subtype 0x4.
    RemoveAddr(RemoveAddr<'a>),
    /// Subtype 0x5.
    Prio(MpPrio),
    /// Subtype 0x6.
    Fail(MpFail),
    /// Subtype 0x7.
    FastClose(FastClose),
    /// Subtype 0x8.
    Reset(MpReset),
    /// Any other subtype (0xF is experimental), kept.
    Unknown {
        /// Its subtype, 0 to 15.
        subtype: u8,
        /// Low four bits of its third byte.
        low_bits: u8,
        /// Its bytes behind the third.
        data: &'a [u8],
    },
}

/// Flags A to H of MP_CAPABLE (section 3.1): A checksum required, B extensibility, C no more subflows to
/// this address, H HMAC-SHA256. D (0x10) asks for data scrambling in version 2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CapableFlags(pub u8);

impl CapableFlags {
    /// A: DSS checksums are required.
    pub const CHECKSUM: u8 = 0x80;
    /// B: reserved for extensions; a receiver that sees it falls back to TCP.
    pub const EXTENSIBILITY: u8 = 0x40;
    /// C: do not open further subflows to the source address of this option.
    pub const DENY_JOIN_ID0: u8 = 0x20;
    /// D: the bytes are scrambled (plait, version 2 only).
    pub const SCRAMBLE: u8 = 0x10;
    /// H: HMAC-SHA256.
    pub const HMAC_SHA256: u8 = 0x01;

    /// Whether all bits of `flag` are set.
    pub const fn contains(self, flag: u8) -> bool {
        self.0 & flag == flag
    }
}

/// MP_CAPABLE in all its lengths: 4 (SYN), 12 (SYN/ACK, one key), 20 (ACK, both keys), 22 (with the data
/// length of the first mapping), 24 (and its checksum).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MpCapable {
    /// Protocol version, 0 to 15.
    pub version: u8,
    /// Flags.
    pub flags: CapableFlags,
    /// Key of the option's sender, in wire order.
    pub sender_key: Option<[u8; 8]>,
    /// Key of its receiver; only beside `sender_key`.
    pub receiver_key: Option<[u8; 8]>,
    /// Data-level length of the first mapping; only beside both keys.
    pub data_length: Option<u16>,
    /// Checksum of the first mapping; only beside `data_length`.
    pub checksum: Option<u16>,
}

/// MP_JOIN in its three forms (section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MpJoin {
    /// On the SYN, 12 bytes.
    Syn {
        /// Flag B: use as a backup.
        backup: bool,
        /// Reserved bits, kept for the transcript of sealed connections.
        reserved: u8,
        /// Address id of the sender's address.
        address_id: u8,
        /// Token of the receiver's connection.
        token: u32,
        /// The sender's random number.
        nonce: u32,
    },
    /// On the SYN/ACK, 16 bytes.
    SynAck {
        /// Flag B.
        backup: bool,
        /// Reserved bits.
        reserved: u8,
        /// Address id of the sender's address.
        address_id: u8,
        /// Leftmost 64 bits of the sender's HMAC.
        hmac: [u8; 8],
        /// The sender's random number.
        nonce: u32,
    },
    /// On the third ACK, 24 bytes.
    Ack {
        /// Leftmost 160 bits of the sender's HMAC.
        hmac: [u8; 20],
    },
}

/// A Data-ACK in the form it has on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DataAck {
    /// Lower 32 bits.
    Short(u32),
    /// All 64 bits.
    Long(u64),
}

/// A data sequence number in the form it has on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DataSequence {
    /// Lower 32 bits.
    Short(u32),
    /// All 64 bits.
    Long(u64),
}

/// The mapping part of a DSS option.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mapping {
    /// First data sequence number mapped.
    pub dsn: DataSequence,
    /// Subflow sequence number it is mapped to, relative to the initial one (the SYN is 0, first byte 1).
    /// Zero for a DATA_FIN without data.
    pub ssn: u32,
    /// Bytes mapped, a DATA_FIN counts as one; 0 is the infinite mapping.
    pub length: u16,
    /// Checksum, where they are in use.
    pub checksum: Option<u16>,
}

/// DSS (section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Dss {
    /// Acknowledgment at data level.
    pub data_ack: Option<DataAck>,
    /// Mapping of the payload that goes with it.
    pub mapping: Option<Mapping>,
    /// DATA_FIN: the mapping ends with the end of the stream. Only with a mapping.
    pub data_fin: bool,
}

/// ADD_ADDR (section 3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddAddr {
    /// Flag E: an echo, confirming one.
    pub echo: bool,
    /// Address id.
    pub address_id: u8,
    /// The address.
    pub address: IpAddr,
    /// Port, where it differs from the one in use.
    pub port: Option<u16>,
    /// Truncated HMAC: rightmost 64 bits; present unless it is an echo.
    pub hmac: Option<[u8; 8]>,
}

/// REMOVE_ADDR (section 3.4.2): one or more address ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoveAddr<'a> {
    /// The ids; at least one.
    pub address_ids: &'a [u8],
}

/// MP_PRIO (section 3.3.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MpPrio {
    /// Flag B: from now on a backup.
    pub backup: bool,
}

/// MP_FAIL (section 3.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MpFail {
    /// Start of the mapping that failed, all 64 bits.
    pub dsn: u64,
}

/// MP_FASTCLOSE (section 3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FastClose {
    /// Key of the option's receiver.
    pub receiver_key: [u8; 8],
}

/// MP_TCPRST (section 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MpReset {
    /// Flag T: the condition may pass.
    pub transient: bool,
    /// Flags U, V, W.
    pub reserved: u8,
    /// Why.
    pub reason: ResetReason,
}

/// Reason codes of MP_TCPRST.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResetReason {
    /// 0x00.
    Unspecified,
    /// 0x01: an MPTCP-specific error.
    Mptcp,
    /// 0x02.
    LackOfResources,
    /// 0x03.
    Prohibited,
    /// 0x04: too much outstanding data.
    TooMuchOutstanding,
    /// 0x05.
    UnacceptablePerformance,
    /// 0x06.
    MiddleboxInterference,
    /// Any other code.
    Other(u8),
}

impl ResetReason {
    /// The reason that `code` stands for.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Unspecified,
            1 => Self::Mptcp,
            2 => Self::LackOfResources,
            3 => Self::Prohibited,
            4 => Self::TooMuchOutstanding,
            5 => Self::UnacceptablePerformance,
            6 => Self::MiddleboxInterference,
            other => Self::Other(other),
        }
    }

    /// Its code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Unspecified => 0,
            Self::Mptcp => 1,
            Self::LackOfResources => 2,
            Self::Prohibited => 3,
            Self::TooMuchOutstanding => 4,
            Self::UnacceptablePerformance => 5,
            Self::MiddleboxInterference => 6,
            Self::Other(code) => code,
        }
    }
}

/// The subtypes (RFC 8684, section 7.3, table 2).
mod subtype {
    pub(super) const MP_CAPABLE: u8 = 0x0;
    pub(super) const MP_JOIN: u8 = 0x1;
    pub(super) const DSS: u8 = 0x2;
    pub(super) const ADD_ADDR: u8 = 0x3;
    pub(super) const REMOVE_ADDR: u8 = 0x4;
    pub(super) const MP_PRIO: u8 = 0x5;
    pub(super) const MP_FAIL: u8 = 0x6;
    pub(super) const MP_FASTCLOSE: u8 = 0x7;
    pub(super) const MP_TCPRST: u8 = 0x8;
}

/// Flags in the four bits beside the subtype, or in the byte behind it.
mod flag {
    /// B of MP_JOIN and MP_PRIO.
    pub(super) const BACKUP: u8 = 0x1;
    /// E of ADD_ADDR.
    pub(super) const ECHO: u8 = 0x1;
    /// T of MP_TCPRST.
    pub(super) const TRANSIENT: u8 = 0x1;
    /// A of DSS: a Data-ACK.
    pub(super) const DATA_ACK: u8 = 0x01;
    /// a of DSS: of 8 bytes.
    pub(super) const DATA_ACK_LONG: u8 = 0x02;
    /// M of DSS: a mapping.
    pub(super) const MAPPING: u8 = 0x04;
    /// m of DSS: its data sequence number has 8 bytes.
    pub(super) const DSN_LONG: u8 = 0x08;
    /// F of DSS.
    pub(super) const DATA_FIN: u8 = 0x10;
}
