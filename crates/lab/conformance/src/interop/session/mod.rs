//! One transfer between the two hosts: the programs, what the kernel sees of it, and the result.
//!
//! * [`plan`]: what is to happen; [`sides`]: the programs at both ends.
//! * [`watch`]: the kernel's events and sockets while it runs; [`outcome`]: what came of it.

mod outcome;
mod plan;
mod sides;
mod watch;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nix::sys::signal::Signal;
use plait_netns::{Counters, Namespace};

use self::plan::path_word;
use self::sides::{Side, Starter, capture_file, control_socket, status_file};
use self::watch::Watch;
use crate::interop::scenario::{Context, Role};
use plait_lab::wired::{PATHS, Testbed, device};
use plait_lab::{End, Program, wait_until};

pub(crate) use self::outcome::{Outcome, mptcp_counters};
pub(crate) use self::plan::{Plan, Use, configure_kernels, endpoint, plait_words};
pub(crate) use self::sides::interop;
pub(crate) use self::watch::Sockets;

/// The port of every server.
pub(crate) const PORT: u16 = 5201;
/// Bytes that the client sends.
const SEED_UP: u64 = 0x75;
/// Bytes that the server sends.
const SEED_DOWN: u64 = 0x64;

/// How long one end may continue after the other has ended.
const ALONE: Duration = Duration::from_secs(15);

/// A running transfer.
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
    /// The output of its programs.
    directory: PathBuf,
    plait: Option<PathBuf>,
    watch: Watch,
    judges_time: bool,
    _captures: Vec<Program>,
}

impl<'a> Session<'a> {
    /// Configures the kernels and starts the server, then the client.
    pub(crate) fn start(context: &Context<'_>, bed: &'a Testbed, plan: Plan) -> Result<Self> {
        configure_kernels(context, bed, &plan)?;
        let directory = context.run_directory()?;
        let starter = Starter { context, bed, plan: &plan, directory: &directory };
        let captures = if context.capture { capture(bed, &directory)? } else { Vec::new() };
        let watch = Watch::start(peer_namespace(bed, context.role), &directory)?;
        let before = peer_namespace(bed, context.role).counters()?;
        let carried_before = bed.carried()?;
        let mut server = starter.start(Role::Server)?;
        server.main().wait_for_line("listening", Duration::from_secs(60))?;
        let began_ms = crate::interop::peer::wall_clock_ms();
        let client = starter.start(Role::Client)?;
        let until = Instant::now() + plan.timeout;
        let role = context.role;
        let ends = [client, server];
        let _captures = captures;
        Ok(Self {
            bed,
            plan,
            role,
            ends,
            until,
            began_ms,
            before,
            carried_before,
            directory,
            plait: context.plait().map(Path::to_owned),
            watch,
            judges_time: context.judges_time(),
            _captures,
        })
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
            self.watch.look_if_due()?;
            Ok(self.carried()?.iter().map(|(down, up)| down + up).sum::<u64>() >= bytes)
        })
    }

    /// The sockets of the peer's kernel now.
    pub(crate) fn sockets(&mut self) -> Result<Sockets> {
        self.watch.look()
    }

    /// Whether an end has ended.
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

    /// Changes the subject's use of its second path from now on.
    pub(crate) fn use_second_path(&self, class: Use) -> Result<()> {
        let Some(plait) = &self.plait else {
            return Ok(namespace_of(self.bed, self.role).set_mptcp_backup(2, class == Use::Backup)?);
        };
        let mut command = Command::new(plait);
        command.args(["path", "--control"]).arg(control_socket(&self.directory)).arg(path_word(2, class));
        let output = command.output()?;
        ensure!(output.status.success(), "plait path: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// The packets in the subject's capture.
    pub(crate) fn capture_file(&self) -> PathBuf {
        capture_file(&self.directory)
    }

    /// Sends a signal to the subject's main program.
    pub(crate) fn signal_subject(&mut self, signal: Signal) {
        let side = match self.role {
            Role::Client => &mut self.ends[0],
            Role::Server => &mut self.ends[1],
        };
        side.main().signal(signal);
    }

    /// Waits for both ends and collects their reports.
    pub(crate) fn finish(mut self) -> Result<Outcome> {
        // A single remaining end waits in vain.
        while !self.is_one_over()? && Instant::now() < self.until {
            for side in &mut self.ends {
                side.release();
            }
            self.watch.look_if_due()?;
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
            let text = std::fs::read_to_string(status_file(&self.directory)).unwrap_or_default();
            end.status = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        }
        let kernel_report = if self.role == Role::Client { &server } else { &client };
        let connect_ms = kernel_report.connected_at_ms.saturating_sub(self.began_ms);
        let seen = self.watch.finish()?;
        let (plan, role) = (self.plan, self.role);
        let judges_time = self.judges_time;
        Ok(Outcome {
            plan,
            client,
            server,
            role,
            counters,
            seen,
            carried,
            plait,
            connect_ms,
            judges_time,
            lingered,
        })
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
            program.wait_for_line("listening on", Duration::from_secs(60))?;
            Ok(program)
        })
        .collect()
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
