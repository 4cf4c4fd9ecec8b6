//! `plait check` through routers that strip, drop, translate and shorten. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::path::PathBuf;
use std::process::Command;

use plait_lab::wired::{Family, Shape, Testbed};
use plait_lab::{End, Program};
use plait_netns::nft::Table;
use serde_json::Value;
use support::{PLAIT, TIMEOUT};

/// A client and a server that runs `plait serve`, with a router on each of two paths.
struct Net {
    bed: Testbed,
    directory: PathBuf,
    key: String,
    serve: Program,
}

impl Net {
    fn new(label: &str) -> Self {
        plait_netns::tun::permitted().expect("root, with /dev/net/tun");
        let bed = Testbed::new(Shape::Routed).expect("root can make namespaces");
        let directory = std::env::temp_dir().join(format!("plait-{label}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut command = Command::new(PLAIT);
        command.args(["serve", "--forward", "127.0.0.1:9", "--anyone", "--path", "p1", "--path", "p2"]);
        command
            .args(["--carrier", "auto"])
            .arg("--keys")
            .arg(directory.join("server"))
            .current_dir(&directory);
        let serve = Program::start(&bed.server, &directory, "serve", command, End::Own, End::Own);
        let mut serve = serve.expect("started");
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
        let key = url.rsplit('#').next().expect("a key").trim().to_owned();
        Self { bed, directory, key, serve }
    }

    /// `plait check` over the first path, with these rules in the router between: its exit code, and its one way by this carrier.
    fn check(&self, rules: &str, carrier: &str, options: &[&str]) -> (i32, Value) {
        let table = (!rules.is_empty())
            .then(|| Table::install(self.bed.router(1).expect("routed"), rules).expect("nft is installed"));
        let (code, report) = self.report(options);
        drop(table);
        let ways = report["ways"].as_array().expect("a list");
        let way = ways.iter().find(|way| way["carrier"] == carrier).expect("both were tried");
        (code, way.clone())
    }

    fn report(&self, options: &[&str]) -> (i32, Value) {
        let mut command = Command::new(PLAIT);
        let server = self.bed.server_address(Family::V4, 1);
        command.args(["check", "--json", "--path", "p1"]);
        for (name, default) in [("--idle", "0.2"), ("--connect-timeout", "2")] {
            if !options.contains(&name) {
                command.args([name, default]);
            }
        }
        command.env_remove("PLAIT_CARRIER").args(options).arg("--keys").arg(self.directory.join("client"));
        command.arg(format!("plait://{server}:7443#{}", self.key));
        let output = self.bed.client.enter(|| command.output()).expect("entered").expect("started");
        let text = String::from_utf8(output.stdout).expect("text");
        let said = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {said}"));
        assert_eq!((&report["schema"], &report["kind"]), (&1.into(), &"check".into()));
        println!("{report}");
        (output.status.code().expect("an exit code"), report)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = self.serve.stop(TIMEOUT);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A chain for what goes through a router, towards the server or from it.
fn forwarded(rule: &str) -> String {
    format!("chain through {{ type filter hook forward priority 0; {rule}; }}")
}

/// The options that something was done to, as `MP_CAPABLE stripped syn certain`.
fn options(way: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    let options = way["options"].as_array().expect("a list").iter().map(|option| {
        let certain = if option["certain"] == true { " certain" } else { "" };
        format!("{} {} {}{certain}", word(&option["option"]), word(&option["change"]), word(&option["at"]))
    });
    options.collect()
}

#[test]
#[ignore = "needs root"]
fn a_free_path_is_usable_both_ways_and_measured() {
    let net = Net::new("check_free");
    let (code, report) = net.report(&[]);
    assert_eq!((code, &report["usable"], &report["key"]["known"]), (0, &true.into(), &"given".into()));
    let ways = report["ways"].as_array().expect("a list");
    assert_eq!(ways.len(), 2);
    for way in ways {
        assert_eq!(way["verdict"], "usable", "{way}");
        assert_eq!(
            (&way["mtu"], &way["nat"], &way["outlives_idle"]),
            (&1500.into(), &false.into(), &true.into())
        );
        assert_eq!((&way["handshake"], options(way)), (&"tls1.3".into(), Vec::new()), "{way}");
        assert!(way["rtt_ms"].as_f64() > Some(0.0), "{way}");
    }
}

#[test]
#[ignore = "needs root"]
fn options_that_are_stripped_are_named_with_the_message() {
    let net = Net::new("check_strip");
    let rules = forwarded("tcp flags & (syn | ack) == syn reset tcp option mptcp");
    let (code, way) = net.check(&rules, "tcp", &[]);
    assert_eq!((code, &way["verdict"]), (0, &"stripped".into()), "UDP is usable: {way}");
    assert_eq!(options(&way), ["MP_CAPABLE stripped syn", "TCP-ENO stripped syn"]);
    let rules = forwarded("tcp flags & (syn | ack) == syn | ack reset tcp option mptcp");
    let (_, way) = net.check(&rules, "tcp", &[]);
    assert_eq!(way["verdict"], "stripped");
    assert_eq!(options(&way), ["MP_CAPABLE stripped syn-ack certain"]);
    let (_, way) = net.check(&forwarded("tcp flags & syn == 0 reset tcp option mptcp"), "tcp", &[]);
    assert_eq!(
        (&way["verdict"], options(&way)),
        (&"broken".into(), vec!["MPTCP (data) stripped later".into()])
    );
    // Options of TCP itself are not required by any host, and their loss is detected all the same.
    let rules = forwarded("tcp flags & (syn | ack) == syn reset tcp option timestamp");
    let (_, way) = net.check(&rules, "tcp", &[]);
    assert_eq!(
        (&way["verdict"], options(&way)),
        (&"usable".into(), vec!["timestamps stripped syn certain".into()])
    );
    let rules = forwarded("tcp flags & (syn | ack) == syn | ack reset tcp option sack-perm");
    let (_, way) = net.check(&rules, "tcp", &[]);
    assert_eq!(
        (&way["verdict"], options(&way)),
        (&"usable".into(), vec!["SACK permitted stripped syn-ack certain".into()])
    );
    let rules = forwarded("tcp flags & (syn | ack) == syn tcp option maxseg size set 1200");
    let (_, way) = net.check(&rules, "tcp", &[]);
    assert_eq!((&way["verdict"], options(&way)), (&"usable".into(), vec!["MSS altered syn certain".into()]));
}

#[test]
#[ignore = "needs root"]
fn dropped_packets_are_distinguished_from_unanswered_ones() {
    let net = Net::new("check_drop");
    let rules = forwarded("tcp flags & (syn | ack) == syn tcp option mptcp exists drop");
    let (code, way) = net.check(&rules, "tcp", &[]);
    assert_eq!((code, &way["verdict"]), (0, &"dropped".into()), "{way}");
    assert_eq!(options(&way), ["MP_CAPABLE dropped syn", "TCP-ENO dropped syn"]);
    let (code, way) = net.check(&forwarded("meta l4proto udp drop"), "udp", &[]);
    assert_eq!((code, &way["verdict"]), (0, &"no-answer".into()), "TCP is usable: {way}");
    let (code, way) = net.check(&forwarded("meta l4proto { tcp, udp } drop"), "tcp", &[]);
    assert_eq!((code, &way["verdict"]), (4, &"no-answer".into()), "nothing is usable: {way}");
    let (code, way) = net.check("", "udp", &["--range", "198.18.0.0", "--path", "nosuch0"]);
    assert_eq!((code, &way["verdict"]), (0, &"usable".into()), "the other path: {way}");
}

#[test]
#[ignore = "needs root"]
fn a_nat_and_its_forgetting_are_seen() {
    let net = Net::new("check_nat");
    let rules =
        "chain out { type nat hook postrouting priority 100; oifname \"s\" masquerade fully-random; }";
    let router = net.bed.router(1).expect("routed");
    let translated = net.bed.router(1).expect("routed").ip("address show dev s").expect("there");
    for carrier in ["tcp", "udp"] {
        let (code, way) = net.check(rules, carrier, &[]);
        assert_eq!((code, &way["nat"], &way["outlives_idle"]), (0, &true.into(), &true.into()), "{way}");
        let seen = way["seen_from"].as_str().expect("an address").rsplit_once(':').expect("with a port").0;
        assert!(translated.contains(seen), "{seen} in {translated}");
    }
    router.set_sysctl("net.netfilter.nf_conntrack_udp_timeout", 1).expect("set");
    router.set_sysctl("net.netfilter.nf_conntrack_udp_timeout_stream", 1).expect("set");
    let (code, way) = net.check(rules, "udp", &["--idle", "4"]);
    assert_eq!((code, &way["nat"], &way["outlives_idle"]), (0, &true.into(), &false.into()), "{way}");
}

#[test]
#[ignore = "needs root"]
fn a_narrow_path_is_measured_with_and_without_a_word_of_its_router() {
    let net = Net::new("check_mtu");
    let router = net.bed.router(1).expect("routed");
    // What the routers' wires take is one thing, what lies behind them another: 1280 bytes in both directions.
    router.ip("route change 10.2.1.0/24 dev s mtu 1280").expect("changed");
    router.ip("route change 10.1.1.0/24 dev c mtu 1280").expect("changed");
    for carrier in ["tcp", "udp"] {
        let (code, way) = net.check("", carrier, &[]);
        assert_eq!((code, &way["verdict"], &way["mtu"]), (0, &"usable".into(), &1280.into()), "{way}");
    }
    // Swallowed: what passes nearly everywhere is found, and then what is tried above it.
    let rules = "chain out { type filter hook output priority 0; icmp type destination-unreachable drop; }";
    for carrier in ["tcp", "udp"] {
        let (code, way) = net.check(rules, carrier, &["--connect-timeout", "20"]);
        assert_eq!((code, &way["verdict"]), (0, &"usable".into()), "{way}");
        let mtu = way["mtu"].as_u64().expect("a number");
        assert!((1100..=1280).contains(&mtu), "{way}");
    }
}
