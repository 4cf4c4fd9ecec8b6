//! Scrambled connections between two hosts that both run `plait`, and what an eavesdropper on the untrusted path makes of them.

mod eavesdropper;
mod pair;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plait_bench::Rounds;
use plait_lab::{Conditions, Lab, LabConfig, PathClass, PathConfig};
use plait_netns::Link;

use super::throughput::{both, pairs};
use crate::interop::scenario::{CLIENT, Context, Scenario, Verdict};
use crate::interop::session::PORT;
use pair::Pair;
use plait_lab::wired::{Shape, Testbed};
use plait_lab::{End, Program};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "scramble-both-ways",
        about: "two plaits, scrambled, both ways at once over two paths that lose and reorder, one of them lost for a while",
        roles: CLIENT,
        run: |context| both_ways(context, Carrier::Auto),
    },
    Scenario {
        name: "scramble-stall",
        about: "the trusted path is jammed: nothing goes over the other one until it works again",
        roles: CLIENT,
        run: |context| stall(context, Carrier::Auto),
    },
    Scenario {
        name: "scramble-degrade",
        about: "the trusted path is gone and the user allows that: the other one carries all, with a loud warning",
        roles: CLIENT,
        run: |context| degrade(context, Carrier::Auto),
    },
    Scenario {
        name: "scramble-both-ways-udp",
        about: "scramble-both-ways over UDP",
        roles: CLIENT,
        run: |context| both_ways(context, Carrier::Udp),
    },
    Scenario {
        name: "scramble-stall-udp",
        about: "scramble-stall over UDP",
        roles: CLIENT,
        run: |context| stall(context, Carrier::Udp),
    },
    Scenario {
        name: "scramble-degrade-udp",
        about: "scramble-degrade over UDP",
        roles: CLIENT,
        run: |context| degrade(context, Carrier::Udp),
    },
    Scenario {
        name: "scramble-throughput",
        about: "two plaits: goodput scrambled as a share of plain, in turns",
        roles: CLIENT,
        run: throughput,
    },
    Scenario {
        name: "scramble-eavesdropper",
        about: "a capture of the untrusted path: text in plain mode, none scrambled, and what the attack reads",
        roles: CLIENT,
        run: eavesdropper::run,
    },
];

const TIMEOUT: Duration = Duration::from_secs(300);
const NOT_US: Verdict = Verdict::NotApplicable("the kernel does not scramble");
/// The share of the plain goodput that is asked for.
const RATIO_GOAL: f64 = 0.9;

/// The carrier of the segments.
#[derive(Clone, Copy)]
enum Carrier {
    /// As plait chooses where the network takes both: TCP.
    Auto,
    Udp,
}

impl Carrier {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Auto => &[],
            Self::Udp => &["--carrier", "udp"],
        }
    }
}

/// Starts `plait` with words common to all scenarios.
fn plait(context: &Context<'_>, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(context.plait().context("only plait scrambles")?);
    command.args(words).env_remove("RUST_LOG");
    Ok(command)
}

/// Two paths alike over the emulator: `a`, which is trusted, and `b`.
fn two_paths(conditions: &Conditions) -> Result<Lab> {
    let path = |name, class| PathConfig::new(name, class, conditions.clone());
    let paths = vec![path("a", PathClass::Trusted), path("b", PathClass::Untrusted)];
    Ok(Lab::up(LabConfig { paths, memory: 0, ..LabConfig::default() })?)
}

/// Bytes on the wire that both paths have delivered, both ways.
fn delivered(lab: &Lab) -> Result<u64> {
    let mut bytes = 0;
    for path in lab.paths() {
        let seen = path.summary()?;
        bytes += seen.carried_to_server.delivered_bytes + seen.carried_to_client.delivered_bytes;
    }
    Ok(bytes)
}

fn both_ways(context: &Context<'_>, carrier: Carrier) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(NOT_US);
    }
    let troubled = Conditions {
        loss: 0.0005,
        reordering: 0.01,
        reordering_delay: Duration::from_millis(3),
        ..Conditions::megabits(1000, 1)
    };
    let lab = two_paths(&troubled)?;
    let bytes = context.size();
    let mut pair = Pair::start(context, &lab, carrier.options(), [bytes, bytes])?;
    pair.wait_until("a third of the bytes", || Ok(delivered(&lab)? > 2 * bytes / 3))?;
    lab.path("b")?.cut()?;
    pair.wait_until("two thirds of the bytes", || Ok(delivered(&lab)? > 4 * bytes / 3))?;
    lab.path("b")?.restore()?;
    pair.finish()?;
    let (mut lost, mut reordered, mut cut) = (0, 0, 0);
    for path in lab.paths() {
        let seen = path.summary()?;
        for way in [seen.carried_to_server, seen.carried_to_client] {
            (lost, reordered, cut) = (lost + way.dropped, reordered + way.reordered, cut + way.cut);
        }
    }
    ensure!(
        lost > 0 && reordered > 0 && cut > 0,
        "the paths were too kind: {lost} lost, {reordered} reordered, {cut} on the dead path"
    );
    let each = bytes >> 20;
    Ok(Verdict::Passed(format!(
        "{each} MiB each way, SHA-256 equal; {lost} packets lost, {reordered} overtaken, {cut} on the path while it was dead"
    )))
}

/// Bytes that the client sends where the trusted path goes away: some seconds over both paths.
const LONG_ENOUGH: u64 = 50_000_000;
/// For how long nothing may be sent.
const WATCHED: Duration = Duration::from_secs(3);

fn stall(context: &Context<'_>, carrier: Carrier) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(NOT_US);
    }
    let lab = two_paths(&Conditions::megabits(100, 5))?;
    let (trusted, untrusted) = (lab.path("a")?, lab.path("b")?);
    let mut pair = Pair::start(context, &lab, carrier.options(), [LONG_ENOUGH, 0])?;
    pair.wait_until("a third of the bytes", || Ok(delivered(&lab)? > LONG_ENOUGH / 3))?;
    trusted.cut()?;
    pair.client().wait_for_line("no trusted path works: nothing is sent", TIMEOUT)?;
    let before = untrusted.summary()?.to_server.payload;
    ensure!(before > 0, "nothing crossed the untrusted path before");
    std::thread::sleep(WATCHED);
    let leaked = untrusted.summary()?.to_server.payload - before;
    ensure!(leaked == 0, "{leaked} bytes crossed the untrusted path while the trusted one was jammed");
    trusted.restore()?;
    pair.client().wait_for_line("a trusted path works again", TIMEOUT)?;
    let client = pair.finish()?;
    ensure!(client.contains("\"bytes_degraded\":0"), "the client was degraded: {client}");
    Ok(Verdict::Passed(format!(
        "{} bytes over the untrusted path, then none in {} s, then the rest; SHA-256 equal",
        before,
        WATCHED.as_secs()
    )))
}

fn degrade(context: &Context<'_>, carrier: Carrier) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(NOT_US);
    }
    let lab = two_paths(&Conditions::megabits(100, 5))?;
    let words = [carrier.options(), &["--untrusted-only", "degrade"]].concat();
    let mut pair = Pair::start(context, &lab, &words, [LONG_ENOUGH, 0])?;
    pair.wait_until("a third of the bytes", || Ok(delivered(&lab)? > LONG_ENOUGH / 3))?;
    ensure!(!pair.client().errors().contains("WARNING"), "it warns without need");
    Link::existing(lab.client().namespace(), "a")?.down()?;
    pair.client().wait_for_line("UNTRUSTED PATHS CARRY EVERYTHING", TIMEOUT)?;
    let client = pair.finish()?;
    let bytes = client.split("\"bytes_degraded\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    let degraded: u64 = bytes.and_then(|bytes| bytes.parse().ok()).context("the status does not tell")?;
    ensure!(degraded > LONG_ENOUGH / 4, "only {degraded} bytes crossed the untrusted path alone");
    Ok(Verdict::Passed(format!(
        "{degraded} of {LONG_ENOUGH} bytes over the untrusted path alone, and a warning; SHA-256 equal"
    )))
}

fn throughput(context: &Context<'_>) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(NOT_US);
    }
    let bed = Testbed::new(Shape::Routed)?;
    let directory = context.run_directory()?;
    let bytes = context.size();
    let input = directory.join("input");
    fs::write(&input, vec![0x6b; usize::try_from(bytes)?])?;
    let pairs = pairs(context);
    let speeds = Rounds::of(pairs).take_turns(["plain", "scramble"], |protect, _| {
        one_transfer(context, &bed, (&directory, &input), bytes, protect)
    })?;
    fs::remove_file(&input)?;
    let [plain, scrambled] = both(speeds)?;
    let ratio = scrambled.ratio_to(&plain).context("a transfer took no time")?;
    // What else the machine does only ever makes a transfer slower: the best of each are the least disturbed.
    let text = format!(
        "ratio {:.2} (from {:.2} to {:.2}, of the best {:.2}) in {pairs} pairs; medians {:.2} GB/s \
         scrambled, {:.2} plain; the paper: 0.83",
        ratio.median,
        ratio.least,
        ratio.most,
        scrambled.most / plain.most,
        scrambled.median,
        plain.median,
    );
    ensure!(ratio.median >= RATIO_GOAL, "{text}");
    Ok(Verdict::Passed(text))
}

/// GB/s from the client to the server, from the start of the client to the end of both.
fn one_transfer(
    context: &Context<'_>,
    bed: &Testbed,
    (directory, input): (&Path, &Path),
    bytes: u64,
    protect: &str,
) -> Result<f64> {
    let (port, address) = (PORT.to_string(), bed.server_address(context.family, 1).to_string());
    let common = ["--path", "p1", "--path", "p2", "--protect", protect];
    let command = plait(context, &[&["listen", &port][..], &common].concat())?;
    let sink = End::Given(Stdio::null());
    let mut server = Program::start(&bed.server, directory, "server", command, End::Own, sink)?;
    server.wait_for_line("listening", Duration::from_secs(60))?;
    let command = plait(context, &[&["connect", &address, &port][..], &common].concat())?;
    let source = End::Given(File::open(input)?.into());
    let began = Instant::now();
    let mut client = Program::start(&bed.client, directory, "client", command, source, End::Own)?;
    let until = Instant::now() + TIMEOUT;
    for end in [&mut client, &mut server] {
        let status = end.wait_by(until)?;
        ensure!(status.success(), "one end failed: {}", end.last_words());
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64() / 1e9)
}
