//! Sealed connections: what they carry, agree on, refuse, and survive.
#![cfg(feature = "sealed")]

mod world;

use base::SeededRandom;
use handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use mptcp::{Negotiated, Protect, SealedSettings};
use std::sync::Arc;
use world::{CLIENT, Link, SERVER, World, pattern};

const SEALED: Negotiated = Negotiated::Multipath { version: 2, checksum: false };

fn settings(tep: Tep) -> [SealedSettings; 2] {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let trust = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let opener = SealedSettings::opener(Arc::new(OpenerSettings::new(name, trust)));
    let listener = SealedSettings::listener(Arc::new(ListenerSettings::new(identity)));
    [opener, listener].map(|settings| SealedSettings { teps: vec![tep], ..settings })
}

fn sealed(seed: u64, links: Vec<Link>, tep: Tep) -> World {
    let mut world = World::new(seed, links, 1);
    let [opener, listener] = settings(tep);
    world.sides[CLIENT].config.protect = Protect::Sealed(opener);
    world.sides[SERVER].config.protect = Protect::Sealed(listener);
    world
}

fn both_ways(world: &mut World, bytes: usize) {
    let (up, down) = (pattern(bytes, 1), pattern(bytes / 2, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.finish(120);
    for side in [CLIENT, SERVER] {
        let status = world.status(side);
        assert_eq!(world.sides[side].failed, None, "{side}: {status:?}");
    }
    for (side, data) in [(SERVER, up), (CLIENT, down)] {
        let status = world.status(side);
        let received = &world.sides[side].received;
        assert!(*received == data, "{side}: {} of {}, {status:?}", received.len(), data.len());
    }
}

#[test]
fn one_subflow_carries_both_directions_and_closes_cleanly() {
    for tep in Tep::ALL {
        let mut world = sealed(1, vec![Link::default()], tep);
        both_ways(&mut world, 1_000_000);
        for side in [CLIENT, SERVER] {
            let status = world.status(side);
            assert_eq!(status.negotiated, SEALED);
            let sealing = status.sealed.expect("it is sealed");
            assert_eq!((sealing.handshake, sealing.failure), (Some(tep.name()), None));
            assert_eq!(status.counters.blocks_failed, 0);
            assert_eq!(status.counters.forged_acks, 0);
        }
        world.assert_clean_end();
        assert_eq!(world.status(CLIENT).bytes_delivered, 1_000_000);
    }
}

#[test]
fn nothing_is_lost_when_segments_are() {
    for seed in 1..6 {
        let bad = Link { loss: 0.02, duplicate: 0.01, reorder: 0.05, ..Link::default() };
        let slow = Link { delay: base::Duration::from_millis(40), ..bad.clone() };
        let mut world = sealed(seed, vec![bad, slow], Tep::TcpcryptCurve25519);
        both_ways(&mut world, 400_000);
        world.assert_clean_end();
    }
}
