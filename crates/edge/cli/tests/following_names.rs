//! Servers whose name moves to another address, and servers that are away at the start. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Output};

use plait_lab::Program;
use support::{PLAIT, SERVER, TIMEOUT, World};

/// The name of the server, in the hosts file that the client's programs see.
const GATEWAY: &str = "gw.example.test";
/// Addresses of the server, one on each path.
const FIRST: &str = "10.77.1.2";
const SECOND: &str = "10.77.2.2";

/// The name is now at this address, or at none.
fn name_is_at(world: &World, address: Option<&str>) {
    let line = address.map_or_else(String::new, |address| format!("{address} {GATEWAY}\n"));
    fs::write(world.file("hosts"), format!("127.0.0.1 localhost\n{line}")).expect("written");
}

/// The server is not heard of at this address any more.
fn fall_silent(world: &World, address: &str) {
    for rule in [
        "add table ip silence".to_owned(),
        "add chain ip silence pre { type filter hook prerouting priority -400 ; }".to_owned(),
        format!("add rule ip silence pre ip daddr {address} drop"),
    ] {
        world.server.run("nft", &rule).expect("nft");
    }
}

/// Starts this command of `plait` on the client's host, which finds the server by its name.
fn start(world: &World, command: &str, words: &[&str]) -> Program {
    let (_, key) = world.url.trim().split_once('#').expect("a key");
    let script = "mount --bind hosts /etc/hosts && exec \"$@\"";
    let mut plait = Command::new("unshare");
    plait.args(["--mount", "sh", "-c", script, "sh", PLAIT, command, "-s"]);
    plait.arg(format!("plait://{GATEWAY}:7443#{key}"));
    plait.args(["--path", "wan1", "--path", "wan2", "--keys", "client"]).args(words);
    plait.current_dir(&world.directory);
    world.start(&world.client, command, plait)
}

/// Starts `plait proxy` and returns it with its address.
fn start_proxy(world: &World, words: &[&str]) -> (Program, String) {
    let mut proxy = start(world, "proxy", &[&["--socks", "127.0.0.1:0"], words].concat());
    let line = proxy.wait_for_line("SOCKS5 at ", TIMEOUT).expect("its address");
    let at = line.strip_prefix("plait: SOCKS5 at ").expect(&line).to_owned();
    (proxy, at)
}

fn curl(world: &World, words: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "-m", "60", "-o", "out"]).args(words).current_dir(&world.directory);
    world.client.enter(|| command.output()).expect("entered").expect("curl is installed")
}

/// Fetches a page through a proxy: the exit code of curl, and its words.
fn fetch(world: &World, at: &str) -> (Option<i32>, String) {
    let output = curl(world, &["--proxy", &format!("socks5h://{at}"), &format!("http://{SERVER}:8080/page")]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
#[ignore = "needs root"]
fn connections_follow_the_name_of_the_server_to_another_address_and_running_ones_stay() {
    let mut world = World::new("moving");
    world.make_file("page", 1000);
    world.http();
    // Sends a byte back for each byte.
    world.service(7010, |mut stream| {
        let mut byte = [0; 1];
        while stream.read(&mut byte).is_ok_and(|read| read == 1) {
            stream.write_all(&byte).expect("taken");
        }
    });
    name_is_at(&world, Some(FIRST));
    let (_proxy, at) = start_proxy(&world, &[]);
    assert_eq!(fetch(&world, &at), (Some(0), String::new()));
    let script = format!(
        "import socket, sys\n\
         host, port = sys.argv[1].split(':')\n\
         s = socket.create_connection((host, int(port)))\n\
         s.sendall(b'\\x05\\x01\\x00'); s.recv(2)\n\
         s.sendall(b'\\x05\\x01\\x00\\x01' + socket.inet_aton('{SERVER}') + (7010).to_bytes(2, 'big'))\n\
         assert s.recv(10)[1] == 0\n\
         s.sendall(b'x'); assert s.recv(1) == b'x'; print('runs', flush=True); sys.stdin.readline()\n\
         s.sendall(b'y'); assert s.recv(1) == b'y'; print('stays', flush=True)"
    );
    let mut command = Command::new("python3");
    command.args(["-c", &script, &at]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut running = world.client.enter(|| command.spawn()).expect("entered").expect("python");
    let mut said = [0; 5];
    let mut output = running.stdout.take().expect("piped");
    output.read_exact(&mut said).expect("a connection");
    assert_eq!(&said, b"runs\n");

    fall_silent(&world, FIRST);
    name_is_at(&world, Some(SECOND));
    // One time limit holds for both addresses: the first one does not use it up.
    assert_eq!(fetch(&world, &at), (Some(0), String::new()));
    assert_eq!(fetch(&world, &at), (Some(0), String::new()));

    running.stdin.take().expect("piped").write_all(b"\n").expect("it waits");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert_eq!((rest.as_str(), running.wait().expect("an end").success()), ("stays\n", true));
}

#[test]
#[ignore = "needs root"]
fn a_wrong_answer_of_dns_costs_no_connection_while_the_server_is_where_it_was() {
    let mut world = World::new("liar");
    world.make_file("page", 1000);
    world.http();
    name_is_at(&world, Some(FIRST));
    let (mut proxy, at) = start_proxy(&world, &["-v"]);
    assert_eq!(fetch(&world, &at), (Some(0), String::new()));
    // Nothing answers at the address that the name has now.
    world.server.ip("address add 10.77.1.9/24 dev wan1").expect("added");
    fall_silent(&world, "10.77.1.9");
    name_is_at(&world, Some("10.77.1.9"));
    // A change of the network has the name looked up.
    world.paths[1].down().expect("down");
    proxy.wait_for_line("the name of the server has other addresses now", TIMEOUT).expect("looked up");
    assert_eq!(fetch(&world, &at), (Some(0), String::new()));
}

#[test]
#[ignore = "needs root"]
fn a_proxy_that_waits_refuses_clients_until_its_server_has_a_name_and_answers() {
    let mut world = World::new("away");
    world.make_file("page", 1000);
    world.http();
    world.kill_serving();
    name_is_at(&world, None);
    let (mut proxy, at) = start_proxy(&world, &["--wait", "--connect-timeout", "3"]);
    let refused = fetch(&world, &at);
    assert!(refused.0 == Some(97) && refused.1.contains("(3)"), "{refused:?}");
    proxy.wait_for_line("waiting for the server: cannot find the address", TIMEOUT).expect("the reason");
    name_is_at(&world, Some(FIRST));
    proxy.wait_for_line("waiting for the server: cannot reach the server", TIMEOUT).expect("the reason");
    assert_eq!(fetch(&world, &at).0, Some(97));
    world.serve(&["--anyone"]);
    proxy.wait_for_line("the server answers", TIMEOUT).expect("reached");
    assert_eq!(fetch(&world, &at), (Some(0), String::new()));
}

#[test]
#[ignore = "needs root"]
fn a_forward_that_waits_closes_connections_until_the_network_is_there_and_tries_again_then() {
    let mut world = World::new("offline");
    world.make_file("page", 1000);
    world.http();
    name_is_at(&world, Some(FIRST));
    for path in &world.paths {
        path.down().expect("down");
    }
    let local = format!("127.0.0.1:8181:{SERVER}:8080");
    let mut forward = start(&world, "forward", &["-L", &local, "--wait", "--connect-timeout", "2"]);
    forward.wait_for_line("forwarding 127.0.0.1:8181", TIMEOUT).expect("it listens");
    let fetch = || curl(&world, &["http://127.0.0.1:8181/page"]);
    // The reset may arrive before curl has seen that its connection is open (7).
    let closed = fetch();
    assert!(
        matches!(closed.status.code(), Some(7 | 52 | 55 | 56)),
        "no answer, or a reset: {closed:?}, {}",
        forward.errors()
    );
    forward.wait_for_line("waiting for the server", TIMEOUT).expect("the reason");
    for path in &world.paths {
        path.up().expect("up");
    }
    forward.wait_for_line("the server answers; the paths are wan1, wan2", TIMEOUT).expect("reached");
    assert_eq!(fetch().status.code(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_proxy_that_waits_also_waits_for_the_paths_that_it_requires() {
    let world = World::new("missing");
    name_is_at(&world, Some(FIRST));
    world.paths[1].down().expect("down");
    // The wait for the second path ends before that for the connection.
    let required = ["--wait", "--require-paths", "2", "--connect-timeout", "60"];
    let (mut proxy, _) = start_proxy(&world, &required);
    let line = proxy.wait_for_line("waiting for the server", TIMEOUT).expect("the reason");
    assert!(line.contains("paths"), "{line}");
    assert!(!proxy.has_ended().expect("known"), "{}", proxy.errors());
    world.paths[1].up().expect("up");
    proxy.wait_for_line("the server answers; the paths are wan1, wan2", TIMEOUT).expect("reached");
}

#[test]
#[ignore = "needs root"]
fn a_signal_ends_a_proxy_and_a_forward_that_have_not_reached_their_server_yet() {
    let world = World::new("signal");
    fall_silent(&world, FIRST);
    name_is_at(&world, Some(FIRST));
    for (command, at) in [("proxy", ["--socks", "127.0.0.1:0"]), ("forward", ["-L", "0:web.example:80"])] {
        let mut opening = start(&world, command, &[&at[..], &["-v", "--connect-timeout", "600"]].concat());
        opening.wait_for_line("carrier", TIMEOUT).expect("it opens a connection");
        assert_eq!(opening.stop(TIMEOUT).expect("an end").code(), Some(0), "{command}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_wrong_key_or_a_refusal_ends_a_proxy_that_waits() {
    let mut world = World::new("nouse");
    name_is_at(&world, Some(FIRST));
    let url = world.url.clone();
    world.url = format!("{}#{}", url.split_once('#').expect("a key").0, "A".repeat(43));
    let mut wrong = start(&world, "proxy", &["--socks", "127.0.0.1:0", "--wait"]);
    assert_eq!(wrong.wait(TIMEOUT).expect("an end").code(), Some(5));
    assert_eq!(world.stop_serving(), Some(0));
    // No client is allowed.
    world.serve(&[]);
    let mut refused = start(&world, "proxy", &["--socks", "127.0.0.1:0", "--wait"]);
    assert_eq!(refused.wait(TIMEOUT).expect("an end").code(), Some(5));
}
