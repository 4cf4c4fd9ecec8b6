//! Two connections joined by a path that delays, loses, reorders, repeats and merges, all from one seed.

#![allow(dead_code, reason = "each test file uses its own part")]

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::{Duration, Instant, SeqNum};
use plait_link::{Decision, Link, LinkConfig, Loss};
use plait_tcp::{Closed, Config, Connection, Event, FourTuple, Isn, Record, State};
use plait_wire::{Flags, OptionBytes, Segment};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The path between the two ends.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// From A to B.
    pub(crate) forward: LinkConfig,
    /// Back.
    pub(crate) backward: LinkConfig,
    /// Whether neighbours arrive merged, as receive offload does.
    pub(crate) merge: bool,
}

impl Path {
    /// The same both ways.
    pub(crate) fn of(link: LinkConfig) -> Self {
        Self { forward: link.clone(), backward: link, merge: false }
    }

    fn lossless(&self) -> Self {
        let without = |link: &LinkConfig| LinkConfig { loss: Loss::None, ..link.clone() };
        Self { forward: without(&self.forward), backward: without(&self.backward), merge: self.merge }
    }
}

/// A link of 10 ms, perfect, with a queue of 1 MiB for those that give it a rate. Super-segments cross it too.
pub(crate) fn plain_link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        queue_limit: 1 << 20,
        mtu: u32::MAX,
        ..LinkConfig::default()
    }
}

/// Lost wire segments per thousand.
pub(crate) fn loss(per_mille: f64) -> Loss {
    Loss::Bernoulli { probability: per_mille / 1000.0 }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    A,
    B,
}

/// One end with its application.
pub(crate) struct End {
    pub(crate) tcp: Connection,
    pub(crate) received: Vec<u8>,
    pub(crate) events: Vec<Event>,
}

impl End {
    pub(crate) fn closed(&self) -> Option<Closed> {
        self.events.iter().find_map(|event| match event {
            Event::Closed(reason) => Some(*reason),
            _ => None,
        })
    }
}

/// Called for each wire segment.
pub(crate) type Filter = Box<dyn FnMut(Side, &Segment) -> bool>;

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) a: End,
    pub(crate) b: Option<End>,
    links: [Rc<RefCell<Link>>; 2],
    merge: bool,
    /// Wire segments in flight.
    pipe: BTreeMap<(Instant, u64), (Side, Segment)>,
    sent: u64,
    config_b: Config,
    /// Decides about a wire segment; `false` loses it.
    pub(crate) filter: Filter,
    /// Data segments on the wire from A.
    pub(crate) wire_data: u64,
    /// Bytes that wait at the bottleneck from A to B from which on it marks what is ECN-capable.
    pub(crate) marks_from: Option<u64>,
}

pub(crate) const A: &str = "10.0.0.1:1000";
pub(crate) const B: &str = "10.0.0.2:2000";

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

pub(crate) fn tuple() -> FourTuple {
    FourTuple { local: address(A), remote: address(B) }
}

/// Close to the wrap, so that every test crosses it.
pub(crate) const ISN_A: u32 = 0xffff_fc00;
pub(crate) const ISN_B: u32 = 0xffff_ff80;

pub(crate) fn isn(bits: u32) -> Isn {
    Isn { seq: SeqNum::new(bits), timestamp_offset: bits ^ 0x8000_0000, label_seed: bits.into() }
}

/// The bytes of the stream number `n` from `from` on.
pub(crate) fn pattern(from: usize, len: usize) -> Bytes {
    (from..from + len).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(crate) fn record(from: usize, len: usize) -> Record {
    Record { payload: pattern(from, len), options: OptionBytes::new(), push: false }
}

/// Cuts a super-segment as send offload does.
pub(crate) fn cut(segment: &Segment) -> Vec<Segment> {
    let size = usize::from(segment.segment_size);
    if segment.payload.len() <= size {
        return vec![segment.clone()];
    }
    let count = segment.wire_segments();
    (0..count)
        .map(|n| {
            let from = n * size;
            let to = (from + size).min(segment.payload.len());
            let mut flags = segment.flags;
            if n + 1 < count {
                flags = flags.without(Flags::FIN).without(Flags::PSH);
            }
            if n > 0 {
                flags = flags.without(Flags::CWR);
            }
            let (seq, payload) = (segment.seq + from as u32, segment.payload.slice(from..to));
            Segment { seq, flags, payload, ..segment.clone() }
        })
        .collect()
}

impl Pair {
    pub(crate) fn new(seed: u64, config: Config, path: &Path) -> Self {
        Self::with(seed, config.clone(), config, path)
    }

    pub(crate) fn with(seed: u64, config_a: Config, config_b: Config, path: &Path) -> Self {
        let now = Instant::from_millis(1000);
        let Path { forward, backward, merge } = path;
        let tcp = Connection::connect(now, config_a, tuple(), isn(ISN_A));
        Self {
            now,
            a: End { tcp, received: Vec::new(), events: Vec::new() },
            b: None,
            links: [(forward, 2 * seed), (backward, 2 * seed + 1)]
                .map(|(link, seed)| Rc::new(RefCell::new(Link::new(link.clone(), seed)))),
            merge: *merge,
            pipe: BTreeMap::new(),
            sent: 0,
            config_b,
            filter: Box::new(|_, _| true),
            wire_data: 0,
            marks_from: None,
        }
    }

    /// A pair whose handshake is complete.
    pub(crate) fn established(seed: u64, config: Config, path: &Path) -> Self {
        let mut pair = Self::new(seed, config, &path.lossless());
        pair.run_for(Duration::from_millis(500));
        assert_eq!(pair.a.tcp.state(), State::Established);
        assert_eq!(pair.b().tcp.state(), State::Established);
        pair.set_path(path);
        pair
    }

    /// Makes it another path from now on.
    pub(crate) fn set_path(&mut self, path: &Path) {
        let Path { forward, backward, merge } = path;
        self.links[0].borrow_mut().set_config(self.now, forward.clone());
        self.links[1].borrow_mut().set_config(self.now, backward.clone());
        self.merge = *merge;
    }

    /// Sends over the link from A to B of another from now on: they share its queue.
    pub(crate) fn share_forward(&mut self, other: &Self) {
        self.links[0] = Rc::clone(&other.links[0]);
    }

    /// B says that it has all below `offset` of A's stream, whether it has it or not.
    pub(crate) fn optimistic_ack(&mut self, offset: u64) {
        let now = self.now;
        let b = self.b.as_mut().expect("the SYN has arrived");
        b.tcp.request_ack();
        let mut ack = b.tcp.poll_transmit(now, &mut ()).expect("it was asked for");
        ack.ack = SeqNum::new(ISN_A) + offset as u32;
        self.a.tcp.handle_segment(now, &ack);
    }

    /// Bytes that wait in front of the bottleneck from A to B.
    pub(crate) fn waiting(&self) -> u64 {
        self.links[0].borrow().waiting(self.now)
    }

    pub(crate) fn b(&mut self) -> &mut End {
        self.b.as_mut().expect("the SYN has arrived")
    }

    fn transmit(&mut self, side: Side, segment: &Segment) {
        // One decision for a whole train is good enough unless some of it is to be lost.
        let is_whole = self.merge && self.links[side as usize].borrow().config().loss == Loss::None;
        let whole = if is_whole { vec![segment.clone()] } else { cut(segment) };
        for wire in whole {
            assert_eq!(wire.options.len() % 4, 0);
            let headers = if wire.source.is_ipv4() { 40 } else { 60 } + wire.options.len();
            assert!(wire.payload.len() + headers <= 65_521);
            let data = !wire.payload.is_empty();
            if data && side == Side::A {
                self.wire_data += 1;
            }
            if !(self.filter)(side, &wire) {
                continue;
            }
            self.carry(side, wire);
        }
    }

    fn carry(&mut self, side: Side, mut wire: Segment) {
        let is_full = side == Side::A && self.marks_from.is_some_and(|bytes| self.waiting() >= bytes);
        if is_full && wire.ecn != 0 {
            wire.ecn = 0b11;
        }
        let len = (wire.header_len() + wire.payload.len()) as u32;
        let decision = self.links[side as usize].borrow_mut().offer(self.now, len);
        let Decision::Deliver { at, duplicate_at, corrupt } = decision else { return };
        assert_eq!(corrupt, None, "no test asks for it: there are no checksums here");
        for arrival in [Some(at), duplicate_at].into_iter().flatten() {
            self.sent += 1;
            self.pipe.insert((arrival, self.sent), (side, wire.clone()));
        }
    }

    /// Lets one end say all it has to say.
    fn drain(&mut self, side: Side) {
        loop {
            let now = self.now;
            let end = match side {
                Side::A => Some(&mut self.a),
                Side::B => self.b.as_mut(),
            };
            let Some(end) = end else { return };
            while let Some(event) = end.tcp.poll_event() {
                end.events.push(event);
            }
            while let Some(chunk) = end.tcp.read() {
                assert_eq!(chunk.offset, end.received.len() as u64 + 1, "in order and once");
                end.received.extend_from_slice(&chunk.data);
            }
            let Some(segment) = end.tcp.poll_transmit(now, &mut ()) else { return };
            self.transmit(side, &segment);
        }
    }

    fn arrive(&mut self, from: Side, segment: &Segment) {
        let now = self.now;
        let to = match from {
            Side::A => self.b.as_ref(),
            Side::B => Some(&self.a),
        };
        if to.is_some_and(|end| end.tcp.state() == State::Closed) {
            // What the host says for a connection that it no longer knows (RFC 9293, section 3.10.7.1).
            if !segment.flags.contains(Flags::RST) {
                let reset = Segment {
                    source: segment.destination,
                    destination: segment.source,
                    seq: segment.ack,
                    flags: Flags::RST,
                    options: OptionBytes::new(),
                    payload: Bytes::new(),
                    ..segment.clone()
                };
                let side = if from == Side::A { Side::B } else { Side::A };
                self.carry(side, reset);
            }
            return;
        }
        match from {
            Side::A => match &mut self.b {
                Some(end) => {
                    end.tcp.handle_segment(now, segment);
                }
                None if segment.flags.contains(Flags::SYN) => {
                    let tcp = Connection::accept(now, self.config_b.clone(), segment, isn(ISN_B));
                    self.b = Some(End { tcp, received: Vec::new(), events: Vec::new() });
                }
                None => {}
            },
            Side::B => {
                self.a.tcp.handle_segment(now, segment);
            }
        }
    }

    pub(crate) fn drain_both(&mut self) {
        self.drain(Side::A);
        self.drain(Side::B);
    }

    /// When the next thing happens, once both have said all that they have to say.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let wire = self.pipe.first_key_value().map(|(&(at, _), _)| at);
        let timers = [Some(&self.a), self.b.as_ref()].into_iter().flatten();
        let timer = timers.filter_map(|end| end.tcp.poll_timeout()).map(|deadline| deadline.at).min();
        wire.into_iter().chain(timer).min()
    }

    /// The next thing happens; `false` if nothing is left to happen before `end`.
    pub(crate) fn step(&mut self, end: Instant) -> bool {
        self.drain_both();
        let Some(at) = self.next_at().filter(|&at| at <= end) else {
            self.now = self.now.max(end);
            return false;
        };
        self.now = self.now.max(at);
        while let Some(entry) = self.pipe.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (side, segment) = entry.remove();
            self.arrive(side, &segment);
            // As a driver does: what one segment calls for leaves before the next is looked at.
            self.drain(if side == Side::A { Side::B } else { Side::A });
        }
        let now = self.now;
        self.a.tcp.handle_timeout(now);
        if let Some(b) = &mut self.b {
            b.tcp.handle_timeout(now);
        }
        self.drain_both();
        true
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    /// Moves `bytes` from A to B, given in records of `record_len`, within `time`. Returns how long it took.
    pub(crate) fn transfer(&mut self, bytes: usize, record_len: usize, time: Duration) -> Duration {
        let (start, end) = (self.now, self.now + time);
        let before = self.b().received.len();
        let mut given = before;
        let total = before + bytes;
        loop {
            while given < total && self.a.tcp.unsent() < 2 * record_len {
                let len = record_len.min(total - given);
                self.a.tcp.send(record(given, len));
                given += len;
            }
            if self.b().received.len() >= total && self.a.tcp.acked_offset() == self.a.tcp.next_offset() {
                break;
            }
            assert!(
                self.step(end),
                "stuck at {} of {total}: {:?}",
                self.b().received.len(),
                self.a.tcp.stats()
            );
        }
        assert_eq!(self.b().received[before..], pattern(before, bytes)[..], "the bytes that were sent");
        self.now.saturating_since(start)
    }
}
