//! Two `plait` programs that choose their carriers themselves, in networks that let one of them through, or change the packets of both.
//! Every byte arrives sealed, both ways, over the carriers that the network leaves.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::wired::{Family, PATHS, Shape, Testbed, device};
use plait_lab::{End, Program};
use plait_netns::nft::Table;
use serde_json::Value;

use super::path_mtu::{Icmp, Router};
use crate::attacks::exchange::{self, Load, Running};
use crate::interop::middlebox::{Nat, drop_carrier, strip_all_options};
use crate::interop::scenario::{CLIENT, Context, Scenario, Verdict};
use crate::interop::session::PORT;

/// Longest time in which nothing moves.
const TIMEOUT: Duration = Duration::from_secs(60);
const START: Duration = Duration::from_secs(60);
/// Of each path; a transfer lasts long enough for a second path to be found.
const MEGABITS: u32 = 200;
/// The same where a transfer has to last for some rebindings.
const SLOW_MEGABITS: u32 = 40;
/// Bytes that one path takes five seconds for.
const LONG: u64 = 128 << 20;

const TCP_ALONE: &str = "p1 tcp, p2 tcp";

/// The segments that lose their options in a network.
const SYN: &str = "tcp flags & (syn | ack) == syn";
const SYN_ACK: &str = "tcp flags & (syn | ack) == syn | ack";
const LATER: &str = "tcp flags & syn == 0";

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "carrier-stripped-syn",
        about: "one path strips all options of SYNs: TCP on the other, UDP on this",
        roles: CLIENT,
        run: |context| stripped(context, SYN),
    },
    Scenario {
        name: "carrier-stripped-syn-ack",
        about: "one path strips all options of SYN/ACKs: TCP on the other, UDP on this",
        roles: CLIENT,
        run: |context| stripped(context, SYN_ACK),
    },
    Scenario {
        name: "carrier-stripped-later",
        about: "one path strips all options once the SYNs have passed: TCP on the other, UDP on this",
        roles: CLIENT,
        run: |context| stripped(context, LATER),
    },
    Scenario {
        name: "carrier-only-udp",
        about: "no path lets TCP through",
        roles: CLIENT,
        run: |context| only(context, "tcp", "p1 udp, p2 udp"),
    },
    Scenario {
        name: "carrier-only-tcp",
        about: "no path lets UDP through",
        roles: CLIENT,
        run: |context| only(context, "udp", TCP_ALONE),
    },
    Scenario {
        name: "carrier-narrow",
        about: "UDP alone, through routers that pass 1280 bytes and whose ICMP is lost",
        roles: CLIENT,
        run: narrow,
    },
    Scenario {
        name: "carrier-blocked-midway",
        about: "one path by TCP, the other by UDP, which is dropped from the middle of the transfer on",
        roles: CLIENT,
        run: blocked_midway,
    },
    Scenario {
        name: "carrier-nat-forgets",
        about: "UDP alone, through NATs that forget after 30 seconds (4 with --quick): after a longer pause both subflows are there",
        roles: CLIENT,
        run: |context| forgetful(context, Says::KeepAlive),
    },
    Scenario {
        name: "carrier-nat-forgets-twin",
        about: "the same without keep-alives: the server's bytes find no way back, so the NATs do forget",
        roles: CLIENT,
        run: |context| forgetful(context, Says::Nothing),
    },
    Scenario {
        name: "carrier-nat-rebinds",
        about: "UDP alone, through NATs that give every flow another address each 10 seconds (2 with --quick): joins, and no error",
        roles: CLIENT,
        run: rebinding,
    },
];

/// Two programs that are connected.
struct Connected {
    client: Program,
    server: Program,
    directory: std::path::PathBuf,
}

impl Connected {
    /// `None` where the kernel stands in for the subject, which has one carrier.
    fn start(context: &Context<'_>, bed: &Testbed, options: &[&str]) -> Result<Option<Self>> {
        let Some(plait) = context.plait() else { return Ok(None) };
        let directory = context.run_directory()?;
        let command = |side: &str, words: &[&str]| {
            let mut command = Command::new(plait);
            command.args(words).args(["--carrier", "auto"]).args(options);
            for path in PATHS {
                command.args(["--path", &device(path)]);
            }
            command.arg("--keys").arg(directory.join(format!("{side}-keys")));
            command.arg("--status-json").arg(status_file(&directory, side));
            command
        };
        let port = PORT.to_string();
        let listen = command("server", &["listen", &port]);
        let mut server = Program::start(&bed.server, &directory, "server", listen, End::Pipe, End::Pipe)?;
        server.wait_for_line("listening on port", START)?;
        let address = bed.server_address(context.family, 1).to_string();
        // The first contact is not the subject here.
        let connect = command("client", &["connect", &address, &port, "--accept-new=one-path"]);
        let client = Program::start(&bed.client, &directory, "client", connect, End::Pipe, End::Pipe)?;
        Ok(Some(Self { client, server, directory }))
    }

    fn send(&mut self, load: &Load) -> Result<Running> {
        exchange::start(&mut self.client, &mut self.server, load)
    }

    /// All bytes arrived sealed, the same both ways; which carriers were used on which paths, in the client's status.
    fn finish(mut self, running: Running) -> Result<(String, Value)> {
        let over = running.finish(&mut self.client, &mut self.server, TIMEOUT)?;
        let status = std::fs::read_to_string(status_file(&self.directory, "client")).unwrap_or_default();
        let status: Value = status.lines().last().map(serde_json::from_str).transpose()?.unwrap_or_default();
        let (up, down) = (&over.up, &over.down);
        ensure!(
            !over.hung && up.is_equal && down.is_equal && over.client.code == Some(0),
            "{} and {} bytes arrived{}; client: {}; server: {}; {status}",
            up.bytes,
            down.bytes,
            if over.hung { ", then nothing" } else { "" },
            over.client.said,
            over.server.said
        );
        ensure!(!status["sealed"].is_null(), "it was not sealed: {status}");
        let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let paths = status["paths"].as_array().context("the status has no paths")?;
        let used = paths.iter().filter(|path| path["bytes_sent"] != 0);
        let used: Vec<_> =
            used.map(|path| format!("{} {}", word(&path["name"]), word(&path["carrier"]))).collect();
        let seconds = over.time.as_secs_f64();
        let gap = up.longest_gap.max(down.longest_gap).as_millis();
        println!("    equal both ways in {seconds:.1} s, longest gap {gap} ms, over {}", used.join(", "));
        Ok((used.join(", "), status))
    }
}

fn status_file(directory: &Path, side: &str) -> std::path::PathBuf {
    directory.join(format!("{side}-status.json"))
}

const KERNEL: Result<Verdict> = Ok(Verdict::NotApplicable("the kernel has one carrier"));

/// A transfer over a network with these tables in it, that is to use these carriers.
fn expect(
    context: &Context<'_>,
    (bed, size): (&Testbed, u64),
    tables: &[Table],
    expected: &str,
) -> Result<Verdict> {
    let Some(mut connected) = Connected::start(context, bed, &[])? else { return KERNEL };
    let running = connected.send(&Load::noise(size))?;
    let (used, _) = connected.finish(running)?;
    ensure!(used == expected, "it went over {used}, not {expected}");
    let struck: Vec<_> = tables.iter().map(Table::packets).collect::<Result<_, _>>()?;
    // If TCP comes through, UDP is not tried.
    let is_tried = expected != TCP_ALONE;
    ensure!(
        !is_tried || struck.iter().any(|&packets| packets > 0),
        "the network did nothing: {struck:?} packets"
    );
    Ok(Verdict::Passed(format!("equal both ways, sealed, over {used}; rules met {struck:?} packets")))
}

fn stripped(context: &Context<'_>, which: &str) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(MEGABITS)?;
    let table = strip_all_options(bed.router(2)?, which)?;
    // Behind the SYNs it takes some seconds until nothing is left to be tried over TCP.
    let size = if which == LATER { context.size().max(LONG) } else { context.size() };
    expect(context, (&bed, size), &[table], "p1 tcp, p2 udp")
}

fn only(context: &Context<'_>, dropped: &str, expected: &str) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(MEGABITS)?;
    let tables = without(&bed, dropped)?;
    expect(context, (&bed, context.size()), &tables, expected)
}

/// Drops a carrier on both paths.
fn without(bed: &Testbed, dropped: &str) -> Result<Vec<Table>> {
    PATHS.map(|path| Ok(drop_carrier(bed.router(path)?, dropped)?)).collect()
}

fn narrow(context: &Context<'_>) -> Result<Verdict> {
    const PASSED: u32 = 1280;
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(MEGABITS)?;
    let _narrow = PATHS
        .map(|path| Router::of(bed.router(path)?, path, PASSED, Icmp::Lost))
        .collect::<Result<Vec<_>>>()?;
    let tables = without(&bed, "tcp")?;
    expect(context, (&bed, context.size()), &tables, "p1 udp, p2 udp")
}

fn blocked_midway(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(MEGABITS)?;
    let _second = drop_carrier(bed.router(2)?, "tcp")?;
    let Some(mut connected) = Connected::start(context, &bed, &[])? else { return KERNEL };
    let running = connected.send(&Load::noise(context.size()))?;
    running.wait_for(context.size(), TIMEOUT)?;
    let blocked = drop_carrier(bed.router(2)?, "udp")?;
    let (used, _) = connected.finish(running)?;
    ensure!(used == "p1 tcp, p2 udp", "it went over {used}");
    let packets = blocked.packets()?;
    ensure!(packets > 0, "nothing was under way on the second path when it was blocked");
    Ok(Verdict::Passed(format!("equal both ways, sealed, over {used}; then {packets} packets were dropped")))
}

/// The keep-alives of a silent connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    KeepAlive,
    Nothing,
}

fn forgetful(context: &Context<'_>, says: Says) -> Result<Verdict> {
    if context.family == Family::V6 {
        return Ok(Verdict::NotApplicable("NATs are there for IPv4"));
    }
    let bed = Testbed::new(Shape::Routed)?;
    // After half a minute sealed connections ask by themselves: what forgets is to do it before.
    let is_short = context.is_quick() || says == Says::Nothing;
    let (forgets, keep_alive) = if is_short { (4, "2") } else { (30, "25") };
    let nats = PATHS
        .map(|path| Nat::new(bed.router(path)?, path, Duration::from_secs(forgets)))
        .collect::<Result<Vec<_>>>()?;
    let _only = without(&bed, "tcp")?;
    let keep_alive = if says == Says::KeepAlive { keep_alive } else { "1000" };
    let Some(mut connected) = Connected::start(context, &bed, &["--keep-alive", keep_alive])? else {
        return KERNEL;
    };
    // The client has said all before the pause, and the server speaks first after it.
    const BEFORE: u64 = 4 << 20;
    let size = context.size();
    let load = Load { holds_down_at: Some(BEFORE), ..Load::noise(size) };
    let running = connected.send(&load)?;
    running.wait_for(size + BEFORE, TIMEOUT)?;
    std::thread::sleep(Duration::from_secs(2 * forgets + 1));
    running.let_go();
    if says == Says::Nothing {
        let moved = running.wait_for(size + BEFORE + (1 << 20), Duration::from_secs(1));
        ensure!(moved.is_err(), "the NATs have not forgotten: then the other scenario shows nothing");
        return Ok(Verdict::Passed("nothing comes through: the NATs have forgotten".to_owned()));
    }
    let (used, status) = connected.finish(running)?;
    let subflows = status["subflows"].as_array().map_or(&[][..], Vec::as_slice);
    let subflows = subflows.iter().filter(|subflow| subflow["bytes_received"] != 0).count();
    ensure!(used == "p1 udp, p2 udp" && subflows == 2, "{subflows} subflows over {used}: {status}");
    drop(nats);
    Ok(Verdict::Passed(format!("equal both ways, sealed, over {used}, by the two subflows of the beginning")))
}

fn rebinding(context: &Context<'_>) -> Result<Verdict> {
    if context.family == Family::V6 {
        return Ok(Verdict::NotApplicable("NATs are there for IPv4"));
    }
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(SLOW_MEGABITS)?;
    let mut nats = PATHS
        .map(|path| Nat::new(bed.router(path)?, path, Duration::from_secs(30)))
        .collect::<Result<Vec<_>>>()?;
    let _only = without(&bed, "tcp")?;
    let Some(mut connected) = Connected::start(context, &bed, &[])? else { return KERNEL };
    let size = context.size();
    let running = connected.send(&Load::noise(size))?;
    let every = Duration::from_secs(if context.is_quick() { 2 } else { 10 });
    let mut rebindings = 0;
    running.wait_for(1 << 20, TIMEOUT)?;
    loop {
        // The NATs do not both change at the same moment.
        for nat in &mut nats {
            if running.wait_for(2 * size, every / 2).is_ok() {
                let (used, status) = connected.finish(running)?;
                ensure!(rebindings > 2, "it was over after {rebindings} rebindings");
                let joins = status["subflows"].as_array().map_or(0, Vec::len);
                return Ok(Verdict::Passed(format!(
                    "equal both ways, sealed, over {used}, through {rebindings} rebindings; {joins} subflows in the last status"
                )));
            }
            nat.rebind()?;
            rebindings += 1;
            if rebindings > 200 {
                bail!("{} bytes moved in {rebindings} rebindings", running.moved());
            }
        }
    }
}
