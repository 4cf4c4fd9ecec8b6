//! Certificates of `plait serve` that are renewed, have expired, or begin later. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::Program;
use support::certificates::{GATEWAY, authority, issue, issue_for};
use support::{PLAIT, SERVER, TIMEOUT, World, assert_ended, until};

/// The port of the service.
const SERVICE: u16 = 7013;

/// Starts a server with the certificate and key of this name, and returns its URL without the key.
fn serve(world: &mut World, name: &str) -> String {
    let (chain, key) = (format!("{name}.pem"), format!("{name}.key"));
    world.serve(&["--anyone", "-v", "--certificate", &chain, "--certificate-key", &key]);
    world.url.split_once('#').expect("a key").0.to_owned()
}

/// Whether a new client that trusts the root in this file accepts the server.
fn is_accepted(world: &World, url: &str, root: &str) -> bool {
    let options = ["--ca", root, "--server-name", GATEWAY];
    world.run_as("client", url, &options, &["true"]).status.success()
}

/// `plait forward` to the service, for a client that trusts the root in this file, and its local port.
fn forward(world: &World, url: &str, root: &str) -> (Program, u16) {
    let mut command = Command::new(PLAIT);
    let local = format!("0:{SERVER}:{SERVICE}");
    command.args(["forward", "-v", "-s", url, "--path", "wan1", "--path", "wan2", "--keys", "client"]);
    command.args(["--ca", root, "--server-name", GATEWAY, "-L", &local]).current_dir(&world.directory);
    let mut forward = world.start(&world.client, "forward", command);
    let line = forward.wait_for_line("forwarding 127.0.0.1:", TIMEOUT).expect("its port");
    let at = line.split_once("127.0.0.1:").expect("an address").1;
    let port = at.split_once(' ').expect("a destination").0.parse().expect("a port");
    (forward, port)
}

fn is_echoed(mut stream: &TcpStream) -> bool {
    stream.write_all(b"e").is_ok() && stream.read_exact(&mut [0]).is_ok()
}

#[test]
#[ignore = "needs root"]
fn a_renewed_certificate_needs_no_restart_and_running_connections_stay() {
    let mut world = World::without_server("renewed");
    let roots = ["one", "two", "three", "four"].map(|name| {
        let root = authority(&world, &format!("{name}-root.pem"));
        issue(&world, &root, name, 2096);
        root
    });
    world.service(SERVICE, |mut stream| {
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    // As certbot has it: links to the current files.
    let directory = world.file("live");
    fs::create_dir(&directory).expect("made");
    let link = |world: &World, name: &str, kind: &str| {
        let (directory, new) = (world.file("live"), world.file("live/new"));
        symlink(world.file(&format!("{name}.{kind}")), &new).expect("made");
        fs::rename(new, directory.join(format!("gw.{kind}"))).expect("replaced");
    };
    link(&world, "one", "pem");
    link(&world, "one", "key");
    let url = serve(&mut world, "live/gw");
    let (forward, port) = forward(&world, &url, "one-root.pem");
    let open =
        world.client.enter(|| TcpStream::connect(("127.0.0.1", port))).expect("entered").expect("open");
    open.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    assert!(is_echoed(&open), "{}", forward.errors());

    let link_to = |name: &str, kind: &str| link(&world, name, kind);
    link_to("two", "pem");
    link_to("two", "key");
    until("the second certificate", || is_accepted(&world, &url, "two-root.pem"));
    assert!(!is_accepted(&world, &url, "one-root.pem"), "{}", world.serve_log());
    assert!(is_echoed(&open), "{}", forward.errors());

    // A file that makes no sense, a key without its certificate, and a directory that goes away: the earlier certificate stays.
    let kept = "the certificate was not read again, and the earlier one stays: ";
    let lines = || world.serve_log().matches(kept).count();
    fs::remove_file(directory.join("gw.pem")).expect("ours");
    fs::write(directory.join("gw.pem"), "nonsense").expect("written");
    until("a line", || lines() == 1);
    assert!(world.serve_log().contains("live/gw.pem"), "{}", world.serve_log());
    link_to("three", "pem");
    until("a line", || lines() == 2);
    assert!(world.serve_log().contains("the private key is not the one of"), "{}", world.serve_log());
    fs::rename(&directory, world.file("gone")).expect("moved");
    until("a line", || lines() == 3);
    assert!(is_accepted(&world, &url, "two-root.pem"), "{}", world.serve_log());
    assert_eq!(lines(), 3, "one line for each change: {}", world.serve_log());
    fs::create_dir(&directory).expect("made");
    for kind in ["pem", "key"] {
        let file = world.file(&format!("three.{kind}"));
        fs::OpenOptions::new().append(true).open(file).expect("ours").write_all(&[b'\n'; 16]).expect("room");
    }
    link_to("three", "pem");
    link_to("three", "key");
    until("the third certificate", || is_accepted(&world, &url, "three-root.pem"));

    // At SIGHUP, whatever the stamps of the files say.
    for kind in ["pem", "key"] {
        let file = world.file(&format!("three.{kind}"));
        let before = fs::metadata(&file).expect("there");
        let mut text = fs::read(world.file(&format!("four.{kind}"))).expect("read");
        text.resize(usize::try_from(before.len()).expect("short"), b'\n');
        fs::write(&file, text).expect("written");
        let open = fs::File::options().write(true).open(&file).expect("ours");
        open.set_modified(before.modified().expect("a time")).expect("set");
    }
    let id = Pid::from_raw(i32::try_from(world.serve_id()).expect("a process"));
    kill(id, Signal::SIGHUP).expect("it runs");
    until("the fourth certificate", || is_accepted(&world, &url, "four-root.pem"));
    assert!(is_echoed(&open), "{}", forward.errors());
    // An expired one is used, with a warning: it is what the operator has put there.
    issue(&world, &roots[3], "old", 2021);
    link_to("old", "pem");
    link_to("old", "key");
    until("a warning", || world.serve_log().contains("live/gw.pem has expired, at 2021-01-01T00:00:00Z"));
    assert_eq!(world.stop_serving(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_server_warns_of_a_certificate_that_is_not_valid_now() {
    let mut world = World::without_server("dates");
    let root = authority(&world, "root.pem");
    issue_for(&world, &root, "old", (2020, 2021));
    issue_for(&world, &root, "future", (2090, 2096));
    issue_for(&world, &root, "good", (2020, 2096));
    for (name, says) in [
        ("old", &["old.pem has expired, at 2021-01-01T00:00:00Z", "fix: renew it in old.pem"][..]),
        ("future", &["future.pem is not valid before 2090-01-01T00:00:00Z", "fix: set the clock, or"]),
        ("good", &[]),
    ] {
        let url = serve(&mut world, name);
        let log = world.serve_log();
        assert!(says.iter().all(|says| log.contains(says)), "{log}");
        assert_eq!(log.contains("warning: the certificate"), !says.is_empty(), "{log}");
        let options = ["--ca", "root.pem", "--server-name", GATEWAY];
        let output = world.run_as("client", &url, &options, &["true"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match name {
            "good" => assert_ended(&output, 0, &options),
            _ => {
                assert!(
                    said.contains("has to renew its certificate; if the clock of this machine"),
                    "{said}"
                );
            }
        }
        assert_eq!(world.stop_serving(), Some(0));
    }
}
