//! Hosts over UDP, on the loopback device of this machine: no root, no TUN device.

#![allow(clippy::disallowed_methods, reason = "the kernel has a clock and threads")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use plait::{
    Carrier, Carriers, Clients, ErrorKind, Host, Identity, LOOPBACK, Listener, PathChoice, Protection,
    SealedService, Sealing, Service, Subflow, Trust,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn host() -> Host {
    let path = LOOPBACK.parse().expect("a name");
    Host::builder().carriers(Carriers::Udp).path(path).start().expect("nothing but sockets")
}

/// A port that is free, and the listener that has it.
async fn listen(host: &Host, service: impl Fn() -> Service) -> Listener {
    let mut port = 20_000 + (std::process::id() % 10_000) as u16;
    loop {
        match host.listen(port, service()).await {
            Ok(listener) => return listener,
            Err(error) if error.kind() == ErrorKind::PortInUse => port += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len / 8)
        .flat_map(|number| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
        .collect()
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("within a minute")
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_go_both_ways_between_two_hosts_of_one_machine() {
    let (server, client) = (host(), host());
    let listener = listen(&server, Service::plain).await;
    let port = listener.port();
    let echo = tokio::spawn(async move {
        for _ in 0..2 {
            let stream = listener.accept().await.expect("the client connects");
            assert!(stream.peer_addr().ip().is_loopback());
            let (mut read, mut write) = stream.into_split();
            tokio::io::copy(&mut read, &mut write).await.expect("copied");
            write.shutdown().await.expect("open until now");
            read.closed().await.expect("in order");
        }
    });
    let sent = pattern(8 << 20);
    for address in ["127.0.0.1", "::1"] {
        let remote = SocketAddr::new(address.parse().expect("an address"), port);
        let stream = within(client.connect(remote, Protection::plain())).await.expect("it answers");
        assert_eq!(stream.paths().iter().map(Subflow::carrier).collect::<Vec<_>>(), [Carrier::Udp]);
        let (mut read, mut write) = stream.into_split();
        let copy = sent.clone();
        let sending = tokio::spawn(async move {
            write.write_all(&copy).await?;
            write.shutdown().await
        });
        let mut got = Vec::new();
        within(read.read_to_end(&mut got)).await.expect("until the end");
        sending.await.expect("no panic").expect("sent");
        assert!(got == sent, "{address}: {} bytes", got.len());
        within(read.closed()).await.expect("in order");
    }
    echo.await.expect("no panic");
    within(client.drained()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_without_a_listener_is_reported_by_icmp_and_not_by_silence() {
    let client = host();
    for address in ["127.0.0.1", "::1"] {
        // Free again when it is dropped.
        let port = UdpSocket::bind((address, 0)).expect("a port").local_addr().expect("bound").port();
        let remote = SocketAddr::new(address.parse().expect("an address"), port);
        let asked = std::time::Instant::now();
        let error = within(client.connect(remote, Protection::plain())).await.expect_err("no host is there");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{address}: {error}");
        // A SYN is sent again after a second: this one was not.
        assert!(asked.elapsed() < Duration::from_secs(1), "{address}: {:?}", asked.elapsed());
    }
}

/// A middlebox: called with each datagram and its number, returns those that go on.
type Meddler = fn(usize, Vec<u8>) -> Vec<Vec<u8>>;

/// A path to `server` through a middlebox that changes the datagrams of both directions.
fn relay(server: SocketAddr, meddler: Meddler) -> SocketAddr {
    let near = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let far = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = near.local_addr().expect("bound");
    far.connect(server).expect("it is there");
    let (back, forth) = (near.try_clone().expect("a descriptor"), far.try_clone().expect("a descriptor"));
    let client = Arc::new(std::sync::OnceLock::new());
    let known = client.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        for number in 0.. {
            let Ok((len, from)) = near.recv_from(&mut bytes) else { return };
            let client: SocketAddr = *client.get_or_init(|| from);
            // One socket stands for one flow.
            if from == client {
                for datagram in meddler(number, bytes[..len].to_vec()) {
                    let _ = forth.send(&datagram);
                }
            }
        }
    });
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        for number in 0.. {
            let Ok(len) = far.recv(&mut bytes) else { return };
            let Some(client) = known.get() else { continue };
            for datagram in meddler(number, bytes[..len].to_vec()) {
                let _ = back.send_to(&datagram, client);
            }
        }
    });
    address
}

/// Sends `len` bytes through `meddler` and back again over a sealed connection.
async fn echoed_through(meddler: Meddler, len: usize) {
    let identity = Identity::generate().expect("a key");
    let (server, client) = (host(), host());
    let listener = listen(&server, || Service::sealed(&identity, Clients::anyone())).await;
    let address = SocketAddr::new("127.0.0.1".parse().expect("an address"), listener.port());
    let echo = tokio::spawn(async move {
        let stream = listener.accept().await.expect("the client connects");
        let (mut read, mut write) = stream.into_split();
        tokio::io::copy(&mut read, &mut write).await.expect("copied");
        write.shutdown().await.expect("open until now");
        read.closed().await.expect("in order");
    });
    let remote = relay(address, meddler);
    let stream =
        within(client.connect(remote, Trust::pinned(identity.fingerprint()))).await.expect("it answers");
    assert!(stream.status().expect("a status").is_sealed());
    let (mut read, mut write) = stream.into_split();
    let sent = pattern(len);
    let copy = sent.clone();
    let sending = tokio::spawn(async move {
        write.write_all(&copy).await?;
        write.shutdown().await
    });
    let mut got = Vec::new();
    within(read.read_to_end(&mut got)).await.expect("until the end");
    sending.await.expect("no panic").expect("sent");
    assert!(got == sent, "{} bytes", got.len());
    within(echo).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_comes_back_through_loss_duplication_and_reordering() {
    let meddler: Meddler = |number, datagram| {
        thread_local!(static HELD: std::cell::RefCell<Vec<Vec<u8>>> = const { std::cell::RefCell::new(Vec::new()) });
        match number {
            _ if number % 97 == 50 => Vec::new(),
            _ if number % 53 == 20 => vec![datagram.clone(), datagram],
            // Held back until the next but two has gone.
            _ if number % 31 == 10 => {
                HELD.with_borrow_mut(|held| held.push(datagram));
                Vec::new()
            }
            _ if number % 31 == 13 => {
                let held = HELD.take();
                [datagram].into_iter().chain(held).collect()
            }
            _ => vec![datagram],
        }
    };
    echoed_through(meddler, 2 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_that_was_changed_on_the_way_is_found_and_sent_again() {
    let meddler: Meddler = |number, mut datagram| {
        if number == 60
            && let Some(byte) = datagram.last_mut()
        {
            *byte ^= 1;
        }
        vec![datagram]
    };
    echoed_through(meddler, 2 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_options_are_stripped_from_datagrams_nothing_goes_in_clear() {
    let meddler: Meddler = |_, mut datagram| {
        // All options become NOPs.
        if let Some(offset) = datagram.first().map(|byte| usize::from(byte >> 4) * 4 - 8) {
            datagram[12..offset].fill(1);
        }
        vec![datagram]
    };
    let identity = Identity::generate().expect("a key");
    let (server, client) = (host(), host());
    let listener = listen(&server, || Service::sealed(&identity, Clients::anyone())).await;
    let address = SocketAddr::new("127.0.0.1".parse().expect("an address"), listener.port());
    let remote = relay(address, meddler);
    let opened = within(client.connect(remote, Trust::pinned(identity.fingerprint()))).await;
    assert!(opened.is_err(), "it was not sealed, and is open");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_unknown_peers_send_is_counted_or_reset_and_harms_no_connection() {
    let (server, client) = (host(), host());
    let listener = listen(&server, Service::plain).await;
    let remote = SocketAddr::new("127.0.0.1".parse().expect("an address"), listener.port());
    let mut stream = within(client.connect(remote, Protection::plain())).await.expect("it answers");
    let mut other = within(listener.accept()).await.expect("the client connects");

    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
    stranger.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    // Garbage; nothing; a data offset beyond the end; the flag of an urgent pointer.
    for datagram in [
        &[0xff; 100][..],
        &[],
        &[0xf0, 0x10, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1],
        &[0x50, 0x30, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1],
    ] {
        stranger.send_to(datagram, remote).expect("sent");
    }
    // A segment of no connection is reset by one that is no longer.
    let stray = [0x50, 0x10, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7, 7];
    stranger.send_to(&stray, remote).expect("sent");
    let mut answer = [0; 100];
    let len = stranger.recv(&mut answer).expect("a reset");
    assert!(len <= stray.len() && answer[1] == 0x04, "{:02x?}", &answer[..len]);
    assert_eq!(server.totals().malformed, 3, "an empty datagram says nothing");

    stream.write_all(b"ping").await.expect("taken");
    let mut got = [0; 4];
    within(other.read_exact(&mut got)).await.expect("the connection is as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_a_program_has_is_not_taken_and_one_that_was_given_back_is_free() {
    let host = host();
    // Below those that the kernel assigns: no other socket gets it meanwhile.
    let first = 12_000 + (std::process::id() % 5000) as u16;
    let taken = (first..).find_map(|port| UdpSocket::bind(("127.0.0.1", port)).ok()).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let is_taken = |listened: &Result<Listener, plait::Error>| {
        listened.as_ref().is_err_and(|error| error.kind() == ErrorKind::PortInUse)
    };
    let listen = || host.listen(port, Service::plain());
    assert!(is_taken(&listen().await));
    drop(taken);
    // Another test that starts a program may have a copy of the descriptor, until the program runs.
    let mut listened = listen().await;
    for _ in 0..600 {
        if !is_taken(&listened) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        listened = listen().await;
    }
    let listener = listened.expect("free now");
    UdpSocket::bind(("127.0.0.1", port)).expect_err("ours");
    drop(listener);
    for _ in 0..600 {
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("still ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_go_both_ways_beside_the_stream_and_end_with_their_flow() {
    let (server, client) = (host(), host());
    let identity = Identity::generate().expect("random bytes");
    let listener =
        listen(&server, || SealedService::new(&identity, Clients::anyone()).datagrams().into()).await;
    let port = listener.port();
    let echo = tokio::spawn(async move {
        let mut stream = listener.accept().await.expect("the client connects");
        let datagrams = stream.datagrams();
        let (refused, destination) = datagrams.accept().await.expect("a flow");
        assert_eq!(destination, "nowhere.example:9");
        drop(refused);
        let (flow, destination) = datagrams.accept().await.expect("a flow");
        assert_eq!(destination, "echo.example:7");
        while let Some((payload, ecn)) = flow.recv_with_ecn().await {
            flow.send_with_ecn(payload, ecn).expect("it is open");
        }
        drop(flow);
        stream.shutdown().await.expect("in order");
        assert!(datagrams.accept().await.is_none(), "the connection has ended");
    });
    let remote = SocketAddr::new("127.0.0.1".parse().expect("an address"), port);
    let sealing = Sealing::new(Trust::pinned(identity.fingerprint())).datagrams();
    let mut stream = within(client.connect(remote, sealing)).await.expect("it answers");
    let datagrams = stream.datagrams();
    let refused =
        within(datagrams.open("nowhere.example:9", PathChoice::Fastest)).await.expect("both take datagrams");
    assert_eq!(within(refused.recv()).await, None, "the server has refused it");
    assert_eq!(refused.send("late").map_err(|error| error.kind()), Err(ErrorKind::Closed));
    let flow =
        within(datagrams.open("echo.example:7", PathChoice::Duplicate)).await.expect("both take datagrams");
    assert!(flow.largest() > 1200, "{}", flow.largest());
    let longest = (4 * flow.largest()).min(65_535);
    for len in [0, 1, 1200, flow.largest(), longest] {
        // Unreliable: the queue of a socket of a busy machine may be full.
        let sent = pattern(len.next_multiple_of(8))[..len].to_vec();
        let got = within(async {
            loop {
                flow.send_with_ecn(sent.clone(), 1).expect("it is open");
                match tokio::time::timeout(Duration::from_secs(1), flow.recv_with_ecn()).await {
                    Ok(Some((got, ecn))) if got.len() == sent.len() => break (got, ecn),
                    Ok(Some(_)) | Err(_) => {}
                    Ok(None) => panic!("the flow has ended"),
                }
            }
        });
        let (got, ecn) = got.await;
        assert!(got == sent && ecn == 1, "{len}");
    }
    let long = vec![0; longest + 1];
    assert_eq!(flow.send(long).map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
    drop(flow);
    within(stream.shutdown()).await.expect("in order");
    drop((stream, datagrams, refused));
    within(echo).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_need_both_ends_to_ask_for_them() {
    let (server, client) = (host(), host());
    let identity = Identity::generate().expect("random bytes");
    let listener = listen(&server, || Service::sealed(&identity, Clients::anyone())).await;
    let remote = SocketAddr::new("127.0.0.1".parse().expect("an address"), listener.port());
    let sealing = Sealing::new(Trust::pinned(identity.fingerprint())).datagrams();
    let stream = within(client.connect(remote, sealing)).await.expect("it answers");
    let datagrams = stream.datagrams();
    let opened = within(datagrams.open("echo.example:7", PathChoice::Fastest)).await;
    assert_eq!(opened.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
}
