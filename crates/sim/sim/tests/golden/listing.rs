//! A capture as text, a line for each packet.

use bytes::Bytes;
use core::fmt::Write as _;
use core::net::SocketAddr;
use plait_base::SeqNum;
use plait_pcap::Reader;
use plait_wire::{Flags, Packet, Segment, Trust};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Everything there is to see; a hash in place of long bytes.
pub(crate) fn full(file: &[u8]) -> Vec<String> {
    listing(file, Detail::Everything)
}

/// Without payload, absolute sequence numbers, and what MPTCP options carry behind their subtype and flags.
pub(crate) fn outline(file: &[u8]) -> Vec<String> {
    listing(file, Detail::Outline)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Everything,
    Outline,
}

/// The first sequence number seen from each address.
type Starts = BTreeMap<(SocketAddr, SocketAddr), SeqNum>;

fn listing(file: &[u8], detail: Detail) -> Vec<String> {
    let mut starts = Starts::new();
    let line = |packet: plait_pcap::Packet<'_>| {
        let mut line = format!("{:>15} path{}", packet.at.as_nanos(), packet.interface);
        describe(&Bytes::from(packet.data.into_owned()), detail, &mut starts, &mut line);
        line
    };
    let packets = Reader::new(file).expect("a pcapng file");
    packets.map(|packet| packet.expect("well-formed")).map(line).collect()
}

fn describe(packet: &Bytes, detail: Detail, starts: &mut Starts, line: &mut String) {
    // Boxes may have broken the checksum; in the full listing it counts as the hash of the packet.
    match Packet::parse(packet, 0, Trust::Offloaded) {
        Ok(Packet::Tcp(segment)) => {
            describe_segment(&segment, detail, starts, line);
            if detail == Detail::Everything {
                let _ = write!(line, " {}", digest(packet));
            }
        }
        Ok(Packet::Icmp(error)) => {
            let _ = write!(line, " ICMP {:?} {} bytes", error.reason, packet.len());
        }
        Err(reason) => {
            let _ = write!(line, " {reason:?} {} bytes", packet.len());
            if detail == Detail::Everything {
                let _ = write!(line, " {}", digest(packet));
            }
        }
    }
}

fn describe_segment(segment: &Segment, detail: Detail, starts: &mut Starts, line: &mut String) {
    let Segment {
        source,
        destination,
        seq,
        ack,
        flags,
        window,
        urgent,
        options,
        payload,
        segment_size: _,
        ecn,
        // In the full listing the hash of the packet covers it.
        flow_label: _,
    } = segment;
    let start = *starts.entry((*source, *destination)).or_insert(*seq);
    let peer = starts.get(&(*destination, *source)).copied().unwrap_or(*ack);
    let _ = write!(line, " {source} > {destination} {}", letters(*flags));
    let _ = write!(
        line,
        " seq {} ack {}",
        seq.bits().wrapping_sub(start.bits()),
        ack.bits().wrapping_sub(peer.bits())
    );
    let _ = write!(line, " win {window} urg {urgent} ecn {ecn} len {} opt", payload.len());
    describe_options(options, detail, line);
}

fn letters(flags: Flags) -> String {
    let all = "FSRPAUEC".chars().enumerate();
    let accurate = flags.contains(Flags::AE).then_some('a');
    all.map(|(bit, letter)| if flags.0 >> bit & 1 == 1 { letter } else { '.' }).chain(accurate).collect()
}

/// Options as they lie there, well-formed or not.
fn describe_options(mut options: &[u8], detail: Detail, line: &mut String) {
    while let Some((&kind, rest)) = options.split_first() {
        if kind < 2 {
            options = rest;
            let _ = write!(line, " {kind}");
            continue;
        }
        let length =
            rest.first().map_or(options.len(), |length| usize::from(*length).clamp(2, options.len()));
        let (option, behind) = options.split_at(length.min(options.len()));
        options = behind;
        let value = option.get(2..).unwrap_or_default();
        // Subtype and flags; behind them are keys, tokens, tags and numbers derived from keys.
        let shown =
            if kind == MPTCP && detail == Detail::Outline { &value[..value.len().min(2)] } else { value };
        let _ = write!(line, " {kind}/{length}:");
        for byte in shown {
            let _ = write!(line, "{byte:02x}");
        }
    }
}

/// The option kind of Multipath TCP.
const MPTCP: u8 = 30;

fn digest(packet: &[u8]) -> String {
    Sha256::digest(packet)[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}
