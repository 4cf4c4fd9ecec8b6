//! Futures of the library that are dropped before they are ready, as `tokio::select!` does: no byte and no connection is lost. Over UDP, on
//! the loopback device: no root.

#![allow(clippy::disallowed_methods, reason = "the kernel has a clock and threads")]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use plait::{Carriers, Clients, ConnectOptions, ErrorKind, Host, Identity, Listener, Service, Stream, Trust};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn each_connection_is_accepted_once_though_many_calls_are_dropped() {
    let (server, client, identity) = (host(), host(), Identity::generate().expect("a key"));
    let listener = Arc::new(listen(&server, &identity).await);
    let accepted = Arc::new(AtomicUsize::new(0));
    let mut accepting = JoinSet::new();
    for _ in 0..2 {
        let (listener, accepted) = (listener.clone(), accepted.clone());
        accepting.spawn(async move {
            loop {
                match once(listener.accept()).await {
                    Some(stream) => drop((stream.expect("the host lives"), accepted.fetch_add(1, Relaxed))),
                    None => sleep(Duration::from_micros(100)).await,
                }
            }
        });
    }
    for _ in 0..20 {
        drop(connect(&client, &listener, &identity).await);
    }
    let all = async {
        while accepted.load(Relaxed) < 20 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, all).await.expect("none is lost");
    timeout(LIMIT, client.drained()).await.expect("nothing is left");
    assert_eq!(accepted.load(Relaxed), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_dropped_writes_and_reads_leave_is_written_and_read_by_the_next_ones() {
    let (server, client, identity) = (host(), host(), Identity::generate().expect("a key"));
    let listener = listen(&server, &identity).await;
    let (near, far) = tokio::join!(connect(&client, &listener, &identity), listener.accept());
    let (mut near, mut far) = (near, far.expect("the client connects"));
    let sent: Bytes = (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let writing = tokio::spawn({
        let mut left = sent.clone();
        async move {
            let mut dropped = 0;
            while !left.is_empty() {
                match once(near.write_chunk(&mut left)).await {
                    Some(written) => written.expect("the connection works"),
                    None => {
                        dropped += 1;
                        sleep(Duration::from_micros(100)).await;
                    }
                }
            }
            near.shutdown().await.expect("open until now");
            (dropped, near.closed().await)
        }
    });
    let (mut received, mut dropped) = (Vec::new(), 0);
    loop {
        match once(far.read_chunk()).await {
            Some(Ok(Some(chunk))) => received.extend_from_slice(&chunk),
            Some(Ok(None)) => break,
            Some(Err(error)) => panic!("{error}"),
            None => {
                dropped += 1;
                sleep(Duration::from_micros(100)).await;
            }
        }
    }
    far.shutdown().await.expect("open until now");
    let (dropped_writes, end) = timeout(LIMIT, writing).await.expect("in time").expect("no panic");
    end.expect("in order");
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    assert!(dropped > 0 && dropped_writes > 0, "{dropped} reads and {dropped_writes} writes were dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_attempt_leaves_no_connection_and_a_limit_is_told() {
    let (server, client, identity) = (host(), host(), Identity::generate().expect("a key"));
    let listener = listen(&server, &identity).await;
    let remote = at(&listener);
    let trust = || Trust::pinned(identity.fingerprint());
    assert!(once(client.connect(remote, trust())).await.is_none(), "it was dropped");
    timeout(LIMIT, client.drained()).await.expect("nothing is left");
    assert_eq!(client.state().connections, 0);
    let hurried = ConnectOptions::new().within(Duration::ZERO);
    let error = client.connect_with(remote, trust(), &hurried).await.expect_err("no time");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_dropped_behind_its_first_answer_never_reaches_the_application_of_the_server() {
    let (server, client, identity) = (host(), host(), Identity::generate().expect("a key"));
    let listener = listen(&server, &identity).await;
    let trust = || Trust::pinned(identity.fingerprint());
    // Longer and longer: the last ones are dropped at each step of the handshake, or connect.
    let mut connected = 0;
    for tenths in 0..60 {
        let patience = Duration::from_micros(100 * tenths);
        tokio::select! {
            biased;
            stream = client.connect(at(&listener), trust()) => {
                connected += 1;
                stream.expect("the server answers").abort();
            }
            () = sleep(patience) => {}
        }
    }
    timeout(LIMIT, client.drained()).await.expect("nothing is left");
    let mut ended = 0;
    while let Ok(stream) = timeout(Duration::from_millis(200), listener.accept()).await {
        let read = stream.expect("the host lives").read_chunk().await;
        assert!(read.is_err(), "an orderly end of a connection that was given up: {read:?}");
        ended += 1;
    }
    assert!(ended >= connected, "{ended} of {connected}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tasks_that_wait_for_connections_get_one_each() {
    let (server, client, identity) = (host(), host(), Identity::generate().expect("a key"));
    let listener = Arc::new(listen(&server, &identity).await);
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let listener = listener.clone();
        // It returns after one connection, and so does not take that of the other task.
        waiting.spawn(async move { listener.accept().await.map(drop) });
    }
    sleep(Duration::from_millis(20)).await;
    for _ in 0..2 {
        drop(connect(&client, &listener, &identity).await);
    }
    for _ in 0..2 {
        let accepted = timeout(LIMIT, waiting.join_next()).await.expect("each is woken");
        accepted.expect("two tasks").expect("no panic").expect("the host lives");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_given_back_by_a_dropped_call_and_a_second_listener_leaves_the_first_one_alone() {
    let (server, client, identity) = (host(), host(), Identity::generate().expect("a key"));
    let service = || Service::sealed(&identity, Clients::anyone());
    let port = listen(&server, &identity).await.port();
    // Polled once: the answer comes, and is not taken.
    for _ in 0..20 {
        drop(once(server.listen(port, service())).await);
        sleep(Duration::from_millis(5)).await;
    }
    // The sockets of a port that was given back end a moment later.
    let listener = timeout(LIMIT, async {
        loop {
            match server.listen(port, service()).await {
                Ok(listener) => return listener,
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    });
    let listener = listener.await.expect("a dropped call gives the port back");
    let error = server.listen(port, service()).await.expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::PortInUse, "{error}");
    sleep(Duration::from_millis(100)).await;
    let (near, far) = tokio::join!(connect(&client, &listener, &identity), listener.accept());
    drop((near, far.expect("the first listener still hears")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_lives_as_long_as_its_last_handle() {
    let (server, client, identity) = (host(), host(), Identity::generate().expect("a key"));
    let listener = listen(&server, &identity).await;
    let other = client.clone();
    timeout(LIMIT, client.close()).await.expect("no connection holds it up");
    let (near, far) = tokio::join!(connect(&other, &listener, &identity), listener.accept());
    drop((near, far));
    timeout(LIMIT, other.close()).await.expect("dropped streams end");
    drop(server);
    assert!(listener.accept().await.is_err(), "the stack of the listener has ended");
}

#[test]
fn each_async_method_of_the_library_says_what_dropping_its_future_does() {
    let mut folders = vec![FilePath::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut found = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("readable");
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub async fn"))
            {
                let is_above = |line: &&&str| line.starts_with("///") || line.starts_with("#[");
                let above = lines[..index].iter().rev().take_while(is_above);
                let mut words = above.map(|line| line.trim_start_matches("/// ")).collect::<Vec<_>>();
                words.reverse();
                let words = words.join(" ");
                let is_told = words.contains("Dropping the future") || words.starts_with("As [`");
                assert!(is_told, "{}: {line}", path.display());
                found += 1;
            }
        }
    }
    assert!(found >= 17, "{found}");
}

fn host() -> Host {
    Host::builder().carriers(Carriers::Udp).path("lo".parse().expect("a path")).start().expect("only sockets")
}

async fn listen(host: &Host, identity: &Identity) -> Listener {
    let mut port = 30_000 + (std::process::id() % 10_000) as u16;
    loop {
        match host.listen(port, Service::sealed(identity, Clients::anyone())).await {
            Ok(listener) => return listener,
            Err(error) if error.kind() == ErrorKind::PortInUse => port += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn connect(host: &Host, listener: &Listener, identity: &Identity) -> Stream {
    let small = ConnectOptions::new().send_buffer(100_000);
    timeout(LIMIT, host.connect_with(at(listener), Trust::pinned(identity.fingerprint()), &small))
        .await
        .expect("in time")
        .expect("the server answers")
}

fn at(listener: &Listener) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], listener.port()))
}

/// Polls once, and drops the future.
async fn once<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
