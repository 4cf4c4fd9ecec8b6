//! One conversation between two applications over one system.
//!
//! The application is the same in all systems. Over the kernel's Multipath TCP it has a socket, with TLS if that is the system; to
//! plait it writes through a pipe, as `plait connect` and `plait listen` take it.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use plait_lab::{Direction, End, Program};
use plait_netns::Namespace;
use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::system::System;

const APPLICATION: &str = include_str!("application.py");
/// Time limit until a program listens.
const START: Duration = Duration::from_secs(15);
/// Time limit for plait to end after both applications have ended.
const END: Duration = Duration::from_secs(2);
/// Each conversation has a port of its own: that of the last one may wait for late packets.
static PORT: AtomicU16 = AtomicU16::new(20_000);

/// Directories of the programs and files.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    /// The `plait` program.
    pub(crate) plait: PathBuf,
    /// Everything else; removed at the end.
    pub(crate) scratch: PathBuf,
}

impl Fixture {
    /// Makes the certificate that TLS servers show.
    pub(crate) fn prepare(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.scratch)?;
        let (key, certificate) = (self.scratch.join("key.pem"), self.scratch.join("certificate.pem"));
        plait_lab::certificate(&key, &certificate)?;
        fs::write(self.bundle(), [fs::read(&key)?, fs::read(&certificate)?].concat())?;
        Ok(())
    }

    fn bundle(&self) -> PathBuf {
        self.scratch.join("tls.pem")
    }
}

/// The task of the two applications.
#[derive(Clone, Debug)]
pub(crate) enum Talk {
    /// One sends, the other receives.
    Transfer {
        /// The direction of the bytes.
        direction: Direction,
        bytes: u64,
        /// Bytes of a write.
        block: usize,
        /// The time is noted after this many bytes.
        marks: Vec<u64>,
        /// Seconds between the first block and the second.
        pause: f64,
        /// The data to send; by default a pattern.
        document: Option<PathBuf>,
        /// The file for received data.
        keep: Option<PathBuf>,
    },
    /// The client asks and the server answers with as many bytes.
    Questions {
        /// Bytes of a question.
        sizes: Vec<usize>,
        /// Questions of each size.
        rounds: usize,
    },
}

/// Seconds in which a second path has joined, at the round trips that there are here.
pub(crate) const JOIN: f64 = 0.3;

/// The report of an application.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(crate) struct Report {
    /// Bytes received, or sent.
    pub(crate) bytes: u64,
    /// From the first read with bytes to the last.
    pub(crate) seconds: f64,
    /// Bytes received and seconds since the first, at each mark.
    pub(crate) marks: Vec<(u64, f64)>,
    /// Longest time between two reads with bytes, in seconds.
    pub(crate) longest_gap: f64,
    /// For each size, the duration of each question, in seconds.
    pub(crate) delays: Vec<(usize, Vec<f64>)>,
    /// The reason of an early end.
    pub(crate) error: Option<String>,
}

/// The instructions for an application.
#[derive(Serialize)]
struct Orders<'a> {
    role: &'static str,
    /// `None`: standard input and output.
    address: Option<IpAddr>,
    port: u16,
    listens: bool,
    certificate: Option<PathBuf>,
    enciphers: Option<&'static str>,
    report: &'a Path,
    bytes: u64,
    block: usize,
    pause: f64,
    marks: &'a [u64],
    document: Option<&'a Path>,
    keep: Option<&'a Path>,
    sizes: &'a [usize],
    rounds: usize,
}

/// A conversation that goes on. Dropping it ends its programs.
pub(crate) struct Conversation {
    /// The application that delivers the report.
    judge: Program,
    report: PathBuf,
    other: Program,
    plaits: Vec<Program>,
    commands: Vec<String>,
}

/// Its exit status.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    /// The command lines of one conversation.
    pub(crate) commands: Vec<String>,
}

/// The host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Conversation {
    /// Starts both ends.
    pub(crate) fn start(
        system: System,
        place: &Place<'_>,
        talk: &Talk,
        fixture: &Fixture,
    ) -> anyhow::Result<Self> {
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let stage = Stage { system, place, talk, fixture, port };
        let mut commands = Vec::new();
        let (server, server_plait, key) = stage.server(&mut commands)?;
        let (client, client_plait) = stage.client(key.as_deref(), &mut commands)?;
        let is_judge_client = match talk {
            Talk::Transfer { direction, .. } => *direction == Direction::ToClient,
            Talk::Questions { .. } => true,
        };
        let (judge, other, side) =
            if is_judge_client { (client, server, Side::Client) } else { (server, client, Side::Server) };
        let plaits = client_plait.into_iter().chain(server_plait).collect();
        Ok(Self { judge, report: stage.report(side), other, plaits, commands })
    }

    /// Waits for its end, as the application at which the bytes arrive sees it. A conversation that breaks has a report as well.
    pub(crate) fn finish(mut self, timeout: Duration) -> anyhow::Result<Outcome> {
        let until = Instant::now() + timeout;
        let mut broke = None;
        while !self.judge.has_ended()? {
            if Instant::now() > until {
                broke = Some(format!("no end after {} s", timeout.as_secs()));
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Only the close of the connection is left; a failed one is ended by force.
        let polite = if broke.is_none() { END } else { Duration::ZERO };
        let _ = self.other.wait(polite);
        for plait in &mut self.plaits {
            if plait.wait(polite).is_err() {
                // It takes its devices and rules away when it is asked to end.
                let _ = plait.stop(END);
            }
        }
        if broke.is_some() {
            let _ = self.judge.stop(END);
        }
        let text = fs::read_to_string(&self.report).ok();
        let mut report: Report = match (text, &broke) {
            (Some(text), _) => serde_json::from_str(&text).context("the application's report")?,
            (None, Some(_)) => Report {
                bytes: 0,
                seconds: 0.0,
                marks: Vec::new(),
                longest_gap: 0.0,
                delays: Vec::new(),
                error: None,
            },
            (None, None) => {
                anyhow::bail!("an application ended without a report: {}", self.judge.last_words())
            }
        };
        report.error = broke.or(report.error);
        if let Some(error) = &mut report.error {
            let plaits = self.plaits.iter().map(Program::last_words).filter(|words| !words.is_empty());
            plaits.for_each(|words| *error = format!("{error}; {words}"));
        }
        Ok(Outcome { report, commands: self.commands })
    }
}

impl Outcome {
    /// The report of a conversation in which `bytes` have arrived without an error.
    pub(crate) fn whole(self, bytes: u64) -> anyhow::Result<Report> {
        let Report { bytes: arrived, ref error, .. } = self.report;
        ensure!(
            arrived == bytes && error.is_none(),
            "{arrived} of {bytes} bytes arrived: {}",
            error.as_deref().unwrap_or("no error was told")
        );
        Ok(self.report)
    }
}

/// The settings that all parts of a conversation share.
struct Stage<'a> {
    system: System,
    place: &'a Place<'a>,
    talk: &'a Talk,
    fixture: &'a Fixture,
    port: u16,
}

impl Stage<'_> {
    /// The server's application, its plait, and the words by which the client knows its key.
    fn server(
        &self,
        commands: &mut Vec<String>,
    ) -> anyhow::Result<(Program, Option<Program>, Option<String>)> {
        let Some(protection) = self.system.protection() else {
            let mut application = self.application(Side::Server, None, commands)?;
            application.wait_for_line("listening", START)?;
            return Ok((application, None, None));
        };
        let mut listen = self.plait(&["listen", &self.port.to_string()], protection, Side::Server);
        listen.arg("--keys").arg(self.fixture.scratch.join("server-keys"));
        commands.push(words(&listen));
        let mut plait = self.start(self.place.server, "plait-listen", listen, [End::Pipe, End::Pipe])?;
        plait.wait_for_line("listening on port", START)?;
        let key = match protection {
            "sealed" => {
                let line = plait.wait_for_line("our key is", START)?;
                line.rsplit(' ').next().map(str::to_owned)
            }
            _ => None,
        };
        let application = self.application(Side::Server, Some(&mut plait), commands)?;
        Ok((application, Some(plait), key))
    }

    fn client(
        &self,
        key: Option<&str>,
        commands: &mut Vec<String>,
    ) -> anyhow::Result<(Program, Option<Program>)> {
        let Some(protection) = self.system.protection() else {
            return Ok((self.application(Side::Client, None, commands)?, None));
        };
        let (address, port) = (self.place.address.to_string(), self.port.to_string());
        let mut connect = self.plait(&["connect", &address, &port], protection, Side::Client);
        connect.arg("--keys").arg(self.fixture.scratch.join("client-keys"));
        if let Some(key) = key {
            connect.args(["--server-key", key]);
        }
        commands.push(words(&connect));
        let mut plait = self.start(self.place.client, "plait-connect", connect, [End::Pipe, End::Pipe])?;
        let application = self.application(Side::Client, Some(&mut plait), commands)?;
        Ok((application, Some(plait)))
    }

    fn plait(&self, first: &[&str], protection: &str, side: Side) -> Command {
        let mut command = Command::new(&self.fixture.plait);
        command.args(first).args(["--protect", protection]);
        let paths = match side {
            Side::Client => &self.place.client_paths,
            Side::Server => &self.place.server_paths,
        };
        for path in paths {
            command.args(["--path", path]);
        }
        command
    }

    /// Starts an application; its standard input and output are those of `plait`, if there is one.
    fn application(
        &self,
        side: Side,
        plait: Option<&mut Program>,
        commands: &mut Vec<String>,
    ) -> anyhow::Result<Program> {
        let report = self.report(side);
        let _ = fs::remove_file(&report);
        let orders = serde_json::to_string(&self.orders(side, plait.is_none(), &report))?;
        let mut command = Command::new("python3");
        command.args(["-c", APPLICATION, &orders]);
        commands.push(format!("python3 application.py '{orders}'"));
        let (namespace, name) = match side {
            Side::Client => (self.place.client, "client"),
            Side::Server => (self.place.server, "server"),
        };
        let ends = match plait {
            Some(plait) => {
                let output = plait.take_output().context("plait's output is a pipe")?;
                let input = plait.take_input().context("plait's input is a pipe")?;
                [Stdio::from(output), Stdio::from(input)].map(End::Given)
            }
            None => [End::Own, End::Own],
        };
        self.start(namespace, name, command, ends)
    }

    fn start(
        &self,
        namespace: &Namespace,
        name: &str,
        mut command: Command,
        [input, output]: [End; 2],
    ) -> anyhow::Result<Program> {
        if let Some((name, value)) = self.system.environment() {
            command.env(name, value);
        }
        Program::start(namespace, &self.fixture.scratch, name, command, input, output)
            .with_context(|| format!("cannot start {name}"))
    }

    fn orders<'b>(&'b self, side: Side, has_socket: bool, report: &'b Path) -> Orders<'b> {
        let listens = side == Side::Server;
        let certificate = matches!(self.system, System::Tls { .. }).then(|| self.fixture.bundle());
        let enciphers = matches!(self.system, System::Aes { .. }).then_some("aes-128-cbc");
        let mut orders = Orders {
            role: if listens { "answer" } else { "ask" },
            address: has_socket.then_some(self.place.address),
            port: self.port,
            listens,
            certificate,
            enciphers,
            report,
            bytes: 0,
            block: 0,
            pause: 0.0,
            marks: &[],
            document: None,
            keep: None,
            sizes: &[],
            rounds: 0,
        };
        match self.talk {
            Talk::Transfer { direction, bytes, block, pause, marks, document, keep } => {
                let receives = listens == (*direction == Direction::ToServer);
                orders.role = if receives { "receive" } else { "send" };
                (orders.bytes, orders.block, orders.pause) = (*bytes, *block, *pause);
                orders.marks = marks;
                (orders.document, orders.keep) = (document.as_deref(), keep.as_deref());
            }
            Talk::Questions { sizes, rounds } => (orders.sizes, orders.rounds) = (sizes, *rounds),
        }
        orders
    }

    fn report(&self, side: Side) -> PathBuf {
        self.fixture.scratch.join(match side {
            Side::Client => "client.json",
            Side::Server => "server.json",
        })
    }
}

/// A command line, for people: the program by its name.
fn words(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let all = std::iter::once(name).chain(command.get_args());
    all.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
