//! `plait doctor` as an ordinary user meets it: what it says of this machine and of the way to a server.

#![allow(clippy::disallowed_methods, reason = "processes, sockets and files")]

mod support;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

use plait_lab::{End, Program};
use plait_netns::Namespace;
use serde_json::Value;
use support::user::{User, given, place};
use support::{PLAIT, TIMEOUT};

/// `plait doctor` of a user over the loopback device: its exit code, what it prints, and what it says on standard error.
fn doctor(user: &User, world: &Path, words: &[&str]) -> (i32, String, String) {
    let words = [&["doctor"], words].concat();
    let mut program = user.plait(world, &format!("doctor{}", words.len()), &words, None);
    let code = program.wait(TIMEOUT).expect("it ends").code().expect("an exit code");
    (code, fs::read_to_string(program.output()).expect("text"), program.errors())
}

/// What `plait doctor --json` says about one thing.
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("a list");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn the_way_to_a_server_is_tried_beside_the_checks_of_the_machine() {
    let world = place("doctor_way");
    let (ada, bob) = (User::new("nobody", &world), User::new("daemon", &world));
    let at = format!("127.0.0.1:{}", 32_000 + std::process::id() % 700);
    let words = ["serve", "--forward", "127.0.0.1:9", "--anyone", "--listen", &at, "--carrier", "udp"];
    let mut serve = ada.plait(&world, "serve", &words, None);
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
    let way = ["-s", &url, "--path", "lo", "--carrier", "udp", "--idle", "0.2"];
    let (code, printed, said) = doctor(&bob, &world, &[&way[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{printed} {said}"));
    assert_eq!((&report["schema"], &report["kind"]), (&1.into(), &"doctor".into()));
    assert_eq!(check(&report, "ip")["ok"], true, "{report}");
    let server = &report["server"];
    assert_eq!((&server["kind"], &server["usable"]), (&"check".into(), &true.into()), "{report}");
    assert_eq!((&server["key"]["known"], &server["ways"][0]["verdict"]), (&"given".into(), &"usable".into()));
    assert_eq!(code, 0, "what only TCP needs is not required of an ordinary user: {report} {said}");
    // The same for people: one line for each thing of the machine, then the table of `plait check`.
    let (_, printed, said) = doctor(&bob, &world, &way);
    let (machine, table) = printed.split_once("\n\n").unwrap_or_else(|| panic!("{printed} {said}"));
    assert!(
        machine.lines().all(|line| line.starts_with("ok: ") || line.starts_with("missing: ")),
        "{machine}"
    );
    assert!(table.starts_with("PATH  CARRIER  RESULT") && table.contains("lo    udp      usable"), "{table}");
    assert!(serve.stop(TIMEOUT).expect("it ends").success(), "{}", serve.last_words());
    let _ = fs::remove_dir_all(&world);
}

#[test]
fn over_udp_a_server_is_reached_on_a_machine_without_ip_and_nft() {
    let world = place("doctor_alone");
    let (ada, bob) = (User::new("nobody", &world), User::new("daemon", &world));
    let programs = world.join("programs");
    fs::create_dir(&programs).expect("made");
    std::os::unix::fs::symlink("/usr/bin/setpriv", programs.join("setpriv")).expect("made");
    let at = format!("127.0.0.1:{}", 31_000 + std::process::id() % 700);
    let words = ["serve", "--forward", "127.0.0.1:9", "--anyone", "--listen", &at, "--carrier", "udp"];
    let mut command = ada.command(&world, &words);
    command.env("PATH", &programs);
    let mut serve = Program::start_here(&world, "serve", command, given(None), End::Own).expect("started");
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
    let words = ["doctor", "-s", &url, "--path", "lo", "--carrier", "udp", "--idle", "0.2", "--json"];
    let output = bob.command(&world, &words).env("PATH", &programs).output().expect("started");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    for name in ["ip", "nft"] {
        let check = check(&report, name);
        assert_eq!((&check["ok"], &check["required"]), (&false.into(), &false.into()), "{report}");
    }
    let clock = check(&report, "clock").to_string();
    assert!(!clock.contains("unknown"), "the kernel knows whether it is synchronized: {clock}");
    assert_eq!(report["server"]["usable"], true, "{report}");
    assert!(output.status.success(), "{output:?}");
    assert!(serve.stop(TIMEOUT).expect("it ends").success(), "{}", serve.last_words());
    let _ = fs::remove_dir_all(&world);
}

#[test]
fn a_server_that_does_not_answer_is_told_from_a_machine_that_lacks_something() {
    let world = place("doctor_silent");
    let bob = User::new("daemon", &world);
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let server = silent.local_addr().expect("bound").to_string();
    let way = ["--server", &server, "--path", "lo", "--carrier", "udp", "--connect-timeout", "1"];
    let (code, printed, said) = doctor(&bob, &world, &["--json"]);
    let machine: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!((code, &machine["server"]), (0, &Value::Null), "none was asked for: {machine} {said}");
    let (code, printed, said) = doctor(&bob, &world, &way);
    assert!(printed.contains("lo    udp      no-answer"), "{printed} {said}");
    assert!(code == 4 && said.contains(&format!("no way to {server} can be used")), "{code} {said}");
    let _ = fs::remove_dir_all(&world);
}

#[test]
fn an_ordinary_user_that_reaches_no_host_is_not_told_that_it_takes_root() {
    let world = place("doctor_nobody");
    let bob = User::new("daemon", &world);
    let key = format!("SHA256:{}", "A".repeat(43));
    let closed =
        UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port().to_string();
    let words = ["connect", "127.0.0.1", &closed, "--server-key", &key, "--path", "lo", "--carrier", "udp"];
    let mut connect = bob.plait(&world, "connect", &words, None);
    let code = connect.wait(TIMEOUT).expect("it ends").code();
    let said = connect.errors();
    assert!(code == Some(4) && said.contains("cannot connect to"), "{code:?} {said}");
    assert!(!said.contains("root"), "{said}");
    let _ = fs::remove_dir_all(&world);
}

#[test]
fn options_for_the_way_to_a_server_need_a_server() {
    let doctor = |words: &[&str]| {
        let mut command = Command::new(PLAIT);
        command.arg("doctor").args(words).env_remove("PLAIT_SERVER");
        command.envs([("PLAIT_CARRIER", "udp"), ("PLAIT_KEYS", "/nowhere")]);
        let output = command.output().expect("started");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for option in [["--idle", "1"], ["--carrier", "udp"], ["--keys", "/nowhere"]] {
        let (code, said) = doctor(&option);
        assert!(code == Some(2) && said.contains("--server <SERVER>"), "{option:?}: {said}");
        assert!(said.contains("Usage: plait doctor"), "{option:?}: {said}");
    }
    // What variables say is for all commands.
    let (code, said) = doctor(&["--json"]);
    assert_ne!(code, Some(2), "{said}");
}

#[test]
fn a_server_that_cannot_even_be_tried_leaves_the_reason_beside_the_checks() {
    let world = place("doctor_untried");
    let bob = User::new("daemon", &world);
    let way = ["-s", "nosuch.invalid", "--path", "lo", "--carrier", "udp"];
    let (code, printed, said) = doctor(&bob, &world, &[&way[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{printed} {said}"));
    assert_eq!(check(&report, "ip")["ok"], true, "{report}");
    let why = report["server"]["why"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert!(
        why.contains("nosuch.invalid") && report["server"].as_object().map(serde_json::Map::len) == Some(1),
        "{why}"
    );
    let (same, printed, said) = doctor(&bob, &world, &way);
    assert!(printed.ends_with(&format!("\nno way to the server can be tried: {why}\n")), "{printed} {said}");
    assert!(code == same && code != 0 && said.contains(why), "{code} {said}");
    let _ = fs::remove_dir_all(&world);
}

#[test]
#[ignore = "needs root"]
fn whether_plait_run_works_for_an_ordinary_user_is_found_by_trying() {
    let world = place("doctor_run");
    let bob = User::new("daemon", &world);
    let (code, printed, said) = doctor(&bob, &world, &[]);
    assert_eq!(code, 0, "{printed} {said}");
    assert!(printed.contains("ok: private network: can be made in a user namespace\n"), "{printed}");
    let of_run = |line: &&str| line.contains("plait run") && line.contains("root nor");
    assert_eq!(printed.lines().find(of_run), None);
    // The only user namespace that may be made is the one that makes us an ordinary user.
    let forbid = "echo 1 > /proc/sys/user/max_user_namespaces && exec unshare --user --map-user=1000 \"$@\"";
    let forbidden = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", forbid, "sh", PLAIT]).args(words);
        command.env("PLAIT_KEYS", world.join("keys")).env("PLAIT_CARRIER", "udp").stdin(Stdio::null());
        command.output().expect("unshare is installed")
    };
    let output = forbidden(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let network = check(&report, "private network");
    assert_eq!((&network["ok"], &network["needed_by"]), (&false.into(), &"plait run".into()), "{network}");
    assert!(network["why"].as_str().is_some_and(|why| why.starts_with("user namespaces: ")), "{network}");
    assert_eq!(output.status.code(), Some(0), "everything but plait run works: {report}");
    let _ = fs::remove_dir_all(&world);
}

#[test]
fn an_ordinary_user_that_asks_for_tcp_is_told_what_doctor_says() {
    let world = place("doctor_tcp");
    let bob = User::new("daemon", &world);
    let (code, printed, said) = doctor(&bob, &world, &[]);
    assert_eq!(code, 0, "there are connections over UDP: {printed} {said}");
    let line =
        printed.lines().find(|line| line.starts_with("missing: privileges: ")).expect("doctor says it");
    let line = line.rsplit_once(" [").expect("the reader").0;
    for words in [
        &["listen", "5000"][..],
        &["connect", "127.0.0.1", "5000"],
        &["serve", "--forward", "127.0.0.1:80", "--anyone"],
    ] {
        let mut program = bob.plait(&world, words[0], &[words, &["--carrier", "tcp"]].concat(), None);
        let code = program.wait(TIMEOUT).expect("it ends").code();
        let said = program.errors();
        assert!(code == Some(7) && said.contains(line), "{words:?}: {code:?} {said:?} does not say {line:?}");
    }
    let _ = fs::remove_dir_all(&world);
}

#[test]
#[ignore = "needs root"]
fn a_firewall_that_drops_what_is_forwarded_is_named_with_the_rules_that_help() {
    let keys = tempfile::tempdir().expect("a directory");
    let namespace = Namespace::named("firewall").expect("root may");
    let doctor = || {
        let mut command = Command::new(PLAIT);
        command.arg("doctor").env("PLAIT_KEYS", keys.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let output = namespace.spawn(&mut command).expect("started").wait_with_output().expect("it ends");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(doctor().contains("ok: forwarding"), "{}", doctor());
    namespace.run("nft", "add table ip filter").expect("added");
    namespace
        .run("nft", "add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }")
        .expect("added");
    let text = doctor();
    let line = text.lines().find(|line| line.starts_with("missing: forwarding: ")).expect("it is seen");
    let fix = line.split_once("; fix: ").and_then(|(_, fix)| fix.rsplit_once(" [")).expect("a remedy").0;
    let mut shell = Command::new("sh");
    assert!(namespace.spawn(shell.args(["-c", fix])).expect("started").wait().expect("it ends").success());
    assert!(doctor().contains("ok: forwarding"), "{fix} does not help: {}", doctor());
}

#[test]
#[ignore = "needs root"]
fn a_user_with_the_capability_is_not_told_to_become_root() {
    let world = place("doctor_capable");
    let bob = User::new("daemon", &world);
    let namespace = Namespace::named("capable").expect("root may");
    let doctor = |capability: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=daemon", "--regid=nogroup", "--clear-groups"]).args(capability);
        command.arg(world.join("plait")).args(["doctor", "--json"]).stdin(Stdio::null());
        command.env("PLAIT_KEYS", bob.directory.join("keys")).stdout(Stdio::piped());
        let output = namespace.spawn(&mut command).expect("started").wait_with_output().expect("it ends");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let report = doctor(&["--inh-caps=+net_admin", "--ambient-caps=+net_admin"]);
    for name in ["privileges", "address translation", "forwarding"] {
        assert_eq!(check(&report, name)["ok"], true, "{name}: {report}");
    }
    let report = doctor(&["--inh-caps=-all"]);
    let why = check(&report, "privileges")["why"].as_str().expect("a reason");
    assert_eq!(why, "neither root nor CAP_NET_ADMIN", "{report}");
    let _ = fs::remove_dir_all(&world);
}

/// The line about one thing that is missing.
fn missing(printed: &str, name: &str) -> Option<String> {
    printed.lines().find(|line| line.starts_with(&format!("missing: {name}: "))).map(str::to_owned)
}

#[test]
#[ignore = "needs root"]
fn a_full_table_of_conntrack_and_a_clock_that_is_not_set_are_named_with_their_fixes() {
    let scratch = tempfile::tempdir().expect("a directory");
    let namespace = Namespace::named("machine").expect("root may");
    let doctor = |count: u32, is_synchronized: &str| {
        fs::write(scratch.path().join("count"), format!("{count}\n")).expect("written");
        fs::write(scratch.path().join("max"), "1000\n").expect("written");
        let tool = format!("#!/bin/sh\necho {is_synchronized}\n");
        fs::write(scratch.path().join("timedatectl"), tool).expect("written");
        let script = "cd \"$1\" && chmod +x timedatectl && for what in count max; do
            mount --bind $what /proc/sys/net/netfilter/nf_conntrack_$what || exit 9; done
            PATH=\"$1:$PATH\" exec \"$2\" doctor";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(scratch.path()).arg(PLAIT);
        command.env("PLAIT_KEYS", scratch.path().join("keys")).stdin(Stdio::null()).stdout(Stdio::piped());
        let output = namespace.spawn(&mut command).expect("started").wait_with_output().expect("it ends");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (_, text) = doctor(10, "yes");
    assert!(
        text.contains("ok: conntrack: 10 of 1000 entries\n") && text.contains(" UTC, synchronized\n"),
        "{text}"
    );
    let (code, text) = doctor(998, "no");
    let line = missing(&text, "conntrack").unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("998 of 1000 entries"), "{line}");
    assert!(line.contains("fix: sysctl -w net.netfilter.nf_conntrack_max=2000"), "{line}");
    assert_eq!(code, Some(7), "no connection can be opened: {text}");
    let line = missing(&text, "clock").unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("is not synchronized") && line.contains("fix: timedatectl set-ntp true"), "{line}");
}

#[test]
#[ignore = "needs root"]
fn a_firewall_that_drops_clients_of_a_server_is_named_with_the_rule_that_helps() {
    let keys = tempfile::tempdir().expect("a directory");
    let namespace = Namespace::named("incoming").expect("root may");
    let doctor = || {
        let mut command = Command::new(PLAIT);
        command.arg("doctor").env("PLAIT_KEYS", keys.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let output = namespace.spawn(&mut command).expect("started").wait_with_output().expect("it ends");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(doctor().contains("ok: incoming: "), "{}", doctor());
    let script = "nft add table inet guard && nft add chain inet guard in '{ type filter hook input priority 0 ; }' \
        && nft add rule inet guard in tcp dport 22 accept && nft add rule inet guard in counter reject";
    let run = |script: &str| {
        let mut shell = Command::new("sh");
        let status = namespace.spawn(shell.args(["-c", script])).expect("started").wait().expect("it ends");
        assert!(status.success(), "{script}");
    };
    run(script);
    let text = doctor();
    let line = missing(&text, "incoming").unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("the last rule of chain in in table inet guard refuses the rest"), "{line}");
    run(line.split_once("; fix: ").and_then(|(_, fix)| fix.rsplit_once(" [")).expect("a fix").0);
    assert!(doctor().contains("ok: incoming: "), "{}", doctor());
    // As firewalld writes it; its own program is not installed here.
    run(
        "nft delete table inet guard; nft add table inet firewalld; nft add chain inet firewalld filter_FORWARD \
        '{ type filter hook forward priority 10 ; }'; nft add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited",
    );
    let text = doctor();
    let line = missing(&text, "forwarding").unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.contains("firewalld") && line.contains("firewall-cmd --zone=trusted --add-interface=plait+"),
        "{line}"
    );
}

#[test]
fn a_clock_that_is_earlier_than_the_program_is_named_by_doctor_and_check() {
    let world = place("doctor_clock");
    let bob = User::new("daemon", &world);
    let touched = Command::new("touch").args(["-d", "2099-03-01"]).arg(world.join("plait")).status();
    assert!(touched.expect("coreutils").success());
    let fault = "which is past: this program was written on 2099-03-01";
    let (code, printed, said) = doctor(&bob, &world, &[]);
    let line = missing(&printed, "clock").unwrap_or_else(|| panic!("{printed}"));
    assert!(line.contains(fault) && line.contains("fix: timedatectl set-ntp true"), "{line}");
    assert_eq!(code, 0, "pinned keys need no clock: {said}");
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let server = silent.local_addr().expect("bound").to_string();
    let words = ["check", &server, "--path", "lo", "--carrier", "udp", "--connect-timeout", "1"];
    let output = bob.command(&world, &words).output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("the clock of this machine: it shows ") && text.contains(fault), "{text}");
    assert!(text.contains("\n  fix: timedatectl set-ntp true"), "{text}");
    let _ = fs::remove_dir_all(&world);
}

#[test]
#[ignore = "needs root"]
fn an_ordinary_user_that_may_not_listen_on_a_port_is_told_so_before_a_key_is_written() {
    let world = place("doctor_port");
    let bob = User::new("daemon", &world);
    let namespace = Namespace::named("port").expect("root may");
    namespace.set_sysctl("net.ipv4.ip_unprivileged_port_start", 1024).expect("set");
    let key = bob.directory.join("keys").join("identity");
    let run = |words: &[&str]| {
        let mut command = bob.command(&world, words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        namespace.spawn(&mut command).expect("started")
    };
    let listen = ["listen", "80", "--path", "lo"];
    let serve = ["serve", "--forward", "127.0.0.1:9", "--anyone", "--listen", "127.0.0.1:80", "--path", "lo"];
    for words in [&listen[..], &serve] {
        let output = run(words).wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{text}");
        let why = "this user may not listen on port 80: ports below 1024 need CAP_NET_BIND_SERVICE; fix: a port from 1024";
        assert!(text.contains(why), "{text}");
        assert!(!key.exists(), "{words:?}");
    }
    namespace.set_sysctl("net.ipv4.ip_unprivileged_port_start", 80).expect("set");
    let mut listening = run(&listen);
    support::until("the fix helps", || key.exists());
    listening.kill().expect("it runs");
    listening.wait().expect("it ends");
    let _ = fs::remove_dir_all(&world);
}
