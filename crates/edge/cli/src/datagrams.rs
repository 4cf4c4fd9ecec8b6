//! The UDP of programs: flows to the server of `proxy` and `forward`, all over one connection.
//!
//! The connection is opened by the first flow, and ends when there was no flow for a minute. If it fails, its flows end, and the next
//! datagrams of their programs open another one.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use plait::{Datagrams, ErrorKind, Flow, PathChoice};
use plait_proxy::client::Dialer;
use plait_proxy::convert::{Destination, ErrorCode};
use plait_proxy::flows::local::{self, FlowDialer};
use plait_proxy::flows::{self, FlowEnd, NOTE, Note};
use plait_proxy::relay::Abort;
use plait_proxy::request::{self, RequestError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::dial::Watched;
use crate::late_dial::LateDial;

/// Most flows of a socket at which programs send. A server allows a client fewer by default.
pub(crate) const MAX_FLOWS: usize = 1024;
/// Time limit of the answer to the request.
const ANSWER: Duration = Duration::from_secs(20);
/// Time without a flow after which the connection ends.
const UNUSED: Duration = Duration::from_secs(60);
/// After a failure to open the connection, all flows fail for so long.
const PAUSE: Duration = Duration::from_secs(1);
/// Interval between looks at the connection.
const TICK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DatagramOptions {
    /// The paths of each datagram of UDP, and of the answers.
    #[arg(long, value_name = "HOW", value_parser = choice(), default_value = "fastest")]
    datagrams: PathChoice,
}

/// Parses a choice of paths.
fn choice() -> impl TypedValueParser<Value = PathChoice> {
    const CHOICES: [(&str, PathChoice, &str); 3] = [
        ("fastest", PathChoice::Fastest, "The path with the shortest delay"),
        (
            "duplicate",
            PathChoice::Duplicate,
            "Every path: the first copy counts, so that a path that is cut loses nothing",
        ),
        ("spread", PathChoice::Spread, "The paths in turn, by the room that each has"),
    ];
    let values = CHOICES.map(|(name, _, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|name| {
        let named = CHOICES.into_iter().find(|(known, ..)| *known == name);
        named.map_or_else(PathChoice::default, |(_, choice, _)| choice)
    })
}

/// Opens flows to the server.
pub(crate) struct FlowDial {
    dial: Arc<LateDial>,
    paths: PathChoice,
    current: tokio::sync::Mutex<Current>,
}

/// The connection of the flows.
#[derive(Default)]
struct Current {
    open: Option<Arc<Association>>,
    /// The last failure to open one.
    failed: Option<(Instant, Failure)>,
}

/// A failure that several flows share.
#[derive(Clone, Debug)]
enum Failure {
    Refused(ErrorCode),
    Nonsense(ErrorCode),
    Lost(io::ErrorKind, String),
}

/// A connection that the server has accepted for flows.
struct Association {
    datagrams: Datagrams,
    uses: Arc<Mutex<Uses>>,
    attending: JoinHandle<()>,
}

/// The use of a connection by flows.
#[derive(Debug)]
struct Uses {
    has_ended: bool,
    /// Flows that are open, or being opened.
    count: usize,
    /// Since when there is none.
    unused_since: Instant,
    /// Their destinations, for the log.
    destinations: BTreeMap<u32, String>,
}

/// A place on a connection, for one flow.
struct Use(Arc<Association>);

/// A flow to the server.
pub(crate) struct OpenFlow {
    // It is dropped first.
    flow: Flow,
    place: Use,
}

/// A socket at which programs send datagrams.
///
/// # Errors
/// The address cannot be bound, or no connection could carry datagrams.
pub(crate) async fn bind(at: SocketAddr, is_sealed: bool) -> anyhow::Result<UdpSocket> {
    if !is_sealed {
        bail!("only sealed connections carry UDP\n  fix: leave out --protect, or the forward of udp:");
    }
    UdpSocket::bind(at).await.with_context(|| format!("cannot receive datagrams at {at}"))
}

/// Forwards the datagrams of one port.
pub(crate) async fn forward_all(socket: UdpSocket, to: Destination, flows: Arc<FlowDial>) {
    if let Err(error) = local::forward(socket, to, flows, MAX_FLOWS).await {
        tracing::error!(%error, "a port forwards no datagrams any more");
    }
}

impl FlowDial {
    pub(crate) fn new(dial: Arc<LateDial>, options: DatagramOptions) -> Arc<Self> {
        Arc::new(Self { dial, paths: options.datagrams, current: tokio::sync::Mutex::default() })
    }

    /// A place on the connection, which is opened if there is none.
    async fn place(&self) -> Result<Use, RequestError> {
        // One flow opens it, and the others wait.
        let mut current = self.current.lock().await;
        if let Some(place) = current.open.as_ref().and_then(Use::of) {
            return Ok(place);
        }
        if let Some((at, failure)) = &current.failed
            && at.elapsed() < PAUSE
        {
            return Err(failure.clone().into());
        }
        match Association::open(&self.dial).await {
            Ok(open) => {
                let open = Arc::new(open);
                *current = Current { open: Some(Arc::clone(&open)), failed: None };
                Use::of(&open).ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset).into())
            }
            Err(error) => {
                *current = Current { open: None, failed: Some((Instant::now(), Failure::from(&error))) };
                Err(error)
            }
        }
    }
}

impl FlowDialer for FlowDial {
    type Flow = OpenFlow;

    async fn is_ready(&self) -> Result<(), RequestError> {
        self.place().await.map(drop)
    }

    async fn open_flow(&self, to: &Destination) -> Result<OpenFlow, RequestError> {
        let too_long = || RequestError::Nonsense(ErrorCode::MalformedMessage);
        let destination = flows::destination(to, self.paths).ok_or_else(too_long)?;
        let place = self.place().await?;
        match place.0.datagrams.open(destination, self.paths).await {
            Ok(flow) => {
                place.0.uses().destinations.insert(flow.number(), to.to_string());
                Ok(OpenFlow { flow, place })
            }
            Err(error) if error.kind() == ErrorKind::Busy => {
                Err(RequestError::Refused(ErrorCode::ResourceExceeded))
            }
            Err(error) => Err(io::Error::new(io::ErrorKind::Unsupported, error).into()),
        }
    }
}

impl AsRef<Flow> for OpenFlow {
    fn as_ref(&self) -> &Flow {
        &self.flow
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        self.place.0.uses().destinations.remove(&self.flow.number());
    }
}

impl Association {
    async fn open(dial: &Arc<LateDial>) -> Result<Self, RequestError> {
        let mut stream = dial.dial_with_datagrams().await?;
        let asked = async {
            request::ask(&mut stream, Destination::Datagrams).await?;
            request::answer(&mut stream).await
        };
        let late = |_| RequestError::from(io::Error::from(io::ErrorKind::TimedOut));
        let answered = match timeout(ANSWER, asked).await.map_err(late).flatten() {
            Ok(answered) => answered,
            Err(error) => {
                stream.abort();
                return Err(error);
            }
        };
        dial.answered(dial.number(&stream), answered.instance);
        let uses =
            Uses { has_ended: false, count: 0, unused_since: Instant::now(), destinations: BTreeMap::new() };
        let (datagrams, uses) = (stream.datagrams(), Arc::new(Mutex::new(uses)));
        let attending = tokio::spawn(attend(stream, answered.first, Arc::clone(&uses)));
        Ok(Self { datagrams, uses, attending })
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        locked(&self.uses)
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.attending.abort();
    }
}

fn locked(uses: &Mutex<Uses>) -> MutexGuard<'_, Uses> {
    uses.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Use {
    /// A place on this connection, unless it has ended.
    fn of(association: &Arc<Association>) -> Option<Self> {
        let mut uses = association.uses();
        if uses.has_ended {
            return None;
        }
        uses.count += 1;
        drop(uses);
        Some(Self(Arc::clone(association)))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut uses = self.0.uses();
        uses.count -= 1;
        uses.unused_since = Instant::now();
    }
}

impl Uses {
    /// Ends the connection if it is not used any more.
    fn end_if_unused(&mut self) -> bool {
        self.has_ended |= self.count == 0 && self.unused_since.elapsed() >= UNUSED;
        self.has_ended
    }

    fn hears(&self, note: Note) {
        let destination = self.destinations.get(&note.flow);
        match note.end {
            FlowEnd::Failed(_) => {
                tracing::info!(destination, reason = %note.end, "the server has ended a flow of datagrams");
            }
            FlowEnd::Idle => {
                tracing::debug!(destination, reason = %note.end, "the server has ended a flow of datagrams");
            }
        }
    }
}

/// Reads the notes of the server, until the connection has failed or is not used any more.
async fn attend(mut stream: Watched, first: Vec<u8>, uses: Arc<Mutex<Uses>>) {
    let datagrams = stream.datagrams();
    let (mut heard, mut silence) = (first, Silence::default());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while let Some((note, rest)) = heard.split_first_chunk::<NOTE>() {
            locked(&uses).hears(Note::parse(*note));
            heard = rest.to_vec();
        }
        tokio::select! {
            read = stream.read_buf(&mut heard) => if !read.is_ok_and(|read| read > 0) { break },
            // The server has no flows of its own.
            offered = datagrams.accept() => if offered.is_none() { break },
            _ = ticks.tick() => {
                if locked(&uses).end_if_unused() {
                    let _ = stream.shutdown().await;
                    break;
                }
                // An unacknowledged byte has the server watched.
                if silence.is_silent(&stream) && stream.write_all(&[0]).await.is_err() {
                    break;
                }
            }
        }
    }
    locked(&uses).has_ended = true;
    tracing::debug!("the connection of the flows has ended");
}

/// Datagrams that leave while none arrives.
#[derive(Debug, Default)]
struct Silence {
    sent: u64,
    received: u64,
    /// Looks at which more had left and none had arrived.
    looks: u32,
}

impl Silence {
    /// Looks at the counts; returns whether there is silence for two looks.
    fn is_silent(&mut self, stream: &Watched) -> bool {
        let Some(totals) = stream.status().and_then(|status| status.datagrams()) else { return false };
        // Those that the window holds back without reports of the peer are dropped.
        let sent = totals.sent + totals.sent_in_stream + totals.dropped;
        // Without a subflow nothing leaves: a server that was started again refuses all joins.
        self.look(sent, totals.received, totals.subflows.is_empty())
    }

    fn look(&mut self, sent: u64, received: u64, is_cut_off: bool) -> bool {
        let has_sent = sent > self.sent || is_cut_off;
        let has_received = received > self.received;
        (self.sent, self.received) = (sent, received);
        self.looks = match (has_sent, has_received) {
            (_, true) => 0,
            (true, false) => self.looks + 1,
            (false, false) => self.looks,
        };
        let is_silent = self.looks >= 2;
        if is_silent {
            self.looks = 0;
        }
        is_silent
    }
}

impl From<&RequestError> for Failure {
    fn from(error: &RequestError) -> Self {
        match error {
            RequestError::Refused(code) => Self::Refused(*code),
            RequestError::Nonsense(code) => Self::Nonsense(*code),
            RequestError::Lost(error) => Self::Lost(error.kind(), error.to_string()),
        }
    }
}

impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(code) => Self::Refused(code),
            Failure::Nonsense(code) => Self::Nonsense(code),
            Failure::Lost(kind, text) => Self::Lost(io::Error::new(kind, text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_for_a_sign_after_two_looks_at_which_only_we_have_spoken() {
        let mut silence = Silence::default();
        let looks = [(0, 0), (1, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1)];
        let asked = looks.map(|(sent, received)| silence.look(sent, received, false));
        assert_eq!(asked, [false, false, false, true, false, false, false, true]);
        let cut_off = [silence.look(6, 1, true), silence.look(6, 1, true)];
        assert_eq!(cut_off, [false, true], "nothing can leave");
    }
}
