use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use plait_base::{SecretRandom, SeededRandom};
use plait_endpoint::{Endpoint, EndpointConfig};
use plait_mptcp::{Config, Path, PathClass};

use super::*;
use crate::clock::Clock;

#[test]
fn both_tasks_are_woken_when_the_connection_has_closed() {
    let read = connection();
    let write = read.clone();
    let (reader, writer) = (Task::new(), Task::new());
    let mut closed_for_reader = pin!(read.closed());
    let mut closed_for_writer = pin!(write.closed());
    assert!(closed_for_reader.as_mut().poll(&mut reader.context()).is_pending());
    assert!(closed_for_writer.as_mut().poll(&mut writer.context()).is_pending());
    // The same task asks again, as in a loop of `select!`: it is kept once.
    assert!(closed_for_reader.as_mut().poll(&mut reader.context()).is_pending());
    read.abort();
    wake_tasks(&read);
    assert_eq!((reader.wakes(), writer.wakes()), (1, 1));
    assert!(closed_for_reader.as_mut().poll(&mut reader.context()).is_ready());
    assert!(closed_for_writer.as_mut().poll(&mut writer.context()).is_ready());
}

#[test]
fn every_task_that_waits_for_the_opening_is_woken() {
    let connection = connection();
    let (one, other) = (Task::new(), Task::new());
    let (mut opened_for_one, mut opened_for_other) = (pin!(connection.opened()), pin!(connection.opened()));
    assert!(opened_for_one.as_mut().poll(&mut one.context()).is_pending());
    assert!(opened_for_other.as_mut().poll(&mut other.context()).is_pending());
    connection.abort();
    wake_tasks(&connection);
    assert_eq!((one.wakes(), other.wakes()), (1, 1));
}

#[test]
fn a_future_that_is_dropped_leaves_no_waker_and_takes_none_of_another_wait_of_its_task() {
    let connection = connection();
    let (task, other) = (Task::new(), Task::new());
    let mut opened = pin!(connection.opened());
    assert!(opened.as_mut().poll(&mut task.context()).is_pending());
    let wakers = || (Arc::strong_count(&task.count), Arc::strong_count(&other.count));
    let waiting = wakers();
    for task in [&task, &other] {
        let mut again = pin!(connection.opened());
        assert!(again.as_mut().poll(&mut task.context()).is_pending());
        assert!(again.as_mut().poll(&mut task.context()).is_pending(), "polled twice, it is kept once");
        let mut closed = pin!(connection.closed());
        assert!(closed.as_mut().poll(&mut task.context()).is_pending());
    }
    assert_eq!(wakers(), waiting, "no event has come");
    connection.abort();
    wake_tasks(&connection);
    assert_eq!((task.wakes(), other.wakes()), (1, 0));
}

#[test]
fn a_writer_waits_when_the_room_is_gone_before_its_bytes_arrive() {
    let connection = connection();
    let Handle { shared, id } = &*connection.0;
    let task = Task::new();
    let mut cuts = 0;
    let written = connection.poll_write(&task.context(), |room| {
        cuts += 1;
        // Meanwhile something else takes all the room.
        let taken = shared.change(|state, now| state.endpoint.write(now, *id, vec![0; room].into()));
        assert_eq!(taken, room);
        Bytes::from_static(b"x")
    });
    assert!(written.is_pending() && cuts == 1, "{written:?} after {cuts}");
    assert_eq!(task.wakes(), 0);
    // The end is told to a writer that waits, too.
    connection.abort();
    wake_tasks(&connection);
    assert_eq!(task.wakes(), 1);
    let written = connection.poll_write(&task.context(), |_| unreachable!("there is no room"));
    assert!(matches!(written, Poll::Ready(Err(_))), "{written:?}");
}

/// A connection that is being opened over a path which nothing answers on.
fn connection() -> Connection {
    let seeded = Box::new(SeededRandom::new([1; 32]));
    let mut endpoint =
        Endpoint::with_random(EndpointConfig::default(), seeded, Box::new(SecretRandom::new([2; 32])));
    let clock = Clock::start();
    let path = Path {
        id: plait_base::PathId(0),
        name: "a".into(),
        network: None,
        class: PathClass::Trusted,
        backup: false,
        v4: Some([192, 0, 2, 1].into()),
        v6: None,
        public_v4: Some([192, 0, 2, 1].into()),
        public_v6: None,
        mtu: 1500,
        up: true,
        datagrams: false,
    };
    endpoint.set_path(clock.now(), path);
    let remote = "192.0.2.2:80".parse().expect("an address");
    let id = endpoint.connect(clock.now(), Config::default(), &[remote]).expect("there is a path");
    let wake = Arc::new(crate::wake::Wake::new().expect("a signal"));
    let shared = Shared::new(clock, wake, crate::PathCarriers::only(crate::CarrierKind::Udp), endpoint);
    shared.lock().add_connection(id);
    Connection::new(shared, id)
}

/// The work of the driver at the end of its turn.
fn wake_tasks(connection: &Connection) {
    let mut woken = Vec::new();
    connection.0.shared.lock().collect_wakers(&mut woken);
    woken.into_iter().for_each(Waker::wake);
}

/// A task, and how often it has been woken.
struct Task {
    count: Arc<Count>,
    waker: Waker,
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Task {
    fn new() -> Self {
        let count = Arc::new(Count::default());
        Self { waker: count.clone().into(), count }
    }

    fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    fn wakes(&self) -> usize {
        self.count.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
