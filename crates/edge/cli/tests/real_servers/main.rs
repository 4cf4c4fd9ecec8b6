//! Unmodified programs against real servers behind `plait serve`, over two paths of which one dies in the middle;
//! then crowds of connections, and everything that can go wrong. One line each; `scripts/programs` runs it.
//!
//! Needs root and the programs that `scripts/setup --with-programs` installs. Arguments name the parts to run.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod browser;
mod crowds;
mod failures;
mod field;
mod outage;
mod servers;
mod service;
mod slow_reader;
#[path = "../support/mod.rs"]
mod support;
mod transfers;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use outage::Carried;

/// What can be shown, in order.
const PARTS: [(&str, fn()); 10] = [
    ("transfers", transfers::show),
    ("browser", browser::show),
    ("at-once", crowds::show_at_once),
    ("one-after-another", crowds::show_one_after_another),
    ("ipv6", transfers::show_ipv6),
    ("strangers", failures::show_strangers),
    ("unreachable", failures::show_unreachable),
    ("paths", failures::show_paths),
    ("slow-reader", slow_reader::show),
    ("service", service::show),
];

/// What is shown only if it is named: it takes a quarter of an hour.
const LONG_PARTS: [(&str, fn()); 1] = [("field", field::show)];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word != "--only").collect();
    let parts = || PARTS.into_iter().chain(LONG_PARTS.into_iter().filter(|_| !wanted.is_empty()));
    let is_unknown = |name: &&String| !parts().any(|(part, _)| part == *name);
    if let Some(unknown) = wanted.iter().find(is_unknown) {
        let known = parts().map(|(part, _)| part).collect::<Vec<_>>().join(" ");
        eprintln!("programs: there is no part {unknown}; there are {known}");
        return ExitCode::from(2);
    }
    let mut failed = Vec::new();
    for (name, show) in parts() {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        println!("\n{name}");
        // The panic has said what is wrong; the other parts are shown all the same.
        if catch_unwind(show).is_err() {
            println!("  FAILED: {name}");
            failed.push(name);
        }
    }
    if failed.is_empty() {
        println!("\neverything was as it should be");
        return ExitCode::SUCCESS;
    }
    println!("\nfailed: {}", failed.join(" "));
    ExitCode::FAILURE
}

/// One line: what was done, what came of it, how long it took.
fn line(what: &str, outcome: &str, took: Duration) {
    println!("  ok  {what:<28} {outcome}; {:.1} s", took.as_secs_f64());
}

/// The same with what each path has carried.
fn line_over_paths(what: &str, outcome: &str, started: Instant, carried: &Carried) {
    line(what, &format!("{outcome}; {carried}"), started.elapsed());
}

/// Two hosts with a server, or the end: this is run as root.
fn world(label: &str) -> support::World {
    support::World::new(label)
}
