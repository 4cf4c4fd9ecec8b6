//! Many connections through one `plait serve` over UDP to an ordinary service: its memory and descriptors before, meanwhile and after, and
//! its behaviour at the limit of open files.

use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plait_lab::wired::{PATHS, Shape, Testbed, device};
use plait_lab::{End, Program, wait_until};
use serde::Deserialize;

use crate::interop::scenario::{CLIENT, Context, Scenario, Verdict};
use crate::interop::session::PORT;

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "crowd-udp",
        about: "10 000 sealed connections at once through `plait serve` over UDP, then one after another, then at once three times more: memory and descriptors",
        roles: CLIENT,
        run: crowd,
    },
    Scenario {
        name: "crowd-udp-few-files",
        about: "more connections than `plait serve` may open files for: it says so, serves the others, and does not spin",
        roles: CLIENT,
        run: few_files,
    },
];

/// The service that clients are forwarded to.
const SERVICE: &str = "127.0.0.1:7000";
/// Programs that the clients are: each has a socket for each of its subflows, and a limit of its own.
const CLIENTS: usize = 2;
const START: Duration = Duration::from_secs(60);
/// Time limit of a step for all connections; it only prevents an endless wait.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// How long descriptors may take to be closed after the last byte.
const SETTLE: Duration = Duration::from_secs(20);
/// Most memory of a connection that is open and carries nothing, with two subflows, and what `serve` takes for all of them together: buffers for
/// what is on its way.
const EACH: f64 = 48.0 * 1024.0;
const TOGETHER: f64 = 16.0 * MIB;
/// How often all come at once. What is free again stays with the process and has to fit the next, which takes some waves to settle.
const WAVES: usize = 4;
/// Most growth of the last wave over the one before it, in addition to [`SLACK`]: 10,000 connections that each leak a KiB are detected.
const GROWTH: f64 = 0.01;
const SLACK: f64 = MIB;

const MIB: f64 = (1 << 20) as f64;
const ONE_CARRIER: &str = "the kernel has one carrier";

fn crowd(context: &Context<'_>) -> Result<Verdict> {
    let Some(plait) = context.plait() else { return Ok(Verdict::NotApplicable(ONE_CARRIER)) };
    let count = if context.is_quick() { 300 } else { 10_000 };
    let bed = Testbed::new(Shape::Routed)?;
    let mut world = World::start(context, &bed, plait, count, 16_384)?;
    let before = world.fresh;
    let (open, talked) = (world.all("open", count)?, world.all("talk", count)?);
    let (closed, row) = (world.all("close", 0)?, world.all("row", 0)?);
    let mut waves = vec![(open.serve, closed.serve)];
    while waves.len() < WAVES {
        waves.push((world.all("open", count)?.serve, world.all("close", 0)?.serve));
    }
    let each = open.serve.resident.saturating_sub(before.resident) as f64 / count as f64;
    let later = waves[1..].iter().map(|(open, closed)| format!("open {open}, closed {closed}"));
    let text = format!(
        "{count} connections at once, {} subflows, all sealed; as many one after another; as many at once {} times more\n\
         serve, before: {before}; open: {}, {:.1} KiB for each connection; closed: {}\n\
         one after another: {}\n\
         at once again: {}\n\
         {CLIENTS} clients together, open: {}; closed: {}",
        open.subflows.max(talked.subflows),
        WAVES - 1,
        open.serve,
        each / 1024.0,
        closed.serve,
        row.serve,
        later.collect::<Vec<_>>().join("; "),
        open.clients,
        closed.clients,
    );
    // A join may be on its way still.
    ensure!(talked.subflows >= count * 2 * 99 / 100, "connections lack their second subflow; {text}");
    for (open, _) in &waves {
        // One descriptor for each connection to the service, and none for the datagrams of any.
        let descriptors = before.descriptors + count;
        ensure!(open.descriptors == descriptors, "{descriptors} descriptors are needed; {text}");
        let limit = before.resident as f64 + TOGETHER + EACH * count as f64;
        ensure!(open.resident as f64 <= limit, "more than {:.1} MiB; {text}", limit / MIB);
    }
    for closed in waves.iter().map(|(_, closed)| closed).chain([&row.serve]) {
        ensure!(closed.descriptors <= before.descriptors, "descriptors are kept; {text}");
    }
    let most = |(open, closed): (Held, Held)| open.resident.max(closed.resident) as f64;
    let limit = most(waves[WAVES - 2]) * (1.0 + GROWTH) + SLACK;
    ensure!(most(waves[WAVES - 1]) <= limit, "memory is kept; {text}");
    Ok(Verdict::Passed(text))
}

fn few_files(context: &Context<'_>) -> Result<Verdict> {
    let Some(plait) = context.plait() else { return Ok(Verdict::NotApplicable(ONE_CARRIER)) };
    let bed = Testbed::new(Shape::Routed)?;
    let mut world = World::start(context, &bed, plait, FEW_CLIENTS, FEW_FILES)?;
    let mut lines = Vec::new();
    // As many as fit are served, the others reset: some files are left for status queries.
    let full = world.step("open")?;
    ensure!(
        (full.open, full.failed) == (FIT, FEW_CLIENTS - FIT),
        "{full:?}; serve: {}",
        world.serve.last_words()
    );
    ensure!(world.step("talk")?.failed == 0, "served clients go on");
    ensure!(world.answers(plait, &bed)?, "plait status has no answer");
    lines.push(format!("{FEW_FILES} files: {} of {FEW_CLIENTS} served, {}", full.open, world.idles()?));
    for text in [&format!("limit of open files, {FEW_FILES},"), "too many connections"] {
        ensure!(
            world.serve.errors().contains(text),
            "serve does not say `{text}`: {}",
            world.serve.last_words()
        );
    }
    world.step("close")?;
    world.settle()?;
    // The limit is lowered behind its back: each connection to the service fails.
    let fewer = world.fresh.descriptors + 50;
    world.allow(fewer)?;
    let full = world.step("open")?;
    ensure!((25..=60).contains(&full.open) && full.open + full.failed == FEW_CLIENTS, "{full:?}");
    ensure!(world.step("talk")?.failed == 0, "served clients go on");
    ensure!(
        !world.answers(plait, &bed)?,
        "no descriptor is left for a status query: the case is not the one meant"
    );
    lines.push(format!("{fewer} files: {} of {FEW_CLIENTS} served, {}", full.open, world.idles()?));
    let said = "Too many open files";
    ensure!(world.serve.errors().contains(said), "serve does not say `{said}`: {}", world.serve.last_words());
    world.step("close")?;
    world.allow(FEW_FILES)?;
    let again = world.step("open")?;
    ensure!(again.open == FIT && world.step("close")?.failed == 0, "{again:?}");
    ensure!(world.answers(plait, &bed)?, "plait status has no answer any more");
    world.settle()?;
    let after = world.serve.descriptors()?;
    ensure!(
        after <= world.fresh.descriptors,
        "descriptors: {} before, {after} after",
        world.fresh.descriptors
    );
    lines.push(format!(
        "{FEW_FILES} files again: {} served; descriptors {} before, {after} after",
        again.open, world.fresh.descriptors
    ));
    Ok(Verdict::Passed(lines.join("\n")))
}

/// Open files that a `serve` may have, clients that come, and those that fit: `serve` keeps 128 descriptors for everything else.
const FEW_FILES: usize = 400;
const FEW_CLIENTS: usize = 300;
const FIT: usize = FEW_FILES - 128;

/// The service, the server in front of it, and the clients.
struct World {
    clients: Vec<(Program, ChildStdin)>,
    /// Steps that were taken.
    steps: usize,
    serve: Program,
    fresh: Held,
    _service: Program,
}

impl World {
    /// `serve` may have so many open files at most, of which an ordinary shell allows 1024 to begin with.
    fn start(context: &Context<'_>, bed: &Testbed, plait: &Path, count: usize, files: usize) -> Result<Self> {
        let crowd = plait.with_file_name("crowd");
        ensure!(crowd.exists(), "{} is missing: scripts/interop builds it", crowd.display());
        let directory = context.run_directory()?;
        let mut command = Command::new(&crowd);
        command.args(["echo", SERVICE]);
        let mut service = Program::start(&bed.server, &directory, "service", command, End::Own, End::Own)?;
        service.wait_for_line("listening", START)?;
        let mut serve = serve(bed, plait, &directory, files)?;
        let url = serve.wait_for_output("plait://", START)?;
        let key = url.split_once('#').context("the URL has no key")?.1;
        let fresh = Held::of(&serve)?;
        let address = SocketAddr::new(bed.server_address(context.family, 1), PORT).to_string();
        let start = |number: usize| {
            let mut command = Command::new(&crowd);
            command.args(["connect", &address, key, &(count / CLIENTS).to_string()]);
            command.args(PATHS.map(device));
            let name = format!("client-{number}");
            let mut client = Program::start(&bed.client, &directory, &name, command, End::Pipe, End::Own)?;
            client.wait_for_line("ready", START)?;
            let steps = client.take_input().context("standard input is a pipe")?;
            Ok((client, steps))
        };
        let clients = (1..=CLIENTS).map(start).collect::<Result<_>>()?;
        Ok(Self { clients, steps: 0, serve, fresh, _service: service })
    }

    /// Makes the clients do a step, and waits until all have.
    fn step(&mut self, what: &str) -> Result<Report> {
        self.steps += 1;
        for (_, steps) in &mut self.clients {
            writeln!(steps, "{what}")?;
        }
        let mut sum = Report::default();
        for (client, _) in &mut self.clients {
            wait_until(&format!("the end of `{what}`"), TIMEOUT, || {
                ensure!(!client.has_ended()?, "the clients have ended: {}", client.last_words());
                ensure!(!self.serve.has_ended()?, "serve has ended: {}", self.serve.last_words());
                Ok(std::fs::read_to_string(client.output())?.matches('\n').count() == self.steps)
            })?;
            sum.add(client.report()?);
        }
        Ok(sum)
    }

    /// A step in which no connection fails, and so many are open after it.
    fn all(&mut self, what: &str, left: usize) -> Result<Done> {
        let report = self.step(what)?;
        let Report { open, sealed, subflows, failed, resident, descriptors, .. } = report;
        ensure!(
            (open, sealed, failed) == (left, left, 0),
            "{what}: {report:?}; serve: {}",
            self.serve.last_words()
        );
        if left == 0 {
            self.settle()?;
        }
        Ok(Done { serve: Held::of(&self.serve)?, clients: Held { resident, descriptors }, subflows })
    }

    /// Waits until `serve` has no more descriptors than at its start.
    fn settle(&self) -> Result<()> {
        let until = Instant::now() + SETTLE;
        while self.serve.descriptors()? > self.fresh.descriptors && Instant::now() < until {
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Limits the open files of `serve` from now on.
    fn allow(&self, files: usize) -> Result<()> {
        let [process, limit] =
            [format!("--pid={}", self.serve.pid()), format!("--nofile={files}:{FEW_FILES}")];
        let status = Command::new("prlimit").args([process, limit]).status()?;
        ensure!(status.success(), "prlimit: {status}");
        Ok(())
    }

    /// Whether `serve` answers status queries.
    fn answers(&self, plait: &Path, bed: &Testbed) -> Result<bool> {
        let mut command = Command::new(plait);
        command.args(["status", &self.serve.pid().to_string(), "--json"]);
        Ok(bed.server.enter(|| command.output())??.status.success())
    }

    /// Shows that `serve` does next to nothing while no data is sent.
    fn idles(&self) -> Result<String> {
        const WATCHED: Duration = Duration::from_secs(3);
        let before = ticks(self.serve.pid())?;
        sleep(WATCHED);
        let busy = Duration::from_millis(10 * (ticks(self.serve.pid())? - before));
        ensure!(busy < WATCHED / 10, "{busy:?} of processor time in {WATCHED:?} in which nothing happens");
        Ok(format!("{busy:?} of processor time in the next {WATCHED:?}"))
    }
}

/// Processor time of a process so far, in hundredths of a second (`USER_HZ`).
fn ticks(process: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in brackets may have spaces; user and system time are the 12th and 13th words behind it.
    let (_, behind) = stat.rsplit_once(')').context("not a stat")?;
    let words: Vec<_> = behind.split_whitespace().skip(11).take(2).map(str::parse::<u64>).collect();
    words.into_iter().try_fold(0, |sum, word| Ok(sum + word?))
}

fn serve(bed: &Testbed, plait: &Path, directory: &Path, files: usize) -> Result<Program> {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={}:{files}", files.min(1024))).arg(plait);
    command.args([
        "serve",
        "--listen",
        &PORT.to_string(),
        "--forward",
        SERVICE,
        "--anyone",
        "--carrier",
        "udp",
    ]);
    command.args(["--max-connections", "12000", "--keys"]).arg(directory.join("keys"));
    for path in PATHS {
        command.args(["--path", &device(path)]);
    }
    Ok(Program::start(&bed.server, directory, "serve", command, End::Own, End::Own)?)
}

/// The report of the clients after a step.
#[derive(Debug, Default, Deserialize)]
struct Report {
    open: usize,
    sealed: usize,
    subflows: usize,
    failed: usize,
    error: Option<String>,
    resident: u64,
    descriptors: usize,
}

impl Report {
    /// Another program's.
    fn add(&mut self, other: Self) {
        let Self { open, sealed, subflows, failed, error, resident, descriptors } = other;
        self.open += open;
        self.sealed += sealed;
        self.subflows += subflows;
        self.failed += failed;
        self.error = self.error.take().or(error);
        self.resident += resident;
        self.descriptors += descriptors;
    }
}

/// The state after a step.
struct Done {
    serve: Held,
    clients: Held,
    subflows: usize,
}

/// The memory and descriptors of a program.
#[derive(Clone, Copy, Debug)]
struct Held {
    resident: u64,
    descriptors: usize,
}

impl Held {
    fn of(program: &Program) -> Result<Self> {
        Ok(Self { resident: program.resident_bytes()?, descriptors: program.descriptors()? })
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident, descriptors } = *self;
        write!(f, "{:.1} MiB and {descriptors} descriptors", resident as f64 / MIB)
    }
}
