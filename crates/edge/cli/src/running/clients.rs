//! The clients of a server by their keys: the connections of each, and the bytes that it has carried.
//!
//! A client is here once its key has opened a connection. Only keys on the operator's list do, so the operator bounds their number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plait::Fingerprint;
use serde::Serialize;

/// Most clients reported at a time.
const MAX_TOLD: usize = 200;

/// All clients since the start.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    by_key: Mutex<BTreeMap<[u8; 32], Arc<Tally>>>,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Tally {
    key: Fingerprint,
    name: Mutex<String>,
    /// Connections now.
    open: AtomicUsize,
    /// Those with a request among them.
    served: AtomicUsize,
    /// Connections with a request so far.
    connections: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub(crate) struct Open(Arc<Tally>);

/// A connection that counts as served until this is dropped.
#[derive(Debug)]
pub(crate) struct Served(Arc<Tally>);

/// What a client has carried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Carried {
    pub(crate) connections: u64,
    /// Bytes from the client.
    pub(crate) received: u64,
    /// Bytes to the client.
    pub(crate) sent: u64,
}

/// A client, as it is reported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct ClientReport {
    pub(crate) name: String,
    pub(crate) key: String,
    /// Connections with a request now.
    pub(crate) connections_open: usize,
    /// Those that wait for one.
    pub(crate) connections_ready: usize,
    /// Connections with a request since the start of the server.
    pub(crate) connections_opened: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
}

impl Tallies {
    /// The client with this key, which has this name now.
    pub(crate) fn of(&self, key: Fingerprint, name: &str) -> Arc<Tally> {
        let mut clients = self.clients();
        let tally = clients.entry(*key.as_bytes()).or_insert_with(|| Arc::new(Tally::new(key)));
        let mut known = tally.name.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != name {
            name.clone_into(&mut known);
        }
        drop(known);
        Arc::clone(tally)
    }

    /// Connections of the client with this key: all, and those with a request among them.
    pub(crate) fn open(&self, key: Fingerprint) -> (usize, usize) {
        let now =
            |tally: &Arc<Tally>| (tally.open.load(Ordering::Relaxed), tally.served.load(Ordering::Relaxed));
        self.clients().get(key.as_bytes()).map(now).unwrap_or_default()
    }

    /// Counts a refused client.
    pub(crate) fn refuses(&self, why: &'static str) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(why).or_default() += 1;
    }

    /// The refused clients by reason.
    pub(crate) fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What each client has carried, with its name.
    pub(crate) fn carried(&self) -> Vec<(Fingerprint, String, Carried)> {
        let of = |tally: &Arc<Tally>| (tally.key, tally.name(), tally.carried());
        self.clients().values().map(of).collect()
    }

    /// The clients: those with connections first, then by the bytes that they have carried; and the number of all.
    pub(crate) fn reports(&self) -> (Vec<ClientReport>, usize) {
        let mut reports: Vec<_> = self.clients().values().map(|tally| tally.report()).collect();
        let all = reports.len();
        let rank = |report: &ClientReport| {
            let open = report.connections_open + report.connections_ready;
            (open > 0, report.bytes_received.saturating_add(report.bytes_sent))
        };
        reports.sort_by(|one, other| rank(other).cmp(&rank(one)).then_with(|| one.key.cmp(&other.key)));
        reports.truncate(MAX_TOLD);
        (reports, all)
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Arc<Tally>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn new(key: Fingerprint) -> Self {
        Self {
            key,
            name: Mutex::default(),
            open: AtomicUsize::default(),
            served: AtomicUsize::default(),
            connections: AtomicU64::default(),
            received: AtomicU64::default(),
            sent: AtomicU64::default(),
        }
    }

    /// Counts a connection.
    pub(crate) fn opens(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(self))
    }

    /// Counts a connection whose request has come, unless this client has as many as it may have.
    pub(crate) fn serves(self: &Arc<Self>, most: Option<u32>) -> Option<Served> {
        let most = most.map_or(usize::MAX, |most| most as usize);
        let more = |now: usize| (now < most).then_some(now + 1);
        self.served.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        self.connections.fetch_add(1, Ordering::Relaxed);
        Some(Served(Arc::clone(self)))
    }

    pub(crate) fn receives(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sends(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn carried(&self) -> Carried {
        Carried {
            connections: self.connections.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
        }
    }

    fn report(&self) -> ClientReport {
        let Carried { connections, received, sent } = self.carried();
        let served = self.served.load(Ordering::Relaxed);
        ClientReport {
            name: self.name(),
            key: self.key.to_string(),
            connections_open: served,
            connections_ready: self.open.load(Ordering::Relaxed).saturating_sub(served),
            connections_opened: connections,
            bytes_received: received,
            bytes_sent: sent,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.served.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Fingerprint {
        Fingerprint::new([number; 32])
    }

    #[test]
    fn a_client_has_as_many_connections_as_it_may_have_whatever_it_is_called() {
        let tallies = Tallies::default();
        let (ada, eve) = (tallies.of(key(1), "ada"), tallies.of(key(2), "ada"));
        let first = ada.serves(Some(2)).expect("one");
        let _second = ada.serves(Some(2)).expect("two");
        assert!(ada.serves(Some(2)).is_none() && eve.serves(Some(2)).is_some());
        drop(first);
        assert!(tallies.of(key(1), "renamed").serves(Some(2)).is_some(), "one has gone");
        assert!(ada.serves(None).is_some(), "no limit");
        assert_eq!(tallies.open(key(1)), (0, 1));
        assert_eq!(tallies.open(key(3)), (0, 0));
    }

    #[test]
    fn clients_are_reported_up_to_a_limit_and_those_with_connections_first() {
        let tallies = Tallies::default();
        for number in 0..=255 {
            tallies.of(key(number), "x").receives(usize::from(number));
        }
        let waits = tallies.of(key(0), "waits").opens();
        let (reports, all) = tallies.reports();
        assert_eq!((reports.len(), all), (MAX_TOLD, 256));
        assert_eq!((reports[0].name.as_str(), reports[0].connections_ready), ("waits", 1));
        assert_eq!(reports[1].bytes_received, 255);
        drop(waits);
        assert_eq!(tallies.reports().0[0].bytes_received, 255);
    }
}
