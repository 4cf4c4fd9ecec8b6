//! Resumption: the ticket came in the first sealed block of an earlier connection to the same server.

mod listener;
mod raw_peer;
mod sealing;
mod world;

use listener::Listener;
use plait_handshake::Tep;
use plait_mptcp::{ConnectionError, Protect, SealedSettings, SealedStatus};
use plait_protect::handshake::Capability;
use plait_protect::sealed::{Kind, Record, SessionTicket};
use plait_wire::Segment;
use sealing::{assert_carried, settings};
use world::{CLIENT, Fate, Link, SERVER, World, address, pattern};

const TLS: &[Tep] = &[Tep::Tls13];

/// A world in which both have met with these settings, or will.
fn world_of(seed: u64, links: Vec<Link>, [opener, listener]: &[SealedSettings; 2]) -> World {
    let mut world = World::new(seed, links, 1);
    world.sides[CLIENT].config.protect = Protect::Sealed(opener.clone());
    world.sides[SERVER].config.protect = Protect::Sealed(listener.clone());
    world
}

/// Some bytes both ways; what both say of sealing.
fn converse(world: &mut World) -> [SealedStatus; 2] {
    let (up, down) = (pattern(30_000, 1), pattern(20_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.finish(200);
    assert_carried(world, &up, &down);
    [CLIENT, SERVER].map(|side| world.status(side).sealed.expect("sealed"))
}

/// Opens once more, and says whether the session was continued.
fn comes_back(seed: u64, both: &[SealedSettings; 2]) -> bool {
    let [client, server] = converse(&mut world_of(seed, vec![Link::default()], both));
    assert_eq!(client.is_resumed, server.is_resumed);
    client.is_resumed
}

/// Blocks and messages of the server, by the path of the client that they go to.
fn is_from_server(segment: &Segment, path: usize) -> bool {
    segment.source.ip() == address(0, SERVER)
        && segment.destination.ip() == address(path, CLIENT)
        && !segment.payload.is_empty()
}

#[test]
fn the_second_connection_to_a_server_takes_fewer_bytes_and_finds_the_same_peer() {
    let both = settings(TLS, 1);
    let first = converse(&mut world_of(1, vec![Link::default()], &both));
    let second = converse(&mut world_of(2, vec![Link::default()], &both));
    for side in [CLIENT, SERVER] {
        assert!(!first[side].is_resumed && second[side].is_resumed);
        assert_eq!(first[side].peer, second[side].peer);
        assert_eq!(second[side].key_exchange, Some("X25519MLKEM768"));
        let [before, after] = [&first, &second].map(|met| met[side].handshake_bytes.iter().sum::<u64>());
        println!("handshake: {before} bytes, then {after}");
        assert!(after < before, "{after} of {before} bytes");
    }
}

#[test]
fn a_server_that_announces_a_second_address_gives_a_ticket_before_it() {
    let both = settings(TLS, 1);
    let mut world = World::new(1, vec![Link::default(); 2], 2);
    world.sides[CLIENT].config.protect = Protect::Sealed(both[CLIENT].clone());
    world.sides[SERVER].config.protect = Protect::Sealed(both[SERVER].clone());
    converse(&mut world);
    let remotes: Vec<_> =
        world.status(CLIENT).subflows.iter().map(|subflow| subflow.tuple.remote.ip()).collect();
    assert!(remotes.contains(&address(1, SERVER)), "the second address was used: {remotes:?}");
    assert!(comes_back(2, &both));
}

#[test]
fn a_client_that_does_not_list_tickets_is_given_none() {
    let both = settings(TLS, 1);
    let mut world = world_of(1, vec![Link::default()], &both);
    let capabilities = &mut world.sides[CLIENT].host.introduction.capabilities;
    *capabilities = capabilities.without(Capability::Ticket);
    converse(&mut world);
    assert!(!comes_back(2, &both), "it has no ticket");
    assert!(comes_back(3, &both), "the second connection gave it one");
}

#[test]
fn a_ticket_that_is_altered_on_its_way_is_said_again() {
    let both = settings(TLS, 1);
    let mut world = world_of(1, vec![Link::default()], &both);
    let mut messages = 0;
    world.tap = Box::new(move |_, segment: &mut Segment| {
        if is_from_server(segment, 0) {
            messages += 1;
            // Behind the flight of the handshake: the block with the ticket, which it fills nearly.
            if (100..200).contains(&segment.payload.len()) && messages < 5 {
                let mut payload = segment.payload.to_vec();
                payload[40] ^= 1;
                segment.payload = payload.into();
            }
        }
        Fate::Pass
    });
    converse(&mut world);
    assert!(world.status(CLIENT).counters.blocks_failed > 0, "it was struck");
    assert!(comes_back(2, &both));
}

#[test]
fn tickets_arrive_over_paths_that_lose_repeat_and_reorder_and_where_others_seal_and_open() {
    let both = settings(TLS, 1);
    let bad = Link { loss: 0.05, duplicate: 0.05, reorder: 0.3, ..Link::default() };
    let mut resumed = 0;
    for seed in 0..12 {
        let mut world = world_of(seed, vec![bad.clone(); 2], &both);
        world.config(|config| config.crypto_jobs = (seed % 3) as u16);
        let [client, server] = converse(&mut world);
        assert_eq!(client.is_resumed, server.is_resumed);
        resumed += usize::from(client.is_resumed);
    }
    // A ticket may be used by an attempt that failed.
    assert!(resumed >= 6, "{resumed} of 12");
}

#[test]
fn an_opener_has_no_tickets_to_give() {
    let mut listener = Listener::open();
    let ticket = SessionTicket::new(&[7; 100]).expect("of a length that is fine");
    let block = listener.peer.block(Kind::Control, &Record::Ticket(ticket).to_bytes());
    listener.say(&block);
    assert_eq!(listener.world.sides[SERVER].failed, Some(ConnectionError::Protocol));
}

#[test]
fn tcpcrypt_has_nothing_to_continue() {
    let both = settings(&[Tep::TcpcryptCurve25519], 1);
    assert!(!comes_back(1, &both) && !comes_back(2, &both));
}
