//! Cost of the worst packet after any behaviour of the peer. State is torn into as many pieces as a peer can cause. Each packet on the way
//! there, and those that complete it again, are timed. The goal is 50 µs for each. Segments that a packet causes are timed one by one: the
//! longest counts.
//! `cargo bench -p plait-endpoint --bench worst_packet`
#![allow(clippy::disallowed_methods, reason = "measuring is what this program is for")]

#[path = "../tests/floods/fixture.rs"]
mod fixture;
#[path = "../../mptcp/tests/raw_peer/mod.rs"]
mod raw_peer;

use bytes::Bytes;
use core::net::{Ipv4Addr, SocketAddr};
use plait_base::{Duration, Instant, PathId, Random, SeededRandom, SeqNum};
use plait_endpoint::{Arrival, ConnectionId, Endpoint, EndpointConfig, ListenerId};
use plait_handshake::Tep;
use plait_mptcp::{Config, Path, PathClass};
use plait_protect::sealed::{Kind, OPENING_LEN, Record};
use plait_wire::{
    AddAddr, DataAck, DataSequence, Dss, Flags, Mapping, MptcpOption, OptionBytes, Segment, TcpOption,
    option_bytes, options, pad_options,
};
use raw_peer::RawPeer;
use sha2::{Digest, Sha256};

const RUNS: usize = 5;
const GOAL: Duration = Duration::from_micros(50);
/// Between two packets.
const STEP: Duration = Duration::from_micros(10);
const MSS: u32 = 1460;
const OUR_KEY: [u8; 8] = *b"hostile!";
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 80);

/// The data that the server writes.
static WRITTEN: [u8; 64 << 10] = [7; 64 << 10];

/// The behaviour of a peer.
type Case = fn(&mut Peer);

fn main() {
    println!("{:<72} {:>8} {:>12} {:>12} {:>8}", "the peer", "packets", "median", "worst", "which");
    let cases: [(&str, Case); 13] = [
        ("acknowledges one byte of every second segment", sack_bytes),
        ("acknowledges every second segment, then all", sack_segments),
        ("sends every second byte, in order, then all of it", islands),
        ("sends every second byte, from behind, then all of it", islands_backwards),
        ("maps every byte elsewhere, from behind, and then the first", data_islands),
        ("maps 100 bytes at a time, all but the first byte, and then that", data_behind_a_hole),
        ("sends whole segments behind a hole of the stream, and then that byte", segments_behind_a_hole),
        ("declares 10,000 mappings of bytes that do not come", early_mappings),
        ("announces 65,000 addresses", announcements),
        ("begins 10,000 connections from everywhere", syns),
        ("sends to 4,000 connections in TIME-WAIT, and opens them anew", time_waits),
        ("sends sealed blocks of one byte", small_blocks),
        ("sends sealed blocks of the largest size, as one segment each", large_blocks),
    ];
    for (name, case) in cases {
        let Cost { packets, median, worst, which } = cost(case);
        let verdict = if worst > GOAL { "  above the goal" } else { "" };
        let (median, worst) = (median.as_nanos(), worst.as_nanos());
        println!("{name:<72} {packets:>8} {median:>9} ns {worst:>9} ns {which:>8}{verdict}");
    }
}

/// Of one case.
struct Cost {
    packets: usize,
    median: Duration,
    worst: Duration,
    /// The place of the worst among the packets.
    which: usize,
}

/// Each run is the same to the byte. What one packet costs is the least that it took in any of them: the rest is what else
/// the machine had to do.
fn cost(case: Case) -> Cost {
    let run = || {
        let mut peer = Peer::new(1);
        case(&mut peer);
        peer.took
    };
    let mut least = run();
    for _ in 1..RUNS {
        for (least, took) in least.iter_mut().zip(run()) {
            *least = took.min(*least);
        }
    }
    let (which, worst) = least.iter().copied().enumerate().max_by_key(|&(_, took)| took).unwrap_or_default();
    least.sort_unstable();
    Cost { packets: least.len(), median: least[least.len() / 2], worst, which }
}

/// A peer that knows the protocol and what it wants.
struct Peer {
    server: Endpoint,
    listener: ListenerId,
    connection: Option<ConnectionId>,
    random: SeededRandom,
    now: Instant,
    step: Duration,
    initial: SeqNum,
    /// The next byte of the server, as far as it has come.
    theirs: SeqNum,
    first_of_theirs: SeqNum,
    server_key: [u8; 8],
    took: Vec<Duration>,
}

impl Peer {
    fn new(seed: u64) -> Self {
        let now = Instant::from_millis(5000);
        let mut server = Endpoint::new(EndpointConfig::default(), [seed as u8; 32], [4; 32]);
        let path = Path {
            id: PathId(0),
            name: "eth0".to_owned(),
            network: None,
            class: PathClass::Trusted,
            backup: false,
            v4: Some(SERVER.0),
            v6: None,
            public_v4: None,
            public_v6: None,
            mtu: 1500,
            up: true,
            datagrams: false,
        };
        server.set_path(now, path);
        let mut config = Config::default();
        config.tcp.timestamps = false;
        let listener = server.listen(SERVER.1, config).expect("free");
        Self {
            server,
            listener,
            connection: None,
            random: SeededRandom::from_number(seed),
            now,
            step: STEP,
            initial: SeqNum::new(u32::MAX - 1000),
            theirs: SeqNum::new(0),
            first_of_theirs: SeqNum::new(0),
            server_key: [0; 8],
            took: Vec::new(),
        }
    }

    /// A segment whose payload begins at stream offset `offset`, the SYN being 0.
    fn segment(&self, offset: u32, payload: Bytes, options: OptionBytes) -> Segment {
        Segment {
            source: SocketAddr::from((Ipv4Addr::new(198, 51, 100, 7), 40_000)),
            destination: SocketAddr::from(SERVER),
            seq: self.initial + offset,
            ack: self.theirs,
            flags: Flags::ACK,
            window: u16::MAX,
            urgent: 0,
            options,
            segment_size: payload.len().max(1) as u16,
            payload,
            ecn: 0,
            flow_label: 0,
        }
    }

    fn tell(&mut self, segment: &Segment) -> Duration {
        self.now += self.step;
        let start = std::time::Instant::now();
        self.server.handle_segment(Arrival::at(self.now), segment);
        while self.server.poll_event().is_some() {}
        let handled = start.elapsed();
        let (mut heard, mut longest) = (Vec::new(), Duration::ZERO);
        let mut start = std::time::Instant::now();
        while let Some(transmit) = self.server.poll_transmit(self.now) {
            longest = longest.max(start.elapsed());
            heard.push(transmit.segment);
            start = std::time::Instant::now();
        }
        while self.server.poll_event().is_some() {}
        let took = handled + longest;
        for answer in &heard {
            let end = answer.seq + answer.len_seq();
            let is_first = answer.flags.contains(Flags::SYN);
            if is_first || end.bits().wrapping_sub(self.theirs.bits()) < 1 << 31 {
                self.theirs = end;
            }
            for option in options(&answer.options).flatten() {
                if let TcpOption::Mptcp(MptcpOption::Capable(capable)) = option {
                    self.server_key = capable.sender_key.unwrap_or(self.server_key);
                }
            }
        }
        took
    }

    /// Says it, and notes what it has cost.
    fn say(&mut self, segment: &Segment) {
        let took = self.tell(segment);
        self.took.push(took);
    }

    /// Opens with Multipath TCP, or with TCP alone.
    fn open(&mut self, is_multipath: bool) {
        let mut offer = OptionBytes::new();
        if is_multipath {
            offer.extend([30, 4, 1, 1]);
        }
        let tcp = [TcpOption::Mss(MSS as u16), TcpOption::SackPermitted, TcpOption::WindowScale(12)];
        offer.extend(option_bytes(tcp).expect("they fit"));
        pad_options(&mut offer);
        let syn = Segment { flags: Flags::SYN, ack: SeqNum::new(0), ..self.segment(0, Bytes::new(), offer) };
        self.tell(&syn);
        self.first_of_theirs = self.theirs;
        let mut keys = OptionBytes::new();
        if is_multipath {
            keys.extend([30, 20, 1, 1]);
            keys.extend(OUR_KEY);
            keys.extend(self.server_key);
        }
        let third = self.segment(1, Bytes::new(), keys);
        self.tell(&third);
        self.connection = self.server.accept(self.listener).map(|(id, _)| id);
        assert!(self.connection.is_some(), "it is open");
    }

    /// A DSS that maps `length` bytes at stream offset `offset` to data offset `at`, the first byte being 1.
    fn mapping(&self, offset: u32, at: u64, length: u16) -> OptionBytes {
        let idsn = |key: &[u8; 8]| {
            let hash = <[u8; 32]>::from(Sha256::digest(key));
            u64::from_be_bytes([
                hash[24], hash[25], hash[26], hash[27], hash[28], hash[29], hash[30], hash[31],
            ])
        };
        let dsn = DataSequence::Long(idsn(&OUR_KEY).wrapping_add(at));
        let mapping = Mapping { dsn, ssn: offset, length, checksum: None };
        let data_ack = Some(DataAck::Long(idsn(&self.server_key).wrapping_add(1)));
        let dss = Dss { data_ack, mapping: Some(mapping), data_fin: false };
        option_bytes([TcpOption::Mptcp(MptcpOption::Dss(dss))]).expect("28 bytes")
    }

    /// The server's application reads everything, so that its buffer may grow.
    fn read(&mut self) {
        let Some(id) = self.connection else { return };
        while self.server.read(self.now, id).is_ok() {}
    }

    /// The server writes, and is acknowledged, until this many segments are in flight.
    fn fill_flight(&mut self, segments: u32) -> SeqNum {
        let Some(id) = self.connection else { return self.theirs };
        let mut acked = self.theirs;
        while self.theirs.bits().wrapping_sub(acked.bits()) < segments * MSS {
            acked = self.theirs;
            while self.server.writable(id) > 0 {
                // Not from the heap: what giving it back costs is the writer's choice.
                let room = self.server.writable(id).min(WRITTEN.len());
                self.server.write(self.now, id, Bytes::from_static(&WRITTEN[..room]));
            }
            self.now += Duration::from_millis(20);
            let acknowledgment = self.segment(1, Bytes::new(), OptionBytes::new());
            self.tell(&acknowledgment);
        }
        acked
    }

    fn acknowledge(&mut self, acked: SeqNum, blocks: impl Iterator<Item = (u32, u32)>) {
        let blocks: Vec<_> = blocks.map(|(start, end)| (acked + start, acked + end)).collect();
        for four in blocks.chunks(4) {
            let sack = TcpOption::Sack(four.iter().copied().collect());
            let mut field = OptionBytes::new();
            assert!(sack.emit(&mut field), "four blocks fit");
            pad_options(&mut field);
            let segment = Segment { ack: acked, ..self.segment(1, Bytes::new(), field) };
            self.say(&segment);
        }
    }

    /// Grows the receive buffer to megabytes: in order, read at once.
    fn grow(&mut self) -> (u32, u64) {
        let (mut offset, mut at) = (1, 1);
        self.step = Duration::from_nanos(200);
        for _ in 0..8000 {
            let options = self.mapping(offset, at, 1400);
            let segment = self.segment(offset, Bytes::from(vec![5; 1400]), options);
            self.tell(&segment);
            (offset, at) = (offset + 1400, at + 1400);
            self.read();
        }
        self.step = STEP;
        (offset, at)
    }
}

fn sack_bytes(peer: &mut Peer) {
    peer.open(false);
    let acked = peer.fill_flight(4000);
    peer.acknowledge(acked, (0..4000).map(|number| (2 * number * MSS + 700, 2 * number * MSS + 701)));
    let all = peer.segment(1, Bytes::new(), OptionBytes::new());
    peer.say(&all);
}

fn sack_segments(peer: &mut Peer) {
    peer.open(false);
    let acked = peer.fill_flight(4000);
    peer.acknowledge(acked, (0..2000).map(|number| ((2 * number + 1) * MSS, (2 * number + 2) * MSS)));
    let all = peer.segment(1, Bytes::new(), OptionBytes::new());
    peer.say(&all);
}

fn islands_at(peer: &mut Peer, offsets: impl Iterator<Item = u32>) {
    peer.open(false);
    for offset in offsets {
        let segment = peer.segment(offset, Bytes::from_static(b"x"), OptionBytes::new());
        peer.say(&segment);
    }
    let all = peer.segment(1, Bytes::from(vec![b'x'; 60_000]), OptionBytes::new());
    peer.say(&all);
}

fn islands(peer: &mut Peer) {
    islands_at(peer, (0..16_000).map(|number| 3 + 2 * number));
}

fn islands_backwards(peer: &mut Peer) {
    islands_at(peer, (0..16_000).rev().map(|number| 3 + 2 * number));
}

fn data_islands(peer: &mut Peer) {
    peer.open(true);
    let count = 30_000;
    for number in 0..count {
        let (offset, at) = (1 + number, 3 + 2 * u64::from(count - number));
        let options = peer.mapping(offset, at, 1);
        let segment = peer.segment(offset, Bytes::from_static(b"x"), options);
        peer.say(&segment);
    }
    let options = peer.mapping(1 + count, 1, 1);
    let segment = peer.segment(1 + count, Bytes::from_static(b"x"), options);
    peer.say(&segment);
}

/// Pieces of this many bytes fill the window, except for the first byte, which comes last.
fn behind_a_hole(peer: &mut Peer, length: u16) {
    peer.open(true);
    let (mut offset, first) = peer.grow();
    let mut at = first + 1;
    // As much as the buffer has grown to.
    for _ in 0..(8 << 20) / u32::from(length) {
        let options = peer.mapping(offset, at, length);
        let segment = peer.segment(offset, Bytes::from(vec![5; length.into()]), options);
        peer.say(&segment);
        offset += u32::from(length);
        at += u64::from(length);
    }
    let options = peer.mapping(offset, first, 1);
    let segment = peer.segment(offset, Bytes::from_static(b"x"), options);
    peer.say(&segment);
    let id = peer.connection.expect("it is open");
    let mut bytes = 0;
    while let Ok(data) = peer.server.read(peer.now, id) {
        bytes += data.len();
    }
    assert!(bytes > 4 << 20, "{bytes}");
}

fn data_behind_a_hole(peer: &mut Peer) {
    behind_a_hole(peer, 100);
}

fn segments_behind_a_hole(peer: &mut Peer) {
    behind_a_hole(peer, 1400);
}

fn early_mappings(peer: &mut Peer) {
    peer.open(true);
    for number in (0..10_000).rev() {
        let options = peer.mapping(2 + 2 * number, 1 + 7 * u64::from(number), 1);
        let segment = peer.segment(1, Bytes::new(), options);
        peer.say(&segment);
    }
}

fn announcements(peer: &mut Peer) {
    peer.open(true);
    for number in 0..65_000_u32 {
        let address = Ipv4Addr::from(0x0a00_0000 | number).into();
        // A wrong HMAC costs as much as a right one.
        let announced = AddAddr {
            echo: false,
            address_id: number as u8,
            address,
            port: Some(number as u16),
            hmac: Some([7; 8]),
        };
        let options = option_bytes([TcpOption::Mptcp(MptcpOption::AddAddr(announced))]).expect("it fits");
        let segment = peer.segment(1, Bytes::new(), options);
        peer.say(&segment);
    }
}

fn syns(peer: &mut Peer) {
    for _ in 0..10_000 {
        let address = Ipv4Addr::from(0x2000_0000 | peer.random.next_u32() >> 3);
        let source = SocketAddr::from((address, 1024 + peer.random.below(60_000) as u16));
        let syn = Segment {
            source,
            flags: Flags::SYN,
            ack: SeqNum::new(0),
            ..peer.segment(0, Bytes::new(), OptionBytes::from_iter([30, 4, 1, 1]))
        };
        peer.say(&syn);
    }
}

/// Each of the connections is closed by the server, so that it waits; then comes what may still come.
fn time_waits(peer: &mut Peer) {
    let count: u16 = 4000;
    let mut waiting = Vec::new();
    for number in 0..count {
        let source = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 7), 10_000 + number));
        let from = |segment: Segment| Segment { source, ..segment };
        let offer = option_bytes([TcpOption::Mss(MSS as u16)]).expect("it fits");
        let syn = from(peer.segment(0, Bytes::new(), offer));
        peer.tell(&Segment { flags: Flags::SYN, ack: SeqNum::new(0), ..syn });
        let third = from(peer.segment(1, Bytes::new(), OptionBytes::new()));
        peer.tell(&third);
        let (id, _) = peer.server.accept(peer.listener).expect("it is open");
        peer.server.finish(peer.now, id);
        // What it has sent meanwhile leaves, and is acknowledged with our end.
        let nothing = from(peer.segment(1, Bytes::new(), OptionBytes::new()));
        peer.tell(&nothing);
        let fin = from(peer.segment(1, Bytes::new(), OptionBytes::new()));
        let fin = Segment { flags: Flags::FIN.with(Flags::ACK), ..fin };
        peer.tell(&fin);
        while peer.server.read(peer.now, id).is_ok() {}
        peer.server.release(peer.now, id);
        while peer.server.poll_transmit(peer.now).is_some() {}
        while peer.server.poll_event().is_some() {}
        waiting.push(fin);
    }
    assert_eq!(peer.server.counters().time_wait, usize::from(count), "{:?}", peer.server.counters());
    for fin in &waiting {
        peer.say(fin);
    }
    for fin in waiting {
        let again = Segment { flags: Flags::SYN, seq: fin.seq + 100_000, ack: SeqNum::new(0), ..fin };
        peer.say(&again);
    }
}

/// Past the handshake and the first record.
fn open_sealed(peer: &mut Peer) -> (RawPeer, ConnectionId) {
    let [_, config] = fixture::sealed();
    let port = SERVER.1 + 1;
    let listener = peer.server.listen(port, config).expect("free");
    let local = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 7), 40_000));
    let mut raw = RawPeer::new(local, SocketAddr::from((SERVER.0, port)), Tep::TcpcryptCurve25519, 3);
    let mut said = vec![raw.syn()];
    while let Some(segment) = said.pop() {
        peer.server.handle_segment(Arrival::at(peer.now), &segment);
        while let Some(transmit) = peer.server.poll_transmit(peer.now) {
            said.extend(raw.handle(&transmit.segment));
        }
        while peer.server.poll_event().is_some() {}
    }
    assert!(raw.keys.is_some(), "the handshake is honest");
    let opening = raw.block(Kind::Control, &Record::Opening { name: [1; OPENING_LEN], paths: 0 }.to_bytes());
    peer.tell(&opening);
    let (id, _) = peer.server.accept(listener).expect("it is open");
    (raw, id)
}

/// As many as the first window takes, without a reader.
fn blocks(peer: &mut Peer, count: usize, length: usize) {
    let (mut raw, id) = open_sealed(peer);
    for _ in 0..count {
        let block = raw.block(Kind::Data, &vec![9; length]);
        peer.say(&block);
    }
    let mut bytes = 0;
    while let Ok(data) = peer.server.read(peer.now, id) {
        bytes += data.len();
    }
    assert_eq!(bytes, count * length, "they were opened");
}

fn small_blocks(peer: &mut Peer) {
    blocks(peer, 5000, 1);
}

fn large_blocks(peer: &mut Peer) {
    blocks(peer, 3, 60_000);
}
