//! Cost of a segment for a connection with further subflows: all but one are backups, and idle.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]

#[path = "../tests/sealing/mod.rs"]
mod sealing;
#[path = "../tests/world/mod.rs"]
mod world;

use plait_handshake::Tep;
use plait_wire::{Flags, Segment};
use std::cell::RefCell;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

const BATCH: u128 = 2000;
const BATCHES: usize = 25;

fn main() {
    println!("{:>8} {:>8} {:>16}", "subflows", "", "ns an ACK");
    for is_sealed in [false, true] {
        for subflows in [1, 8, 32] {
            let name = if is_sealed { "sealed" } else { "plain" };
            println!("{subflows:>8} {name:>8} {:>16}", cost(subflows, is_sealed));
        }
    }
}

/// Of an acknowledgment that says nothing new, for the first of so many subflows: taking it, asking what there is to send, and
/// when to come back. The quickest of all batches.
fn cost(subflows: usize, is_sealed: bool) -> u128 {
    let (mut world, ack) = connected(subflows, is_sealed);
    let mut costs = Vec::new();
    for _ in 0..BATCHES {
        let began = std::time::Instant::now();
        for _ in 0..BATCH {
            world.deliver(CLIENT, &ack);
            let _ = std::hint::black_box(world.of(CLIENT).poll_timeout());
        }
        costs.push(began.elapsed().as_nanos() / BATCH);
    }
    costs.into_iter().min().expect("there are batches")
}

/// Returns an idle connection with this many subflows, and the last acknowledgment that arrived at the client on the first one.
fn connected(subflows: usize, is_sealed: bool) -> (World, Segment) {
    let links = vec![Link::default(); subflows];
    let mut world = if is_sealed {
        sealing::sealed(1, links, &[Tep::TcpcryptCurve25519])
    } else {
        World::new(1, links, 1)
    };
    world.config(|config| config.max_subflows = subflows as u8);
    for number in 1..subflows {
        let mut path = world::path(number, CLIENT);
        path.backup = true;
        world.sides[CLIENT].host.paths.insert(path);
    }
    let last: Rc<RefCell<Option<Segment>>> = Rc::default();
    let seen = Rc::clone(&last);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        let is_first = segment.destination.ip() == world::address(0, CLIENT);
        if from == SERVER && is_first && segment.flags == Flags::ACK && segment.payload.is_empty() {
            *seen.borrow_mut() = Some(segment.clone());
        }
        Fate::Pass
    });
    world.connect();
    world.wait(2000);
    world.of(CLIENT).write(plait_base::Instant::ZERO, pattern(100_000, 1).into());
    world.serve(CLIENT);
    world.wait(2000);
    let usable = world.status(CLIENT).subflows.iter().filter(|one| one.usable).count();
    assert_eq!(usable, subflows, "all have joined");
    let ack = last.borrow().clone().expect("data was acknowledged");
    (world, ack)
}
