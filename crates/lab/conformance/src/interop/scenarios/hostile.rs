//! Bad input: the subject counts and drops it, or answers with the reset the RFC asks for, and goes on.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plait_bench::Spread;
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
        about: "SYNs without a third segment: bounded memory, and honest connections still come up",
        roles: SERVER,
        run: |context| {
            let count = if context.is_quick() { "5000" } else { "50000" };
            attack(context, "flood", &["--count", count])
        },
    },
    Scenario {
        name: "syn-flood-invented",
        about: "100 000 SYNs a second from invented addresses: honest connections open as fast as without",
        roles: SERVER,
        run: flooded,
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

/// SYNs a second, and connections that are opened one after the other meanwhile.
const RATE: u64 = 100_000;
const HONEST: u64 = 200;
/// The attacker has one of perhaps two processors: what it has to reach of that rate.
const LEAST_PART: f64 = 0.7;
/// Most time that the flood may add to an opening, in seconds, for all but one in twenty.
const MOST_DELAY: f64 = 0.2;

fn flooded(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let mut subject = Standing::start(context, &bed)?;
    // The source of these SYNs does not exist, and no router reports that.
    let _nobody = Table::install(
        &bed.server,
        "chain f { type filter hook forward priority 0\nip daddr 100.64.0.0/10 drop\nip6 daddr 2001:db8::/32 drop\n}\n\
         chain o { type filter hook output priority 0\nip daddr 100.64.0.0/10 drop\nip6 daddr 2001:db8::/32 drop\n}",
    )?;
    let (rate, honest, seconds) =
        if context.is_quick() { (RATE / 10, HONEST / 5, 4) } else { (RATE, HONEST, 10) };
    let quiet = openings(context, &bed, &subject, honest)?;
    let before = subject.program.resident_bytes()?;
    // Longer than the connections need, if they are not held up.
    let count = rate * seconds;
    let mut command = interop()?;
    command.arg("flood").arg(subject.address.to_string());
    command.args(["--from", &bed.client_address(context.family, 1).to_string()]);
    command.args(["--count", &count.to_string(), "--rate", &rate.to_string()]);
    let mut attacker =
        Program::start(&bed.client, &context.run_directory()?, "flood", command, End::Own, End::Own)?;
    std::thread::sleep(Duration::from_secs(1));
    let during = openings(context, &bed, &subject, honest)?;
    let is_in_time = !attacker.has_ended()? || !context.judges_time();
    ensure!(is_in_time, "the flood was over before: {}", attacker.last_words());
    ensure!(attacker.wait(Duration::from_secs(120))?.success(), "{}", attacker.last_words());
    let report: CrowdReport = attacker.report()?;
    ensure!(!subject.program.has_ended()?, "the subject died: {}", subject.program.last_words());
    let grown = subject.program.resident_bytes()?.saturating_sub(before);
    let words = |times: &Spread| {
        let high = times.percentile(95);
        format!(
            "{:.1} ms in the median, {high:.1} at the 95th percentile, {:.0} at most",
            times.median, times.most
        )
    };
    let text = format!(
        "{honest} connections one by one open in {}; under {:.0} SYNs a second in {}; memory grew by {} KiB",
        words(&quiet),
        report.completed as f64 / report.seconds,
        words(&during),
        grown / 1024
    );
    ensure!(grown <= BOUND, "{text}");
    let is_as_fast = report.completed as f64 / report.seconds >= LEAST_PART * rate as f64;
    ensure!(is_as_fast || !context.judges_time(), "no such flood; {text}");
    let delay = (during.percentile(95) - quiet.percentile(95)) / 1000.0;
    ensure!(delay <= MOST_DELAY || !context.judges_time(), "{text}");
    Ok(Verdict::Passed(text))
}

/// How long honest connections take to open, in milliseconds.
fn openings(context: &Context<'_>, bed: &Testbed, subject: &Standing, count: u64) -> Result<Spread> {
    let mut command = interop()?;
    command.arg("churn").arg(subject.address.to_string()).args(["--parallel", "1"]);
    command.args(["--count", &count.to_string()]);
    if !context.is_baseline() {
        command.arg("--echo");
    }
    let mut clients =
        Program::start(&bed.client, &context.run_directory()?, "churn", command, End::Own, End::Own)?;
    clients.wait(Duration::from_secs(300))?;
    let report: CrowdReport = clients.report()?;
    ensure!(report.failed == 0, "{} of {count} failed: {:?}", report.failed, report.error);
    Spread::of(report.openings.iter().map(|seconds| 1e3 * seconds)).context("no connection has opened")
}

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
