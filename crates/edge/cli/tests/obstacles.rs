//! Routes and settings of a machine that stop the packets of a path, as users meet them. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use support::{PLAIT, TIMEOUT, World};

/// The larger of the two values counts for `wan2`.
const SETTINGS: [&str; 2] = ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.wan2.rp_filter"];

/// What a command of the client prints and says, and its exit code.
fn plait(world: &World, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PLAIT);
    command.args(words).env("PLAIT_KEYS", world.file("keys")).env("PLAIT_CARRIER", "udp");
    command.env_remove("SUDO_UID").stdin(Stdio::null());
    let output = world.client.enter(|| command.output()).expect("entered").expect("started");
    let [printed, said] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), printed + &said)
}

/// A client with two uplinks; only the second one's default route leads to the server over the second path.
fn two_uplinks(label: &str) -> World {
    let mut world = World::without_server(label);
    for words in
        ["route add default via 10.77.1.2 dev wan1", "route add default via 10.77.2.2 dev wan2 metric 200"]
    {
        world.client.ip(words).expect("added");
    }
    world.serve(&["--anyone", "--carrier", "auto"]);
    world
}

#[test]
#[ignore = "needs root"]
fn a_strict_check_of_sources_is_named_with_the_setting_and_the_device_and_the_fix_helps() {
    let world = two_uplinks("strict");
    world.client.set_sysctl(SETTINGS[0], 1).expect("root");
    let paths = ["--path", "wan1", "--path", "wan2"];
    let check = [&["check", &world.url, "--idle", "0.2"][..], &paths].concat();
    let doctor = [&["doctor"][..], &paths].concat();
    let key = "A".repeat(43);
    let connect =
        [&["connect", "10.77.1.2", "9", "--connect-timeout", "1", "--server-key"][..], &[&key[..]], &paths]
            .concat();
    let fix = "sysctl -w net.ipv4.conf.wan2.rp_filter=2";

    let (_, text) = plait(&world, &check);
    let named = format!("wan2 over udp: the SYN was not answered\n  {} is 1: ", SETTINGS[0]);
    assert!(text.contains(&named) && text.contains(&format!("    fix: {fix}")), "{text}");
    assert!(text.contains("wan1  udp      usable"), "{text}");
    let (_, text) = plait(&world, &doctor);
    assert!(
        text.contains(&format!("missing: paths: {} is 1: ", SETTINGS[0])) && text.contains(fix),
        "{text}"
    );
    let (_, text) = plait(&world, &connect);
    assert!(text.contains(&format!("{} is 1: ", SETTINGS[0])) && text.contains(fix), "{text}");

    // What a host sends to itself is not checked.
    let mut command = Command::new(PLAIT);
    command
        .args(["listen", "5000", "--path", "lo", "--carrier", "udp"])
        .env("PLAIT_KEYS", world.file("keys"));
    let mut listen = world.start(&world.client, "listen", command);
    listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
    assert!(!listen.errors().contains("rp_filter"), "{}", listen.errors());
    listen.stop(TIMEOUT).expect("it ends");

    world.client.run("sysctl", fix.strip_prefix("sysctl ").expect("it is one")).expect("root");
    let (code, text) = plait(&world, &check);
    assert!(
        code == Some(0) && text.contains("wan2  udp      usable") && !text.contains("rp_filter"),
        "{text}"
    );
    let (_, text) = plait(&world, &doctor);
    assert!(text.contains("ok: paths: nothing on this machine stops wan1, wan2\n"), "{text}");
}

#[test]
#[ignore = "needs root"]
fn a_check_of_sources_that_a_killed_plait_has_loosened_is_put_back_by_the_next() {
    let world = two_uplinks("strict_killed");
    let wan1 = "net.ipv4.conf.wan1.rp_filter";
    [SETTINGS[0], SETTINGS[1], wan1].iter().for_each(|name| world.client.set_sysctl(name, 1).expect("root"));
    let values = || SETTINGS.map(|name| world.client.sysctl(name).expect("it is there"));
    let listen = |name: &str| {
        let mut command = Command::new(PLAIT);
        command.args(["listen", "5000", "--path", "wan1", "--path", "wan2", "--carrier", "auto"]);
        command.env("PLAIT_KEYS", world.file("keys"));
        let mut listen = world.start(&world.client, name, command);
        listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
        listen
    };
    let mut killed = listen("killed");
    assert_eq!(values(), ["1", "2"]);
    assert_eq!(world.client.sysctl(wan1).expect("it is there"), "1", "the default route leads over it");
    killed.signal(Signal::SIGKILL);
    killed.wait(TIMEOUT).expect("it ends");
    assert_eq!(values(), ["1", "2"], "nothing could put it back");
    let mut next = listen("next");
    assert_eq!(values(), ["1", "2"]);
    next.stop(TIMEOUT).expect("it ends");
    assert_eq!(values(), ["1", "1"]);
}

#[test]
#[ignore = "needs root"]
fn a_path_with_an_address_and_no_way_out_is_named_until_any_table_has_a_route() {
    let mut world = World::without_server("no_way_out");
    world.client.ip("route add default via 10.77.1.2 dev wan1").expect("added");
    world.serve(&["--anyone", "--carrier", "auto"]);
    let doctor = ["doctor", "--path", "wan1", "--path", "wan2"];
    let (_, text) = plait(&world, &doctor);
    let line = text.lines().find(|line| line.starts_with("missing: paths: ")).expect(&text);
    assert!(line.contains("wan2 has an address, and no routing table has a default route over it"), "{text}");
    assert!(
        !line.contains("wan1 has") && line.contains("fix: ip route add default via GATEWAY dev wan2"),
        "{text}"
    );
    let check = ["check", &world.url, "--path", "wan2", "--idle", "0.2", "--connect-timeout", "5"];
    // Over UDP the kernel takes a host without a route for a neighbour, which this one is.
    let (_, text) = plait(&world, &[&check[..], &["--carrier", "tcp"]].concat());
    assert!(text.contains("no routing table has a route over it to 10.77.1.2"), "{text}");
    for words in ["route add default via 10.77.2.2 dev wan2 table 100", "rule add from 10.77.2.1 table 100"] {
        world.client.ip(words).expect("added");
    }
    let (_, text) = plait(&world, &doctor);
    assert!(text.contains("ok: paths: nothing on this machine stops wan1, wan2\n"), "{text}");
    for carrier in ["tcp", "udp"] {
        let (code, text) = plait(&world, &[&check[..], &["--carrier", carrier]].concat());
        assert!(code == Some(0) && text.contains("usable"), "{carrier}: {text}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_rule_that_exempts_packets_from_connection_tracking_is_named_and_the_fix_helps() {
    let world = two_uplinks("notrack");
    let nft = |words: &str| drop(world.client.run("nft", words).expect(words));
    let check = [
        "check",
        &world.url,
        "--path",
        "wan1",
        "--carrier",
        "tcp",
        "--idle",
        "0.2",
        "--connect-timeout",
        "3",
    ];
    let key = "A".repeat(43);
    let connect = [
        "connect",
        "10.77.1.2",
        "7443",
        "--server-key",
        &key,
        "--path",
        "wan1",
        "--carrier",
        "tcp",
        "--connect-timeout",
        "3",
    ];
    nft("add table inet guard");
    nft("add chain inet guard raw { type filter hook prerouting priority -300 ; }");
    for harmless in ["udp dport 53 notrack", "tcp dport 80 notrack", "iifname lo notrack"] {
        nft(&format!("add rule inet guard raw {harmless}"));
    }
    let (_, text) = plait(&world, &["doctor"]);
    assert!(
        text.contains("ok: tracking: no rule exempts connections at port 7443 over TCP from it\n"),
        "{text}"
    );
    nft("add rule inet guard raw meta l4proto { tcp, udp } notrack");
    let (_, text) = plait(&world, &["doctor"]);
    let line = text.lines().find(|line| line.starts_with("missing: tracking: ")).expect(&text);
    assert!(line.contains("notrack` in chain raw of table inet guard exempts packets"), "{line}");
    let fix =
        line.split_once("; fix: ").and_then(|(_, fix)| fix.split_once(", or --carrier udp")).expect(line).0;
    for words in [&check[..], &connect] {
        let (code, text) = plait(&world, words);
        assert!(code != Some(0) && text.contains(fix) && !text.contains("firewall"), "{words:?}: {text}");
    }
    let (code, text) =
        plait(&world, &["check", &world.url, "--path", "wan1", "--carrier", "udp", "--idle", "0.2"]);
    assert_eq!(code, Some(0), "the other fix helps: {text}");
    nft(fix.strip_prefix("nft ").expect(fix));
    let (code, text) = plait(&world, &check);
    assert!(code == Some(0) && text.contains("wan1  tcp      usable"), "{text}");
    let (_, text) = plait(&world, &["doctor"]);
    assert!(text.contains("ok: tracking: "), "{text}");
}
