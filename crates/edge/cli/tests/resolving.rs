//! Names that programs inside `plait run` look up. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs;
use std::process::{Command, Output, Stdio};

use support::{NAME, PLAIT, SERVER, TIMEOUT, World, assert_ended};

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

#[test]
#[ignore = "needs root"]
fn a_rule_by_name_allows_a_program_the_addresses_of_that_name() {
    let mut world = World::without_server("by_name");
    world.resolver();
    world.http();
    fs::write(world.file("page"), "the page").expect("written");
    let rules = |world: &mut World, rules: &[&str]| {
        let mut command = Command::new(PLAIT);
        command
            .args(["serve", "--proxy", "--anyone", "--path", "wan1", "--path", "wan2", "--keys", "server"]);
        command.args(["--resolver", SERVER]).args(rules).current_dir(&world.directory);
        let mut serve = world.start(&world.server, "serve", command);
        world.url = serve.wait_for_output("plait://", TIMEOUT).expect("the address of plait serve");
        serve
    };
    let fetch = |world: &World, host: &str| {
        world.run(&[], &["curl", "-sS", "--max-time", "60", &format!("http://{host}:8080/page")])
    };
    let mut serve = rules(&mut world, &["--allow", "*.example:8080"]);
    let by_name = fetch(&world, NAME);
    assert_ended(&by_name, 0, &["by name"]);
    assert_eq!(by_name.stdout, b"the page");
    // The address alone has no rule; nor has another name for it, or another port.
    let pinned = format!("{NAME}:8080:{SERVER}");
    let unasked = world.run(&[], &["curl", "-sS", "--resolve", &pinned, &format!("http://{NAME}:8080/page")]);
    for refused in [fetch(&world, SERVER), unasked] {
        assert!(!refused.status.success() && said(&refused).contains("do not allow"), "{}", said(&refused));
    }
    serve.stop(TIMEOUT).expect("an end");
    for other in ["*.invalid:8080", "*.example:80", "10.0.0.0/8:*"] {
        let mut serve = rules(&mut world, &["--allow", other]);
        let refused = fetch(&world, NAME);
        assert!(!refused.status.success() && said(&refused).contains("do not allow"), "{}", said(&refused));
        serve.stop(TIMEOUT).expect("an end");
    }
}
