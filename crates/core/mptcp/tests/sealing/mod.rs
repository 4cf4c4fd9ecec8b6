//! Settings for sealed connections, and a transfer over one.

#![allow(dead_code, reason = "no test file needs everything")]

use crate::world::{CLIENT, Link, SERVER, World, pattern};
use plait_base::SeededRandom;
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, Policy, ServerName, ServerTrust, Tep};
use plait_mptcp::{Negotiated, Protect, SealedSettings};
use std::sync::Arc;

pub(crate) const SEALED: Negotiated = Negotiated::Multipath { version: 2, checksum: false };

/// Returns an opener that pins the key made from `seed`, or accepts any server if `teps` are anonymous; and a listener with that key.
pub(crate) fn settings(teps: &[Tep], seed: u64) -> [SealedSettings; 2] {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(seed)));
    let proves_identity = teps.iter().any(|tep| tep.proves_identity());
    let pinned = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let trust = if proves_identity { pinned } else { ServerTrust::AcceptNew };
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let opener = SealedSettings::opener(Arc::new(OpenerSettings::new(name, trust)));
    let listener = SealedSettings::listener(Arc::new(ListenerSettings::new(identity)));
    [opener, listener].map(|settings| SealedSettings { teps: teps.to_vec(), ..settings })
}

pub(crate) fn sealed(seed: u64, links: Vec<Link>, teps: &[Tep]) -> World {
    let mut world = World::new(seed, links, 1);
    let [opener, listener] = settings(teps, 1);
    world.sides[CLIENT].config.protect = Protect::Sealed(opener);
    world.sides[SERVER].config.protect = Protect::Sealed(listener);
    world
}

pub(crate) fn set_policy(world: &mut World, policy: Policy) {
    for side in &mut world.sides {
        if let Protect::Sealed(settings) = &mut side.config.protect {
            settings.policy = policy;
        }
    }
}

pub(crate) fn both_ways(world: &mut World, bytes: usize) {
    let (up, down) = (pattern(bytes, 1), pattern(bytes / 2, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.finish(200);
    assert_carried(world, &up, &down);
}

/// Both have read all, and the end.
pub(crate) fn assert_carried(world: &mut World, up: &[u8], down: &[u8]) {
    for (side, data) in [(SERVER, up), (CLIENT, down)] {
        let status = world.status(side);
        let Some(of) = world.sides.get(side) else { unreachable!("there are two") };
        assert_eq!(of.failed, None, "{side}: {status:?}");
        assert!(of.received == data, "{side}: {} of {}, {status:?}", of.received.len(), data.len());
        assert!(of.ended, "{side}: {status:?}");
    }
}
