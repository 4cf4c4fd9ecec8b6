//! An attacker on one path: the bytes arrive as they were sent.

mod sealing;
mod world;

use bytes::Bytes;
use core::net::IpAddr;
use plait_base::{Random, SeededRandom};
use plait_handshake::Tep;
use plait_wire::{
    AddAddr, DataAck, DataSequence, Dss, FastClose, Flags, Mapping, MpPrio, MptcpOption, OptionBytes,
    RemoveAddr, Segment, TcpOption, options, pad_options,
};
use sealing::{assert_carried, both_ways, sealed};
use std::cell::RefCell;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, address, pattern};

const RATE: Option<u64> = Some(2_000_000);
const TEP: &[Tep] = &[Tep::TcpcryptCurve25519];

fn two_paths(seed: u64) -> World {
    let link = Link { rate: RATE, ..Link::default() };
    sealed(seed, vec![link.clone(), link], TEP)
}

/// The path that a segment is on.
fn path_of(segment: &Segment) -> u8 {
    let (IpAddr::V4(one), IpAddr::V4(other)) = (segment.source.ip(), segment.destination.ip()) else {
        unreachable!("all tests speak IPv4")
    };
    // The server has one address, on path 0; the client's tells.
    one.octets()[2].max(other.octets()[2])
}

/// A transfer both ways over two paths, with an attacker on `path` that sees each segment once the handshake is over.
fn under_attack(seed: u64, path: u8, mut attack: impl FnMut(&mut Segment) -> Fate + 'static) -> World {
    let mut world = two_paths(seed);
    let (up, down) = (pattern(1_500_000, 1), pattern(1_000_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.wait(200);
    assert_eq!(world.usable(CLIENT), 2);
    world.tap = Box::new(move |_, segment: &mut Segment| {
        if path_of(segment) == path && !segment.flags.contains(Flags::SYN) {
            attack(segment)
        } else {
            Fate::Pass
        }
    });
    world.finish(200);
    assert_carried(&mut world, &up, &down);
    world
}

fn failures(world: &mut World) -> u64 {
    [CLIENT, SERVER].into_iter().map(|side| world.status(side).counters.blocks_failed).sum()
}

/// The subflow that the attacker does not see has lived from the beginning to the end.
fn assert_other_lived(world: &mut World, attacked: u8) {
    let status = world.status(CLIENT);
    let other = status.subflows.iter().filter(|subflow| subflow.path.0 != attacked);
    assert_eq!(other.count(), 1, "{status:?}");
}

fn one_in(random: &mut SeededRandom, n: u64) -> bool {
    random.below(n) == 0
}

#[test]
fn a_flipped_byte_is_found_and_repaired_and_costs_its_path_at_most() {
    for path in [0, 1] {
        for rate in [3, 100] {
            let mut random = SeededRandom::from_number(rate);
            let mut world = under_attack(1, path, move |segment| {
                if !segment.payload.is_empty() && one_in(&mut random, rate) {
                    let mut payload = segment.payload.to_vec();
                    let at = random.below(payload.len() as u64) as usize;
                    payload[at] ^= 1 << random.below(8);
                    segment.payload = payload.into();
                }
                Fate::Pass
            });
            assert!(failures(&mut world) > 0);
            assert_other_lived(&mut world, path);
        }
    }
}

#[test]
fn the_same_flips_go_unnoticed_where_nothing_is_sealed() {
    let link = Link { rate: RATE, ..Link::default() };
    let mut world = World::new(1, vec![link.clone(), link], 1);
    let up = pattern(1_000_000, 1);
    let mut count = 0;
    world.tap = Box::new(move |_, segment: &mut Segment| {
        count += u32::from(!segment.payload.is_empty());
        if count % 100 == 99 && !segment.payload.is_empty() {
            let mut payload = segment.payload.to_vec();
            payload[0] ^= 1;
            segment.payload = payload.into();
        }
        Fate::Pass
    });
    world.send(CLIENT, &up).send(SERVER, b"").connect();
    world.finish(60);
    assert!(world.sides[SERVER].ended && world.sides[SERVER].received != up);
}

#[test]
fn a_subflow_on_which_everything_fails_is_closed_and_its_path_tried_again_later() {
    let mut world = under_attack(2, 1, |segment| {
        if !segment.payload.is_empty() {
            let mut payload = segment.payload.to_vec();
            payload[0] ^= 1;
            segment.payload = payload.into();
        }
        Fate::Pass
    });
    let closed: u64 =
        [CLIENT, SERVER].into_iter().map(|side| world.status(side).counters.attacked_closed).sum();
    assert!(closed > 0);
    assert_other_lived(&mut world, 1);
}

#[test]
fn bytes_that_are_put_into_the_stream_count_for_nothing() {
    let mut random = SeededRandom::from_number(3);
    let mut world = under_attack(3, 1, move |segment| {
        if !segment.payload.is_empty() && one_in(&mut random, 20) {
            // In the place of the segment: the same length, other bytes, no mapping.
            let mut forged = vec![0; segment.payload.len()];
            random.fill(&mut forged);
            segment.payload = forged.into();
            strip(segment);
        }
        Fate::Pass
    });
    assert!(failures(&mut world) > 0);
    assert_other_lived(&mut world, 1);
}

#[test]
fn options_that_are_stripped_after_the_handshake_cost_their_path_at_most() {
    for path in [0, 1] {
        let mut world = under_attack(4, path, |segment| {
            strip(segment);
            Fate::Pass
        });
        assert_other_lived(&mut world, path);
    }
}

#[test]
fn truncated_segments_are_repaired() {
    let mut random = SeededRandom::from_number(5);
    let mut world = under_attack(5, 1, move |segment| {
        if segment.payload.len() > 1 && one_in(&mut random, 10) {
            let keep = random.below(segment.payload.len() as u64) as usize;
            segment.payload.truncate(keep);
        }
        Fate::Pass
    });
    assert_other_lived(&mut world, 1);
}

#[test]
fn mappings_that_are_rewritten_are_found() {
    let mut random = SeededRandom::from_number(6);
    let mut world = under_attack(6, 1, move |segment| {
        let which = random.below(5);
        let by = 1 + random.below(1000);
        if one_in(&mut random, 10) {
            world::segments::rewrite(segment, |option| {
                Some(match option {
                    MptcpOption::Dss(Dss { data_ack, mapping: Some(mapping), data_fin }) => {
                        let DataSequence::Long(dsn) = mapping.dsn else { unreachable!("we send them long") };
                        let shifted = DataSequence::Long(dsn.wrapping_add(by));
                        let mapping = match which {
                            0 => Mapping { dsn: shifted, ..mapping },
                            1 => Mapping { length: mapping.length.wrapping_add(by as u16), ..mapping },
                            2 => Mapping { ssn: mapping.ssn.wrapping_sub(by as u32), ..mapping },
                            3 => Mapping { length: mapping.length / 2, ..mapping },
                            _ => mapping,
                        };
                        MptcpOption::Dss(Dss {
                            data_ack,
                            mapping: Some(mapping),
                            data_fin: data_fin || which == 4,
                        })
                    }
                    other => other,
                })
            });
        }
        Fate::Pass
    });
    assert!(failures(&mut world) > 0);
    assert_other_lived(&mut world, 1);
}

#[test]
fn forged_data_acks_and_ends_and_options_have_no_effect() {
    let mut random = SeededRandom::from_number(7);
    let mut world = under_attack(7, 1, move |segment| {
        if segment.payload.is_empty() && segment.flags == Flags::ACK {
            let dsn = random.next_u64();
            let hmac = Some(random.next_u64().to_be_bytes());
            let forged = match random.below(7) {
                0 => dss(Some(dsn), None, false),
                1 => far_ack(segment),
                2 => dss(
                    None,
                    Some(Mapping { dsn: DataSequence::Long(dsn), ssn: 0, length: 1, checksum: None }),
                    true,
                ),
                3 => MptcpOption::AddAddr(AddAddr {
                    echo: false,
                    address_id: 9,
                    address: address(0, CLIENT),
                    port: None,
                    hmac,
                }),
                4 => MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[0, 1, 2, 3] }),
                5 => MptcpOption::Prio(MpPrio { backup: true }),
                _ => MptcpOption::FastClose(FastClose { receiver_key: dsn.to_be_bytes() }),
            };
            segment.options = timestamps_of(segment);
            let written = TcpOption::Mptcp(forged).emit(&mut segment.options);
            assert!(written);
            pad_options(&mut segment.options);
        }
        Fate::Pass
    });
    assert_other_lived(&mut world, 1);
    for side in [CLIENT, SERVER] {
        let status = world.status(side);
        assert!(status.counters.forged_acks > 0, "{status:?}");
        assert!(status.subflows.iter().all(|subflow| !subflow.backup), "{status:?}");
    }
}

#[test]
fn segments_that_are_played_again_on_both_paths_change_nothing() {
    let mut world = two_paths(8);
    let (up, down) = (pattern(1_500_000, 1), pattern(1_000_000, 2));
    let seen: Rc<RefCell<Vec<(usize, Segment)>>> = Rc::default();
    let tape = seen.clone();
    world.tap = Box::new(move |from, segment: &mut Segment| {
        tape.borrow_mut().push((1 - from, segment.clone()));
        Fate::Pass
    });
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    let mut random = SeededRandom::from_number(8);
    while !world.sides.iter().all(|side| side.ended || side.failed.is_some()) {
        world.wait(20);
        let old: Vec<_> = {
            let tape = seen.borrow();
            (0..10).map(|_| tape[random.below(tape.len() as u64) as usize].clone()).collect()
        };
        for (to, segment) in old {
            if !segment.flags.contains(Flags::SYN) {
                world.deliver(to, &segment);
            }
        }
    }
    assert_carried(&mut world, &up, &down);
}

#[test]
fn resets_and_fins_hurt_only_the_subflow_they_name() {
    for flags in [Flags::RST.with(Flags::ACK), Flags::FIN.with(Flags::ACK)] {
        for to in [CLIENT, SERVER] {
            let mut world = two_paths(9);
            let (up, down) = (pattern(6_000_000, 1), pattern(6_000_000, 2));
            world.send(CLIENT, &up).send(SERVER, &down).connect();
            world.wait(300);
            for _ in 0..1 {
                let forged = forge(&mut world, to, flags);
                world.deliver(to, &forged);
                world.wait(100);
            }
            world.finish(200);
            assert_carried(&mut world, &up, &down);
        }
    }
}

#[test]
fn the_only_subflow_is_replaced_when_a_forged_reset_or_fin_takes_it_away() {
    for flags in [Flags::RST.with(Flags::ACK), Flags::FIN.with(Flags::ACK)] {
        for to in [CLIENT, SERVER] {
            let mut world = sealed(10, vec![Link { rate: RATE, ..Link::default() }], TEP);
            let (up, down) = (pattern(2_000_000, 1), pattern(1_000_000, 2));
            world.send(CLIENT, &up).send(SERVER, &down).connect();
            world.wait(300);
            let forged = forge(&mut world, to, flags);
            world.deliver(to, &forged);
            world.finish(200);
            assert_carried(&mut world, &up, &down);
            assert!(world.status(CLIENT).subflows.len() > 1, "another one has taken its place");
        }
    }
}

#[test]
fn the_only_subflow_repeats_a_block_that_was_changed_while_it_stood_still() {
    for from in [CLIENT, SERVER] {
        let mut world = sealed(10, vec![Link { rate: RATE, ..Link::default() }], TEP);
        let (up, down) = (pattern(2_000_000, 1), pattern(2_000_000, 2));
        world.send(CLIENT, &up).send(SERVER, &down).connect();
        world.wait(300);
        let is_data = move |side: usize, segment: &Segment| side == from && !segment.payload.is_empty();
        world.tap = Box::new(move |side, segment| match is_data(side, segment) {
            true => Fate::Drop,
            false => Fate::Pass,
        });
        world.wait(800);
        let mut is_changed = false;
        world.tap = Box::new(move |side, segment: &mut Segment| {
            // No other subflow can take the block: joins are dropped.
            if segment.flags.contains(Flags::SYN) {
                return Fate::Drop;
            }
            // The first that comes after TCP has timed out.
            if is_data(side, segment) && !is_changed {
                let mut payload = segment.payload.to_vec();
                payload[0] ^= 1;
                segment.payload = payload.into();
                is_changed = true;
            }
            Fate::Pass
        });
        world.finish(30);
        assert_carried(&mut world, &up, &down);
        let repaired = world.status(from).counters;
        assert!(repaired.stalls > 0 && repaired.blocks_repaired > 0, "{repaired:?}");
    }
}

#[test]
fn random_meddling_on_one_path_never_shows_in_the_bytes() {
    for seed in 0..12 {
        let mut random = SeededRandom::from_number(seed);
        let path = (seed % 2) as u8;
        let mut held: Option<Segment> = None;
        let mut world = under_attack(30 + seed, path, move |segment| {
            match random.below(60) {
                0 => strip(segment),
                1 => segment.payload.truncate(segment.payload.len() / 2),
                2 if !segment.payload.is_empty() => {
                    let mut payload = segment.payload.to_vec();
                    let at = random.below(payload.len() as u64) as usize;
                    payload[at] ^= 0x40;
                    segment.payload = payload.into();
                }
                3 => return Fate::Drop,
                4 => core::mem::swap(segment, held.get_or_insert_with(|| segment.clone())),
                5 => segment.options = timestamps_of(segment),
                6 => segment.seq += random.below(3000) as u32,
                7 => segment.window = 0,
                8 => segment.ack += 1,
                _ => held = Some(segment.clone()),
            }
            Fate::Pass
        });
        assert_other_lived(&mut world, path);
    }
}

#[test]
fn an_eavesdropper_sees_nothing_of_the_text() {
    let mut world = two_paths(12);
    let text = b"the quick brown fox jumps over the lazy dog; ".repeat(4000);
    let seen: Rc<RefCell<Vec<u8>>> = Rc::default();
    let tape = seen.clone();
    world.tap = Box::new(move |_, segment: &mut Segment| {
        tape.borrow_mut().extend_from_slice(&segment.payload);
        Fate::Pass
    });
    world.send(CLIENT, &text).send(SERVER, &text).connect();
    world.finish(60);
    assert_carried(&mut world, &text, &text);
    let seen = seen.borrow();
    assert!(seen.len() > 2 * text.len());
    let known: std::collections::BTreeSet<_> = text.windows(8).take(100).collect();
    assert!(!seen.windows(8).any(|run| known.contains(run)));
}

#[test]
fn short_connections_survive_as_long_ones_do() {
    for bytes in [0, 1, 100, 3000] {
        let mut world = two_paths(13);
        both_ways(&mut world, bytes);
        world.assert_clean_end();
    }
}

fn dss(ack: Option<u64>, mapping: Option<Mapping>, data_fin: bool) -> MptcpOption<'static> {
    MptcpOption::Dss(Dss { data_ack: ack.map(DataAck::Long), mapping, data_fin })
}

/// The Data-ACK of the segment with a little added to it.
fn far_ack(segment: &Segment) -> MptcpOption<'static> {
    let ack = options(&segment.options).find_map(|option| match option {
        Ok(TcpOption::Mptcp(MptcpOption::Dss(Dss { data_ack: Some(DataAck::Long(ack)), .. }))) => Some(ack),
        _ => None,
    });
    dss(Some(ack.unwrap_or(0).wrapping_add(2000)), None, false)
}

fn timestamps_of(segment: &Segment) -> OptionBytes {
    let kept = options(&segment.options)
        .filter_map(Result::ok)
        .filter(|option| matches!(option, TcpOption::Timestamps { .. }));
    plait_wire::option_bytes(kept).expect("no longer than before")
}

fn strip(segment: &mut Segment) {
    world::segments::strip(segment);
}

/// A segment for the first subflow of `to`, exactly in place: the attacker has seen everything.
fn forge(world: &mut World, to: usize, flags: Flags) -> Segment {
    let seen: Rc<RefCell<Option<Segment>>> = Rc::default();
    let tape = seen.clone();
    let tap = core::mem::replace(
        &mut world.tap,
        Box::new(move |from, segment: &mut Segment| {
            if from != to && path_of(segment) == 0 {
                let mut next = segment.clone();
                next.seq = segment.seq + segment.payload.len() as u32;
                *tape.borrow_mut() = Some(next);
            }
            Fate::Pass
        }),
    );
    world.wait(30);
    world.tap = tap;
    // What was seen has to arrive first.
    world.links[0].is_black_hole = true;
    world.wait(160);
    world.links[0].is_black_hole = false;
    let seen = seen.borrow_mut().take().expect("something was sent");
    Segment { flags, payload: Bytes::new(), options: timestamps_of(&seen), ..seen }
}
