//! The lab of a case, and the two `plait` programs in it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plait_lab::{Conditions, End, Lab, LabConfig, Path, PathClass, PathConfig, Program};
use serde_json::Value;

use crate::attacks::case::Context;

/// The port of `plait listen`.
pub(crate) const PORT: u16 = 5000;
/// Time limit until a program listens, on a busy machine.
pub(crate) const START: Duration = Duration::from_secs(20);
/// Rate of each path and direction: fast enough for large transfers, slow enough that the programs wait for the paths.
const MEGABITS: u64 = 300;
/// One way.
const DELAY_MS: u64 = 5;

/// A lab with two paths, `a` and `b`, and the directory for the output of its programs.
pub(crate) struct Fixture<'a> {
    context: &'a Context<'a>,
    pub(crate) lab: Lab,
}

/// The task of the eavesdroppers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listening {
    /// Counts.
    Closed,
    /// Keeps all payload.
    Open,
    /// Writes every packet to a capture, and keeps nothing else.
    Capture,
}

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl<'a> Fixture<'a> {
    pub(crate) fn up(context: &'a Context<'a>, ears: Listening) -> Result<Self> {
        Self::up_with(context, ears, &Conditions::megabits(MEGABITS, DELAY_MS))
    }

    /// The same with other paths.
    pub(crate) fn up_with(
        context: &'a Context<'a>,
        ears: Listening,
        conditions: &Conditions,
    ) -> Result<Self> {
        Self::up_between(context, ears, [conditions.clone(), conditions.clone()])
    }

    /// The same with unlike paths, the same both ways.
    pub(crate) fn up_between(
        context: &'a Context<'a>,
        ears: Listening,
        [a, b]: [Conditions; 2],
    ) -> Result<Self> {
        Self::up_along(context, ears, &[("a", a), ("b", b)])
    }

    /// The same with paths of these names.
    pub(crate) fn up_along(
        context: &'a Context<'a>,
        ears: Listening,
        paths: &[(&str, Conditions)],
    ) -> Result<Self> {
        let class = |name: &str| if name == "b" { PathClass::Untrusted } else { PathClass::Trusted };
        let path =
            |(name, conditions): &(&str, Conditions)| PathConfig::new(name, class(name), conditions.clone());
        let config = LabConfig {
            paths: paths.iter().map(path).collect(),
            captures: (ears == Listening::Capture).then(|| context.directory.to_owned()),
            memory: if ears == Listening::Open { 1 << 30 } else { 0 },
            ..LabConfig::default()
        };
        Ok(Self { context, lab: Lab::up(config).context("bring the lab up")? })
    }

    /// A file of this case.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.context.directory.join(name)
    }

    pub(crate) fn path(&self, name: &str) -> Result<&Path> {
        Ok(self.lab.path(name)?)
    }

    /// The server's address on a path.
    pub(crate) fn server_address(&self, path: &str) -> Result<IpAddr> {
        Ok(self.context.settings.family.of(&self.path(path)?.server()))
    }

    /// `plait` with a subcommand, and the options that each side has in every case.
    pub(crate) fn plait(&self, side: Side, subcommand: &str) -> Command {
        let mut command = Command::new(&self.context.settings.plait);
        command.arg(subcommand).arg("--keys").arg(self.file(&format!("{}-keys", side.name())));
        command.arg("--status-json").arg(self.status_file(side));
        command.args(self.context.settings.carrier.options());
        command
    }

    fn status_file(&self, side: Side) -> PathBuf {
        self.file(&format!("{}-status.json", side.name()))
    }

    /// Both paths, as options of `plait`.
    pub(crate) const PATHS: [&'static str; 4] = ["--path", "a=trusted", "--path", "b=untrusted"];

    /// Starts `plait listen` with further options, and waits until it listens.
    pub(crate) fn listen(&self, options: &[&str]) -> Result<Program> {
        self.listen_on(&Self::PATHS, options)
    }

    /// The same over these paths.
    pub(crate) fn listen_on(&self, paths: &[&str], options: &[&str]) -> Result<Program> {
        let mut command = self.plait(Side::Server, "listen");
        command.arg(PORT.to_string()).args(paths).args(options);
        let mut server = self.start(Side::Server, command)?;
        server.wait_for_line("listening on port", START)?;
        Ok(server)
    }

    /// Starts `plait connect` towards the server's address on path `a`, over these paths, with further options.
    pub(crate) fn connect(&self, paths: &[&str], options: &[&str]) -> Result<Program> {
        self.connect_to("a", paths, options)
    }

    /// The same towards the server's address on another path.
    pub(crate) fn connect_to(&self, path: &str, paths: &[&str], options: &[&str]) -> Result<Program> {
        self.start(Side::Client, self.connecting(path, paths, options)?)
    }

    /// The command that [`Fixture::connect_to`] starts.
    pub(crate) fn connecting(&self, path: &str, paths: &[&str], options: &[&str]) -> Result<Command> {
        let family = self.context.settings.family;
        let address = self.server_address(path)?.to_string();
        let mut command = self.plait(Side::Client, "connect");
        command
            .args(family.options())
            .arg(address)
            .arg(PORT.to_string())
            .arg("--accept-new=one-path")
            .args(paths)
            .args(options);
        Ok(command)
    }

    /// The socket for queries about the client's paths, if it was started with this as `--control`.
    pub(crate) fn control(&self) -> PathBuf {
        self.file("control")
    }

    /// Changes the client's use of a path, as with `plait path`.
    pub(crate) fn change_path(&self, change: &str) -> Result<()> {
        let mut command = Command::new(&self.context.settings.plait);
        let output = command.arg("path").arg("--control").arg(self.control()).arg(change).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "plait path {change}: {}", said.trim());
        Ok(())
    }

    /// A program in one of the hosts, with pipes for its standard input and output.
    pub(crate) fn start(&self, side: Side, command: Command) -> Result<Program> {
        self.start_between(side, command, [End::Pipe, End::Pipe])
    }

    /// The same with empty input, and a file of its own for its output.
    pub(crate) fn start_own(&self, side: Side, command: Command) -> Result<Program> {
        self.start_between(side, command, [End::Own, End::Own])
    }

    fn start_between(&self, side: Side, command: Command, [input, output]: [End; 2]) -> Result<Program> {
        let host = match side {
            Side::Client => self.lab.client(),
            Side::Server => self.lab.server(),
        };
        let directory = self.context.directory;
        Ok(Program::start(host.namespace(), directory, side.name(), command, input, output)?)
    }

    /// The status of a side's last connection, if there was one.
    pub(crate) fn status(&self, side: Side) -> Result<Option<Value>> {
        let text = std::fs::read_to_string(self.status_file(side)).unwrap_or_default();
        text.lines().last().map(|line| serde_json::from_str(line).context("the status")).transpose()
    }

    /// Whether a running client has a subflow on a path that it may use, according to `plait status`.
    pub(crate) fn is_joined(&self, client: &Program, path: &str) -> Result<bool> {
        let mut command = Command::new(&self.context.settings.plait);
        let output = command.args(["status", "--json", &client.pid().to_string()]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "plait status: {}", said.trim());
        let status: Value = serde_json::from_slice(&output.stdout).context("plait status")?;
        let subflows = status["plaits"][0]["connections"][0]["subflows"].as_array();
        let is_joined = |subflow: &Value| subflow["path"] == path && subflow["usable"] == true;
        Ok(subflows.context("no subflows in the status")?.iter().any(is_joined))
    }

    /// Connections with an end that a side has reported.
    pub(crate) fn reports(&self, side: Side) -> usize {
        std::fs::read_to_string(self.status_file(side)).unwrap_or_default().lines().count()
    }
}
