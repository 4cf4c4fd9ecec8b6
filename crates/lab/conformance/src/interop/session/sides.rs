//! The two ends of a transfer: a program on a kernel socket, or `plait` between a source and a check.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;
use plait_netns::Namespace;

use super::outcome::PlaitEnd;
use super::plan::{Plan, plait_words};
use super::{PORT, namespace_of, seeds};
use crate::interop::peer::TransferReport;
use crate::interop::scenario::{Context, Role};
use plait_lab::wired::Testbed;
use plait_lab::{End, Program};

/// One host's programs.
pub(super) enum Side {
    /// A program on a kernel socket.
    Kernel(Program),
    /// `plait` between a source and a check of what comes out.
    Plait(Box<Piped>),
}

pub(super) struct Piped {
    plait: Program,
    check: Program,
    /// It ends when its bytes are written; a source that only keeps the pipe open ends on request.
    source: Program,
}

impl Side {
    /// The program that talks to the network.
    pub(super) fn main(&mut self) -> &mut Program {
        match self {
            Self::Kernel(program) => program,
            Self::Plait(piped) => &mut piped.plait,
        }
    }

    /// Ends the input of a `plait` that has received all it should.
    pub(super) fn release(&mut self) {
        if let Self::Plait(piped) = self
            && piped.check.errors().contains("complete")
        {
            drop(piped.source.take_input());
        }
    }

    pub(super) fn finish(&mut self, until: Instant) -> Result<(TransferReport, Option<PlaitEnd>)> {
        match self {
            Self::Kernel(program) => {
                program.wait_by(until)?;
                Ok((program.report()?, None))
            }
            Self::Plait(piped) => {
                let Piped { plait, check, source } = &mut **piped;
                drop(source.take_input());
                let status = plait.wait_by(until)?;
                check.wait_by(until)?;
                let end =
                    PlaitEnd { succeeded: status.success(), last_words: plait.last_words(), status: None };
                Ok((check.report()?, Some(end)))
            }
        }
    }
}

/// The settings to start one side.
pub(super) struct Starter<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) bed: &'a Testbed,
    pub(super) plan: &'a Plan,
    pub(super) directory: &'a Path,
}

impl Starter<'_> {
    pub(super) fn start(&self, role: Role) -> Result<Side> {
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
        command.args(plait_words(self.plan)).arg("--status-json").arg(status_file(self.directory));
        if self.plan.is_controlled {
            command.arg("--control").arg(control_socket(self.directory));
        }
        if self.plan.is_captured {
            command.arg("--pcap").arg(capture_file(self.directory));
        }
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

/// The control socket of `plait`.
pub(super) fn control_socket(directory: &Path) -> PathBuf {
    directory.join("control")
}

/// The file of `plait`'s status.
pub(super) fn status_file(directory: &Path) -> PathBuf {
    directory.join("status.json")
}

/// The file of `plait`'s capture.
pub(super) fn capture_file(directory: &Path) -> PathBuf {
    directory.join("plait.pcapng")
}

/// This program, about to be given the words of `conformance peer`.
pub(crate) fn interop() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("peer");
    Ok(command)
}
