//! The throughput of the subject beside the kernel, on the same two veth pairs, in the same run.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plait_bench::{Rounds, Spread};

use crate::interop::peer::TransferReport;
use crate::interop::scenario::{BOTH, Context, Role, Scenario, Verdict};
use crate::interop::session::{PORT, Plan, configure_kernels, interop, plait_words};
use plait_lab::wired::{Shape, Testbed};
use plait_lab::{End, Program};

pub(crate) const ALL: &[Scenario] = &[Scenario {
    name: "throughput",
    about: "goodput of the subject as a share of the kernel's own, over two veth pairs",
    roles: BOTH,
    run: throughput,
}];

/// The share of the kernel's goodput that is asked for.
const GOAL: f64 = 0.5;

fn throughput(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Direct)?;
    // Long enough for both to find their window, whatever the other transfers' size.
    let bytes = 512 << 20;
    let input = Scratch::of_length(bytes)?;
    let kernel = context.as_baseline();
    let pairs = pairs(context);
    let systems = [&kernel, context];
    let speeds = Rounds::of(pairs).take_turns(systems, |context, _| one(context, &bed, &input.0, bytes))?;
    let [beside, subject] = both(speeds)?;
    let ratio = subject.ratio_to(&beside).context("a transfer took no time")?;
    // The kernel's own transfers stall now and then for its 200 ms timer; the best of each are without such stalls.
    let text = format!(
        "ratio {:.2} (from {:.2} to {:.2}, of the best {:.2}) in {pairs} pairs; medians {:.2} GB/s and the \
         kernel's {:.2}, best {:.2} and the kernel's {:.2}",
        ratio.median,
        ratio.least,
        ratio.most,
        subject.most / beside.most,
        subject.median,
        beside.median,
        subject.most,
        beside.most
    );
    ensure!(ratio.median >= GOAL || context.is_baseline() || !context.judges_time(), "{text}");
    Ok(Verdict::Passed(text))
}

/// A file in memory, gone on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn of_length(bytes: u64) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = directory.join(format!("plait-interop-{}", std::process::id()));
        let scratch = Self(path);
        let mut block = vec![0x6b; 1 << 20];
        let mut file = File::create(&scratch.0)?;
        for index in 0..bytes.div_ceil(1 << 20) {
            block[..8].copy_from_slice(&index.to_le_bytes());
            std::io::Write::write_all(&mut file, &block)?;
        }
        file.set_len(bytes)?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// One transfer from the client to the server out of a file, in GB/s: timed by the kernel's end, from the connection to its end.
fn one(context: &Context<'_>, bed: &Testbed, input: &Path, bytes: u64) -> Result<f64> {
    let plan = Plan::two_paths(context, bed);
    configure_kernels(context, bed, &plan)?;
    let directory = context.run_directory()?;
    let address = SocketAddr::new(bed.server_address(context.family, 1), PORT);
    let plait = |role| context.plait().filter(|_| context.role == role);
    let mut command = match plait(Role::Server) {
        Some(plait) => {
            let mut command = Command::new(plait);
            command.args(["listen", &PORT.to_string()]).args(plait_words(&plan));
            command
        }
        None => {
            let mut command = interop()?;
            command.args(["listen", &PORT.to_string(), "--no-hash"]);
            command
        }
    };
    let sink = match plait(Role::Server) {
        Some(_) => End::Given(Stdio::null()),
        None => End::Own,
    };
    command.env_remove("RUST_LOG");
    let mut server = Program::start(&bed.server, &directory, "server", command, End::Own, sink)?;
    server.wait_for_line("listening", Duration::from_secs(60))?;
    let (mut source, mut command) = (End::Own, interop()?);
    match plait(Role::Client) {
        Some(plait) => {
            source = End::Given(File::open(input)?.into());
            command = Command::new(plait);
            command.args(["connect", &address.ip().to_string(), &PORT.to_string()]).args(plait_words(&plan));
        }
        None => {
            command.arg("connect").arg(address.to_string()).arg("--no-hash").arg("--input").arg(input);
        }
    }
    let mut client = Program::start(&bed.client, &directory, "client", command, source, End::Own)?;
    let until = Instant::now() + Duration::from_secs(60);
    for end in [&mut client, &mut server] {
        let status = end.wait_by(until)?;
        ensure!(status.success(), "one end failed: {}", end.last_words());
    }
    let report: TransferReport =
        if context.role == Role::Client { server.report()? } else { client.report()? };
    ensure!(report.error.is_none() && report.sent + report.received == bytes, "incomplete: {report:?}");
    Ok(bytes as f64 / report.seconds / 1e9)
}

/// Rounds in which two systems take turns.
pub(super) fn pairs(context: &Context<'_>) -> NonZeroU32 {
    const QUICK: NonZeroU32 = NonZeroU32::new(3).expect("not zero");
    const FULL: NonZeroU32 = NonZeroU32::new(7).expect("not zero");
    if context.is_quick() { QUICK } else { FULL }
}

/// The spreads of two systems.
pub(super) fn both<S>(speeds: Vec<(S, Vec<f64>)>) -> Result<[Spread; 2]> {
    let spreads: Option<Vec<Spread>> = speeds.into_iter().map(|(_, speeds)| Spread::of(speeds)).collect();
    spreads.and_then(|spreads| spreads.try_into().ok()).context("two systems have two spreads")
}
