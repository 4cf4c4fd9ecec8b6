//! What a client sees that a server refuses, and what the server's log says of it. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs;
use std::io::Write;
use std::process::{Command, Output};

use plait_lab::Program;
use support::{PLAIT, SERVER, TIMEOUT, World, assert_ended, until};

const PORT: u16 = 7000;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `plait serve` in front of a service that greets, with these words; and its URL.
fn serve(world: &World, words: &[&str]) -> (Program, String) {
    let service = format!("{SERVER}:{PORT}");
    let mut command = Command::new(PLAIT);
    command.args(["serve", "--forward", &service, "--path", "wan1", "--path", "wan2", "--keys", "server"]);
    command.args(words).current_dir(&world.directory);
    let mut serve = world.start(&world.server, "serve", command);
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its URL");
    (serve, url)
}

fn world(label: &str) -> World {
    let world = World::without_server(label);
    world.service(PORT, |mut stream| {
        // The client may have gone.
        let _ = stream.write_all(b"hello");
    });
    world
}

/// A command of the client with a key of its own.
fn client(world: &World, words: &[&str]) -> Output {
    let mut command = Command::new(PLAIT);
    command.args(words).args(["--path", "wan1", "--path", "wan2", "--keys", "client"]);
    command.current_dir(&world.directory).stdin(std::process::Stdio::null());
    world.client.enter(|| command.output()).expect("entered").expect("started")
}

/// The refusals in the log, without what stands in front of them.
fn refusals(serve: &Program) -> Vec<String> {
    let line = |line: &str| Some(line.split_once("refused a client: ")?.1.to_owned());
    serve.errors().lines().filter_map(line).collect()
}

#[test]
#[ignore = "needs root"]
fn a_client_that_is_not_authorized_is_told_so_and_the_log_says_how_to_let_it_in_without_a_restart() {
    let world = world("refusals");
    let (mut serve, url) = serve(&world, &[]);
    until("the warning", || serve.errors().contains("no client is accepted yet"));
    let shown = world.key("client", &["gen"]);
    let (fingerprint, line) = shown.trim_end().split_once('\n').expect("two lines");

    for (words, code) in [
        (&["connect", &url][..], 5),
        (&["check", &url], 5),
        (&["forward", "-s", &url, "-L", "0:127.0.0.1:22"], 5),
        (&["proxy", "-s", &url, "--socks", "127.0.0.1:0"], 5),
    ] {
        let output = client(&world, words);
        assert_ended(&output, code, words);
        let told = said(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("not authorized") && told.contains("fix: plait key show"), "{words:?}: {told}");
    }

    let log = refusals(&serve);
    let first = log.first().expect("a line");
    assert!(first.starts_with("address=10.77."), "{log:?}");
    let rest = format!(" key={fingerprint} reason=not-authorized more=0; fix: plait key authorize {line}");
    assert!(first.ends_with(&rest), "{first} ends with{rest}");
    assert!(log.len() <= 8, "few lines: {log:?}");

    // As the log says.
    let words: Vec<_> = line.split(' ').collect();
    world.key("server", &[&["authorize"], &words[..]].concat());
    let output = client(&world, &["connect", &url]);
    assert_ended(&output, 0, &["an authorized client"]);
    assert_eq!(output.stdout, b"hello");
    assert_ended(&client(&world, &["check", &url]), 0, &["an authorized client"]);
    // Without its file no client is accepted, again without a restart.
    fs::remove_file(world.file("server/authorized_clients")).expect("there");
    assert_ended(&client(&world, &["check", &url]), 5, &["a list that is gone"]);
    assert_eq!(serve.stop(TIMEOUT).expect("an end").code(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_full_server_says_so_and_is_no_matter_of_keys() {
    let world = world("full");
    // One connection stays open: its service says nothing more.
    world.service(PORT + 1, |mut stream| {
        let _ = std::io::Read::read(&mut stream, &mut [0]);
    });
    let mut command = Command::new(PLAIT);
    command.args([
        "serve",
        "--forward",
        &format!("{SERVER}:{}", PORT + 1),
        "--anyone",
        "--max-connections",
        "1",
    ]);
    command.args(["--path", "wan1", "--path", "wan2", "--keys", "server"]).current_dir(&world.directory);
    let mut serve = world.start(&world.server, "serve", command);
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its URL");
    let mut first = Command::new("bash");
    first.args(["-c", "exec \"$@\" < <(sleep 1000)", "bash", PLAIT, "connect", &url, "--path", "wan1"]);
    first.args(["--keys", "first"]).current_dir(&world.directory);
    let first = world.start(&world.client, "first", first);
    let is_open = |output: Output| String::from_utf8_lossy(&output.stdout).contains("1 connections open");
    until("one connection", || {
        let mut status = Command::new(PLAIT);
        is_open(status.args(["status", &serve.pid().to_string()]).output().expect("started"))
    });
    for words in [&["connect", &url][..], &["check", &url], &["proxy", "-s", &url, "--socks", "127.0.0.1:0"]]
    {
        let output = client(&world, words);
        assert_ended(&output, 4, words);
        let told = said(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("the server is full") && !told.contains("authorized"), "{words:?}: {told}");
    }
    assert!(refusals(&serve).iter().all(|line| line.contains(" reason=full ")), "{:?}", refusals(&serve));
    drop(first);
    serve.stop(TIMEOUT).expect("an end");
}

#[test]
#[ignore = "needs root"]
fn a_client_that_is_bound_to_other_destinations_does_not_reach_the_service() {
    let world = world("bound");
    let shown = world.key("client", &["gen"]);
    let line: Vec<_> = shown.lines().nth(1).expect("a line").split(' ').collect();
    let (mut serve, url) = serve(&world, &["-v"]);
    let authorize = |rule: &str| world.key("server", &[&["authorize", "--allow", rule][..], &line].concat());
    authorize("10.0.0.0/8:443");
    let output = client(&world, &["connect", &url]);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    until("the refusal", || serve.errors().contains("a client was refused"));
    authorize(&format!("{SERVER}:{PORT}"));
    let output = client(&world, &["connect", &url]);
    assert_ended(&output, 0, &["a client that may go there"]);
    assert_eq!(output.stdout, b"hello");
    serve.stop(TIMEOUT).expect("an end");
}
