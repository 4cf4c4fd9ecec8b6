//! Allowed clients and trusted servers: certificates, keys of servers and of clients, end to end. Needs root; without
//! it each test says so and passes.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use support::certificates::{GATEWAY, authority, issue};
use support::{PLAIT, World, assert_ended, until};

#[test]
#[ignore = "needs root"]
fn a_server_is_known_by_a_certificate_for_its_name() {
    let mut world = World::without_server("certificate");
    let root = authority(&world, "root.pem");
    authority(&world, "other.pem");
    issue(&world, &root, "server", 2096);
    let certificate = ["--anyone", "--certificate", "server.pem", "--certificate-key", "server.key"];
    world.serve(&certificate);
    let pinned = world.url.clone();
    let unpinned = pinned.split_once('#').expect("a key").0.to_owned();
    let by_name = ["--ca", "root.pem", "--server-name", GATEWAY];
    let program = ["true"];
    assert_ended(&world.run_as("client", &unpinned, &by_name, &program), 0, &program);
    assert_eq!(world.key("client", &["list"]), "", "no key was trusted for that");
    assert_ended(&world.run_as("client", &pinned, &[], &program), 0, &["others go by the key"]);

    expect(&world, &unpinned, &["--ca", "root.pem"], "not for 10.77.1.2 but for");
    expect(&world, &unpinned, &["--ca", "root.pem", "--server-name", "evil.example"], "not for evil.example");
    expect(&world, &unpinned, &["--ca", "other.pem", "--server-name", GATEWAY], "leads to none of the roots");
    expect(&world, &pinned, &by_name, "by its key and by a certificate");
    expect(&world, &unpinned, &["--ca", "server.key"], "no PEM section CERTIFICATE");

    assert_eq!(world.stop_serving(), Some(0));
    issue(&world, &root, "server", 2021);
    world.serve(&certificate);
    expect(&world, &unpinned, &by_name, "has expired");
    expect(
        &world,
        &unpinned,
        &by_name,
        "fix: the operator of the server has to renew its certificate; if the clock",
    );
    assert_eq!(world.stop_serving(), Some(0));
    world.serve(&["--anyone"]);
    expect(&world, &unpinned, &by_name, "no identity of the kind");
}

#[test]
#[ignore = "needs root"]
fn a_certificate_without_its_own_key_is_not_served() {
    let world = World::without_server("mismatch");
    let root = authority(&world, "root.pem");
    issue(&world, &root, "one", 2096);
    issue(&world, &root, "two", 2096);
    let mut command = Command::new(PLAIT);
    command.args(["serve", "--forward", "127.0.0.1:1", "--anyone", "--path", "wan1", "--keys", "server"]);
    command.args(["--certificate", "one.pem", "--certificate-key", "two.key"]);
    let output = world.server.enter(|| command.current_dir(&world.directory).output());
    let output = output.expect("entered").expect("started");
    assert_ended(&output, 1, &["serve"]);
    assert!(said(&output).contains("the private key is not the one of the certificate"), "{}", said(&output));
}

#[test]
#[ignore = "needs root"]
fn connect_asks_before_it_believes_a_new_server_and_shows_an_impostor_nothing() {
    let world = World::without_server("firstuse");
    let client = world.key("client", &["gen"]);
    let client = client.lines().next().expect("a fingerprint");
    let connect = |port: &str, keys: &str, options: &[&str]| {
        // A listener that has ended may still be taking its device away.
        until("a host without a listener", || {
            world.server.run("ip", "-o link").is_ok_and(|links| !links.contains("plait0"))
        });
        let mut listen = Command::new(PLAIT);
        listen.args(["listen", port, "--echo", "--count", "1", "--path", "wan1", "--keys", keys, "--status"]);
        listen.current_dir(&world.directory);
        let listening = world.start(&world.server, "listen", listen);
        until("the port", || world.server.run("nft", "list ruleset").is_ok_and(|rules| rules.contains(port)));
        let mut connect = Command::new("setsid");
        // Without a terminal to ask at.
        connect.args(["--wait", PLAIT, "connect", "10.77.1.2", port, "--path", "wan1", "--keys", "client"]);
        connect.args(options).current_dir(&world.directory);
        connect.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut connecting = world.client.spawn(&mut connect).expect("started");
        // A refused client may be gone by now.
        let _ = connecting.stdin.take().expect("piped").write_all(b"hello");
        let output = connecting.wait_with_output().expect("an end");
        (output, listening)
    };
    let (stranger, listening) = connect("7111", "server", &[]);
    drop(listening);
    assert_ended(&stranger, 5, &["a stranger"]);
    assert!(
        said(&stranger).contains("is not known") && said(&stranger).contains("--accept-new"),
        "{stranger:?}"
    );
    assert_eq!(world.key("client", &["list"]), "", "no key was trusted");

    // A key seen over one path alone may be an attacker's.
    let (alone, listening) = connect("7114", "server", &["--accept-new"]);
    drop(listening);
    assert_ended(&alone, 5, &["--accept-new over one path"]);
    assert!(said(&alone).contains("--accept-new=one-path"), "{}", said(&alone));
    assert_eq!(world.key("client", &["list"]), "", "no key was trusted");

    let (accepted, listening) = connect("7112", "server", &["--accept-new=one-path"]);
    assert_ended(&accepted, 0, &["--accept-new=one-path"]);
    assert!(world.key("client", &["list"]).contains("seen over one path alone"));
    until("the status", || listening.errors().contains(client));
    fs::rename(world.file("client/known_peers"), world.file("7112")).expect("a known server");
    let known = fs::read_to_string(world.file("7112")).expect("read").replace(":7112", ":7113");
    support::write_secret(&world.file("client/known_peers"), &known);

    drop(listening);
    let (fooled, listening) = connect("7113", "impostor", &["--accept-new=one-path"]);
    assert_ended(&fooled, 5, &["an impostor"]);
    assert!(said(&fooled).contains("plait key forget 10.77.1.2:7113"), "{}", said(&fooled));
    assert!(fooled.stdout.is_empty() && !listening.errors().contains(client), "{}", listening.errors());
}

#[test]
#[ignore = "needs root"]
fn files_of_keys_that_others_can_read_are_refused_whatever_option_names_them() {
    let world = World::without_server("modes");
    let root = authority(&world, "root.pem");
    issue(&world, &root, "server", 2096);
    world.key("server", &["gen"]);
    for (file, options) in [
        ("server/identity", &["--keys", "server"][..]),
        ("server/identity", &["--key", "server/identity"]),
        ("server.key", &["--certificate", "server.pem", "--certificate-key", "server.key"]),
    ] {
        fs::set_permissions(world.file(file), Permissions::from_mode(0o640)).expect("ours");
        for subcommand in [&["listen", "7121"][..], &["serve", "--forward", "127.0.0.1:1", "--anyone"]] {
            let mut command = Command::new(PLAIT);
            command.args(subcommand).args(["--path", "wan1"]).args(options).current_dir(&world.directory);
            let output = world.server.enter(|| command.output()).expect("entered").expect("started");
            assert_ended(&output, 1, options);
            let fix = format!("fix: chmod 600 {file}");
            assert!(said(&output).contains(&fix), "{subcommand:?} {options:?}: {}", said(&output));
        }
        fs::set_permissions(world.file(file), Permissions::from_mode(0o600)).expect("ours");
    }
}

#[test]
#[ignore = "needs root"]
fn a_key_log_is_said_loudly_and_root_has_to_ask_for_it() {
    let world = World::without_server("keylog");
    let listen = |options: &[&str]| {
        let mut command = Command::new(PLAIT);
        command.args(["listen", "7131", "--path", "wan1", "--keys", "server"]).args(options);
        command.env("SSLKEYLOGFILE", "log").current_dir(&world.directory);
        command
    };
    let output = world.server.enter(|| listen(&[]).output()).expect("entered").expect("started");
    assert_ended(&output, 1, &["unasked"]);
    assert!(said(&output).contains("--allow-key-log"), "{}", said(&output));
    assert!(!world.file("log").exists(), "nothing is made");
    let listening = world.start(&world.server, "listen", listen(&["--allow-key-log"]));
    until("the port", || listening.errors().contains("listening on port"));
    assert!(listening.errors().contains("WARNING: SSLKEYLOGFILE is set"), "{}", listening.errors());
    assert_eq!(fs::metadata(world.file("log")).expect("made").permissions().mode() & 0o777, 0o600);
}

#[test]
#[ignore = "needs root"]
fn clients_come_and_go_with_their_line_in_the_file() {
    let mut world = World::without_server("lines");
    let line = |world: &World, keys| world.key(keys, &["gen"]).lines().nth(1).expect("a line").to_owned();
    let [ada, eve] = ["ada", "eve"].map(|keys| line(&world, keys));
    let authorize = |world: &World, lines: &str| {
        fs::create_dir_all(world.file("server")).expect("a directory");
        fs::write(world.file("server/authorized_clients"), lines).expect("written");
    };
    authorize(&world, &ada);
    world.serve(&[]);
    let enters = |world: &World, keys| {
        let output = world.run_as(keys, &world.url, &["--connect-timeout", "60"], &["true"]);
        let refused = output.status.code() == Some(125) && said(&output).contains("does not take us");
        assert!(refused || output.status.success(), "{output:?}");
        output.status.success()
    };
    assert_eq!((enters(&world, "ada"), enters(&world, "eve")), (true, false));
    authorize(&world, &format!("{ada}\n{eve}\n"));
    assert_eq!((enters(&world, "ada"), enters(&world, "eve")), (true, true));
    authorize(&world, &eve);
    assert_eq!((enters(&world, "ada"), enters(&world, "eve")), (false, true));
}

#[test]
#[ignore = "needs root"]
fn listen_and_connect_know_each_other_by_keys_and_certificates() {
    let world = World::without_server("pair");
    let root = authority(&world, "root.pem");
    issue(&world, &root, "server", 2096);
    let fingerprint = |keys| {
        let shown = world.key(keys, &["gen"]);
        let found = shown.split_whitespace().find(|word| word.starts_with("SHA256:"));
        found.expect("a fingerprint").to_owned()
    };
    let (ada, server) = (fingerprint("ada"), fingerprint("server"));
    fingerprint("eve");
    let talk = |port: &str, keys: &str, knows: &[&str]| {
        let mut listen = Command::new(PLAIT);
        listen.args(["listen", port, "--echo", "--count", "1", "--path", "wan1", "--keys", "server"]);
        listen.args(["--client-key", &ada, "--certificate", "server.pem", "--certificate-key", "server.key"]);
        listen.current_dir(&world.directory);
        let _listening = world.start(&world.server, "listen", listen);
        let is_ready = || world.server.run("nft", "list ruleset").is_ok_and(|rules| rules.contains(port));
        until("the port", is_ready);
        let mut connect = Command::new(PLAIT);
        connect.args(["connect", "10.77.1.2", port, "--path", "wan1", "--keys", keys]).args(knows);
        connect.current_dir(&world.directory);
        connect.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut connecting = world.client.spawn(&mut connect).expect("started");
        // A refused client may be gone by now.
        let _ = connecting.stdin.take().expect("piped").write_all(b"hello");
        connecting.wait_with_output().expect("an end")
    };
    let by_name = ["--ca", "root.pem", "--server-name", GATEWAY];
    for (port, knows) in [("7101", &["--server-key", &server][..]), ("7102", &by_name[..])] {
        let output = talk(port, "ada", knows);
        assert_ended(&output, 0, knows);
        assert_eq!(output.stdout, b"hello");
    }
    let output = talk("7103", "eve", &["--server-key", &server]);
    assert_ended(&output, 5, &["an unknown client"]);
    assert!(said(&output).contains("the peer gave up"), "{}", said(&output));
    assert!(output.stdout.is_empty());
    let wrong = ["--ca", "root.pem", "--server-name", "evil.example"];
    let output = talk("7104", "ada", &wrong);
    assert_ended(&output, 5, &wrong);
    assert!(said(&output).contains("not for evil.example") && said(&output).contains("fix: "), "{output:?}");
}

#[test]
#[ignore = "needs root"]
fn a_listener_names_the_refused_client_and_what_was_missing() {
    let world = World::without_server("unsealed");
    let mut listen = Command::new(PLAIT);
    listen.args(["listen", "7105", "--path", "wan1", "--keys", "server"]);
    listen.current_dir(&world.directory);
    let listening = world.start(&world.server, "listen", listen);
    until("the port", || world.server.run("nft", "list ruleset").is_ok_and(|rules| rules.contains("7105")));
    for _ in 0..3 {
        let mut connect = Command::new(PLAIT);
        connect.args(["connect", "10.77.1.2", "7105", "--path", "wan1", "--protect", "plain"]);
        connect.current_dir(&world.directory).stdin(Stdio::null()).stderr(Stdio::null());
        let refused = world.client.spawn(&mut connect).expect("started").wait().expect("an end");
        assert_eq!(refused.code(), Some(4));
    }
    let said = || listening.errors();
    until("a line", || said().contains("refused"));
    let said = said();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("refused a peer")).collect();
    let [line] = lines[..] else { panic!("one line for all three: {said}") };
    for needed in ["from=10.77.1.1:", "Multipath TCP version 1 without encryption"] {
        assert!(line.contains(needed), "{line}");
    }
}

/// `plait run` must fail by itself and say this.
fn expect(world: &World, url: &str, options: &[&str], says: &str) {
    let output = world.run_as("client", url, options, &["touch", "started"]);
    assert_ended(&output, 125, options);
    assert!(said(&output).contains(says), "{options:?}: {:?} does not say {says:?}", said(&output));
    assert!(!world.file("started").exists(), "nothing has run");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
