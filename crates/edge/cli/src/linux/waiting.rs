//! Connections that the program of `plait run`, or a program of a host with `plait up`, has begun and that wait for the answer of their destination.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plait_proxy::client::{self, Dialer, Early, ForwardError, Opened};
use plait_proxy::convert::Destination;
use plait_proxy::direct::{Direct, connect_directly};
use plait_proxy::names::Names;
use plait_proxy::run::{Gate, Knock, Syn};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, interval};

use crate::dial::Watched;
use crate::output::say;

/// How long an opened stream waits for its program: some retransmissions of its SYN.
const PATIENCE: Duration = Duration::from_secs(10);

/// A stream that was opened for a connection of the program.
pub(crate) enum Reached {
    Server(Box<Opened<Watched>>),
    Directly(TcpStream),
}

/// Source and destination.
type Way = (SocketAddr, SocketAddr);

enum Begun {
    Opening,
    Open(Reached, Instant),
}

/// All waiting connections. Without a gate there are none: they are accepted at once.
pub(crate) struct Waiting<D> {
    gate: Option<Gate>,
    dial: Arc<D>,
    direct: Arc<Direct>,
    names: Arc<Names>,
    opening: JoinSet<(Syn, Result<Reached, ForwardError>)>,
    begun: BTreeMap<Way, Begun>,
    look: Interval,
    has_told_of_udp: bool,
    has_begun: bool,
    is_quiet: bool,
}

impl<D: Dialer<Stream = Watched>> Waiting<D> {
    pub(crate) fn new(gate: Option<Gate>, dial: Arc<D>, (direct, names): (Arc<Direct>, Arc<Names>)) -> Self {
        let (opening, begun) = (JoinSet::new(), BTreeMap::new());
        let look = interval(PATIENCE / 2);
        Self {
            gate,
            dial,
            direct,
            names,
            opening,
            begun,
            look,
            has_told_of_udp: false,
            has_begun: false,
            is_quiet: false,
        }
    }

    /// Refusals are no warnings: on a whole host there are always some.
    pub(crate) fn quietly(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    /// The number of streams that are being opened.
    pub(crate) fn len(&self) -> usize {
        self.opening.len()
    }

    /// Whether the program has tried to use the network.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the stream for the connection that the kernel has accepted.
    pub(crate) fn take(&mut self, from: SocketAddr, to: SocketAddr) -> Option<Reached> {
        match self.begun.remove(&(from, to))? {
            Begun::Open(reached, _) => Some(reached),
            Begun::Opening => None,
        }
    }

    /// Waits for the next event and handles it. Dropping the future loses nothing. New connections wait in the kernel while there is no
    /// room.
    ///
    /// # Errors
    /// The gate failed.
    pub(crate) async fn step(&mut self, has_room: bool) -> io::Result<()> {
        let Some(gate) = &mut self.gate else { return std::future::pending().await };
        tokio::select! {
            knock = gate.next(), if has_room => self.begins(knock?),
            Some(ended) = self.opening.join_next() => {
                // A cancelled opening is not reported.
                if let Ok((syn, outcome)) = ended {
                    self.ends(&syn, outcome);
                }
            }
            _ = self.look.tick() => {
                let is_late = |begun: &Begun| matches!(begun, Begun::Open(_, since) if since.elapsed() > PATIENCE);
                self.begun.retain(|_, begun| !is_late(begun));
            }
        }
        Ok(())
    }

    fn begins(&mut self, knock: Knock) {
        self.has_begun = true;
        let syn = match knock {
            Knock::Tcp(syn) => syn,
            Knock::Udp(to) => return self.tell_of_udp(to),
        };
        match self.begun.get(&(syn.from, syn.to)) {
            None => {
                self.begun.insert((syn.from, syn.to), Begun::Opening);
                let destination = self.names.destination(syn.to);
                self.opening.spawn(open(syn, destination, self.dial.clone(), self.direct.clone()));
            }
            // The SYN was sent again, because it still waits or because our copy was lost.
            Some(Begun::Opening) => {}
            Some(Begun::Open(..)) => self.put_back(|gate| gate.admit(&syn)),
        }
    }

    fn ends(&mut self, syn: &Syn, outcome: Result<Reached, ForwardError>) {
        let way = (syn.from, syn.to);
        match outcome {
            Ok(reached) => {
                self.begun.insert(way, Begun::Open(reached, Instant::now()));
                self.put_back(|gate| gate.admit(syn));
            }
            Err(error) => {
                self.begun.remove(&way);
                if self.is_quiet {
                    tracing::info!("a connection of a program was refused: {error}");
                } else {
                    tracing::warn!("a connection of the program was refused: {error}");
                }
                tracing::debug!(to = %syn.to, "it was to go there");
                self.put_back(|gate| gate.refuse(syn));
            }
        }
    }

    /// A segment that is lost here is sent again by the program.
    fn put_back(&self, put: impl FnOnce(&Gate) -> io::Result<()>) {
        if let Some(Err(error)) = self.gate.as_ref().map(put) {
            tracing::debug!(%error, "a segment of the program could not be put back");
        }
    }

    fn tell_of_udp(&mut self, to: SocketAddr) {
        if !self.has_told_of_udp {
            self.has_told_of_udp = true;
            say(&format!(
                "UDP to {to} was refused, as all UDP is: only TCP and DNS are carried. Programs that can use TCP instead"
            ));
        }
    }
}

async fn open<D: Dialer<Stream = Watched>>(
    syn: Syn,
    destination: Destination,
    dial: Arc<D>,
    direct: Arc<Direct>,
) -> (Syn, Result<Reached, ForwardError>) {
    let outcome = if direct.takes(&destination) {
        tracing::info!(destination = %destination, "a connection goes directly");
        connect_directly(&destination).await.map(Reached::Directly).map_err(ForwardError::from)
    } else {
        let opened = client::open(&*dial, destination, Early::Once(&[])).await;
        opened.map(|opened| Reached::Server(Box::new(opened))).map_err(ForwardError::from)
    };
    (syn, outcome)
}
