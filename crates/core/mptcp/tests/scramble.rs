//! Scrambled connections: the negotiation, the bytes on the wire, and the end if a fallback would be needed.

mod world;

use plait_base::Duration;
use plait_mptcp::{
    Config, ConnectionError, Fallback, Negotiated, Protect, Scheduler, ScrambleSettings, ScrambleStart,
    TrustedPaths, Unscrambled,
};
use plait_protect::scramble::Descrambler;
use plait_wire::{CapableFlags, MpCapable, MptcpOption, TcpOption, options};
use std::cell::RefCell;
use std::rc::Rc;
use world::segments::{has_mptcp, rewrite, strip};
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

const SCRAMBLED: Negotiated = Negotiated::Multipath { version: 2, checksum: false };

fn scramble(config: &mut Config) {
    config.protect = Protect::Scramble(ScrambleSettings::default());
}

fn scramble_or_not(config: &mut Config) {
    let settings = ScrambleSettings { unscrambled: Fallback::Allow, ..ScrambleSettings::default() };
    config.protect = Protect::Scramble(settings);
}

fn scrambled_world(seed: u64, links: Vec<Link>) -> World {
    let mut world = World::new(seed, links, 1);
    world.config(scramble);
    world
}

fn both_ways(world: &mut World, bytes: usize) {
    let (up, down) = (pattern(bytes, 1), pattern(bytes / 2, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.finish(120);
    assert!(world.sides[SERVER].received == up, "{} of {}", world.sides[SERVER].received.len(), up.len());
    assert!(world.sides[CLIENT].received == down, "{} of {}", world.sides[CLIENT].received.len(), down.len());
}

fn bad() -> Link {
    Link { loss: 0.02, duplicate: 0.01, reorder: 0.05, ..Link::default() }
}

#[test]
fn both_directions_arrive_as_they_were_and_the_status_says_how() {
    let mut world = scrambled_world(1, vec![Link::default(); 2]);
    both_ways(&mut world, 1_000_000);
    for side in [CLIENT, SERVER] {
        let status = world.status(side);
        assert_eq!(status.negotiated, SCRAMBLED);
        let scrambling = status.scrambling.expect("it is scrambled");
        assert_eq!((scrambling.start, scrambling.degraded), (ScrambleStart::Key8, 0));
        assert_eq!(status.subflows.len(), 2);
    }
    world.assert_clean_end();
    assert_eq!(world.status(CLIENT).bytes_delivered, 1_000_000);
}

#[test]
fn loss_disorder_and_duplicates_change_nothing() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Redundant] {
        for seed in 1..5 {
            let slow = Link { delay: Duration::from_millis(40), ..bad() };
            let mut world = scrambled_world(seed, vec![bad(), slow]);
            world.config(|config| config.scheduler = scheduler);
            world.sides[SERVER].config.checksum = seed % 2 == 0;
            both_ways(&mut world, 400_000);
            world.assert_clean_end();
        }
    }
}

#[test]
fn a_path_lost_in_the_middle_costs_no_byte() {
    for dead in [0, 1] {
        let link = Link { rate: Some(2_000_000), ..Link::default() };
        let mut world = scrambled_world(3, vec![link.clone(), link]);
        let data = pattern(4_000_000, 9);
        world.send(CLIENT, &data).send(SERVER, b"hello").connect();
        world.wait(600);
        world.links[dead].is_black_hole = true;
        world.finish(60);
        assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
        assert_eq!(world.sides[CLIENT].received, b"hello");
        world.assert_clean_end();
    }
}

/// The handshake as protocol.md has it: forms, version, flag.
//= rfc8684 3.1-01
#[test]
fn the_handshake_is_that_of_version_2_with_flag_d() {
    let seen: Rc<RefCell<Vec<(usize, MpCapable)>>> = Rc::default();
    let log = seen.clone();
    let mut world = scrambled_world(4, vec![Link::default()]);
    world.tap = Box::new(move |from, segment| {
        for option in options(&segment.options) {
            if let Ok(TcpOption::Mptcp(MptcpOption::Capable(capable))) = option {
                log.borrow_mut().push((from, capable));
            }
        }
        Fate::Pass
    });
    both_ways(&mut world, 10_000);
    let seen = seen.borrow();
    let lengths = |capable: &MpCapable| match (capable.sender_key, capable.receiver_key, capable.data_length)
    {
        (None, None, None) => 4,
        (Some(_), None, None) => 12,
        (Some(_), Some(_), None) => 20,
        (Some(_), Some(_), Some(_)) => 22,
        _ => 0,
    };
    let forms: Vec<_> = seen.iter().map(|(from, capable)| (*from, lengths(capable))).collect();
    assert_eq!(forms, [(CLIENT, 4), (SERVER, 12), (CLIENT, 20), (CLIENT, 22)]);
    for (_, capable) in seen.iter() {
        assert_eq!(capable.version, 2);
        assert_eq!(capable.flags, CapableFlags(CapableFlags::HMAC_SHA256 | CapableFlags::SCRAMBLE));
    }
}

/// What crosses the wire is what `protect` makes of the stream, with the key that the SYN/ACK carries, and no eight
/// bytes of the stream in a row are on it.
#[test]
fn the_wire_carries_the_scrambled_stream_and_nothing_of_the_plain_one() {
    let plain = b"All work and no play makes Jack a dull boy. ".repeat(200);
    for start in [ScrambleStart::Key8, ScrambleStart::HmacSha1] {
        let (wire, key) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(None)));
        let (wire_log, key_log) = (wire.clone(), key.clone());
        let mut world = scrambled_world(5, vec![Link::default()]);
        world.config(|config| {
            config.protect = Protect::Scramble(ScrambleSettings { start, ..ScrambleSettings::default() });
        });
        world.tap = Box::new(move |from, segment| {
            if from == SERVER {
                wire_log.borrow_mut().extend_from_slice(&segment.payload);
                for option in options(&segment.options) {
                    if let Ok(TcpOption::Mptcp(MptcpOption::Capable(capable))) = option {
                        *key_log.borrow_mut() = capable.sender_key;
                    }
                }
            }
            Fate::Pass
        });
        world.send(SERVER, &plain).send(CLIENT, b"").connect();
        world.finish(60);
        assert_eq!(world.sides[CLIENT].received, plain);
        let mut wire = wire.borrow().clone();
        assert_eq!(wire.len(), plain.len(), "nothing was lost, nothing sent twice");
        let shows =
            |wire: &[u8]| wire.windows(8).any(|run| plain.windows(8).take(44).any(|text| text == run));
        assert!(!shows(&wire));
        let key = key.borrow().expect("the SYN/ACK has a key");
        Descrambler::new(start, key).descramble(&mut wire);
        assert!(wire == plain);
        assert!(shows(&wire), "what is looked for can be found");
    }
}

#[test]
fn bytes_written_before_the_peer_has_answered_are_scrambled_too() {
    let mut world = scrambled_world(6, vec![Link::default()]);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    world.tap = Box::new(move |_, segment| {
        log.borrow_mut().extend_from_slice(&segment.payload);
        Fate::Pass
    });
    // World::send queues before World::connect, which writes at once.
    world.send(CLIENT, b"written while the SYN is under way").send(SERVER, b"").connect();
    world.finish(60);
    assert_eq!(world.sides[SERVER].received, b"written while the SYN is under way");
    assert_ne!(*seen.borrow(), b"written while the SYN is under way");
}

/// Only what the send buffer takes moves the scrambler on.
#[test]
fn a_write_that_is_cut_off_leaves_no_trace() {
    let mut world = scrambled_world(7, vec![Link { rate: Some(1_000_000), ..Link::default() }]);
    world.config(|config| config.send_buffer = 10_000);
    both_ways(&mut world, 300_000);
    world.assert_clean_end();
}

#[test]
fn a_peer_of_version_1_is_an_error_unless_that_is_allowed() {
    for is_allowed in [false, true] {
        let mut world = World::new(8, vec![Link::default(); 2], 1);
        world.sides[CLIENT].config.protect = Protect::Scramble(ScrambleSettings::default());
        if is_allowed {
            scramble_or_not(&mut world.sides[CLIENT].config);
            both_ways(&mut world, 100_000);
            let regular = Negotiated::Multipath { version: 1, checksum: false };
            assert_eq!([CLIENT, SERVER].map(|side| world.status(side).negotiated), [regular; 2]);
            assert_eq!(world.status(CLIENT).scrambling, None);
            assert_eq!(
                world.status(CLIENT).subflows.len(),
                2,
                "regular Multipath TCP in the same round trip"
            );
            world.assert_clean_end();
        } else {
            world.send(CLIENT, b"secret").connect();
            world.finish(60);
            let error = ConnectionError::NotScrambled(Unscrambled::Multipath);
            assert_eq!(world.sides[CLIENT].failed, Some(error));
            assert_eq!(world.links[0].carried, [0, 0], "before one byte of data");
        }
    }
}

#[test]
fn a_peer_of_plain_tcp_is_an_error_unless_that_is_allowed() {
    for is_allowed in [false, true] {
        let mut world = World::new(9, vec![Link::default()], 1);
        world.sides[SERVER].config.multipath = false;
        scramble(&mut world.sides[CLIENT].config);
        if is_allowed {
            scramble_or_not(&mut world.sides[CLIENT].config);
            both_ways(&mut world, 100_000);
            assert!(matches!(world.status(CLIENT).negotiated, Negotiated::Plain(_)));
        } else {
            world.send(CLIENT, b"secret").connect();
            world.finish(60);
            let error = ConnectionError::NotScrambled(Unscrambled::Plain);
            assert_eq!(world.sides[CLIENT].failed, Some(error));
            assert_eq!(world.links[0].carried, [0, 0]);
        }
    }
}

#[test]
fn a_listener_that_requires_scrambling_refuses_openers_without_unless_configured() {
    for multipath in [true, false] {
        let mut world = World::new(10, vec![Link::default()], 1);
        world.sides[CLIENT].config.multipath = multipath;
        scramble(&mut world.sides[SERVER].config);
        world.send(CLIENT, b"hello").send(SERVER, b"secret").connect();
        world.finish(60);
        let answer = if multipath { Unscrambled::Multipath } else { Unscrambled::Plain };
        assert_eq!(world.sides[SERVER].failed, Some(ConnectionError::NotScrambled(answer)));
        assert!(world.sides[CLIENT].failed.is_some());
        assert_eq!(world.links[0].carried, [0, 0]);

        let mut world = World::new(10, vec![Link::default()], 1);
        world.sides[CLIENT].config.multipath = multipath;
        scramble_or_not(&mut world.sides[SERVER].config);
        both_ways(&mut world, 50_000);
        assert_eq!(world.status(SERVER).scrambling, None);
    }
}

#[test]
fn options_stripped_from_any_part_of_the_handshake_end_it_with_an_error() {
    // Whose segments lose their options: the SYN and all else, the SYN/ACK and all else, all but SYNs.
    let cases: [fn(usize, bool) -> bool; 4] =
        [|from, _| from == CLIENT, |from, _| from == SERVER, |_, is_syn| !is_syn, |_, _| true];
    for strips in cases {
        let mut world = scrambled_world(11, vec![Link::default()]);
        world.tap = Box::new(move |from, segment| {
            if strips(from, segment.flags.contains(plait_wire::Flags::SYN)) {
                strip(segment);
            }
            Fate::Pass
        });
        world.send(CLIENT, b"first data").send(SERVER, b"an answer").connect();
        world.finish(100);
        for side in [CLIENT, SERVER] {
            let side = &world.sides[side];
            assert!(side.received.is_empty(), "{:?}", side.received);
            assert!(!side.ended);
            assert!(side.connection.is_none() || side.failed.is_some());
        }
        let error = world.sides[CLIENT].failed;
        // The side that sees the difference reports it. The other side gets a refusal, or a reset.
        let is_clear = matches!(
            error,
            Some(ConnectionError::NotScrambled(_) | ConnectionError::Refused | ConnectionError::Reset)
        );
        assert!(is_clear, "{error:?}");
    }
}

/// Where regular Multipath TCP leaves MP_CAPABLE out of its SYN, a scrambled connection has nothing to gain.
#[test]
fn no_syn_ever_goes_without_the_option() {
    let mut world = scrambled_world(12, vec![Link::default()]);
    let plain_syns = Rc::new(RefCell::new(0));
    let count = plain_syns.clone();
    world.tap = Box::new(move |_, segment| {
        if !has_mptcp(segment) {
            *count.borrow_mut() += 1;
            return Fate::Pass;
        }
        Fate::Drop
    });
    world.send(CLIENT, b"hello").connect();
    world.finish(300);
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::TimedOut));
    assert_eq!(*plain_syns.borrow(), 0);
}

/// An infinite mapping or a broken checksum makes regular Multipath TCP go on in TCP; here it is the end.
#[test]
fn there_is_no_way_back_to_tcp_in_mid_stream() {
    let mut world = scrambled_world(13, vec![Link { rate: Some(1_000_000), ..Link::default() }]);
    world.config(|config| config.checksum = true);
    world.tap = Box::new(move |from, segment| {
        if from == CLIENT && segment.payload.len() > 1000 && !segment.payload.is_empty() {
            let mut bytes = segment.payload.to_vec();
            bytes[500] ^= 1;
            segment.payload = bytes.into();
        }
        Fate::Pass
    });
    world.send(CLIENT, &pattern(1_000_000, 3)).connect();
    world.finish(60);
    assert_eq!(world.sides[SERVER].failed, Some(ConnectionError::Corrupted));
    assert!(world.sides[CLIENT].failed.is_some());
    assert!(world.sides[SERVER].received.is_empty());

    let mut world = scrambled_world(14, vec![Link { rate: Some(1_000_000), ..Link::default() }]);
    let mut count = 0;
    world.tap = Box::new(move |from, segment| {
        count += usize::from(from == CLIENT && segment.payload.len() > 1000);
        if from == CLIENT && count == 40 {
            rewrite(segment, |option| match option {
                MptcpOption::Dss(mut dss) => {
                    if let Some(mapping) = &mut dss.mapping {
                        mapping.length = 0;
                    }
                    Some(MptcpOption::Dss(dss))
                }
                other => Some(other),
            });
        }
        Fate::Pass
    });
    let data = pattern(1_000_000, 3);
    world.send(CLIENT, &data).connect();
    world.finish(60);
    let error = ConnectionError::NotScrambled(Unscrambled::Stripped);
    assert_eq!(world.sides[SERVER].failed, Some(error));
    let received = &world.sides[SERVER].received;
    assert!(!received.is_empty() && data.starts_with(received), "what came before was right");
}

/// Nothing on the wire tells the start values apart: both sides are configured alike, or read noise to the end.
/// The error has a period of 65 bytes and does not die out.
#[test]
fn different_start_values_make_noise_of_everything() {
    let mut world = scrambled_world(15, vec![Link::default()]);
    world.sides[SERVER].config.protect =
        Protect::Scramble(ScrambleSettings { start: ScrambleStart::HmacSha1, ..ScrambleSettings::default() });
    let data = pattern(20_000, 4);
    world.send(CLIENT, &data).send(SERVER, b"").connect();
    world.finish(60);
    let received = &world.sides[SERVER].received;
    assert_eq!(received.len(), data.len());
    assert!(world.sides[SERVER].ended, "the connection itself knows nothing of it");
    let error: Vec<u8> = received.iter().zip(&data).map(|(wrong, right)| wrong ^ right).collect();
    assert_eq!(error[..65], error[19_500..19_565]);
    assert!(error[..65].iter().filter(|&&byte| byte != 0).count() > 10);
}

/// Kato's forgery: one byte of the text is in 65 bytes of the wire.
#[test]
fn a_byte_that_was_changed_on_the_way_goes_unnoticed() {
    let mut world = scrambled_world(16, vec![Link::default()]);
    world.tap = Box::new(move |from, segment| {
        if from == CLIENT && segment.payload.len() > 200 {
            let mut bytes = segment.payload.to_vec();
            bytes[10..75].iter_mut().for_each(|byte| *byte ^= b'1' ^ b'9');
            segment.payload = bytes.into();
        }
        Fate::Pass
    });
    let text = format!("pay them {:<300}", "Z10 and not a penny more");
    world.send(CLIENT, text.as_bytes()).send(SERVER, b"").connect();
    world.finish(60);
    assert!(world.sides[SERVER].received.starts_with(b"pay them Z90 and not a penny more"));
    assert_eq!(world.status(SERVER).counters.content_conflicts, 0);
}

#[test]
fn the_status_tells_the_trusted_paths() {
    let mut world = scrambled_world(17, vec![Link::default()]);
    world.send(CLIENT, &pattern(100_000, 1)).connect();
    world.wait(25);
    let scrambling = world.status(CLIENT).scrambling.expect("agreed");
    assert_eq!((scrambling.trusted, scrambling.stalled), (TrustedPaths::Work, false));
}
