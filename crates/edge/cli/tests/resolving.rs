//! Names that programs inside `plait run` look up. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs;
use std::process::{Command, Output, Stdio};

use support::{NAME, PLAIT, SERVER, World};

/// A nameserver that does not answer, on a path of the server.
const DEAD: &str = "10.77.1.200";

/// Prints the address of a name. (`getent` finds none where all addresses of the machine are loopback.)
const LOOK_UP: &str = "import socket, sys; print(socket.getaddrinfo(sys.argv[1], 80)[0][4][0])";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
#[ignore = "needs root"]
fn a_dead_nameserver_of_the_server_is_passed_over_and_a_mended_file_needs_no_restart() {
    let mut world = World::without_server("nameservers");
    world.resolver();
    let nameservers = |these: &[&str]| {
        let lines: String = these.iter().map(|at| format!("nameserver {at}\n")).collect();
        fs::write(world.directory.join("resolv.conf"), lines).expect("written");
    };
    nameservers(&[DEAD, SERVER]);
    let file = world.file("resolv.conf");
    world.serve_with_nameservers();
    let look_up = || world.run(&[], &["python3", "-c", LOOK_UP, NAME]);
    let found = look_up();
    assert!(said(&found).contains(SERVER), "{}", said(&found));
    let found = look_up();
    assert!(said(&found).contains(SERVER), "{}", said(&found));
    fs::write(&file, format!("nameserver {DEAD}\n")).expect("written");
    let lost = look_up();
    assert!(!said(&lost).contains(SERVER), "{}", said(&lost));
    fs::write(&file, format!("nameserver {SERVER}\n")).expect("written");
    let found = look_up();
    assert!(said(&found).contains(SERVER), "{}", said(&found));
}

#[test]
#[ignore = "needs root"]
fn a_program_can_look_names_up_over_tcp() {
    let world = World::new("dnstcp");
    world.resolver();
    let found = world.run(&[], &["env", "RES_OPTIONS=use-vc", "python3", "-c", LOOK_UP, NAME]);
    assert!(said(&found).contains(SERVER), "{}", said(&found));
}

#[test]
#[ignore = "needs root"]
fn a_program_finds_names_by_the_search_list_of_its_machine() {
    let world = World::new("search");
    world.resolver();
    let (host, domain) = NAME.split_once('.').expect("two labels");
    let text = format!("nameserver {DEAD}\nsearch none.example {domain}\noptions ndots:2 trust-ad\n");
    fs::write(world.file("resolv.conf"), text).expect("written");
    let script = "mount --bind resolv.conf /etc/resolv.conf && exec setsid --wait \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", PLAIT, "run", "-s", &world.url]);
    command.args(["--path", "wan1", "--path", "wan2", "--keys", "client", "--"]);
    command.args(["sh", "-c", &format!("cat /etc/resolv.conf; exec python3 -c '{LOOK_UP}' {host}")]);
    command.env_remove("SUDO_UID").current_dir(&world.directory).stdin(Stdio::null());
    let output = world.client.enter(|| command.output()).expect("entered").expect("started");
    let said = said(&output);
    assert!(said.contains("nameserver 127.0.0.1\nsearch none.example example\noptions ndots:2\n"), "{said}");
    assert!(said.contains(SERVER), "{said}");
}
