//! False signals of a peer, or of an attacker on the path: they are counted, and never lead to a wrong byte.

mod joins;
mod messages;
#[path = "../world/mod.rs"]
mod world;

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::Duration;
use plait_mptcp::{Counters, Event, Joins, Negotiated, Path, PlainReason, Refused};
use plait_wire::{
    CapableFlags, DataAck, DataSequence, Dss, FastClose, Flags, Mapping, MpCapable, MpJoin, MpPrio,
    MptcpOption, RemoveAddr, ResetReason, Segment, TcpOption, option_bytes, options,
};
use std::cell::RefCell;
use std::rc::Rc;
use world::segments::rewrite;
use world::{CLIENT, Fate, Link, SERVER, World, path, pattern};

fn connected(seed: u64) -> (World, Rc<RefCell<Vec<Segment>>>) {
    connected_with(seed, |_| {})
}

fn connected_with(seed: u64, change: impl Fn(&mut World)) -> (World, Rc<RefCell<Vec<Segment>>>) {
    let mut world = World::new(seed, vec![Link::default(); 2], 1);
    change(&mut world);
    world.sides.iter_mut().for_each(|side| side.config.joins = Joins::None);
    world.config(|config| config.announce = false);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let tape = Rc::clone(&seen);
    world.tap = Box::new(move |from, segment| {
        if from == CLIENT {
            tape.borrow_mut().push(segment.clone());
        }
        Fate::Pass
    });
    world.sides[CLIENT].outbox.push_back(Bytes::from_static(b"honest "));
    world.connect();
    world.wait(500);
    assert_eq!(world.sides[SERVER].received, b"honest ");
    (world, seen)
}

/// A segment as the client would send it next, with these MPTCP options in place of its own.
fn forged(seen: &Rc<RefCell<Vec<Segment>>>, payload: &[u8], lies: &[MptcpOption<'_>]) -> Segment {
    let seen = seen.borrow();
    let last = seen.last().expect("something was sent");
    let before = last.options.clone();
    let others = options(&before)
        .filter_map(Result::ok)
        .filter(|option| matches!(option, TcpOption::Timestamps { .. }));
    Segment {
        seq: last.seq + last.len_seq(),
        flags: Flags::ACK,
        options: option_bytes(others.chain(lies.iter().cloned().map(TcpOption::Mptcp))).expect("it fits"),
        payload: Bytes::copy_from_slice(payload),
        segment_size: payload.len().max(1) as u16,
        ..last.clone()
    }
}

/// The client's last mapping: where its stream is.
fn last_mapping(seen: &Rc<RefCell<Vec<Segment>>>, initial: u64) -> (u64, u32) {
    let _ = seen;
    (initial + 1 + 7, 8)
}

fn initial_dsn(world: &World) -> u64 {
    // The client's key is the first that its secrets give.
    use plait_base::Random;
    let mut secrets = plait_base::SeededRandom::from_number(world_seed(world) * 4);
    let mut key = [0; 8];
    secrets.fill(&mut key);
    let digest = <sha2::Sha256 as sha2::Digest>::digest(key);
    u64::from_be_bytes(digest[24..].try_into().expect("eight bytes"))
}

fn world_seed(_: &World) -> u64 {
    SEED
}

const SEED: u64 = 77;

fn mapped(dsn: u64, ssn: u32, length: u16) -> MptcpOption<'static> {
    let mapping = Mapping { dsn: DataSequence::Long(dsn), ssn, length, checksum: None };
    MptcpOption::Dss(Dss { data_ack: None, mapping: Some(mapping), data_fin: false })
}

/// Returns the change of the server's counters by the false segment.
fn tell(world: &mut World, segment: &Segment) -> Counters {
    world.deliver(SERVER, segment);
    world.wait(50);
    world.status(SERVER).counters
}

/// The connection still works: the client's honest data arrives.
fn goes_on(world: &mut World, expected: &[u8]) {
    let more = pattern(50_000, 3);
    world.sides[CLIENT].outbox.push_back(Bytes::from(more.clone()));
    world.serve(CLIENT);
    world.wait(5_000);
    let received = &world.sides[SERVER].received;
    assert!(received[..expected.len()] == *expected, "{:?}", &received[..expected.len()]);
    assert!(received[expected.len()..] == more, "{} of {}", received.len(), more.len());
}

#[test]
fn an_acknowledgment_of_what_was_never_sent_frees_nothing() {
    let (mut world, seen) = connected(SEED);
    for data_ack in [DataAck::Long(12345), DataAck::Short(0x7fff_0000)] {
        let dss = Dss { data_ack: Some(data_ack), mapping: None, data_fin: false };
        tell(&mut world, &forged(&seen, b"", &[MptcpOption::Dss(dss)]));
    }
    assert!(world.status(SERVER).counters.forged_acks >= 1);
    goes_on(&mut world, b"honest ");
}

#[test]
fn a_mapping_outside_the_window_delivers_nothing() {
    let (mut world, seen) = connected(SEED);
    let (dsn, ssn) = last_mapping(&seen, initial_dsn(&world));
    let counters = tell(&mut world, &forged(&seen, b"far away", &[mapped(dsn + (1 << 40), ssn, 8)]));
    assert_eq!(counters.bytes_outside, 8);
    let counters = tell(&mut world, &forged(&seen, b"before!!", &[mapped(dsn - 5000, ssn, 8)]));
    assert!(counters.bytes_outside <= 16);
    assert_eq!(world.sides[SERVER].received, b"honest ");
}

#[test]
fn the_first_of_two_mappings_for_the_same_bytes_counts() {
    let (mut world, seen) = connected(SEED);
    let (dsn, ssn) = last_mapping(&seen, initial_dsn(&world));
    let mut ahead = forged(&seen, b"cd", &[mapped(dsn + 2, ssn + 2, 2)]);
    ahead.seq += 2;
    tell(&mut world, &ahead);
    let mut other = forged(&seen, b"cd", &[mapped(dsn + 100, ssn + 2, 2)]);
    other.seq += 2;
    assert_eq!(tell(&mut world, &other).mapping_conflicts, 1);
    tell(&mut world, &forged(&seen, b"ab", &[mapped(dsn, ssn, 2)]));
    assert_eq!(world.sides[SERVER].received, b"honest abcd");
}

//= rfc8684 3.3.1-02
#[test]
fn two_mappings_of_different_bytes_to_the_same_place_deliver_the_first() {
    let (mut world, seen) = connected(SEED);
    let (dsn, ssn) = last_mapping(&seen, initial_dsn(&world));
    tell(&mut world, &forged(&seen, b"cd", &[mapped(dsn + 2, ssn, 2)]));
    let mut second = forged(&seen, b"abXY", &[mapped(dsn, ssn + 2, 4)]);
    second.seq += 2;
    let counters = tell(&mut world, &second);
    assert_eq!((counters.content_conflicts, counters.bytes_duplicate), (1, 2));
    assert_eq!(world.sides[SERVER].received, b"honest abcd");
}

#[test]
fn a_data_fin_before_the_end_of_what_arrived_is_ignored() {
    let (mut world, seen) = connected(SEED);
    let (dsn, _) = last_mapping(&seen, initial_dsn(&world));
    let mapping = Mapping { dsn: DataSequence::Long(dsn - 3), ssn: 0, length: 1, checksum: None };
    let dss = Dss { data_ack: None, mapping: Some(mapping), data_fin: true };
    let counters = tell(&mut world, &forged(&seen, b"", &[MptcpOption::Dss(dss)]));
    assert_eq!(counters.fin_conflicts, 1);
    goes_on(&mut world, b"honest ");
}

//= rfc8684 3.3.1-06
//= rfc8684 3.3.1-07
#[test]
fn data_without_any_mapping_closes_the_subflow_after_a_while() {
    let (mut world, seen) = connected(SEED);
    let unmapped = forged(&seen, b"unmapped", &[]);
    let end = unmapped.seq + unmapped.len_seq();
    let is_acked = Rc::new(RefCell::new(false));
    let log = Rc::clone(&is_acked);
    world.tap = Box::new(move |from, segment| {
        *log.borrow_mut() |= from == SERVER && segment.ack == end;
        Fate::Pass
    });
    let counters = tell(&mut world, &unmapped);
    assert_eq!(counters.stripped, 0, "the mapping may still come");
    assert!(*is_acked.borrow(), "TCP has the bytes");
    world.wait(600);
    assert_eq!(world.status(SERVER).counters.stripped, 1);
    assert_eq!(world.sides[SERVER].received, b"honest ");
}

/// Whether the server has a subflow after a mapping with or without a checksum.
fn survives_mapping(negotiated: bool, checksum: Option<u16>) -> bool {
    let (mut world, seen) = connected_with(SEED, |world| {
        world.config(|config| config.checksum = negotiated);
    });
    let (dsn, ssn) = last_mapping(&seen, initial_dsn(&world));
    let mapping = Mapping { dsn: DataSequence::Long(dsn), ssn, length: 2, checksum };
    let dss = Dss { data_ack: None, mapping: Some(mapping), data_fin: false };
    let resets = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&resets);
    world.tap = Box::new(move |from, segment| {
        if from == SERVER && segment.flags.contains(Flags::RST) {
            log.borrow_mut().push(reset_reason(segment));
        }
        Fate::Pass
    });
    tell(&mut world, &forged(&seen, b"ab", &[MptcpOption::Dss(dss)]));
    match resets.borrow()[..] {
        [] => true,
        [reason] => {
            assert_eq!(reason, Some(ResetReason::Mptcp));
            false
        }
        ref more => panic!("{more:?}"),
    }
}

fn reset_reason(segment: &Segment) -> Option<ResetReason> {
    options(&segment.options).find_map(|option| match option {
        Ok(TcpOption::Mptcp(MptcpOption::Reset(reset))) => Some(reset.reason),
        Ok(_) | Err(_) => None,
    })
}

//= rfc8684 3.3-02
//= rfc8684 3.3-03
//= rfc8684 3.3-04
#[test]
fn a_checksum_that_is_missing_or_was_not_agreed_on_ends_the_subflow() {
    assert!(survives_mapping(false, None));
    assert!(!survives_mapping(false, Some(0x1234)), "not negotiated");
    assert!(!survives_mapping(true, None), "missing");
}

/// A middlebox takes the checksum out of the first mapping, or adds one. With data at once, the mapping is part of MP_CAPABLE.
//= rfc8684 3.3-02
//= rfc8684 3.3-03
//= rfc8684 3.3-04
#[test]
fn bytes_of_a_first_mapping_that_is_refused_are_not_delivered_as_plain_tcp() {
    for (negotiated, data_at_once) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = World::new(SEED, vec![Link::default()], 1);
        world.config(|config| config.checksum = negotiated);
        let other = move |checksum: Option<u16>| if negotiated { None } else { checksum.or(Some(0x1234)) };
        let resets = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&resets);
        world.tap = Box::new(move |from, segment| {
            if from == SERVER && segment.flags.contains(Flags::RST) {
                log.borrow_mut().push(reset_reason(segment));
            }
            if from == CLIENT && !segment.payload.is_empty() {
                rewrite(segment, |option| {
                    Some(match option {
                        MptcpOption::Capable(capable) => {
                            MptcpOption::Capable(MpCapable { checksum: other(capable.checksum), ..capable })
                        }
                        MptcpOption::Dss(dss) => {
                            let change =
                                |mapping: Mapping| Mapping { checksum: other(mapping.checksum), ..mapping };
                            MptcpOption::Dss(Dss { mapping: dss.mapping.map(change), ..dss })
                        }
                        option => option,
                    })
                });
            }
            Fate::Pass
        });
        if data_at_once {
            world.send(CLIENT, b"refused");
        }
        world.connect();
        world.wait(100);
        world.send(CLIENT, b"refused");
        world.serve(CLIENT);
        world.wait(100);
        let case = (negotiated, data_at_once);
        assert_eq!(world.sides[SERVER].received, b"", "{case:?}");
        assert_eq!(world.status(SERVER).counters.stripped, 0, "{case:?}");
        assert_eq!(resets.borrow().first(), Some(&Some(ResetReason::Mptcp)), "{case:?}");
    }
}

//= rfc8684 3-03
//= rfc8684 3.4.1-01
//= rfc8684 3.4.2-05
#[test]
fn options_of_a_segment_outside_the_window_do_not_count() {
    let (mut world, seen) = connected(SEED);
    let prio = MptcpOption::Prio(MpPrio { backup: true });
    let dss = Dss { data_ack: Some(DataAck::Long(12345)), mapping: None, data_fin: false };
    let add = plait_wire::AddAddr {
        echo: false,
        address_id: 9,
        address: "198.51.100.1".parse().expect("an address"),
        port: None,
        hmac: Some([7; 8]),
    };
    let remove = RemoveAddr { address_ids: &[0] };
    for option in [prio, MptcpOption::Dss(dss), MptcpOption::AddAddr(add), MptcpOption::RemoveAddr(remove)] {
        for (seq, ack) in [(1 << 30, 0), (0, 1 << 30)] {
            let mut outside = forged(&seen, b"", std::slice::from_ref(&option));
            (outside.seq, outside.ack) = (outside.seq + seq, outside.ack + ack);
            let before = world.status(SERVER).counters;
            let after = tell(&mut world, &outside);
            assert_eq!(
                Counters { segments_refused: before.segments_refused + 1, ..before },
                after,
                "{option:?}"
            );
        }
    }
    assert!(world.status(SERVER).subflows.iter().all(|subflow| !subflow.backup));
    goes_on(&mut world, b"honest ");
}

//= rfc8684 3.4.1-06
#[test]
fn an_announcement_with_a_wrong_hmac_is_neither_kept_nor_echoed() {
    let (mut world, seen) = connected(SEED);
    world.sides[SERVER].config.passive_joins = Joins::OnePerPath;
    let add = plait_wire::AddAddr {
        echo: false,
        address_id: 9,
        address: "198.51.100.1".parse().expect("an address"),
        port: None,
        hmac: Some([7; 8]),
    };
    let sent = seen.borrow().len();
    let counters = tell(&mut world, &forged(&seen, b"", &[MptcpOption::AddAddr(add)]));
    assert_eq!(counters.bad_address_hmacs, 1);
    assert_eq!(seen.borrow().len(), sent, "nothing to answer");
    goes_on(&mut world, b"honest ");
}

#[test]
fn a_withdrawal_of_the_last_working_address_is_ignored() {
    let (mut world, seen) = connected(SEED);
    let remove = RemoveAddr { address_ids: &[0, 1, 2, 200] };
    let counters = tell(&mut world, &forged(&seen, b"", &[MptcpOption::RemoveAddr(remove)]));
    assert_eq!(counters.removals_ignored, 1);
    goes_on(&mut world, b"honest ");
}

#[test]
fn a_fast_close_with_a_wrong_key_closes_nothing() {
    let (mut world, seen) = connected(SEED);
    let close = MptcpOption::FastClose(FastClose { receiver_key: [0; 8] });
    let counters = tell(&mut world, &forged(&seen, b"", &[close]));
    assert_eq!(counters.bad_fast_closes, 1);
    goes_on(&mut world, b"honest ");
}

//= rfc8684 3.1-02
//= rfc8684 3.1-11
//= rfc8684 3.1-15
//= rfc8684 3.1-23
#[test]
fn versions_and_flags_that_do_not_exist_give_plain_tcp_and_a_higher_version_gives_ours() {
    let cases: [(u8, u8, bool); 6] = [
        (0, 0x01, false),
        (2, 0x01, true),
        (15, 0x01, true),
        (1, 0x01 | CapableFlags::EXTENSIBILITY, false),
        (1, 0x00, false),
        (1, 0x03, false),
    ];
    for (version, flags, is_multipath) in cases {
        let mut world = World::new(6, vec![Link::default()], 1);
        world.tap = Box::new(move |from, segment| {
            if from == CLIENT && segment.flags.contains(Flags::SYN) {
                rewrite(segment, |option| match option {
                    MptcpOption::Capable(mut capable) => {
                        (capable.version, capable.flags) = (version, CapableFlags(flags));
                        Some(MptcpOption::Capable(capable))
                    }
                    other => Some(other),
                });
            }
            Fate::Pass
        });
        world.send(CLIENT, b"hello").send(SERVER, b"world").connect();
        world.finish(10);
        assert_eq!(world.sides[SERVER].received, b"hello");
        let expected = if is_multipath {
            Negotiated::Multipath { version: 1, checksum: false }
        } else {
            Negotiated::Plain(PlainReason::Unsupported)
        };
        assert_eq!(world.status(SERVER).negotiated, expected, "version {version}, flags {flags:#x}");
        let expected = if is_multipath { expected } else { Negotiated::Plain(PlainReason::NotInSynAck) };
        assert_eq!(world.status(CLIENT).negotiated, expected, "version {version}, flags {flags:#x}");
    }
}

#[test]
fn a_third_acknowledgment_with_the_right_keys_and_another_version_or_flags_gives_plain_tcp() {
    for (version, flags) in [(0, 0x01), (2, 0x01), (1, 0x00), (1, 0x01 | CapableFlags::EXTENSIBILITY)] {
        let mut world = World::new(6, vec![Link::default()], 1);
        world.tap = Box::new(move |from, segment| {
            if from == CLIENT && !segment.flags.contains(Flags::SYN) {
                rewrite(segment, |option| match option {
                    MptcpOption::Capable(mut capable) => {
                        (capable.version, capable.flags) = (version, CapableFlags(flags));
                        Some(MptcpOption::Capable(capable))
                    }
                    other => Some(other),
                });
            }
            Fate::Pass
        });
        world.send(CLIENT, b"hello").send(SERVER, b"world").connect();
        world.finish(10);
        let case = format!("version {version}, flags {flags:#x}");
        assert_eq!(world.sides[SERVER].received, b"hello", "{case}");
        assert_eq!(world.sides[CLIENT].received, b"world", "{case}");
        assert_eq!(world.status(SERVER).negotiated, Negotiated::Plain(PlainReason::Unsupported), "{case}");
    }
}

#[test]
fn an_end_that_was_moved_on_the_way_does_not_outlast_the_true_one() {
    let mut world = World::new(3, vec![Link::default(); 2], 2);
    let mut moved = false;
    world.tap = Box::new(move |from, segment| {
        let is_end = from == SERVER
            && options(&segment.options).any(|option| {
                matches!(option, Ok(TcpOption::Mptcp(MptcpOption::Dss(Dss { data_fin: true, .. }))))
            });
        if is_end && !core::mem::replace(&mut moved, true) {
            // DSS: kind, length, subtype, flags, Data-ACK and DSN of 8 bytes each. Four bytes further.
            let start = segment.options.iter().position(|&byte| byte == 30).expect("DSS");
            let place = &mut segment.options[start + 12..start + 20];
            let dsn = u64::from_be_bytes(place.try_into().expect("eight bytes"));
            place.copy_from_slice(&dsn.wrapping_add(4).to_be_bytes());
        }
        Fate::Pass
    });
    let data = pattern(50_000, 3);
    world.send(CLIENT, &data).send(SERVER, &data).connect();
    world.finish(10);
    for side in [CLIENT, SERVER] {
        assert!(world.sides[side].received == data && world.sides[side].ended);
    }
}

#[test]
fn random_options_on_random_segments_never_panic_and_never_deliver_a_wrong_byte() {
    use plait_base::Random;
    for seed in 0..60 {
        let mut world = World::new(100 + seed, vec![Link::default(); 2], 2);
        let mut random = plait_base::SeededRandom::from_number(seed);
        world.tap = Box::new(move |_, segment| {
            if random.chance(0.02) && !segment.flags.contains(Flags::SYN) {
                // One bit anywhere in an MPTCP option. (In a timestamp it would stop TCP, rightly.)
                let start = segment.options.iter().position(|&byte| byte == 30);
                let at = start.map(|start| start + random.below(24) as usize);
                if let Some(byte) = at.and_then(|at| segment.options.get_mut(at)) {
                    *byte ^= 1 << random.below(8);
                }
            }
            Fate::Pass
        });
        world.config(|config| config.checksum = true);
        let data = pattern(150_000, seed);
        world.send(CLIENT, &data).send(SERVER, &data).connect();
        world.run(Duration::from_secs(300), |world| {
            let done = |side: &world::Side| side.ended || side.failed.is_some();
            world.sides.iter().all(done)
        });
        for side in [CLIENT, SERVER] {
            let received = &world.sides[side].received;
            assert!(data.starts_with(received), "seed {seed}, side {side}");
            let is_told = world.sides[side].ended
                || world.sides[side].events.iter().any(|event| matches!(event, Event::Closed(_)));
            assert!(is_told, "seed {seed}, side {side}: {} bytes and silence", received.len());
        }
    }
}
