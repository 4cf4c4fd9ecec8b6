//! The client's side: programs that send datagrams here, each with a flow to the server.
//!
//! A flow begins with the first datagram of a source, and ends when it is idle, or when the server ends it. After a refusal nothing of the
//! same source is carried for a moment, so that a program that goes on sending does not ask the server with each datagram.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plait::Flow;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::carried::{Idle, TOGETHER, take_from};
use crate::convert::Destination;
use crate::convert::port_of;
use crate::request::RequestError;

/// Most datagrams of a source that wait for its flow.
const MAX_QUEUED: usize = 64;
/// How long nothing of a source is carried after its flow was refused.
const HOLD: Duration = Duration::from_secs(1);
/// Time between two warnings about too many flows.
const WARNING: Duration = Duration::from_secs(60);

/// Opens flows to the server.
pub trait FlowDialer: Send + Sync + 'static {
    /// A flow, which ends when this is dropped.
    type Flow: AsRef<Flow> + Send + Sync + 'static;

    /// Waits until the server has accepted that this client has flows.
    fn is_ready(&self) -> impl Future<Output = Result<(), RequestError>> + Send;

    /// Opens a flow to `to`. The server may still refuse it: the flow has ended then.
    fn open_flow(&self, to: &Destination) -> impl Future<Output = Result<Self::Flow, RequestError>> + Send;
}

/// Takes the answers of a destination to its program.
pub trait Answers: Send + Sync + 'static {
    /// Passes a datagram on.
    fn answer(&self, payload: Bytes) -> impl Future<Output = ()> + Send;
}

/// The flows of several sources.
#[derive(Debug)]
pub struct LocalFlows<K, D> {
    dialer: Arc<D>,
    most: usize,
    flows: BTreeMap<K, Sender<Bytes>>,
    tasks: JoinSet<()>,
    warned: Option<Instant>,
}

impl<K: Ord, D: FlowDialer> LocalFlows<K, D> {
    /// At most this many flows.
    #[must_use]
    pub fn new(dialer: Arc<D>, most: usize) -> Self {
        Self { dialer, most, flows: BTreeMap::new(), tasks: JoinSet::new(), warned: None }
    }

    /// Carries a datagram of the source `key`. Its flow is opened by the first one, to the destination and with the answers of `begin`.
    /// The datagram is dropped if too many wait, or if there are too many flows.
    pub fn carry<A: Answers>(&mut self, key: K, payload: Bytes, begin: impl FnOnce() -> (Destination, A)) {
        // A full queue drops the datagram. A closed one belongs to a flow that has ended.
        let payload = match self.flows.get(&key).map(|queue| queue.try_send(payload.clone())) {
            Some(Ok(()) | Err(tokio::sync::mpsc::error::TrySendError::Full(_))) => return,
            Some(Err(tokio::sync::mpsc::error::TrySendError::Closed(payload))) => payload,
            None => payload,
        };
        while self.tasks.try_join_next().is_some() {}
        if self.flows.len() >= self.most {
            self.flows.retain(|_, queue| !queue.is_closed());
        }
        if self.flows.len() >= self.most && !self.flows.contains_key(&key) {
            return self.warn();
        }
        let (to, answers) = begin();
        let (queue, waiting) = channel(MAX_QUEUED);
        // It has room for one.
        let _ = queue.try_send(payload);
        self.flows.insert(key, queue);
        self.tasks.spawn(carry(Arc::clone(&self.dialer), to, waiting, answers));
    }

    fn warn(&mut self) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARNING) {
            self.warned = Some(Instant::now());
            tracing::warn!(
                flows = self.most,
                "too many flows of datagrams: those of further sources are dropped"
            );
        }
    }
}

/// Carries the datagrams of one source until its flow ends.
async fn carry<D: FlowDialer, A: Answers>(
    dialer: Arc<D>,
    to: Destination,
    mut queue: Receiver<Bytes>,
    answers: A,
) {
    match dialer.open_flow(&to).await {
        Ok(opened) => {
            if exchange(opened.as_ref(), port_of(&to), &mut queue, &answers).await {
                return;
            }
            tracing::debug!(destination = %to, "a flow of datagrams was ended by the server");
        }
        Err(error) => tracing::info!(destination = %to, %error, "a flow of datagrams was not opened"),
    }
    let over = Instant::now() + HOLD;
    loop {
        tokio::select! {
            dropped = queue.recv() => if dropped.is_none() { return },
            () = sleep_until(over) => return,
        }
    }
}

/// Carries datagrams both ways. Returns whether this end has ended the flow.
async fn exchange<A: Answers>(
    flow: &Flow,
    port: Option<u16>,
    queue: &mut Receiver<Bytes>,
    answers: &A,
) -> bool {
    let mut idle = Idle::new(port);
    let mut over = idle.over();
    loop {
        tokio::select! {
            payload = queue.recv() => {
                let Some(payload) = payload else { return true };
                match flow.send(payload) {
                    Ok(()) => {}
                    Err(error) if error.kind() == plait::ErrorKind::Closed => return false,
                    Err(error) => tracing::debug!(%error, "a datagram was dropped"),
                }
                idle.sends();
            }
            arrived = flow.recv() => {
                let Some(payload) = arrived else { return false };
                answers.answer(payload).await;
                idle.is_answered();
            }
            () = sleep_until(over) => {
                over = idle.over();
                if over <= Instant::now() {
                    return true;
                }
            }
        }
    }
}

/// Sends answers to the source of a forward.
struct ToSource {
    socket: Arc<UdpSocket>,
    source: SocketAddr,
}

impl Answers for ToSource {
    async fn answer(&self, payload: Bytes) {
        if let Err(error) = self.socket.send_to(&payload, self.source).await {
            tracing::debug!(%error, "an answer could not be passed on");
        }
    }
}

/// Forwards what arrives at a socket to one destination: a flow for each source. Ends only with the socket.
///
/// # Errors
/// The socket has failed.
pub async fn forward<D: FlowDialer>(
    socket: UdpSocket,
    to: Destination,
    dialer: Arc<D>,
    most: usize,
) -> io::Result<()> {
    let socket = Arc::new(socket);
    let mut flows = LocalFlows::new(dialer, most);
    loop {
        socket.readable().await?;
        for _ in 0..TOGETHER {
            match take_from(&socket) {
                Ok(Some((payload, source))) => flows.carry(source, payload, || {
                    (to.clone(), ToSource { socket: Arc::clone(&socket), source })
                }),
                Ok(None) => break,
                // An answer of ICMP to a program that has ended is about that program.
                Err(error) => tracing::debug!(%error, "no datagram was received"),
            }
        }
    }
}
