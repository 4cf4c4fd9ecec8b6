//! Models of the tasks that wait and of the driver that wakes them. loom runs each in every order of the threads' steps, up to a number
//! of preemptions, and reports a thread that waits for ever.
//!
//! ```console
//! $ cargo test -p plait-host --features models --lib models
//! ```
//!
//! The buffers (`connection.rs`), the waiters (`shared.rs`) and the sleep of the driver (`wake.rs`) are those of the product, over loom's
//! locks (`sync.rs`). The endpoint is real, too; it has no threads. Each model names a change of the product with which it fails.

use std::future::poll_fn;
use std::io;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bytes::{Buf, Bytes};
use loom::future::block_on;
use loom::sync::{Condvar, Mutex};
use loom::thread::JoinHandle;
use plait_base::{Instant, PathId, SecretRandom, SeededRandom};
use plait_endpoint::{Arrival, ConnectionId, Endpoint, EndpointConfig};
use plait_mptcp::{Config, Path, PathClass};

use crate::carriers::{CarrierKind, PathCarriers};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::shared::{Shared, State};
use crate::sys::{self, Room, Source};
use crate::wake::Wake;

/// Most preemptions of a run. The changes that the models name need three at most; more take minutes.
const PREEMPTIONS: usize = 3;
/// Stack of a thread, in bytes: loom's own are too small for an endpoint.
const STACK: usize = 1 << 20;
/// Room of the connection, in bytes: less than the first window of TCP.
const SEND_BUFFER: usize = 2000;

/// To see it fail: let `Wake::may_sleep` store `ASLEEP` and return `true`.
#[test]
fn a_request_wakes_the_driver_or_keeps_it_awake() {
    explore(|| {
        let wake = Arc::new(Wake::new().expect("memory"));
        let requests = Arc::new(Mutex::new(0));
        let asking = [(); 2].map(|()| {
            let (wake, requests) = (wake.clone(), requests.clone());
            spawn(move || {
                *requests.lock().expect("no panic") += 1;
                wake.ask();
            })
        });
        loop {
            wake.begin_to_look();
            if *requests.lock().expect("no panic") == asking.len() {
                break;
            }
            if wake.may_sleep() {
                wake.signal().wait(&[], None).expect("a signal");
            }
        }
        asking.into_iter().for_each(join);
    });
}

/// To see it fail: let `Tasks::add` give the number 0 to each wait, so that a second task replaces the first one.
#[test]
fn each_task_that_awaits_the_end_learns_of_it() {
    explore(|| {
        let (connection, driver) = Driven::new(0);
        let waiting = [(); 2].map(|()| {
            let connection = connection.clone();
            spawn(move || drop(block_on(connection.closed()).expect_err("it is aborted")))
        });
        connection.abort();
        driver.run();
        waiting.into_iter().for_each(join);
    });
}

/// To see it fail: let `Connection::poll_write` return after the first write, whatever the connection has taken.
#[test]
fn a_writer_whose_room_the_driver_takes_waits_for_other_room() {
    explore(|| {
        // As sealing takes it, which needs more room than the bytes that were written.
        let (connection, driver) = Driven::new(1);
        let writer = spawn(move || {
            let mut rest = Bytes::from_static(&[7; SEND_BUFFER + 1]);
            while !rest.is_empty() {
                let cut = |room: usize| rest.slice(..room.min(rest.len()));
                let taken = block_on(poll_fn(|context| connection.poll_write(context, cut)));
                let taken = taken.expect("the connection is as it was");
                assert!(taken > 0, "a stream that takes nothing has ended");
                rest.advance(taken);
            }
        });
        assert_eq!(driver.run(), SEND_BUFFER + 1, "every byte has arrived");
        join(writer);
    });
}

/// To see it fail: let `Connection::poll_read` give up the lock before it waits (`drop(state)`, and `shared.lock()` for the wait).
#[test]
fn a_reader_learns_of_bytes_and_of_the_end() {
    explore(|| {
        let (connection, driver) = Driven::new(0);
        let reader = spawn(move || {
            let mut read = 0;
            loop {
                let bytes = block_on(poll_fn(|context| connection.poll_read(context)));
                match bytes.expect("the connection is as it was").len() {
                    0 => break,
                    len => read += len,
                }
            }
            assert_eq!(read, 13);
        });
        driver.and_says(b"so many bytes").run();
        join(reader);
    });
}

/// A connection that is open, and the turns of its driver, with the peer in place of a carrier.
struct Driven {
    shared: Arc<Shared>,
    id: ConnectionId,
    peer: Endpoint,
    peers: ConnectionId,
    /// How often the driver takes all the room, after a look at the connection.
    takes: usize,
    /// Bytes that the driver has written.
    own: usize,
    /// Bytes that the peer has yet to write.
    says: Bytes,
}

impl Driven {
    fn new(takes: usize) -> (Connection, Self) {
        let clock = Clock::start();
        let now = clock.now();
        let (mut near, mut far) = (endpoint(now, 1), endpoint(now, 2));
        let config = Config { send_buffer: SEND_BUFFER, ..Config::default() };
        let listener = far.listen(80, config.clone()).expect("a free port");
        let remote = "192.0.2.2:80".parse().expect("an address");
        let id = near.connect(now, config, &[remote]).expect("a path");
        exchange(now, &mut near, &mut far);
        let (peers, _) = far.accept(listener).expect("it is open");
        let wake = Arc::new(Wake::new().expect("memory"));
        let shared = Shared::new(clock, wake, PathCarriers::only(CarrierKind::Queues), near);
        shared.lock().add_connection(id);
        let connection = Connection::new(shared.clone(), id);
        (connection, Self { shared, id, peer: far, peers, takes, own: 0, says: Bytes::new() })
    }

    fn and_says(self, says: &'static [u8]) -> Self {
        Self { says: Bytes::from_static(says), ..self }
    }

    /// Runs until the connection has ended or its last handle is dropped. Returns the bytes that have arrived at the peer, without those
    /// that the driver has written.
    fn run(mut self) -> usize {
        let (shared, mut woken) = (self.shared.clone(), Vec::new());
        let mut arrived = 0;
        loop {
            shared.wake.begin_to_look();
            let mut state = shared.lock();
            arrived += self.turn(&mut state);
            state.collect_wakers(&mut woken);
            let is_over = state.is_closed(self.id);
            drop(state);
            woken.drain(..).for_each(Waker::wake);
            if is_over {
                return arrived - self.own;
            }
            if shared.wake.may_sleep() {
                shared.wake.signal().wait(&[], None).expect("a signal");
            }
        }
    }

    fn turn(&mut self, state: &mut State) -> usize {
        let now = self.shared.clock.now();
        let near = &mut state.endpoint;
        if !self.says.is_empty() {
            self.peer.write(now, self.peers, std::mem::take(&mut self.says));
            self.peer.finish(now, self.peers);
        }
        exchange(now, near, &mut self.peer);
        let mut arrived = 0;
        while let Ok(bytes) = self.peer.read(now, self.peers) {
            arrived += bytes.len();
            exchange(now, near, &mut self.peer);
        }
        let room = near.writable(self.id);
        if self.takes > 0 && room > 0 {
            self.takes -= 1;
            self.own += near.write(now, self.id, Bytes::from_static(&[0; SEND_BUFFER]).slice(..room));
            // There is something to send: the driver does not sleep.
            self.shared.wake.ask();
        }
        arrived
    }
}

/// An endpoint with a path, over which nothing is lost.
fn endpoint(now: Instant, number: u8) -> Endpoint {
    let (wire, secret) = (SeededRandom::new([number; 32]), SecretRandom::new([number; 32]));
    let mut endpoint = Endpoint::with_random(EndpointConfig::default(), Box::new(wire), Box::new(secret));
    let own = Some([192, 0, 2, number].into());
    let path = Path {
        id: PathId(0),
        name: "a".into(),
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
    endpoint.set_path(now, path);
    endpoint
}

/// Exchanges segments until neither has another.
fn exchange(now: Instant, near: &mut Endpoint, far: &mut Endpoint) {
    loop {
        let mut is_over = true;
        while let Some(sent) = near.poll_transmit(now) {
            far.handle_segment(Arrival::at(now), &sent.segment);
            is_over = false;
        }
        while let Some(sent) = far.poll_transmit(now) {
            near.handle_segment(Arrival::at(now), &sent.segment);
            is_over = false;
        }
        if is_over {
            return;
        }
    }
}

/// The signal of a driver that sleeps. It has that of the system, for those parts of the driver that no model runs.
#[derive(Debug)]
pub(crate) struct Signal {
    is_set: Mutex<bool>,
    change: Condvar,
    systems: sys::Signal,
}

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { is_set: Mutex::new(false), change: Condvar::new(), systems: sys::Signal::new()? })
    }

    pub(crate) fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.change.notify_one();
    }

    /// Waits for the signal alone: a lost one is a thread that waits for ever.
    pub(crate) fn wait(&self, _: &[(Source<'_>, Room)], _: Option<Duration>) -> io::Result<()> {
        let mut is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        while !std::mem::take(&mut *is_set) {
            is_set = self.change.wait(is_set).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

impl Deref for Signal {
    type Target = sys::Signal;

    fn deref(&self) -> &sys::Signal {
        &self.systems
    }
}

/// An atomic of which all changes are exchanges. loom lets an exchange read another value than the last one if that was stored by another
/// thread. No processor does that: the exchange would be between two changes that nothing is between.
#[derive(Debug)]
pub(crate) struct AtomicU8(loom::sync::atomic::AtomicU8);

impl AtomicU8 {
    pub(crate) fn new(value: u8) -> Self {
        Self(loom::sync::atomic::AtomicU8::new(value))
    }

    pub(crate) fn store(&self, value: u8, order: Ordering) {
        self.0.swap(value, order);
    }
}

impl Deref for AtomicU8 {
    type Target = loom::sync::atomic::AtomicU8;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

fn explore(model: impl Fn() + Send + Sync + Copy + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || join(spawn(model)));
}

fn spawn(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    loom::thread::Builder::new().stack_size(STACK).spawn(work).expect("memory")
}

fn join(thread: JoinHandle<()>) {
    thread.join().expect("no panic");
}
