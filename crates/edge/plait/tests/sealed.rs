//! What the library's defaults do with peers that are not what they should be: in network namespaces, over two paths, with root.

#![allow(clippy::disallowed_methods, reason = "the kernel has a clock and files")]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use plait::{
    Certificate, Clients, ErrorKind, Fingerprint, Host, Identity, KnownPeers, Listener, Peer, Protection,
    Remote, Sealing, Service, Stream, Trust,
};
use plait_lab::wired::{Pair, Wire};
use plait_netns::{Cidr, Namespace};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

/// The server's address on the first path.
const SERVER: &str = "10.94.1.2:7443";

#[test]
#[ignore = "needs root"]
fn a_pinned_server_is_reached_over_both_paths_and_shows_its_key() {
    let net = Net::new();
    let (ours, theirs) = (Identity::generate().expect("a key"), Identity::generate().expect("a key"));
    let clients = Clients::known([ours.fingerprint()]);
    let protection = Protection::sealed_as(&ours, Trust::pinned(theirs.fingerprint()));
    net.runtime.block_on(async {
        let listener = net.server.listen(7443, Service::sealed(&theirs, clients)).await.expect("free");
        let (near, far) = tokio::join!(net.client.connect(SERVER, protection), listener.accept());
        let (mut near, mut far) = (near.expect("it is the right one"), far.expect("it takes us"));
        assert_eq!(near.peer_identity(), &Peer::Key(theirs.fingerprint()));
        assert_eq!(far.peer_identity(), &Peer::Key(ours.fingerprint()));
        assert_eq!(near.peer_addr().to_string(), SERVER);
        assert_eq!(near.local_addr(), far.peer_addr(), "not the stack's private address");
        exchange(&mut near, &mut far).await;
        let monitor = near.monitor();
        let both = async {
            while near.paths().iter().filter(|subflow| subflow.is_usable()).count() < 2 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), both).await.expect("both paths");
        let status = monitor.status().expect("it lives");
        assert!(status.is_sealed() && status.is_multipath() && status.cipher_suite().is_some());
        let mut devices: Vec<_> =
            status.subflows().iter().map(|subflow| subflow.device().to_owned()).collect();
        devices.sort();
        devices.dedup();
        assert_eq!(devices, ["a1", "a2"]);
        near.shutdown().await.expect("open until now");
        far.shutdown().await.expect("open until now");
        near.closed().await.expect("in order");
    });
}

#[test]
#[ignore = "needs root"]
fn an_impostor_gets_nothing_whatever_it_offers() {
    let net = Net::new();
    let impostor = Identity::generate().expect("a key");
    let pinned = || Trust::pinned(Fingerprint::new([7; 32]));
    net.runtime.block_on(async {
        for (port, service, kind) in [
            (7443, Service::sealed(&impostor, Clients::anyone()), ErrorKind::NotAuthenticated),
            (7444, Service::plain(), ErrorKind::NotProtected),
            // It refuses us as we would refuse it.
            (7445, Service::scrambled(), ErrorKind::Refused),
        ] {
            let listener = net.server.listen(port, service).await.expect("free");
            let connecting = net.client.connect(("10.94.1.2", port), pinned());
            let error =
                timeout(Duration::from_secs(120), connecting).await.expect("an answer").expect_err("no");
            assert_eq!(error.kind(), kind, "{port}: {error}");
            // Where it believes to have a connection, there is nothing in it.
            if let Ok(Ok(mut stream)) = timeout(Duration::from_secs(1), listener.accept()).await {
                let mut got = Vec::new();
                let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut got)).await;
                assert!(got.is_empty(), "{port}");
            }
        }
    });
}

#[test]
#[ignore = "needs root"]
fn a_client_refused_at_once_gets_a_stream_that_reports_it_even_later() {
    let net = Net::new();
    let theirs = Identity::generate().expect("a key");
    let address: SocketAddr = SERVER.parse().expect("an address");
    net.runtime.block_on(async {
        let service = Service::sealed(&theirs, Clients::anyone());
        let listener = net.server.listen(7443, service).await.expect("free");
        let mut connecting = pin!(
            net.client.connect(Remote::from(address).at([address]), Trust::pinned(theirs.fingerprint()))
        );
        let begins = poll_fn(|context| Poll::Ready(connecting.as_mut().poll(context).is_pending()));
        assert!(begins.await, "there is no answer yet");
        listener.accept().await.expect("it has shaken hands").abort();
        sleep(Duration::from_millis(300)).await;
        let mut stream = connecting.await.expect("it was open");
        let error = stream.read(&mut [0]).await.expect_err("it was closed");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    });
}

#[test]
#[ignore = "needs root"]
fn a_service_without_known_clients_accepts_none() {
    let net = Net::new();
    let (ours, theirs) = (Identity::generate().expect("a key"), Identity::generate().expect("a key"));
    net.runtime.block_on(async {
        let closed = Service::sealed(&theirs, Clients::known([]));
        let listener = net.server.listen(7443, closed).await.expect("free");
        for protection in [
            Protection::sealed(Trust::anonymous()),
            Protection::sealed(Trust::pinned(theirs.fingerprint())),
            Protection::sealed_as(&ours, Trust::pinned(theirs.fingerprint())),
            Protection::plain(),
        ] {
            let refused = async {
                // A client learns that it is refused when it wants to use the connection at the latest.
                let mut stream = net.client.connect(SERVER, protection).await.ok()?;
                stream.write_all(b"let me in").await.ok()?;
                stream.read_u8().await.ok()
            };
            assert_eq!(timeout(Duration::from_secs(120), refused).await.expect("an answer"), None);
        }
        let came = timeout(Duration::from_millis(500), listener.accept()).await;
        assert!(came.is_err(), "{came:?}");
    });
}

/// Listens at a port that was used before. Another test that starts a program may have a copy of that descriptor, until the program runs.
async fn listen_again(server: &Host, service: impl Fn() -> Service) -> Listener {
    let listening = async {
        loop {
            match server.listen(7443, service()).await {
                Err(error) if error.kind() == ErrorKind::PortInUse => sleep(Duration::from_millis(50)).await,
                listener => return listener.expect("free again"),
            }
        }
    };
    timeout(Duration::from_secs(60), listening).await.expect("given back")
}

#[test]
#[ignore = "needs root"]
fn a_server_is_believed_the_first_time_and_with_another_key_never_again() {
    let net = Net::new();
    let [first, second] = [(); 2].map(|()| Identity::generate().expect("a key"));
    let file = std::env::temp_dir().join(format!("plait-first-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let trust = || Trust::known_peers(KnownPeers::in_file(&file));
    net.runtime.block_on(async {
        let listener =
            net.server.listen(7443, Service::sealed(&first, Clients::anyone())).await.expect("free");
        for _ in 0..2 {
            let (near, far) = tokio::join!(net.client.connect(SERVER, trust()), listener.accept());
            exchange(&mut near.expect("new, then known"), &mut far.expect("it has come")).await;
        }
        drop(listener);
        let listener = listen_again(&net.server, || Service::sealed(&second, Clients::anyone())).await;
        let connecting = timeout(Duration::from_secs(120), net.client.connect(SERVER, trust()));
        let accepting = timeout(Duration::from_secs(2), listener.accept());
        let (error, _) = tokio::join!(connecting, accepting);
        let error = error.expect("an answer").expect_err("another key");
        assert_eq!(error.kind(), ErrorKind::NotAuthenticated, "{error}");
    });
    let known = KnownPeers::in_file(&file).find(SERVER).expect("read").expect("there");
    assert_eq!((known.fingerprint, known.paths), (first.fingerprint(), Some(2)));
    std::fs::remove_file(&file).expect("removed");
}

#[test]
#[ignore = "needs root"]
fn there_is_a_stream_when_the_required_paths_have_given_their_shares_or_an_error_that_names_the_path() {
    let net = Net::new();
    let theirs = Identity::generate().expect("a key");
    let sealing = || Sealing::new(Trust::pinned(theirs.fingerprint())).require_paths(2);
    net.runtime.block_on(async {
        let service = || Service::sealed(&theirs, Clients::anyone());
        let listener = net.server.listen(7443, service()).await.expect("free");
        for _ in 0..20 {
            let (near, far) = tokio::join!(net.client.connect(SERVER, sealing()), listener.accept());
            let (mut near, mut far) = (near.expect("both paths are there"), far.expect("it has come"));
            let status = near.status().expect("it lives");
            assert_eq!(status.sealed().expect("sealed").mixed_paths(), [2, 2].into());
            exchange(&mut near, &mut far).await;
        }
        // What the server says on the second path gets lost from here on.
        net.pair
            .server
            .ip("neigh replace 10.94.2.1 lladdr 02:00:00:00:00:01 dev b2 nud permanent")
            .expect("done");
        for trust in [
            Trust::pinned(theirs.fingerprint()),
            Trust::known_peers(KnownPeers::in_file(std::env::temp_dir().join("plait-closed"))),
        ] {
            let connecting = net.client.connect(SERVER, Sealing::new(trust).require_paths(2));
            let accepting = timeout(Duration::from_secs(40), async {
                let mut stream = listener.accept().await.ok()?;
                stream.read_u8().await.ok()
            });
            let (error, read) = tokio::join!(timeout(Duration::from_secs(40), connecting), accepting);
            let error = error.expect("an answer").expect_err("one path is not enough");
            assert_eq!(error.kind(), ErrorKind::PathsMissing, "{error}");
            assert!(error.to_string().contains("2 paths have to give a share to the keys"), "{error}");
            assert!(error.to_string().contains("path a2"), "{error}");
            assert_eq!(read.ok().flatten(), None, "not a byte was sent");
        }
    });
}

#[test]
#[ignore = "needs root"]
fn a_certificate_is_good_for_its_name_only() {
    let net = Net::new();
    let identity = Identity::generate().expect("a key");
    let made = rcgen::generate_simple_self_signed(vec!["gw.example.com".to_owned()]).expect("a certificate");
    let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    net.runtime.block_on(async {
        let certificate = Certificate::from_pem(pem.as_bytes(), key.as_bytes()).expect("ours");
        let service = Service::certified(&identity, certificate, Clients::anyone());
        let listener = net.server.listen(7443, service).await.expect("free");
        let right = Trust::authorities_for("gw.example.com", pem.as_bytes()).expect("a root");
        let (near, far) = tokio::join!(net.client.connect(SERVER, right), listener.accept());
        let (mut near, mut far) = (near.expect("vouched for"), far.expect("it has come"));
        assert_eq!(near.peer_identity(), &Peer::Certificate);
        exchange(&mut near, &mut far).await;
        for other in
            [Trust::authorities_for("other.example.com", pem.as_bytes()), Trust::authorities(pem.as_bytes())]
        {
            let connecting = net.client.connect(SERVER, other.expect("a root"));
            let error =
                timeout(Duration::from_secs(120), connecting).await.expect("an answer").expect_err("no");
            assert_eq!(error.kind(), ErrorKind::NotAuthenticated, "{error}");
        }
    });
}

async fn exchange(near: &mut Stream, far: &mut Stream) {
    let mut got = [0; 4];
    near.write_all(b"ping").await.expect("taken");
    far.read_exact(&mut got).await.expect("four bytes");
    assert_eq!(&got, b"ping");
    far.write_all(b"pong").await.expect("taken");
    near.read_exact(&mut got).await.expect("four bytes");
    assert_eq!(&got, b"pong");
}

/// A client and a server in namespaces of their own, with two paths between them.
struct Net {
    pair: Pair,
    client: Host,
    server: Host,
    runtime: Runtime,
}

impl Net {
    fn new() -> Self {
        let mut pair = Pair::new("sealed").expect("root");
        for path in [1, 2] {
            let addresses = vec![[1, 2].map(|host| Cidr::new([10, 94, path, host].into(), 24))];
            let devices = [format!("a{path}"), format!("b{path}")];
            pair.lay(&Wire { devices, addresses }).expect("a path");
        }
        // Both paths lead to the address of the call: an address that a peer announces proves nothing about a new server.
        pair.server.ip("address add 10.94.1.2/32 dev lo").expect("added");
        pair.client.ip("route add 10.94.1.2/32 via 10.94.2.2 dev a2 metric 9").expect("added");
        let start = |namespace: &Namespace, side: &str| {
            let path = |number| format!("{side}{number}").parse().expect("a device");
            let builder = Host::builder().path(path(1)).path(path(2));
            namespace.enter(|| builder.start().expect("a host")).expect("entered")
        };
        let (client, server) = (start(&pair.client, "a"), start(&pair.server, "b"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self { pair, client, server, runtime: runtime.expect("threads") }
    }
}
