//! The UDP of the clients of `serve`: how many flows each may have, and the connections that carry them.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use plait::{Fingerprint, Stream};
use plait_proxy::asked::Asked;
use plait_proxy::clients::Standing;
use plait_proxy::convert::Destination;
use plait_proxy::flows::server::{FlowHost, Unknown};
use plait_proxy::rules::{Rule, for_udp};
use plait_proxy::serve::Service;
use tokio::sync::watch;

use super::Shared;
use crate::linux::waiting_clients::Whose;
use crate::output::say;
use crate::running::Tally;
use crate::server_identity::shown_by;

/// All flows together have at most so many sockets, and this part of those that the limit of open files leaves for connections.
const MOST: usize = 8192;
const PART: usize = 4;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FlowLimit {
    /// Carry at most N flows of UDP of one client (its key, or with --anyone its address) at a time; further ones are refused. A flow is one
    /// source and one destination, and ends after 30 seconds without an answer, or five minutes after its last datagram. All clients together
    /// have at most 8192, and a quarter of the possible connections.
    #[arg(long, value_name = "N", default_value = "512")]
    max_flows: u16,
}

impl FlowLimit {
    pub(super) fn most(self) -> usize {
        self.max_flows.into()
    }
}

/// The flows of all clients.
#[derive(Debug)]
pub(super) struct FlowCounts {
    /// Most of one client.
    most: AtomicUsize,
    /// Most of all.
    most_of_all: usize,
    /// Whether keys tell clients apart.
    by_key: bool,
    open: Mutex<BTreeMap<Whose, usize>>,
}

/// A flow that counts until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    counts: Arc<FlowCounts>,
    whose: Whose,
}

impl FlowCounts {
    /// At most this many of one client, where this many connections are possible.
    pub(super) fn new(most: usize, possible: usize, by_key: bool) -> Arc<Self> {
        let most_of_all = MOST.min(possible / PART).max(1);
        Arc::new(Self { most: AtomicUsize::new(most), most_of_all, by_key, open: Mutex::default() })
    }

    /// Sets the most of one client. Those beyond it stay.
    pub(super) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn enter(self: &Arc<Self>, whose: Whose) -> Option<Place> {
        let mut open = self.open();
        let own = open.get(&whose).copied().unwrap_or_default();
        if own >= self.most.load(Ordering::Relaxed) || open.values().sum::<usize>() >= self.most_of_all {
            return None;
        }
        open.insert(whose, own + 1);
        drop(open);
        Some(Place { counts: Arc::clone(self), whose })
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Whose, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.counts.open();
        let left = open.get(&self.whose).map_or(0, |count| count - 1);
        match left {
            0 => drop(open.remove(&self.whose)),
            left => drop(open.insert(self.whose, left)),
        }
    }
}

/// The client of a connection that carries flows.
pub(super) struct FlowGuest {
    shared: Arc<Shared>,
    key: Option<Fingerprint>,
    whose: Whose,
    tally: Option<Arc<Tally>>,
    received: AtomicU64,
    sent: AtomicU64,
}

impl FlowGuest {
    /// The client of a connection on which flows were asked for.
    pub(super) fn of(
        shared: &Arc<Shared>,
        stream: &Stream,
        (request, tally): (&io::Result<Asked>, Option<Arc<Tally>>),
    ) -> Option<Arc<Self>> {
        if !matches!(request, Ok(Asked::For(Destination::Datagrams, _))) {
            return None;
        }
        let key = shared.door.key_of(stream);
        let counted = shown_by(stream.peer_identity()).filter(|_| shared.flows.by_key);
        let whose = Whose::of(counted, stream.peer_addr().ip());
        let (received, sent) = Default::default();
        Some(Arc::new(Self { shared: Arc::clone(shared), key, whose, tally, received, sent }))
    }
}

impl FlowHost for FlowGuest {
    type Place = Place;

    fn service(&self) -> Arc<Service> {
        self.shared.service()
    }

    fn own_rules(&self) -> Result<Option<Vec<Rule>>, Unknown> {
        let Some(key) = self.key else { return Ok(None) };
        match self.shared.door.standing(key) {
            Standing::Allowed(client) => Ok(client.allow.clone()),
            // Its connection ends, too.
            Standing::Gone => Ok(Some(Vec::new())),
            Standing::Unknown => Err(Unknown),
        }
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.shared.door.changes()
    }

    fn stops(&self) -> watch::Receiver<bool> {
        self.shared.waiting.stops()
    }

    fn enter(&self) -> Option<Place> {
        self.shared.flows.enter(self.whose)
    }

    fn carries(&self, received: usize, sent: usize) {
        self.received.fetch_add(received as u64, Ordering::Relaxed);
        self.sent.fetch_add(sent as u64, Ordering::Relaxed);
        if let Some(tally) = &self.tally {
            tally.receives(received);
            tally.sends(sent);
        }
    }

    fn carried(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }
}

/// Names the UDP that a rule for everything allows: it may be meant for TCP.
pub(super) fn announce(rules: &[Rule]) {
    if rules.iter().any(Rule::is_all) {
        say("clients may send UDP to every host and port, by the rule *:* (without it: udp: rules only)");
    } else if let rules @ [_, ..] = &for_udp(rules)[..] {
        let rules: Vec<_> = rules.iter().map(Rule::to_string).collect();
        say(&format!("clients may send UDP to {}", rules.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_flows_and_all_have_a_part_of_the_descriptors() {
        let whose = |last: u8| Whose::of(None, [192, 0, 2, last].into());
        let counts = FlowCounts::new(2, 16, false);
        let mut places: Vec<_> = [1, 1, 2].into_iter().map(|last| counts.enter(whose(last))).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(counts.enter(whose(1)).is_none(), "it has two");
        places.push(counts.enter(whose(2)));
        assert!(counts.enter(whose(3)).is_none(), "all have four");
        places.remove(0);
        assert!(counts.enter(whose(1)).is_some(), "one has gone");
        places.clear();
        assert!(counts.open().is_empty(), "nothing is kept of clients that have none");
    }
}
