//! Random options and segments, all of which can exist.

use core::net::{IpAddr, SocketAddr};
use plait_base::SeqNum;
use plait_wire::{
    AddAddr, CapableFlags, DataAck, DataSequence, Dss, FastClose, Flags, Mapping, MpCapable, MpFail, MpJoin,
    MpPrio, MpReset, MptcpOption, OptionBytes, RemoveAddr, ResetReason, Segment, TcpOption, option_bytes,
};
use proptest::prelude::*;

/// One option that fits 40 bytes. Variable data is leaked, which a test may.
pub(crate) fn option() -> impl Strategy<Value = TcpOption<'static>> {
    prop_oneof![
        1 => any::<u16>().prop_map(TcpOption::Mss),
        1 => any::<u8>().prop_map(TcpOption::WindowScale),
        1 => Just(TcpOption::SackPermitted),
        1 => prop::collection::vec(any::<(u32, u32)>(), 1..=4).prop_map(|blocks| TcpOption::Sack(
            blocks.into_iter().map(|(left, right)| (SeqNum::new(left), SeqNum::new(right))).collect()
        )),
        1 => any::<(u32, u32)>().prop_map(|(value, echo)| TcpOption::Timestamps { value, echo }),
        1 => prop::collection::vec(any::<u8>(), 0..=38)
            .prop_map(|contents| TcpOption::Eno(plait_wire::Eno { contents: contents.leak() })),
        1 => (unknown_kind(), prop::collection::vec(any::<u8>(), 0..=38))
            .prop_map(|(kind, data)| TcpOption::Unknown { kind, data: data.leak() }),
        8 => mptcp_option().prop_map(TcpOption::Mptcp),
    ]
}

fn unknown_kind() -> impl Strategy<Value = u8> {
    any::<u8>().prop_filter("has a type of its own", |kind| ![0, 1, 2, 3, 4, 5, 8, 30, 69].contains(kind))
}

fn mptcp_option() -> impl Strategy<Value = MptcpOption<'static>> {
    prop_oneof![
        capable().prop_map(MptcpOption::Capable),
        join().prop_map(MptcpOption::Join),
        dss().prop_map(MptcpOption::Dss),
        add_addr().prop_map(MptcpOption::AddAddr),
        prop::collection::vec(any::<u8>(), 1..=37)
            .prop_map(|address_ids| MptcpOption::RemoveAddr(RemoveAddr { address_ids: address_ids.leak() })),
        any::<bool>().prop_map(|backup| MptcpOption::Prio(MpPrio { backup })),
        any::<u64>().prop_map(|dsn| MptcpOption::Fail(MpFail { dsn })),
        any::<[u8; 8]>().prop_map(|receiver_key| MptcpOption::FastClose(FastClose { receiver_key })),
        (any::<bool>(), 0..8u8, any::<u8>()).prop_map(|(transient, reserved, code)| MptcpOption::Reset(
            MpReset { transient, reserved, reason: ResetReason::from_code(code) }
        )),
        (9..16u8, 0..16u8, prop::collection::vec(any::<u8>(), 0..=37)).prop_map(
            |(subtype, low_bits, data)| MptcpOption::Unknown { subtype, low_bits, data: data.leak() }
        ),
    ]
}

fn capable() -> impl Strategy<Value = MpCapable> {
    (0..16u8, any::<u8>(), any::<[[u8; 8]; 2]>(), any::<(u16, u16)>(), 0..5).prop_map(
        |(version, flags, [sender, receiver], (length, checksum), form)| MpCapable {
            version,
            flags: CapableFlags(flags),
            sender_key: (form > 0).then_some(sender),
            receiver_key: (form > 1).then_some(receiver),
            data_length: (form > 2).then_some(length),
            checksum: (form > 3).then_some(checksum),
        },
    )
}

fn join() -> impl Strategy<Value = MpJoin> {
    prop_oneof![
        (any::<bool>(), 0..8u8, any::<u8>(), any::<(u32, u32)>()).prop_map(
            |(backup, reserved, address_id, (token, nonce))| MpJoin::Syn {
                backup,
                reserved,
                address_id,
                token,
                nonce
            }
        ),
        (any::<bool>(), 0..8u8, any::<u8>(), any::<[u8; 8]>(), any::<u32>()).prop_map(
            |(backup, reserved, address_id, hmac, nonce)| MpJoin::SynAck {
                backup,
                reserved,
                address_id,
                hmac,
                nonce
            }
        ),
        any::<[u8; 20]>().prop_map(|hmac| MpJoin::Ack { hmac }),
    ]
}

fn dss() -> impl Strategy<Value = Dss> {
    let data_ack = prop_oneof![any::<u32>().prop_map(DataAck::Short), any::<u64>().prop_map(DataAck::Long)];
    let dsn =
        prop_oneof![any::<u32>().prop_map(DataSequence::Short), any::<u64>().prop_map(DataSequence::Long)];
    let mapping = (dsn, any::<u32>(), any::<u16>(), any::<Option<u16>>())
        .prop_map(|(dsn, ssn, length, checksum)| Mapping { dsn, ssn, length, checksum });
    (prop::option::of(data_ack), prop::option::of((mapping, any::<bool>()))).prop_map(
        |(data_ack, mapping)| Dss {
            data_ack,
            mapping: mapping.map(|(mapping, _)| mapping),
            data_fin: mapping.is_some_and(|(_, data_fin)| data_fin),
        },
    )
}

fn add_addr() -> impl Strategy<Value = AddAddr> {
    (any::<u8>(), any::<IpAddr>(), any::<Option<u16>>(), any::<Option<[u8; 8]>>()).prop_map(
        |(address_id, address, port, hmac)| AddAddr { echo: hmac.is_none(), address_id, address, port, hmac },
    )
}

/// As many of some options as fit one header.
pub(crate) fn option_field() -> impl Strategy<Value = OptionBytes> {
    prop::collection::vec(option(), 0..5).prop_map(|mut list| {
        loop {
            match option_bytes(list.iter().cloned()) {
                Some(bytes) => return bytes,
                None => drop(list.pop()),
            }
        }
    })
}

/// A segment or super-segment that a host may send.
pub(crate) fn segment() -> impl Strategy<Value = Segment> {
    let payload = prop_oneof![
        Just(0),
        1..100usize,
        1000..1600usize,
        // The largest that is left of an IP packet beside 20 + 60 bytes of headers.
        1..=65_455usize,
    ];
    (
        (ends(), any::<(u32, u32)>(), flags(), any::<(u16, u16)>(), 0..1u32 << 20),
        (option_field(), payload, any::<u8>(), 1..=u16::MAX, 0..4u8),
    )
        .prop_map(
            |((ends, (seq, ack), flags, (window, urgent), label), (options, len, seed, size, ecn))| {
                let payload: Vec<u8> =
                    (0..len).map(|i| (i as u8).wrapping_mul(seed) ^ (i >> 8) as u8).collect();
                Segment {
                    source: ends.0,
                    destination: ends.1,
                    seq: SeqNum::new(seq),
                    ack: SeqNum::new(ack),
                    flags,
                    window,
                    urgent,
                    options,
                    payload: payload.into(),
                    segment_size: size,
                    ecn,
                    flow_label: if ends.0.is_ipv6() { label } else { 0 },
                }
            },
        )
}

fn ends() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = (1..224u8, any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| IpAddr::from([a, b, c, d]));
    let v6 = any::<[u8; 15]>().prop_map(|rest| {
        let mut octets = [0x20; 16];
        octets[1..].copy_from_slice(&rest);
        IpAddr::from(octets)
    });
    let pair = prop_oneof![[v4.clone(), v4], [v6.clone(), v6]];
    (pair, 1..=u16::MAX, 1..=u16::MAX)
        .prop_map(|([from, to], port, other)| (SocketAddr::new(from, port), SocketAddr::new(to, other)))
}

fn flags() -> impl Strategy<Value = Flags> {
    (0..0x200u16).prop_map(|bits| {
        let flags = Flags(bits);
        match (flags.contains(Flags::SYN), flags.contains(Flags::RST)) {
            (true, _) => flags.without(Flags::FIN.with(Flags::RST)),
            (false, true) => flags,
            (false, false) => flags.with(Flags::ACK),
        }
    })
}
