//! If sealing is required, no byte of the application leaves in clear and no connection counts as established, whatever host without a key
//! answers or opens. Each test is one way in which a connection could turn into regular Multipath TCP or plain TCP.

mod sealing;
mod world;

use bytes::Bytes;
use plait_handshake::{Policy, Tep, answer_eno, offer_eno};
use plait_mptcp::{ConnectionError, Event, Negotiated};
use plait_wire::{
    CapableFlags, DataAck, DataSequence, Dss, Flags, Mapping, MpCapable, MpFail, MptcpOption, OptionBytes,
    Segment, TcpOption, option_bytes, options, pad_options,
};
use sealing::{SEALED, both_ways, sealed, set_policy};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use world::segments::{has_mptcp, strip};
use world::{CLIENT, Fate, Link, PORT, SERVER, World, address, pattern};

/// The bytes that the application writes. Only the peer may see them.
const SECRET: &[u8] = b"what only the peer of a sealed connection may ever read";
/// Data that an attacker sends in the name of the peer.
const FORGED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const SYN_ACK: Flags = Flags::SYN.with(Flags::ACK);
const KEY: [u8; 8] = [7; 8];

fn raw(parts: &[&[u8]]) -> OptionBytes {
    let mut field = OptionBytes::new();
    parts.iter().for_each(|part| field.extend(part.iter().copied()));
    pad_options(&mut field);
    field
}

fn capable(version: u8, sender_key: Option<[u8; 8]>, receiver_key: Option<[u8; 8]>) -> OptionBytes {
    let flags = CapableFlags(CapableFlags::HMAC_SHA256);
    let capable = MpCapable { version, flags, sender_key, receiver_key, data_length: None, checksum: None };
    option_bytes([TcpOption::Mptcp(MptcpOption::Capable(capable))]).expect("at most 20 bytes")
}

fn dss(mapping: Option<(u16, u32)>) -> OptionBytes {
    let mapping =
        mapping.map(|(length, ssn)| Mapping { dsn: DataSequence::Long(1), ssn, length, checksum: None });
    let dss = Dss { data_ack: Some(DataAck::Long(1)), mapping, data_fin: false };
    option_bytes([TcpOption::Mptcp(MptcpOption::Dss(dss))]).expect("28 bytes")
}

/// A host without any key in the place of the peer.
struct Impostor {
    world: World,
    victim: usize,
    said: Rc<RefCell<VecDeque<Segment>>>,
    /// All payload that the victim has sent.
    seen: Vec<u8>,
    /// Offset of the impostor's next byte; its SYN is 0.
    sent: u32,
    last: Option<Segment>,
}

impl Impostor {
    const ISN: u32 = u32::MAX - 5;

    fn new(victim: usize, policy: Policy) -> Self {
        let mut world = sealed(3, vec![Link::default()], &Tep::ALL);
        set_policy(&mut world, policy);
        let said: Rc<RefCell<VecDeque<Segment>>> = Rc::default();
        let heard = Rc::clone(&said);
        world.tap = Box::new(move |_, segment: &mut Segment| {
            heard.borrow_mut().push_back(segment.clone());
            Fate::Drop
        });
        world.send(victim, SECRET);
        Self { world, victim, said, seen: Vec::new(), sent: 0, last: None }
    }

    /// The victim opens to the impostor.
    fn opened(policy: Policy) -> Self {
        let mut impostor = Self::new(CLIENT, policy);
        impostor.world.connect();
        impostor.hear();
        assert!(impostor.last.as_ref().is_some_and(|syn| syn.flags == Flags::SYN), "a SYN is to be answered");
        impostor
    }

    /// Says a segment in place; it acknowledges all that was heard.
    fn say(&mut self, flags: Flags, options: OptionBytes, payload: &[u8]) -> &mut Self {
        let (client, server) = ((address(0, CLIENT), 40_000).into(), (address(0, SERVER), PORT).into());
        let (source, destination) = if self.victim == CLIENT { (server, client) } else { (client, server) };
        let heard = self.last.as_ref();
        let segment = Segment {
            source: heard.map_or(source, |heard| heard.destination),
            destination: heard.map_or(destination, |heard| heard.source),
            seq: plait_base::SeqNum::new(Self::ISN) + self.sent,
            ack: heard.map_or(plait_base::SeqNum::new(0), |heard| heard.seq + heard.len_seq()),
            flags,
            window: u16::MAX,
            urgent: 0,
            options,
            payload: Bytes::copy_from_slice(payload),
            segment_size: payload.len().max(1) as u16,
            ecn: 0,
            flow_label: 0,
        };
        self.sent += segment.len_seq();
        self.world.deliver(self.victim, &segment);
        self.hear();
        self
    }

    fn ack(&mut self) -> &mut Self {
        self.say(Flags::ACK, OptionBytes::new(), b"")
    }

    /// Acknowledges all that comes, sends data and a FIN, and goes on acknowledging for some minutes.
    fn carry_on(&mut self) -> &mut Self {
        self.ack().say(Flags::ACK, OptionBytes::new(), FORGED);
        self.say(Flags::ACK.with(Flags::FIN), OptionBytes::new(), b"");
        for _ in 0..300 {
            self.world.wait(500);
            if self.hear() {
                self.ack();
            }
        }
        self
    }

    fn hear(&mut self) -> bool {
        let mut has_news = false;
        while let Some(segment) = self.said.borrow_mut().pop_front() {
            self.seen.extend_from_slice(&segment.payload);
            has_news |= segment.len_seq() > 0;
            self.last = Some(segment);
        }
        has_news
    }

    /// Asserts that the victim has failed, was never connected, has revealed nothing and accepted nothing.
    fn assert_refused(&mut self, what: &str) {
        self.assert_nothing_in_clear(what);
        let side = &self.world.sides[self.victim];
        assert!(side.failed.is_some(), "{what}: it does not fail");
        assert!(!side.events.contains(&Event::Connected), "{what}: reported as connected");
        assert!(side.received.is_empty() && !side.ended, "{what}: unauthenticated bytes delivered");
        let status = self.world.status(self.victim);
        assert!(!matches!(status.negotiated, Negotiated::Plain(_)), "{what}: {:?}", status.negotiated);
        let sealed = status.sealed.unwrap_or_else(|| panic!("{what}: sealing was given up"));
        assert!(sealed.suite.is_none(), "{what}: nothing was negotiated");
    }

    fn assert_nothing_in_clear(&self, what: &str) {
        assert!(
            !self.seen.windows(8).any(|seen| seen == &SECRET[..8]),
            "{what}: the secret was sent in clear"
        );
    }
}

#[test]
fn a_bare_syn_in_answer_to_the_syn_is_no_way_to_plain_tcp() {
    let eno = answer_eno(Tep::Tls13);
    let variants = [
        ("no options", OptionBytes::new()),
        ("version 1", capable(1, None, None)),
        ("version 1 with a key", capable(1, Some(KEY), None)),
        ("version 2 and ENO", raw(&[&capable(2, None, None), &eno])),
    ];
    for (what, options) in variants {
        let mut impostor = Impostor::opened(Policy::Require);
        impostor.say(Flags::SYN, options, b"").carry_on().assert_refused(what);
        assert_eq!(impostor.world.sides[CLIENT].failed, Some(ConnectionError::NotSealed), "{what}");
    }
}

#[test]
fn crossing_syns_give_plain_tcp_only_where_the_policy_lets_them_and_nothing_then_looks_sealed() {
    let mut impostor = Impostor::opened(Policy::Prefer);
    impostor.say(Flags::SYN, OptionBytes::new(), b"").carry_on();
    let status = impostor.world.status(CLIENT);
    assert!(matches!(status.negotiated, Negotiated::Plain(_)), "{:?}", status.negotiated);
    assert_eq!(status.sealed, None);
}

#[test]
fn a_syn_ack_without_all_that_makes_a_seal_is_refused() {
    let eno = answer_eno(Tep::Tls13);
    let variants = [
        ("no options", OptionBytes::new()),
        ("version 0", capable(0, Some(KEY), None)),
        ("version 1", capable(1, Some(KEY), None)),
        ("version 1 and ENO", raw(&[&capable(1, Some(KEY), None), &eno])),
        ("version 2 alone", capable(2, None, None)),
        ("version 2 with a key", capable(2, Some(KEY), None)),
        ("ENO alone", raw(&[&eno])),
        ("ENO of the wrong role", raw(&[&capable(2, None, None), &offer_eno(&[Tep::Tls13])])),
        ("MP_JOIN", raw(&[&[30, 16, 0x10, 0], &[9; 12]])),
    ];
    for (what, options) in variants {
        let mut impostor = Impostor::opened(Policy::Require);
        impostor.say(SYN_ACK, options, b"").carry_on().assert_refused(what);
        assert_eq!(impostor.world.sides[CLIENT].failed, Some(ConnectionError::NotSealed), "{what}");
    }
}

#[test]
fn data_in_place_of_the_handshake_is_refused_on_both_sides() {
    let agreed = raw(&[&capable(2, None, None), &answer_eno(Tep::Tls13)]);
    let ways = [
        ("no options", OptionBytes::new()),
        ("a mapping", dss(Some((FORGED.len() as u16, 1)))),
        ("an infinite mapping", dss(Some((0, 1)))),
        ("keys of version 1", capable(1, Some(KEY), Some(KEY))),
        (
            "MP_FAIL",
            option_bytes([TcpOption::Mptcp(MptcpOption::Fail(MpFail { dsn: 1 }))]).expect("12 bytes"),
        ),
    ];
    for (what, options) in &ways {
        let mut impostor = Impostor::opened(Policy::Require);
        impostor.say(SYN_ACK, agreed.clone(), b"").say(Flags::ACK, options.clone(), FORGED);
        impostor.carry_on().assert_refused(what);
    }
    let offered = raw(&[&capable(2, None, None), &offer_eno(&[Tep::Tls13])]);
    let third = raw(&[&capable(2, None, None), &plait_handshake::ACK_ENO]);
    for (what, options) in &ways {
        for has_third in [false, true] {
            let mut impostor = Impostor::new(SERVER, Policy::Require);
            impostor.say(Flags::SYN, offered.clone(), b"");
            if has_third {
                impostor.say(Flags::ACK, third.clone(), b"");
            }
            impostor.say(Flags::ACK, options.clone(), FORGED).carry_on().assert_refused(what);
        }
    }
}

#[test]
fn a_syn_without_all_that_makes_a_seal_is_refused() {
    let eno = offer_eno(&[Tep::Tls13]);
    let variants = [
        ("no options", OptionBytes::new()),
        ("version 0", capable(0, None, None)),
        ("version 1", capable(1, None, None)),
        ("version 1 and ENO", raw(&[&capable(1, None, None), &eno])),
        ("version 2 alone", capable(2, None, None)),
        ("ENO alone", raw(&[&eno])),
        ("ENO of the wrong role", raw(&[&capable(2, None, None), &answer_eno(Tep::Tls13)])),
    ];
    for (what, options) in variants {
        let mut impostor = Impostor::new(SERVER, Policy::Require);
        impostor.say(Flags::SYN, options, b"").carry_on().assert_refused(what);
        assert_eq!(impostor.world.sides[SERVER].failed, Some(ConnectionError::NotSealed), "{what}");
    }
}

#[test]
fn a_third_segment_without_all_that_makes_a_seal_is_refused() {
    let variants = [
        ("no options", OptionBytes::new()),
        ("keys of version 1", capable(1, Some(KEY), Some(KEY))),
        ("version 2 alone", capable(2, None, None)),
        ("ENO alone", raw(&[&plait_handshake::ACK_ENO])),
        ("a Data-ACK", dss(None)),
    ];
    for policy in [Policy::Require, Policy::Prefer] {
        for (what, options) in &variants {
            let mut impostor = Impostor::new(SERVER, policy);
            let offered = raw(&[&capable(2, None, None), &offer_eno(&[Tep::Tls13])]);
            impostor.say(Flags::SYN, offered, b"").say(Flags::ACK, options.clone(), b"");
            impostor.carry_on().assert_refused(what);
            assert_eq!(impostor.world.sides[SERVER].failed, Some(ConnectionError::NotSealed), "{what}");
        }
    }
}

#[test]
fn syns_that_are_swallowed_for_their_options_are_never_sent_without() {
    let mut impostor = Impostor::opened(Policy::Require);
    let plain = Rc::new(RefCell::new(0));
    let count = Rc::clone(&plain);
    impostor.world.tap = Box::new(move |_, segment: &mut Segment| {
        let has_eno = options(&segment.options).any(|option| matches!(option, Ok(TcpOption::Eno(_))));
        *count.borrow_mut() += u32::from(!has_eno || !has_mptcp(segment));
        Fate::Drop
    });
    impostor.world.wait(200_000);
    assert_eq!(*plain.borrow(), 0);
    impostor.assert_refused("silence");
    assert_eq!(impostor.world.sides[CLIENT].failed, Some(ConnectionError::TimedOut));
}

/// With a key in the clear data could be mapped without a seal. The twin shows that keys are counted.
#[test]
fn where_sealing_is_required_neither_side_draws_a_key_in_the_clear() {
    for (policy, drawn) in [(Policy::Require, [0, 0]), (Policy::Prefer, [1, 0])] {
        let mut world = sealed(4, vec![Link::default(); 2], &[Tep::TcpcryptCurve25519]);
        set_policy(&mut world, policy);
        both_ways(&mut world, 20_000);
        assert_eq!([CLIENT, SERVER].map(|side| world.sides[side].host.keys_drawn), drawn, "{policy:?}");
    }
    let mut impostor = Impostor::opened(Policy::Require);
    impostor.say(SYN_ACK, capable(1, Some(KEY), None), b"").carry_on();
    assert_eq!(impostor.world.sides[CLIENT].host.keys_drawn, 0, "nor when the answer asks for one");
}

/// An honest transfer with a tap on one path; all payload that went by.
fn tapped(mut tap: impl FnMut(usize, &mut Segment) -> Fate + 'static) -> (World, Rc<RefCell<Vec<u8>>>) {
    let mut world = sealed(8, vec![Link::default(); 2], &[Tep::TcpcryptCurve25519]);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let all = Rc::clone(&seen);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        all.borrow_mut().extend_from_slice(&segment.payload);
        tap(from, segment)
    });
    (world, seen)
}

/// Both sides are sealed or have failed, and what was written is not among what went by.
fn assert_sealed_or_failed(world: &mut World, seen: &RefCell<Vec<u8>>) {
    for side in [CLIENT, SERVER] {
        let status = world.status(side);
        assert!(status.negotiated == SEALED || status.negotiated == Negotiated::Opening, "{status:?}");
        assert!(status.sealed.is_some(), "{side}: {status:?}");
    }
    let seen = seen.borrow();
    for salt in [1, 2] {
        let clear = pattern(64, salt);
        assert!(!seen.windows(16).any(|window| window == &clear[..16]), "in clear");
    }
}

#[test]
fn a_lost_third_ack_and_all_that_is_lost_with_it_only_delay() {
    for lost in 1..6 {
        let mut count = 0;
        let (mut world, seen) = tapped(move |from, segment| {
            count += usize::from(from == CLIENT && !segment.flags.contains(Flags::SYN));
            if from == CLIENT && (1..=lost).contains(&count) { Fate::Drop } else { Fate::Pass }
        });
        both_ways(&mut world, 20_000);
        assert_eq!([CLIENT, SERVER].map(|side| world.status(side).negotiated), [SEALED; 2]);
        assert_sealed_or_failed(&mut world, &seen);
    }
}

#[test]
fn neither_mp_fail_nor_an_infinite_mapping_nor_stripped_options_end_a_seal() {
    let fail = || option_bytes([TcpOption::Mptcp(MptcpOption::Fail(MpFail { dsn: 1 }))]).expect("12 bytes");
    type Meddle = Box<dyn Fn(&mut Segment)>;
    let ways: [Meddle; 3] = [
        Box::new(strip),
        Box::new(move |segment: &mut Segment| segment.options = fail()),
        Box::new(|segment: &mut Segment| segment.options = dss(Some((0, 1)))),
    ];
    for change in ways {
        let mut left = 40;
        // Only segments with data, and behind the handshake: before it a change ends the connection.
        let (mut world, seen) = tapped(move |_, segment| {
            if segment.payload.len() > 1000 && segment.source.ip() == address(0, CLIENT) && left > 0 {
                left -= 1;
                change(segment);
            }
            Fate::Pass
        });
        world.send(CLIENT, &pattern(300_000, 1)).send(SERVER, &pattern(10_000, 2)).connect();
        world.finish(200);
        assert_sealed_or_failed(&mut world, &seen);
        let received = &world.sides[SERVER].received;
        assert!(pattern(300_000, 1).starts_with(received), "nothing wrong is delivered");
    }
}
