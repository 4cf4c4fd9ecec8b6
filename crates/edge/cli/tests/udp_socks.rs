//! SOCKS5 UDP ASSOCIATE of `plait proxy` (RFC 1928, section 7). Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use support::udp::{NEVER, PORT, SOON, ask, count, program, receive, shouting};
use support::{NAME, SERVER, SERVER_V6, World, until};

/// An association of a SOCKS client.
struct Association {
    tcp: TcpStream,
    /// Where the proxy receives datagrams.
    at: SocketAddr,
}

/// Asks a proxy for an association; the reply code if it is refused.
fn associate(world: &World, proxy: &str) -> Result<Association, u8> {
    let connect = || TcpStream::connect(proxy).expect("it listens");
    let mut tcp = world.client.enter(connect).expect("entered");
    tcp.set_read_timeout(Some(SOON)).expect("a socket");
    tcp.write_all(&[5, 1, 0]).expect("taken");
    let mut method = [0; 2];
    tcp.read_exact(&mut method).expect("a method");
    tcp.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).expect("taken");
    let mut reply = [0; 10];
    tcp.read_exact(&mut reply).expect("a reply");
    if reply[1] != 0 {
        return Err(reply[1]);
    }
    assert_eq!(reply[3], 1, "an IPv4 address");
    let ip = Ipv4Addr::from(<[u8; 4]>::try_from(&reply[4..8]).expect("four bytes"));
    let at = SocketAddr::new(ip.into(), u16::from_be_bytes([reply[8], reply[9]]));
    Ok(Association { tcp, at })
}

/// What stands in front of the datagrams for this destination.
fn front(to: &str, port: u16) -> Vec<u8> {
    let address = match (to.parse::<Ipv4Addr>(), to.parse::<Ipv6Addr>()) {
        (Ok(ip), _) => [&[1][..], &ip.octets()].concat(),
        (_, Ok(ip)) => [&[4][..], &ip.octets()].concat(),
        _ => [&[3, u8::try_from(to.len()).expect("short")][..], to.as_bytes()].concat(),
    };
    [&[0, 0, 0][..], &address, &port.to_be_bytes()].concat()
}

/// A world whose server carries UDP to its services.
fn world(label: &str, carrier: &str) -> World {
    let mut world = World::without_server(label);
    world.add_ipv6();
    let v6 = format!("udp:[{SERVER_V6}]:{PORT}");
    let name = format!("udp:{NAME}:{PORT}");
    let v4 = format!("udp:{SERVER}:{PORT}");
    world.serve(&["--anyone", "--carrier", carrier, "--allow", &v4, "--allow", &v6, "--allow", &name]);
    world
}

#[test]
#[ignore = "needs root"]
fn one_association_reaches_many_destinations_and_ends_with_its_connection() {
    for carrier in ["udp", "tcp"] {
        let world = world(&format!("socks_{carrier}"), carrier);
        let seen = [SERVER, SERVER_V6].map(|at| shouting(&world, (at, PORT)));
        let (_proxy, at) = world.proxy(&["--carrier", carrier]);
        let association = associate(&world, &at).expect("it is allowed");
        let socket = program(&world, "127.0.0.1", &association.at.to_string());
        for to in [SERVER, SERVER_V6] {
            let question = [&front(to, PORT)[..], b"hello"].concat();
            let answer = [&front(to, PORT)[..], b"HELLO"].concat();
            assert_eq!(ask(&socket, &question, SOON), Some(answer), "{to} over {carrier}");
        }
        assert_eq!(seen.each_ref().map(count), [1, 1]);
        drop(association.tcp);
        // The port is closed: the kernel says so.
        until("the port closes", || {
            let sent = socket.send(b"still there?").and_then(|_| {
                std::thread::sleep(Duration::from_millis(50));
                socket.send(b"still there?")
            });
            sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
    }
}

#[test]
#[ignore = "needs root"]
fn only_the_client_of_an_association_sends_by_it_and_fragments_are_refused() {
    let world = world("socks_inject", "udp");
    let seen = shouting(&world, (SERVER, PORT));
    let (_proxy, at) = world.proxy(&["--carrier", "udp"]);
    let association = associate(&world, &at).expect("it is allowed");
    let to = association.at.to_string();
    let question = [&front(SERVER, PORT)[..], b"hello"].concat();
    // Before the client has sent anything, a program at another address takes its place no more than after.
    let elsewhere = program(&world, "127.0.0.2", &to);
    assert_eq!(ask(&elsewhere, &question, NEVER), None);
    let socket = program(&world, "127.0.0.1", &to);
    assert!(ask(&socket, &question, SOON).is_some());
    let other_port = program(&world, "127.0.0.1", &to);
    for stranger in [&elsewhere, &other_port] {
        assert_eq!(ask(stranger, &question, NEVER), None);
    }
    let mut fragment = question.clone();
    fragment[2] = 1;
    assert_eq!(ask(&socket, &fragment, NEVER), None);
    assert_eq!(receive(&socket, Duration::from_millis(10)), None, "no answer to a stranger has come here");
    assert_eq!(count(&seen), 1);
    // Nor does the server take what comes from elsewhere for an answer.
    let source = seen.lock().expect("no panic")[0];
    let injector = world.server.enter(|| UdpSocket::bind((SERVER, 0)).expect("a port")).expect("entered");
    injector.send_to(b"forged", source).expect("sent");
    assert_eq!(receive(&socket, NEVER), None);
}

#[test]
#[ignore = "needs root"]
fn a_server_without_rules_for_udp_refuses_the_association() {
    let world = World::new("socks_refused");
    let (_proxy, at) = world.proxy(&[]);
    let refused = associate(&world, &at).map(|association| association.at).expect_err("no UDP");
    assert_eq!(refused, 2, "not allowed by the rules");
}

#[test]
#[ignore = "needs root"]
fn a_server_that_stops_does_not_wait_for_a_client_without_flows() {
    let mut world = world("socks_stop", "udp");
    let (_proxy, at) = world.proxy(&["--carrier", "udp"]);
    let _association = associate(&world, &at).expect("it is allowed");
    let begun = Instant::now();
    assert_eq!(world.stop_serving(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(9), "it took the time of --drain: {:?}", begun.elapsed());
}

#[test]
#[ignore = "needs root"]
fn a_name_is_looked_up_by_the_server() {
    let mut world = World::without_server("socks_name");
    let rule = format!("udp:127.0.0.1:{PORT}");
    world.serve(&["--anyone", "--carrier", "udp", "--allow", &rule]);
    let _seen = shouting(&world, ("127.0.0.1", PORT));
    let (_proxy, at) = world.proxy(&["--carrier", "udp"]);
    let association = associate(&world, &at).expect("it is allowed");
    let socket = program(&world, "127.0.0.1", &association.at.to_string());
    let question = [&front("localhost", PORT)[..], b"hello"].concat();
    let answer = [&front("localhost", PORT)[..], b"HELLO"].concat();
    assert_eq!(ask(&socket, &question, SOON), Some(answer));
}
