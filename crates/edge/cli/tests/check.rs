//! `plait check` through routers that strip, drop, translate and shorten. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::path::PathBuf;
use std::process::{Command, Output};

use plait_lab::wired::{Family, Shape, Testbed};
use plait_lab::{End, Program};
use plait_netns::Namespace;
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
        // Without a request, a proxy leaves the connection as it is.
        Self::with(label, &["--proxy", "--allow", "127.0.0.1:9"])
    }

    /// With a server of this service.
    fn with(label: &str, service: &[&str]) -> Self {
        plait_netns::tun::permitted().expect("root, with /dev/net/tun");
        let bed = Testbed::new(Shape::Routed).expect("root can make namespaces");
        let directory = std::env::temp_dir().join(format!("plait-{label}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut command = Command::new(PLAIT);
        command.arg("serve").args(service).args(["--anyone", "--path", "p1", "--path", "p2"]);
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
        let output = self.output(&[&["--json"], options].concat());
        let text = String::from_utf8(output.stdout).expect("text");
        let said = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {said}"));
        assert_eq!((&report["schema"], &report["kind"]), (&1.into(), &"check".into()));
        println!("{report}");
        (output.status.code().expect("an exit code"), report)
    }

    /// What people are told.
    fn words(&self, options: &[&str]) -> String {
        String::from_utf8(self.output(options).stdout).expect("text")
    }

    fn output(&self, options: &[&str]) -> Output {
        let mut command = Command::new(PLAIT);
        let server = self.bed.server_address(Family::V4, 1);
        command.args(["check", "--path", "p1"]);
        for (name, default) in [("--idle", "0.2"), ("--connect-timeout", "2")] {
            if !options.contains(&name) {
                command.args([name, default]);
            }
        }
        command.env_remove("PLAIT_CARRIER").args(options).arg("--keys").arg(self.directory.join("client"));
        command.arg(format!("plait://{server}:7443#{}", self.key));
        self.bed.client.enter(|| command.output()).expect("entered").expect("started")
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
        // Both ends have one clock; the answer may have waited for a while.
        let ahead = way["clock_ahead_s"].as_i64().expect("the server says its date");
        assert!((-10..=1).contains(&ahead), "{way}");
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

#[test]
#[ignore = "needs root"]
fn a_path_that_narrows_in_one_direction_is_named_with_the_direction_and_the_size() {
    let net = Net::new("check_one_way");
    let router = net.bed.router(1).expect("routed");
    let cases = [
        (
            "10.2.1.0/24 dev s",
            "to-server",
            [1280, 1500],
            "1280 bytes come through to the server, and of 1500 from it",
        ),
        (
            "10.1.1.0/24 dev c",
            "from-server",
            [1500, 1280],
            "1280 bytes come through from the server, and of 1500 to it",
        ),
    ];
    for (route, narrows, sizes, words) in cases {
        router.ip(&format!("route change {route} mtu 1280")).expect("changed");
        for carrier in ["tcp", "udp"] {
            let (code, way) = net.check("", carrier, &["--carrier", carrier]);
            assert_eq!(
                (code, &way["verdict"], &way["narrows"]),
                (0, &"usable".into(), &narrows.into()),
                "{way}"
            );
            assert_eq!([&way["mtu"], &way["received_mtu"]], sizes.map(Value::from).each_ref(), "{way}");
            let text = net.words(&["--carrier", carrier]);
            let line = format!("p1 over {carrier}: the path narrows in one direction: packets of {words}");
            assert!(text.contains(&line), "{text}");
            assert!(text.contains("\n  fix: ") && text.contains("ip link set dev p1 mtu 1280"), "{text}");
        }
        router.ip(&format!("route change {route}")).expect("changed");
    }
    let (_, way) = net.check("", "udp", &["--carrier", "udp"]);
    assert_eq!((&way["narrows"], &way["received_mtu"]), (&Value::Null, &1500.into()), "{way}");
}

#[test]
#[ignore = "needs root"]
fn a_direction_that_narrows_without_a_word_of_its_router_is_named() {
    let net = Net::new("check_one_way_mute");
    let router = net.bed.router(1).expect("routed");
    let rules = "chain out { type filter hook output priority 0; icmp type destination-unreachable drop; }";
    for (route, narrows) in [("10.2.1.0/24 dev s", "to-server"), ("10.1.1.0/24 dev c", "from-server")] {
        router.ip(&format!("route change {route} mtu 1280")).expect("changed");
        for carrier in ["tcp", "udp"] {
            let (code, way) = net.check(rules, carrier, &["--carrier", carrier, "--connect-timeout", "20"]);
            assert_eq!(
                (code, &way["verdict"], &way["narrows"]),
                (0, &"usable".into(), &narrows.into()),
                "{way}"
            );
        }
        router.ip(&format!("route change {route}")).expect("changed");
    }
}

#[test]
#[ignore = "needs root"]
fn a_nat_that_rebinds_is_named_with_both_addresses() {
    let net = Net::new("check_rebind");
    let rules =
        "chain out { type nat hook postrouting priority 100; oifname \"s\" masquerade fully-random; }";
    let router = net.bed.router(1).expect("routed");
    for name in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        router.set_sysctl(&format!("net.netfilter.{name}"), 1).expect("set");
    }
    let (code, way) = net.check(rules, "udp", &["--carrier", "udp", "--idle", "4"]);
    let [before, after] = [0, 1].map(|index| way["rebound"][index].as_str().expect("an address"));
    assert_eq!((code, &way["seen_from"], before != after), (0, &before.into(), true), "{way}");
    let _table = Table::install(router, rules).expect("nft is installed");
    let text = net.words(&["--carrier", "udp", "--idle", "4"]);
    let line = text
        .lines()
        .find(|line| line.starts_with("p1 over udp: the NAT rebinds, as it seems: the server has seen "));
    assert!(line.is_some_and(|line| line.contains("; it sees ") && line.ends_with(" now")), "{text}");
    assert!(text.contains("\n  fix: a longer timeout for UDP at the NAT, or --keep-alive"), "{text}");
    let (_, way) = net.check("", "udp", &["--carrier", "udp"]);
    assert_eq!(
        (&way["nat"], &way["rebound"]),
        (&true.into(), &Value::Null),
        "it is used all the time: {way}"
    );
}

#[test]
#[ignore = "needs root"]
fn a_server_that_ends_the_idle_connection_is_not_taken_for_a_nat() {
    let net = Net::with("check_ended", &["--forward", "127.0.0.1:9"]);
    let (code, way) = net.check("", "udp", &["--carrier", "udp", "--idle", "5"]);
    assert_eq!((code, &way["nat"], &way["outlives_idle"]), (0, &false.into(), &Value::Null), "{way}");
}

#[test]
#[ignore = "needs root"]
fn doctor_names_a_narrow_path_and_a_nat_that_rebinds_of_what_runs() {
    let net = Net::new("check_running");
    let router = net.bed.router(1).expect("routed");
    router.ip("route change 10.2.1.0/24 dev s mtu 1280").expect("changed");
    let start = |host: &Namespace, name: &str, script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, PLAIT]).current_dir(&net.directory);
        Program::start(host, &net.directory, name, command, End::Own, End::Own).expect("started")
    };
    let listen = "exec \"$0\" listen 5000 --echo --path p1 --carrier udp --keys listener";
    let mut listen = start(&net.bed.server, "listen", listen);
    let line = listen.wait_for_line("our key is ", TIMEOUT).expect("its key");
    let key = line.rsplit_once(' ').expect("a key").1.to_owned();
    listen.wait_for_line("listening on port", TIMEOUT).expect("it listens");
    let rules =
        "chain out { type nat hook postrouting priority 100; oifname \"s\" masquerade fully-random; }";
    let _table = Table::install(router, rules).expect("nft is installed");
    for name in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        router.set_sysctl(&format!("net.netfilter.{name}"), 1).expect("set");
    }
    let server = net.bed.server_address(Family::V4, 1);
    let connect = format!(
        "(head -c 300000 /dev/zero; sleep 4; head -c 3000 /dev/zero; sleep 60) | exec \"$0\" connect {server} 5000 \
         --server-key {key} --path p1 --carrier udp --keys client --keep-alive 1000 > got"
    );
    let mut connect = start(&net.bed.client, "connect", &connect);
    let doctor = || {
        let mut command = Command::new(PLAIT);
        command.arg("doctor").env("PLAIT_KEYS", net.directory.join("client"));
        let output = net.bed.client.enter(|| command.output()).expect("entered").expect("started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find(|line| line.contains(": running: ")).unwrap_or_default().to_owned()
    };
    let narrow = "packets of 1280 bytes at most leave over p1 (udp)";
    support::until("the narrow path is named", || doctor().contains(narrow));
    let line = doctor();
    assert!(line.contains("take 1500") && line.contains("ip link set dev p1 mtu 1280"), "{line}");
    support::until("the NAT is named", || doctor().contains("a NAT on the path p1 rebinds, as it seems"));
    assert!(doctor().contains("plait check SERVER --path p1 --carrier udp --idle 60"), "{}", doctor());
    connect.stop(TIMEOUT).expect("it ends");
    listen.stop(TIMEOUT).expect("it ends");
}
