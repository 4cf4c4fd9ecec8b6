//! `-s A -s B`: one server carries the new requests, the other stands by. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::process::{Command, Output};

use plait_lab::Program;
use support::{PLAIT, SERVER, TIMEOUT, World};

/// A second server on the host of the first one, at port 7444, with a key of its own.
struct Second {
    program: Program,
    url: String,
}

impl Second {
    fn start(world: &World) -> Self {
        let mut command = Command::new(PLAIT);
        command.args(["serve", "--proxy", "--allow", &format!("{SERVER}:*"), "--anyone", "--listen", "7444"]);
        command.args(["--carrier", "udp", "--path", "wan1", "--path", "wan2", "--keys", "second"]);
        command.current_dir(&world.directory);
        let mut program = world.start(&world.server, "second", command);
        let url = program.wait_for_output("plait://", TIMEOUT).expect("its URL");
        Self { program, url }
    }
}

fn world(label: &str) -> World {
    let mut world = World::without_server(label);
    world.make_file("page", 1000);
    world.http();
    world.serve(&["--anyone", "--carrier", "udp"]);
    world
}

fn proxy(world: &World, words: &[&str]) -> Command {
    let mut command = Command::new(PLAIT);
    command.args(["proxy", "--carrier", "udp", "--path", "wan1", "--path", "wan2", "--keys", "client"]);
    command.args(["--socks", "127.0.0.1:0"]).args(words).current_dir(&world.directory);
    command
}

fn start(world: &World, words: &[&str]) -> (Program, String) {
    let mut proxy = world.start(&world.client, "proxy", proxy(world, words));
    let line = proxy.wait_for_line("SOCKS5 at ", TIMEOUT).expect("its address");
    let at = line.strip_prefix("plait: SOCKS5 at ").expect(&line).to_owned();
    (proxy, at)
}

fn fetch(world: &World, at: &str) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "-m", "60", "-o", "out", "--proxy", &format!("socks5h://{at}")]);
    command.arg(format!("http://{SERVER}:8080/page")).current_dir(&world.directory);
    world.client.enter(|| command.output()).expect("entered").expect("curl is installed")
}

/// The servers that were said to be in use, by their ports.
fn in_use(proxy: &Program) -> Vec<String> {
    let said = proxy.errors();
    let lines = said.lines().filter_map(|line| line.strip_prefix("plait: the server in use is "));
    lines.map(|server| server.rsplit(':').next().unwrap_or_default().to_owned()).collect()
}

#[test]
#[ignore = "needs root"]
fn requests_go_to_the_next_server_when_one_is_gone_and_stay_there() {
    let mut world = world("twoservers");
    let mut second = Second::start(&world);
    let first = world.url.clone();
    let (proxy, at) = start(&world, &["-s", &first, "-s", &second.url]);
    let page = |world: &World, what: &str| {
        let output = fetch(world, &at);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{what}: {said} {}", proxy.errors());
    };
    page(&world, "by the first");
    assert_eq!(in_use(&proxy), ["7443"]);
    world.kill_serving();
    page(&world, "by the second");
    assert_eq!(in_use(&proxy), ["7443", "7444"]);
    // The first is back, and the second is kept.
    world.serve(&["--anyone", "--carrier", "udp"]);
    assert_eq!(world.url, first, "the same key");
    page(&world, "still by the second");
    assert_eq!(in_use(&proxy), ["7443", "7444"]);
    assert_eq!(second.program.stop(TIMEOUT).expect("an end").code(), Some(0));
    page(&world, "by the first again");
    assert_eq!(in_use(&proxy), ["7443", "7444", "7443"]);
}

#[test]
#[ignore = "needs root"]
fn a_server_with_another_key_or_without_an_answer_is_named_and_passed_over() {
    let world = world("passedover");
    let second = Second::start(&world);
    let (_, wrong) = second.url.split_once('#').expect("a key");
    let (place, _) = world.url.split_once('#').expect("a key");
    let imitated = format!("{place}#{wrong}");
    let (proxy, at) = start(&world, &["-s", &imitated, "-s", &second.url]);
    assert_eq!(in_use(&proxy), ["7444"]);
    let warning =
        format!("warning: the server {} cannot be used: ", place.strip_prefix("plait://").expect("a URL"));
    assert!(proxy.errors().contains(&warning), "{}", proxy.errors());
    assert_eq!(fetch(&world, &at).status.code(), Some(0));
    drop(proxy);
    // Nothing answers at the first.
    let silent = format!("plait://192.0.2.1:7443#{wrong}");
    for choice in ["order", "latency"] {
        let (proxy, at) = start(&world, &["--server-choice", choice, "-s", &silent, "-s", &second.url]);
        assert_eq!(in_use(&proxy), ["7444"], "{choice}: {}", proxy.errors());
        assert_eq!(fetch(&world, &at).status.code(), Some(0), "{choice}");
    }
}

#[test]
#[ignore = "needs root"]
fn several_servers_need_known_keys_and_sealed_connections() {
    let world = world("knownkeys");
    let (place, _) = world.url.split_once('#').expect("a key");
    for (words, expected) in [
        (&["-s", &world.url, "-s", place][..], "is not known, as the key of each of several servers must be"),
        (&["-s", place, "-s", place, "--protect", "plain"], "several servers need sealed connections"),
        (
            &["-s", &world.url, "-s", &world.url, "--policy", "prefer"],
            "several servers need sealed connections",
        ),
    ] {
        let mut command = proxy(&world, words);
        let output = world.client.enter(|| command.output()).expect("entered").expect("started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{words:?}: {said}");
    }
}
