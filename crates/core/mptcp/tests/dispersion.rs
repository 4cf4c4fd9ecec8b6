//! The bytes that each path carries: first data, retransmissions, reinjections, and their number in a row.
//!
//! An observer on the wire of each path knows nothing of the connections: it takes the mappings that the segments
//! carry and writes down which bytes of the stream went by, every time they did.

mod world;

use core::num::NonZeroU16;
use plait_base::{Duration, Random, SeededRandom};
use plait_mptcp::{
    Config, ConnectionError, Path, PathClass, Protect, Scheduler, ScrambleSettings, TrustedPaths,
    WithoutTrusted,
};
use plait_wire::{DataSequence, MptcpOption, Segment, TcpOption, options};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use world::segments::has_mptcp;
use world::{CLIENT, Fate, Link, SERVER, World, path, pattern};

/// Offsets in the stream (the first byte has 0) that were seen, by path and sender.
#[derive(Default)]
struct Seen {
    /// Sequence number of the first byte of each direction of each subflow, and mappings on it.
    subflows: BTreeMap<(usize, u8), Direction>,
    initial: [Option<u64>; 2],
    bytes: BTreeMap<(usize, u8), BTreeSet<u64>>,
}

#[derive(Default)]
struct Direction {
    syn: u32,
    /// Relative sequence number, data sequence number, length.
    mappings: Vec<(u32, u64, u16)>,
}

impl Seen {
    fn take(&mut self, from: usize, segment: &Segment) {
        let client = if from == CLIENT { segment.source.ip() } else { segment.destination.ip() };
        let IpAddr::V4(client) = client else { unreachable!("all tests speak IPv4") };
        let place = (from, client.octets()[2]);
        let direction = self.subflows.entry(place).or_default();
        if segment.flags.contains(plait_wire::Flags::SYN) {
            *direction = Direction { syn: segment.seq.bits(), mappings: Vec::new() };
        }
        let relative = segment.seq.bits().wrapping_sub(direction.syn);
        for option in options(&segment.options) {
            match option {
                Ok(TcpOption::Mptcp(MptcpOption::Dss(dss))) => {
                    if let Some(mapping) = dss.mapping.filter(|mapping| mapping.length > 0 && mapping.ssn > 0)
                    {
                        let DataSequence::Long(dsn) = mapping.dsn else {
                            unreachable!("plait sends 8 bytes")
                        };
                        direction.mappings.push((mapping.ssn, dsn, mapping.length));
                    }
                }
                Ok(TcpOption::Mptcp(MptcpOption::Capable(capable))) => {
                    if let Some(key) = capable.sender_key {
                        let digest = <sha2::Sha256 as sha2::Digest>::digest(key);
                        let last = digest[24..].try_into().expect("eight bytes");
                        self.initial[from] = Some(u64::from_be_bytes(last));
                    }
                    if let (Some(length), Some(initial)) = (capable.data_length, self.initial[from]) {
                        direction.mappings.push((1, initial.wrapping_add(1), length));
                    }
                }
                _ => {}
            }
        }
        let Some(initial) = self.initial[from] else { return };
        let bytes = self.bytes.entry(place).or_default();
        let mut mapping: Option<(u32, u64, u16)> = None;
        for at in 0..segment.payload.len() as u32 {
            let ssn = relative.wrapping_add(at);
            let covers = |&(start, _, length): &(u32, u64, u16)| ssn.wrapping_sub(start) < u32::from(length);
            if !mapping.as_ref().is_some_and(covers) {
                mapping = direction.mappings.iter().rev().copied().find(covers);
            }
            let (start, dsn, _) = mapping.expect("data is mapped");
            bytes.insert(dsn.wrapping_add(u64::from(ssn - start)).wrapping_sub(initial.wrapping_add(1)));
        }
    }

    fn of(&self, from: usize, path: u8) -> BTreeSet<u64> {
        self.bytes.get(&(from, path)).cloned().unwrap_or_default()
    }

    /// Longest row of bytes on a path; a gap of fewer than 64 bytes does not end one.
    fn longest_row(&self, from: usize, path: u8) -> u64 {
        let (mut longest, mut row) = (0, None::<(u64, u64)>);
        for byte in self.of(from, path) {
            row = match row {
                Some((start, last)) if byte - last <= 64 => Some((start, byte)),
                Some(_) | None => Some((byte, byte)),
            };
            longest = longest.max(row.map_or(0, |(start, last)| last - start + 1));
        }
        longest
    }
}

fn watch(world: &mut World) -> Rc<RefCell<Seen>> {
    let seen: Rc<RefCell<Seen>> = Rc::default();
    let log = seen.clone();
    world.tap = Box::new(move |from, segment| {
        log.borrow_mut().take(from, segment);
        Fate::Pass
    });
    seen
}

fn classed(number: usize, side: usize, class: PathClass) -> Path {
    Path { class, ..path(number, side) }
}

fn settings(config: &mut Config, change: impl Fn(&mut ScrambleSettings)) {
    let mut settings = ScrambleSettings::default();
    change(&mut settings);
    config.protect = Protect::Scramble(settings);
}

/// A scrambled world whose client trusts path 0 only.
fn half_trusted(seed: u64, links: Vec<Link>, change: impl Fn(&mut ScrambleSettings)) -> World {
    let mut world = World::new(seed, links, 1);
    world.config(|config| settings(config, &change));
    for number in 1..world.links.len() {
        world.sides[CLIENT].host.paths.insert(classed(number, CLIENT, PathClass::Untrusted));
    }
    world
}

/// Bytes at the start that only trusted paths may carry.
const HEAD: u64 = 100_000;

const SCHEDULERS: [Scheduler; 4] = [
    Scheduler::LowestRtt,
    Scheduler::RoundRobin,
    Scheduler::Redundant,
    Scheduler::Dispersed { max_exposure: NonZeroU16::new(200).expect("not zero") },
];

/// Returns a link with random faults, drawn for each seed.
fn troubled(random: &mut SeededRandom) -> Link {
    Link {
        delay: Duration::from_millis(5 + random.below(40)),
        rate: Some(500_000 + random.below(2_000_000)),
        queue: 20_000 + random.below(200_000),
        loss: random.below(6) as f64 / 100.0,
        duplicate: random.below(3) as f64 / 100.0,
        reorder: random.below(10) as f64 / 100.0,
        ..Link::default()
    }
}

/// Runs a transfer under loss, with black holes that come and go and a change of class, and gives what was seen.
fn troubled_transfer(
    seed: u64,
    scheduler: Scheduler,
    trusted_bytes: u64,
    protect: bool,
) -> Rc<RefCell<Seen>> {
    let mut random = SeededRandom::from_number(seed * 1000);
    let links = (0..3).map(|_| troubled(&mut random)).collect();
    let mut world = half_trusted(seed, links, |settings| settings.trusted_bytes = trusted_bytes);
    if !protect {
        world.config(|config| config.protect = Protect::Plain);
    }
    world.config(|config| config.scheduler = scheduler);
    let seen = watch(&mut world);
    let (up, down) = (pattern(300_000, seed), pattern(200_000, seed + 1));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    for _ in 0..4 {
        world.wait(50 + random.below(700));
        let hit = random.below(3) as usize;
        world.links[hit].is_black_hole = true;
        world.wait(100 + random.below(2500));
        world.links[hit].is_black_hole = false;
    }
    world.finish(400);
    assert!(
        world.sides[SERVER].received == up,
        "seed {seed} {scheduler:?}: {:?}",
        world.sides[SERVER].failed
    );
    assert!(world.sides[CLIENT].received == down, "seed {seed} {scheduler:?}");
    seen
}

/// The rule: nothing of the first data on an untrusted path, in whichever direction and however often it is sent.
#[test]
fn first_data_never_crosses_an_untrusted_path_under_loss_and_path_failure() {
    for scheduler in SCHEDULERS {
        for seed in 1..5 {
            let seen = troubled_transfer(seed, scheduler, HEAD, true);
            let seen = seen.borrow();
            for from in [CLIENT, SERVER] {
                for path in [1, 2] {
                    let early = seen.of(from, path).range(..HEAD).next().copied();
                    assert_eq!(early, None, "seed {seed} {scheduler:?}: byte on path {path} from {from}");
                }
            }
            let used = [1, 2].iter().any(|&path| !seen.of(CLIENT, path).is_empty());
            assert!(used, "seed {seed} {scheduler:?}: the other paths carry the rest");
        }
    }
}

#[test]
fn nothing_at_all_of_a_trusted_only_connection_crosses_an_untrusted_path() {
    for scheduler in SCHEDULERS {
        for seed in 10..13 {
            let seen = troubled_transfer(seed, scheduler, u64::MAX, true);
            for (from, path) in [(CLIENT, 1), (CLIENT, 2), (SERVER, 1), (SERVER, 2)] {
                assert!(seen.borrow().of(from, path).is_empty(), "seed {seed} {scheduler:?}");
            }
        }
    }
}

/// The twin that must fail: with no rule, the same transfers do put first data on the other paths. If they did
/// not, the tests above would show nothing.
#[test]
fn without_the_rule_the_same_transfers_break_it() {
    let mut broken = 0;
    for scheduler in SCHEDULERS {
        for seed in 1..5 {
            let seen = troubled_transfer(seed, scheduler, 0, false);
            let seen = seen.borrow();
            broken +=
                [1, 2].iter().filter(|&&path| seen.of(CLIENT, path).range(..HEAD).next().is_some()).count();
        }
    }
    assert!(broken > 10, "{broken}");
}

/// First data in flight over a slow trusted path closes the window. A faster untrusted path has nothing else to do, and would reinject any
/// other block.
#[test]
fn a_closed_window_is_no_reason_to_repeat_first_data_on_a_faster_untrusted_path() {
    let slow = Link { delay: Duration::from_millis(200), ..Link::default() };
    let fast = Link { delay: Duration::from_millis(2), ..Link::default() };
    let mut world = half_trusted(41, vec![slow, fast], |settings| settings.trusted_bytes = HEAD);
    world.config(|config| config.receive_buffer = 150_000);
    let seen = watch(&mut world);
    let data = pattern(400_000, 1);
    world.send(CLIENT, &data).send(SERVER, b"").connect();
    world.finish(120);
    assert!(world.sides[SERVER].received == data);
    let on_fast = seen.borrow().of(CLIENT, 1);
    assert_eq!(on_fast.range(..HEAD).next(), None);
    assert!(on_fast.len() > 100_000, "the rest is for it: {}", on_fast.len());
}

/// Both new data and reinjections count, on both sides of a gap.
#[test]
fn no_untrusted_path_sees_more_than_a_visit_in_a_row() {
    for (seed, max_exposure) in [(20, 64), (21, 100), (22, 200), (23, 1000), (24, 2000)] {
        let dispersed =
            Scheduler::Dispersed { max_exposure: NonZeroU16::new(max_exposure).expect("not zero") };
        let seen = troubled_transfer(seed, dispersed, 1460, true);
        let seen = seen.borrow();
        for (from, path) in [(CLIENT, 1), (CLIENT, 2), (SERVER, 1), (SERVER, 2)] {
            let row = seen.longest_row(from, path);
            assert!(row <= max_exposure.into(), "{row} bytes in a row, seed {seed}, path {path} from {from}");
        }
        assert!(seen.longest_row(CLIENT, 1).max(seen.longest_row(CLIENT, 2)) > u64::from(max_exposure) / 2);
        assert!(seen.longest_row(CLIENT, 0) > u64::from(max_exposure));
    }
    let seen = troubled_transfer(21, Scheduler::RoundRobin, 1460, true);
    assert!(seen.borrow().longest_row(CLIENT, 1) > 2000, "others do not care");
}

/// A server with one address: it knows from the join which of the subflows cross the client's untrusted path.
#[test]
fn the_peer_is_told_which_subflows_are_not_trusted() {
    let mut world = half_trusted(30, vec![Link::default(); 2], |settings| settings.trusted_bytes = u64::MAX);
    let seen = watch(&mut world);
    let data = pattern(500_000, 1);
    world.send(SERVER, &data).connect();
    world.run(Duration::from_secs(60), |world| world.sides[CLIENT].received.len() == 500_000);
    assert_eq!(world.usable(SERVER), 2, "joining over an untrusted path is allowed");
    assert!(world.sides[CLIENT].received == data);
    assert!(seen.borrow().of(SERVER, 1).is_empty());
    assert_eq!(seen.borrow().of(SERVER, 0).len(), 500_000);
}

#[test]
fn without_a_trusted_path_the_connection_waits_for_one() {
    let link = Link { rate: Some(1_000_000), ..Link::default() };
    let mut world = half_trusted(31, vec![link.clone(), link], |_| ());
    let data = pattern(3_000_000, 1);
    world.send(CLIENT, &data).connect();
    world.wait(500);
    assert_eq!(world.usable(CLIENT), 2);
    world.links[0].is_black_hole = true;
    world.change_path(CLIENT, Path { up: false, ..path(0, CLIENT) });
    world.wait(500);
    let before = world.links[1].carried[CLIENT];
    world.wait(20_000);
    let status = world.status(CLIENT).scrambling.expect("it is scrambled");
    assert_eq!((status.trusted, status.stalled, status.degraded), (TrustedPaths::Gone, true, 0));
    assert_eq!(world.links[1].carried[CLIENT], before, "nothing new, nothing again");
    world.links[0].is_black_hole = false;
    world.change_path(CLIENT, path(0, CLIENT));
    world.run(Duration::from_secs(60), |world| world.sides[SERVER].received.len() == data.len());
    assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
    assert!(!world.status(CLIENT).scrambling.expect("it is scrambled").stalled);
}

/// An attacker that jams the trusted path must not be able to move all bytes to the other one.
#[test]
fn a_jammed_trusted_path_stops_the_untrusted_one_too() {
    let link = Link { rate: Some(1_000_000), ..Link::default() };
    let mut world = half_trusted(32, vec![link.clone(), link], |_| ());
    world.send(CLIENT, &pattern(30_000_000, 1)).connect();
    world.wait(1000);
    world.links[0].is_black_hole = true;
    world.wait(2000);
    let before = world.links[1].carried[CLIENT];
    world.wait(10_000);
    assert_eq!(world.links[1].carried[CLIENT], before);
}

#[test]
fn where_that_was_chosen_untrusted_paths_carry_on_alone_and_the_status_says_so() {
    let link = Link { rate: Some(1_000_000), ..Link::default() };
    let degrade = |settings: &mut ScrambleSettings| settings.without_trusted = WithoutTrusted::Degrade;
    let mut world = half_trusted(33, vec![link.clone(), link], degrade);
    let data = pattern(3_000_000, 1);
    world.send(CLIENT, &data).connect();
    world.wait(500);
    assert_eq!(world.status(CLIENT).scrambling.expect("it is scrambled").degraded, 0);
    world.links[0].is_black_hole = true;
    world.change_path(CLIENT, Path { up: false, ..path(0, CLIENT) });
    world.run(Duration::from_secs(60), |world| world.sides[SERVER].received.len() == data.len());
    assert!(world.sides[SERVER].received == data);
    let status = world.status(CLIENT).scrambling.expect("it is scrambled");
    assert!(status.degraded > 1_000_000 && !status.stalled, "{status:?}");
}

#[test]
fn a_connection_is_opened_over_a_trusted_path_or_not_at_all() {
    for without_trusted in [WithoutTrusted::Stall, WithoutTrusted::Degrade] {
        // The trusted path is not the first, and the untrusted one answers at once.
        let fast = Link { delay: Duration::from_millis(1), ..Link::default() };
        let choose = |settings: &mut ScrambleSettings| settings.without_trusted = without_trusted;
        let mut world = World::new(34, vec![fast, Link::default()], 1);
        world.config(|config| settings(config, choose));
        world.sides[CLIENT].host.paths.insert(classed(0, CLIENT, PathClass::Untrusted));
        let seen = watch(&mut world);
        world.send(CLIENT, b"first data").send(SERVER, b"an answer").connect();
        world.finish(60);
        assert_eq!(world.sides[SERVER].received, b"first data");
        assert!(seen.borrow().of(CLIENT, 0).is_empty() && seen.borrow().of(SERVER, 0).is_empty());

        let mut world = World::new(35, vec![Link::default()], 1);
        world.config(|config| settings(config, choose));
        world.sides[CLIENT].host.paths.insert(classed(0, CLIENT, PathClass::Untrusted));
        world.send(CLIENT, b"first data").send(SERVER, b"").connect();
        world.finish(60);
        match without_trusted {
            WithoutTrusted::Stall => {
                assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::NoTrustedPath));
                assert!(world.sides[SERVER].connection.is_none(), "not even a SYN: the key would follow it");
            }
            WithoutTrusted::Degrade => {
                assert_eq!(world.sides[SERVER].received, b"first data");
                assert_eq!(world.status(CLIENT).scrambling.expect("it is scrambled").degraded, 10);
            }
        }
    }
}

/// Retransmissions of the subflow must not go over a path that is no longer trusted, and the peer must learn the class.
#[test]
fn a_path_that_loses_its_trust_is_left_and_joined_anew() {
    let link = Link { rate: Some(1_000_000), ..Link::default() };
    let mut world = World::new(36, vec![link.clone(), link], 1);
    world.config(|config| settings(config, |settings| settings.trusted_bytes = u64::MAX));
    let (up, down) = (pattern(4_000_000, 1), pattern(4_000_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.wait(1000);
    assert!(world.links[1].carried.iter().all(|&bytes| bytes > 100_000), "{:?}", world.links[1].carried);
    world.change_path(CLIENT, classed(1, CLIENT, PathClass::Untrusted));
    let own = world.links[1].carried[CLIENT];
    // The peer hears of it with the reset, half a round trip later, and of the class with the new join.
    world.wait(100);
    let theirs = world.links[1].carried[SERVER];
    world.finish(60);
    assert!(world.sides[SERVER].received == up && world.sides[CLIENT].received == down);
    assert_eq!(world.links[1].carried, [own, theirs]);
    assert!(world.status(CLIENT).subflows.len() > 2, "it was joined again");
}

/// All options seen, by path.
type OptionsSeen = Rc<RefCell<BTreeMap<u8, Vec<Vec<u8>>>>>;

/// Opens a connection over path 0 and path 1, which are untrusted, and aborts it on one side. Returns the options of all segments.
fn aborted(world: &mut World, side: usize, loses_fast_close: bool) -> OptionsSeen {
    let seen = OptionsSeen::default();
    let log = seen.clone();
    world.tap = Box::new(move |from, segment| {
        let client = if from == CLIENT { segment.source.ip() } else { segment.destination.ip() };
        let IpAddr::V4(client) = client else { unreachable!("all tests speak IPv4") };
        let path = client.octets()[2];
        log.borrow_mut().entry(path).or_default().push(segment.options.to_vec());
        let is_parting = segment.flags.contains(plait_wire::Flags::RST) && has_mptcp(segment);
        if loses_fast_close && is_parting && path == 0 { Fate::Drop } else { Fate::Pass }
    });
    world.connect();
    world.wait(500);
    assert_eq!(world.usable(CLIENT), 2);
    let now = world.now;
    world.of(side).abort(now);
    world.serve(side);
    seen
}

/// Whether MP_FASTCLOSE, and whether either of the keys in MP_CAPABLE, is among the options of a path.
fn fast_close_and_keys(seen: &OptionsSeen, path: u8) -> (bool, bool) {
    let seen = seen.borrow();
    let mptcp = |path: u8| {
        let all = seen[&path].iter().flat_map(|bytes| options(bytes));
        all.filter_map(|option| if let Ok(TcpOption::Mptcp(option)) = option { Some(option) } else { None })
    };
    let keys: Vec<[u8; 8]> = mptcp(0)
        .filter_map(
            |option| if let MptcpOption::Capable(capable) = option { capable.sender_key } else { None },
        )
        .collect();
    assert!(keys.len() >= 2, "both hosts have said theirs on the first path");
    let shows = |bytes: &[u8]| bytes.windows(8).any(|run| keys.iter().any(|key| run == key));
    (
        mptcp(path).any(|option| matches!(option, MptcpOption::FastClose(_))),
        seen[&path].iter().any(|bytes| shows(bytes)),
    )
}

/// MP_FASTCLOSE carries the receiver's key, with which its direction of the scrambled stream starts.
#[test]
fn the_key_of_a_scrambled_connection_never_crosses_an_untrusted_path_not_even_at_its_end() {
    for side in [CLIENT, SERVER] {
        let mut world = half_trusted(38, vec![Link::default(); 2], |_| ());
        let seen = aborted(&mut world, side, false);
        world.wait(1000);
        assert_eq!(world.sides[1 - side].failed, Some(ConnectionError::FastClose));
        assert_eq!(fast_close_and_keys(&seen, 0), (true, true));
        assert_eq!(fast_close_and_keys(&seen, 1), (false, false), "aborted by {side}");
        for side in [CLIENT, SERVER] {
            assert!(world.of(side).is_done() && world.sides[side].owners.is_empty());
        }
    }
}

/// The twin: a plain connection has no such secret, and sends its key on every path.
#[test]
fn a_plain_connection_ends_with_its_key_on_every_path() {
    let mut world = half_trusted(39, vec![Link::default(); 2], |_| ());
    world.config(|config| config.protect = Protect::Plain);
    let seen = aborted(&mut world, CLIENT, false);
    world.wait(1000);
    assert_eq!([0, 1].map(|path| fast_close_and_keys(&seen, path)), [(true, true); 2]);
}

/// If the reset over the trusted path is lost, the end is noticed later.
#[test]
fn an_abort_of_which_only_the_untrusted_path_tells_ends_the_connection_too() {
    let mut world = half_trusted(40, vec![Link::default(); 2], |_| ());
    let seen = aborted(&mut world, CLIENT, true);
    world.sides[CLIENT].connection = None;
    world.sides[CLIENT].owners.clear();
    world.send(SERVER, b"is it working?");
    world.serve(SERVER);
    world.finish(300);
    assert_eq!(fast_close_and_keys(&seen, 1), (false, false));
    assert!(world.sides[SERVER].failed.is_some(), "not the end of the stream, but an error");
}

/// In plain mode a class other than `never` restricts nothing.
#[test]
fn plain_connections_use_untrusted_paths_for_everything() {
    let mut world = World::new(37, vec![Link::default()], 1);
    world.sides[CLIENT].host.paths.insert(classed(0, CLIENT, PathClass::Untrusted));
    world.send(CLIENT, b"first data").send(SERVER, b"").connect();
    world.finish(60);
    assert_eq!(world.sides[SERVER].received, b"first data");
}
