//! Options that are stripped on the path, payloads that are altered, and SYNs that are dropped.

mod world;

use bytes::Bytes;
use plait_base::Duration;
use plait_mptcp::{ConnectionError, Event, Fallback, Negotiated, PlainReason};
use plait_wire::{DataAck, DataSequence, Dss, Flags, MptcpOption, ResetReason, Segment, TcpOption};
use world::segments::{has_mptcp, strip};
use world::{CLIENT, Fate, Link, SERVER, World, address, pattern};

fn one_path(seed: u64) -> World {
    World::new(seed, vec![Link::default()], 1)
}

fn is_syn(segment: &Segment) -> bool {
    segment.flags.contains(Flags::SYN)
}

/// Checks that both directions arrive. Returns the protocol that each side reports.
fn transfer(world: &mut World) -> [Negotiated; 2] {
    let (up, down) = (pattern(300_000, 1), pattern(200_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.finish(60);
    assert!(world.sides[SERVER].received == up, "{} up", world.sides[SERVER].received.len());
    assert!(world.sides[CLIENT].received == down, "{} down", world.sides[CLIENT].received.len());
    world.assert_clean_end();
    [world.status(CLIENT).negotiated, world.status(SERVER).negotiated]
}

//= rfc8684 3.1-25
//= rfc8684 3.7-01
#[test]
fn a_stripped_syn_gives_plain_tcp() {
    let mut world = one_path(1);
    world.tap = Box::new(|from, segment| {
        if from == CLIENT && is_syn(segment) {
            strip(segment);
        }
        Fate::Pass
    });
    let plain = [PlainReason::NotInSynAck, PlainReason::PeerPlain];
    assert_eq!(transfer(&mut world), plain.map(Negotiated::Plain));
}

//= rfc8684 3.1-24
//= rfc8684 3.7-01
//= rfc8684 6-01
#[test]
fn a_stripped_syn_ack_gives_plain_tcp() {
    let mut world = one_path(2);
    world.tap = Box::new(|from, segment| {
        if from == SERVER && is_syn(segment) {
            strip(segment);
        }
        Fate::Pass
    });
    let plain = [PlainReason::NotInSynAck, PlainReason::NotInAck];
    assert_eq!(transfer(&mut world), plain.map(Negotiated::Plain));
}

//= rfc8684 3.1-07
//= rfc8684 3.1-26
//= rfc8684 3.1-27
//= rfc8684 3.7-04
//= rfc8684 6-01
#[test]
fn options_stripped_from_everything_but_syns_give_plain_tcp() {
    let mut world = one_path(3);
    world.tap = Box::new(|_, segment| {
        if !is_syn(segment) {
            strip(segment);
        }
        Fate::Pass
    });
    let plain = [PlainReason::NoDss, PlainReason::NotInAck];
    assert_eq!(transfer(&mut world), plain.map(Negotiated::Plain));
}

//= rfc8684 3.1-07
//= rfc8684 3.7-15
#[test]
fn after_a_fallback_there_are_no_options_and_no_further_subflows() {
    let mut world = World::new(14, vec![Link::default(); 2], 1);
    world.tap = Box::new(|from, segment| {
        if from == CLIENT && !is_syn(segment) {
            strip(segment);
        }
        Fate::Pass
    });
    world.sides[CLIENT].outbox.push_back(Bytes::from(pattern(50_000, 1)));
    world.connect();
    world.wait(1_000);
    for side in [CLIENT, SERVER] {
        assert!(matches!(world.status(side).negotiated, Negotiated::Plain(_)));
    }
    world.tap = Box::new(|_, segment| {
        assert!(!has_mptcp(segment), "{segment:?}");
        Fate::Pass
    });
    world.change_path(CLIENT, world::path(1, CLIENT));
    world.send(CLIENT, &pattern(50_000, 2)).send(SERVER, &pattern(50_000, 3));
    [CLIENT, SERVER].into_iter().for_each(|side| world.serve(side));
    world.finish(60);
    assert_eq!([world.sides[CLIENT].received.len(), world.sides[SERVER].received.len()], [50_000, 100_000]);
    world.assert_clean_end();
}

#[test]
fn options_stripped_from_data_only_give_plain_tcp() {
    for side in [CLIENT, SERVER] {
        let mut world = one_path(4);
        world.tap = Box::new(move |from, segment| {
            if from == side && !segment.payload.is_empty() {
                strip(segment);
            }
            Fate::Pass
        });
        let negotiated = transfer(&mut world);
        assert!(
            negotiated.iter().all(|negotiated| matches!(negotiated, Negotiated::Plain(_))),
            "{side}: {negotiated:?}"
        );
    }
}

#[test]
fn options_stripped_in_one_direction_only_give_plain_tcp() {
    for side in [CLIENT, SERVER] {
        let mut world = one_path(5);
        world.tap = Box::new(move |from, segment| {
            if from == side && !is_syn(segment) {
                strip(segment);
            }
            Fate::Pass
        });
        let negotiated = transfer(&mut world);
        assert!(
            negotiated.iter().all(|negotiated| matches!(negotiated, Negotiated::Plain(_))),
            "{side}: {negotiated:?}"
        );
    }
}

//= rfc8684 3.7-05
//= rfc8684 3.7-06
#[test]
fn options_that_vanish_later_end_the_subflow_and_never_give_wrong_bytes() {
    let mut world = World::new(6, vec![Link { rate: Some(2_000_000), ..Link::default() }; 2], 1);
    let start = world.now + Duration::from_millis(500);
    let data = pattern(3_000_000, 1);
    world.send(CLIENT, &data).send(SERVER, b"x").connect();
    world.wait(500);
    assert!(world.now >= start);
    let resets = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let log = std::rc::Rc::clone(&resets);
    world.tap = Box::new(move |from, segment| {
        let on_first = [segment.source.ip(), segment.destination.ip()].contains(&address(0, CLIENT));
        if on_first && segment.flags.contains(Flags::RST) {
            log.borrow_mut().push((from, reset_reason(segment)));
        }
        if on_first && !is_syn(segment) {
            strip(segment);
        }
        Fate::Pass
    });
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
    assert!(world.status(SERVER).counters.stripped > 0);
    assert_eq!(resets.borrow().first(), Some(&(SERVER, Some(ResetReason::MiddleboxInterference))));
}

//= rfc8684 3.9.3-01
#[test]
fn syns_that_are_swallowed_for_their_option_are_sent_without() {
    let mut world = one_path(7);
    world.tap = Box::new(|from, segment| {
        if from == CLIENT && is_syn(segment) && has_mptcp(segment) { Fate::Drop } else { Fate::Pass }
    });
    let plain = [PlainReason::SynDropped, PlainReason::PeerPlain];
    assert_eq!(transfer(&mut world), plain.map(Negotiated::Plain));
}

#[test]
fn where_plain_tcp_is_refused_the_connection_fails_and_says_why() {
    for side in [CLIENT, SERVER] {
        let mut world = one_path(8);
        world.sides[side].config.fallback = Fallback::Refuse;
        world.sides[1 - side].config.multipath = false;
        world.send(CLIENT, b"secret").connect();
        world.wait(2_000);
        let event = Event::Closed(Some(ConnectionError::PlainRefused));
        assert!(world.sides[side].events.contains(&event), "{:?}", world.sides[side].events);
        assert!(world.sides[SERVER].received.is_empty());
    }
}

#[test]
fn a_lost_third_ack_and_lost_first_data_only_delay() {
    for lost in 1..6 {
        for from_side in [CLIENT, SERVER] {
            let mut world = one_path(9);
            let mut seen = 0;
            world.tap = Box::new(move |from, segment| {
                if from == from_side && !is_syn(segment) {
                    seen += 1;
                    if seen <= lost {
                        return Fate::Drop;
                    }
                }
                Fate::Pass
            });
            let multipath = Negotiated::Multipath { version: 1, checksum: false };
            assert_eq!(transfer(&mut world), [multipath; 2], "{lost} lost from {from_side}");
        }
    }
}

/// Flips one byte of the payload, as an application-level gateway does; TCP's checksum is made to fit.
fn corrupt(segment: &mut Segment) {
    let mut payload = segment.payload.to_vec();
    payload[0] ^= 0x20;
    segment.payload = Bytes::from(payload);
}

/// Changes the payload so that the checksum stays right.
fn swap_words(segment: &mut Segment) {
    let mut payload = segment.payload.to_vec();
    let (first, second) = payload.split_at_mut(2);
    first.swap_with_slice(&mut second[..2]);
    segment.payload = Bytes::from(payload);
}

/// The data sequence number in an MP_FAIL.
fn mp_fail(segment: &Segment) -> Option<u64> {
    mptcp(segment).find_map(|option| match option {
        MptcpOption::Fail(fail) => Some(fail.dsn),
        _ => None,
    })
}

fn has_mp_fail(segment: &Segment) -> bool {
    mp_fail(segment).is_some()
}

fn dss(segment: &Segment) -> Dss {
    let found = mptcp(segment).find_map(|option| match option {
        MptcpOption::Dss(dss) => Some(dss),
        _ => None,
    });
    found.unwrap_or_default()
}

fn reset_reason(segment: &Segment) -> Option<ResetReason> {
    mptcp(segment).find_map(|option| match option {
        MptcpOption::Reset(reset) => Some(reset.reason),
        _ => None,
    })
}

fn mptcp(segment: &Segment) -> impl Iterator<Item = MptcpOption<'_>> {
    plait_wire::options(&segment.options).filter_map(|option| match option {
        Ok(TcpOption::Mptcp(option)) => Some(option),
        Ok(_) | Err(_) => None,
    })
}

//= rfc8684 3.7-07
//= rfc8684 3.7-08
//= rfc8684 3.7-11
#[test]
fn a_changed_byte_on_one_of_two_subflows_closes_that_one_and_nothing_is_wrong() {
    let mut world = World::new(10, vec![Link { rate: Some(2_000_000), ..Link::default() }; 2], 1);
    world.config(|config| config.checksum = true);
    let mut left = 1;
    let mut after = 400;
    let said = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let log = std::rc::Rc::clone(&said);
    // What follows on the subflow is changed in a way that no checksum detects.
    let behind = std::rc::Rc::new(std::cell::Cell::new(0));
    let swapped = std::rc::Rc::clone(&behind);
    // The data sequence number that failed, until the client sends it again.
    let mut failed = None;
    world.tap = Box::new(move |from, segment| {
        if from == SERVER && has_mp_fail(segment) {
            log.borrow_mut().push((segment.flags.contains(Flags::RST), segment.destination.ip()));
            failed = mp_fail(segment);
        }
        if let (SERVER, Some(failed), Some(DataAck::Long(acked))) = (from, failed, dss(segment).data_ack) {
            assert!(acked <= failed, "the failed data is acknowledged");
        }
        if let (CLIENT, Some(start)) = (from, failed)
            && segment.source.ip() == address(0, CLIENT)
            && let Some(mapping) = dss(segment).mapping
            && mapping.dsn == DataSequence::Long(start)
        {
            failed = None;
        }
        if from == CLIENT && segment.source.ip() == address(1, CLIENT) && segment.payload.len() > 1000 {
            after -= 1;
            if after < 0 && left > 0 {
                left -= 1;
                corrupt(segment);
            } else if left == 0 {
                swap_words(segment);
                swapped.set(swapped.get() + 1);
            }
        }
        Fate::Pass
    });
    let data = pattern(4_000_000, 1);
    world.send(CLIENT, &data).send(SERVER, b"x").connect();
    world.finish(60);
    assert_eq!(world.status(SERVER).counters.checksum_failures, 1);
    assert_eq!(*said.borrow(), [(true, address(1, CLIENT))], "a reset with MP_FAIL");
    assert!(behind.get() > 1, "{}", behind.get());
    assert!(world.sides[SERVER].received == data);
    assert!(matches!(world.status(SERVER).negotiated, Negotiated::Multipath { .. }));
}

/// The only subflow, whose bytes are no contiguous part of the stream: they follow those of another one.
//= rfc8684 3.7-10
#[test]
fn a_changed_byte_on_a_single_subflow_that_is_not_the_first_resets_it_and_a_new_one_carries_mappings() {
    let mut world = World::new(15, vec![Link { rate: Some(2_000_000), ..Link::default() }; 2], 1);
    world.config(|config| config.checksum = true);
    let data = pattern(6_000_000, 1);
    world.send(CLIENT, &data).send(SERVER, b"x").connect();
    world.wait(500);
    world.change_path(CLIENT, plait_mptcp::Path { up: false, ..world::path(0, CLIENT) });
    world.wait(500);
    assert_eq!(world.usable(SERVER), 1);
    let said = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let log = std::rc::Rc::clone(&said);
    let mut left = 1;
    world.tap = Box::new(move |from, segment| {
        if from == SERVER && segment.flags.contains(Flags::RST) {
            log.borrow_mut().push(has_mp_fail(segment));
        }
        if from == CLIENT && segment.payload.len() > 1000 && left > 0 {
            left -= 1;
            corrupt(segment);
        }
        let infinite = dss(segment).mapping.filter(|mapping| mapping.length == 0);
        assert_eq!(infinite, None, "no infinite mapping");
        Fate::Pass
    });
    world.finish(60);
    assert_eq!(said.borrow().first(), Some(&true), "a reset with MP_FAIL");
    assert!(world.sides[SERVER].received == data, "and nothing wrong is delivered");
    assert!(matches!(world.status(SERVER).negotiated, Negotiated::Multipath { checksum: true, .. }));
}

//= rfc8684 3.7-13
#[test]
fn after_a_fallback_a_data_ack_frees_nothing() {
    let mut world = World::new(16, vec![Link { rate: Some(2_000_000), ..Link::default() }], 1);
    world.config(|config| config.checksum = true);
    let start = std::rc::Rc::new(std::cell::Cell::new(None));
    let last = std::rc::Rc::new(std::cell::RefCell::new(None));
    let (first, log) = (start.clone(), last.clone());
    let mut segments = 0;
    world.tap = Box::new(move |from, segment| {
        if let (CLIENT, None, Some(mapping)) = (from, first.get(), dss(segment).mapping)
            && let DataSequence::Long(dsn) = mapping.dsn
        {
            first.set(Some(dsn - u64::from(mapping.ssn)));
        }
        if from == SERVER && segment.payload.is_empty() && !is_syn(segment) {
            *log.borrow_mut() = Some(segment.clone());
        }
        segments += usize::from(from == CLIENT && segment.payload.len() > 1000);
        if from == CLIENT && segments == 40 {
            segments += 1;
            corrupt(segment);
        }
        Fate::Pass
    });
    let data = pattern(3_000_000, 1);
    world.send(CLIENT, &data).send(SERVER, b"x").connect();
    world.wait(600);
    assert!(matches!(world.status(CLIENT).negotiated, Negotiated::Plain(_)));
    let delivered = world.status(CLIENT).bytes_delivered;
    assert!((100_000..2_000_000).contains(&delivered), "{delivered}");
    // A Data-ACK for everything, on a subflow acknowledgment that was seen before.
    let mut lie = last.borrow().clone().expect("an acknowledgment");
    let dss = Dss {
        data_ack: Some(DataAck::Long(start.get().expect("a mapping") + delivered + 50_000)),
        ..Dss::default()
    };
    let before = lie.options.clone();
    let others = plait_wire::options(&before).filter_map(Result::ok);
    let others = others.filter(|option| matches!(option, TcpOption::Timestamps { .. }));
    lie.options =
        plait_wire::option_bytes(others.chain([TcpOption::Mptcp(MptcpOption::Dss(dss))])).expect("it fits");
    world.deliver(CLIENT, &lie);
    let after = world.status(CLIENT).bytes_delivered;
    assert!(after - delivered < 50_000, "{after}, {delivered} before");
    // Everything on the way is lost. Only its sender has it.
    let mut lost = 30;
    world.tap = Box::new(move |from, segment| {
        let is_lost = from == CLIENT && !segment.payload.is_empty() && lost > 0;
        lost -= i32::from(is_lost);
        if is_lost { Fate::Drop } else { Fate::Pass }
    });
    world.finish(60);
    let wrong = data.iter().zip(&world.sides[SERVER].received).filter(|(a, b)| a != b).count();
    assert_eq!((world.sides[SERVER].received.len(), wrong), (data.len(), 1));
}

#[test]
fn a_changed_byte_on_the_only_subflow_gives_plain_tcp_on_both_sides() {
    let mut world = one_path(11);
    world.config(|config| config.checksum = true);
    let mut segments = 0;
    world.tap = Box::new(move |from, segment| {
        if from == CLIENT && segment.payload.len() > 1000 {
            segments += 1;
            if segments == 40 {
                corrupt(segment);
            }
        }
        Fate::Pass
    });
    let (up, down) = (pattern(600_000, 1), pattern(400_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.finish(60);
    let wrong = up.iter().zip(&world.sides[SERVER].received).filter(|(a, b)| a != b).count();
    assert_eq!((world.sides[SERVER].received.len(), wrong), (up.len(), 1), "TCP delivers what it got");
    assert!(world.sides[CLIENT].received == down);
    world.assert_clean_end();
    let plain = [PlainReason::PeerFellBack, PlainReason::ChecksumFailed].map(Negotiated::Plain);
    assert_eq!([CLIENT, SERVER].map(|side| world.status(side).negotiated), plain);
}

#[test]
fn a_changed_byte_is_an_error_where_plain_tcp_is_refused() {
    let mut world = one_path(12);
    world.config(|config| (config.checksum, config.fallback) = (true, Fallback::Refuse));
    let mut segments = 0;
    world.tap = Box::new(move |from, segment| {
        if from == CLIENT && segment.payload.len() > 1000 {
            segments += 1;
            if segments == 40 {
                corrupt(segment);
            }
        }
        Fate::Pass
    });
    let data = pattern(600_000, 1);
    world.send(CLIENT, &data).connect();
    world.wait(5_000);
    assert_eq!(world.sides[SERVER].failed, Some(ConnectionError::Corrupted));
    assert!(data.starts_with(&world.sides[SERVER].received), "nothing wrong was delivered");
}

//= rfc8684 3.7-09
//= rfc8684 3.7-14
#[test]
fn after_mp_fail_data_is_acknowledged_until_the_infinite_mapping_comes() {
    let mut world = one_path(13);
    world.config(|config| config.checksum = true);
    let mut segments = 0;
    let acks = std::rc::Rc::new(std::cell::RefCell::new((0u32, 0u32)));
    let seen = std::rc::Rc::clone(&acks);
    let mut has_failed = false;
    let answered = std::rc::Rc::new(std::cell::RefCell::new(false));
    let answer = std::rc::Rc::clone(&answered);
    world.tap = Box::new(move |from, segment| {
        if from == CLIENT && segment.payload.len() > 1000 {
            segments += 1;
            if segments == 20 {
                corrupt(segment);
            }
        }
        *answer.borrow_mut() |= from == CLIENT && has_failed && has_mp_fail(segment);
        if from == SERVER {
            has_failed |= has_mp_fail(segment);
            let is_ack = mptcp(segment).any(|option| matches!(option, MptcpOption::Dss(_)));
            let mut seen = seen.borrow_mut();
            *(if is_ack { &mut seen.0 } else { &mut seen.1 }) += u32::from(has_failed);
        }
        Fate::Pass
    });
    world.send(CLIENT, &pattern(900_000, 1)).send(SERVER, b"x").connect();
    world.finish(60);
    let (with, without) = *acks.borrow();
    assert!(with > 0, "what was under way with mappings is acknowledged");
    assert!(without > 20, "{with} with, {without} without: it ends");
    assert!(*answered.borrow(), "MP_FAIL is answered by MP_FAIL");
    world.assert_clean_end();
}
