//! Connections between a server and its destinations: dead addresses, silent services, resets. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use plait_lab::Program;
use plait_netns::{Cidr, Namespace, veth};
use support::{PLAIT, SERVER, TIMEOUT, World, until};

/// The port of the service.
const SERVICE: u16 = 7013;

/// A name with an address of each family on the server.
const NAMED: &str = "both.example";

/// A service that sends an `e` for each `e`, and has no other answer, also not to an end.
fn service(world: &World) {
    world.service(SERVICE, |mut stream| {
        let mut byte = [0];
        while let Ok(1) = stream.read(&mut byte) {
            if byte == *b"e" && stream.write_all(b"e").is_err() {
                return;
            }
        }
        if stream.take_error().is_ok_and(|error| error.is_none()) {
            thread::sleep(2 * TIMEOUT);
        }
    });
}

/// `plait forward` to this port of this host, and its local port.
fn forward(world: &World, (host, port): (&str, u16), options: &[&str]) -> (Program, u16) {
    let mut command = Command::new(PLAIT);
    let local = format!("0:{host}:{port}");
    command.args(["forward", "-v", "-s", &world.url, "--path", "wan1", "--path", "wan2", "--keys", "client"]);
    command.args(["-L", &local]).args(options).current_dir(&world.directory);
    let mut forward = world.start(&world.client, "forward", command);
    let line = forward.wait_for_line("forwarding 127.0.0.1:", TIMEOUT).expect("its port");
    let at = line.split_once("127.0.0.1:").expect("an address").1;
    let port = at.split_once(' ').expect("a destination").0.parse().expect("a port");
    (forward, port)
}

/// `plait serve` where [`NAMED`] is known.
fn serve_with_names(world: &mut World, service: &[&str]) -> Program {
    let hosts = world.file("hosts");
    fs::write(&hosts, format!("::1 {NAMED}\n127.0.0.1 {NAMED}\n")).expect("written");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(hosts);
    command.args([PLAIT, "serve", "--anyone", "--path", "wan1", "--path", "wan2", "--keys", "server"]);
    command.args(service).current_dir(&world.directory);
    let mut serve = world.start(&world.server, "serve", command);
    world.url = serve.wait_for_output("plait://", TIMEOUT).expect("the address of plait serve");
    serve
}

fn connect(world: &World, port: u16) -> TcpStream {
    let stream = world.client.enter(|| TcpStream::connect(("127.0.0.1", port))).expect("entered");
    let stream = stream.expect("plait listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream
}

/// Whether the service answers on this connection.
fn is_answered(mut stream: &TcpStream) -> bool {
    stream.write_all(b"e").is_ok() && stream.read_exact(&mut [0]).is_ok()
}

/// The number of descriptors of a process. Both ends have others for a moment now and then.
fn descriptors(pid: u32) -> usize {
    let count = |_| {
        thread::sleep(Duration::from_millis(20));
        fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count()
    };
    (0..10).map(count).min().expect("ten")
}

#[test]
#[ignore = "needs root"]
fn a_dead_first_address_of_a_destination_does_not_hold_up_the_second() {
    let mut world = World::without_server("dead_address");
    let listen = || TcpListener::bind(("127.0.0.1", SERVICE)).expect("a port");
    let listener = world.server.enter(listen).expect("entered");
    thread::spawn(move || listener.incoming().flatten().for_each(|mut stream| drop(stream.write_all(b"x"))));
    for rule in [
        "add table inet dead",
        "add chain inet dead in { type filter hook input priority 0 ; }",
        "add rule inet dead in ip6 daddr ::1 drop",
    ] {
        world.server.run("nft", rule).expect("nft is installed");
    }
    let address = format!("{NAMED}:{SERVICE}");
    let proxy = ["--proxy", "--allow", "[::1]:*", "--allow", "127.0.0.1:*"];
    for service in [&proxy[..], &["--forward", &address]] {
        let mut serve = serve_with_names(&mut world, service);
        let (_forward, port) = forward(&world, (NAMED, SERVICE), &[]);
        let took = |_| {
            let begun = Instant::now();
            connect(&world, port).read_exact(&mut [0]).expect("an answer");
            begun.elapsed()
        };
        let shortest = (0..3).map(took).min().expect("three");
        println!("{}: {shortest:?}", service[0]);
        // Without the race it takes 20 s. A unit test has the exact time.
        assert!((250..10_000).contains(&shortest.as_millis()), "{shortest:?}");
        assert_eq!(serve.stop(TIMEOUT).expect("an end").code(), Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn half_closed_connections_without_an_answer_are_reset_at_both_ends_and_open_ones_stay() {
    for (at_server, at_client) in [("3", "never"), ("0", "3")] {
        let mut world = World::without_server("half_closed");
        world.serve(&["--anyone", "-v", "--half-closed-timeout", at_server]);
        service(&world);
        let (forward, port) = forward(&world, (SERVER, SERVICE), &["--half-closed-timeout", at_client]);
        let open = connect(&world, port);
        assert!(is_answered(&open), "{}", forward.errors());
        let count = || (descriptors(world.serve_id()), descriptors(forward.pid()));
        let before = count();
        let mut left: Vec<_> = (0..5).map(|_| connect(&world, port)).collect();
        for stream in &mut left {
            assert!(is_answered(stream));
            stream.write_all(b"GET /").expect("open");
        }
        until("each connection has a descriptor", || {
            let (server, client) = count();
            server >= before.0 + 5 && client >= before.1 + 5
        });
        // One program waits, as nc does; the kernel ends the others, as of a killed program.
        let mut waiting = left.pop().expect("five");
        waiting.shutdown(Shutdown::Write).expect("open");
        drop(left);
        let begun = Instant::now();
        let error = waiting.read_exact(&mut [0]).expect_err("no answer");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        until("all descriptors are closed", || {
            let (server, client) = count();
            server <= before.0 && client <= before.1
        });
        let took = begun.elapsed();
        println!("reset after {took:?}");
        assert!((3..60).contains(&took.as_secs()), "{took:?}");
        let line = "one direction has ended, and the other one was silent for 3 s";
        let log = if at_server == "3" { world.serve_log() } else { forward.errors() };
        assert!(log.contains(line), "{log}");
        // The connection that is open both ways has been silent for longer.
        assert!(is_answered(&open), "{}", forward.errors());
    }
}

#[test]
#[ignore = "needs root"]
fn the_kernel_asks_silent_programs_and_services_for_a_sign_of_life() {
    let world = World::new("keepalive");
    service(&world);
    let (_forward, port) = forward(&world, (SERVER, SERVICE), &[]);
    let open = connect(&world, port);
    assert!(is_answered(&open));
    for (host, column, port) in [(&world.server, "dport", SERVICE), (&world.client, "sport", port)] {
        let asked = format!("-tnoH state established {column} = :{port}");
        let sockets = host.run("ss", &asked).expect("iproute2");
        assert!(sockets.contains("timer:(keepalive,1min"), "{asked}: {sockets}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_server_that_is_told_to_stop_waits_neither_for_leaked_connections_nor_longer_than_it_may() {
    let mut world = World::without_server("leaked");
    world.serve(&["--anyone", "--drain", "60"]);
    service(&world);
    let (first, port) = forward(&world, (SERVER, SERVICE), &["--half-closed-timeout", "never"]);
    let leaked = connect(&world, port);
    assert!(is_answered(&leaked), "{}", first.errors());
    leaked.shutdown(Shutdown::Write).expect("open");
    thread::sleep(Duration::from_secs(4));
    let begun = Instant::now();
    assert_eq!(world.stop_serving(), Some(0));
    println!("stopped after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(first);

    world.serve(&["--anyone", "--drain", "1"]);
    let (_second, port) = forward(&world, (SERVER, SERVICE), &[]);
    let open = connect(&world, port);
    assert!(is_answered(&open));
    let begun = Instant::now();
    assert_eq!(world.stop_serving(), Some(0));
    println!("stopped after {:?}", begun.elapsed());
    assert!((1..10).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[test]
#[ignore = "needs root"]
fn a_half_closed_connection_survives_a_service_that_is_unreachable_for_some_seconds() {
    let mut world = World::without_server("outage");
    let far = Namespace::named("outage_far").expect("root can make namespaces");
    let (near_link, far_link) = veth((&world.server, "lan"), (&far, "lan")).expect("a wire");
    near_link.add_address(Cidr::new([10, 99, 0, 1].into(), 24)).expect("added");
    far_link.add_address(Cidr::new([10, 99, 0, 2].into(), 24)).expect("added");
    let listener = far.enter(|| TcpListener::bind(("10.99.0.2", SERVICE))).expect("entered").expect("a port");
    let (received, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.shutdown(Shutdown::Write).expect("open");
        let mut got = String::new();
        let ended = stream.read_to_string(&mut got).map(|_| got);
        received.send(ended.map_err(|error| error.kind())).expect("the test waits");
    });
    world.serve(&["--anyone", "-v", "--allow", "10.99.0.2:*"]);
    let (forward, port) = forward(&world, ("10.99.0.2", SERVICE), &[]);
    let mut program = connect(&world, port);
    assert_eq!(program.read(&mut [0]).expect("open"), 0, "{}", forward.errors());

    far.ip("link set lan arp off").expect("root");
    world.server.ip("neighbour flush dev lan").expect("root");
    program.write_all(b"during, ").expect("open");
    // After 3 s without an answer to ARP, the kernel reports that there is no route to the host.
    thread::sleep(Duration::from_secs(8));
    far.ip("link set lan arp on").expect("root");
    program.write_all(b"after").expect("open");
    program.shutdown(Shutdown::Write).expect("open");
    let got = receiver.recv_timeout(TIMEOUT).expect("an end");
    assert_eq!(got.as_deref(), Ok("during, after"), "{}", world.serve_log());
}

#[test]
#[ignore = "needs root"]
fn an_ordinary_reset_by_the_destination_is_no_warning() {
    let world = World::new("reset");
    // The kernel resets a connection that is closed with unread bytes.
    world.service(SERVICE, |mut stream| drop(stream.read_exact(&mut [0])));
    let script = format!(
        "import socket\n\
         s = socket.create_connection(('{SERVER}', {SERVICE})); s.sendall(b'request')\n\
         try: s.recv(1); assert False\n\
         except ConnectionResetError: pass"
    );
    for (options, is_said) in [(&["-v"][..], false), (&["-vv"], true)] {
        let output = world.run(options, &["python3", "-c", &script]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("WARN"), "{said}");
        assert_eq!(said.contains("a connection was reset"), is_said, "{said}");
    }
}
