//! Options from a file, and changes of it while `plait serve` and `plait forward` run. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use plait_lab::Program;
use support::{PLAIT, SERVER, TIMEOUT, World, until};

/// Ports of echo services.
const ONE: u16 = 7013;
const OTHER: u16 = 7014;

/// `plait` at a host: its exit code, what it prints, and what it says on standard error.
fn plait(world: &World, at_server: bool, words: &[&str]) -> (Option<i32>, String, String) {
    let host = if at_server { &world.server } else { &world.client };
    let mut command = Command::new(PLAIT);
    command.args(words).current_dir(&world.directory).env_remove("SUDO_UID").stdin(Stdio::null());
    let output = host.enter(|| command.output()).expect("entered").expect("started");
    let [printed, said] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), printed, said)
}

/// Writes a configuration as editors do: a new file in place of the old one.
fn write(world: &World, name: &str, text: &str) {
    fs::write(world.file("new"), text).expect("written");
    fs::rename(world.file("new"), world.file(name)).expect("replaced");
}

/// Starts a command with a configuration, and returns it with the line that begins so.
fn start(world: &World, at_server: bool, (name, words): (&str, &[&str])) -> Program {
    let host = if at_server { &world.server } else { &world.client };
    let mut command = Command::new(PLAIT);
    command.args(words).current_dir(&world.directory);
    world.start(host, name, command)
}

/// A connection to a forwarded port, in the state of the network of the client.
fn connect(world: &World, port: u16) -> TcpStream {
    let open =
        world.client.enter(|| TcpStream::connect(("127.0.0.1", port))).expect("entered").expect("open");
    open.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    open
}

fn is_echoed(mut stream: &TcpStream) -> bool {
    let mut byte = [0];
    stream.write_all(b"e").is_ok() && matches!(stream.read(&mut byte), Ok(1))
}

/// A world with two echo services.
fn world(label: &str) -> World {
    let world = World::without_server(label);
    for port in [ONE, OTHER] {
        world.service(port, |mut stream| {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        });
    }
    world
}

/// The configuration of a server, with these rules and further lines.
fn gateway(rules: &str, more: &str) -> String {
    format!("keys = \"server\"\n{more}\n[serve]\nproxy = true\nanyone = true\nallow = {rules}\n")
}

#[test]
#[ignore = "needs root"]
fn a_reload_changes_rules_paths_and_log_without_cutting_a_connection() {
    let world = world("reload");
    let (one, other) = (format!("[\"{SERVER}:{ONE}\"]"), format!("[\"{SERVER}:{OTHER}\"]"));
    write(&world, "gw.toml", &gateway(&one, "path = [\"wan1\"]"));
    let mut serve = start(&world, true, ("serve", &["serve", "--config", "gw.toml"]));
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
    let client = format!(
        "keys = \"client\"\npath = [\"wan1\"]\n[servers.work]\nurl = \"{url}\"\n\
         [forward]\nserver = \"work\"\nlocal = [\"{ONE}:{SERVER}:{ONE}\", \"{OTHER}:{SERVER}:{OTHER}\"]\n"
    );
    write(&world, "laptop.toml", &client);
    let mut forward = start(&world, false, ("forward", &["forward", "--config", "laptop.toml"]));
    forward.wait_for_line("forwarding", TIMEOUT).expect("its port");
    let open = connect(&world, ONE);
    assert!(is_echoed(&open), "{}", forward.errors());
    assert!(!is_echoed(&connect(&world, OTHER)), "no rule allows it");

    // Another rule, another path, and lines about connections.
    write(&world, "gw.toml", &gateway(&other, "path = [\"wan1\", \"wan2\"]\nverbose = 1"));
    let pid = serve.pid().to_string();
    let (code, printed, said) = plait(&world, true, &["reload", "--pid", &pid]);
    assert_eq!((code, printed.trim()), (Some(0), "changed: allow, path, verbose"), "{said}");
    write(&world, "laptop.toml", &client.replace("[\"wan1\"]", "[\"wan1\", \"wan2=backup\"]"));
    let (code, printed, said) = plait(&world, false, &["reload", "--pid", &forward.pid().to_string()]);
    assert_eq!((code, printed.trim()), (Some(0), "changed: path"), "{said}");
    assert!(is_echoed(&open), "the connection stays, whatever the rules are now");
    assert!(is_echoed(&connect(&world, OTHER)), "the new rule allows it: {}", serve.errors());
    assert!(!is_echoed(&connect(&world, ONE)), "no rule allows new ones");
    let paths = || plait(&world, true, &["path", "--pid", &pid]).1;
    until("the new path", || paths().contains("wan2=trusted up"));
    until("lines of the log", || serve.errors().contains("served"));
    assert!(is_echoed(&open));

    // A path less.
    write(&world, "gw.toml", &gateway(&other, "path = [\"wan1\"]\nverbose = 1"));
    serve.signal(Signal::SIGHUP);
    until("one path", || !paths().contains("wan2"));
    assert!(is_echoed(&open), "{}", serve.errors());
    assert!(is_echoed(&connect(&world, OTHER)));
    assert_eq!(serve.stop(TIMEOUT).expect("an end").code(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_mistake_changes_nothing_and_a_port_needs_a_restart() {
    let world = world("mistake");
    let rules = format!("[\"{SERVER}:*\"]");
    let good = gateway(&rules, "path = [\"wan1\", \"wan2\"]");
    write(&world, "gw.toml", &good);
    let mut serve = start(&world, true, ("serve", &["serve", "--config", "gw.toml"]));
    serve.wait_for_output("plait://", TIMEOUT).expect("its address");
    let pid = serve.pid().to_string();
    let reload = || plait(&world, true, &["reload", "--pid", &pid]);
    assert_eq!(reload().1.trim(), "nothing has changed");

    for (text, expected) in [
        (
            good.replace("allow", "alow"),
            "gw.toml:6:1: `plait serve` has no option `alow` (did you mean `allow`?)",
        ),
        (good.replace("\"wan2\"", "\"wan2=trusty\""), "gw.toml:2:8: invalid value 'wan2=trusty'"),
        (String::new(), "required arguments were not provided"),
        (good.replace("path = ", "path = [[["), "missing comma"),
    ] {
        write(&world, "gw.toml", &text);
        let (code, _, said) = reload();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
    fs::remove_file(world.file("gw.toml")).expect("removed");
    let (code, _, said) = reload();
    assert!(code == Some(1) && said.contains("cannot read gw.toml"), "{said}");
    fs::create_dir(world.file("gw.toml")).expect("made");
    let (code, _, said) = reload();
    assert!(code == Some(1) && said.contains("not a regular file"), "{said}");
    fs::remove_dir(world.file("gw.toml")).expect("removed");
    let paths = plait(&world, true, &["path", "--pid", &pid]).1;
    assert!(paths.contains("wan1=trusted up") && paths.contains("wan2=trusted up"), "{paths}");

    // A device that is not there in place of all: a typing mistake.
    write(&world, "gw.toml", &good.replace("[\"wan1\", \"wan2\"]", "[\"wna1\"]"));
    let (code, _, said) = reload();
    assert!(code == Some(1) && said.contains("none of the new paths works"), "{said}");
    assert!(plait(&world, true, &["path", "--pid", &pid]).1.contains("wan1=trusted up"));
    // Other rules for other clients: the rules wait for the list of clients.
    write(
        &world,
        "gw.toml",
        &good.replace("keys = \"server\"", "keys = \"other\"").replace(":*\"", ":1-9\""),
    );
    let (_, printed, said) = reload();
    assert_eq!(printed.trim(), "a restart is needed for: allow, keys", "{said}");
    // There is no log file to be opened again, and the server goes on.
    serve.signal(Signal::SIGUSR1);
    write(&world, "gw.toml", &good);
    assert_eq!(reload().1.trim(), "nothing has changed");

    write(&world, "gw.toml", &good.replace("[serve]", "[serve]\nlisten = 7444\ndrain = 1"));
    let (code, printed, said) = reload();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(printed.trim(), "changed: drain\na restart is needed for: listen");
    let again = reload().1;
    assert_eq!(again.trim(), "a restart is needed for: listen", "it is named until it is in effect");
    assert_eq!(serve.stop(TIMEOUT).expect("an end").code(), Some(0));
    let mut restarted = start(&world, true, ("restarted", &["serve", "--config", "gw.toml"]));
    let url = restarted.wait_for_output("plait://", TIMEOUT).expect("its address");
    assert!(url.contains(":7444"), "{url}");
}

/// `plait forward` with a configuration, and the state of the user in a directory of the test.
fn forward(world: &World, name: &str) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(["forward", "--config", "laptop.toml"]).current_dir(&world.directory);
    command.env("STATE_DIRECTORY", world.file("state"));
    let mut forward = world.start(&world.client, name, command);
    forward.wait_for_line("forwarding", TIMEOUT).expect("its port");
    forward
}

#[test]
#[ignore = "needs root"]
fn a_path_beyond_its_volume_is_a_backup_also_after_a_restart() {
    let mut world = world("volume");
    world.serve(&["--anyone"]);
    let client = |volume: &str| {
        format!(
            "keys = \"client\"\nserver = \"{}\"\n[[path]]\ndevice = \"wan1\"\ncap = \"{volume}/month@5\"\n[[path]]\ndevice = \"wan2\"\n\
             [forward]\nlocal = [\"{ONE}:{SERVER}:{ONE}\"]\n",
            world.url
        )
    };
    write(&world, "laptop.toml", &client("1 MB"));
    let mut one = forward(&world, "one");
    let paths = |forward: &Program| plait(&world, false, &["path", "--pid", &forward.pid().to_string()]).1;
    assert!(paths(&one).contains("wan1=trusted up"), "{}", paths(&one));
    let open = connect(&world, ONE);
    let mut echoed = vec![0; 1 << 18];
    until("a volume that is used up", || {
        // How much of it crosses wan1 is for the scheduler to say.
        (&open).write_all(&echoed).expect("sent");
        (&open).read_exact(&mut echoed).expect("echoed");
        paths(&one).contains("wan1=trusted,backup up")
    });
    assert!(is_echoed(&open), "the connection stays");
    assert!(one.errors().contains("wan1=trusted,backup from now on"), "{}", one.errors());
    assert_eq!(one.stop(TIMEOUT).expect("an end").code(), Some(0));
    let mut again = forward(&world, "again");
    assert!(paths(&again).contains("wan1=trusted,backup up"), "{}", paths(&again));
    // Another tariff.
    write(&world, "laptop.toml", &client("9 GB"));
    let (code, printed, said) = plait(&world, false, &["reload", "--pid", &again.pid().to_string()]);
    assert_eq!((code, printed.trim()), (Some(0), "changed: cap"), "{said}");
    until("a volume that is not used up", || paths(&again).contains("wan1=trusted up"));
    assert_eq!(again.stop(TIMEOUT).expect("an end").code(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn programs_are_run_when_paths_go_up_and_down_and_not_as_root_unless_that_is_asked_for() {
    let mut world = world("hooks");
    world.serve(&["--anyone"]);
    let noted = world.file("noted");
    fs::write(&noted, "").expect("made");
    for (file, mode) in [(&world.directory, 0o755), (&noted, 0o666)] {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("ours");
    }
    let script = format!(
        "echo $PLAIT_HOOK_EVENT $PLAIT_HOOK_DEVICE $PLAIT_HOOK_STATE $(id -un) >> {}",
        noted.display()
    );
    let client = |more: &str| {
        let hook = format!("[\"/bin/sh\", \"-c\", \"{script}\"]");
        format!(
            "keys = \"client\"\nserver = \"{}\"\nsandbox-writable = \"noted\"\npath = [\"wan1\", \"wan2\"]\n[forward]\nlocal = [\"{ONE}:{SERVER}:{ONE}\"]\n\
             [hooks]\non_up = {hook}\non_down = {hook}\non_path_change = {hook}\n{more}\n",
            world.url
        )
    };
    write(&world, "laptop.toml", &client(""));
    let mut refused = forward(&world, "refused");
    until("a warning", || refused.errors().contains("no hook is run: plait runs as root"));
    refused.stop(TIMEOUT).expect("an end");
    assert_eq!(fs::read_to_string(&noted).expect("text"), "");

    write(&world, "laptop.toml", &client("user = \"daemon\""));
    let mut hooked = forward(&world, "hooked");
    let has = |line: &str| fs::read_to_string(&noted).expect("text").lines().any(|noted| noted == line);
    until("the first path", || has("up up daemon") && has("path-change wan2 up daemon"));
    world.client.ip("link set wan1 down").expect("set");
    until("one path less", || has("path-change wan1 down daemon"));
    assert!(!has("down down daemon"));
    world.client.ip("link set wan2 down").expect("set");
    until("no path", || has("down down daemon"));
    assert_eq!(hooked.stop(TIMEOUT).expect("an end").code(), Some(0));
}
