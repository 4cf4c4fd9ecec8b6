//! One transfer between the two hosts: who runs what, and what came of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use netns::mptcp::{Endpoint, EndpointFlag};
use netns::{Counters, Namespace};
use nix::sys::signal::Signal;
use serde::Deserialize;

use crate::peer::{Protocol, TransferReport, sha256_of_pattern};
use crate::process::{End, Program, wait_until};
use crate::scenario::{Context, Role};
use crate::testbed::{PATHS, Testbed, device};

/// The port of every server.
pub(crate) const PORT: u16 = 5201;
/// What the client sends.
const SEED_UP: u64 = 0x75;
/// What the server sends.
const SEED_DOWN: u64 = 0x64;

/// How long one end may go on when the other is over.
const ALONE: Duration = Duration::from_secs(15);

/// How long an end may take to end after the other in a transfer without trouble: some round trips and retransmissions.
const LINGER: Duration = Duration::from_secs(3);

/// How the subject uses one of its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Regular,
    Backup,
}

/// What is to happen. "Subject" is the side of `plait`, "peer" the kernel.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Bytes from the client to the server.
    pub(crate) up: u64,
    /// Bytes from the server to the client.
    pub(crate) down: u64,
    /// The paths the subject may use.
    pub(crate) subject_paths: Vec<(u8, Use)>,
    /// The protocol of the peer's socket: `mptcp` or `tcp`.
    pub(crate) peer_socket: &'static str,
    /// Endpoints of the peer's path manager.
    pub(crate) peer_endpoints: Vec<Endpoint>,
    /// Whether the peer follows ADD_ADDR.
    pub(crate) peer_accepts_announced: bool,
    /// DSS checksums, at both ends.
    pub(crate) checksum: bool,
    /// The subject's scheduler, if not the default.
    pub(crate) scheduler: Option<&'static str>,
    /// More words for the peer's program.
    pub(crate) peer_words: Vec<String>,
    /// More words for the subject's program, if that is the kernel's.
    pub(crate) baseline_words: Vec<String>,
    /// In a baseline: the subject announces its second address, also as a client.
    pub(crate) subject_announces: bool,
    /// How long all of it may take.
    pub(crate) patience: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            up: 0,
            down: 0,
            subject_paths: vec![(1, Use::Regular)],
            peer_socket: "mptcp",
            peer_endpoints: Vec::new(),
            peer_accepts_announced: false,
            checksum: false,
            scheduler: None,
            peer_words: Vec::new(),
            baseline_words: Vec::new(),
            subject_announces: false,
            patience: Duration::from_secs(45),
        }
    }
}

impl Plan {
    /// A transfer over both paths: whoever is the client joins from its second address.
    pub(crate) fn two_paths(context: &Context<'_>, bed: &Testbed) -> Self {
        let mut plan = Self { subject_paths: vec![(1, Use::Regular), (2, Use::Regular)], ..Self::default() };
        if context.role == Role::Server {
            plan.peer_endpoints = vec![endpoint(context, bed, Role::Client, &[EndpointFlag::Subflow])];
        }
        plan
    }

    /// The same with these many bytes (up, down).
    pub(crate) fn moving(mut self, up: u64, down: u64) -> Self {
        (self.up, self.down) = (up, down);
        self
    }

    fn bytes_of(&self, role: Role) -> u64 {
        match role {
            Role::Client => self.up,
            Role::Server => self.down,
        }
    }
}

/// An endpoint for the second address of a host.
pub(crate) fn endpoint(context: &Context<'_>, bed: &Testbed, of: Role, flags: &[EndpointFlag]) -> Endpoint {
    let address = match of {
        Role::Client => bed.client_address(context.family, 2),
        Role::Server => bed.server_address(context.family, 2),
    };
    Endpoint { address, id: 2, device: Some(device(2)), port: None, flags: flags.to_vec() }
}

/// A transfer under way.
pub(crate) struct Session<'a> {
    bed: &'a Testbed,
    plan: Plan,
    role: Role,
    /// The kernel's end, or both.
    ends: [Side; 2],
    until: Instant,
    began_ms: u64,
    before: Counters,
    carried_before: Vec<(u64, u64)>,
    status_file: PathBuf,
    _captures: Vec<Program>,
}

/// One host's programs.
enum Side {
    /// A program on a kernel socket.
    Kernel(Program),
    /// `plait` between a source and a check of what comes out.
    Plait(Box<Piped>),
}

struct Piped {
    plait: Program,
    check: Program,
    /// It ends when its bytes are written; one that only keeps the pipe open, when it is told to.
    source: Program,
}

/// What came of a transfer.
pub(crate) struct Outcome {
    plan: Plan,
    pub(crate) client: TransferReport,
    pub(crate) server: TransferReport,
    role: Role,
    /// The peer's kernel counters over the transfer.
    pub(crate) counters: Counters,
    /// Bytes per path towards the (client, server).
    pub(crate) carried: Vec<(u64, u64)>,
    /// How `plait` ended: `None` in a baseline.
    pub(crate) plait: Option<PlaitEnd>,
    /// From the start of the client's program until the kernel's end had its connection.
    pub(crate) connect_ms: u64,
    /// From the end of one program to the end of the other.
    lingered: Duration,
}

/// How `plait` ended.
#[derive(Debug)]
pub(crate) struct PlaitEnd {
    pub(crate) succeeded: bool,
    pub(crate) last_words: String,
    /// The final status, if it was written.
    pub(crate) status: Option<Status>,
}

/// What is read of the final status of `plait`.
#[derive(Debug, Deserialize)]
pub(crate) struct Status {
    /// `multipath` or `plain`.
    negotiated: String,
    /// Why it is plain TCP.
    reason: Option<String>,
    paths: Vec<PathStatus>,
}

#[derive(Debug, Deserialize)]
struct PathStatus {
    name: String,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_reinjected: u64,
    rtt_ms: Option<f64>,
    loss: f64,
}

impl<'a> Session<'a> {
    /// Sets the kernels up and starts the server, then the client.
    pub(crate) fn start(context: &Context<'_>, bed: &'a Testbed, plan: Plan) -> Result<Self> {
        configure_kernels(context, bed, &plan)?;
        let directory = context.run_directory()?;
        let status_file = directory.join("status.json");
        let starter = Starter { context, bed, plan: &plan, directory: &directory, status_file: &status_file };
        let captures = if context.capture { capture(bed, &directory)? } else { Vec::new() };
        let before = peer_namespace(bed, context.role).counters()?;
        let carried_before = bed.carried()?;
        let mut server = starter.start(Role::Server)?;
        server.main().wait_for_line("listening", Duration::from_secs(10))?;
        let began_ms = crate::peer::wall_clock_ms();
        let client = starter.start(Role::Client)?;
        let until = Instant::now() + plan.patience;
        let role = context.role;
        let ends = [client, server];
        let _captures = captures;
        Ok(Self { bed, plan, role, ends, until, began_ms, before, carried_before, status_file, _captures })
    }

    /// Runs a whole transfer without interference.
    pub(crate) fn run(context: &Context<'_>, bed: &'a Testbed, plan: Plan) -> Result<Outcome> {
        Self::start(context, bed, plan)?.finish()
    }

    /// Bytes each path has carried in this transfer, towards the (client, server).
    pub(crate) fn carried(&self) -> Result<Vec<(u64, u64)>> {
        let now = self.bed.carried()?;
        Ok(now.iter().zip(&self.carried_before).map(|(now, then)| (now.0 - then.0, now.1 - then.1)).collect())
    }

    /// Waits until the paths together have carried this many bytes.
    pub(crate) fn wait_for_bytes(&mut self, bytes: u64) -> Result<()> {
        wait_until(&format!("byte {bytes} of the transfer"), Duration::from_secs(30), || {
            if self.is_one_over()? {
                bail!("an end was over before byte {bytes}: {}", self.last_words());
            }
            Ok(self.carried()?.iter().map(|(down, up)| down + up).sum::<u64>() >= bytes)
        })
    }

    /// Whether an end is over.
    fn is_one_over(&mut self) -> Result<bool> {
        let [client, server] = &mut self.ends;
        Ok(client.main().has_ended()? || server.main().has_ended()?)
    }

    fn last_words(&mut self) -> String {
        let [client, server] = &mut self.ends;
        format!("client: {}; server: {}", client.main().last_words(), server.main().last_words())
    }

    /// The host on which the kernel is the peer.
    pub(crate) fn peer(&self) -> &'a Namespace {
        peer_namespace(self.bed, self.role)
    }

    /// Sends a signal to the subject's main program.
    pub(crate) fn signal_subject(&mut self, signal: Signal) {
        let side = match self.role {
            Role::Client => &mut self.ends[0],
            Role::Server => &mut self.ends[1],
        };
        side.main().signal(signal);
    }

    /// Waits for both ends and collects what they report.
    pub(crate) fn finish(mut self) -> Result<Outcome> {
        // An end that is alone waits for what will never come.
        while !self.is_one_over()? && Instant::now() < self.until {
            for side in &mut self.ends {
                side.release();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let first_over = Instant::now();
        let until = self.until.min(first_over + ALONE);
        let result = self.ends.each_mut().map(|side| side.finish(until));
        let lingered = first_over.elapsed();
        let carried = self.carried()?;
        let counters = self.peer().counters()?.since(&self.before);
        let [client, server] = result;
        let ((client, client_end), (server, server_end)) = match (client, server) {
            (Ok(client), Ok(server)) => (client, server),
            (client, server) => {
                let error =
                    [client.err(), server.err()].into_iter().flatten().map(|error| format!("{error:#}"));
                bail!(
                    "{}; carried {carried:?}; kernel: {}",
                    error.collect::<Vec<_>>().join("; "),
                    mptcp_counters(&counters)
                );
            }
        };
        let mut plait = client_end.or(server_end);
        if let Some(end) = &mut plait {
            let text = std::fs::read_to_string(&self.status_file).unwrap_or_default();
            end.status = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        }
        let kernel_report = if self.role == Role::Client { &server } else { &client };
        let connect_ms = kernel_report.connected_at_ms.saturating_sub(self.began_ms);
        let (plan, role) = (self.plan, self.role);
        Ok(Outcome { plan, client, server, role, counters, carried, plait, connect_ms, lingered })
    }
}

impl Side {
    /// The program that talks to the network.
    fn main(&mut self) -> &mut Program {
        match self {
            Self::Kernel(program) => program,
            Self::Plait(piped) => &mut piped.plait,
        }
    }

    /// Ends the input of a `plait` that has received all it should.
    fn release(&mut self) {
        if let Self::Plait(piped) = self
            && piped.check.errors().contains("complete")
        {
            drop(piped.source.take_input());
        }
    }

    fn finish(&mut self, until: Instant) -> Result<(TransferReport, Option<PlaitEnd>)> {
        match self {
            Self::Kernel(program) => {
                program.wait(until)?;
                Ok((program.report()?, None))
            }
            Self::Plait(piped) => {
                let Piped { plait, check, source } = &mut **piped;
                drop(source.take_input());
                let status = plait.wait(until)?;
                check.wait(until)?;
                let end =
                    PlaitEnd { succeeded: status.success(), last_words: plait.last_words(), status: None };
                Ok((check.report()?, Some(end)))
            }
        }
    }
}

/// Captures the headers on both paths, at the client.
fn capture(bed: &Testbed, directory: &Path) -> Result<Vec<Program>> {
    PATHS
        .map(|path| {
            let (name, device) = (format!("tcpdump-{path}"), device(path));
            let mut command = Command::new("tcpdump");
            command.args(["-i", &device, "-s", "200", "-U", "-w"]);
            command.arg(directory.join(format!("{device}.pcap")));
            let mut program = Program::start(&bed.client, directory, &name, command, End::Own, End::Own)?;
            program.wait_for_line("listening on", Duration::from_secs(5))?;
            Ok(program)
        })
        .collect()
}

/// What is needed to start one side.
struct Starter<'a> {
    context: &'a Context<'a>,
    bed: &'a Testbed,
    plan: &'a Plan,
    directory: &'a Path,
    status_file: &'a Path,
}

impl Starter<'_> {
    fn start(&self, role: Role) -> Result<Side> {
        match self.context.plait() {
            Some(plait) if role == self.context.role => self.plait(role, plait),
            Some(_) | None => self.kernel(role),
        }
    }

    fn kernel(&self, role: Role) -> Result<Side> {
        let is_peer = role != self.context.role;
        let mut command = interop()?;
        match role {
            Role::Client => command.arg("connect").arg(self.destination()),
            Role::Server => command.arg("listen").arg(PORT.to_string()),
        };
        let socket = if is_peer { self.plan.peer_socket } else { "mptcp" };
        let (seed, expected) = seeds(role);
        command.args(["--socket", socket, "--send", &self.plan.bytes_of(role).to_string()]);
        command.args(["--seed", &seed.to_string(), "--expect-seed", &expected.to_string()]);
        if self.only_receives(role) {
            command.arg("--close-last");
        }
        command.args(if is_peer { &self.plan.peer_words } else { &self.plan.baseline_words });
        let program =
            Program::start(self.namespace(role), self.directory, role.name(), command, End::Own, End::Own)?;
        Ok(Side::Kernel(program))
    }

    fn plait(&self, role: Role, plait: &Path) -> Result<Side> {
        let (namespace, directory) = (self.namespace(role), self.directory);
        let (seed, expected) = seeds(role);
        let (from_source, to_plait) = std::io::pipe()?;
        let mut command = interop()?;
        command.args(["generate", "--bytes", &self.plan.bytes_of(role).to_string()]);
        command.args(["--seed", &seed.to_string()]);
        let mut input = End::Own;
        if self.only_receives(role) {
            command.arg("--hold");
            input = End::Given(Stdio::piped());
        }
        let source =
            Program::start(namespace, directory, "source", command, input, End::Given(to_plait.into()))?;
        let (to_check, from_plait) = std::io::pipe()?;
        let mut command = interop()?;
        command.args(["digest", "--expect-seed", &expected.to_string()]);
        command.args(["--expect-bytes", &self.plan.bytes_of(role.other()).to_string()]);
        let check =
            Program::start(namespace, directory, "check", command, End::Given(to_check.into()), End::Own)?;
        let (input, output) = (End::Given(from_source.into()), End::Given(from_plait.into()));
        let command = self.plait_command(role, plait);
        let plait = Program::start(namespace, directory, "plait", command, input, output)?;
        Ok(Side::Plait(Box::new(Piped { plait, check, source })))
    }

    fn plait_command(&self, role: Role, plait: &Path) -> Command {
        let mut command = Command::new(plait);
        match role {
            Role::Client => {
                let address = self.bed.server_address(self.context.family, 1);
                command.args(["connect", &address.to_string(), &PORT.to_string()]);
            }
            Role::Server => {
                command.args(["listen", &PORT.to_string()]);
            }
        }
        command.args(plait_words(self.plan)).arg("--status-json").arg(self.status_file);
        command
    }

    /// An end with nothing to send closes last: the kernel takes no joins for a connection that one end has closed.
    fn only_receives(&self, role: Role) -> bool {
        self.plan.bytes_of(role) == 0 && self.plan.bytes_of(role.other()) > 0
    }

    fn destination(&self) -> String {
        std::net::SocketAddr::new(self.bed.server_address(self.context.family, 1), PORT).to_string()
    }

    fn namespace(&self, role: Role) -> &Namespace {
        namespace_of(self.bed, role)
    }
}

/// The options of `plait` that a plan asks for.
pub(crate) fn plait_words(plan: &Plan) -> Vec<String> {
    // The kernel cannot seal.
    let mut words = vec!["--protect".to_owned(), "plain".to_owned()];
    for &(path, class) in &plan.subject_paths {
        let suffix = match class {
            Use::Regular => "",
            Use::Backup => "=backup",
        };
        words.extend(["--path".to_owned(), format!("{}{suffix}", device(path))]);
    }
    if plan.checksum {
        words.push("--checksum".to_owned());
    }
    if let Some(scheduler) = plan.scheduler {
        words.extend(["--scheduler".to_owned(), scheduler.to_owned()]);
    }
    words
}

/// This program, about to be given the words of `interop peer`.
pub(crate) fn interop() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("peer");
    Ok(command)
}

/// (what a side sends, what it expects)
fn seeds(role: Role) -> (u64, u64) {
    match role {
        Role::Client => (SEED_UP, SEED_DOWN),
        Role::Server => (SEED_DOWN, SEED_UP),
    }
}

pub(crate) fn namespace_of(bed: &Testbed, role: Role) -> &Namespace {
    match role {
        Role::Client => &bed.client,
        Role::Server => &bed.server,
    }
}

/// The host of the kernel's side when the subject has `role`.
pub(crate) fn peer_namespace(bed: &Testbed, role: Role) -> &Namespace {
    namespace_of(bed, role.other())
}

/// Limits and endpoints of the peer's path manager; in a baseline also those that do for the subject what `--path` does.
pub(crate) fn configure_kernels(context: &Context<'_>, bed: &Testbed, plan: &Plan) -> Result<()> {
    let peer = peer_namespace(bed, context.role);
    for namespace in [&bed.client, &bed.server] {
        namespace.ip("mptcp endpoint flush")?;
        namespace.set_sysctl("net.mptcp.checksum_enabled", u8::from(plan.checksum))?;
        namespace.set_mptcp_limits(8, 8)?;
    }
    peer.set_mptcp_limits(8, if plan.peer_accepts_announced { 8 } else { 0 })?;
    for endpoint in &plan.peer_endpoints {
        peer.add_mptcp_endpoint(endpoint)?;
    }
    if context.plait().is_none() {
        for &(path, class) in plan.subject_paths.iter().filter(|(path, _)| *path != 1) {
            ensure!(path == 2, "the second path is the only other one");
            let own = match context.role {
                Role::Client if !plan.subject_announces => EndpointFlag::Subflow,
                Role::Client | Role::Server => EndpointFlag::Signal,
            };
            let flags: &[EndpointFlag] = match class {
                Use::Regular => &[own],
                Use::Backup => &[own, EndpointFlag::Backup],
            };
            let subject = namespace_of(bed, context.role);
            subject.add_mptcp_endpoint(&endpoint(context, bed, context.role, flags))?;
        }
    }
    Ok(())
}

impl Outcome {
    /// Both directions complete, with the right SHA-256, and every program content.
    pub(crate) fn verify(&self) -> Result<()> {
        for (name, report, bytes, seed) in [
            ("the server", &self.server, self.plan.up, SEED_UP),
            ("the client", &self.client, self.plan.down, SEED_DOWN),
        ] {
            ensure!(
                report.received == bytes,
                "{name} received {} of {bytes} bytes; {}",
                report.received,
                self.troubles()
            );
            ensure!(
                report.sha256 == sha256_of_pattern(seed, bytes),
                "SHA-256 differs: {name} received {} other bytes than were sent; {}",
                report.differing.unwrap_or(0),
                self.evidence()
            );
        }
        let troubles = self.troubles();
        ensure!(troubles.is_empty(), "{troubles}");
        ensure!(
            self.lingered < LINGER,
            "all bytes are there, but one end went on for {:.1} s after the other; {}",
            self.lingered.as_secs_f64(),
            self.evidence()
        );
        Ok(())
    }

    /// What any program complained about.
    pub(crate) fn troubles(&self) -> String {
        let mut troubles = String::new();
        for (name, report) in [("client", &self.client), ("server", &self.server)] {
            if let Some(error) = &report.error {
                let _ = write!(troubles, "{name}: {error}; ");
            }
        }
        if let Some(end) = self.plait.as_ref().filter(|end| !end.succeeded) {
            let _ = write!(troubles, "plait failed: {}; ", end.last_words);
        }
        if !troubles.is_empty() {
            let _ = write!(troubles, "kernel: {}", self.kernel_evidence());
        }
        troubles
    }

    /// The kernel's end of the connection.
    pub(crate) fn peer(&self) -> &TransferReport {
        match self.role {
            Role::Client => &self.server,
            Role::Server => &self.client,
        }
    }

    /// The peer's kernel counted at least this.
    pub(crate) fn expect(&self, counter: &str, at_least: u64) -> Result<()> {
        let count = self.count(counter);
        ensure!(count >= at_least, "{counter} is {count}, not {at_least}: {}", self.kernel_evidence());
        Ok(())
    }

    /// One of the peer's `MPTcpExt` counters.
    pub(crate) fn count(&self, counter: &str) -> u64 {
        self.counters.count(&format!("MPTcpExt{counter}"))
    }

    /// The peer's kernel took the connection for Multipath TCP.
    pub(crate) fn expect_mptcp(&self) -> Result<()> {
        match &self.peer().protocol {
            Protocol::Mptcp { .. } => self.expect_told("multipath"),
            other => bail!("the kernel's socket is {other:?}: {}", self.kernel_evidence()),
        }
    }

    /// The status of `plait` says the same as the kernel.
    fn expect_told(&self, negotiated: &str) -> Result<()> {
        let Some(end) = &self.plait else { return Ok(()) };
        let Some(status) = &end.status else { bail!("plait wrote no final status: {}", end.last_words) };
        ensure!(
            status.negotiated == negotiated,
            "plait says `{}`, the kernel {:?}",
            status.negotiated,
            self.peer().protocol
        );
        Ok(())
    }

    /// The peer's kernel took the connection for TCP.
    pub(crate) fn expect_tcp(&self) -> Result<()> {
        match &self.peer().protocol {
            Protocol::Tcp => self.expect_told("plain"),
            other => bail!("the kernel's socket is {other:?}: {}", self.kernel_evidence()),
        }
    }

    /// The smallest share of a path in what was carried in the directions that had data, in percent.
    pub(crate) fn smallest_share(&self) -> f64 {
        let direction = |bytes: u64, pick: fn(&(u64, u64)) -> u64| {
            let each: Vec<f64> = self.carried.iter().map(|carried| pick(carried) as f64).collect();
            let smallest = each.iter().copied().fold(f64::INFINITY, f64::min);
            (bytes > 0).then_some(100.0 * smallest / each.iter().sum::<f64>().max(1.0))
        };
        [direction(self.plan.up, |carried| carried.1), direction(self.plan.down, |carried| carried.0)]
            .into_iter()
            .flatten()
            .fold(f64::INFINITY, f64::min)
    }

    /// Megabits per second at the receivers, and their longest gap.
    pub(crate) fn speed(&self) -> String {
        let mut text = String::new();
        for (arrow, report) in [("up", &self.server), ("down", &self.client)] {
            if report.received > 0 {
                let _ = write!(
                    text,
                    "{arrow} {:.0} Mbit/s gap {} ms, ",
                    report.goodput_mbit(),
                    report.longest_gap_ms
                );
            }
        }
        text.trim_end_matches(", ").to_owned()
    }

    /// The longest gap at a receiver that was sent something, in milliseconds.
    pub(crate) fn longest_gap_ms(&self) -> u64 {
        let up = if self.plan.up > 0 { self.server.longest_gap_ms } else { 0 };
        up.max(if self.plan.down > 0 { self.client.longest_gap_ms } else { 0 })
    }

    /// Speed and the kernel's counters.
    pub(crate) fn evidence(&self) -> String {
        format!("{}; {}kernel: {}", self.speed(), self.plait_evidence(), self.kernel_evidence())
    }

    /// What `plait` says in its final status.
    fn plait_evidence(&self) -> String {
        let Some(status) = self.plait.as_ref().and_then(|end| end.status.as_ref()) else {
            return String::new();
        };
        let mut text = format!("plait: {}", status.negotiated);
        if let Some(reason) = &status.reason {
            let _ = write!(text, " ({reason})");
        }
        for path in &status.paths {
            let PathStatus { name, bytes_sent, bytes_received, bytes_reinjected, rtt_ms, loss } = path;
            let mib = |bytes: &u64| *bytes as f64 / 1_048_576.0;
            let _ =
                write!(text, ", {name} sent {:.1} received {:.1} MiB", mib(bytes_sent), mib(bytes_received));
            if *bytes_reinjected > 0 {
                let _ = write!(text, " reinjected {:.1} MiB", mib(bytes_reinjected));
            }
            if let Some(rtt) = rtt_ms {
                let _ = write!(text, " rtt {rtt:.1} ms");
            }
            if *loss > 0.0 {
                let _ = write!(text, " loss {:.2} %", 100.0 * loss);
            }
        }
        text + "; "
    }

    /// The peer's socket and counters.
    pub(crate) fn kernel_evidence(&self) -> String {
        let socket = match &self.peer().protocol {
            Protocol::Unknown => "?".to_owned(),
            Protocol::Tcp => "TCP".to_owned(),
            Protocol::Mptcp { subflows, checksum } => {
                format!("MPTCP {subflows} subflows{}", if *checksum { " checksum" } else { "" })
            }
        };
        format!("{socket} {}", mptcp_counters(&self.counters)).trim_end().to_owned()
    }
}

/// The Multipath TCP counters that are not zero, but for those that only say how busy the receiver was.
pub(crate) fn mptcp_counters(counters: &Counters) -> String {
    const NOISE: [&str; 8] = [
        "OFO",
        "RcvWnd",
        "SndWnd",
        "WinProbe",
        "MPCurrEstab",
        "DuplicateData",
        "NoDSSInWindow",
        "MPTCPRetrans",
    ];
    let told = counters
        .nonzero("MPTcpExt")
        .filter(|(name, _)| !NOISE.iter().any(|noise| name.starts_with(noise)))
        .map(|(name, count)| format!("{name}={count}"));
    told.collect::<Vec<_>>().join(" ")
}
