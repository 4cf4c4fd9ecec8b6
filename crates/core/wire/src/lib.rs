//! Bytes to typed headers and back.
//!
//! There are two layers. [`Packet::parse`] parses an IP packet once and checks its lengths and checksums. The result ([`Segment`],
//! [`IcmpError`]) is plain data that needs no further check. [`Segment::emit`] writes the headers in front of a payload that stays in
//! place.
//!
//! TCP options stay raw inside a [`Segment`] (at most 40 bytes, inline). [`options`] iterates over them and returns typed values, including
//! unknown ones. Nothing here keeps state or allocates per packet.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod checksum;
mod eno;
mod fields;
mod icmp;
mod ip;
mod malformed;
mod mptcp_option;
mod packet;
mod segment;
mod tcp_option;

pub use checksum::{Checksum, checksum_of, data_checksum};
pub use eno::{Eno, EnoSuboption};
pub use icmp::{IcmpError, IcmpReason, icmp_error};
pub use ip::{IpVersion, Protocol, is_one_host};
pub use malformed::Malformed;
pub use mptcp_option::{
    AddAddr, CapableFlags, DataAck, DataSequence, Dss, FastClose, Mapping, MpCapable, MpFail, MpJoin, MpPrio,
    MpReset, MptcpOption, RemoveAddr, ResetReason,
};
pub use packet::{Packet, Trust};
pub use segment::{Flags, Segment, TcpEmit};
pub use tcp_option::{MAX_OPTIONS, OptionBytes, SackBlocks, TcpOption, option_bytes, options, pad_options};
