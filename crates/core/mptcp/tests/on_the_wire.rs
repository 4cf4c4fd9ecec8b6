//! What plain Multipath TCP says on the wire in each of its segments (RFC 8684): a transfer over two paths, and its end.

mod world;

use core::net::SocketAddr;
use plait_base::SeqNum;
use plait_wire::{
    CapableFlags, DataAck, DataSequence, Dss, Flags, Mapping, MpJoin, MptcpOption, Segment, TcpOption,
    options,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, PORT, SERVER, World, pattern};

/// Each segment, in the order in which they leave, and its sender.
type Tape = Rc<RefCell<Vec<(usize, Segment)>>>;

/// Both sides send, over two paths, and end.
fn recorded(checksum: bool) -> Vec<(usize, Segment)> {
    recorded_with([checksum; 2])
}

/// The same, where either side may require checksums.
fn recorded_with(checksums: [bool; 2]) -> Vec<(usize, Segment)> {
    let link = Link { rate: Some(2_000_000), ..Link::default() };
    let mut world = World::new(60, vec![link.clone(), link], 2);
    [CLIENT, SERVER].into_iter().for_each(|side| world.sides[side].config.checksum = checksums[side]);
    let tape = Tape::default();
    let log = Rc::clone(&tape);
    world.tap = Box::new(move |from, segment| {
        log.borrow_mut().push((from, segment.clone()));
        Fate::Pass
    });
    world.send(CLIENT, &pattern(2_000_000, 1)).send(SERVER, &pattern(1_000_000, 2)).connect();
    world.finish(60);
    world.assert_clean_end();
    tape.take()
}

fn mptcp(segment: &Segment) -> impl Iterator<Item = MptcpOption<'_>> {
    options(&segment.options).filter_map(|option| match option.expect("our own options") {
        TcpOption::Mptcp(option) => Some(option),
        _ => None,
    })
}

fn dss(segment: &Segment) -> Option<Dss> {
    mptcp(segment).find_map(|option| match option {
        MptcpOption::Dss(dss) => Some(dss),
        _ => None,
    })
}

/// The subflow, whichever side speaks: the client's address.
fn subflow(from: usize, segment: &Segment) -> SocketAddr {
    if from == CLIENT { segment.source } else { segment.destination }
}

//= rfc8684 3.1-02
//= rfc8684 3.1-10
//= rfc8684 3.1-13
//= rfc8684 3.1-14
#[test]
fn both_offer_version_1_with_sha_256_and_no_other_flag_than_that_for_checksums() {
    for checksum in [false, true] {
        let flags = CapableFlags::HMAC_SHA256 | if checksum { CapableFlags::CHECKSUM } else { 0 };
        let mut keys_told = Vec::new();
        for (from, segment) in recorded(checksum) {
            for option in mptcp(&segment) {
                let MptcpOption::Capable(capable) = option else { continue };
                assert_eq!((capable.version, capable.flags), (1, CapableFlags(flags)), "{segment:?}");
                keys_told.push((from, capable.sender_key.is_some(), capable.receiver_key.is_some()));
            }
        }
        assert_eq!(keys_told[..3], [(CLIENT, false, false), (SERVER, true, false), (CLIENT, true, true)]);
    }
}

//= rfc8684 3.1-20
//= rfc8684 3.1-21
#[test]
fn checksums_are_in_each_mapping_of_both_sides_if_either_requires_them() {
    for checksums in [[false, false], [true, false], [false, true], [true, true]] {
        let is_required = checksums.contains(&true);
        let (mut flags, mut mappings) = (Vec::new(), 0);
        for (from, segment) in recorded_with(checksums) {
            for option in mptcp(&segment) {
                match option {
                    MptcpOption::Capable(capable) => {
                        flags.push((from, capable.flags.0 & CapableFlags::CHECKSUM != 0));
                    }
                    MptcpOption::Dss(Dss { mapping: Some(mapping), .. }) => {
                        assert_eq!(mapping.checksum.is_some(), is_required, "{checksums:?}: {segment:?}");
                        mappings += 1;
                    }
                    _ => {}
                }
            }
        }
        let expected = [(CLIENT, checksums[CLIENT]), (SERVER, is_required), (CLIENT, is_required)];
        assert_eq!(flags[..3], expected, "{checksums:?}");
        assert!(mappings > 30, "{mappings}");
    }
}

//= rfc8684 3.1-06
#[test]
fn the_first_ack_of_an_opener_without_data_has_both_keys_and_no_length() {
    let mut world = World::new(61, vec![Link::default()], 1);
    let tape = Tape::default();
    let log = Rc::clone(&tape);
    world.tap = Box::new(move |from, segment| {
        log.borrow_mut().push((from, segment.clone()));
        Fate::Pass
    });
    world.connect();
    world.wait(200);
    let tape = tape.take();
    let ack = tape.iter().find(|(from, segment)| *from == CLIENT && !segment.flags.contains(Flags::SYN));
    let (_, ack) = ack.expect("an ACK");
    let capable = mptcp(ack).find_map(|option| match option {
        MptcpOption::Capable(capable) => Some(capable),
        _ => None,
    });
    let capable = capable.expect("MP_CAPABLE");
    assert!(ack.payload.is_empty() && capable.sender_key.is_some() && capable.receiver_key.is_some());
    assert_eq!((capable.data_length, capable.checksum), (None, None));
}

//= rfc8684 3.2-02
//= rfc8684 3.9.1-01
//= rfc8684 3.9.1-02
#[test]
fn reserved_bits_are_zero_and_joins_go_to_the_port_of_the_first_subflow() {
    let mut joins = 0;
    for (_, segment) in recorded(false) {
        for option in mptcp(&segment) {
            match option {
                MptcpOption::Join(MpJoin::Syn { reserved, .. }) => {
                    assert_eq!((reserved, segment.destination.port()), (0, PORT));
                    joins += 1;
                }
                MptcpOption::Join(MpJoin::SynAck { reserved, .. }) => assert_eq!(reserved, 0),
                _ => {}
            }
        }
    }
    assert!(joins > 0);
}

//= rfc8684 3.3.1-04
#[test]
fn no_segment_has_an_urgent_pointer() {
    for (_, segment) in recorded(false) {
        assert!(!segment.flags.contains(Flags::URG) && segment.urgent == 0, "{segment:?}");
    }
}

/// Sequence numbers on a subflow, from the SYN of their sender on.
fn initial_numbers(tape: &[(usize, Segment)]) -> BTreeMap<(usize, SocketAddr), SeqNum> {
    let syns = tape.iter().filter(|(_, segment)| segment.flags.contains(Flags::SYN));
    syns.map(|(from, segment)| ((*from, subflow(*from, segment)), segment.seq)).collect()
}

//= rfc8684 3.3.1-01
//= rfc8684 3.3.1-10
//= rfc8684 3.3.1-13
#[test]
fn mappings_have_long_numbers_and_cover_their_segment_and_never_change() {
    let tape = recorded(true);
    let initial = initial_numbers(&tape);
    let mut declared: BTreeMap<(usize, SocketAddr, u32), Mapping> = BTreeMap::new();
    for (from, segment) in &tape {
        let Some(mapping) = dss(segment).and_then(|dss| dss.mapping).filter(|mapping| mapping.ssn > 0) else {
            continue;
        };
        assert!(matches!(mapping.dsn, DataSequence::Long(_)), "{mapping:?}");
        let subflow = subflow(*from, segment);
        let start = segment.seq.distance(initial[&(*from, subflow)]).cast_unsigned();
        let end = start + segment.payload.len() as u32;
        let last = mapping.ssn + u32::from(mapping.length);
        assert!(mapping.ssn < end && start < last, "{mapping:?} in {start}..{end}");
        let first = *declared.entry((*from, subflow, mapping.ssn)).or_insert(mapping);
        assert_eq!(first, mapping, "declared as something else before");
    }
    assert!(declared.len() > 30, "{}", declared.len());
}

//= rfc8684 3.7-02
#[test]
fn each_segment_with_data_has_a_mapping_until_a_data_ack_comes() {
    for (from, other) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
        let mut has_mapped = false;
        for (sender, segment) in recorded(false) {
            let has_keys = mptcp(&segment).any(
                |option| matches!(option, MptcpOption::Capable(capable) if capable.data_length.is_some()),
            );
            let dss = dss(&segment);
            if sender == other && has_mapped && dss.is_some_and(|dss| dss.data_ack.is_some()) {
                break;
            }
            if sender == from && !segment.payload.is_empty() {
                has_mapped = true;
                assert!(has_keys || dss.is_some_and(|dss| dss.mapping.is_some()), "{segment:?}");
            }
        }
        assert!(has_mapped);
    }
}

/// Data sequence numbers of one direction, as far as the tape shows them.
fn long(ack: DataAck) -> u64 {
    match ack {
        DataAck::Long(bits) => bits,
        DataAck::Short(_) => panic!("the peer's numbers are long"),
    }
}

//= rfc8684 3.3.3-01
//= rfc8684 3.3.3-02
//= rfc8684 3.3.3-03
//= rfc8684 3.3.3-04
#[test]
fn the_end_of_the_stream_is_acknowledged_before_both_send_a_fin_on_each_subflow() {
    let tape = recorded(false);
    let mut fins = Vec::new();
    for (from, other) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
        let (mut end, mut acked) = (None, 0);
        for (sender, segment) in &tape {
            let dss = dss(segment).unwrap_or_default();
            if *sender == other {
                acked = dss.data_ack.map_or(acked, long).max(acked);
                continue;
            }
            if dss.data_fin {
                let mapping = dss.mapping.expect("a DATA_FIN has a number");
                let DataSequence::Long(dsn) = mapping.dsn else { panic!("{mapping:?}") };
                assert!(segment.payload.is_empty());
                assert_eq!((mapping.ssn, mapping.length), (0, 1));
                assert_eq!(*end.get_or_insert(dsn), dsn, "the end stays where it is");
            }
            if segment.flags.contains(Flags::FIN) {
                assert_eq!(end.map(|dsn| dsn + 1), Some(acked), "all of the stream, its end included");
                fins.push((from, subflow(from, segment)));
            }
        }
    }
    fins.sort();
    fins.dedup();
    assert_eq!(fins.len(), 2 * 2, "both, on two subflows: {fins:?}");
}
