//! One path: packets out of one host's device, over the link model, into the other's.
//!
//! One thread per path carries both directions. A packet meets, in this order: the tap of the [reader](crate::reader), the injector, the
//! link. Forged packets pass the link like all others. Super-segments stay whole if the link is faithful and fast. Otherwise the link
//! decides about each of their packets, and neighbours that arrive together travel on together.

mod carry;
mod queue;
mod replay;
mod wait;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

use nix::sys::eventfd::EventFd;
use plait_base::{Duration, Instant};
use plait_bench::Recording;
use plait_link::{Link, LinkConfig};
use plait_netns::tun::Tun;
use serde::{Deserialize, Serialize};

use crate::Direction;
use crate::clock::{Clock, since_start};
use crate::flows::Flows;
use crate::injector::{Cut, Injection, Injector, Mark, Outgoing};
use crate::over_udp;
use crate::packet::Frame;
use crate::reader::Tap;
use crate::series::{Sample, Series};

use queue::Queue;
use replay::Replay;

/// Longest packet a TUN device can give.
const BUFFER: usize = 65_536 + 256;
/// Packets taken from one device before the other has its turn.
const BATCH: usize = 32;
/// Packets up to this length are copied out of the large buffer while they wait.
const SMALL: usize = 4096;
/// Large buffers kept for reuse: 16 MiB.
const MAX_SPARE: usize = 256;

/// Something to do on the emulator's thread.
pub(crate) type Task = Box<dyn FnOnce(&mut Emulator) + Send>;

/// The counters of one direction of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounters {
    /// Packets and super-segments that left the path.
    pub delivered: u64,
    /// Bytes of them on the wire, from the IP header upwards.
    pub delivered_bytes: u64,
    /// Packets dropped by the link: too long, queue full, or lost by chance.
    pub dropped: u64,
    /// Packets that were held back while later ones passed.
    pub reordered: u64,
    /// Packets that came while the path was dead, or were on their way when it died.
    pub cut: u64,
    /// Packets that the receiving device did not take, or beyond the emulator's memory.
    pub refused: u64,
}

/// The parts of one direction.
struct Way {
    link: Link,
    queue: Queue,
    counters: PathCounters,
    /// Recorded rates that replace that of the link one after the other.
    replay: Option<Replay>,
}

/// All that the thread of a path owns.
pub(crate) struct Emulator {
    clock: Clock,
    /// The devices in the client and in the server.
    devices: [Tun; 2],
    ways: [Way; 2],
    dead_until: Option<Instant>,
    /// Nanoseconds on the lab's clock until which all paths are dead.
    all_dead_until: Arc<AtomicU64>,
    pub(crate) flows: Flows,
    pub(crate) tap: Tap,
    pub(crate) injector: Injector,
    pub(crate) series: Series,
    tasks: Receiver<Task>,
    wake: Arc<EventFd>,
    spare: Vec<Vec<u8>>,
    stopping: bool,
}

/// The parts of an emulator.
pub(crate) struct Parts {
    pub(crate) clock: Clock,
    pub(crate) devices: [Tun; 2],
    pub(crate) links: [(LinkConfig, Option<Recording>); 2],
    pub(crate) seed: u64,
    pub(crate) tap: Tap,
    pub(crate) all_dead_until: Arc<AtomicU64>,
    /// Whether an attacker has seen the end of a connection on any path.
    pub(crate) ends: Arc<AtomicU8>,
    pub(crate) tasks: Receiver<Task>,
    pub(crate) wake: Arc<EventFd>,
}

impl Emulator {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { clock, devices, links, seed, tap, all_dead_until, ends, tasks, wake } = parts;
        let mut number = 0;
        let ways = links.map(|(config, trace)| {
            number += 1;
            let replay = trace.map(|trace| Replay::new(clock.now(), trace));
            let link = Link::new(config, seed.wrapping_mul(3).wrapping_add(number));
            Way { link, queue: Queue::default(), counters: PathCounters::default(), replay }
        });
        Self {
            clock,
            devices,
            ways,
            dead_until: None,
            all_dead_until,
            flows: Flows::default(),
            tap,
            injector: Injector::new(seed, ends),
            series: Series::default(),
            tasks,
            wake,
            spare: Vec::new(),
            stopping: false,
        }
    }

    /// Carries packets until it is stopped or all handles that could stop it are gone.
    pub(crate) fn run(mut self) {
        while !self.stopping {
            self.do_tasks();
            let now = self.clock.now();
            self.follow_traces(now);
            self.deliver_due(now);
            while let Some((direction, packet)) = self.injector.release(now) {
                self.carry(direction, packet, now);
            }
            let mut was_busy = false;
            for direction in Direction::BOTH {
                was_busy |= self.take_in(direction);
            }
            if !was_busy && !self.stopping {
                self.wait();
            }
        }
    }

    fn do_tasks(&mut self) {
        loop {
            match self.tasks.try_recv() {
                Ok(task) => task(self),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.stopping = true,
            }
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Changes a link. A trace that it has already goes on.
    pub(crate) fn set_link(&mut self, direction: Direction, config: LinkConfig, trace: Option<Recording>) {
        let now = self.clock.now();
        let way = &mut self.ways[direction.index()];
        let present = way.replay.take();
        way.replay = trace.map(|trace| {
            present.filter(|replay| replay.is_of(&trace)).unwrap_or_else(|| Replay::new(now, trace))
        });
        let rate = way.replay.as_ref().map_or(config.rate, |replay| Some(replay.rate()));
        way.link.set_config(now, LinkConfig { rate, ..config });
    }

    /// Sets the rates that traces have now.
    fn follow_traces(&mut self, now: Instant) {
        for Way { link, replay, .. } in &mut self.ways {
            if let Some(rate) = replay.as_mut().and_then(|replay| replay.advance(now)) {
                let config = LinkConfig { rate: Some(rate), ..link.config().clone() };
                link.set_config(now, config);
            }
        }
    }

    /// Kills the path: for a time, or until it is restored. What is on its way is lost.
    pub(crate) fn cut(&mut self, lasting: Option<Duration>) {
        let now = self.clock.now();
        self.dead_until = Some(lasting.map_or(Instant::from_nanos(u64::MAX), |time| now + time));
        self.lose_all();
    }

    pub(crate) fn restore(&mut self) {
        self.dead_until = None;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead_at(self.clock.now())
    }

    fn is_dead_at(&self, now: Instant) -> bool {
        self.dead_until.is_some_and(|until| now < until)
            || now.as_nanos() < self.all_dead_until.load(Ordering::Relaxed)
    }

    fn lose_all(&mut self) {
        for way in &mut self.ways {
            way.counters.cut += way.queue.clear();
        }
    }

    pub(crate) fn counters(&self, direction: Direction) -> PathCounters {
        let way = &self.ways[direction.index()];
        let stats = way.link.stats();
        let dropped = stats.too_big + stats.queue_full + stats.lost;
        PathCounters { dropped, reordered: stats.reordered, ..way.counters }
    }

    /// Begins to count anew: arrivals, injections, what passed. Connections, attacks and the link stay as they are.
    pub(crate) fn forget(&mut self) {
        self.tap.forget();
        self.series = Series::default();
        self.injector.log = Default::default();
    }

    /// Reads packets of one host; whether there were any.
    fn take_in(&mut self, direction: Direction) -> bool {
        for taken in 0..BATCH {
            let mut buffer = self.spare.pop().unwrap_or_else(|| vec![0; BUFFER]);
            match self.devices[direction.index()].receive(&mut buffer) {
                Ok((header, length)) => {
                    let mut frame = Frame::new(buffer, length, header);
                    over_udp::to_tcp(&mut frame);
                    self.handle(direction, frame);
                }
                Err(error) => {
                    self.recycle(buffer);
                    if error.kind() != ErrorKind::WouldBlock {
                        // The device is down: nothing comes, and the next poll says when that changes.
                        tracing::debug!(%error, %direction, "a device does not answer");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return taken > 0;
                }
            }
        }
        true
    }

    fn handle(&mut self, direction: Direction, frame: Frame) {
        let now = self.clock.now();
        if self.is_dead_at(now) {
            self.ways[direction.index()].counters.cut += 1;
            return self.recycle(frame.into_buffer());
        }
        let flow = self.overhear(now, direction, &frame);
        let (Some(flow), true) = (flow, self.injector.is_active()) else {
            return self.carry(direction, Outgoing::untouched(frame), now);
        };
        let outcome = self.injector.handle(now, direction, (&self.flows, flow), frame);
        for packet in outcome.packets {
            self.carry(direction, packet, now);
        }
        for packet in outcome.back {
            self.carry(direction.opposite(), packet, now);
        }
        for mark in outcome.unseen {
            self.log(now, direction, mark, &[]);
        }
        if let Some(cut) = outcome.cut {
            self.go_dead(now, direction, cut);
        }
    }

    /// The reader's turn: it gets a copy. Returns the number of the TCP connection.
    fn overhear(&mut self, now: Instant, direction: Direction, frame: &Frame) -> Option<u32> {
        let place = frame.tcp().map(|tcp| self.flows.observe(direction, &tcp));
        if let Some((flow, _)) = place {
            self.flows.note_carrier(flow, frame.over_udp);
        }
        self.tap.pass(since_start(now), direction, frame, place);
        place.map(|(flow, _)| flow)
    }

    fn go_dead(&mut self, now: Instant, direction: Direction, cut: Cut) {
        let Cut { mark, lasting, all_paths } = cut;
        if all_paths {
            let until = (now + lasting).as_nanos();
            self.all_dead_until.fetch_max(until, Ordering::Relaxed);
            self.lose_all();
        } else {
            self.cut(Some(lasting));
        }
        self.log(now, direction, mark, &[]);
    }

    fn log(&mut self, now: Instant, direction: Direction, mark: Mark, packet: &[u8]) {
        let at = since_start(now);
        let Mark { attack, flow, what } = mark;
        if !packet.is_empty() {
            self.tap.inject(at, direction, packet, format!("{attack} {direction}: {what}"));
        }
        let bytes = packet.len() as u32;
        self.injector.log.record(Injection { at, attack, direction, flow, what, bytes });
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.len() == BUFFER && self.spare.len() < MAX_SPARE {
            self.spare.push(buffer);
        }
    }

    /// Counts and samples what has arrived.
    fn sample(&mut self, now: Instant, direction: Direction, frame: &Frame) {
        let at = since_start(now);
        let bytes = frame.on_wire().bytes;
        let counters = &mut self.ways[direction.index()].counters;
        counters.delivered += 1;
        counters.delivered_bytes += u64::from(bytes);
        self.series.count(at, direction, bytes);
        let Some(tcp) = frame.tcp().filter(|tcp| !tcp.payload().is_empty()) else { return };
        let Some((flow, place)) = self.flows.locate(direction, &tcp) else { return };
        let length = tcp.payload().len() as u32;
        self.series.sample(Sample { at, direction, flow, dsn: place.dsn, offset: place.offset, length });
    }
}
