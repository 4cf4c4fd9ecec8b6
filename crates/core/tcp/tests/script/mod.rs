//! Segment scripts: one connection, and a peer that says exactly what the test wants.
//!
//! Numbers are relative to the initial sequence numbers, which lie just before the wrap. Segments are written
//! as `flags start:end ack n` with the flags `S F R P . E W` of tcpdump; a super-segment shows its segment size
//! behind a slash, SACK blocks follow as `sack a:b`.

#![allow(dead_code, reason = "each test file uses its own part")]

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::{Duration, Instant, SeqNum};
use plait_tcp::{
    Arrival, Config, Connection, Event, FourTuple, Isn, Record, SegmentKind, SegmentOptions, State, Timer,
};
use plait_wire::{Flags, IcmpError, IcmpReason, OptionBytes, Segment, TcpOption};

pub(crate) const OURS: u32 = 0xffff_f000;
pub(crate) const THEIRS: u32 = 0xffff_ffc0;

pub(crate) fn us() -> SocketAddr {
    "10.0.0.1:1000".parse().expect("an address")
}

pub(crate) fn them() -> SocketAddr {
    "10.0.0.2:2000".parse().expect("an address")
}

/// A segment of the peer.
#[derive(Clone)]
pub(crate) struct Seg {
    pub(crate) segment: Segment,
    /// `None`: the script adds the current timestamp if timestamps are on.
    stamp: Option<(u32, u32)>,
    bare: bool,
}

pub(crate) fn seg(flags: &str, seq: i64, ack: i64) -> Seg {
    let flags = flags.chars().fold(Flags::default(), |flags, letter| {
        flags.with(match letter {
            'S' => Flags::SYN,
            'F' => Flags::FIN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            'E' => Flags::ECE,
            'W' => Flags::CWR,
            'A' => Flags::AE,
            _ => Flags::ACK,
        })
    });
    let segment = Segment {
        source: them(),
        destination: us(),
        seq: SeqNum::new(THEIRS.wrapping_add(seq as u32)),
        ack: SeqNum::new(OURS.wrapping_add(ack as u32)),
        flags,
        window: 65_535,
        urgent: 0,
        options: OptionBytes::new(),
        payload: Bytes::new(),
        segment_size: 1460,
        ecn: 0,
        flow_label: 0,
    };
    Seg { segment, stamp: None, bare: false }
}

impl Seg {
    /// Payload: the bytes of the stream at this place.
    pub(crate) fn data(mut self, len: usize) -> Self {
        let from = self.segment.seq.distance(SeqNum::new(THEIRS)) as usize;
        self.segment.payload = (0..len).map(|n| from.wrapping_add(n) as u8).collect();
        self
    }

    pub(crate) fn payload(mut self, bytes: &'static [u8]) -> Self {
        self.segment.payload = Bytes::from_static(bytes);
        self
    }

    pub(crate) fn window(mut self, window: u16) -> Self {
        self.segment.window = window;
        self
    }

    pub(crate) fn size(mut self, size: u16) -> Self {
        self.segment.segment_size = size;
        self
    }

    /// The ECN bits of the IP header.
    pub(crate) fn ecn(mut self, bits: u8) -> Self {
        self.segment.ecn = bits;
        self
    }

    /// Without timestamps even where they are on.
    pub(crate) fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    pub(crate) fn stamp(mut self, value: u32, echo: u32) -> Self {
        self.stamp = Some((value, echo));
        self
    }

    pub(crate) fn option(mut self, option: &TcpOption<'_>) -> Self {
        assert!(option.emit(&mut self.segment.options));
        while !self.segment.options.len().is_multiple_of(4) {
            self.segment.options.push(1);
        }
        self
    }

    pub(crate) fn sack(self, blocks: &[(u32, u32)]) -> Self {
        let edge = |n: u32| SeqNum::new(OURS.wrapping_add(n));
        let blocks = blocks.iter().map(|&(a, b)| (edge(a), edge(b))).collect();
        self.option(&TcpOption::Sack(blocks))
    }
}

/// Opaque options of the owner: a fixed filling, and a log of the requests.
#[derive(Default)]
pub(crate) struct Opaque {
    pub(crate) filling: usize,
    pub(crate) asked: Vec<(SegmentKind, usize)>,
}

impl SegmentOptions for Opaque {
    fn write(&mut self, kind: SegmentKind, room: usize, out: &mut OptionBytes) {
        self.asked.push((kind, room));
        out.extend(core::iter::repeat_n(1, self.filling.min(room)));
    }
}

pub(crate) struct Script {
    pub(crate) tcp: Connection,
    pub(crate) now: Instant,
    pub(crate) opaque: Opaque,
    /// Echoed by the peer: the latest value of ours.
    pub(crate) our_stamp: u32,
    pub(crate) stamps: bool,
    /// Segments that left, as they are.
    pub(crate) raw: Vec<Segment>,
    pub(crate) events: Vec<Event>,
    /// Timers that fired.
    pub(crate) fired: Vec<Timer>,
    given: usize,
}

impl Script {
    pub(crate) fn active(config: Config) -> Self {
        let tuple = FourTuple { local: us(), remote: them() };
        let isn = Isn { seq: SeqNum::new(OURS), timestamp_offset: 0xffff_f800, label_seed: 1 };
        let now = Instant::from_millis(1000);
        Self::around(Connection::connect(now, config.clone(), tuple, isn), now)
    }

    /// The same over IPv6; the addresses in what the peer is given to say are those of IPv4, which the connection does not look at.
    pub(crate) fn active_over_ipv6(config: Config, label_seed: u128) -> Self {
        let at = |text: &str| text.parse().expect("an address");
        let tuple = FourTuple { local: at("[2001:db8::1]:1000"), remote: at("[2001:db8::2]:2000") };
        let isn = Isn { seq: SeqNum::new(OURS), timestamp_offset: 0xffff_f800, label_seed };
        let now = Instant::from_millis(1000);
        Self::around(Connection::connect(now, config, tuple, isn), now)
    }

    pub(crate) fn passive(config: Config, syn: Seg) -> Self {
        let isn = Isn { seq: SeqNum::new(OURS), timestamp_offset: 0xffff_f800, label_seed: 1 };
        let now = Instant::from_millis(1000);
        Self::around(Connection::accept(now, config.clone(), &syn.segment, isn), now)
    }

    fn around(tcp: Connection, now: Instant) -> Self {
        Self {
            tcp,
            now,
            opaque: Opaque::default(),
            our_stamp: 0,
            stamps: false,
            raw: Vec::new(),
            events: Vec::new(),
            fired: Vec::new(),
            given: 0,
        }
    }

    /// A connection that we opened, 40 ms round trip, segments of 1000 bytes, no timestamps, no scaling.
    pub(crate) fn established(config: Config) -> Self {
        let mut s = Self::active(Config { timestamps: false, ..config });
        s.sent();
        s.wait(40);
        let syn = seg("S.", 0, 1).option(&TcpOption::Mss(1000)).option(&TcpOption::SackPermitted);
        s.give(syn);
        assert_eq!(s.sent(), [". 1:1 ack 1"]);
        assert_eq!(s.tcp.state(), State::Established);
        s
    }

    /// The same with timestamps: payloads are of 988 bytes.
    pub(crate) fn stamped(config: Config) -> Self {
        let mut s = Self::active(config);
        s.sent();
        s.wait(40);
        s.stamps = true;
        let echo = s.our_stamp;
        let syn = seg("S.", 0, 1)
            .option(&TcpOption::Mss(1000))
            .option(&TcpOption::SackPermitted)
            .option(&TcpOption::Timestamps { value: 5000, echo });
        s.give(syn.bare());
        s.sent();
        assert_eq!(s.tcp.state(), State::Established);
        s
    }

    /// Lets time pass; timers fire when they are due.
    pub(crate) fn wait(&mut self, millis: u64) {
        self.wait_for(Duration::from_millis(millis));
    }

    pub(crate) fn wait_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.drain();
        while let Some(deadline) = self.tcp.poll_timeout().filter(|deadline| deadline.at <= end) {
            self.now = self.now.max(deadline.at);
            self.fired.push(deadline.timer);
            self.tcp.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    /// The peer's segment arrives now.
    pub(crate) fn give(&mut self, seg: Seg) -> Arrival {
        let Seg { mut segment, stamp, bare } = seg;
        if self.stamps && !bare {
            let now = 5000 + self.now.as_millis() as u32;
            let (value, echo) = stamp.unwrap_or((now, self.our_stamp));
            let mut options = OptionBytes::new();
            options.extend([1, 1]);
            assert!(TcpOption::Timestamps { value, echo }.emit(&mut options));
            options.try_extend_from_slice(&segment.options).expect("room");
            segment.options = options;
        }
        let arrival = self.tcp.handle_segment(self.now, &segment);
        self.drain();
        arrival
    }

    pub(crate) fn icmp(&mut self, seq: u32, reason: IcmpReason) {
        let seq = SeqNum::new(OURS.wrapping_add(seq));
        let error = IcmpError { source: us(), destination: them(), seq, reason };
        self.tcp.handle_icmp(self.now, &error);
        self.drain();
    }

    /// The owner queues bytes without options.
    pub(crate) fn send(&mut self, len: usize) {
        self.send_with(len, OptionBytes::new());
    }

    pub(crate) fn send_with(&mut self, len: usize, options: OptionBytes) {
        let payload = (self.given..self.given + len).map(|n| n as u8).collect();
        self.given += len;
        self.tcp.send(Record { payload, options, push: false });
        self.drain();
    }

    pub(crate) fn finish(&mut self) {
        self.tcp.finish();
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        while let Some(segment) = self.tcp.poll_transmit(self.now, &mut self.opaque) {
            for option in plait_wire::options(&segment.options).flatten() {
                if let TcpOption::Timestamps { value, .. } = option {
                    self.our_stamp = value;
                }
            }
            self.raw.push(segment);
        }
        while let Some(event) = self.tcp.poll_event() {
            self.events.push(event);
        }
    }

    /// Returns the segments that have left since the last call.
    pub(crate) fn sent(&mut self) -> Vec<String> {
        self.drain();
        core::mem::take(&mut self.raw).iter().map(show).collect()
    }

    /// Returns the readable bytes.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(chunk) = self.tcp.read() {
            all.extend_from_slice(&chunk.data);
        }
        all
    }
}

pub(crate) fn show(segment: &Segment) -> String {
    let letters = [
        (Flags::SYN, 'S'),
        (Flags::FIN, 'F'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::ACK, '.'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
        (Flags::AE, 'A'),
    ];
    let mut text: String =
        letters.iter().filter(|(flag, _)| segment.flags.contains(*flag)).map(|&(_, letter)| letter).collect();
    let start = segment.seq.distance(SeqNum::new(OURS));
    text += &format!(" {start}:{}", i64::from(start) + segment.payload.len() as i64);
    if segment.wire_segments() > 1 {
        text += &format!("/{}", segment.segment_size);
    }
    if segment.flags.contains(Flags::ACK) {
        text += &format!(" ack {}", segment.ack.distance(SeqNum::new(THEIRS)));
    }
    if segment.ecn != 0 {
        text += [" not-ect", " ect1", " ect0", " ce"][usize::from(segment.ecn & 3)];
    }
    for option in plait_wire::options(&segment.options).flatten() {
        if let TcpOption::Sack(blocks) = option {
            text += " sack";
            for (a, b) in blocks {
                let theirs = SeqNum::new(THEIRS);
                text += &format!(" {}:{}", a.distance(theirs), b.distance(theirs));
            }
        }
    }
    text
}
