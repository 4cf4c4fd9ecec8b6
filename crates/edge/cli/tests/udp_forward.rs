//! `plait forward -L udp:` and the flows of `plait serve`. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use plait_lab::Program;
use support::udp::{
    NEVER, PORT, SOON, answers, ask, count, forward, local, program, receive, shouting, totals,
};
use support::{SERVER, SERVER_V6, World, until};

/// The server allows UDP to its service.
const ALLOWED: &str = "udp:198.51.100.1:5300";

/// A world whose server serves every client over this carrier.
fn world(label: &str, carrier: &str, options: &[&str]) -> World {
    let mut world = World::without_server(label);
    world.serve(&[&["--anyone", "--carrier", carrier], options].concat());
    world
}

/// What a plait has said, once it has said this.
fn says(plait: &Program, text: &str) -> String {
    until(text, || plait.errors().contains(text));
    plait.errors()
}

#[test]
#[ignore = "needs root"]
fn questions_and_answers_cross_both_carriers_and_both_families() {
    for carrier in ["udp", "tcp"] {
        let mut world = World::without_server(&format!("udp_{carrier}"));
        world.add_ipv6();
        let v6 = format!("udp:[{SERVER_V6}]:{PORT}");
        world.serve(&["--anyone", "--carrier", carrier, "--allow", ALLOWED, "--allow", &v6]);
        let seen = [SERVER, SERVER_V6].map(|at| shouting(&world, (at, PORT)));
        for (at, local) in [("127.0.0.1", local()), ("::1", format!("udp:[::1]:0:[{SERVER_V6}]:{PORT}"))] {
            let (mut plait, to) = forward(&world, "forward", &["-L", &local, "--carrier", carrier]);
            let socket = program(&world, at, &to);
            assert_eq!(
                ask(&socket, b"what is the address", SOON).as_deref(),
                Some(&b"WHAT IS THE ADDRESS"[..])
            );
            // Empty ones are datagrams, too, and long ones go in pieces.
            for len in [0, 1, 1200, 1472, 4000] {
                let is_answered = answers(&socket, &vec![b'x'; len], &vec![b'X'; len]);
                assert!(is_answered, "{len} bytes over {carrier}");
            }
            let totals = totals(&plait);
            let way = if carrier == "udp" { "sent" } else { "sent_in_stream" };
            assert!(totals[way].as_u64() >= Some(6), "{carrier}: {totals}");
            assert!(plait.stop(SOON).expect("it ends").success(), "{}", plait.last_words());
        }
        assert_eq!(seen.map(|seen| count(&seen)), [1, 1], "each program has had one source there");
    }
}

#[test]
#[ignore = "needs root"]
fn each_source_has_a_flow_of_its_own_over_one_connection() {
    let world = world("udp_sources", "udp", &["--allow", ALLOWED]);
    let seen = shouting(&world, (SERVER, PORT));
    let (plait, to) = forward(&world, "forward", &["-L", &local(), "--carrier", "udp"]);
    let sockets: Vec<UdpSocket> = (0..10).map(|_| program(&world, "127.0.0.1", &to)).collect();
    for (number, socket) in sockets.iter().enumerate() {
        let answer = ask(socket, format!("question {number}").as_bytes(), SOON);
        assert_eq!(answer, Some(format!("QUESTION {number}").into_bytes()));
    }
    assert_eq!(count(&seen), sockets.len());
    let totals = totals(&plait);
    assert_eq!(totals["flows_open"], sockets.len(), "{totals}");
}

#[test]
#[ignore = "needs root"]
fn what_no_rule_for_udp_names_is_refused_and_the_reason_is_logged() {
    // The rules of the world are for TCP, and so is this one, which names every host.
    let tcp_only = world("udp_refused", "udp", &["--allow", "*:5300"]);
    let seen = shouting(&tcp_only, (SERVER, PORT));
    let options = ["-L", &local(), "--carrier", "udp"];
    let (plait, to) = forward(&tcp_only, "forward", &options);
    let socket = program(&tcp_only, "127.0.0.1", &to);
    assert_eq!(ask(&socket, b"hello", NEVER), None);
    says(&plait, "the server's rules do not allow this destination");
    drop((plait, tcp_only));
    assert_eq!(count(&seen), 0);

    let other_port = world("udp_port", "udp", &["--allow", "udp:*:53"]);
    let seen = shouting(&other_port, (SERVER, PORT));
    assert!(other_port.serve_log().contains("clients may send UDP to *:53"), "{}", other_port.serve_log());
    let (plait, to) = forward(&other_port, "forward", &options);
    let socket = program(&other_port, "127.0.0.1", &to);
    assert_eq!(ask(&socket, b"hello", NEVER), None);
    let said = says(&plait, "the server has ended a flow of datagrams");
    assert!(said.contains("the server's rules do not allow this destination"), "{said}");
    assert_eq!(count(&seen), 0);
}

#[test]
#[ignore = "needs root"]
fn a_rule_for_everything_is_one_for_udp_and_the_server_says_so() {
    let world = world("udp_everything", "udp", &["--allow", "*:*"]);
    let seen = shouting(&world, (SERVER, PORT));
    assert!(world.serve_log().contains("clients may send UDP to every host"), "{}", world.serve_log());
    let (_plait, to) = forward(&world, "forward", &["-L", &local(), "--carrier", "udp"]);
    assert!(ask(&program(&world, "127.0.0.1", &to), b"hello", SOON).is_some());
    assert_eq!(count(&seen), 1);
}

#[test]
#[ignore = "needs root"]
fn a_destination_at_which_nothing_listens_ends_the_flow_and_the_next_datagram_asks_again() {
    let world = world("udp_closed", "udp", &["--allow", ALLOWED]);
    let (plait, to) = forward(&world, "forward", &["-L", &local(), "--carrier", "udp"]);
    let socket = program(&world, "127.0.0.1", &to);
    assert_eq!(ask(&socket, b"hello", NEVER), None);
    says(&plait, "nothing listens at the destination");
    // The service comes later.
    let _seen = shouting(&world, (SERVER, PORT));
    assert!(ask(&socket, b"hello", SOON).is_some());
}

#[test]
#[ignore = "needs root"]
fn a_client_has_as_many_flows_as_it_may_have_and_idle_ones_end() {
    let world = world("udp_limit", "udp", &["--allow", ALLOWED, "--max-flows", "3"]);
    // It never answers.
    let silent = world.server.enter(|| UdpSocket::bind((SERVER, PORT)).expect("a port")).expect("entered");
    let (plait, to) = forward(&world, "forward", &["-L", &local(), "--carrier", "udp"]);
    let sockets: Vec<UdpSocket> = (0..4).map(|_| program(&world, "127.0.0.1", &to)).collect();
    let begun = Instant::now();
    for socket in &sockets {
        socket.send(b"hello").expect("sent");
    }
    says(&plait, "the server is out of resources");
    until("three flows", || totals(&plait)["flows_open"] == 3);
    until("no flow", || totals(&plait)["flows_open"] == 0);
    let took = begun.elapsed();
    assert!((Duration::from_secs(28)..Duration::from_secs(60)).contains(&took), "they ended after {took:?}");
    drop(silent);
    let _seen = shouting(&world, (SERVER, PORT));
    assert!(ask(&sockets[3], b"hello", SOON).is_some(), "there is room again");
}

/// Sends a numbered datagram every 20 ms for three seconds, while the first path is cut after one second. Returns the numbers that came back,
/// and the longest time between two answers.
fn through_a_cut(world: &World, to: &str) -> (usize, usize, Duration) {
    const COUNT: u32 = 150;
    let socket = program(world, "127.0.0.1", to);
    assert!(ask(&socket, b"begin", SOON).is_some());
    // The second path joins, and both are measured.
    thread::sleep(Duration::from_secs(2));
    let sender = socket.try_clone().expect("a socket");
    let path = world.paths[0].clone();
    let sending = thread::spawn(move || {
        for number in 0..COUNT {
            if number == COUNT / 3 {
                path.down().expect("taken down");
            }
            let _ = sender.send(number.to_string().as_bytes());
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mut got = std::collections::BTreeSet::new();
    let (mut last, mut gap) = (Instant::now(), Duration::ZERO);
    while let Some(answer) = receive(&socket, Duration::from_secs(3)) {
        // All but those of the beginning are numbers.
        if let Some(number) = str::from_utf8(&answer).ok().and_then(|text| text.parse::<u32>().ok()) {
            gap = gap.max(last.elapsed());
            last = Instant::now();
            assert!(got.insert(number), "{number} came twice");
        }
    }
    sending.join().expect("no panic");
    (got.len(), COUNT as usize, gap)
}

#[test]
#[ignore = "needs root"]
fn with_duplicates_the_cut_of_a_path_loses_nothing() {
    let world = world("udp_duplicate", "udp", &["--allow", ALLOWED]);
    let _seen = shouting(&world, (SERVER, PORT));
    let options = ["-L", &local(), "--carrier", "udp", "--datagrams", "duplicate"];
    let (plait, to) = forward(&world, "forward", &options);
    let (got, sent, gap) = through_a_cut(&world, &to);
    println!("duplicate: {got} of {sent} answered, longest gap {gap:?}");
    println!("{}", totals(&plait));
    assert_eq!(got, sent);
}

#[test]
#[ignore = "needs root"]
fn over_the_fastest_path_the_cut_of_it_is_a_gap() {
    let world = world("udp_fastest", "udp", &["--allow", ALLOWED]);
    let _seen = shouting(&world, (SERVER, PORT));
    let (_plait, to) = forward(&world, "forward", &["-L", &local(), "--carrier", "udp"]);
    let (got, sent, gap) = through_a_cut(&world, &to);
    println!("fastest: {got} of {sent} answered, longest gap {gap:?}");
    assert!(got > sent / 2 && gap < Duration::from_secs(2), "{got} of {sent}, {gap:?}");
}

#[test]
#[ignore = "needs root"]
fn a_server_that_was_killed_is_asked_again_after_its_start() {
    let options = ["--anyone", "--carrier", "udp", "--allow", ALLOWED];
    let mut world = World::without_server("udp_restart");
    world.serve(&options);
    let _seen = shouting(&world, (SERVER, PORT));
    let (_plait, to) = forward(&world, "forward", &["-L", &local(), "--carrier", "udp"]);
    let socket = program(&world, "127.0.0.1", &to);
    assert!(ask(&socket, b"hello", SOON).is_some());
    world.kill_serving();
    world.serve(&options);
    let begun = Instant::now();
    assert!(ask(&socket, b"hello again", SOON).is_some());
    println!("answered {:?} after the start of the server", begun.elapsed());
}

#[test]
#[ignore = "needs root"]
fn without_sealing_there_is_no_udp_and_the_error_says_so() {
    let world = world("udp_plain", "udp", &["--allow", ALLOWED]);
    let mut command = std::process::Command::new(support::PLAIT);
    command.args(["forward", "-s", &world.url, "-L", &local(), "--protect", "plain"]);
    command.arg("--path").arg("wan1");
    let output = world.client.enter(|| command.output()).expect("entered").expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("only sealed connections carry UDP"), "{said}");
}
