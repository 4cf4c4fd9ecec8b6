//! `plait run --direct` with names: their queries and connections stay here. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;

use support::{NAME, PLAIT, SERVER, World, answer_queries, assert_ended};

/// The port of a service that says where it is.
const PORT: u16 = 7014;

/// A page of the host that the name leads to, fetched by a program in `plait run`, with these options.
fn fetch(world: &World, options: &[&str], host: &str) -> Output {
    let script = "mount --bind resolv.conf /etc/resolv.conf && exec \"$@\"";
    let mut command = Command::new("setsid");
    command.args([
        "--wait", "unshare", "--mount", "sh", "-c", script, "sh", PLAIT, "run", "-v", "-s", &world.url,
    ]);
    command.args(["--path", "wan1", "--path", "wan2", "--keys", "client"]).args(options);
    command.args(["--", "curl", "-sS", "--http0.9", &format!("http://{host}:{PORT}/")]);
    command.env_remove("SUDO_UID").current_dir(&world.directory).stdin(Stdio::null());
    world.client.enter(|| command.output()).expect("entered").expect("setsid is installed")
}

/// Answers a request. Unread bytes would make a reset of the end.
fn say(mut stream: TcpStream, text: &[u8]) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(text);
}

#[test]
#[ignore = "needs root"]
fn names_that_are_direct_are_looked_up_and_reached_from_here() {
    let world = World::new("direct_names");
    world.resolver();
    world.service(PORT, |stream| say(stream, b"far"));
    // The client has a host of its own with this address, and a nameserver that knows it.
    world.client.ip(&format!("address add {SERVER}/32 dev lo")).expect("added");
    let serve = |port: u16, talk: fn(TcpStream)| {
        let listener =
            world.client.enter(|| TcpListener::bind((SERVER, port))).expect("entered").expect("a port");
        thread::spawn(move || {
            listener.incoming().flatten().for_each(|stream| drop(thread::spawn(move || talk(stream))));
        });
    };
    serve(53, answer_queries);
    serve(PORT, |stream| say(stream, b"near"));
    fs::write(world.file("resolv.conf"), format!("nameserver {SERVER}\n")).expect("written");
    for (options, host, from) in [
        (&[][..], NAME, "far"),
        (&["--direct", NAME], NAME, "near"),
        (&["--direct", "*.example"], NAME, "near"),
        (&["--direct", "other.example"], NAME, "far"),
        // Its address alone is not that of the name.
        (&["--direct", NAME], SERVER, "far"),
        (&["--direct", "198.51.100.0/24"], SERVER, "near"),
    ] {
        let output = fetch(&world, options, host);
        assert_ended(&output, 0, options);
        assert_eq!(String::from_utf8_lossy(&output.stdout), from, "{options:?} {host}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains("a connection goes directly"), from == "near", "{options:?}: {said}");
        assert_eq!(said.contains("reached directly, without the server"), !options.is_empty(), "{said}");
    }
    // An answer that only the server has: this name is not direct.
    let output = world.run(&["--direct", "missing.example"], &["getent", "hosts", NAME]);
    assert_ended(&output, 0, &["getent"]);
    let output = world.run(&["--direct", "10.0.0.0/33"], &["true"]);
    assert_ended(&output, 125, &["true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the prefix is longer than the address"), "{said}");
}
