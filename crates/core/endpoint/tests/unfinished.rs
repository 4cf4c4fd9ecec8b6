//! Unfinished openings of many unknown peers at once: the state that they cause at an endpoint, in figures.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "the memory in use is read from a file")]

#[path = "../../mptcp/tests/raw_peer/mod.rs"]
mod raw_peer;

mod one_path;

use bytes::Bytes;
use core::net::SocketAddr;
use one_path::path;
use plait_base::{Duration, Instant, SeededRandom};
use plait_endpoint::{Arrival, Endpoint, EndpointConfig, Transmit};
use plait_handshake::{Capabilities, Identity, ListenerSettings, Prologue, Tep};
use plait_mptcp::{Config, Protect, SealedSettings};
use plait_protect::sealed::Kind;
use plait_wire::{Flags, OptionBytes, Segment};
use raw_peer::{RawPeer, mapping};
use std::collections::BTreeMap;
use std::sync::Arc;

const KIB: usize = 1 << 10;
const MAX_HALF_OPEN: usize = 100;
const MAX_HANDSHAKES: usize = 200;
const STRANGERS: u16 = 600;
/// Bytes that each of them tries to occupy.
const PUSHED: usize = 512 * KIB;
/// TLS's message, TCP's window behind a gap, and the connection itself.
const MOST_PER_HANDSHAKE: usize = 256 * KIB;

/// One after the other, the smaller one first, because what is measured is the memory of the whole process.
#[test]
fn unfinished_openings_of_unknown_peers_stay_small_and_short() {
    blocks_that_never_end();
    handshakes_that_never_end();
}

/// Each begins a ClientHello without an end, and sends far more than the window behind a gap.
fn handshakes_that_never_end() {
    let mut host = Host::new(Config::default());
    let before = resident();
    for number in 0..STRANGERS {
        let mut peer = RawPeer::new(client(number), server(), Tep::Tls13, number.into());
        let syn = peer.syn();
        let answer = host.tell(&syn).pop().expect("a SYN/ACK");
        let third = peer.handle(&answer).remove(0);
        let hello = endless_hello();
        let (first, rest) = hello.split_at(1000);
        host.tell(&Segment { payload: Bytes::copy_from_slice(first), ..third });
        peer.sent = 1 + first.len() as u64;
        push(&mut host, &mut peer, rest);
        peer.sent += 1;
        push(&mut host, &mut peer, &[0; PUSHED]);
        assert!(host.endpoint.counters().half_open <= MAX_HALF_OPEN + MAX_HANDSHAKES);
    }
    let counters = host.endpoint.counters();
    let each = resident().saturating_sub(before) / MAX_HANDSHAKES;
    println!(
        "{STRANGERS} handshakes without an end: {} of them kept, {} KiB each",
        counters.handshakes,
        each / KIB
    );
    assert!(counters.connections <= MAX_HALF_OPEN + MAX_HANDSHAKES, "{counters:?}");
    assert_eq!(counters.handshakes, MAX_HANDSHAKES);
    assert!(counters.handshakes_limited > 0 && counters.syn_cookies_sent > 0, "{counters:?}");
    assert!(each <= MOST_PER_HANDSHAKE, "{each} bytes for each stranger");

    let waiting = counters.handshakes_waiting;
    assert!(waiting > 0, "{counters:?}");

    host.run(Duration::from_secs(25));
    let counters = host.endpoint.counters();
    assert_eq!(
        (counters.handshakes, counters.handshakes_displaced),
        (waiting, waiting as u64),
        "those that waited had a place after eight seconds; the others had twenty"
    );
    host.run(Duration::from_secs(20));
    assert_eq!(host.endpoint.counters().handshakes, 0);
    host.run(Duration::from_secs(300));
    let counters = host.endpoint.counters();
    assert_eq!((counters.connections, counters.half_open, counters.names), (0, 0, 0));
}

/// Each has the keys, and declares one block of the largest size, of which the last byte never comes; what comes arrives
/// in single bytes.
fn blocks_that_never_end() {
    const VISITORS: u16 = 100;
    let mut host = Host::new(Config::default());
    let before = resident();
    for number in 0..VISITORS {
        let mut peer = RawPeer::new(client(number), server(), Tep::TcpcryptCurve25519, number.into());
        let mut said = vec![peer.syn()];
        while let Some(segment) = said.pop() {
            let answers = host.tell(&segment);
            said.extend(answers.iter().flat_map(|answer| peer.handle(answer)));
        }
        assert!(peer.keys.is_some(), "the handshake is honest");
        let start = peer.sent as u32;
        let block = peer.block(Kind::Data, b"x");
        peer.sent -= block.payload.len() as u64;
        let (acked, dsn) = (plait_base::Dsn::new(1), plait_base::Dsn::new(1));
        let declared = Segment { options: mapping(acked, dsn, start, u16::MAX), ..block };
        host.tell(&declared);
        peer.sent += declared.payload.len() as u64;
        for _ in 0..3000 {
            host.tell(&peer.segment(Bytes::from_static(b"x"), OptionBytes::new()));
            peer.sent += 1;
        }
        push(&mut host, &mut peer, &[0; 60_000]);
    }
    let each = resident().saturating_sub(before) / usize::from(VISITORS);
    println!("{VISITORS} blocks without an end: {} KiB for each connection", each / KIB);
    assert!(each <= 256 * KIB, "{each} bytes for each connection");
}

/// A prologue, and three records with the beginning of a ClientHello of 65,520 bytes.
fn endless_hello() -> Vec<u8> {
    let mut hello = Prologue::of_client(Capabilities::OURS).as_bytes().to_vec();
    let prologue = hello.len();
    for _ in 0..3 {
        hello.extend([22, 3, 1, 0x40, 0]);
        hello.resize(hello.len() + 0x4000, 0);
    }
    hello[prologue + 5..prologue + 9].copy_from_slice(&[1, 0, 0xff, 0xf0]);
    hello
}

/// In segments of their usual size, whatever the window says.
fn push(host: &mut Host, peer: &mut RawPeer, bytes: &[u8]) {
    for piece in bytes.chunks(1400) {
        host.tell(&peer.segment(Bytes::copy_from_slice(piece), OptionBytes::new()));
        peer.sent += piece.len() as u64;
    }
}

struct Host {
    endpoint: Endpoint,
    now: Instant,
}

impl Host {
    fn new(config: Config) -> Self {
        let limits = EndpointConfig {
            max_half_open: MAX_HALF_OPEN,
            max_handshakes: MAX_HANDSHAKES,
            max_handshakes_per_prefix: MAX_HANDSHAKES,
            ..EndpointConfig::default()
        };
        let mut endpoint = Endpoint::new(limits, [1; 32], [2; 32]);
        let now = Instant::from_millis(5000);
        endpoint.set_path(now, path());
        let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
        let settings = SealedSettings::listener(Arc::new(ListenerSettings::new(identity)));
        endpoint
            .listen(server().port(), Config { protect: Protect::Sealed(settings), ..config })
            .expect("free");
        Self { endpoint, now }
    }

    /// Passes a segment in and returns the answers to its sender.
    fn tell(&mut self, segment: &Segment) -> Vec<Segment> {
        self.now += Duration::from_micros(10);
        self.endpoint.handle_segment(Arrival::at(self.now), segment);
        let mut answers = self.take();
        answers.remove(&segment.source).unwrap_or_default()
    }

    fn take(&mut self) -> BTreeMap<SocketAddr, Vec<Segment>> {
        let mut answers: BTreeMap<SocketAddr, Vec<Segment>> = BTreeMap::new();
        while let Some(Transmit { segment, .. }) = self.endpoint.poll_transmit(self.now) {
            if !segment.flags.contains(Flags::RST) {
                answers.entry(segment.destination).or_default().push(segment);
            }
        }
        while self.endpoint.poll_event().is_some() {}
        answers
    }

    /// Lets time pass, no longer than something is left to do.
    fn run(&mut self, limit: Duration) {
        let start = self.now;
        while let Some(next) = self.endpoint.poll_timeout().filter(|next| *next <= start + limit) {
            self.now = self.now.max(next);
            self.endpoint.handle_timeout(self.now);
            self.take();
        }
    }
}

fn server() -> SocketAddr {
    "192.0.2.1:7443".parse().expect("an address")
}

fn client(number: u16) -> SocketAddr {
    SocketAddr::new("198.51.100.7".parse().expect("an address"), 10_000 + number)
}

/// Bytes of memory that this process has in use.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}
