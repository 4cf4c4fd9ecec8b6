//! The paths are what was asked for, measured with the kernel's sockets. They need root.

#![allow(clippy::disallowed_methods)]

mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use plait_lab::{Conditions, Direction, Lab};
use support::{End, Transport, lab, pair, pattern, transfer, until, upload};

#[test]
#[ignore = "needs root"]
fn both_families_reach_the_server_on_every_path_and_at_its_common_address() {
    let lab = lab(&[Conditions::default(), Conditions::default()]);
    let data = pattern(200_000);
    let mut addresses = vec![lab.service()];
    addresses.extend(lab.paths().iter().map(plait_lab::Path::server));
    for address in addresses.into_iter().flat_map(|both| [both.v4, both.v6]) {
        let (client, server) = pair(&lab, address, Transport::Tcp);
        let received = transfer(client, server, &data);
        assert_eq!((received.bytes == data, received.end), (true, End::EndOfFile), "{address}");
    }
    for path in lab.paths() {
        let seen = path.summary().expect("it runs").to_server.payload;
        assert!(seen >= 400_000, "{} bytes on {}", seen, path.name());
    }
}

#[test]
#[ignore = "needs root"]
fn a_round_trip_takes_both_delays_and_little_more() {
    let conditions = Conditions { delay: Duration::from_millis(20), ..Conditions::default() };
    let lab = lab(&[conditions]);
    let (client, server) = udp(&lab);
    // A busy machine delays, but never hurries: it has a moment for one of them.
    until("a round trip of little more than its delays", || {
        let start = Instant::now();
        client.send(b"ping").expect("sent");
        let (_, from) = server.recv_from(&mut [0; 16]).expect("arrived");
        server.send_to(b"pong", from).expect("sent");
        client.recv(&mut [0; 16]).expect("arrived");
        let time = start.elapsed();
        assert!(time >= Duration::from_millis(40), "{time:?}");
        time < Duration::from_millis(43)
    });
}

#[test]
#[ignore = "needs root"]
fn the_rate_is_the_one_asked_for() {
    let lab = lab(&[Conditions::megabits(40, 5)]);
    let data = pattern(4_000_000);
    // 0.8 s for the payload alone; losses at the queue and slow start cost some, and what else the machine does.
    until("an upload at about the rate", || {
        let received = upload(&lab, Transport::Tcp, &data);
        assert!(received.bytes == data);
        let time = received.took.as_secs_f64();
        assert!(time >= 0.8, "{time} s");
        time < 2.5
    });
}

#[test]
#[ignore = "needs root"]
fn a_path_without_a_rate_is_as_fast_as_the_machine() {
    let lab = lab(&[Conditions::default()]);
    let path = lab.path("a").expect("it is there");
    let (client, mut server) = pair(&lab, path.server().v4, Transport::Tcp);
    let chunk = vec![7; 1 << 18];
    const CHUNKS: usize = 400;
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = client;
            (0..CHUNKS).for_each(|_| client.write_all(&chunk).expect("taken"));
        });
        let received = std::io::copy(&mut server, &mut std::io::sink()).expect("received");
        assert_eq!(received, (CHUNKS * chunk.len()) as u64);
    });
    let bits = (CHUNKS * chunk.len() * 8) as f64;
    let rate = bits / start.elapsed().as_secs_f64() / 1e9;
    println!("one TCP connection over a path of the lab: {rate:.2} Gbit/s");
    // A program that is not optimized, on a machine that is busy with much else, gets a fiftieth of what is usual.
    let least = if cfg!(debug_assertions) { 0.04 } else { 0.2 };
    assert!(rate >= least, "{rate} Gbit/s");
}

#[test]
#[ignore = "needs root"]
fn loss_and_duplication_strike_as_often_as_asked_and_the_same_packets_each_time() {
    let conditions = Conditions { loss: 0.2, duplication: 0.1, ..Conditions::default() };
    let run = || {
        let lab = lab(std::slice::from_ref(&conditions));
        let (client, server) = udp(&lab);
        send_numbers(&lab, &client, &server, 2000)
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second, "same seed, same decisions");
    let mut once = first.clone();
    once.dedup();
    assert!((1500..1700).contains(&once.len()), "{} of 2000 arrived", once.len());
    let twice = first.len() - once.len();
    assert!((110..210).contains(&twice), "{twice} arrived twice");
}

#[test]
#[ignore = "needs root"]
fn reordered_packets_are_overtaken() {
    // Held back for longer than it takes to send the others, on a busy machine too.
    let reordering_delay = Duration::from_millis(200);
    let conditions = Conditions { reordering: 0.1, reordering_delay, ..Conditions::default() };
    let lab = lab(&[conditions]);
    let (client, server) = udp(&lab);
    let arrived = send_numbers(&lab, &client, &server, 500);
    assert_eq!(arrived.len(), 500);
    let mut highest = 0;
    let mut is_late = |number: &&u32| {
        highest = highest.max(**number);
        **number < highest
    };
    let late = arrived.iter().filter(|number| is_late(number)).count();
    assert!((15..90).contains(&late), "{late} of 500 are late");
}

#[test]
#[ignore = "needs root"]
fn tcp_gets_through_a_bad_path_byte_by_byte() {
    let bad = Conditions {
        loss: 0.01,
        reordering: 0.02,
        duplication: 0.02,
        corruption: 0.005,
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(1),
        ..Conditions::default()
    };
    let lab = lab(&[bad]);
    let data = pattern(3_000_000);
    let received = upload(&lab, Transport::Tcp, &data);
    assert_eq!((received.bytes == data, received.end), (true, End::EndOfFile));
}

#[test]
#[ignore = "needs root"]
fn a_cut_path_is_silent_until_it_is_restored_and_conditions_change_while_it_runs() {
    let lab = lab(&[Conditions::default()]);
    let path = lab.path("a").expect("it is there");
    let (client, server) = udp(&lab);
    let counters = || path.summary().expect("it runs").carried_to_server;
    let send = || client.send(b"?").expect("sent");
    let arrives = || server.recv(&mut [0; 16]).is_ok();
    let never_arrives = || {
        server.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
        let has_arrived = arrives();
        server.set_read_timeout(Some(support::TIMEOUT)).expect("a time");
        !has_arrived
    };
    send();
    assert!(arrives());
    path.cut().expect("it runs");
    send();
    until("the end of a packet on a dead path", || counters().cut == 1);
    assert!(never_arrives() && path.summary().expect("it runs").is_dead);
    path.restore().expect("it runs");
    send();
    assert!(arrives());
    let hole = Conditions { loss: 1.0, ..Conditions::default() };
    path.set(Direction::ToServer, &hole).expect("it runs");
    send();
    until("its loss", || counters().dropped == 1);
    assert!(never_arrives());
    path.set(Direction::ToServer, &Conditions::default()).expect("it runs");
    send();
    assert!(arrives());
    let counters = counters();
    assert_eq!((counters.cut, counters.dropped), (1, 1));
    let series = path.series().expect("it runs");
    assert_eq!(series.to_server.iter().sum::<u64>(), counters.delivered_bytes);
}

/// Sends the numbers below `count`, fifty at a time, and returns them as they arrive. Waits each time until the path has done
/// with all of them.
fn send_numbers(lab: &Lab, client: &UdpSocket, server: &UdpSocket, count: u32) -> Vec<u32> {
    server.set_read_timeout(Some(Duration::from_millis(10))).expect("a time");
    let path = lab.path("a").expect("it is there");
    let (mut arrived, mut bytes) = (Vec::new(), [0; 4]);
    for number in 0..count {
        client.send(&number.to_be_bytes()).expect("sent");
        if (number + 1) % 50 != 0 {
            continue;
        }
        until("the end of a batch", || {
            while server.recv(&mut bytes).is_ok() {
                arrived.push(u32::from_be_bytes(bytes));
            }
            let carried = path.summary().expect("it runs").carried_to_server;
            let different = arrived.iter().collect::<BTreeSet<_>>().len() as u64;
            different + carried.dropped == u64::from(number + 1) && carried.delivered == arrived.len() as u64
        });
    }
    arrived
}

/// A socket in the client, connected to one in the server.
fn udp(lab: &Lab) -> (UdpSocket, UdpSocket) {
    let bind = |host: &plait_lab::Host, address: IpAddr| {
        let at = SocketAddr::new(address, 0);
        host.namespace().enter(|| UdpSocket::bind(at)).expect("entered").expect("bound")
    };
    let path = lab.path("a").expect("it is there");
    let (client, server) = (bind(lab.client(), path.client().v4), bind(lab.server(), path.server().v4));
    client.connect(server.local_addr().expect("bound")).expect("connected");
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(support::TIMEOUT)).expect("a time");
    }
    (client, server)
}
