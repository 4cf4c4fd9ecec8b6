//! From bytes to [`MptcpOption`]: the form follows from subtype, length and flags.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{
    AddAddr, CapableFlags, DataAck, DataSequence, Dss, FastClose, Mapping, MpCapable, MpFail, MpJoin, MpPrio,
    MpReset, MptcpOption, RemoveAddr, ResetReason, flag, subtype,
};
use crate::Malformed;
use crate::fields::Fields;

impl<'a> MptcpOption<'a> {
    /// Reads the option whose bytes behind kind and length are `data`; which form of MP_JOIN or MP_CAPABLE
    /// it is follows from the length.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(data);
        let first = fields.u8()?;
        let (subtype, low_bits) = (first >> 4, first & 0x0f);
        match subtype {
            subtype::MP_CAPABLE => capable(low_bits, fields).map(Self::Capable),
            subtype::MP_JOIN => join(low_bits, fields).map(Self::Join),
            subtype::DSS => dss(fields).map(Self::Dss),
            subtype::ADD_ADDR => add_addr(low_bits, fields).map(Self::AddAddr),
            subtype::REMOVE_ADDR => remove_addr(fields).map(Self::RemoveAddr),
            subtype::MP_PRIO => prio(low_bits, fields).map(Self::Prio),
            subtype::MP_FAIL => fail(fields).map(Self::Fail),
            subtype::MP_FASTCLOSE => fast_close(fields).map(Self::FastClose),
            subtype::MP_TCPRST => reset(low_bits, fields).map(Self::Reset),
            subtype => Ok(Self::Unknown { subtype, low_bits, data: fields.rest() }),
        }
    }
}

/// Section 3.1. Each field is there only behind all fields before it.
fn capable(version: u8, mut fields: Fields<'_>) -> Result<MpCapable, Malformed> {
    let flags = CapableFlags(fields.u8()?);
    let sender_key = if fields.len() > 0 { Some(fields.take()?) } else { None };
    let receiver_key = if fields.len() > 0 { Some(fields.take()?) } else { None };
    let data_length = if fields.len() > 0 { Some(fields.u16()?) } else { None };
    let checksum = if fields.len() > 0 { Some(fields.u16()?) } else { None };
    fields.end()?;
    Ok(MpCapable { version, flags, sender_key, receiver_key, data_length, checksum })
}

/// Section 3.2. The three forms have three lengths.
fn join(low_bits: u8, mut fields: Fields<'_>) -> Result<MpJoin, Malformed> {
    let (backup, reserved) = (low_bits & flag::BACKUP != 0, low_bits >> 1);
    let form = fields.len();
    // The byte behind the subtype: the address id, reserved in the form of the ACK.
    let address_id = fields.u8()?;
    let join = match form {
        9 => MpJoin::Syn { backup, reserved, address_id, token: fields.u32()?, nonce: fields.u32()? },
        13 => MpJoin::SynAck { backup, reserved, address_id, hmac: fields.take()?, nonce: fields.u32()? },
        21 => MpJoin::Ack { hmac: fields.take()? },
        _ => return Err(Malformed::OptionLength),
    };
    fields.end()?;
    Ok(join)
}

/// Section 3.3. `a` and `m` count only beside `A` and `M`, and `F` is a property of the mapping.
fn dss(mut fields: Fields<'_>) -> Result<Dss, Malformed> {
    let flags = fields.u8()?;
    let has = |flag| flags & flag != 0;
    let data_ack = match (has(flag::DATA_ACK), has(flag::DATA_ACK_LONG)) {
        (false, _) => None,
        (true, false) => Some(DataAck::Short(fields.u32()?)),
        (true, true) => Some(DataAck::Long(fields.u64()?)),
    };
    let dsn = match (has(flag::MAPPING), has(flag::DSN_LONG)) {
        (false, _) => None,
        (true, false) => Some(DataSequence::Short(fields.u32()?)),
        (true, true) => Some(DataSequence::Long(fields.u64()?)),
    };
    let mapping = match dsn {
        None => None,
        Some(dsn) => {
            let (ssn, length) = (fields.u32()?, fields.u16()?);
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.3
            //# The presence of the checksum can be inferred from
            //# the length of the option.
            let checksum = if fields.len() > 0 { Some(fields.u16()?) } else { None };
            Some(Mapping { dsn, ssn, length, checksum })
        }
    };
    fields.end()?;
    Ok(Dss { data_ack, mapping, data_fin: has(flag::DATA_FIN) && mapping.is_some() })
}

/// Section 3.4.1. The flag E says whether an HMAC is there, the length which family and whether a port.
fn add_addr(low_bits: u8, mut fields: Fields<'_>) -> Result<AddAddr, Malformed> {
    let echo = low_bits & flag::ECHO != 0;
    let address_id = fields.u8()?;
    let hmac_len = if echo { 0 } else { 8 };
    let (address, has_port) = match fields.len().checked_sub(hmac_len) {
        Some(4) => (Ipv4Addr::from(fields.take::<4>()?).into(), false),
        Some(6) => (Ipv4Addr::from(fields.take::<4>()?).into(), true),
        Some(16) => (Ipv6Addr::from(fields.take::<16>()?).into(), false),
        Some(18) => (Ipv6Addr::from(fields.take::<16>()?).into(), true),
        Some(_) | None => return Err(Malformed::OptionLength),
    };
    let port = if has_port { Some(fields.u16()?) } else { None };
    let hmac = if echo { None } else { Some(fields.take()?) };
    fields.end()?;
    Ok(AddAddr { echo, address_id, address, port, hmac })
}

/// Section 3.4.2.
fn remove_addr(fields: Fields<'_>) -> Result<RemoveAddr<'_>, Malformed> {
    let address_ids = fields.rest();
    if address_ids.is_empty() { Err(Malformed::OptionLength) } else { Ok(RemoveAddr { address_ids }) }
}

/// Section 3.3.8.
fn prio(low_bits: u8, fields: Fields<'_>) -> Result<MpPrio, Malformed> {
    fields.end()?;
    Ok(MpPrio { backup: low_bits & flag::BACKUP != 0 })
}

/// Section 3.7.
fn fail(mut fields: Fields<'_>) -> Result<MpFail, Malformed> {
    let _reserved = fields.u8()?;
    let dsn = fields.u64()?;
    fields.end()?;
    Ok(MpFail { dsn })
}

/// Section 3.5.
fn fast_close(mut fields: Fields<'_>) -> Result<FastClose, Malformed> {
    let _reserved = fields.u8()?;
    let receiver_key = fields.take()?;
    fields.end()?;
    Ok(FastClose { receiver_key })
}

/// Section 3.6.
fn reset(low_bits: u8, mut fields: Fields<'_>) -> Result<MpReset, Malformed> {
    let reason = ResetReason::from_code(fields.u8()?);
    fields.end()?;
    Ok(MpReset { transient: low_bits & flag::TRANSIENT != 0, reserved: low_bits >> 1, reason })
}
