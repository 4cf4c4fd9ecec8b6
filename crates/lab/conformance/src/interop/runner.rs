//! The selection of scenarios, their roles and address families.

use anyhow::Result;
use clap::Args;

use crate::interop::scenario::{Context, Scenario, Settings, all};
use crate::runner::{self, Case};
use plait_lab::wired::Family;

/// Bytes of transfers over paths without a rate limit, for CI.
const SMALL: u64 = 32 << 20;

/// The selection of scenarios and their settings.
#[derive(Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    common: runner::Options,
    /// Each scenario in each role over one family only, IPv4 and IPv6 in turn: half the time.
    #[arg(long)]
    alternate: bool,
    /// The kernel on both sides: shows that the scenarios hold for a peer known to be good.
    #[arg(long)]
    baseline: bool,
}

/// Prints the names.
pub(crate) fn list() {
    for Scenario { name, about, roles, run: _ } in all() {
        let roles: Vec<&str> = roles.iter().map(|role| role.name()).collect();
        println!("{name:<24} {:<14} {about}", roles.join(" "));
    }
}

/// Runs the selected scenarios; returns false if a scenario failed.
pub(crate) fn run(selection: &Selection) -> Result<bool> {
    let Selection { common, alternate, baseline } = selection;
    let plait = if *baseline { None } else { Some(common.plait()?) };
    let settings = Settings { plait, quick: common.quick, size: common.size(SMALL) };
    let settings = &settings;
    let capture = common.keeps();
    let mut cases = Vec::new();
    for (index, scenario) in all().into_iter().enumerate() {
        for (turn, &role) in (index..).zip(scenario.roles) {
            let in_turn = [Family::BOTH[turn % 2]];
            for &family in if *alternate { &in_turn[..] } else { &Family::BOTH[..] } {
                let column = format!("{} {}", role.name(), family.name());
                let run = scenario.run;
                cases.push(Case {
                    name: format!("{} {column}", scenario.name),
                    row: scenario.name.to_owned(),
                    column,
                    is_quick: true,
                    run: Box::new(move |directory| {
                        run(&Context::new(settings, role, family, directory, capture))
                    }),
                });
            }
        }
    }
    runner::run(common, cases)
}
