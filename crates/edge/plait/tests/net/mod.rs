//! Two namespaces with two paths between them, and what the kernel's TCP says to a host in the first one.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use plait::{Carriers, Host, HostBuilder, Path};
use plait_lab::wired::{Pair, Wire};
use plait_netns::{Cidr, Namespace};

/// Two namespaces joined by two veth pairs: `a1` and `a2` are the host's, `b1` and `b2` the peer's.
pub(crate) struct Net {
    pub(crate) a: Namespace,
    pub(crate) b: Namespace,
}

impl Net {
    pub(crate) fn new() -> Self {
        let mut pair = Pair::new("host").expect("root");
        for path in ["1", "2"] {
            let both =
                |network: &str, prefix: u8| [1, 2].map(|host| cidr(&format!("{network}{host}"), prefix));
            let addresses = vec![both(&format!("10.91.{path}."), 24), both(&format!("fd91:{path}::"), 64)];
            let devices = [format!("a{path}"), format!("b{path}")];
            pair.lay(&Wire { devices, addresses }).expect("a pair");
        }
        let Pair { client: a, server: b, wires: _ } = pair;
        Self { a, b }
    }

    /// A host in the first namespace, over TCP.
    pub(crate) fn host(&self, devices: &[&str]) -> Host {
        let paths = devices.iter().map(|device| Path::new(device).expect("a name"));
        let builder = paths.fold(Host::builder().carriers(Carriers::Tcp), HostBuilder::path);
        self.a.enter(|| builder.start().expect("a host")).expect("entered")
    }

    /// An echo server of the kernel in the second namespace, for one connection.
    pub(crate) fn echo_server(&self, address: &str) -> SocketAddr {
        let address = SocketAddr::new(address.parse().expect("an address"), 0);
        let listener = self.b.enter(|| TcpListener::bind(address).expect("free")).expect("entered");
        let bound = listener.local_addr().expect("bound");
        std::thread::spawn(move || listener.accept().map(|(stream, _)| echo(stream)));
        bound
    }

    /// All that a host changes in its namespace.
    pub(crate) fn traces(&self) -> String {
        let mut traces = String::new();
        for words in
            ["-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all", "-o link show"]
        {
            // The kernel makes some routes a little after their addresses: they are no trace of a host.
            let lines = self.a.ip(words).expect("ip works");
            let lines = lines.lines().filter(|line| {
                !line.contains("fe80:") && !line.contains("multicast") && !line.contains("table local")
            });
            traces
                .extend(lines.map(|line| format!("{}\n", line.split("qdisc").next().unwrap_or(line).trim())));
        }
        traces += &self.a.run("nft", "list ruleset").expect("nft works");
        for device in ["all", "a1", "a2"] {
            for setting in ["ipv4/conf/DEV/forwarding", "ipv6/conf/DEV/forwarding", "ipv6/conf/DEV/accept_ra"]
            {
                let path = format!("/proc/sys/net/{}", setting.replace("DEV", device));
                let value =
                    self.a.enter(|| std::fs::read_to_string(&path).unwrap_or_default()).expect("entered");
                traces += &format!("{path} {value}");
            }
        }
        traces
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let limit = Duration::from_secs(120);
    runtime
        .expect("threads")
        .block_on(async { tokio::time::timeout(limit, work).await.expect("within two minutes") })
}

/// Asks again until there is an answer, or a minute has passed.
pub(crate) fn wait_for<T>(mut question: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = question() {
            return Some(answer);
        }
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn cidr(address: &str, prefix: u8) -> Cidr {
    Cidr::new(address.parse::<IpAddr>().expect("an address"), prefix)
}

/// Sends everything back, and then the end.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len) = stream.read(&mut buffer) {
        if len == 0 || stream.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
}

/// Sends four bytes and returns the answer; nothing without an answer.
pub(crate) fn round_trip(server: SocketAddr) -> Option<[u8; 4]> {
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(60)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    stream.write_all(b"ping").ok()?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).ok()?;
    Some(answer)
}
