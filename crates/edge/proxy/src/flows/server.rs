//! The server's side: the flows of one client connection, each with a socket that is connected to its destination.
//!
//! A client has no say in the source of its datagrams: that is an address of this host and a port of the kernel's choice. Only the
//! destination itself can answer, since the socket is connected. Each datagram from one side is one datagram to the other.

use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use plait::{Datagrams, Flow};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::carried::{Idle, TOGETHER, take};
use super::{FlowEnd, Note, parse_destination};
use crate::asked::refuse;
use crate::convert::{Destination, ErrorCode};
use crate::destination::{Unreached, code_of, resolve};
use crate::reached::Reached;
use crate::request;
use crate::rules::{Rule, allow, for_udp};
use crate::serve::{Client, Outcome, Service};
use crate::shared::Shared;

/// Most notes that wait for a client that does not read. Without its note, a flow has ended all the same.
const MAX_NOTES: usize = 256;

/// What a server knows and counts of the client of one connection.
pub trait FlowHost: Send + Sync + 'static {
    /// A flow that counts until this is dropped.
    type Place: Send + 'static;

    /// What the next flow is served with.
    fn service(&self) -> Arc<Service>;

    /// The rules of the client itself now, if it has some.
    ///
    /// # Errors
    /// They are not known now: no flow is opened, and none ends.
    fn own_rules(&self) -> Result<Option<Vec<Rule>>, Unknown>;

    /// Changes when these rules may have.
    fn changes(&self) -> watch::Receiver<()>;

    /// True once this host takes no new requests: a connection without flows ends.
    fn stops(&self) -> watch::Receiver<bool>;

    /// Counts a flow; `None` if the client, or this host, has as many as it may have.
    fn enter(&self) -> Option<Self::Place>;

    /// Counts the bytes of a datagram from the client, or to it.
    fn carries(&self, received: usize, sent: usize);

    /// What was counted so far: bytes from the client, and to it.
    fn carried(&self) -> (u64, u64);
}

/// The rules of a client cannot be read now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown;

/// Runs `work`, and refuses the flows that the client opens meanwhile.
pub async fn without_flows<T>(datagrams: &Datagrams, work: impl Future<Output = T>) -> T {
    let refusing = async {
        while let Some(flow) = datagrams.accept().await {
            drop(flow);
        }
        pending().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = refusing => never,
    }
}

/// Serves the flows of a client that has asked for [`Destination::Datagrams`], until the client ends the stream.
///
/// # Errors
/// The stream failed.
pub async fn serve_flows<S, H>(
    stream: &mut S,
    datagrams: &Datagrams,
    host: &Arc<H>,
    client: Client<'_>,
) -> io::Result<Outcome>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: FlowHost,
{
    let destination = Destination::Datagrams.to_string();
    (client.heard)(&destination);
    if !may_have_flows(host.as_ref()) {
        refuse(stream, ErrorCode::NotAuthorized).await?;
        return Ok(Outcome::Refused { destination, code: ErrorCode::NotAuthorized });
    }
    request::reply(stream, Ok(client.instance)).await?;
    let (note, mut notes) = mpsc::channel::<Note>(MAX_NOTES);
    let shared = Shared::new(stream);
    let (mut from_client, mut to_client) = (&shared, &shared);
    let reading = async {
        // The client has nothing to say: a byte shows that the stream still works.
        let mut bytes = [0; 64];
        while from_client.read(&mut bytes).await? > 0 {}
        io::Result::Ok(())
    };
    let writing = async {
        while let Some(note) = notes.recv().await {
            to_client.write_all(&note.to_bytes()).await?;
        }
        pending::<io::Result<()>>().await
    };
    let carrying = async {
        let (mut flows, mut stops) = (JoinSet::new(), host.stops());
        loop {
            tokio::select! {
                accepted = datagrams.accept() => match accepted {
                    Some((flow, asked)) => drop(flows.spawn(serve_flow(flow, asked, Arc::clone(host), note.clone()))),
                    // The stream says why.
                    None => pending().await,
                },
                Some(_) = flows.join_next() => {}
                true = has_stopped(&mut stops), if flows.is_empty() => return,
            }
        }
    };
    tokio::select! {
        biased;
        read = reading => read?,
        written = writing => written?,
        () = carrying => {}
    }
    stream.shutdown().await?;
    let (received, sent) = host.carried();
    Ok(Outcome::Complete { destination, received, sent })
}

/// Waits until the host takes no new requests. False: that cannot be known any more.
async fn has_stopped(stops: &mut watch::Receiver<bool>) -> bool {
    stops.wait_for(|stops| *stops).await.is_ok()
}

/// Whether any rule may allow a flow.
fn may_have_flows(host: &impl FlowHost) -> bool {
    let allows = |rules: &[Rule]| allow(rules, &Destination::Datagrams);
    match &*host.service() {
        Service::Proxy { rules, .. } => {
            let own = host.own_rules();
            allows(rules) && own.is_ok_and(|own| own.is_none_or(|own| allows(&own)))
        }
        Service::Forward(_) => false,
    }
}

/// Serves one flow to its end, and notes the end if it comes from here.
async fn serve_flow<H: FlowHost>(flow: Flow, asked: Bytes, host: Arc<H>, notes: mpsc::Sender<Note>) {
    let to = parse_destination(&asked).map(|(to, answers)| {
        flow.set_paths(answers);
        to
    });
    let shown = to.as_ref().map_or_else(|_| "unknown".to_owned(), Destination::to_string);
    let mut count = Count::default();
    let ended = match (to, host.enter()) {
        (Err(code), _) => Some(FlowEnd::Failed(code)),
        (Ok(_), None) => Some(FlowEnd::Failed(ErrorCode::ResourceExceeded)),
        (Ok(to), Some(_place)) => match open(&to, host.as_ref()).await {
            Ok(opened) => carry(&flow, opened, (host.as_ref(), &mut count)).await,
            Err(unreached) => Some(FlowEnd::Failed(unreached.code())),
        },
    };
    let Count { received, sent, dropped } = count;
    let reason = ended.map(|end| end.to_string());
    tracing::debug!(destination = %shown, received, sent, dropped, reason, "a flow of datagrams has ended");
    if let Some(end) = ended {
        // The note comes before the end of the flow, if there is room for it.
        let _ = notes.try_send(Note { flow: flow.number(), end });
    }
}

/// Datagrams of a flow.
#[derive(Debug, Default)]
struct Count {
    received: u64,
    sent: u64,
    dropped: u64,
}

/// A flow with its socket.
struct Opened {
    socket: UdpSocket,
    port: u16,
    reached: Reached,
    /// Of the rules of the client.
    changes: watch::Receiver<()>,
}

/// Judges a destination, and connects a socket to it.
async fn open(to: &Destination, host: &impl FlowHost) -> Result<Opened, Unreached> {
    let service = host.service();
    let Service::Proxy { rules, nameservers, services: _ } = &*service else {
        return Err(Unreached::Refused(ErrorCode::NotAuthorized));
    };
    // What changes from here on is judged again.
    let changes = host.changes();
    let own = host.own_rules().map_err(|Unknown| Unreached::Refused(ErrorCode::NotAuthorized))?;
    let (rules, own) = (for_udp(rules), own.map(|own| for_udp(&own)));
    let addresses = resolve(to, &rules, own.as_deref(), nameservers).await?;
    let mut failed = Unreached::Refused(ErrorCode::DestinationUnreachable);
    for at in addresses {
        match connected(at).await {
            Ok(socket) => {
                let reached = Reached::asked(to, own.as_deref(), at);
                return Ok(Opened { socket, port: at.port(), reached, changes });
            }
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}

async fn connected(at: SocketAddr) -> io::Result<UdpSocket> {
    let any = match at {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(at).await?;
    Ok(socket)
}

/// Carries datagrams both ways. Returns the reason of an end that comes from here; `None` if the client has ended the flow.
async fn carry(
    flow: &Flow,
    Opened { socket, port, reached, mut changes }: Opened,
    (host, count): (&impl FlowHost, &mut Count),
) -> Option<FlowEnd> {
    let mut idle = Idle::new(Some(port));
    let mut over = idle.over();
    loop {
        tokio::select! {
            arrived = flow.recv() => {
                let payload = arrived?;
                match socket.send(&payload).await {
                    Ok(_) => {
                        host.carries(payload.len(), 0);
                        count.received += 1;
                    }
                    Err(error) if is_passing(&error) => count.dropped += 1,
                    Err(error) => return Some(FlowEnd::Failed(code_of(&error))),
                }
                idle.sends();
            }
            ready = socket.readable() => {
                ready.ok()?;
                for _ in 0..TOGETHER {
                    let payload = match take(&socket) {
                        Ok(Some(payload)) => payload,
                        Ok(None) => break,
                        Err(error) => return Some(FlowEnd::Failed(code_of(&error))),
                    };
                    let length = payload.len();
                    match flow.send(payload) {
                        Ok(()) => {
                            host.carries(0, length);
                            count.sent += 1;
                        }
                        Err(error) if error.kind() == plait::ErrorKind::Closed => return None,
                        // It is longer than all paths allow.
                        Err(_) => count.dropped += 1,
                    }
                    idle.is_answered();
                }
            }
            () = sleep_until(over) => {
                over = idle.over();
                if over <= Instant::now() {
                    return Some(FlowEnd::Idle);
                }
            }
            changed = changes.changed() => {
                changed.ok()?;
                let Ok(own) = host.own_rules() else { continue };
                let own = own.map(|own| for_udp(&own));
                if !reached.is_allowed(own.as_deref()) {
                    return Some(FlowEnd::Failed(ErrorCode::NotAuthorized));
                }
            }
        }
    }
}

/// Whether the next datagram may go out all the same.
fn is_passing(error: &io::Error) -> bool {
    /// `EMSGSIZE` and `ENOBUFS`, for which there is no kind; on Linux.
    const PASSING: [i32; 2] = [90, 105];
    cfg!(target_os = "linux") && error.raw_os_error().is_some_and(|code| PASSING.contains(&code))
}
