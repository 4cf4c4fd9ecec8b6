//! The event loop: moves segments between the carriers and the endpoint, on a thread of its own.
//!
//! One turn reads and parses the packets that have arrived, without the lock. It then holds the lock for the protocol alone
//! (packets in, timers, packets out, events), and writes without it. An application therefore waits for the protocol's few
//! microseconds per packet and never for the kernel.

mod relaying;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Waker;

use arrayvec::ArrayVec;
use plait_base::{Duration, Instant};
use plait_endpoint::{ConnectionId, Endpoint, Transmit};
use plait_mptcp::{CryptoJob, CryptoResult};
use plait_wire::Packet;

use crate::attendance::{Attendance, LONGEST_WAIT};
use crate::batch::{Arrived, Inbox, Outbox, Outgoing};
use crate::capture::Capture;
use crate::carrier::{Arrivals, Carrier, Sent};
use crate::carriers::{MAX_CARRIERS, PathCarriers};
use crate::handover::{Left, Received, Relay};
use crate::log::{error, info};
use crate::pool::Pool;
use crate::refusals::{Line, Refusals};
use crate::shared::{Phase, Shared, State};
use crate::stack_address;
use crate::sys::{MAX_SOURCES, Room, Source};
use crate::workers::Workers;

/// Segments written before arrivals are looked at again: 16 super-segments take the kernel 350 µs.
const WRITE_BATCH: usize = 16;

/// Room for any packet: an IP packet is at most 65,535 bytes, or 40 more for IPv6.
const BUFFER_LEN: usize = 65_536 + 64;
/// Spare receive buffers that are kept, 4 MiB in all: enough for the packets that arrive between two looks.
const MAX_SPARE: usize = 64;

/// Time after which a full carrier is tried again if it cannot signal that it has room.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The state of the thread that moves the segments.
pub(crate) struct Driver {
    lanes: ArrayVec<Lane, MAX_CARRIERS>,
    shared: Arc<Shared>,
    capture: Option<Capture>,
    pool: Pool,
    /// The arrivals of the turn.
    arrived: Vec<Arrived>,
    /// Segments that the endpoint has given in this turn. A full batch means that it may have more.
    given: usize,
    woken: Vec<Waker>,
    crypto: Option<Crypto>,
    refusals: Refusals,
    attendance: Attendance,
    /// The way to the process that has handed over its ports, or has taken ours.
    relay: Option<Relay>,
    /// What has come from there, and the segments that go there.
    received: Received,
    left: Vec<Left>,
}

/// A carrier, and the segments that wait for it.
struct Lane {
    carrier: Box<dyn Carrier>,
    batch: VecDeque<Outgoing>,
}

/// Sealing and opening on other threads.
struct Crypto {
    workers: Workers,
    jobs: Vec<(ConnectionId, CryptoJob)>,
    results: Vec<(ConnectionId, CryptoResult)>,
}

/// The result of a turn.
struct Turn {
    /// The latest time of the next turn.
    deadline: Option<Instant>,
    phase: Phase,
    refusal: Option<Line>,
}

impl Driver {
    pub(crate) fn new(
        carriers: impl IntoIterator<Item = Box<dyn Carrier>>,
        shared: Arc<Shared>,
        capture: Option<Capture>,
        workers: Option<Workers>,
    ) -> Self {
        let lane = |carrier| Lane { carrier, batch: VecDeque::with_capacity(WRITE_BATCH) };
        Self {
            attendance: Attendance::new(shared.clock.now()),
            lanes: carriers.into_iter().map(lane).collect(),
            shared,
            capture,
            pool: Pool::new(BUFFER_LEN, MAX_SPARE),
            arrived: Vec::new(),
            given: 0,
            woken: Vec::new(),
            crypto: workers.map(|workers| Crypto { workers, jobs: Vec::new(), results: Vec::new() }),
            refusals: Refusals::default(),
            relay: None,
            received: Received::default(),
            left: Vec::new(),
        }
    }

    /// Runs until the host is told to stop or a carrier is gone.
    pub(crate) fn run(mut self) {
        if let Err(error) = self.turns() {
            error!(%error, "a carrier is gone: the host ends");
        }
    }

    fn turns(&mut self) -> io::Result<()> {
        loop {
            self.shared.wake.begin_to_look();
            self.shared.count_turn();
            let arrivals = self.receive()?;
            self.receive_passed();
            let turn = self.turn();
            self.woken.drain(..).for_each(Waker::wake);
            if let Some(line) = &turn.refusal {
                line.write();
            }
            self.pass();
            let sent = self.send()?;
            if turn.phase == Phase::Stopping {
                return self.last_turns(sent);
            }
            match (arrivals, sent) {
                // The carriers took everything: there may be more to send, or to read.
                (_, Sent::All) if self.given == WRITE_BATCH => {}
                (Arrivals::More, Sent::All) => {}
                (_, Sent::All | Sent::Some) => self.wait(turn.deadline)?,
            }
        }
    }

    /// Reads the packets that have arrived, until there are no more or the batch is full.
    fn receive(&mut self) -> io::Result<Arrivals> {
        let Self { lanes, shared, capture, pool, arrived, .. } = self;
        let mut arrivals = Arrivals::Drained;
        for (position, lane) in lanes.iter_mut().enumerate() {
            let (clock, capture) = (&shared.clock, capture.as_mut());
            let mut inbox = Inbox { clock, pool, capture, carrier: position, arrived };
            if lane.carrier.receive(&mut inbox).map_err(|error| lane.gone(&error))? == Arrivals::More {
                arrivals = Arrivals::More;
            }
        }
        Ok(arrivals)
    }

    /// The protocol's part, under the lock.
    fn turn(&mut self) -> Turn {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if let Some(relay) = state.relay.take() {
            self.relay = relay;
        }
        let State { endpoint, carriers, malformed, phase, .. } = &mut *state;
        for Arrived { carrier, arrival, local, packet } in self.arrived.drain(..) {
            look(&mut self.attendance, arrival.at, endpoint);
            match packet {
                Ok(Packet::Tcp(segment)) => {
                    if let Some(local) = local {
                        self.lanes[carrier].carrier.note_arrival(&segment, local, endpoint);
                    }
                    endpoint.handle_segment(arrival, &segment);
                    if let Some(segment) = endpoint.take_left() {
                        let kind = self.lanes[carrier].carrier.kind();
                        self.left.extend(relaying::left(kind, local, segment, endpoint));
                    }
                }
                Ok(Packet::Icmp(error)) => endpoint.handle_icmp(arrival, &error),
                Err(reason) => malformed.count(reason),
            }
        }
        // Not before the arrivals: their times are in the past, and time must not run backwards.
        let now = shared.clock.now();
        look(&mut self.attendance, now, endpoint);
        self.handle_passed(now, endpoint, carriers);
        if *phase == Phase::Stopping {
            endpoint.abort_all(now);
        }
        if let Some(crypto) = &mut self.crypto {
            crypto.take_results(now, endpoint);
        }
        if endpoint.poll_timeout().is_some_and(|deadline| deadline <= now) {
            endpoint.handle_timeout(now);
        }
        self.fill_lanes(now, endpoint, carriers);
        if let Some(crypto) = &mut self.crypto {
            crypto.give_jobs(endpoint);
        }
        let refusal = self.refusals.look(now, endpoint);
        let maintained = self.lanes.iter_mut().filter_map(|lane| lane.carrier.maintain(now, endpoint)).min();
        let deadline = [endpoint.poll_timeout(), maintained].into_iter().flatten().min();
        let turn = Turn { deadline, phase: *phase, refusal };
        state.collect_wakers(&mut self.woken);
        turn
    }

    /// Takes the next batch from the endpoint. Segments that a carrier did not take are sent first.
    fn fill_lanes(&mut self, now: Instant, endpoint: &mut Endpoint, carriers: &PathCarriers) {
        if self.lanes.iter().any(|lane| !lane.batch.is_empty()) {
            // The endpoint was not asked in this turn. It is asked in the next one, without waiting, if the carriers take the rest.
            self.given = WRITE_BATCH;
            return;
        }
        self.given = 0;
        while self.given < WRITE_BATCH
            && let Some(Transmit { segment, path }) = endpoint.poll_transmit(now)
        {
            self.given += 1;
            let position = match path {
                Some(path) => carriers.position(path),
                // Its path has lost this address, which is on no network.
                None if stack_address::is_one(segment.source.ip()) => continue,
                // An answer to a packet for an address of no path, which the first carrier may have brought.
                None => 0,
            };
            self.lanes[position].batch.push_back(Outgoing { path, segment });
        }
    }

    /// Sends the segments of the turn.
    fn send(&mut self) -> io::Result<Sent> {
        let Self { lanes, shared, capture, .. } = self;
        let mut all = Sent::All;
        for lane in lanes.iter_mut().filter(|lane| !lane.batch.is_empty()) {
            let Lane { carrier, batch } = lane;
            let mut outbox = Outbox { clock: &shared.clock, capture: capture.as_mut(), batch };
            if carrier.send(&mut outbox).map_err(|error| lane.gone(&error))? == Sent::Some {
                all = Sent::Some;
            }
        }
        Ok(all)
    }

    /// Waits for a packet, for room in a carrier with segments left, for the deadline or for a request.
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if !self.shared.wake.may_sleep() {
            return Ok(());
        }
        let now = self.shared.clock.now();
        let timeout = deadline.map_or(LONGEST_WAIT, |deadline| deadline.saturating_since(now));
        let is_full = self.lanes.iter().any(|lane| !lane.batch.is_empty());
        let timeout = timeout.min(if is_full { RETRY_AFTER } else { LONGEST_WAIT });
        self.attendance.wait_until(now + timeout);
        let lanes = self.lanes.iter().filter_map(Lane::source);
        let sources: ArrayVec<_, MAX_SOURCES> =
            lanes.chain(self.relay.iter().map(Relay::source)).take(MAX_SOURCES).collect();
        self.shared.wake.signal().wait(&sources, Some(timeout))
    }

    /// Sends the resets of the connections that were still open, as far as the carriers take them.
    fn last_turns(&mut self, mut sent: Sent) -> io::Result<()> {
        while sent == Sent::All && self.given > 0 {
            self.turn();
            self.woken.drain(..).for_each(Waker::wake);
            sent = self.send()?;
        }
        Ok(())
    }
}

/// Looks at the time that the endpoint learns next. After an absence of this host, the endpoint learns of the absence first.
fn look(attendance: &mut Attendance, now: Instant, endpoint: &mut Endpoint) {
    if let Some(absence) = attendance.look(now) {
        info!("this host did not run for {} s: each connection asks its peer anew", absence.as_secs());
        endpoint.handle_absence(now, absence);
    }
}

impl Lane {
    /// The descriptor to wait for.
    fn source(&self) -> Option<(Source<'_>, Room)> {
        let room = if self.batch.is_empty() { Room::NotNeeded } else { Room::Awaited };
        Some((self.carrier.readiness()?, room))
    }

    fn gone(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.carrier.kind()))
    }
}

impl Crypto {
    fn take_results(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.workers.collect(&mut self.results);
        for (id, result) in self.results.drain(..) {
            endpoint.handle_crypto(now, id, result);
        }
    }

    fn give_jobs(&mut self, endpoint: &mut Endpoint) {
        self.jobs.extend(std::iter::from_fn(|| endpoint.poll_crypto()));
        self.workers.give(&mut self.jobs);
    }
}

impl Drop for Driver {
    /// However the driver ends, even by a panic, all waiting tasks are woken.
    fn drop(&mut self) {
        let woken = self.shared.lock().stop();
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(all(test, not(feature = "models")))]
mod tests {
    use super::*;

    use std::net::Ipv4Addr;

    use plait_base::PathId;
    use plait_endpoint::EndpointConfig;
    use plait_mptcp::{Config, Path, PathClass};

    use crate::carriers::CarrierKind;
    use crate::clock::Clock;
    use crate::os_random::OsRandom;
    use crate::wake::Wake;

    /// A carrier that is full at its first batch, and has room from then on.
    #[derive(Default)]
    struct FullOnce {
        batches: usize,
    }

    impl Carrier for FullOnce {
        fn kind(&self) -> CarrierKind {
            CarrierKind::Queues
        }

        fn longest_super_segment(&self) -> u16 {
            u16::MAX
        }

        fn readiness(&self) -> Option<Source<'_>> {
            None
        }

        fn receive(&mut self, _inbox: &mut Inbox<'_>) -> io::Result<Arrivals> {
            Ok(Arrivals::Drained)
        }

        fn send(&mut self, outbox: &mut Outbox<'_>) -> io::Result<Sent> {
            self.batches += 1;
            if self.batches == 1 {
                return Ok(Sent::Some);
            }
            while outbox.next().is_some() {
                outbox.sent(None);
            }
            Ok(Sent::All)
        }
    }

    fn connect(shared: &Shared) {
        let remote = "192.0.2.2:80".parse().expect("an address");
        let opened =
            shared.change(|state, now| state.endpoint.connect(now, Config::default(), &[remote]).map(drop));
        opened.expect("the path is up");
    }

    #[test]
    fn what_the_endpoint_has_to_send_while_a_carrier_is_full_leaves_without_waiting_for_a_deadline() {
        let random = || Box::new(OsRandom::new().expect("random bytes"));
        let mut endpoint = Endpoint::with_random(EndpointConfig::default(), random(), random());
        let clock = Clock::start();
        let own = Some(Ipv4Addr::new(192, 0, 2, 1));
        let path = Path {
            id: PathId(0),
            name: "queue".to_owned(),
            network: None,
            class: PathClass::Trusted,
            backup: false,
            v4: own,
            v6: None,
            public_v4: own,
            public_v6: None,
            mtu: 1500,
            up: true,
            datagrams: false,
        };
        endpoint.set_path(clock.now(), path);
        let wake = Arc::new(Wake::new().expect("a signal"));
        let shared = Shared::new(clock, wake, PathCarriers::only(CarrierKind::Queues), endpoint);
        let carrier: Box<dyn Carrier> = Box::new(FullOnce::default());
        let mut driver = Driver::new([carrier], shared.clone(), None, None);

        connect(&shared);
        driver.turn();
        assert_eq!(driver.given, 1, "a SYN");
        assert_eq!(driver.send().expect("sent"), Sent::Some, "the carrier is full");
        connect(&shared);
        driver.turn();
        assert_eq!(driver.send().expect("sent"), Sent::All, "the first SYN has left");
        assert_eq!(
            driver.given, WRITE_BATCH,
            "the second SYN waits in the endpoint: the driver must not sleep"
        );
        driver.turn();
        assert_eq!((driver.given, driver.lanes[0].batch.len()), (1, 1), "the second SYN");
    }
}
