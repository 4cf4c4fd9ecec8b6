//! A listener that refuses an opener after the handshake: the opener learns the reason, and no state is kept for it.

mod sealing;
mod world;

use core::net::SocketAddr;
use plait_base::{Random, SeededRandom};
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust};
use plait_mptcp::{ConnectionError, Event, PeerIdentity, Protect, RefusalReason, SealedSettings};
use plait_protect::handshake::{Failed, Handshake, Handshakes, Introduction, Peer, Tep, Transcript};
use std::sync::Arc;
use world::{CLIENT, Link, PORT, SERVER, World, address, pattern};

/// A listener that takes the owner of one key, and tells all others this.
#[derive(Debug)]
struct Door {
    settings: ListenerSettings,
    welcome: [u8; 32],
    reason: RefusalReason,
}

impl Handshakes for Door {
    fn allows(&self, tep: Tep) -> bool {
        self.settings.allows(tep)
    }

    fn begin(
        &self,
        tep: Tep,
        transcript: &Transcript,
        introduction: &Introduction,
        random: &mut dyn Random,
        unix_time: u64,
    ) -> Result<Box<dyn Handshake>, Failed> {
        self.settings.begin(tep, transcript, introduction, random, unix_time)
    }

    fn log_share(&self, session_id: &[u8; 33], agreed: &[u8]) {
        self.settings.log_share(session_id, agreed);
    }

    fn admits(&self, peer: &Peer) -> bool {
        self.settings.admits(peer)
    }

    fn judge(&self, peer: &Peer, remote: SocketAddr) -> Result<(), RefusalReason> {
        assert_eq!(remote.ip(), address(0, CLIENT), "the path of the handshake");
        assert_ne!(remote.port(), PORT);
        match peer {
            Peer::Key { fingerprint, .. } if *fingerprint == self.welcome => Ok(()),
            Peer::Key { .. } | Peer::Anonymous | Peer::Certificate => Err(self.reason),
        }
    }
}

fn identity(seed: u64) -> Arc<Identity> {
    Arc::new(Identity::generate(&mut SeededRandom::from_number(seed)))
}

/// A client with the key made from `client`, and a server that takes the one made from 1.
fn world(client: u64, reason: RefusalReason, link: Link) -> World {
    let mut world = World::new(7, vec![link], 1);
    let (server, client) = (identity(100), identity(client));
    let trust = ServerTrust::Pinned(vec![server.public_key().fingerprint()]);
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let opener = OpenerSettings { identity: Some(client), ..OpenerSettings::new(name, trust) };
    let settings = ListenerSettings {
        clients: plait_handshake::ClientPolicy::AskForKey,
        ..ListenerSettings::new(server)
    };
    let welcome = *identity(1).public_key().fingerprint().as_bytes();
    let listener = SealedSettings::listener(Arc::new(Door { settings, welcome, reason }));
    world.sides[CLIENT].config.protect = Protect::Sealed(SealedSettings::opener(Arc::new(opener)));
    world.sides[SERVER].config.protect = Protect::Sealed(listener);
    world
}

fn expect_refusal(mut world: World, reason: RefusalReason) {
    world.send(CLIENT, &pattern(5000, 1)).send(SERVER, &pattern(5000, 2)).connect();
    world.wait(30_000);
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::RefusedByPeer(reason)));
    let sealed = world.status(CLIENT).sealed.expect("it was asked for");
    assert_eq!(sealed.failure, Some(reason.to_string()));
    assert!(sealed.suite.is_some(), "the refusal came under the keys");
    let PeerIdentity::Key { fingerprint, .. } = sealed.peer else { panic!("{:?}", sealed.peer) };
    let server = identity(100).public_key().fingerprint().to_string();
    assert_eq!(fingerprint, server, "the peer is still told");
    assert!(!world.sides[SERVER].events.contains(&Event::Connected), "the application is shown nothing");
    assert!(world.sides[CLIENT].received.is_empty());
    assert_eq!(world.status(CLIENT).bytes_delivered, 0, "nothing is acknowledged at data level");
    assert_eq!(world.sides[SERVER].host.claims, 0, "a refused opener takes no claim");
    assert!(world.of(SERVER).is_done(), "and is not kept");
}

#[test]
fn an_opener_that_is_refused_learns_why_and_takes_no_claim() {
    for reason in [
        RefusalReason::NotAuthorized,
        RefusalReason::Full,
        RefusalReason::Draining,
        RefusalReason::Expired,
        RefusalReason::TooMany,
        RefusalReason::Other,
    ] {
        expect_refusal(world(2, reason, Link::default()), reason);
    }
}

#[test]
fn it_learns_so_where_a_third_of_all_segments_is_lost() {
    let reason = RefusalReason::NotAuthorized;
    expect_refusal(world(2, reason, Link { loss: 0.3, ..Link::default() }), reason);
}

#[test]
fn the_one_that_may_have_a_connection_has_it() {
    let mut world = world(1, RefusalReason::NotAuthorized, Link::default());
    sealing::both_ways(&mut world, 5000);
    assert_eq!(world.sides[SERVER].host.claims, 1);
}

/// The refused opener ignores that, and keeps its attempt open as long as it can.
#[test]
fn an_opener_that_is_refused_learns_no_address_of_the_listener() {
    for (client, expected) in [(2, false), (1, true)] {
        let mut world = world(client, RefusalReason::NotAuthorized, Link::default());
        world.send(CLIENT, &pattern(500, 1)).connect();
        world.wait(30);
        // A path of the listener comes up.
        let now = world.now;
        let side = &mut world.sides[SERVER];
        side.host.paths.insert(world::path(3, SERVER));
        let connection = side.connection.as_mut().expect("it is open");
        connection.handle_paths(now, &mut side.host);
        let announced = address(3, SERVER);
        world.wait(200);
        let is_announced =
            world.sides[SERVER].connection.as_ref().is_some_and(|one| one.has_announced(announced));
        assert_eq!(is_announced, expected, "{client}");
    }
}
