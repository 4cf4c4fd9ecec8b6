//! Golden captures: what more than a hundred simulated runs put on the wire is frozen.
//!
//! `captures.txt` holds a line for each scenario: its name, the SHA-256 of its capture, the number of packets, and one
//! mark (four hex digits of a running SHA-256) for every 32 packets, by which the place of a difference is found. A
//! refactoring keeps all of them. A change of behaviour on the wire freezes them again, in a commit that says why:
//!
//! ```text
//! PLAIT_GOLDEN=write cargo test -p plait-sim --test golden      # rewrites captures.txt
//! ```
//!
//! The ordinary run writes nothing but, when it fails, the captures that differ. To see the first packet that differs,
//! let the old commit keep its captures in the same target directory first:
//!
//! ```text
//! PLAIT_GOLDEN=keep cargo test -p plait-sim --test golden       # on the old commit
//! cargo test -p plait-sim --test golden                         # on the new one
//! ```
//!
//! The hash is that of the pcapng file, every byte of it, except where TLS makes the keys: rustls and AWS-LC draw hello
//! randoms and ephemeral keys from the operating system, so that no two runs have the same bytes. These scenarios are
//! hashed in the form of [`listing::outline`]: of each packet the time, path, addresses, flags, relative sequence
//! numbers, windows, payload length, and kinds and lengths of options, but no payload and no value in an MPTCP option.
//! Scrambled connections and those sealed with tcpcrypt draw all randomness from the seed and are hashed in full.
//!
//! Congestion control computes with floating point, by the crate `libm`: the hashes do not depend on the machine's library.

// The test reads and writes files.
#![allow(clippy::disallowed_methods)]

mod boxes;
mod connections;
mod datagrams;
mod dissector;
mod frozen;
mod listing;
mod scenario;
mod scrambled;
mod sealed;
mod strangers;

use std::env;

use frozen::{Frozen, Mode};
use plait_sim::{Element, Families};
use scenario::Scenario;

/// All scenarios; names are unique.
fn scenarios() -> Vec<Scenario> {
    let mut all = connections::scenarios();
    all.extend(boxes::scenarios());
    all.extend(strangers::scenarios());
    all.extend(scrambled::scenarios());
    all.extend(sealed::scenarios());
    all.extend(datagrams::scenarios());
    all
}

#[test]
fn every_capture_is_the_frozen_one() {
    let mode = Mode::from_environment(env::var("PLAIT_GOLDEN").ok().as_deref());
    let mut frozen = Frozen::read();
    let mut differences = Vec::new();
    for scenario in scenarios() {
        let capture = scenario.capture();
        match mode {
            Mode::Compare => differences.extend(frozen.compare(&capture)),
            Mode::Write => frozen.replace(&capture),
            Mode::Keep => frozen::keep(&capture),
        }
    }
    match mode {
        Mode::Compare => differences.extend(frozen.left_over(&scenarios())),
        Mode::Write => frozen.write(&scenarios()),
        Mode::Keep => {}
    }
    assert!(
        differences.is_empty(),
        "{} captures differ. If that is meant: PLAIT_GOLDEN=write, in a commit that says why.\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn there_are_enough_scenarios_and_each_has_its_own_name_and_packets() {
    let all = scenarios();
    let mut names: Vec<_> = all.iter().map(|scenario| scenario.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len(), "a name is used twice");
    assert!(all.len() >= 40, "{}", all.len());
    assert_eq!(Frozen::read().names(), names, "captures.txt has a line for each");
}

#[test]
fn one_packet_delivered_a_millisecond_later_is_another_capture() {
    let run = |scenario: &Scenario| {
        let held = scenario.capture_with(|pair| pair.chain_with(0, scenario::HoldBack::new(20)));
        let straight = scenario.capture_with(|pair| pair.chain_with(0, scenario::HoldBack::never()));
        (straight, held)
    };
    for name in ["one-path-v4", "scrambled-one-path", "tcpcrypt-one-path", "tls-one-path"] {
        let scenario = scenarios().into_iter().find(|scenario| scenario.name == name).expect("it exists");
        let (straight, held) = run(&scenario);
        assert_ne!(straight.hash, held.hash, "{name}");
        let place = frozen::first_difference(&straight.lines, &held.lines).expect("a packet differs");
        assert!(
            place >= 20,
            "{name}: nothing differs before the packet that was held back, but packet {place}"
        );
        assert_eq!(
            scenario.capture_with(|pair| pair.chain_with(0, scenario::HoldBack::never())).hash,
            straight.hash
        );
    }
}

/// Two paths, IPv4.
const TWO_V4: (usize, Families) = (2, Families::V4);
/// One path, IPv4.
const ONE_V4: (usize, Families) = (1, Families::V4);

/// A box in front of a plain link on each of the given paths.
fn on_paths<E: Element + 'static>(
    paths: impl IntoIterator<Item = usize> + Clone,
    element: impl Fn() -> E,
) -> impl Fn(&mut plait_sim::Pair) {
    move |pair| {
        for path in paths.clone() {
            pair.chain_with(path, element());
        }
    }
}
