//! Plain TCP: a peer without Multipath TCP, and paths that take the options away.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::transfer::Direction;
use crate::interop::middlebox::Strip;
use crate::interop::peer::{TransferReport, sha256_of_pattern};
use crate::interop::scenario::{BOTH, CLIENT, Context, SERVER, Scenario, Verdict};
use crate::interop::session::{PORT, Plan, Session, interop, mptcp_counters, peer_namespace};
use plait_lab::wired::{Shape, Testbed, device};
use plait_lab::{End, Program, wait_until};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "peer-without-mptcp",
        about: "Multipath TCP is off in the kernel: plain TCP, both ways at once",
        roles: BOTH,
        run: peer_without_mptcp,
    },
    Scenario {
        name: "strip-syn",
        about: "a middlebox removes the options from each SYN",
        roles: BOTH,
        run: |context| stripped(context, Strip::Syn),
    },
    Scenario {
        name: "strip-syn-ack",
        about: "a middlebox removes the options from each SYN/ACK",
        roles: BOTH,
        run: |context| stripped(context, Strip::SynAck),
    },
    Scenario {
        name: "strip-after-handshake",
        about: "a middlebox removes the options from everything but SYNs",
        roles: BOTH,
        run: |context| stripped(context, Strip::AfterHandshake),
    },
    Scenario {
        name: "strip-joins",
        about: "a middlebox on the second path removes the options from joins: one subflow goes on",
        roles: BOTH,
        run: strip_joins,
    },
    Scenario {
        name: "curl",
        about: "a plain curl fetches a file from the subject, which answers with canned HTTP",
        roles: SERVER,
        run: curl,
    },
    Scenario {
        name: "http-server",
        about: "the subject fetches a file from a plain HTTP server (python3 -m http.server)",
        roles: CLIENT,
        run: http_server,
    },
];

/// The length of the file fetched with HTTP.
const FILE: u64 = 8 << 20;

fn peer_without_mptcp(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    peer_namespace(&bed, context.role).set_sysctl("net.mptcp.enabled", 0)?;
    let bytes = context.size() / 2;
    let mut plan = Plan::two_paths(context, &bed).moving(bytes, bytes);
    (plan.peer_socket, plan.peer_endpoints) = ("tcp", Vec::new());
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    outcome.expect_tcp()?;
    Ok(Verdict::Passed(outcome.evidence()))
}

fn stripped(context: &Context<'_>, strip: Strip) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let rule = strip.install(bed.router(1)?)?;
    let bytes = context.size() / 2;
    let outcome = Session::run(context, &bed, Plan::default().moving(bytes, bytes))?;
    outcome.verify()?;
    outcome.expect_tcp()?;
    let packets = rule.packets()?;
    ensure!(packets > 0, "no packet with an option came by");
    Ok(Verdict::Passed(format!("{packets} packets stripped; {}", outcome.evidence())))
}

fn strip_joins(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(200)?;
    let rule = Strip::Joins.install(bed.router(2)?)?;
    let (up, down) = Direction::Both.split(context.role, context.bytes_for(2, 200));
    let outcome = Session::run(context, &bed, Plan::two_paths(context, &bed).moving(up, down))?;
    outcome.verify()?;
    outcome.expect_mptcp()?;
    let packets = rule.packets()?;
    ensure!(packets > 0, "no join came by");
    Ok(Verdict::Passed(format!("{packets} packets stripped; {}", outcome.evidence())))
}

fn curl(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let directory = context.run_directory()?;
    let answer = directory.join("answer");
    let body = pattern_bytes(FILE);
    let mut bytes = format!("HTTP/1.0 200 OK\r\nContent-Length: {FILE}\r\n\r\n").into_bytes();
    bytes.extend(&body);
    fs::write(&answer, bytes)?;
    let mut input = End::Own;
    let command = match context.plait() {
        Some(plait) => {
            input = End::Given(fs::File::open(&answer)?.into());
            let mut command = Command::new(plait);
            command.args(["listen", &PORT.to_string(), "--path", &device(1), "--protect", "plain"]);
            command
        }
        None => {
            let mut command = interop()?;
            command.args(["listen", &PORT.to_string(), "--input"]).arg(&answer);
            command
        }
    };
    let mut server = Program::start(&bed.server, &directory, "server", command, input, End::Own)?;
    server.wait_for_line("listening", Duration::from_secs(60))?;
    let mut command = Command::new("curl");
    let address = SocketAddr::new(bed.server_address(context.family, 1), PORT);
    command.args(["--silent", "--show-error", "--max-time", "30"]).arg(format!("http://{address}/file"));
    let before = bed.client.counters()?;
    let mut curl = Program::start(&bed.client, &directory, "curl", command, End::Own, End::Own)?;
    let status = curl.wait(Duration::from_secs(40))?;
    ensure!(status.success(), "curl: {}; server: {}", curl.last_words(), server.last_words());
    ensure!(fs::read(curl.output())? == body, "curl received other bytes than were sent");
    // curl has closed: some round trips later the server is over as well.
    let status = server.wait(Duration::from_secs(if context.is_quick() { 60 } else { 3 }))?;
    ensure!(status.success(), "the server failed: {}", server.last_words());
    let counters = bed.client.counters()?.since(&before);
    ensure!(counters.count("MPTcpExtMPCapableSYNTX") == 0, "curl used Multipath TCP itself");
    let opened = counters.count("TcpActiveOpens");
    Ok(Verdict::Passed(format!(
        "{FILE} bytes; kernel: {opened} TCP connection, {}",
        mptcp_counters(&counters)
    )))
}

fn http_server(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let directory = context.run_directory()?;
    let site = directory.join("site");
    fs::create_dir_all(&site)?;
    let body = pattern_bytes(FILE);
    fs::write(site.join("file"), &body)?;
    let mut command = Command::new("python3");
    let address = bed.server_address(context.family, 1);
    command.args(["-m", "http.server", "--bind", &address.to_string(), "--directory"]).arg(&site);
    command.arg(PORT.to_string());
    let mut server = Program::start(&bed.server, &directory, "server", command, End::Own, End::Own)?;
    let own = SocketAddr::new(address, PORT);
    wait_until("the HTTP server (is python3 there?)", Duration::from_secs(60), || {
        ensure!(!server.has_ended()?, "python3 -m http.server: {}", server.last_words());
        Ok(bed.server.enter(|| std::net::TcpStream::connect(own).is_ok())?)
    })?;
    let request = directory.join("request");
    fs::write(&request, "GET /file HTTP/1.0\r\n\r\n")?;
    let (mut input, mut command) = (End::Own, interop()?);
    match context.plait() {
        Some(plait) => {
            input = End::Given(Stdio::from(fs::File::open(&request)?));
            command = Command::new(plait);
            command.args(["connect", &address.to_string(), &PORT.to_string(), "--path", &device(1)]);
            command.args(["--protect", "plain"]);
        }
        None => {
            command.arg("connect").arg(own.to_string()).arg("--input").arg(&request);
        }
    }
    let mut client = Program::start(&bed.client, &directory, "subject", command, input, End::Own)?;
    let status = client.wait(Duration::from_secs(40))?;
    ensure!(status.success(), "the client failed: {}", client.last_words());
    if context.is_baseline() {
        let report: TransferReport = client.report()?;
        ensure!(report.received > FILE, "only {} bytes arrived", report.received);
        return Ok(Verdict::Passed(format!("{} bytes with headers, {:?}", report.received, report.protocol)));
    }
    let answer = fs::read(client.output())?;
    ensure!(answer.starts_with(b"HTTP/1.0 200"), "the answer is no HTTP: {}", server.last_words());
    ensure!(answer.ends_with(&body), "other bytes arrived than were sent: {} of them", answer.len());
    Ok(Verdict::Passed(format!("{} bytes with headers", answer.len())))
}

fn pattern_bytes(length: u64) -> Vec<u8> {
    // Any bytes do, if both ends can be compared: the digest of a pattern is as good a seed as any.
    let seed = sha256_of_pattern(length, 1);
    seed.bytes().cycle().take(usize::try_from(length).unwrap_or(0)).collect()
}
