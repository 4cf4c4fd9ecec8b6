//! Programs in `plait run` that use something outside of it: another instance, or a name service daemon. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use support::{NAME, PLAIT, SERVER, World, assert_ended};

const HANDED_OVER: &str =
    "perhaps it has handed over to an instance that runs outside of plait\n  fix: close that instance";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "needs root"]
fn a_program_that_ends_at_once_and_opens_nothing_may_have_handed_over() {
    let mut world = World::new("handed_over");
    world.resolver();
    world.http();
    let address = format!("http://{SERVER}:8080/");
    let look_up = format!("import socket; socket.getaddrinfo('{NAME}', 80)");
    let datagram = format!("echo > /dev/udp/{SERVER}/9; sleep 1");
    let cases: [(&[&str], i32, bool); 7] = [
        (&["true"], 0, true),
        (&["false"], 1, false),
        (&["sleep", "4"], 0, false),
        (&["curl", "-s", &address], 0, false),
        (&["sh", "-c", "curl -s http://198.51.100.1:9/; true"], 0, false),
        (&["python3", "-c", &look_up], 0, false),
        (&["bash", "-c", &datagram], 0, false),
    ];
    for (program, code, warns) in cases {
        let output = world.run(&[], program);
        assert_ended(&output, code, program);
        assert_eq!(said(&output).contains(HANDED_OVER), warns, "{program:?}: {}", said(&output));
    }
}

#[test]
#[ignore = "needs root"]
fn a_resolver_that_cannot_be_hidden_is_an_error() {
    let world = World::new("hidden");
    let run = |prepared: &str| {
        let script = format!("mount -t tmpfs none /run && {prepared} && exec setsid --wait \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh", PLAIT, "run", "-s", &world.url]);
        command.args(["--path", "wan1", "--path", "wan2", "--keys", "client", "--"]);
        command.args(["sh", "-c", "ls /run/nscd/"]);
        command.env_remove("SUDO_UID").current_dir(&world.directory).stdin(Stdio::null());
        world.client.enter(|| command.output()).expect("entered").expect("started")
    };
    let output = run("mkdir /run/nscd && touch /run/nscd/socket");
    assert_ended(&output, 0, &["hidden"]);
    assert!(output.stdout.is_empty(), "{output:?}");
    // It is there, and nothing can be mounted over it.
    let output = run("touch /run/nscd");
    assert_ended(&output, 125, &["not hidden"]);
    assert!(said(&output).contains("cannot hide /run/nscd from the program"), "{}", said(&output));
}

#[test]
#[ignore = "needs root"]
fn the_private_network_of_a_program_takes_the_start_of_two_others() {
    let mut world = World::without_server("started");
    world.serve(&["--anyone", "--carrier", "udp"]);
    // Programs of these names that note each start, and are then the true ones.
    let shims = world.directory.join("shims");
    let starts = world.directory.join("starts");
    fs::create_dir(&shims).expect("made");
    for name in ["ip", "nft"] {
        let path = shims.join(name);
        let rest = "PATH=${PATH#*:}";
        let text = format!("#!/bin/sh\necho {name} >> {}\n{rest} exec {name} \"$@\"\n", starts.display());
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("executable");
    }
    let search = format!("{}:{}", shims.display(), std::env::var("PATH").expect("set"));
    let mut command = Command::new(PLAIT);
    // Over UDP the host itself starts none.
    command.args(["run", "-s", &world.url, "--carrier", "udp", "--path", "wan1", "--keys", "client", "--"]);
    command.args(["true"]).env("PATH", search).env_remove("SUDO_UID");
    command.current_dir(&world.directory).stdin(Stdio::null());
    let output = world.client.enter(|| command.output()).expect("entered").expect("started");
    assert_ended(&output, 0, &["true"]);
    assert_eq!(fs::read_to_string(starts).expect("they were started"), "ip\nnft\n");
}
