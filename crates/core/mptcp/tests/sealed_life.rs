//! The life of subflows: an attacker on one path speaks TCP to both ends and makes them disagree. The tests show its gain.

mod sealing;
mod world;

use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_handshake::Tep;
use plait_wire::{Flags, MpJoin, MptcpOption, OptionBytes, Segment, TcpOption, option_bytes, options};
use sealing::{assert_carried, sealed};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, address, path, pattern};

fn has(segment: &Segment, wanted: impl Fn(&TcpOption<'_>) -> bool) -> bool {
    options(&segment.options).filter_map(Result::ok).any(|option| wanted(&option))
}

fn is_third(segment: &Segment) -> bool {
    has(segment, |option| matches!(option, TcpOption::Mptcp(MptcpOption::Join(MpJoin::Ack { .. }))))
}

/// MP_EXPERIMENTAL with these low bits: 1 a share of the keys, 2 a question, 3 an answer.
fn is_experimental(segment: &Segment, bits: u8) -> bool {
    has(
        segment,
        |option| matches!(option, TcpOption::Mptcp(MptcpOption::Unknown { subtype: 0xf, low_bits, .. }) if *low_bits == bits),
    )
}

fn crosses(segment: &Segment, path: usize) -> bool {
    [segment.source, segment.destination].iter().any(|end| end.ip() == address(path, CLIENT))
}

fn stamps(segment: &Segment) -> (u32, u32) {
    let found = options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Timestamps { value, echo } => Some((value, echo)),
        _ => None,
    });
    found.expect("timestamps")
}

fn timestamps(value: u32, echo: u32) -> OptionBytes {
    option_bytes([TcpOption::Timestamps { value, echo }]).expect("they fit")
}

fn two_megabytes_a_second(paths: usize) -> Vec<Link> {
    vec![Link { rate: Some(2_000_000), ..Link::default() }; paths]
}

/// What the attacker on path 1 knows of one subflow there.
struct Seen {
    /// The third segment, as a model for acknowledgments in the client's name, and when it came.
    third: Segment,
    at: Instant,
    /// What the server has said last.
    last: Option<Segment>,
    is_cut: bool,
}

/// Lets each join over path 1 complete, resets the client's end alone, and acknowledges in TCP whatever the server says there.
#[derive(Default)]
struct HalfReset {
    flows: BTreeMap<u16, Seen>,
    now: Option<Instant>,
    to_reset: Vec<u16>,
    to_acknowledge: Vec<u16>,
}

type Shared = Rc<RefCell<HalfReset>>;

impl HalfReset {
    fn on_path(world: &mut World) -> Shared {
        let attacker = Shared::default();
        let own = Rc::clone(&attacker);
        world.tap =
            Box::new(
                move |from, segment: &mut Segment| {
                    if crosses(segment, 1) { own.borrow_mut().meddle(from, segment) } else { Fate::Pass }
                },
            );
        attacker
    }

    fn meddle(&mut self, from: usize, segment: &Segment) -> Fate {
        if segment.flags.contains(Flags::SYN) {
            return Fate::Pass;
        }
        if from == CLIENT {
            return self.meddle_with_client(segment);
        }
        let port = segment.destination.port();
        let Some(seen) = self.flows.get_mut(&port) else { return Fate::Drop };
        if segment.flags.contains(Flags::RST) {
            return Fate::Drop;
        }
        seen.last = Some(segment.clone());
        self.to_acknowledge.push(port);
        // The fourth segment and the share of the keys pass: the join is complete for the client.
        if seen.is_cut { Fate::Drop } else { Fate::Pass }
    }

    fn meddle_with_client(&mut self, segment: &Segment) -> Fate {
        let port = segment.source.port();
        if is_third(segment) && !self.flows.contains_key(&port) {
            let (third, at) = (segment.clone(), self.now.expect("it is told the time"));
            self.flows.insert(port, Seen { third, at, last: None, is_cut: false });
            return Fate::Pass;
        }
        if let Some(seen) = self.flows.get_mut(&port)
            && seen.last.is_some()
            && !is_third(segment)
        {
            // A segment of the server may have been under way at the first: a reset has to stand at its end (RFC 5961, section 3).
            seen.is_cut = true;
            self.to_reset.push(port);
        }
        Fate::Drop
    }

    /// In the server's name.
    fn reset(&self, port: u16) -> Segment {
        let Seen { third, last, .. } = &self.flows[&port];
        let last = last.as_ref().expect("the server has spoken");
        Segment {
            source: third.destination,
            destination: third.source,
            seq: last.seq + last.len_seq(),
            flags: Flags::RST,
            payload: Bytes::new(),
            options: OptionBytes::new(),
            ..third.clone()
        }
    }

    /// In the client's name.
    fn acknowledgment(&self, port: u16, now: Instant) -> Segment {
        let Seen { third, at, last, .. } = &self.flows[&port];
        let last = last.as_ref().expect("the server has spoken");
        let elapsed = now.saturating_since(*at).as_millis() as u32;
        Segment {
            flags: Flags::ACK,
            ack: last.seq + last.len_seq(),
            options: timestamps(stamps(third).0.wrapping_add(elapsed), stamps(last).0),
            ..third.clone()
        }
    }
}

/// Lets time pass while the attacker acts.
fn step(world: &mut World, attacker: &Shared, limit: Duration, until: impl Fn(&mut World) -> bool) {
    let end = world.now + limit;
    while world.now < end && !until(world) {
        attacker.borrow_mut().now = Some(world.now);
        let left = end.saturating_since(world.now).min(Duration::from_millis(100));
        let busy = Rc::clone(attacker);
        let has_work =
            |attacker: &HalfReset| !attacker.to_reset.is_empty() || !attacker.to_acknowledge.is_empty();
        world.run(left, |_| has_work(&busy.borrow()));
        let (resets, acknowledgments) = {
            let mut attacker = attacker.borrow_mut();
            attacker.now = Some(world.now);
            (core::mem::take(&mut attacker.to_reset), core::mem::take(&mut attacker.to_acknowledge))
        };
        for port in resets {
            let reset = attacker.borrow().reset(port);
            world.deliver(CLIENT, &reset);
        }
        for port in acknowledgments {
            let forged = attacker.borrow().acknowledgment(port, world.now);
            world.deliver(SERVER, &forged);
        }
    }
}

/// An attacked connection over paths 0 and 1, on which `senders` send for 40 seconds.
fn attacked(senders: &[usize]) -> (World, Shared) {
    let mut world = sealed(8, two_megabytes_a_second(3), &[Tep::TcpcryptCurve25519]);
    world.sides[CLIENT].host.paths.insert(plait_mptcp::Path { up: false, ..path(2, CLIENT) });
    let attacker = HalfReset::on_path(&mut world);
    attacker.borrow_mut().now = Some(world.now);
    world.connect();
    step(&mut world, &attacker, Duration::from_secs(1), |_| false);
    write(&mut world, CLIENT, b"hello ");
    for _ in 0..200 {
        for &side in senders {
            write(&mut world, side, &[7; 20_000]);
        }
        step(&mut world, &attacker, Duration::from_millis(200), |_| false);
    }
    (world, attacker)
}

fn write(world: &mut World, side: usize, data: &[u8]) {
    let now = world.now;
    world.of(side).write(now, Bytes::copy_from_slice(data));
    world.serve(side);
}

#[test]
fn subflows_that_an_attacker_keeps_alive_at_one_end_do_not_keep_a_handover_out() {
    for senders in [&[][..], &[CLIENT], &[SERVER], &[CLIENT, SERVER]] {
        let (mut world, attacker) = attacked(senders);
        assert!(attacker.borrow().flows.len() > 3, "joins went on: {}", attacker.borrow().flows.len());
        let expected = world.sides[SERVER].received.len() + 5;
        assert_eq!(world.usable(SERVER), 1, "the server counts what the client has");
        assert!(world.status(SERVER).counters.subflows_gone > 2, "the client has told it");

        // The honest path goes away without a word, and another one comes.
        world.links[0].is_black_hole = true;
        let begun = world.now;
        world.change_path(CLIENT, plait_mptcp::Path { up: false, ..path(0, CLIENT) });
        world.change_path(CLIENT, path(2, CLIENT));
        write(&mut world, CLIENT, b"world");
        step(&mut world, &attacker, Duration::from_secs(60), |world| {
            world.sides[SERVER].received.len() >= expected
        });
        let took = world.now.saturating_since(begun);
        assert!(took < Duration::from_millis(300), "{senders:?}: {took:?}");
        assert_eq!(world.sides[CLIENT].failed, None);
    }
}

#[test]
fn a_join_that_nothing_verifies_is_a_failure_and_the_next_one_waits_longer() {
    let (_world, attacker) = attacked(&[]);
    let mut begun: Vec<_> = attacker.borrow().flows.values().map(|seen| seen.at).collect();
    begun.sort_unstable();
    let gaps: Vec<_> = begun.windows(2).map(|two| two[1].saturating_since(two[0])).collect();
    assert!(gaps.windows(2).all(|two| two[1] > two[0]), "they grow: {gaps:?}");
    assert!(gaps.last() > Some(&Duration::from_secs(10)), "{gaps:?}");
}

#[test]
fn a_subflow_that_only_tcp_keeps_alive_is_doubted_also_while_the_other_end_cannot_say_that_it_is_gone() {
    let mut world = sealed(8, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
    let attacker = HalfReset::on_path(&mut world);
    attacker.borrow_mut().now = Some(world.now);
    world.connect();
    // The honest path dies before the client can tell.
    step(&mut world, &attacker, Duration::from_secs(5), |world| world.status(CLIENT).subflows.len() > 1);
    world.links[0].is_black_hole = true;
    step(&mut world, &attacker, Duration::from_secs(6), |_| false);
    let status = world.status(SERVER);
    assert!(status.counters.subflows_doubted > 0, "{status:?}");
    assert!(status.subflows.iter().all(|flow| flow.path != plait_base::PathId(1) || !flow.usable));
}

#[test]
fn an_exchange_whose_answer_is_held_back_until_it_is_forgotten_comes_to_nothing_and_harms_nothing() {
    let mut world = sealed(8, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
    let held: Rc<RefCell<Vec<Segment>>> = Rc::default();
    let own = Rc::clone(&held);
    let swallowed = Rc::new(RefCell::new(0));
    let count = Rc::clone(&swallowed);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        let is_answer = from == CLIENT && is_experimental(segment, 1) && !segment.payload.is_empty();
        if !crosses(segment, 1) || !is_answer {
            return Fate::Pass;
        }
        let mut held = own.borrow_mut();
        if held.iter().all(|first| first.source == segment.source) {
            held.push(segment.clone());
            return Fate::Drop;
        }
        *count.borrow_mut() += 1;
        Fate::Reset { back_after: Duration::from_millis(1) }
    });
    world.connect();
    world.run(Duration::from_secs(20), |_| !held.borrow().is_empty());
    // The client's end alone is reset, and joins again; each of its answers is swallowed, until it has forgotten the first.
    let first = held.borrow()[0].clone();
    let reset = Segment {
        source: first.destination,
        destination: first.source,
        seq: first.ack,
        flags: Flags::RST,
        payload: Bytes::new(),
        options: OptionBytes::new(),
        ..first.clone()
    };
    world.deliver(CLIENT, &reset);
    world.run(Duration::from_secs(600), |_| *swallowed.borrow() > 66);
    for segment in held.borrow().iter() {
        world.deliver(SERVER, segment);
    }
    world.tap = Box::new(|_, _| Fate::Pass);
    let (up, down) = (pattern(100_000, 1), pattern(50_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down);
    world.serve(CLIENT);
    world.serve(SERVER);
    world.finish(60);
    assert_carried(&mut world, &up, &down);
}

#[test]
fn a_tagged_option_that_is_repeated_for_ever_verifies_nothing() {
    let mut world = sealed(3, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
    let last: Rc<RefCell<Option<Segment>>> = Rc::default();
    let is_cut = Rc::new(RefCell::new(false));
    let (own, cut) = (Rc::clone(&last), Rc::clone(&is_cut));
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if !crosses(segment, 1) {
            return Fate::Pass;
        }
        let is_tagged = [0, 2, 3].iter().any(|bits| is_experimental(segment, *bits));
        if *cut.borrow() {
            return Fate::Drop;
        }
        if from == CLIENT && is_tagged && segment.payload.is_empty() {
            own.borrow_mut().replace(segment.clone());
        }
        Fate::Pass
    });
    world.connect();
    write(&mut world, CLIENT, &pattern(100_000, 1));
    world.wait(3000);
    assert_eq!(world.usable(SERVER), 2);
    *is_cut.borrow_mut() = true;
    let begun = world.now;
    while world.now < begun + Duration::from_secs(90) {
        world.wait(200);
        let replayed = last.borrow().clone().expect("the client has acknowledged something");
        world.deliver(SERVER, &replayed);
    }
    let status = world.status(SERVER);
    assert!(status.counters.subflows_doubted > 0, "{:?}", status.counters);
    let usable = status.subflows.iter().filter(|flow| flow.usable).count();
    assert_eq!((usable, world.sides[SERVER].failed), (1, None));
}

#[test]
fn an_idle_connection_asks_each_subflow_about_twice_a_minute_and_none_where_silence_is_wanted() {
    for wants_silence in [false, true] {
        let mut world = sealed(5, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
        if wants_silence {
            for side in &mut world.sides {
                let plait_mptcp::Protect::Sealed(settings) = &mut side.config.protect else {
                    unreachable!("sealed")
                };
                settings.keep_alive = None;
            }
        }
        let questions = Rc::new(RefCell::new(0));
        let count = Rc::clone(&questions);
        world.tap = Box::new(move |_, segment: &mut Segment| {
            *count.borrow_mut() += usize::from(is_experimental(segment, 2));
            Fate::Pass
        });
        world.connect();
        world.wait(3000);
        *questions.borrow_mut() = 0;
        world.wait(600_000);
        let asked = *questions.borrow();
        assert_eq!(world.usable(SERVER), 2);
        // Two subflows, two ends, ten minutes.
        let expected = if wants_silence { 0..1 } else { 80..108 };
        assert!(expected.contains(&asked), "{asked}");
    }
}

#[test]
fn a_question_of_the_application_is_answered_within_a_round_trip_and_doubt_follows_where_no_answer_comes() {
    let mut world = sealed(6, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
    world.connect();
    world.wait(3000);
    let asked = |world: &mut World, wait| {
        let before = world.now;
        world.of(CLIENT).ask_life();
        world.serve(CLIENT);
        world.wait(wait);
        let subflows = world.status(CLIENT).subflows;
        (subflows.iter().filter(|flow| flow.verified >= Some(before)).count(), subflows)
    };
    let (answered, subflows) = asked(&mut world, 500);
    assert!(answered == 2 && subflows.iter().all(|flow| !flow.doubted), "{subflows:?}");
    world.links[1].is_black_hole = true;
    let (answered, subflows) = asked(&mut world, 5000);
    let doubted = subflows.iter().filter(|flow| flow.doubted).count();
    assert_eq!((answered, doubted), (1, 1), "{subflows:?}");
}

#[test]
fn after_an_outage_of_all_paths_bytes_flow_again_within_two_seconds() {
    for outage in [30, 60, 90] {
        for phase in [0, 700, 1300] {
            let mut world = sealed(4, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
            let data = pattern(4_000_000, 1);
            world.send(CLIENT, &data).connect();
            world.wait(800);
            world.links.iter_mut().for_each(|link| link.is_black_hole = true);
            world.wait(1000 * outage + phase);
            let before = world.sides[SERVER].received.len();
            assert!(before < data.len());
            world.links[1].is_black_hole = false;
            let took =
                world.run(Duration::from_secs(60), |world| world.sides[SERVER].received.len() > before);
            assert!(took <= Duration::from_secs(2), "{outage} s and {phase} ms: {took:?}");
            world.links[0].is_black_hole = false;
            world.finish(60);
            assert_eq!(world.sides[SERVER].failed, None);
            assert!(world.sides[SERVER].received == data);
        }
    }
}
