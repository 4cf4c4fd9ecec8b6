//! The negotiation under a middlebox that removes or rewrites options: sealed, refused, or the result that the policy allows; never less
//! without notice.

mod sealing;
mod world;

use plait_base::SeededRandom;
use plait_handshake::{
    ClientPolicy, Identity, KeyExchanges, ListenerSettings, OpenerSettings, Policy, ServerName, ServerTrust,
    Tep,
};
use plait_mptcp::{ConnectionError, Negotiated, Protect, SealedSettings};
use plait_wire::{Flags, MptcpOption, Segment, TcpOption, option_bytes, options};
use sealing::{SEALED, both_ways, sealed, set_policy, settings};
use std::sync::Arc;
use world::{CLIENT, Fate, Link, SERVER, Side, World, pattern};

const REGULAR: Negotiated = Negotiated::Multipath { version: 1, checksum: false };

/// Changes, or takes out, each option of the SYN (`of` 0) or SYN/ACK (`of` 1).
fn meddle(world: &mut World, of: usize, change: impl Fn(TcpOption<'_>) -> Option<TcpOption<'_>> + 'static) {
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if from == of && segment.flags.contains(Flags::SYN) {
            let before = segment.options.clone();
            let kept = options(&before).filter_map(|option| change(option.expect("our own options")));
            segment.options = option_bytes(kept).expect("no longer than before");
        }
        Fate::Pass
    });
}

fn no_eno(option: TcpOption<'_>) -> Option<TcpOption<'_>> {
    Some(option).filter(|option| !matches!(option, TcpOption::Eno(_)))
}

fn no_mptcp(option: TcpOption<'_>) -> Option<TcpOption<'_>> {
    Some(option).filter(|option| !matches!(option, TcpOption::Mptcp(_)))
}

fn version_1(option: TcpOption<'_>) -> Option<TcpOption<'_>> {
    Some(match option {
        TcpOption::Mptcp(MptcpOption::Capable(capable)) => {
            TcpOption::Mptcp(MptcpOption::Capable(plait_wire::MpCapable { version: 1, ..capable }))
        }
        other => other,
    })
}

type Change = fn(TcpOption<'_>) -> Option<TcpOption<'_>>;

fn outcome(policy: Policy, of: usize, change: Change) -> (World, Option<ConnectionError>) {
    let mut world = sealed(5, vec![Link::default()], &Tep::ALL);
    set_policy(&mut world, policy);
    meddle(&mut world, of, change);
    world.send(CLIENT, &pattern(10_000, 1)).send(SERVER, &pattern(10_000, 2)).connect();
    world.finish(100);
    let failed = world.sides[CLIENT].failed;
    (world, failed)
}

#[test]
fn whatever_is_stripped_from_the_syns_a_required_seal_is_refused_before_any_data() {
    let changes: [Change; 3] = [no_eno, no_mptcp, version_1];
    for of in [CLIENT, SERVER] {
        for change in changes {
            let (world, failed) = outcome(Policy::Require, of, change);
            assert!(failed.is_some());
            for side in [CLIENT, SERVER] {
                assert!(world.sides[side].received.is_empty() && !world.sides[side].ended);
            }
            let now = world.now;
            let has_told = |side: &Side| {
                let status = side.connection.as_ref().map(|connection| connection.status(now));
                status.and_then(|status| status.sealed).is_some_and(|sealed| sealed.failure.is_some())
            };
            assert!(world.sides.iter().any(has_told), "one side tells the reason");
        }
    }
}

#[test]
fn the_error_names_what_was_stripped() {
    let (mut world, failed) = outcome(Policy::Require, SERVER, no_eno);
    assert_eq!(failed, Some(ConnectionError::NotSealed));
    let failure = world.status(CLIENT).sealed.and_then(|sealed| sealed.failure).expect("a reason");
    assert!(failure.contains("TCP-ENO (kind 69)"), "{failure}");
}

#[test]
fn an_opener_that_is_refused_is_told_that_its_offer_may_have_been_stripped() {
    let changes: [Change; 3] = [no_eno, no_mptcp, version_1];
    for change in changes {
        let (mut world, failed) = outcome(Policy::Require, CLIENT, change);
        assert_eq!(failed, Some(ConnectionError::Refused));
        let failure = world.status(CLIENT).sealed.and_then(|sealed| sealed.failure).expect("a reason");
        assert!(failure.contains("stripped"), "{failure}");
    }
}

#[test]
fn where_less_is_allowed_a_peer_that_cannot_seal_gets_regular_multipath_tcp() {
    for side in [CLIENT, SERVER] {
        let mut world = sealed(5, vec![Link::default()], &Tep::ALL);
        set_policy(&mut world, Policy::Prefer);
        world.sides[side].config.protect = Protect::Plain;
        both_ways(&mut world, 100_000);
        for side in [CLIENT, SERVER] {
            let status = world.status(side);
            assert_eq!((status.negotiated, status.sealed), (REGULAR, None));
        }
        world.assert_clean_end();
    }
}

#[test]
fn where_it_is_required_a_peer_that_cannot_seal_gets_nothing() {
    for side in [CLIENT, SERVER] {
        let mut world = sealed(5, vec![Link::default()], &Tep::ALL);
        world.sides[side].config.protect = Protect::Plain;
        world.send(CLIENT, b"secret").send(SERVER, b"secret").connect();
        world.finish(100);
        assert!(world.sides[CLIENT].failed.is_some());
        assert!(world.sides.iter().all(|side| side.received.is_empty() && !side.ended));
    }
}

#[test]
fn half_a_seal_is_refused_even_where_less_is_allowed() {
    let changes: [Change; 2] = [no_eno, version_1];
    for change in changes {
        let (_, failed) = outcome(Policy::Prefer, SERVER, change);
        assert_eq!(failed, Some(ConnectionError::NotSealed));
    }
}

#[test]
fn a_list_of_handshakes_that_was_rewritten_on_the_way_is_found_before_data_is_delivered() {
    let mut world = sealed(5, vec![Link::default()], &[Tep::TcpcryptCurve25519, Tep::TcpcryptP256]);
    // 69, 4, 0x23, 0x21 becomes 69, 4, 0x21, 0x21: the better one is no longer on offer.
    world.tap = Box::new(|from, segment: &mut Segment| {
        let is_offer = options(&segment.options).any(|option| matches!(option, Ok(TcpOption::Eno(_))));
        if from == CLIENT && segment.flags.contains(Flags::SYN) && is_offer {
            let at = segment.options.iter().position(|&byte| byte == 0x23).expect("it is offered");
            segment.options[at] = 0x21;
        }
        Fate::Pass
    });
    world.send(CLIENT, &pattern(100_000, 1)).send(SERVER, &pattern(100_000, 2)).connect();
    world.finish(100);
    for side in [CLIENT, SERVER] {
        assert!(world.sides[side].received.is_empty() && !world.sides[side].ended);
    }
    assert!(
        world.sides.iter().any(|side| side.failed == Some(ConnectionError::NegotiationAltered)),
        "{:?} {:?}",
        world.sides[CLIENT].failed,
        world.sides[SERVER].failed
    );
}

#[test]
fn a_peer_that_never_finishes_its_handshake_is_dropped() {
    let mut world = sealed(5, vec![Link::default()], &[Tep::Tls13]);
    // Everything with payload from the client disappears: the server waits for the rest.
    world.tap = Box::new(
        |from, segment: &mut Segment| {
            if from == CLIENT && !segment.payload.is_empty() { Fate::Drop } else { Fate::Pass }
        },
    );
    world.connect();
    world.run(plait_base::Duration::from_secs(25), |world| world.sides[SERVER].events.len() > 2);
    world.wait(5_000);
    let closed = plait_mptcp::Event::Closed(Some(ConnectionError::HandshakeFailed));
    assert!(world.sides[SERVER].events.contains(&closed), "{:?}", world.sides[SERVER].events);
}

#[test]
fn a_server_with_another_key_than_the_pinned_one_gets_no_data() {
    let mut world = sealed(5, vec![Link::default()], &[Tep::Tls13]);
    let [_, other] = settings(&[Tep::Tls13], 77);
    world.sides[SERVER].config.protect = Protect::Sealed(other);
    world.send(CLIENT, b"secret").send(SERVER, b"").connect();
    world.finish(100);
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::HandshakeFailed));
    let failure = world.status(CLIENT).sealed.and_then(|sealed| sealed.failure).expect("a reason");
    assert!(failure.contains("SHA256:"), "{failure}");
    assert!(world.sides[SERVER].received.is_empty());
    // The alert is not overtaken by a reset: the server can say why it has lost a client.
    let told = world.status(SERVER).sealed.and_then(|sealed| sealed.failure).expect("a reason");
    assert!(told.contains("does not trust our certificate or key"), "{told}");
}

#[test]
fn lost_segments_of_the_opening_are_sent_again() {
    for lost in 0..12 {
        let mut world = sealed(6, vec![Link::default()], &[Tep::TcpcryptCurve25519]);
        let mut count = 0;
        world.tap = Box::new(move |_, _| {
            count += 1;
            if count == lost + 1 { Fate::Drop } else { Fate::Pass }
        });
        both_ways(&mut world, 5_000);
        assert_eq!(world.status(CLIENT).negotiated, SEALED);
        world.assert_clean_end();
    }
}

const TCPCRYPT: &[Tep] = &[Tep::TcpcryptCurve25519, Tep::TcpcryptP256];

#[test]
fn an_opener_that_pins_a_key_sends_nothing_to_a_server_that_proves_none() {
    let mut world = sealed(6, vec![Link::default()], &Tep::ALL);
    let Protect::Sealed(server) = &mut world.sides[SERVER].config.protect else { unreachable!("sealed") };
    server.teps = TCPCRYPT.to_vec();
    world.send(CLIENT, b"for the owner of the key alone").connect();
    world.finish(100);
    assert_eq!(
        world.sides[CLIENT].failed,
        Some(ConnectionError::Refused),
        "nothing was offered that it takes"
    );
    assert!(world.sides[SERVER].received.is_empty() && !world.sides[SERVER].ended);
}

#[test]
fn an_opener_that_pins_a_key_and_has_only_anonymous_handshakes_sends_no_syn() {
    let mut world = sealed(6, vec![Link::default()], &Tep::ALL);
    let Protect::Sealed(client) = &mut world.sides[CLIENT].config.protect else { unreachable!("sealed") };
    client.teps = TCPCRYPT.to_vec();
    world.send(CLIENT, b"for the owner of the key alone").connect();
    world.finish(100);
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::NotSealed));
    let status = world.status(CLIENT);
    assert!(status.sealed.is_some_and(|sealed| sealed.failure.is_some()), "it says why");
    assert!(world.sides[SERVER].received.is_empty());
}

#[test]
fn an_end_that_requires_post_quantum_keys_agrees_on_no_handshake_without_them() {
    for strict in [CLIENT, SERVER] {
        let mut world = sealed(6, vec![Link::default()], &Tep::ALL);
        let name = ServerName::try_from("gw.example.com").expect("a name");
        let key_exchanges = |side| if side == strict { KeyExchanges::PostQuantum } else { KeyExchanges::All };
        let opener = OpenerSettings::new(name, ServerTrust::AcceptNew);
        let opener = OpenerSettings { key_exchanges: key_exchanges(CLIENT), ..opener };
        let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
        let listener = ListenerSettings::new(identity);
        let listener = ListenerSettings { key_exchanges: key_exchanges(SERVER), ..listener };
        for (side, settings) in [
            (CLIENT, SealedSettings::opener(Arc::new(opener))),
            (SERVER, SealedSettings::listener(Arc::new(listener))),
        ] {
            let teps = if side == strict { Tep::ALL.to_vec() } else { TCPCRYPT.to_vec() };
            world.sides[side].config.protect = Protect::Sealed(SealedSettings { teps, ..settings });
        }
        world.send(CLIENT, b"for long").connect();
        world.finish(100);
        assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::Refused));
        assert!(world.sides[SERVER].received.is_empty() && !world.sides[SERVER].ended);
    }
}

#[test]
fn a_listener_with_a_list_of_clients_takes_none_that_proves_nothing() {
    let mut world = sealed(6, vec![Link::default()], TCPCRYPT);
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let listener =
        ListenerSettings { clients: ClientPolicy::Authorised(Vec::new()), ..ListenerSettings::new(identity) };
    world.sides[SERVER].config.protect = Protect::Sealed(SealedSettings::listener(Arc::new(listener)));
    world.send(CLIENT, b"let me in").send(SERVER, b"for those on the list").connect();
    world.finish(100);
    assert!(world.sides[CLIENT].failed.is_some());
    for side in [CLIENT, SERVER] {
        assert!(world.sides[side].received.is_empty() && !world.sides[side].ended);
    }
}
