//! The name of a server that is not known yet, looked up over each of two paths: in network namespaces, with root.

#![allow(clippy::disallowed_methods, reason = "the kernel has threads and files")]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use domain::base::iana::{Class, Rcode};
use domain::base::{Message, MessageBuilder, Rtype, Ttl};
use domain::rdata::A;
use plait::{
    Clients, ConnectOptions, ErrorKind, Host, Identity, KnownPeer, KnownPeers, NameBasis, Remote, Service,
    Trust,
};
use plait_lab::wired::{Pair, Wire};
use plait_netns::{Cidr, Namespace};
use tokio::time::timeout;

const NAME: &str = "gw.example.com:7443";
/// Where the server is; both paths lead there.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 95, 1, 2);
/// The attacker's host, on the second path.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 95, 2, 66);
/// The nameserver of both paths.
const NAMESERVER: Ipv4Addr = Ipv4Addr::new(10, 95, 3, 53);
/// What answers in its place on the second path.
const LIAR: Ipv4Addr = Ipv4Addr::new(10, 95, 2, 2);

#[test]
#[ignore = "needs root"]
fn a_name_that_both_paths_agree_on_counts_as_two_paths() {
    let net = Net::new("agree");
    let (result, known) = net.meet();
    result.expect("both paths lead to the server");
    let known = known.expect("it was met");
    assert_eq!((known.paths, known.names), (Some(2), Some(NameBasis::Agreed)));
}

#[test]
#[ignore = "needs root"]
fn a_name_that_one_path_lies_about_is_not_believed_and_the_paths_are_named() {
    let net = Net::new("lie");
    net.intercept();
    let (result, known) = net.meet();
    let (kind, text) = result.expect_err("the paths differ");
    assert_eq!(kind, ErrorKind::NotProtected, "{text}");
    for part in [
        "different paths name different addresses of gw.example.com",
        "path a1: 10.95.1.2",
        "path a2: 10.95.2.66",
        "The name counts as one path",
        "fix: give the server's key",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(known, None);
}

#[test]
#[ignore = "needs root"]
fn a_name_that_one_path_does_not_answer_counts_as_one_path() {
    let net = Net::new("silent");
    for rule in [
        "add table ip silence",
        "add chain ip silence in { type filter hook input priority 0 ; }",
        "add rule ip silence in iifname b2 udp dport 53 drop",
    ] {
        net.pair.server.run("nft", rule).expect("nft");
    }
    let (result, known) = net.meet();
    let (kind, text) = result.expect_err("one path");
    assert_eq!(kind, ErrorKind::NotProtected, "{text}");
    assert!(
        text.contains("known over one path alone") && text.contains("path a2: 10.95.3.53:53: "),
        "{text}"
    );
    assert_eq!(known, None);
}

#[test]
#[ignore = "needs root"]
fn an_address_is_no_name() {
    let net = Net::new("address");
    net.intercept();
    let names = net.in_client(async |host| host.look_up(&Remote::from("10.95.1.2:7443")).await);
    let names = names.expect("an address");
    assert_eq!((names.paths(), names.basis(), names.doubt()), (u8::MAX, NameBasis::Given, None));
}

/// A client with two paths to a server, and a nameserver that both paths lead to.
struct Net {
    pair: Pair,
    known_peers: PathBuf,
}

impl Net {
    fn new(name: &str) -> Self {
        let mut pair = Pair::new("names").expect("root");
        for path in [1, 2] {
            let addresses = vec![[1, 2].map(|host| Cidr::new([10, 95, path, host].into(), 24))];
            let devices = [format!("a{path}"), format!("b{path}")];
            pair.lay(&Wire { devices, addresses }).expect("a path");
        }
        for address in [SERVER, NAMESERVER] {
            pair.server.ip(&format!("address add {address}/32 dev lo")).expect("added");
        }
        pair.client.ip("route add 10.95.1.2/32 via 10.95.2.2 dev a2 metric 9").expect("added");
        pair.client.ip("route add 10.95.3.53/32 via 10.95.1.2 dev a1").expect("added");
        pair.client.ip("route add 10.95.3.53/32 via 10.95.2.2 dev a2 metric 9").expect("added");
        nameserver(&pair.server, NAMESERVER, SERVER);
        let known_peers = std::env::temp_dir().join(format!("plait-names-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&known_peers);
        Self { pair, known_peers }
    }

    /// The attacker on the second path answers in the nameserver's place.
    fn intercept(&self) {
        nameserver(&self.pair.server, LIAR, ATTACKER);
        for rule in [
            "add table ip attack",
            "add chain ip attack pre { type nat hook prerouting priority -100 ; }",
            "add rule ip attack pre iifname b2 ip daddr 10.95.3.53 udp dport 53 dnat to 10.95.2.2",
        ] {
            self.pair.server.run("nft", rule).expect("nft");
        }
    }

    /// What comes of a first contact with the server by its name, and what is known of it then.
    fn meet(&self) -> (Result<(), (ErrorKind, String)>, Option<KnownPeer>) {
        let identity = Identity::generate().expect("a key");
        let server = host(&self.pair.server, "b");
        let serving = std::thread::scope(|scope| {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let identity = &identity;
            let accepting = scope.spawn(move || {
                block_on(async {
                    let service = Service::sealed(identity, Clients::anyone());
                    let listener = server.listen(7443, service).await.expect("free");
                    let accepting = async {
                        loop {
                            drop(listener.accept().await);
                        }
                    };
                    let _ = timeout(Duration::from_secs(60), async {
                        tokio::select! {
                            _ = stopped => {}
                            () = accepting => {}
                        }
                    })
                    .await;
                });
            });
            let peers = KnownPeers::in_file(&self.known_peers);
            let connected = self.in_client(async |host| {
                let options = ConnectOptions::new().within(Duration::from_secs(40));
                let opened = host.connect_with(NAME, Trust::known_peers(peers), &options).await;
                opened.map(drop).map_err(|error| (error.kind(), error.to_string()))
            });
            let _ = stop.send(());
            accepting.join().expect("no panic");
            connected
        });
        let known = KnownPeers::in_file(&self.known_peers).find(NAME).expect("read");
        (serving, known)
    }

    /// Runs something with a host of two paths, in the namespace of the client: names are asked for by the calling thread.
    fn in_client<T: Send>(&self, work: impl AsyncFnOnce(&Host) -> T + Send) -> T {
        let host = host(&self.pair.client, "a");
        self.pair.client.enter(|| block_on(work(&host))).expect("entered")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.known_peers);
    }
}

fn host(namespace: &Namespace, side: &str) -> Host {
    let path = |number| format!("{side}{number}").parse().expect("a device");
    let builder = Host::builder().path(path(1)).path(path(2)).nameservers([IpAddr::V4(NAMESERVER)]);
    namespace.enter(|| builder.start().expect("a host")).expect("entered")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// A nameserver at `at` that knows every name at the address `says`.
fn nameserver(namespace: &Namespace, at: Ipv4Addr, says: Ipv4Addr) {
    let socket = namespace.enter(|| UdpSocket::bind((at, 53)).expect("free")).expect("entered");
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let query = Message::from_octets(&buffer[..length]).expect("a message");
            let question = query.sole_question().expect("a question");
            let mut answer = MessageBuilder::new_vec().start_answer(&query, Rcode::NOERROR).expect("room");
            if question.qtype() == Rtype::A {
                let record = (question.qname(), Class::IN, Ttl::from_secs(60), A::new(says));
                answer.push(record).expect("room");
            }
            let _ = socket.send_to(answer.into_message().as_slice(), from);
        }
    });
}
