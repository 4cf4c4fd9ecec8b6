//! A host on the real kernel, in network namespaces of its own, with the kernel's TCP as its peer.
//! They need root, which network namespaces are made with: `cargo test -p plait --test network -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "the kernel has a clock and threads")]

mod net;

use std::io::Read;
use std::net::{SocketAddr, TcpListener};

use net::{Net, block_on, cidr, echo, round_trip, wait_for};
use plait::{
    Carriers, Clients, ErrorKind, Host, HostBuilder, Identity, Path, Protection, Service, Trust, TrustLevel,
};
use plait_netns::{Namespace, veth};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// As much as fills every buffer on the way.
const LOAD: usize = 8 << 20;

#[test]
#[ignore = "needs root"]
fn bytes_go_both_ways_over_ipv4_and_ipv6_and_nothing_is_left_behind() {
    let net = Net::new();
    let before = net.traces();
    let host = net.host(&["a1", "a2"]);
    assert_ne!(net.traces(), before, "the check sees something");
    for address in ["10.91.1.2", "fd91:1::2"] {
        let server = net.echo_server(address);
        let echoed = block_on(async {
            let stream = host.connect(server, Protection::plain()).await.expect("the kernel answers");
            let (mut read, mut write) = stream.into_split();
            let sending = tokio::spawn(async move {
                write.write_all(&pattern()).await?;
                write.shutdown().await
            });
            let mut echoed = Vec::new();
            read.read_to_end(&mut echoed).await.expect("until the end");
            sending.await.expect("no panic").expect("sent");
            read.closed().await.expect("in order");
            echoed
        });
        assert!(echoed == pattern(), "{address}: {} bytes", echoed.len());
    }
    block_on(host.drained());
    drop(host);
    assert_eq!(net.traces(), before);
}

#[test]
#[ignore = "needs root"]
fn how_a_path_is_used_can_be_changed_while_the_host_runs() {
    let net = Net::new();
    let host = net.host(&["a1", "a2"]);
    let control = host.path_control();
    let set = |text: &str| block_on(control.set(text.parse().expect("a path")));
    set("a2=untrusted,backup").expect("it has that path");
    let paths = host.paths();
    let used = paths.iter().map(|path| (path.device(), path.trust_level(), path.is_backup()));
    let expected = [("a1", TrustLevel::Trusted, false), ("a2", TrustLevel::Untrusted, true)];
    assert_eq!(used.collect::<Vec<_>>(), expected);
    let error = set("a3=backup").expect_err("it has none of that name");
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("no path a3"), "{error}");
    drop(host);
    assert_eq!(set("a2").expect_err("the host has ended").kind(), ErrorKind::Closed);
}

#[test]
#[ignore = "needs root"]
fn a_host_that_ends_leaves_alone_what_another_has_under_the_name_of_its_device() {
    let net = Net::new();
    let first = net.host(&["a1"]);
    // By another program, or by its own end: the number is free again while the first is still there.
    net.a.run("ip", "link delete dev plait0").expect("it has that name");
    let second = net.host(&["a1"]);
    let traces = net.traces();
    drop(first);
    assert_eq!(net.traces(), traces, "the second has lost something");
    let server = net.echo_server("10.91.1.2");
    let mut stream = block_on(second.connect(server, Protection::plain())).expect("the kernel answers");
    let mut answer = [0; 4];
    block_on(async {
        stream.write_all(b"ping").await.expect("taken");
        stream.read_exact(&mut answer).await.expect("an echo");
    });
    assert_eq!(&answer, b"ping");
}

#[test]
#[ignore = "needs root"]
fn a_listener_has_the_port_until_it_is_dropped() {
    let net = Net::new();
    let host = net.host(&["a1", "a2"]);
    let listener = block_on(host.listen(7001, Service::plain())).expect("a free port");
    let error = block_on(host.listen(7001, Service::plain())).expect_err("it listens already");
    assert!(error.kind() == ErrorKind::PortInUse && error.to_string().contains("7001"), "{error}");
    let taken = net.a.enter(|| TcpListener::bind("0.0.0.0:7002").expect("free")).expect("entered");
    let error = block_on(host.listen(7002, Service::plain())).expect_err("the kernel listens");
    assert!(error.kind() == ErrorKind::PortInUse && error.to_string().contains("7002"), "{error}");
    drop(taken);

    for address in ["10.91.1.1", "10.91.2.1", "fd91:2::1"] {
        let server = SocketAddr::new(address.parse().expect("an address"), 7001);
        let client = std::thread::spawn({
            let b = net.b.clone();
            move || b.enter(|| round_trip(server)).expect("entered")
        });
        block_on(async {
            let mut stream = listener.accept().await.expect("the kernel connects");
            assert_eq!(stream.peer_addr().is_ipv6(), server.is_ipv6());
            let mut question = [0; 4];
            stream.read_exact(&mut question).await.expect("four bytes");
            stream.write_all(&question).await.expect("taken");
            stream.shutdown().await.expect("open until now");
            stream.closed().await.expect("in order");
        });
        assert_eq!(client.join().expect("no panic"), Some(*b"ping"), "{address}");
    }

    drop(listener);
    let server = SocketAddr::new("10.91.1.1".parse().expect("an address"), 7001);
    let kernels = wait_for(|| net.a.enter(|| TcpListener::bind(server)).expect("entered").ok());
    let kernels = kernels.expect("no program holds the port");
    std::thread::spawn(move || kernels.incoming().flatten().for_each(echo));
    let kernels = wait_for(|| net.b.enter(|| round_trip(server)).expect("entered"));
    assert!(kernels.is_some(), "the kernel has it back");
}

#[test]
#[ignore = "needs root"]
fn programs_of_this_host_reach_a_listener_by_any_of_its_addresses() {
    let net = Net::new();
    let host = net.host(&["a1", "a2"]);
    let listener = block_on(host.listen(7003, Service::plain())).expect("a free port");
    for address in ["10.91.1.1", "10.91.2.1", "fd91:1::1", "fd91:2::1"] {
        let server = SocketAddr::new(address.parse().expect("an address"), 7003);
        let a = net.a.clone();
        let client = std::thread::spawn(move || a.enter(|| round_trip(server)).expect("entered"));
        block_on(async {
            let mut stream = listener.accept().await.expect("the kernel connects");
            let mut question = [0; 4];
            stream.read_exact(&mut question).await.expect("four bytes");
            stream.write_all(&question).await.expect("taken");
            stream.shutdown().await.expect("open until now");
        });
        assert_eq!(client.join().expect("no panic"), Some(*b"ping"), "{address}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_device_that_appears_is_used_and_one_that_goes_is_left() {
    let net = Net::new();
    let host = net.host(&["a1", "late"]);
    let is_up = |index: usize| host.paths()[index].is_up();
    assert_eq!((is_up(0), is_up(1)), (true, false));
    let (late, _peer) = veth((&net.a, "late"), (&net.b, "peer")).expect("a pair");
    assert!(!is_up(1), "an address is needed");
    late.add_address(cidr("10.91.3.1", 24)).expect("added");
    assert!(wait_for(|| is_up(1).then_some(())).is_some(), "it has come");
    late.down().expect("it exists");
    assert!(wait_for(|| (!is_up(1)).then_some(())).is_some(), "it is down");
    late.up().expect("it exists");
    assert!(wait_for(|| is_up(1).then_some(())).is_some(), "it is back");
    late.remove().expect("it exists");
    assert!(wait_for(|| (!is_up(1)).then_some(())).is_some(), "it is gone");
    assert!(is_up(0), "and the other never was");
}

#[test]
#[ignore = "needs root"]
fn what_a_killed_host_left_is_removed_by_the_next() {
    let net = Net::new();
    let before = net.traces();
    let table = 0x706c_0000_u32 + 5 * 256;
    for family in ["-4", "-6"] {
        net.a.ip(&format!("{family} route add unreachable default table {table}")).expect("a route");
    }
    net.a.ip(&format!("rule add from 198.18.5.10 lookup {table} preference 7440")).expect("a rule");
    net.a
        .ip(&format!("-6 rule add from fd70:6c61:6974:5::a lookup {table} preference 7440"))
        .expect("a rule");
    net.a.run("nft", "add table inet plait-5").expect("a table");
    net.a.run("nft", "add table inet plaiting").expect("a table of another program");
    drop(net.host(&["a1"]));
    net.a.run("nft", "delete table inet plaiting").expect("it was left alone");
    assert_eq!(net.traces(), before);
}

#[test]
#[ignore = "needs root"]
fn two_hosts_share_the_devices_and_the_last_one_cleans_up() {
    let net = Net::new();
    let before = net.traces();
    let first = net.host(&["a1"]);
    let second = net.host(&["a1", "a2"]);
    drop(first);
    let server = net.echo_server("10.91.1.2");
    block_on(async {
        let mut stream =
            second.connect(server, Protection::plain()).await.expect("the devices still forward");
        stream.write_all(b"ping").await.expect("taken");
        stream.shutdown().await.expect("open until now");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("an answer");
        assert_eq!(answer, b"ping");
    });
    drop(second);
    assert_eq!(net.traces(), before);
}

#[test]
#[ignore = "needs root"]
fn a_host_that_ends_resets_what_is_open() {
    let net = Net::new();
    let host = net.host(&["a1"]);
    let listener = net.b.enter(|| TcpListener::bind("10.91.1.2:0").expect("free")).expect("entered");
    let server = listener.local_addr().expect("bound");
    let stream = block_on(host.connect(server, Protection::plain())).expect("the kernel answers");
    let (mut accepted, _) = listener.accept().expect("it has come");
    drop(host);
    let error = accepted.read(&mut [0; 1]).expect_err("not an end in order");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let error = block_on(stream.closed()).expect_err("told on this side too");
    assert!(matches!(error.kind(), std::io::ErrorKind::ConnectionAborted | std::io::ErrorKind::NotConnected));
}

#[test]
#[ignore = "needs root"]
fn blocks_are_sealed_and_opened_on_threads_of_their_own() {
    let net = Net::new();
    let start = |namespace: &Namespace, devices: [&str; 2]| {
        let builder = Host::builder().carriers(Carriers::Tcp).crypto_threads(2);
        let paths = devices.iter().map(|device| Path::new(device).expect("a name"));
        let builder = paths.fold(builder, HostBuilder::path);
        namespace.enter(|| builder.start().expect("a host")).expect("entered")
    };
    let (near, far) = (start(&net.a, ["a1", "a2"]), start(&net.b, ["b1", "b2"]));
    let identity = Identity::generate().expect("a key");
    let service = Service::sealed(&identity, Clients::anyone());
    block_on(async {
        let incoming = far.listen(7003, service).await.expect("a free port");
        let echoing = tokio::spawn(async move {
            let stream = incoming.accept().await.expect("a client connects");
            let (mut read, mut write) = stream.into_split();
            while let Some(mut chunk) = read.read_chunk().await.expect("in order") {
                write.write_chunk(&mut chunk).await.expect("taken");
            }
            write.shutdown().await.expect("open until now");
            read.closed().await.expect("in order");
        });
        let trust = Trust::pinned(identity.fingerprint());
        let stream = near.connect("10.91.1.2:7003", trust).await.expect("it listens");
        let (mut read, mut write) = stream.into_split();
        let sending = tokio::spawn(async move {
            write.write_all(&pattern()).await?;
            write.shutdown().await
        });
        let mut echoed = Vec::new();
        read.read_to_end(&mut echoed).await.expect("until the end");
        sending.await.expect("no panic").expect("sent");
        read.closed().await.expect("in order");
        assert!(echoed == pattern(), "{} bytes", echoed.len());
        let sealed = read.status().expect("a connection").sealed().expect("it is sealed");
        assert!(sealed.blocks_elsewhere() > 100, "{sealed:?}");
        echoing.await.expect("no panic");
    });
}

fn pattern() -> Vec<u8> {
    (0..LOAD).map(|index| (index * 31 + index / 65_521) as u8).collect()
}
