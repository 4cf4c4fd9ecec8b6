//! What a person is told about a server that cannot be reached, and about the paths to it. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use plait_netns::nft::Table;
use support::{PLAIT, SERVER, World, slow_down};

/// A command of the client, with its keys in the world.
fn command(world: &World, words: &[&str]) -> Command {
    let mut command = Command::new(PLAIT);
    command.args(words).env("PLAIT_KEYS", world.file("client")).env_remove("PLAIT_CARRIER");
    command.env_remove("SUDO_UID").stdin(Stdio::null());
    command
}

fn plait(world: &World, words: &[&str]) -> Output {
    let mut command = command(world, words);
    world.client.enter(|| command.output()).expect("entered").expect("started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const PATHS: [&str; 4] = ["--path", "wan1", "--path", "wan2"];

#[test]
#[ignore = "needs root"]
fn a_check_tells_no_rate_that_it_cannot_know() {
    let mut world = World::without_server("check_rates");
    for words in
        ["route add default via 10.77.1.2 dev wan1", "route add default via 10.77.2.2 dev wan2 metric 200"]
    {
        world.client.ip(words).expect("added");
    }
    world.serve(&["--anyone", "--carrier", "auto"]);
    for (path, rate) in world.paths.iter().zip([30, 50]) {
        slow_down(path, &world.server, rate);
    }
    let check = [&["check", &world.url, "--idle", "0.2"][..], &PATHS].concat();
    let output = plait(&world, &check);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let header: Vec<_> = table.lines().next().expect("a header").split_whitespace().collect();
    assert_eq!(header, ["PATH", "CARRIER", "RESULT", "RTT", "LOSS", "MTU", "NAT"], "{table}");
    assert!(table.contains("wan1  tcp      usable") && table.contains("wan2  udp      usable"), "{table}");
    let output = plait(&world, &[&check[..], &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("\"min_rtt_ms\"") && !text.contains("rate"), "{text}");
}

#[test]
#[ignore = "needs root"]
fn a_host_without_a_route_is_told_so_at_once() {
    let world = World::without_server("no_route");
    let key = "A".repeat(43);
    let server = format!("plait://{SERVER}:7443#{key}");
    let commands = [
        &["run", "-s", &server, "--path", "wan1", "--path", "wan2", "--", "true"][..],
        &["forward", "-s", &server, "--path", "wan1", "-L", "0:127.0.0.1:9"],
        &["connect", &server, "--path", "wan1", "--carrier", "udp"],
        &["connect", &server, "--path", "wan1", "--carrier", "tcp"],
    ];
    for words in commands {
        let began = Instant::now();
        let output = plait(&world, words);
        let text = said(&output);
        assert!(began.elapsed() < Duration::from_secs(8), "{words:?} took {:?}: {text}", began.elapsed());
        let place = if words[0] == "connect" { SERVER } else { "the server" };
        assert!(text.starts_with(&format!("plait: error: cannot reach {place}")), "{text}");
        for part in [
            "this host has no route to it\n",
            &format!("  wan1 has an address, and no routing table has a route over it to {SERVER}\n"),
            "    fix: ip route add default via GATEWAY dev wan1",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(!text.contains("firewall"), "{text}");
        let code = if words[0] == "run" { 125 } else { 4 };
        assert_eq!(output.status.code(), Some(code), "{text}");
    }
    // Where the route may come, it is waited for.
    let wait = ["forward", "--wait", "-s", &server, "--path", "wan1", "-L", "0:127.0.0.1:9"];
    let mut forward = world.start(&world.client, "forward", command(&world, &wait));
    let line = forward.wait_for_line("waiting for the server: ", support::TIMEOUT).expect("it waits");
    assert!(line.contains("this host has no route to it"), "{line}");
    forward.stop(support::TIMEOUT).expect("it ends");
}

#[test]
#[ignore = "needs root"]
fn an_option_that_is_stripped_is_named_where_only_tcp_is_used() {
    let mut world = World::without_server("eno_stripped");
    world.serve(&["--anyone", "--carrier", "auto"]);
    let url = world.url.clone();
    let at = url.split_once('#').expect("with a key").0.trim_start_matches("plait://").to_owned();
    let run = |carrier: &str| world.run(&["--carrier", carrier, "--connect-timeout", "8"], &["true"]);
    let connect = || {
        plait(
            &world,
            &[&["connect", &url, "--carrier", "tcp", "--connect-timeout", "8"][..], &PATHS].concat(),
        )
    };
    for (flags, evidence) in [("syn", "refuses us"), ("syn | ack", "SYN/ACK lacks that option")] {
        let hook = if flags == "syn" { "prerouting priority -300" } else { "postrouting priority 300" };
        let rules = format!(
            "chain strip {{ type filter hook {hook}; tcp flags & (syn | ack) == {flags} reset tcp option 69; }}"
        );
        let table = Table::install(&world.server, &rules).expect("nft is installed");
        for output in [run("tcp"), connect()] {
            let text = said(&output);
            for part in ["TCP-ENO", "is stripped on the path", evidence, "\n  fix: --carrier udp"] {
                assert!(text.contains(part), "{part:?} in {text}");
            }
            assert!(text.lines().next().is_some_and(|line| line.contains("TCP-ENO")), "{text}");
            assert!(!text.contains("nothing listens"), "{at}: {text}");
        }
        let output = run("auto");
        assert!(output.status.success(), "the fix helps: {}", said(&output));
        drop(table);
    }
    world.stop_serving();
    let text = said(&world.run(&["--carrier", "tcp"], &["true"]));
    assert!(text.contains("nothing listens there") && !text.contains("TCP-ENO"), "{text}");
}

#[test]
#[ignore = "needs root"]
fn a_silent_server_is_spoken_of_after_some_seconds() {
    let world = World::without_server("silent");
    let drop = "chain silent { type filter hook prerouting priority -300; meta l4proto { tcp, udp } drop; }";
    let _table = Table::install(&world.server, drop).expect("nft is installed");
    let key = "A".repeat(43);
    let connect = ["connect", "10.77.1.2", "7443", "--server-key", &key];
    let words = [&connect[..], &PATHS, &["--connect-timeout", "9"]].concat();
    let mut limited = world.start(&world.client, "limited", command(&world, &words));
    let mut unlimited =
        world.start(&world.client, "unlimited", command(&world, &[&connect[..], &PATHS].concat()));
    let began = Instant::now();
    for (program, left) in [
        (&mut limited, "plait tries for 5 s more"),
        (&mut unlimited, "plait tries for about two minutes in all (--connect-timeout SECONDS sets a limit)"),
    ] {
        let line = program.wait_for_line("no answer yet", Duration::from_secs(20)).expect("it says so");
        assert_eq!(line, format!("plait: no answer yet from 10.77.1.2 port 7443; {left}"));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(limited.wait(support::TIMEOUT).expect("it ends").code(), Some(4), "{}", limited.errors());
    assert_eq!(limited.errors().matches("no answer yet").count(), 1, "{}", limited.errors());
    unlimited.stop(support::TIMEOUT).expect("it ends");
}

#[test]
#[ignore = "needs root"]
fn a_server_that_changes_its_key_is_accepted_by_a_client_that_has_both() {
    let mut world = World::new("rotation");
    let url = |world: &World| {
        let (at, key) = world.url.split_once('#').expect("with a key");
        (at.to_owned(), format!("{at}#{key}"))
    };
    let (at, old) = url(&world);
    world.key("client", &["trust", &old]);
    assert_eq!(world.run_as("client", &at, &[], &["true"]).status.code(), Some(0));
    assert_eq!(world.stop_serving(), Some(0));
    std::fs::rename(world.file("server"), world.file("before")).expect("moved");
    world.serve(&["--anyone"]);
    let (_, new) = url(&world);
    assert_ne!(old, new);
    let output = world.run_as("client", &at, &["--accept-new=one-path"], &["true"]);
    let text = said(&output);
    assert!(
        output.status.code() == Some(125) && text.contains("shows a different key than the one"),
        "{text}"
    );
    world.key("client", &["trust", "--also", &new]);
    for words in [["run", "-s", &at, "--", "true"], ["check", &at, "--idle", "0.2", "--connect-timeout=9"]] {
        let mut words = words.to_vec();
        words.splice(1..1, PATHS);
        let output = plait(&world, &words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }
    world.key("client", &["forget", &old]);
    assert_eq!(world.run_as("client", &at, &[], &["true"]).status.code(), Some(0));
    world.key("client", &["forget", &new]);
    let output = world.run_as("client", &at, &[], &["true"]);
    assert!(said(&output).contains("is not known"), "{}", said(&output));
}

#[test]
#[ignore = "needs root"]
fn doctor_names_a_path_of_a_running_plait_that_is_down() {
    let world = World::new("doctor_running");
    let words = [&["proxy", "-s", &world.url, "--socks", "127.0.0.1:0"][..], &PATHS].concat();
    // Processes of this test only are found here.
    let own = |words: &[&str]| {
        let mut command = command(&world, words);
        command.env("XDG_RUNTIME_DIR", &world.directory);
        command
    };
    let mut proxy = world.start(&world.client, "proxy", own(&words));
    proxy.wait_for_line("SOCKS5 at ", support::TIMEOUT).expect("it does");
    let pid = proxy.pid();
    let doctor = || {
        let mut command = own(&["doctor"]);
        let output = world.client.enter(|| command.output()).expect("entered").expect("started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let about = |line: &&str| line.contains(": running: ");
        text.lines().find(about).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let names_process = |line: &str| line.contains(&format!("process {pid} (plait proxy)"));
    let line = doctor();
    assert!(!names_process(&line), "{line}");
    world.client.ip("link set wan2 down").expect("down");
    support::until("the path is down", || names_process(&doctor()));
    let line = doctor();
    for part in [
        &format!("the path wan2 of process {pid} (plait proxy) is down"),
        &format!("process {pid} (plait proxy) has one path only, wan1"),
        "fix: ip address show wan2",
    ] {
        assert!(line.starts_with("missing: running: ") && line.contains(part), "{part} in {line}");
    }
    proxy.stop(support::TIMEOUT).expect("it ends");
}
