//! One run: `plait` towards a kernel with Multipath TCP, or the kernel's TCP in its place, and kernel TCP towards the same host, all at
//! once.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use plait_lab::wired::{Family, PATHS, Shape, Testbed, device};
use plait_lab::{End, Program, wait_until};

use super::sockets::{Received, Sockets};
use super::{Paths, Setting};
use crate::interop::session::interop;

/// The port that plait connects to.
const OURS: u16 = 5201;
/// And the kernel's TCP.
const RIVAL: u16 = 5202;
/// How long connections may take to be there.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The settings that are the same in all runs.
pub(crate) struct Conditions {
    pub(crate) plait: PathBuf,
    /// Of each bottleneck.
    pub(crate) megabits: u32,
    pub(crate) before: Duration,
    pub(crate) measured: Duration,
    /// How long plait is alone.
    pub(crate) late: Duration,
    /// Congestion control of the rivals.
    pub(crate) rival: String,
}

/// The throughput over one path, Mbit/s of payload.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Carried {
    /// By plait, or by what is in its place.
    pub(crate) plait: f64,
    /// Zero where there is no rival.
    pub(crate) rival: f64,
}

/// Measures the throughput of each path after the connections have reached a steady state.
pub(crate) fn run(setting: Setting, conditions: &Conditions, directory: &Path) -> Result<Vec<Carried>> {
    let (shape, paths, rivals) = match setting.paths() {
        Paths::One => (Shape::Routed, 1..=1, 1..=1),
        Paths::Two => (Shape::Routed, PATHS, PATHS),
        Paths::Shared => (Shape::Shared, PATHS, 1..=1),
    };
    let bed = Testbed::new(shape)?;
    bed.limit(conditions.megabits)?;
    bed.server.set_mptcp_limits(8, 0)?;
    // The paths here have no length. To a peer that near the kernel's TCP sends super-segments of 64 KiB, whatever the rate, and the token
    // bucket drops each of them whole: half of its queue. Over any path that has some length it sends what the rate gives in a millisecond.
    bed.client.set_sysctl("net.ipv4.tcp_tso_rtt_log", 0)?;
    let start = Start { bed: &bed, directory };
    let own = if setting == Setting::Control { ["tcp", "2"] } else { ["mptcp", "1"] };
    let mut servers = [
        start.server("ours", OURS, &["--socket", own[0], "--count", own[1]])?,
        start.server("rivals", RIVAL, &["--socket", "tcp", "--count", "2"])?,
    ];
    for server in &mut servers {
        server.wait_for_line("listening", TIMEOUT)?;
    }
    let mut clients = Vec::new();
    if setting == Setting::Control {
        for path in paths.clone() {
            clients.push(start.kernel("control", path, OURS, setting.congestion())?);
        }
    } else {
        clients.push(start.plait(&conditions.plait, setting, paths.clone())?);
    }
    let sockets = || Sockets::of(&bed.server);
    let has_begun = || anyhow::Ok(sockets()?.on(OURS).count() == paths.len());
    wait_until("a subflow over each path", TIMEOUT, has_begun)?;
    sleep(conditions.late);
    for path in rivals.clone() {
        clients.push(start.kernel("rival", path, RIVAL, &conditions.rival)?);
    }
    wait_until("the rivals", TIMEOUT, || anyhow::Ok(sockets()?.on(RIVAL).count() == rivals.len()))?;
    sleep(conditions.before);
    let (began, first) = (Instant::now(), sockets()?);
    sleep(conditions.measured);
    let (seconds, last) = (began.elapsed().as_secs_f64(), sockets()?);
    for client in &mut clients {
        ensure!(!client.has_ended()?, "{} has ended: {}", client.name(), client.last_words());
    }
    paths.map(|path| carried(&first, &last, bed.client_address(Family::V4, path), seconds)).collect()
}

fn carried(first: &Sockets, last: &Sockets, client: IpAddr, seconds: f64) -> Result<Carried> {
    let rate = |port| -> Result<f64> {
        let is_one = |one: &&Received| one.peer.ip() == client;
        let mut bytes = 0;
        for before in first.on(port).filter(is_one) {
            let after = last.on(port).find(|after| after.peer == before.peer);
            ensure!(after.is_some(), "the subflow from {} has ended", before.peer);
            bytes += after.map_or(0, |after| after.bytes) - before.bytes;
        }
        Ok(bytes as f64 * 8e-6 / seconds)
    };
    Ok(Carried { plait: rate(OURS)?, rival: rate(RIVAL)? })
}

/// Starts the programs of a run, which end with it.
struct Start<'a> {
    bed: &'a Testbed,
    directory: &'a Path,
}

impl Start<'_> {
    fn server(&self, name: &str, port: u16, words: &[&str]) -> Result<Program> {
        let mut command = interop()?;
        // The kernel takes no joins for a connection that one end has closed.
        command.args(["listen", &port.to_string(), "--no-hash", "--close-last"]).args(words);
        Ok(Program::start(&self.bed.server, self.directory, name, command, End::Own, End::Own)?)
    }

    fn plait(&self, plait: &Path, setting: Setting, paths: RangeInclusive<u8>) -> Result<Program> {
        let mut command = Command::new(plait);
        let server = self.bed.server_address(Family::V4, 1);
        command.args(["connect", &server.to_string(), &OURS.to_string(), "--protect", "plain"]);
        command.args(["--congestion", setting.congestion()]);
        for path in paths {
            command.args(["--path", &device(path)]);
        }
        let source = End::Given(File::open("/dev/zero")?.into());
        Ok(Program::start(&self.bed.client, self.directory, "plait", command, source, End::Own)?)
    }

    /// TCP of the kernel over one path.
    fn kernel(&self, name: &str, path: u8, port: u16, congestion: &str) -> Result<Program> {
        let to = SocketAddr::new(self.bed.server_address(Family::V4, path), port);
        let from = self.bed.client_address(Family::V4, path);
        let mut command = interop()?;
        command.args(["connect", &to.to_string(), "--from", &from.to_string()]);
        // The default of a namespace cannot be set everywhere.
        command.args(["--congestion", congestion]);
        // More than the connection can send in the time.
        command.args(["--socket", "tcp", "--no-hash", "--send", &(1_u64 << 40).to_string()]);
        let name = format!("{name}-{path}");
        Ok(Program::start(&self.bed.client, self.directory, &name, command, End::Own, End::Own)?)
    }
}
