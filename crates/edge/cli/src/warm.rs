//! Warm connections: open before a program asks for one.
//!
//! The handshake of a warm connection is over, the server has accepted this client on it, and its other paths join. A request takes
//! one of them and costs no handshake. Recent requests decide how many there are; without requests there are none after some minutes. The
//! connection that asked the server at the start is the first of them. A warm connection follows changes of the paths as any other does.

pub(crate) mod supply;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use clap::Args;
use plait::{Stream, Subflow};
use plait_proxy::convert::Instance;
use plait_proxy::relay::Abort;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The requests of this time decide how many connections are kept.
const RECENT: Duration = Duration::from_secs(60);
/// Time after the last request from which none are kept.
const SILENCE: Duration = Duration::from_secs(180);
/// Fewest connections before that: a program asks for a name, and then for its address.
const FEWEST: usize = 2;
/// Longest time that one is kept. A server lets it wait for longer, so that its end does not cross a request.
const LONGEST: Duration = Duration::from_secs(240);
/// Most that are opened at a time: requests that wait for a connection of their own come first.
const TOGETHER: usize = 3;
/// Pauses after failures: the first, which doubles each time, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A connection that the server ends so soon: the server lets no more of them wait.
const TURNED_AWAY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WarmLimit {
    /// Keep up to N connections to the server open for the next requests, so that these wait for no handshake. As many are kept as there
    /// were requests in the last minute, at least 2; none after three minutes without a request, and none with --cap. 0: each request opens its
    /// connection.
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(..=64))]
    warm: u16,
}

impl WarmLimit {
    pub(crate) fn most(self) -> usize {
        self.warm.into()
    }
}

/// The warm connections to one server.
#[derive(Debug)]
pub(crate) struct Warm {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    most: usize,
    /// The oldest first.
    kept: VecDeque<Kept>,
    demand: Demand,
    pause: Pause,
}

/// A connection that waits for a request.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) stream: Stream,
    /// The instance of the server that has greeted it.
    pub(crate) instance: Option<Instance>,
    since: Instant,
}

/// The times of requests, the oldest first.
#[derive(Debug, Default)]
struct Demand(VecDeque<Instant>);

/// The pause after failures to open one.
#[derive(Debug, Default)]
struct Pause {
    since: Option<Instant>,
    /// Its length.
    last: Duration,
}

/// How many should be there, and how many are.
#[derive(Clone, Copy, Debug)]
struct Stock {
    wanted: usize,
    have: usize,
    /// How many may be opened at a time now.
    together: usize,
}

impl Warm {
    /// Keeps at most this many, `first` among them. The start counts as a request.
    pub(crate) fn new(most: usize, first: Kept) -> Self {
        let mut demand = Demand::default();
        demand.note(Instant::now());
        let kept = [first].into_iter().take(most).collect();
        Self {
            state: Mutex::new(State { most, kept, demand, pause: Pause::default() }),
            changed: Notify::new(),
        }
    }

    /// Takes a connection for a request, the newest that works.
    pub(crate) fn take(&self) -> Option<Kept> {
        let mut state = self.state();
        state.demand.note(Instant::now());
        let usable = state.kept.iter_mut().rposition(Kept::works);
        let taken = usable.and_then(|index| state.kept.remove(index));
        drop(state);
        self.changed.notify_one();
        taken
    }

    /// Ends those that there are: the server may not know them any more.
    pub(crate) fn distrust(&self) {
        // They are dropped without the lock.
        let gone = std::mem::take(&mut self.state().kept);
        gone.iter().for_each(|kept| kept.stream.abort());
        self.changed.notify_one();
    }

    /// Sets the most connections; those beyond it are ended.
    pub(crate) fn set_most(&self, most: usize) {
        self.state().most = most;
        self.changed.notify_one();
    }

    /// Ends all, also those that are being opened, and keeps none from now on.
    pub(crate) fn close(&self) {
        let gone = std::mem::take(&mut self.state().kept);
        drop(gone);
        self.set_most(0);
    }

    fn add(&self, kept: Kept) {
        self.state().kept.push_back(kept);
    }

    fn has_failed(&self) {
        self.state().pause.grow(Instant::now());
    }

    /// Takes out those that have failed or that are too old or too many. None are kept while a path `is_metered`: they would use it unasked.
    fn tidy(&self, is_metered: bool) -> (Stock, Vec<Kept>) {
        let now = Instant::now();
        let mut state = self.state();
        let most = if is_metered { 0 } else { state.most };
        let wanted = state.demand.wanted(now, most);
        let (kept, mut gone, mut have) = (std::mem::take(&mut state.kept), Vec::new(), 0);
        // The newest first.
        for mut kept in kept.into_iter().rev() {
            let age = now.duration_since(kept.since);
            let (has_ended, works) = (kept.has_ended(), kept.works());
            if has_ended && age < TURNED_AWAY {
                state.pause.grow(now);
            } else if works && age >= TURNED_AWAY && state.pause.since.is_some_and(|since| kept.since > since)
            {
                // The server lets more of them wait.
                state.pause = Pause::default();
            }
            // One that does not work now may do so after an outage; another one takes its place meanwhile.
            if has_ended || age >= LONGEST || have >= wanted || state.kept.len() >= 2 * wanted {
                gone.push(kept);
            } else {
                have += usize::from(works);
                state.kept.push_front(kept);
            }
        }
        let together = match state.pause.until() {
            None => TOGETHER,
            Some(until) if now < until => 0,
            // After a failure one shows whether the server takes more.
            Some(_) => 1,
        };
        (Stock { wanted, have, together }, gone)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// A connection that the server has greeted now.
    pub(crate) fn new(stream: Stream, instance: Option<Instance>) -> Self {
        Self { stream, instance, since: Instant::now() }
    }

    /// Whether the server has ended it, or all its paths have failed for good. The server says nothing on it before a request.
    fn has_ended(&mut self) -> bool {
        let (mut byte, mut context) = ([0], Context::from_waker(Waker::noop()));
        let read = Pin::new(&mut self.stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte));
        read.is_ready() || self.stream.check().is_err()
    }

    /// Whether a request can leave on it now.
    fn works(&mut self) -> bool {
        !self.has_ended() && self.stream.paths().iter().any(Subflow::is_usable)
    }
}

impl Demand {
    /// Most times that are kept: more than connections.
    const MOST: usize = 64;

    fn note(&mut self, now: Instant) {
        if self.0.len() >= Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    fn wanted(&self, now: Instant, most: usize) -> usize {
        let within = |time: Duration| self.0.iter().filter(|at| now.duration_since(**at) < time).count();
        match within(SILENCE) {
            0 => 0,
            _ => within(RECENT).max(FEWEST).min(most),
        }
    }
}

impl Pause {
    /// Failures during a pause are those of its beginning.
    fn grow(&mut self, now: Instant) {
        if self.until().is_some_and(|until| now < until) {
            return;
        }
        *self = Self { since: Some(now), last: (self.last * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE) };
    }

    fn until(&self) -> Option<Instant> {
        self.since.map(|since| since + self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(demand: &Demand, now: Instant) -> [usize; 3] {
        [8, 1, 0].map(|most| demand.wanted(now, most))
    }

    #[test]
    fn recent_requests_decide_how_many_are_kept() {
        let (mut demand, start) = (Demand::default(), Instant::now());
        assert_eq!(wanted(&demand, start), [0, 0, 0]);
        demand.note(start);
        assert_eq!(wanted(&demand, start), [FEWEST, 1, 0], "a name and its address");
        (0..4).for_each(|_| demand.note(start));
        assert_eq!(wanted(&demand, start), [5, 1, 0]);
        (0..1000).for_each(|_| demand.note(start));
        assert_eq!(wanted(&demand, start), [8, 1, 0], "no more than the limit");
        assert_eq!(wanted(&demand, start + RECENT), [FEWEST, 1, 0]);
        assert_eq!(wanted(&demand, start + SILENCE), [0, 0, 0], "after minutes of silence none");
    }

    #[test]
    fn a_server_that_takes_none_is_asked_less_and_less_often() {
        let (mut pause, mut now) = (Pause::default(), Instant::now());
        let pauses = [(); 8].map(|()| {
            pause.grow(now);
            let until = pause.until().expect("a pause");
            // The others of the same batch.
            pause.grow(now);
            assert_eq!(pause.until(), Some(until));
            now = until;
            pause.last.as_secs()
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
