//! A server that is not known yet, and its key in a signed zone of DNS, over a single path: in network namespaces, with root.

#![allow(clippy::disallowed_methods, reason = "the kernel has threads and files")]

#[path = "../src/dnssec/zone.rs"]
#[allow(dead_code, reason = "the tests of the library use the rest")]
mod zone;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use plait::{
    Clients, ConnectOptions, DnssecAnchors, ErrorKind, Fingerprint, Host, Identity, KnownPeer, KnownPeers,
    NameBasis, Remote, Service, Trust,
};
use plait_lab::wired::{Pair, Wire};
use plait_netns::{Cidr, Namespace};
use zone::{Lie, SignedDns, tlsa};

const NAME: &str = "gw.example.test:7443";
/// The server, and its nameserver.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 1, 2);

#[test]
#[ignore = "needs root"]
fn the_key_that_a_signed_zone_publishes_is_pinned_over_one_path() {
    let identity = Identity::generate().expect("a key");
    let (result, known) = meet("same", &identity, publishing(identity.fingerprint()));
    result.expect("the zone has the key");
    let known = known.expect("it was met");
    assert_eq!((known.paths, known.names), (Some(1), Some(NameBasis::Dnssec)));
    assert_eq!(known.fingerprint, identity.fingerprint());
}

#[test]
#[ignore = "needs root"]
fn a_server_with_another_key_than_its_zone_publishes_is_refused() {
    let identity = Identity::generate().expect("a key");
    let (result, known) = meet("other", &identity, publishing(Fingerprint::new([7; 32])));
    let (kind, text) = result.expect_err("the zone has another key");
    assert_eq!(kind, ErrorKind::NotAuthenticated, "{text}");
    assert!(text.contains("the key that its DNS zone publishes"), "{text}");
    assert_eq!(known, None);
}

#[test]
#[ignore = "needs root"]
fn without_signatures_one_path_is_not_enough() {
    let identity = Identity::generate().expect("a key");
    let dns = publishing(identity.fingerprint()).and_lie(Lie::Stripped);
    let (result, known) = meet("stripped", &identity, dns);
    let (kind, text) = result.expect_err("as without DNSSEC");
    assert_eq!((kind, known), (ErrorKind::PathsMissing, None), "{text}");
}

fn publishing(key: Fingerprint) -> SignedDns {
    SignedDns::new().with(tlsa("_7443._tcp.gw.example.test.", [3, 1, 1], key.as_bytes()))
}

/// What comes of a first contact with a server of this identity, and what is known of it then.
fn meet(
    name: &str,
    identity: &Identity,
    dns: SignedDns,
) -> (Result<(), (ErrorKind, String)>, Option<KnownPeer>) {
    let mut pair = Pair::new("dnssec").expect("root");
    let addresses = vec![[1, 2].map(|host| Cidr::new([10, 96, 1, host].into(), 24))];
    pair.lay(&Wire { devices: ["a1".to_owned(), "b1".to_owned()], addresses }).expect("a path");
    let anchors: DnssecAnchors = dns.anchors().parse().expect("a DNSKEY record");
    nameserver(&pair.server, dns);
    let start = |namespace: &Namespace, device: &str| {
        let builder = Host::builder().path(device.parse().expect("a device"));
        let builder = builder.nameservers([IpAddr::V4(SERVER)]).dnssec(anchors.clone());
        namespace.enter(|| builder.start().expect("a host")).expect("entered")
    };
    let (client, server) = (start(&pair.client, "a1"), start(&pair.server, "b1"));
    let file = std::env::temp_dir().join(format!("plait-dnssec-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let peers = KnownPeers::in_file(&file);
    let result = std::thread::scope(|scope| {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (listening, listens) = std::sync::mpsc::channel();
        scope.spawn(move || {
            block_on(async {
                let service = Service::sealed(identity, Clients::anyone());
                let listener = server.listen(7443, service).await.expect("free");
                listening.send(()).expect("awaited");
                let accepting = async {
                    loop {
                        drop(listener.accept().await);
                    }
                };
                tokio::select! {
                    _ = stopped => {}
                    () = accepting => {}
                }
            });
        });
        listens.recv().expect("the server starts");
        let remote = Remote::from(NAME).at([(SERVER, 7443).into()]);
        let trust = Trust::known_peers(peers.clone());
        let options = ConnectOptions::new().within(Duration::from_secs(40));
        let opening = client.connect_with(remote, trust, &options);
        let opening = async { opening.await.map(drop).map_err(|error| (error.kind(), error.to_string())) };
        let opened = pair.client.enter(|| block_on(opening)).expect("entered");
        let _ = stop.send(());
        opened
    });
    let known = peers.find(NAME).expect("read");
    let _ = std::fs::remove_file(&file);
    (result, known)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn nameserver(namespace: &Namespace, dns: SignedDns) {
    let socket = namespace.enter(|| UdpSocket::bind((SERVER, 53)).expect("free")).expect("entered");
    std::thread::spawn(move || {
        let mut query = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            if let Some(answer) = dns.answer(&query[..length]) {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
}
