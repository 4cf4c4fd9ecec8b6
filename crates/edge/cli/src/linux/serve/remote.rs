//! Ports of this host that lead to a client: `plait forward -R`.
//!
//! A port listens while streams of its client wait for connections. Without one, connections wait in the kernel for a moment, and then the
//! port is closed. It belongs to the key that has asked first.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plait::Fingerprint;
use plait_proxy::asked::refuse;
use plait_proxy::convert::{Destination, ErrorCode};
use plait_proxy::reached::Reached;
use plait_proxy::relay::{Abort, relay};
use plait_proxy::remote::{hold, offer};
use plait_proxy::request;
use plait_proxy::rules::allow;
use plait_proxy::serve::{Client, Outcome, Service};
use plait_proxy::socket;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::shortage::Shortage;

/// How long a port listens without a stream that waits: the client replaces one that was used, or that has ended.
const GRACE: Duration = Duration::from_secs(3);
/// Most ports of a client, and of all clients.
const MOST_OF_CLIENT: usize = 16;
const MOST: usize = 256;

/// All ports that lead to clients.
#[derive(Default)]
pub(super) struct Remotes(Mutex<BTreeMap<SocketAddr, Arc<Remote>>>);

/// A port.
struct Remote {
    at: SocketAddr,
    owner: Fingerprint,
    waiting: Mutex<Waiting>,
    changed: Notify,
}

/// The streams that wait for connections to a port, the latest last.
#[derive(Default)]
struct Waiting {
    next: u64,
    streams: BTreeMap<u64, oneshot::Sender<Incoming>>,
}

type Incoming = (TcpStream, SocketAddr);

/// A stream that waits, until this is dropped.
struct Place {
    remote: Arc<Remote>,
    number: u64,
    incoming: oneshot::Receiver<Incoming>,
}

impl Remotes {
    /// Lets a stream wait for a connection to `at`, which listens from the first one on.
    fn enter(self: &Arc<Self>, owner: Fingerprint, at: SocketAddr) -> Result<Place, ErrorCode> {
        let mut all = self.lock();
        let remote = match all.get(&at) {
            Some(remote) if remote.owner == owner => Arc::clone(remote),
            Some(_) => {
                tracing::info!(%at, key = %owner, "another client has this port");
                return Err(ErrorCode::ResourceExceeded);
            }
            None => {
                let of_client = all.values().filter(|remote| remote.owner == owner).count();
                if of_client >= MOST_OF_CLIENT || all.len() >= MOST {
                    return Err(ErrorCode::ResourceExceeded);
                }
                let listener = listen(at).map_err(|error| {
                    tracing::warn!(%at, %error, "cannot listen for a client");
                    ErrorCode::DestinationUnreachable
                })?;
                let (waiting, changed) = (Mutex::default(), Notify::new());
                let remote = Arc::new(Remote { at, owner, waiting, changed });
                all.insert(at, Arc::clone(&remote));
                tracing::info!(%at, key = %owner, "listening for a client");
                tokio::spawn(accept_all(Arc::clone(&remote), listener, Arc::clone(self)));
                remote
            }
        };
        let (sender, incoming) = oneshot::channel();
        let number = {
            let mut waiting = remote.lock();
            let number = waiting.next;
            waiting.next += 1;
            waiting.streams.insert(number, sender);
            number
        };
        remote.changed.notify_one();
        Ok(Place { remote, number, incoming })
    }

    /// Forgets a port without a stream that waits; returns whether it had none.
    fn forget(&self, remote: &Remote) -> bool {
        let mut all = self.lock();
        let is_idle = remote.lock().streams.is_empty();
        if is_idle {
            all.remove(&remote.at);
        }
        is_idle
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Arc<Remote>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remote {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a connection to the latest stream: the end of an earlier one may not have arrived yet.
    fn hand_over(&self, mut incoming: Incoming) {
        loop {
            let latest = self.lock().streams.pop_last();
            let Some((_, stream)) = latest else { return incoming.0.abort() };
            match stream.send(incoming) {
                Ok(()) => return,
                Err(back) => incoming = back,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remote.lock().streams.remove(&self.number);
        self.remote.changed.notify_one();
        if let Ok((mut stream, _)) = self.incoming.try_recv() {
            stream.abort();
        }
    }
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Accepts connections while streams wait for them.
async fn accept_all(remote: Arc<Remote>, listener: TcpListener, all: Arc<Remotes>) {
    let mut shortage = Shortage::default();
    loop {
        let has_waiting = !remote.lock().streams.is_empty();
        tokio::select! {
            changed = timeout(GRACE, remote.changed.notified()), if !has_waiting => {
                if changed.is_err() && all.forget(&remote) {
                    tracing::info!(at = %remote.at, "no longer listening for a client");
                    return;
                }
            }
            () = remote.changed.notified(), if has_waiting => {}
            accepted = listener.accept(), if has_waiting => match accepted {
                Ok(incoming) => remote.hand_over(incoming),
                Err(error) => shortage.wait(&error).await,
            },
        }
    }
}

/// Serves a stream that asks for a port, to its end. `over` completes when the stream has waited for long enough; without it there is no room.
pub(super) async fn serve<S>(
    stream: &mut S,
    at: SocketAddr,
    (remotes, owner, service): (&Arc<Remotes>, Option<Fingerprint>, &Service),
    (client, over): (Client<'_>, Option<impl Future<Output = ()>>),
) -> io::Result<Outcome>
where
    S: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let asked = Destination::Remote(at);
    let destination = asked.to_string();
    (client.heard)(&destination);
    let is_allowed = match service {
        Service::Forward(_) => false,
        Service::Proxy { rules, .. } => {
            allow(rules, &asked) && client.own_rules.is_none_or(|own| allow(own, &asked))
        }
    };
    // Without keys, a port would belong to no client.
    let entered = match (owner.filter(|_| is_allowed), over) {
        (None, _) => Err(ErrorCode::NotAuthorized),
        (Some(_), None) => Err(ErrorCode::ResourceExceeded),
        (Some(owner), Some(over)) => remotes.enter(owner, at).map(|place| (place, over)),
    };
    let (mut place, over) = match entered {
        Ok(entered) => entered,
        Err(code) => {
            refuse(stream, code).await?;
            return Ok(Outcome::Refused { destination, code });
        }
    };
    (client.joined)(Reached::remote(at));
    request::reply(stream, Ok(client.instance)).await?;
    let mut got = Vec::new();
    let event = async {
        tokio::select! {
            biased;
            incoming = &mut place.incoming => match incoming {
                Ok(incoming) => Some(incoming),
                Err(_) => pending().await,
            },
            () = over => None,
        }
    };
    let Some(Some((mut incoming, from))) = hold(stream, &mut got, event, client.instance).await? else {
        drop(place);
        stream.shutdown().await?;
        return Ok(Outcome::Complete { destination, received: 0, sent: 0 });
    };
    drop(place);
    socket::prepare(&incoming);
    let first = match offer(stream, got, from).await {
        Ok(first) => first,
        Err(error) => {
            incoming.abort();
            stream.abort();
            return Err(io::Error::other(error));
        }
    };
    incoming.write_all(&first).await?;
    let (received, sent) = relay(stream, &mut incoming, client.silence).await?;
    Ok(Outcome::Complete { destination, received: received + first.len() as u64, sent })
}
