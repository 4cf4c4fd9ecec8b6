//! Connections of clients to `serve` that were greeted and wait for a request.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use plait::{Fingerprint, Stream};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::running::Running;
use crate::server_identity::shown_by;

/// How long a connection may wait. Clients end theirs earlier.
const PATIENCE: Duration = Duration::from_secs(300);
/// All that wait are at most this part of all possible connections.
const PART: usize = 4;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitingLimit {
    /// Let N connections of one client (its key, or with --anyone its address) wait for a request, each for five minutes (see --warm of proxy).
    /// All clients together have a quarter of --max-connections. Further ones are closed after the greeting.
    #[arg(long, value_name = "N", default_value = "16")]
    max_warm: u16,
}

impl WaitingLimit {
    pub(crate) fn most(self) -> usize {
        self.max_warm.into()
    }
}

/// A client, as far as connections are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Whose {
    Key([u8; 32]),
    /// An address; of IPv6 the first 64 bits.
    Address(IpAddr),
}

/// All connections without a request.
#[derive(Debug)]
pub(crate) struct WaitingClients {
    /// Most of one client that wait.
    most: AtomicUsize,
    /// Whether keys tell clients apart. Where every client is accepted, it may have as many keys as it likes.
    by_key: bool,
    counts: Mutex<Counts>,
    running: Running,
    stops: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Connections without a request, also those that were not greeted yet.
    unasked: usize,
    /// Those that wait.
    waiting: BTreeMap<Whose, usize>,
}

/// The client of a connection without a request, until this is dropped.
#[derive(Debug)]
pub(crate) struct WaitingClient {
    all: Arc<WaitingClients>,
    whose: Whose,
}

/// One waiting connection, until this is dropped.
#[derive(Debug)]
struct Place {
    all: Arc<WaitingClients>,
    whose: Whose,
}

impl WaitingClients {
    /// At most this many of one client wait.
    pub(crate) fn new(most: usize, by_key: bool, running: Running) -> Arc<Self> {
        let (most, counts) = (AtomicUsize::new(most), Mutex::default());
        Arc::new(Self { most, by_key, counts, running, stops: watch::Sender::new(false) })
    }

    /// The client of a connection that was accepted.
    pub(crate) fn client(self: &Arc<Self>, stream: &Stream) -> WaitingClient {
        let key = shown_by(stream.peer_identity()).filter(|_| self.by_key);
        self.arrives(Whose::of(key, stream.peer_addr().ip()))
    }

    fn arrives(self: &Arc<Self>, whose: Whose) -> WaitingClient {
        self.count(|counts| counts.unasked += 1);
        WaitingClient { all: Arc::clone(self), whose }
    }

    fn count<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut counts);
        self.running.has_ready(counts.unasked);
        result
    }

    fn enter(self: &Arc<Self>, whose: Whose, possible: usize) -> Option<Place> {
        let most = self.most.load(Ordering::Relaxed);
        let is_in = self.count(|Counts { waiting, .. }| {
            let of_client = waiting.get(&whose).copied().unwrap_or_default();
            let has_room = of_client < most && waiting.values().sum::<usize>() < possible;
            has_room.then(|| waiting.insert(whose, of_client + 1)).is_some()
        });
        is_in.then(|| Place { all: Arc::clone(self), whose })
    }

    /// Sets the most of one client. Those beyond it stay.
    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// True while none may wait.
    pub(crate) fn stops(&self) -> watch::Receiver<bool> {
        self.stops.subscribe()
    }

    /// Ends all, and lets none wait until this is undone.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.stops.send_replace(is_paused);
    }

    /// Ends all, and lets none wait from now on.
    pub(crate) fn stop(&self) {
        self.set_most(0);
        self.stops.send_replace(true);
    }
}

impl WaitingClient {
    /// Lets its connection wait; the future completes when it has to end. `None`: too many wait already. `possible` is the number of
    /// possible connections of all clients.
    pub(crate) fn wait(&self, possible: usize) -> Option<impl Future<Output = ()> + use<>> {
        let place = self.all.enter(self.whose, possible / PART)?;
        let mut stops = self.all.stops.subscribe();
        Some(async move {
            tokio::select! {
                () = sleep(PATIENCE) => {}
                // The sender lives as long as the place.
                _ = stops.wait_for(|stops| *stops) => {}
            }
            drop(place);
        })
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.all.count(|counts| counts.unasked -= 1);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.count(|Counts { waiting, .. }| {
            if let Some(count) = waiting.get_mut(&self.whose) {
                *count -= 1;
                if *count == 0 {
                    waiting.remove(&self.whose);
                }
            }
        });
    }
}

impl Whose {
    pub(crate) fn of(key: Option<Fingerprint>, address: IpAddr) -> Self {
        match (key, address.to_canonical()) {
            (Some(key), _) => Self::Key(*key.as_bytes()),
            (None, IpAddr::V6(address)) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Self::Address(Ipv6Addr::from_bits(network).into())
            }
            (None, address @ IpAddr::V4(_)) => Self::Address(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::arguments::Arguments;
    use crate::reload::Reload;

    fn at(address: &str) -> Whose {
        Whose::of(None, address.parse().expect("an address"))
    }

    fn waiting(most: usize) -> Arc<WaitingClients> {
        let words = ["plait", "status"].map(Into::into).to_vec();
        let arguments = Arguments::read(words.clone()).expect("a command");
        WaitingClients::new(most, true, Running::new("serve", "port 1", Reload::new(words, &arguments)))
    }

    fn client(all: &Arc<WaitingClients>, whose: Whose) -> WaitingClient {
        all.arrives(whose)
    }

    #[test]
    fn each_client_has_its_share_and_all_together_have_a_quarter() {
        let all = waiting(2);
        let [ada, eve, bob] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(at);
        let first = client(&all, ada).wait(12);
        let second = client(&all, ada).wait(12);
        assert!(
            first.is_some() && second.is_some() && client(&all, ada).wait(12).is_none(),
            "two of a client"
        );
        let third = client(&all, eve).wait(12);
        assert!(third.is_some() && client(&all, bob).wait(12).is_none(), "three of all");
        drop(first);
        assert!(client(&all, bob).wait(12).is_some(), "one has gone");
        let key = Fingerprint::new([7; 32]);
        assert_eq!(Whose::of(Some(key), [192, 0, 2, 1].into()), Whose::of(Some(key), [192, 0, 2, 9].into()));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_over_after_some_minutes_or_when_the_server_stops() {
        let all = waiting(2);
        let ada = client(&all, at("192.0.2.1"));
        let begun = tokio::time::Instant::now();
        ada.wait(100).expect("room").await;
        assert!((300..302).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        let wait = ada.wait(100).expect("room again");
        all.stop();
        wait.await;
        assert!(begun.elapsed().as_secs() < 302 && ada.wait(100).is_none(), "it stops");
    }
}
