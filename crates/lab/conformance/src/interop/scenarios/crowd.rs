//! Many connections: nothing may leak, and an idle one must be cheap.

use std::net::SocketAddr;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plait_netns::Namespace;
use serde::Deserialize;

use crate::interop::peer::{CrowdReport, TransferReport};
use crate::interop::scenario::{BOTH, CLIENT, Context, Role, SERVER, Scenario, Verdict};
use crate::interop::session::{PORT, Plan, configure_kernels, interop, mptcp_counters};
use plait_lab::wired::{Shape, Testbed, device};
use plait_lab::{End, Program};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "churn",
        about: "10 000 short connections: no descriptor, no memory, no kernel socket is kept",
        roles: BOTH,
        run: |context| match context.role {
            Role::Client => churn_of_client(context),
            Role::Server => churn(context),
        },
    },
    Scenario {
        name: "churn-udp",
        about: "10 000 short sealed connections over UDP between two plait programs: neither keeps descriptors or memory",
        roles: CLIENT,
        run: churn_over_udp,
    },
    Scenario {
        name: "idle-memory",
        about: "memory of the subject per idle connection",
        roles: SERVER,
        run: idle_memory,
    },
];

/// Growth of memory between the two halves of the churn that is not taken for a leak, in bytes per connection: one hundredth of what a
/// connection's state takes.
const LEAK: f64 = 200.0;

/// Most memory of a four-tuple in TIME-WAIT, in bytes: the side that closes first keeps each for a minute.
const TIME_WAIT: f64 = 400.0;

/// Sessions that a listener keeps at most, and what each takes, in bytes.
const SESSIONS: u64 = 4096;
const SESSION: f64 = 1024.0;

/// A subject that serves every client until it is dropped. `plait` sends the received data back, the kernel's program sends nothing.
pub(crate) struct Standing {
    pub(crate) program: Program,
    pub(crate) address: SocketAddr,
}

impl Standing {
    pub(crate) fn start(context: &Context<'_>, bed: &Testbed) -> Result<Self> {
        configure_kernels(context, bed, &Plan::default())?;
        let directory = context.run_directory()?;
        let command = match context.plait() {
            Some(plait) => {
                let mut command = Command::new(plait);
                command.args(["listen", &PORT.to_string(), "--echo", "--path", &device(1)]);
                command.args(["--protect", "plain"]);
                command
            }
            None => {
                let mut command = interop()?;
                command.args(["listen", &PORT.to_string(), "--count", "1000000"]);
                command
            }
        };
        let mut program = Program::start(&bed.server, &directory, "subject", command, End::Own, End::Own)?;
        program.wait_for_line("listening", Duration::from_secs(60))?;
        Ok(Self { program, address: SocketAddr::new(bed.server_address(context.family, 1), PORT) })
    }

    /// One ordinary transfer to it by the kernel: it is alive and well.
    pub(crate) fn probe(&self, context: &Context<'_>, bed: &Testbed) -> Result<TransferReport> {
        let mut command = interop()?;
        command.arg("connect").arg(self.address.to_string()).args(["--send", "1000000"]);
        command.args(["--seed", "9", "--expect-seed", "9"]);
        let mut client =
            Program::start(&bed.client, &context.run_directory()?, "probe", command, End::Own, End::Own)?;
        client.wait(Duration::from_secs(20))?;
        let report: TransferReport = client.report()?;
        let back = if context.is_baseline() { 0 } else { 1_000_000 };
        ensure!(
            report.error.is_none()
                && (report.sent, report.received, report.differing) == (1_000_000, back, Some(0)),
            "an ordinary connection fails: {report:?}; subject: {}",
            self.program.last_words()
        );
        Ok(report)
    }
}

fn churn(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let subject = Standing::start(context, &bed)?;
    let half = if context.is_quick() { 1000 } else { 5000 };
    let before = bed.client.counters()?;
    let sockets = kernel_sockets(&bed.client)?;
    let mut resident = Vec::new();
    let mut descriptors = vec![subject.program.descriptors()?];
    let mut seconds = 0.0;
    for _ in 0..2 {
        let mut command = interop()?;
        command.arg("churn").arg(subject.address.to_string()).args(["--count", &half.to_string()]);
        if !context.is_baseline() {
            command.arg("--echo");
        }
        let directory = context.run_directory()?;
        let mut crowd = Program::start(&bed.client, &directory, "churn", command, End::Own, End::Own)?;
        crowd.wait(Duration::from_secs(300))?;
        let report: CrowdReport = crowd.report()?;
        ensure!(
            report.failed == 0,
            "{} of {half} failed, first: {}; subject: {}",
            report.failed,
            report.error.unwrap_or_default(),
            subject.program.last_words()
        );
        seconds += report.seconds;
        // The last connections are still closing.
        sleep(Duration::from_millis(500));
        resident.push(subject.program.resident_bytes()?);
        descriptors.push(subject.program.descriptors()?);
    }
    subject.probe(context, &bed)?;
    let counters = bed.client.counters()?.since(&before);
    let growth = resident[1].saturating_sub(resident[0]) as f64 / f64::from(half);
    let left = settled_sockets(&bed.client, sockets)?;
    let text = format!(
        "{} connections at {:.0} per second; RSS {} then {} KiB, descriptors {descriptors:?}\n\
         kernel: sockets {} before, {} after; {}",
        2 * half,
        f64::from(2 * half) / seconds,
        resident[0] / 1024,
        resident[1] / 1024,
        sockets,
        left,
        mptcp_counters(&counters)
    );
    // In a baseline the process is the harness's own, with a thread per connection: its heap says nothing.
    ensure!(growth <= LEAK || context.is_baseline(), "{growth:.0} bytes kept per connection; {text}");
    // It may still have some from its start when it begins to listen: fewer is no leak.
    ensure!(descriptors.windows(2).all(|pair| pair[1] <= pair[0] + 2), "descriptors are kept; {text}");
    Ok(Verdict::Passed(text))
}

/// The subject opens the connections: a program on plait's own sockets, because `plait connect` opens one in its life.
fn churn_of_client(context: &Context<'_>) -> Result<Verdict> {
    let Some(plait) = context.plait() else {
        return Ok(Verdict::NotApplicable("the kernel's client is the other side of this scenario"));
    };
    let churn = plait.with_file_name("churn");
    ensure!(churn.exists(), "{} is missing: scripts/interop builds it", churn.display());
    let bed = Testbed::new(Shape::Routed)?;
    configure_kernels(context, &bed, &Plan::default())?;
    let directory = context.run_directory()?;
    let count: u32 = if context.is_quick() { 2000 } else { 10_000 };
    let mut command = interop()?;
    command.args(["listen", &PORT.to_string(), "--send", "100", "--count", &(count + 1).to_string()]);
    let mut server = Program::start(&bed.server, &directory, "server", command, End::Own, End::Own)?;
    server.wait_for_line("listening", Duration::from_secs(60))?;
    let (before, sockets) = (bed.server.counters()?, kernel_sockets(&bed.server)?);
    let address = SocketAddr::new(bed.server_address(context.family, 1), PORT);
    let mut command = Command::new(churn);
    command.args([&address.to_string(), &device(1), &count.to_string()]);
    let mut subject = Program::start(&bed.client, &directory, "subject", command, End::Own, End::Own)?;
    let status = subject.wait(Duration::from_secs(300))?;
    ensure!(status.success(), "the subject failed: {}", subject.last_words());
    let halves: Vec<Half> = std::fs::read_to_string(subject.output())?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let [first, second] = halves.as_slice() else { bail!("{} halves were reported", halves.len()) };
    let left = settled_sockets(&bed.server, sockets)?;
    let counters = bed.server.counters()?.since(&before);
    let text = format!(
        "{} connections at {:.0} per second; RSS {} then {} KiB, descriptors {} then {}, connections kept {}, in TIME-WAIT {}\n\
         kernel: sockets {sockets} before, {left} after; {}",
        first.completed + second.completed,
        f64::from(count) / (first.seconds + second.seconds),
        first.resident / 1024,
        second.resident / 1024,
        first.descriptors,
        second.descriptors,
        second.kept,
        second.time_wait,
        mptcp_counters(&counters)
    );
    let failed = first.failed + second.failed;
    let error = first.error.as_ref().or(second.error.as_ref());
    ensure!(failed == 0, "{failed} of {count} failed, first: {error:?}; {text}");
    ensure!(
        counters.count("MPTcpExtMPCapableACKRX") >= u64::from(count),
        "not all were Multipath TCP; {text}"
    );
    let growth = second.resident.saturating_sub(first.resident) as f64;
    let waiting = second.time_wait.saturating_sub(first.time_wait) as f64;
    let unexplained = (growth - waiting * TIME_WAIT) / f64::from(count / 2);
    ensure!(unexplained <= LEAK, "{unexplained:.0} bytes kept per connection besides TIME-WAIT; {text}");
    ensure!(second.descriptors <= first.descriptors + 2 && second.kept == 0, "something is kept; {text}");
    Ok(Verdict::Passed(text))
}

/// A program with sockets of plait's opens them, and `plait listen` sends back what comes: a socket for each subflow at the one end, one for
/// all of them at the other.
fn churn_over_udp(context: &Context<'_>) -> Result<Verdict> {
    let Some(plait) = context.plait() else {
        return Ok(Verdict::NotApplicable("the kernel has one carrier"));
    };
    let churn = plait.with_file_name("churn");
    ensure!(churn.exists(), "{} is missing: scripts/interop builds it", churn.display());
    let bed = Testbed::new(Shape::Routed)?;
    let directory = context.run_directory()?;
    let count: u32 = if context.is_quick() { 1000 } else { 10_000 };
    let mut command = Command::new(plait);
    command.args(["listen", &PORT.to_string(), "--echo", "--path", &device(1), "--carrier", "udp"]);
    command.arg("--keys").arg(directory.join("keys"));
    let mut server = Program::start(&bed.server, &directory, "server", command, End::Own, End::Own)?;
    server.wait_for_line("listening", Duration::from_secs(60))?;
    let said = server.errors();
    let key = said.lines().find_map(|line| line.split_once("our key is ")).context("no key")?.1.to_owned();
    let before = (server.resident_bytes()?, server.descriptors()?);
    let address = SocketAddr::new(bed.server_address(context.family, 1), PORT);
    let mut command = Command::new(churn);
    command.args([&address.to_string(), &device(1), &count.to_string(), &key]);
    let mut client = Program::start(&bed.client, &directory, "client", command, End::Own, End::Own)?;
    let (mut most, began) = (0, Instant::now());
    let mut resident = Vec::new();
    while !client.has_ended()? {
        ensure!(began.elapsed() < Duration::from_secs(600), "it does not end: {}", client.last_words());
        most = most.max(server.descriptors()?);
        // The client says a line after each half.
        let halves = std::fs::read_to_string(client.output())?.lines().count();
        if halves > resident.len() {
            resident.push(server.resident_bytes()?);
        }
        sleep(Duration::from_millis(20));
    }
    let status = client.wait(Duration::from_secs(5))?;
    ensure!(status.success(), "the client failed: {}", client.last_words());
    let text = std::fs::read_to_string(client.output())?;
    let halves: Vec<Half> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let [first, second] = halves.as_slice() else { bail!("{} halves were reported", halves.len()) };
    let after = (server.resident_bytes()?, server.descriptors()?);
    let half = resident.first().copied().unwrap_or(after.0);
    let text = format!(
        "{} sealed connections at {:.0} per second\n\
         server: RSS {} KiB before, {} after half, {} after all; descriptors {} before, {most} at most, {} after\n\
         client: RSS {} then {} KiB, descriptors {} then {}, connections kept {}, in TIME-WAIT {}",
        first.completed + second.completed,
        f64::from(count) / (first.seconds + second.seconds),
        before.0 / 1024,
        half / 1024,
        after.0 / 1024,
        before.1,
        after.1,
        first.resident / 1024,
        second.resident / 1024,
        first.descriptors,
        second.descriptors,
        second.kept,
        second.time_wait
    );
    let failed = first.failed + second.failed;
    let error = first.error.as_ref().or(second.error.as_ref());
    ensure!(failed == 0, "{failed} of {count} failed, first: {error:?}; {text}");
    // Sockets of subflows in TIME-WAIT are the client's for a minute; the server has one for all.
    ensure!(after.1 <= before.1 + 2 && most <= before.1 + 2, "the server's descriptors grow; {text}");
    // Sessions that clients may continue are kept, so many of them.
    let sessions = SESSIONS.saturating_sub(u64::from(count / 2)).min(u64::from(count / 2)) as f64;
    let growth = (after.0.saturating_sub(half) as f64 - sessions * SESSION) / f64::from(count / 2);
    ensure!(growth <= LEAK + TIME_WAIT, "{growth:.0} bytes kept per connection by the server; {text}");
    ensure!(second.kept == 0, "the client keeps connections; {text}");
    Ok(Verdict::Passed(text))
}

/// The report of the subject after each half of its connections.
#[derive(Debug, Deserialize)]
struct Half {
    completed: u64,
    failed: u64,
    error: Option<String>,
    seconds: f64,
    resident: u64,
    descriptors: usize,
    kept: usize,
    time_wait: usize,
}

/// TCP sockets of a kernel that are in use: listening ones are, those in TIME-WAIT are not.
fn kernel_sockets(namespace: &Namespace) -> Result<u64> {
    let text = namespace.run("cat", "/proc/net/sockstat /proc/net/sockstat6")?;
    let counts = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_tcp = matches!(words.next(), Some("TCP:" | "TCP6:")) && words.next() == Some("inuse");
        words.next().filter(|_| is_tcp)?.parse::<u64>().ok()
    });
    Ok(counts.sum())
}

/// The same when the last connections have closed, or after some seconds with what is still there.
fn settled_sockets(namespace: &Namespace, before: u64) -> Result<u64> {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let now = kernel_sockets(namespace)?;
        if now <= before || Instant::now() > until {
            ensure!(now <= before, "the kernel keeps {now} TCP sockets, {before} before");
            return Ok(now);
        }
        sleep(Duration::from_millis(50));
    }
}

fn idle_memory(context: &Context<'_>) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(Verdict::NotApplicable("the kernel's connections are not in the memory of a process"));
    }
    let bed = Testbed::new(Shape::Routed)?;
    let subject = Standing::start(context, &bed)?;
    subject.probe(context, &bed)?;
    let before = subject.program.resident_bytes()?;
    let count = if context.is_quick() { 200 } else { 1000 };
    let mut command = interop()?;
    command.arg("hold").arg(subject.address.to_string()).args(["--count", &count.to_string()]);
    let input = End::Given(std::process::Stdio::piped());
    let mut crowd = Program::start(&bed.client, &context.run_directory()?, "hold", command, input, End::Own)?;
    crowd.wait_for_line("holding", Duration::from_secs(60))?;
    let report: CrowdReport = crowd.report()?;
    ensure!(report.failed == 0, "only {} of {count} came up: {report:?}", report.completed);
    sleep(Duration::from_millis(500));
    let after = subject.program.resident_bytes()?;
    drop(crowd.take_input());
    let each = after.saturating_sub(before) as f64 / f64::from(count) / 1024.0;
    let text = format!("{each:.1} KiB per idle connection ({count} of them)");
    ensure!(each < 256.0, "{text}");
    Ok(Verdict::Passed(text))
}
