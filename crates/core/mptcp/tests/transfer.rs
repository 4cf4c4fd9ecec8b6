//! Transfers: each byte arrives once and in order, whatever happens on the paths.

mod world;

use bytes::Bytes;
use plait_base::Duration;
use plait_mptcp::{Negotiated, PlainReason, Scheduler};
use world::{CLIENT, Link, SERVER, World, pattern};

const MULTIPATH: Negotiated = Negotiated::Multipath { version: 1, checksum: false };

fn both_ways(world: &mut World, bytes: usize) -> Duration {
    let (up, down) = (pattern(bytes, 1), pattern(bytes / 2, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    let time = world.finish(120);
    assert!(world.sides[SERVER].received == up, "{} of {}", world.sides[SERVER].received.len(), up.len());
    assert!(world.sides[CLIENT].received == down, "{} of {}", world.sides[CLIENT].received.len(), down.len());
    time
}

#[test]
fn one_subflow_carries_both_directions_and_closes_cleanly() {
    let mut world = World::new(1, vec![Link::default()], 1);
    both_ways(&mut world, 1_000_000);
    assert_eq!(world.status(CLIENT).negotiated, MULTIPATH);
    assert_eq!(world.status(SERVER).negotiated, MULTIPATH);
    world.assert_clean_end();
    assert_eq!(world.status(CLIENT).bytes_delivered, 1_000_000);
}

#[test]
fn plain_tcp_carries_both_directions_and_closes_cleanly() {
    for side in [CLIENT, SERVER] {
        let mut world = World::new(1, vec![Link::default()], 1);
        world.sides[side].config.multipath = false;
        both_ways(&mut world, 1_000_000);
        let reasons = match side {
            CLIENT => [PlainReason::NotOffered, PlainReason::PeerPlain],
            _ => [PlainReason::NotInSynAck, PlainReason::NotOffered],
        };
        for (side, reason) in [CLIENT, SERVER].into_iter().zip(reasons) {
            assert_eq!(world.status(side).negotiated, Negotiated::Plain(reason));
        }
        world.assert_clean_end();
        assert_eq!(world.status(CLIENT).bytes_delivered, 1_000_000);
    }
}

//= rfc8684 3.2-03
#[test]
fn two_paths_are_joined_and_both_carry() {
    let rate = Some(2_000_000);
    let links = vec![Link { rate, ..Link::default() }, Link { rate, ..Link::default() }];
    let one = both_ways(&mut World::new(2, links[..1].to_vec(), 1), 4_000_000);
    let mut world = World::new(2, links, 1);
    let two = both_ways(&mut world, 4_000_000);
    let carried: Vec<_> = world.links.iter().map(|link| link.carried[CLIENT]).collect();
    assert!(carried.iter().all(|&bytes| bytes > 1_200_000), "{carried:?}");
    assert!(one.as_secs_f64() / two.as_secs_f64() > 1.6, "{one:?} on one path, {two:?} on two");
    world.assert_clean_end();
}

#[test]
fn nothing_is_lost_when_segments_are() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Redundant] {
        for seed in 1..6 {
            let bad = Link { loss: 0.02, duplicate: 0.01, reorder: 0.05, ..Link::default() };
            let slow = Link { delay: Duration::from_millis(40), ..bad.clone() };
            let mut world = World::new(seed, vec![bad, slow], 2);
            world.config(|config| config.scheduler = scheduler);
            both_ways(&mut world, 400_000);
            world.assert_clean_end();
        }
    }
}

//= rfc8684 3.1-20
//= rfc8684 3.1-21
#[test]
fn checksums_go_with_every_mapping() {
    let bad = Link { loss: 0.02, duplicate: 0.01, reorder: 0.05, ..Link::default() };
    let mut world = World::new(5, vec![bad.clone(), bad], 1);
    world.sides[SERVER].config.checksum = true;
    both_ways(&mut world, 400_000);
    for side in [CLIENT, SERVER] {
        let negotiated = world.status(side).negotiated;
        assert_eq!(negotiated, Negotiated::Multipath { version: 1, checksum: true });
        assert_eq!(world.status(side).counters.checksum_failures, 0);
    }
    world.assert_clean_end();
}

/// The Linux kernel does this when its reader is slow to be run: TCP acknowledges, the Data-ACK stays behind, and nothing
/// follows once the bytes have been moved up.
//= rfc8684 4-01
#[test]
fn a_sender_without_a_data_ack_asks_for_it() {
    use std::{cell::Cell, rc::Rc};
    let mut world = World::new(8, vec![Link::default()], 1);
    world.sides[SERVER].config.receive_buffer = 60_000;
    let is_stale = Rc::new(Cell::new(true));
    let (told, mut first) = (is_stale.clone(), None);
    world.tap = Box::new(move |from, segment| {
        world::segments::rewrite(segment, |option| match option {
            plait_wire::MptcpOption::Dss(mut dss) if from == SERVER && told.get() => {
                dss.data_ack = dss.data_ack.map(|ack| *first.get_or_insert(ack));
                Some(plait_wire::MptcpOption::Dss(dss))
            }
            other => Some(other),
        });
        world::Fate::Pass
    });
    let up = pattern(500_000, 1);
    world.send(CLIENT, &up).send(SERVER, b"").connect();
    world.wait(400);
    let subflow = world.status(CLIENT).subflows[0].tcp;
    assert_eq!(subflow.in_flight, 0, "TCP is content: {subflow:?}");
    assert!(world.status(CLIENT).bytes_delivered < 10_000, "and the window is used up");
    is_stale.set(false);
    world.finish(10);
    assert!(world.sides[SERVER].received == up);
}

/// 200 Mbit/s and 100 ms: ten times the initial buffer of a connection is in flight.
fn long_path() -> Link {
    Link { rate: Some(25_000_000), delay: Duration::from_millis(50), queue: 5 << 20, ..Link::default() }
}

#[test]
fn a_fast_long_path_is_filled() {
    let mut world = World::new(8, vec![long_path()], 1);
    let data = pattern(50_000_000, 1);
    world.send(CLIENT, &data).send(SERVER, b"x").connect();
    let time = world.finish(60);
    assert!(world.sides[SERVER].received == data);
    assert!(time < Duration::from_secs(4), "two seconds and slow start: {time:?}");
}

#[test]
fn after_a_minute_of_silence_a_fast_long_path_is_filled_as_fast() {
    let [at_once, after_silence] = [100, 60_000].map(|silence| {
        let mut world = World::new(8, vec![Link { delay: Duration::from_millis(100), ..long_path() }], 1);
        world.send(SERVER, b"x").connect();
        world.sides[CLIENT].outbox.push_back(Bytes::from_static(b"a request"));
        world.serve(CLIENT);
        world.wait(silence);
        let data = pattern(20_000_000, 1);
        world.send(CLIENT, &data).serve(CLIENT);
        let time = world.finish(60);
        assert_eq!(world.sides[SERVER].received.len(), data.len() + 9);
        time
    });
    assert!(after_silence < at_once * 11 / 10, "{after_silence:?}, {at_once:?} without silence");
}

#[test]
fn a_peer_without_a_reader_gets_only_the_initial_buffer() {
    const INITIAL: u64 = 384 << 10;
    // A window field counts in units of 512 bytes, and is rounded up once.
    const MOST: u64 = INITIAL + 512;
    let mut world = World::new(9, vec![long_path()], 1);
    world.sides[SERVER].is_paused = true;
    world.send(CLIENT, &pattern(4_000_000, 1)).send(SERVER, b"x").connect();
    world.wait(60_000);
    let arrived = world.status(CLIENT).bytes_delivered;
    assert!((INITIAL / 2..=MOST).contains(&arrived), "{arrived}");
    world.sides[SERVER].is_paused = false;
    world.serve(SERVER);
    world.finish(60);
    assert_eq!(world.sides[SERVER].received.len(), 4_000_000);
}

#[test]
fn coupled_controllers_share_and_use_both_paths() {
    for congestion in [plait_tcp::congestion::Algorithm::Lia, plait_tcp::congestion::Algorithm::Olia] {
        let link = Link { rate: Some(2_000_000), ..Link::default() };
        let mut world = World::new(6, vec![link.clone(), link], 1);
        world.config(|config| config.tcp.congestion = congestion);
        both_ways(&mut world, 6_000_000);
        let carried: Vec<_> = world.links.iter().map(|link| link.carried[CLIENT]).collect();
        assert!(carried.iter().all(|&bytes| bytes > 1_200_000), "{congestion:?}: {carried:?}");
        world.assert_clean_end();
    }
}

//= rfc8684 3.3.1-09
//= rfc8684 3.3.1-11
#[test]
fn a_peer_with_short_numbers_and_a_data_fin_on_its_last_data_is_understood() {
    use plait_wire::{DataSequence, MptcpOption};
    let mut world = World::new(7, vec![Link::default()], 1);
    let length = 100_000u64;
    world.tap = Box::new(move |from, segment| {
        world::segments::rewrite(segment, |option| match option {
            MptcpOption::Dss(mut dss) if from == CLIENT => {
                if let Some(mapping) = &mut dss.mapping {
                    if let DataSequence::Long(dsn) = mapping.dsn {
                        mapping.dsn = DataSequence::Short(dsn as u32);
                    }
                    // The last mapping ends the stream; the DATA_FIN alone never arrives.
                    let is_last = u64::from(mapping.ssn) + u64::from(mapping.length) == length + 1;
                    if dss.data_fin {
                        (dss.mapping, dss.data_fin) = (None, false);
                    } else if is_last {
                        mapping.length += 1;
                        dss.data_fin = true;
                    }
                }
                Some(MptcpOption::Dss(dss))
            }
            other => Some(other),
        });
        world::Fate::Pass
    });
    both_ways(&mut world, length as usize);
    assert_eq!(world.status(SERVER).negotiated, MULTIPATH);
    world.assert_clean_end();
}

#[test]
fn small_writes_share_segments_and_none_waits_for_ever() {
    for no_delay in [true, false] {
        let mut world = World::new(8, vec![Link::default(); 2], 1);
        world.config(|config| config.tcp.no_delay = no_delay);
        world.connect();
        world.wait(200);
        let before = segments_sent(&mut world);
        for number in 0..1000u32 {
            let piece = Bytes::copy_from_slice(&number.to_be_bytes());
            world.sides[CLIENT].outbox.push_back(piece);
        }
        world.serve(CLIENT);
        world.wait(500);
        let expected: Vec<u8> = (0..1000u32).flat_map(u32::to_be_bytes).collect();
        assert!(world.sides[SERVER].received == expected, "{}", world.sides[SERVER].received.len());
        assert!(segments_sent(&mut world) - before < 20, "no_delay {no_delay}");
    }
}

fn segments_sent(world: &mut World) -> u64 {
    world.status(CLIENT).subflows.iter().map(|subflow| subflow.tcp.segments_sent).sum()
}

/// RFC 8684, section 3.3.2: eight bytes have to be answered by eight. What is sent before any number of the peer is known has eight, too.
//= rfc8684 3.3.2-01
//= rfc8684 3.3.2-02
#[test]
fn a_data_ack_is_as_long_as_the_numbers_that_it_answers() {
    use plait_wire::{DataAck, DataSequence, MptcpOption};
    for is_short in [false, true] {
        let mut world = World::new(9, vec![Link::default()], 1);
        let lengths = std::rc::Rc::new(core::cell::RefCell::new([0usize; 2]));
        let (seen, mut has_mapped) = (lengths.clone(), false);
        world.tap = Box::new(move |from, segment| {
            world::segments::rewrite(segment, |option| match option {
                MptcpOption::Dss(mut dss) if from == CLIENT => {
                    if let Some(mapping) = &mut dss.mapping {
                        has_mapped = true;
                        if let (DataSequence::Long(dsn), true) = (mapping.dsn, is_short) {
                            mapping.dsn = DataSequence::Short(dsn as u32);
                        }
                    }
                    Some(MptcpOption::Dss(dss))
                }
                MptcpOption::Dss(dss) => {
                    let is_counted = from == SERVER && has_mapped;
                    match dss.data_ack {
                        Some(DataAck::Short(_)) if is_counted => seen.borrow_mut()[0] += 1,
                        Some(DataAck::Long(_)) if is_counted => seen.borrow_mut()[1] += 1,
                        Some(_) | None => {}
                    }
                    Some(option)
                }
                other => Some(other),
            });
            world::Fate::Pass
        });
        world.send(CLIENT, &pattern(100_000, 1)).connect();
        world.wait(1_000);
        let [short, long] = *lengths.borrow();
        // What left before the first mapping arrived counts among them.
        assert!(if is_short { short > 20 && long < 20 } else { short == 0 && long > 20 }, "{short}, {long}");
        assert_eq!(world.status(CLIENT).bytes_delivered, 100_000, "either is understood");
    }
}

/// A SYN/ACK cannot say more than 65,535 bytes. The update has the first Data-ACK: the opener learns that options get through before
/// it has said anything, and opens its second subflow.
//= rfc8684 3.1-08
#[test]
fn a_listener_tells_its_window_once_if_it_is_larger_than_a_syn_can_say() {
    for (buffer, updates, subflows) in [(None, 1, 2), (Some(60_000), 0, 1)] {
        let mut world = World::new(10, vec![Link::default(); 2], 1);
        world.config(|config| {
            config.announce = false;
            config.receive_buffer = buffer.unwrap_or(config.receive_buffer);
        });
        let count = std::rc::Rc::new(core::cell::Cell::new(0));
        let seen = count.clone();
        world.tap = Box::new(move |from, segment| {
            let is_first = segment.destination.ip() == world::address(0, CLIENT);
            let is_syn = segment.flags.contains(plait_wire::Flags::SYN);
            seen.set(seen.get() + usize::from(from == SERVER && is_first && !is_syn));
            world::Fate::Pass
        });
        world.connect();
        world.wait(1_000);
        assert_eq!((count.get(), world.usable(CLIENT)), (updates, subflows), "{buffer:?}");
    }
}

//= rfc8684 3.3.2-05
#[test]
fn a_peer_that_sends_a_data_ack_only_when_it_advances_is_understood() {
    use plait_wire::{DataAck, MptcpOption};
    let mut world = World::new(11, vec![Link::default()], 1);
    let counts = std::rc::Rc::new(core::cell::RefCell::new([0usize; 2]));
    let (seen, mut last) = (counts.clone(), [None; 2]);
    world.tap = Box::new(move |from, segment| {
        world::segments::rewrite(segment, |option| match option {
            MptcpOption::Dss(mut dss) => {
                let mut is_new = |ack: DataAck| last[from].replace(ack) != Some(ack);
                dss.data_ack = dss.data_ack.filter(|&ack| is_new(ack));
                seen.borrow_mut()[usize::from(dss.data_ack.is_some())] += 1;
                (dss != plait_wire::Dss::default()).then_some(MptcpOption::Dss(dss))
            }
            other => Some(other),
        });
        world::Fate::Pass
    });
    both_ways(&mut world, 300_000);
    let [without, with] = *counts.borrow();
    assert!(without > 0 && with > 0, "{without} without, {with} with");
    assert_eq!(world.status(CLIENT).negotiated, MULTIPATH);
    world.assert_clean_end();
}

//= rfc8684 3.3.1-05
#[test]
fn urgent_data_is_delivered_in_its_place_in_the_stream() {
    let mut world = World::new(12, vec![Link::default(); 2], 1);
    let count = std::rc::Rc::new(core::cell::Cell::new(0));
    let seen = count.clone();
    world.tap = Box::new(move |_, segment| {
        if !segment.payload.is_empty() {
            segment.flags = segment.flags.with(plait_wire::Flags::URG);
            segment.urgent = segment.payload.len().min(10) as u16;
            seen.set(seen.get() + 1);
        }
        world::Fate::Pass
    });
    both_ways(&mut world, 300_000);
    assert!(count.get() > 100, "{}", count.get());
    assert_eq!(world.status(SERVER).negotiated, MULTIPATH);
    world.assert_clean_end();
}
