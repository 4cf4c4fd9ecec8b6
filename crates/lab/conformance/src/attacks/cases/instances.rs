//! Several running servers with one key: two hosts behind one name, or one server that is started again between two attempts. The attacker
//! of the first path lets the client's bytes through and swallows all answers. No byte is delivered twice.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use plait_lab::{Attack, AttackName, Conditions, End, Program, wait_until};
use plait_netns::Namespace;

use super::Injections;
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Arrived, Load};
use crate::attacks::fixture::{Fixture, Listening, PORT, START};

/// Rate of each path and direction, and the one-way delay: of the others, and of the one that is slow.
const MEGABITS: u64 = 25;
const DELAY_MS: u64 = 10;
const SLOW_MS: u64 = 300;
/// Bytes of the client: more than a first flight.
const SIZE: u64 = 100_000;
/// How long the client may take to deliver or to give up: attempts end after 20 s, and none begins after 60.
const LONGEST: Duration = Duration::from_secs(120);
/// How long a first flight may take, and what is on its way at the end.
const FIRST_FLIGHT: Duration = Duration::from_secs(20);
const LAST_FLIGHT: Duration = Duration::from_secs(1);
/// The name of both servers.
const NAME: &str = "twins";

/// Whether the server that has heard the client first can be reached over an honest path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    OutOfReach,
    /// Over a path that is slower than that to the other server.
    InReach,
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let hosts =
        "two hosts with one key and one name, answers of the first are swallowed: no byte is delivered twice";
    let restart = "a server is started again between two attempts: no byte is delivered twice";
    for handshake in ["tls", "tcpcrypt"] {
        let is_quick = handshake == "tls";
        for (suffix, first) in [("", First::OutOfReach), ("-in-reach", First::InReach)] {
            let run = move |context: &Context<'_>| two_instances(context, handshake, first);
            cases
                .push(Case::new(format!("two-instances/{handshake}{suffix}"), hosts, run).quick_if(is_quick));
        }
        let run = move |context: &Context<'_>| restart_between(context, handshake);
        let name = format!("restart-between-attempts/{handshake}");
        cases.push(Case::new(name, restart, run).quick_if(is_quick));
    }
    cases
}

/// A server that only listens, and what its application hears.
struct Server {
    program: Program,
    heard: Arc<AtomicU64>,
    reader: JoinHandle<Arrived>,
}

impl Server {
    fn start(
        context: &Context<'_>,
        host: &Namespace,
        (name, handshake): (&str, &str),
        paths: &[&str],
    ) -> Result<Self> {
        let mut command = Command::new(&context.settings.plait);
        command.arg("listen").arg(PORT.to_string()).args(["--handshake", handshake]);
        command.arg("--keys").arg(context.directory.join("server-keys"));
        command.args(context.settings.carrier.options());
        paths.iter().for_each(|path| {
            command.args(["--path", path]);
        });
        let mut program = Program::start(host, context.directory, name, command, End::Own, End::Pipe)?;
        program.wait_for_line("listening on port", START)?;
        let output = program.take_output().context("its standard output is taken")?;
        let heard: Arc<AtomicU64> = Arc::default();
        let reader = exchange::read(output, Load::noise(SIZE).up, SIZE, Arc::clone(&heard));
        Ok(Self { program, heard, reader })
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Ends it at once; what its application was given.
    fn kill(mut self) -> Result<Arrived> {
        self.program.signal(Signal::SIGKILL);
        self.program.wait(START)?;
        self.reader.join().ok().context("a reader panicked")
    }
}

/// A client that looks its servers up in a file of its own, and says [`SIZE`] bytes.
fn client(context: &Context<'_>, fixture: &Fixture<'_>, handshake: &str, paths: &[&str]) -> Result<Program> {
    let addresses = paths.iter().map(|path| Ok(format!("{} {NAME}\n", fixture.server_address(path)?)));
    let hosts = fixture.file("hosts");
    std::fs::write(&hosts, addresses.collect::<Result<String>>()?)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(&hosts);
    command.arg(&context.settings.plait).args(["connect", NAME]).arg(PORT.to_string());
    command.args(context.settings.family.options()).args(["--handshake", handshake, "--accept-new=one-path"]);
    command.arg("--keys").arg(fixture.file("client-keys")).args(context.settings.carrier.options());
    for path in paths {
        command.args(["--path", path]);
    }
    let namespace = fixture.lab.client().namespace();
    let mut program = Program::start(namespace, context.directory, "client", command, End::Pipe, End::Own)?;
    let input = program.take_input().context("its standard input is taken")?;
    let all = Arc::new(AtomicU64::new(u64::MAX));
    exchange::feed(input, Load::noise(SIZE).up, SIZE, all);
    Ok(program)
}

/// Moves the far end of a path into a host of its own.
fn second_host(fixture: &Fixture<'_>, path: &str) -> Result<Namespace> {
    let second = Namespace::named("second")?;
    second.set_sysctl("net.ipv4.conf.all.rp_filter", 0)?;
    second.set_sysctl("net.ipv4.conf.default.rp_filter", 0)?;
    let name = second.name().context("a namespace without a name")?;
    fixture.lab.server().namespace().ip(&format!("link set dev {path} netns {name}"))?;
    second.set_sysctl(&format!("net/ipv6/conf/{path}/addr_gen_mode"), 1)?;
    second.ip(&format!("link set dev {path} up"))?;
    let addresses = fixture.path(path)?.server();
    for (address, length) in [(addresses.v4, 24), (addresses.v6, 64)] {
        let flag = if address.is_ipv6() { " nodad" } else { "" };
        second.ip(&format!("address add {address}/{length} dev {path}{flag}"))?;
    }
    for family in ["-4", "-6"] {
        second.ip(&format!("{family} route add default dev {path}"))?;
    }
    Ok(second)
}

fn two_instances(context: &Context<'_>, handshake: &str, first: First) -> Result<Verdict> {
    let [quick, slow] = [DELAY_MS, SLOW_MS].map(|delay| Conditions::megabits(MEGABITS, delay));
    // Path c leads to the second host, the others to the first one.
    let paths = match first {
        First::OutOfReach => vec![("a", quick.clone()), ("c", quick)],
        First::InReach => vec![("a", quick.clone()), ("b", slow), ("c", quick)],
    };
    let fixture = Fixture::up_along(context, Listening::Closed, &paths)?;
    let second = second_host(&fixture, "c")?;
    let names: Vec<&str> = paths.iter().map(|(name, _)| *name).collect();
    let to_first = &names[..names.len() - 1];
    let namespace = fixture.lab.server().namespace();
    let one = Server::start(context, namespace, ("server", handshake), to_first)?;
    let other = Server::start(context, &second, ("second", handshake), &["c"])?;
    fixture.path("a")?.attack(Attack::new(AttackName::SwallowAnswers))?;
    let mut client = client(context, &fixture, handshake, &names)?;
    let ended = client.wait(LONGEST);
    std::thread::sleep(LAST_FLIGHT);
    let struck = Injections::on(fixture.path("a")?, AttackName::SwallowAnswers)?.words();
    let heard = [one.kill()?, other.kill()?];
    let code = ended?.code();
    let words = judge(&heard, code, &client.last_words()).with_context(|| struck.clone())?;
    if first == First::InReach {
        let is_whole = code == Some(0) && heard[0].is_equal;
        ensure!(is_whole, "the first server was within reach, and has not got everything: {words}; {struck}");
    }
    Ok(Verdict::Passed(format!("{words}; {struck}")))
}

fn restart_between(context: &Context<'_>, handshake: &str) -> Result<Verdict> {
    let conditions = Conditions::megabits(MEGABITS, DELAY_MS);
    let names = ["a", "b"];
    let paths = names.map(|name| (name, conditions.clone()));
    let fixture = Fixture::up_along(context, Listening::Closed, &paths)?;
    let namespace = fixture.lab.server().namespace();
    let before = Server::start(context, namespace, ("server", handshake), &names)?;
    fixture.path("a")?.attack(Attack::new(AttackName::SwallowAnswers))?;
    // There is no second attempt before the server was started again.
    fixture.path("b")?.cut()?;
    let mut client = client(context, &fixture, handshake, &names)?;
    wait_until("the first flight", FIRST_FLIGHT, || -> Result<bool> { Ok(before.heard() > 0) })?;
    let before = before.kill()?;
    let after = Server::start(context, namespace, ("server-again", handshake), &names)?;
    fixture.path("b")?.restore()?;
    let ended = client.wait(LONGEST);
    std::thread::sleep(LAST_FLIGHT);
    let struck = Injections::on(fixture.path("a")?, AttackName::SwallowAnswers)?.words();
    let heard = [before, after.kill()?];
    let words = judge(&heard, ended?.code(), &client.last_words()).with_context(|| struck.clone())?;
    Ok(Verdict::Passed(format!("{words}; {struck}")))
}

/// Judges the data of two servers, and the messages of the client: an error if a byte was delivered twice, or a loss was not reported.
fn judge(heard: &[Arrived; 2], code: Option<i32>, said: &str) -> Result<String> {
    let [first, second] = heard;
    let how = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit {code}"));
    let words = format!(
        "{} bytes at the first, {} at the second, the client: {how} {said}",
        first.bytes, second.bytes
    );
    for arrived in heard {
        if let Some(place) = arrived.first_wrong {
            bail!("another byte at place {place}: {words}");
        }
    }
    ensure!(first.bytes == 0 || second.bytes == 0, "delivered twice: {words}");
    let is_whole = first.is_equal || second.is_equal;
    ensure!(code != Some(0) || is_whole, "success, though bytes are missing: {words}");
    Ok(words.trim_end().to_owned())
}
