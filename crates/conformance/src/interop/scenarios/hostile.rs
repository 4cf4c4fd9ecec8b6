//! Bad input: the subject counts and drops it, or answers with the reset the RFC asks for, and goes on.

use std::time::Duration;

use anyhow::{Result, ensure};
use plait_netns::nft::Table;

use super::crowd::Standing;
use crate::interop::peer::CrowdReport;
use crate::interop::scenario::{Context, SERVER, Scenario, Verdict};
use crate::interop::session::interop;
use plait_lab::wired::{Shape, Testbed};
use plait_lab::{End, Program};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "syn-flood",
        about: "SYNs that nobody follows up: bounded memory, and honest connections still come up",
        roles: SERVER,
        run: |context| {
            let count = if context.is_quick() { "5000" } else { "50000" };
            attack(context, "flood", &["--count", count])
        },
    },
    Scenario {
        name: "garbage",
        about: "malformed options, wrong versions, tokens, HMACs and mappings, 64 KiB of garbage",
        roles: SERVER,
        run: |context| {
            let rounds = if context.is_quick() { "2" } else { "8" };
            attack(context, "garbage", &["--rounds", rounds])
        },
    },
];

/// How much an attack may make the subject keep, in bytes.
const BOUND: u64 = 64 << 20;

fn attack(context: &Context<'_>, kind: &str, words: &[&str]) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let mut subject = Standing::start(context, &bed)?;
    subject.probe(context, &bed)?;
    let before = subject.program.resident_bytes()?;
    // The attacker's own kernel knows nothing of these connections and must not end them.
    let quiet = Table::install(
        &bed.client,
        "chain o { type filter hook output priority 0;\ntcp flags & rst == rst counter drop\n}",
    )?;
    let mut command = interop()?;
    command.arg(kind).arg(subject.address.to_string());
    command.args(["--from", &bed.client_address(context.family, 1).to_string()]).args(words);
    let mut attacker =
        Program::start(&bed.client, &context.run_directory()?, kind, command, End::Own, End::Own)?;
    let status = attacker.wait(Duration::from_secs(120))?;
    ensure!(status.success(), "the attack itself failed: {}", attacker.last_words());
    let report: CrowdReport = attacker.report()?;
    drop(quiet);
    ensure!(!subject.program.has_ended()?, "the subject died: {}", subject.program.last_words());
    let grown = subject.program.resident_bytes()?.saturating_sub(before);
    let honest = subject.probe(context, &bed)?;
    let text = format!(
        "{} segments in {:.1} s, {} connections refused; memory grew by {} KiB; then {} honest bytes in {:.0} ms, {:?}",
        report.completed,
        report.seconds,
        report.failed,
        grown / 1024,
        honest.sent,
        1000.0 * honest.seconds,
        honest.protocol
    );
    ensure!(grown <= BOUND, "{text}");
    Ok(Verdict::Passed(text))
}
