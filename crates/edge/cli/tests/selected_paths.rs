//! Paths that are selected by what lasts: default routes, patterns, link-layer addresses; and paths that are added and removed while plait
//! runs. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs;
use std::process::{Command, Stdio};

use plait_lab::Program;
use support::{PLAIT, SERVER, TIMEOUT, World, until};

/// `plait` at the client: what it prints and says, and its exit code.
fn plait(world: &World, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PLAIT);
    command.args(words).env_remove("SUDO_UID").stdin(Stdio::null());
    let output = world.client.enter(|| command.output()).expect("entered").expect("started");
    let [printed, said] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), printed + &said)
}

/// A server without `--path`.
fn serve(world: &World, carrier: &str) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(["serve", "--proxy", "--anyone", "--carrier", carrier, "--allow", &format!("{SERVER}:*")]);
    command.arg("--keys").arg(world.file("server")).current_dir(&world.directory);
    world.start(&world.server, "serve", command)
}

/// The client of a server at this URL, with a program that talks to an echo service until it is told to stop.
fn run(world: &World, url: &str, paths: &[&str]) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", url, "--carrier", "auto"]);
    for path in paths {
        command.args(["--path", path]);
    }
    command.arg("--keys").arg(world.file("client")).args(["--", "python3", "-c"]);
    let talk = "import socket, time\n\
                s = socket.create_connection(('SERVER', 7010))\n\
                while True:\n s.sendall(b'ping')\n assert s.recv(4)\n time.sleep(0.05)\n";
    command.arg(talk.replace("SERVER", SERVER)).current_dir(&world.directory);
    world.start(&world.client, "run", command)
}

/// The devices over which the first connection of this process has an open subflow.
fn in_use(world: &World, pid: &str) -> Vec<String> {
    let (_, said) = plait(world, &["status", "--json", pid]);
    let json: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
    let paths = json["plaits"][0]["connections"][0]["paths"].as_array().cloned().unwrap_or_default();
    let open = paths.iter().filter(|path| path["subflows_open"].as_u64().is_some_and(|open| open > 0));
    let mut names: Vec<_> = open.map(|path| path["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
#[ignore = "needs root"]
fn a_server_that_starts_before_there_is_a_network_is_reached_as_soon_as_there_is_one() {
    for carrier in ["auto", "udp", "tcp"] {
        let world = World::without_server("early");
        let mut serve = serve(&world, carrier);
        let line = "warning: no other host can be reached: there is no default route";
        serve.wait_for_line(line, TIMEOUT).expect("it says so");
        assert_eq!(fs::read_to_string(serve.output()).expect("text"), "", "it is not ready");
        world.server.ip("route add default via 10.77.1.1 dev wan1").expect("added");
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("it is ready");
        assert!(url.contains("10.77.1.2"), "{url}");
        let check = ["check", &url, "--path", "wan1", "--carrier", carrier, "--idle", "0.1"];
        let (code, text) = plait(&world, &check);
        assert_eq!(code, Some(0), "{text}");
        // A second network that comes later is a second path.
        world.server.ip("route add default via 10.77.2.1 dev wan2 metric 200").expect("added");
        let second = url.replace("10.77.1.2", "10.77.2.2");
        until("the second address answers", || {
            let check = ["check", &second, "--path", "wan2", "--carrier", carrier, "--idle", "0.1"];
            plait(&world, &check).0 == Some(0)
        });
        assert_eq!(serve.stop(TIMEOUT).expect("an end").code(), Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn paths_are_added_and_removed_while_a_program_runs() {
    let mut world = World::new("added");
    world.service(7010, |stream| drop(std::io::copy(&mut &stream, &mut &stream)));
    let mut client = run(&world, &world.url.clone(), &["wan1"]);
    let pid = client.pid().to_string();
    until("a connection", || in_use(&world, &pid) == ["wan1"]);
    let (code, text) = plait(&world, &["path", "add", "--pid", &pid, "wan*=untrusted"]);
    assert!(code == Some(0) && text.contains("wan2=untrusted"), "{text}");
    until("the second path", || in_use(&world, &pid) == ["wan1", "wan2"]);
    let (code, text) = plait(&world, &["path", "remove", "wan1", "--pid", &pid]);
    assert!(code == Some(0) && text.contains("wan1=untrusted up"), "the pattern selects it: {text}");
    until("both", || in_use(&world, &pid) == ["wan1", "wan2"]);
    let (code, text) = plait(&world, &["path", "--pid", &pid, "wan1=never"]);
    assert!(code == Some(0) && text.contains("wan1=never"), "{text}");
    until("the second path alone", || in_use(&world, &pid) == ["wan2"]);
    let (code, text) = plait(&world, &["path", "remove", "--pid", &pid, "wan9"]);
    assert!(code == Some(1) && text.contains("no path was given as wan9"), "{code:?} {text}");
    assert_eq!(client.stop(TIMEOUT).expect("an end").code(), Some(143));
    assert_eq!(world.stop_serving(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_modem_that_comes_back_under_another_name_is_used_again() {
    const MODEM: &str = "02:00:00:00:00:07";
    let mut world = World::new("modem");
    world.service(7010, |stream| drop(std::io::copy(&mut &stream, &mut &stream)));
    world.client.ip(&format!("link set dev wan2 address {MODEM}")).expect("set");
    let mut client = run(&world, &world.url.clone(), &["wan1", &format!("mac:{MODEM}")]);
    let pid = client.pid().to_string();
    until("both", || in_use(&world, &pid) == ["wan1", "wan2"]);
    world.client.ip("link set dev wan2 down").expect("unplugged");
    until("the first path alone", || in_use(&world, &pid) == ["wan1"]);
    world.client.ip("link set dev wan2 name wwan5").expect("renamed");
    world.client.ip("link set dev wwan5 up").expect("plugged in");
    until("both again", || in_use(&world, &pid) == ["wan1", "wwan5"]);
    assert_eq!(client.stop(TIMEOUT).expect("an end").code(), Some(143));
    assert_eq!(world.stop_serving(), Some(0));
}
