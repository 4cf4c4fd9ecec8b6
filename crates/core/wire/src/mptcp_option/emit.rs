//! From [`MptcpOption`] to bytes. Fields that may only stand beside others are written only beside them,
//! so every value gives a form of the RFC.

use core::net::IpAddr;

use super::{
    AddAddr, CapableFlags, DataAck, DataSequence, Dss, FastClose, Mapping, MpCapable, MpFail, MpJoin, MpPrio,
    MpReset, MptcpOption, RemoveAddr, flag, subtype,
};
use crate::OptionBytes;
use crate::tcp_option::put;

impl MptcpOption<'_> {
    /// Bytes behind kind and length.
    pub(crate) fn data_len(&self) -> usize {
        match self {
            Self::Capable(capable) => capable_len(capable),
            Self::Join(MpJoin::Syn { .. }) => 10,
            Self::Join(MpJoin::SynAck { .. }) => 14,
            Self::Join(MpJoin::Ack { .. }) => 22,
            Self::Dss(dss) => dss_len(dss),
            Self::AddAddr(add) => add_addr_len(add),
            Self::RemoveAddr(RemoveAddr { address_ids }) => 1 + address_ids.len(),
            Self::Prio(_) => 1,
            Self::Fail(_) | Self::FastClose(_) => 10,
            Self::Reset(_) => 2,
            Self::Unknown { subtype: _, low_bits: _, data } => 1 + data.len(),
        }
    }

    /// Appends the bytes behind kind and length, as far as there is room; `None` if that is not all.
    pub(crate) fn try_emit_data(&self, out: &mut OptionBytes) -> Option<()> {
        match self {
            Self::Capable(capable) => emit_capable(capable, out),
            Self::Join(join) => emit_join(join, out),
            Self::Dss(dss) => emit_dss(dss, out),
            Self::AddAddr(add) => emit_add_addr(add, out),
            Self::RemoveAddr(RemoveAddr { address_ids }) => {
                put(out, &[first(subtype::REMOVE_ADDR, 0)])?;
                put(out, address_ids)
            }
            Self::Prio(MpPrio { backup }) => put(out, &[first(subtype::MP_PRIO, bit(*backup, flag::BACKUP))]),
            Self::Fail(MpFail { dsn }) => {
                put(out, &[first(subtype::MP_FAIL, 0), 0])?;
                put(out, &dsn.to_be_bytes())
            }
            Self::FastClose(FastClose { receiver_key }) => {
                put(out, &[first(subtype::MP_FASTCLOSE, 0), 0])?;
                put(out, receiver_key)
            }
            Self::Reset(MpReset { transient, reserved, reason }) => {
                let flags = bit(*transient, flag::TRANSIENT) | reserved << 1;
                put(out, &[first(subtype::MP_TCPRST, flags), reason.code()])
            }
            Self::Unknown { subtype, low_bits, data } => {
                put(out, &[first(*subtype, *low_bits)])?;
                put(out, data)
            }
        }
    }
}

/// The byte of the subtype and the four bits beside it.
const fn first(subtype: u8, low_bits: u8) -> u8 {
    subtype << 4 | low_bits & 0x0f
}

const fn bit(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn capable_len(capable: &MpCapable) -> usize {
    let MpCapable { version: _, flags: _, sender_key, receiver_key, data_length, checksum } = capable;
    match (sender_key, receiver_key, data_length, checksum) {
        (None, _, _, _) => 2,
        (Some(_), None, _, _) => 10,
        (Some(_), Some(_), None, _) => 18,
        (Some(_), Some(_), Some(_), None) => 20,
        (Some(_), Some(_), Some(_), Some(_)) => 22,
    }
}

fn emit_capable(capable: &MpCapable, out: &mut OptionBytes) -> Option<()> {
    let MpCapable { version, flags: CapableFlags(flags), sender_key, receiver_key, data_length, checksum } =
        capable;
    put(out, &[first(subtype::MP_CAPABLE, *version), *flags])?;
    let Some(key) = sender_key else { return Some(()) };
    put(out, key)?;
    let Some(key) = receiver_key else { return Some(()) };
    put(out, key)?;
    let Some(length) = data_length else { return Some(()) };
    put(out, &length.to_be_bytes())?;
    let Some(checksum) = checksum else { return Some(()) };
    put(out, &checksum.to_be_bytes())
}

fn emit_join(join: &MpJoin, out: &mut OptionBytes) -> Option<()> {
    let low_bits = |backup, reserved: u8| bit(backup, flag::BACKUP) | reserved << 1;
    match *join {
        MpJoin::Syn { backup, reserved, address_id, token, nonce } => {
            put(out, &[first(subtype::MP_JOIN, low_bits(backup, reserved)), address_id])?;
            put(out, &token.to_be_bytes())?;
            put(out, &nonce.to_be_bytes())
        }
        MpJoin::SynAck { backup, reserved, address_id, hmac, nonce } => {
            put(out, &[first(subtype::MP_JOIN, low_bits(backup, reserved)), address_id])?;
            put(out, &hmac)?;
            put(out, &nonce.to_be_bytes())
        }
        MpJoin::Ack { hmac } => {
            put(out, &[first(subtype::MP_JOIN, 0), 0])?;
            put(out, &hmac)
        }
    }
}

fn dss_len(dss: &Dss) -> usize {
    let Dss { data_ack, mapping, data_fin: _ } = dss;
    let data_ack = match data_ack {
        None => 0,
        Some(DataAck::Short(_)) => 4,
        Some(DataAck::Long(_)) => 8,
    };
    let mapping = match mapping {
        None => 0,
        Some(Mapping { dsn, ssn: _, length: _, checksum }) => {
            let dsn = match dsn {
                DataSequence::Short(_) => 4,
                DataSequence::Long(_) => 8,
            };
            dsn + 6 + if checksum.is_some() { 2 } else { 0 }
        }
    };
    2 + data_ack + mapping
}

fn emit_dss(dss: &Dss, out: &mut OptionBytes) -> Option<()> {
    let Dss { data_ack, mapping, data_fin } = dss;
    let ack_flags = match data_ack {
        None => 0,
        Some(DataAck::Short(_)) => flag::DATA_ACK,
        Some(DataAck::Long(_)) => flag::DATA_ACK | flag::DATA_ACK_LONG,
    };
    let mapping_flags = match mapping {
        None => 0,
        Some(Mapping { dsn: DataSequence::Short(_), .. }) => flag::MAPPING | bit(*data_fin, flag::DATA_FIN),
        Some(Mapping { dsn: DataSequence::Long(_), .. }) => {
            flag::MAPPING | flag::DSN_LONG | bit(*data_fin, flag::DATA_FIN)
        }
    };
    put(out, &[first(subtype::DSS, 0), ack_flags | mapping_flags])?;
    match data_ack {
        None => {}
        Some(DataAck::Short(ack)) => put(out, &ack.to_be_bytes())?,
        Some(DataAck::Long(ack)) => put(out, &ack.to_be_bytes())?,
    }
    let Some(Mapping { dsn, ssn, length, checksum }) = mapping else { return Some(()) };
    match dsn {
        DataSequence::Short(dsn) => put(out, &dsn.to_be_bytes())?,
        DataSequence::Long(dsn) => put(out, &dsn.to_be_bytes())?,
    }
    put(out, &ssn.to_be_bytes())?;
    put(out, &length.to_be_bytes())?;
    let Some(checksum) = checksum else { return Some(()) };
    put(out, &checksum.to_be_bytes())
}

fn add_addr_len(add: &AddAddr) -> usize {
    let AddAddr { echo: _, address_id: _, address, port, hmac } = add;
    let address = match address {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 16,
    };
    2 + address + if port.is_some() { 2 } else { 0 } + if hmac.is_some() { 8 } else { 0 }
}

fn emit_add_addr(add: &AddAddr, out: &mut OptionBytes) -> Option<()> {
    let AddAddr { echo, address_id, address, port, hmac } = add;
    put(out, &[first(subtype::ADD_ADDR, bit(*echo, flag::ECHO)), *address_id])?;
    match address {
        IpAddr::V4(v4) => put(out, &v4.octets())?,
        IpAddr::V6(v6) => put(out, &v6.octets())?,
    }
    if let Some(port) = port {
        put(out, &port.to_be_bytes())?;
    }
    let Some(hmac) = hmac else { return Some(()) };
    put(out, hmac)
}
