//! The selection of attacks and how they run.

use anyhow::Result;
use clap::Args;

use crate::attacks::case::{Carrier, Case, Context, Family, Settings, Verdict, all};
use crate::bench::Measurement;
use crate::runner;

/// Bytes each way of a transfer under attack, for CI.
const SMALL: u64 = 8 << 20;

/// The cases that `--quick` also runs over UDP, a minute in all: an attacker on the bytes, on options, on the life of subflows, on the end
/// and on the opening, and an unknown peer.
const QUICK_OVER_UDP: [&str; 8] = [
    "one-path/flip",
    "one-path/replay",
    "one-path/rst",
    "one-path/split",
    "negotiation/strip-eno-require",
    "opening/synack-bare-first-both-tls",
    "zombie-subflows/idle-client-tls",
    "two-instances/tls",
];

/// The selection of cases and their settings.
#[derive(Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    common: runner::Options,
    #[command(flatten)]
    measurement: Measurement,
    /// Carrier of the segments [default: tcp, and with --quick some cases over UDP, too].
    #[arg(long, value_enum, value_name = "CARRIER")]
    carrier: Option<Carrier>,
    /// Over IPv6 instead of IPv4; services behind a proxy keep their addresses.
    #[arg(long)]
    ipv6: bool,
}

/// Prints the names.
pub(crate) fn list() {
    for Case { name, about, is_quick, needs_tcp: _, run: _ } in all() {
        println!("{name:<40} {} {about}", if is_quick { "quick" } else { "     " });
    }
}

/// Runs the selected cases; returns false if a case failed, or a goal was missed.
pub(crate) fn run(selection: &Selection) -> Result<bool> {
    let Selection { common, measurement, carrier, ipv6 } = selection;
    let settings = Settings {
        plait: common.plait()?,
        size: common.size(SMALL),
        judges_times: !common.quick,
        family: if *ipv6 { Family::V6 } else { Family::V4 },
        carrier: carrier.unwrap_or(Carrier::Tcp),
    };
    if let Some(measured) = measurement.run(&settings, common) {
        return measured;
    }
    let (cases, over_udp) = (all(), Settings { carrier: Carrier::Udp, ..settings.clone() });
    let as_usual = cases.iter().map(|case| listed_as(case, &case.name, case.is_quick, &settings));
    let quick_over_udp = cases
        .iter()
        .filter(|case| carrier.is_none() && QUICK_OVER_UDP.contains(&case.name.as_str()))
        .map(|case| listed_as(case, &format!("over-udp/{}", case.name.replace('/', "-")), true, &over_udp));
    runner::run(common, as_usual.chain(quick_over_udp).collect())
}

/// A case under a name, with these settings.
fn listed_as<'a>(case: &'a Case, name: &str, is_quick: bool, settings: &'a Settings) -> runner::Case<'a> {
    let (column, row) = name.split_once('/').unwrap_or(("", name));
    let is_possible = !(case.needs_tcp && settings.carrier == Carrier::Udp);
    runner::Case {
        name: name.to_owned(),
        row: row.to_owned(),
        column: column.to_owned(),
        is_quick,
        run: Box::new(move |directory| match is_possible {
            true => (case.run)(&Context { settings, directory }),
            false => Ok(Verdict::NotApplicable("the kernel takes part, which speaks TCP alone")),
        }),
    }
}
