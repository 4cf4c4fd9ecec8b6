//! The connections of `run`, `proxy` and `forward` to their server, as all tasks share them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plait::{Host, Peer, Protection, Remote, Stream};
use plait_proxy::client;
use plait_proxy::convert::Instance;
use tokio::time::timeout;

use crate::running::{Progress, Running};
use crate::server_addresses::ServerAddresses;
use crate::time_limit::TimeLimit;
use crate::warm::Warm;

/// The connections to the server, and their data.
pub(crate) struct Line {
    /// The name of the server for people.
    pub(crate) name: String,
    pub(crate) running: Running,
    pub(crate) host: Host,
    pub(crate) addresses: ServerAddresses,
    pub(crate) warm: Warm,
    pub(crate) protection: Protection,
    /// The identity in the first answer, if it is proved.
    pub(crate) server: Peer,
    /// Of one opening.
    pub(crate) limit: Duration,
    /// Bytes that went through all streams, both directions together.
    pub(crate) moved: AtomicU64,
    /// Bytes that were written to each stream.
    pub(crate) written: Mutex<BTreeMap<u64, Arc<AtomicU64>>>,
}

/// What a connection carries beside its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    Nothing,
    Datagrams,
}

impl Line {
    /// Opens a connection.
    pub(crate) async fn open(&self, beside: Beside) -> io::Result<Stream> {
        let limit = TimeLimit::new(Some(self.limit));
        self.addresses.try_each(limit, |remote| self.open_at(remote, beside, limit)).await
    }

    async fn open_at(&self, remote: Remote, beside: Beside, limit: TimeLimit) -> io::Result<Stream> {
        let protection = match beside {
            Beside::Nothing => self.protection.clone(),
            Beside::Datagrams => self.protection.clone().datagrams(),
        };
        Ok(self.host.connect_with(remote, protection, &limit.rest()).await?)
    }

    /// Asks which instance of the server answers at `address` now, over a connection of its own. Only a sealed answer of the server of the
    /// start counts.
    pub(crate) async fn instance(&self, address: SocketAddr, limit: Duration) -> Option<Instance> {
        if !is_proved(&self.server) {
            return None;
        }
        let asked = timeout(limit, async {
            let within = TimeLimit::new(Some(self.limit));
            let mut stream = self.open_at(self.addresses.at([address]), Beside::Nothing, within).await?;
            if *stream.peer_identity() != self.server {
                return Ok(None);
            }
            client::greet(&mut stream).await
        });
        match asked.await {
            Ok(Ok(instance)) => instance,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the server does not show its identity");
                None
            }
            Err(_) => None,
        }
    }

    /// Whether a connection is one to this server.
    pub(crate) fn carries(&self, number: u64) -> bool {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    /// Whether data of ours is in flight on a connection.
    pub(crate) fn unacknowledged(&self, progress: Progress) -> bool {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written
            .get(&progress.number)
            .is_some_and(|written| written.load(Ordering::Relaxed) > progress.delivered)
    }

    /// Counts bytes that went through a stream.
    pub(crate) fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Whether a peer has proved its identity.
pub(crate) fn is_proved(peer: &Peer) -> bool {
    matches!(peer, Peer::Key(_) | Peer::Certificate)
}
