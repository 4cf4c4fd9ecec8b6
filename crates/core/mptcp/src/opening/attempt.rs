//! One attempt: a connection that may become the chosen one.

use crate::log;
use core::net::SocketAddr;
use plait_base::{Duration, Instant};

use super::ways::Target;
use crate::connection::Start;
use crate::paths::Renewal;
use crate::protection::Mode;
use crate::status::{AttemptOutcome, AttemptStage, AttemptStatus};
use crate::subflows::{Stage, Subflow};
use crate::{Config, Connection, ConnectionError, Event, Host, Path};

/// Upper limit of the wait for an answer of the peer before another attempt begins, whatever round-trip time was measured.
const MAX_ANSWER: Duration = Duration::from_secs(1);

/// Size of the id range of one attempt. The subflows of each attempt have ids of its own range, so that an id is unique in the opening.
const IDS: u32 = 1 << 16;

/// One attempt.
pub(super) struct Attempt {
    pub(super) connection: Box<Connection>,
    pub(super) way: Target,
    /// The state of its path when it began: whether the path was renewed since.
    pub(super) renewal: Option<Renewal>,
    /// Progress of the attempt.
    pub(super) stage: AttemptStage,
    pub(super) outcome: AttemptOutcome,
    /// When another attempt begins, unless this one makes progress before.
    pub(super) progress_due: Instant,
    /// Its connection has reported that data can flow.
    pub(super) is_connected: bool,
    /// The application must learn that there is something to read when this attempt becomes the connection.
    pub(super) is_readable: bool,
    /// It may join over other paths, because the peer is silent.
    pub(super) may_join: bool,
    /// How its connection ended, if it has.
    pub(super) end: Option<Option<ConnectionError>>,
    local: Option<SocketAddr>,
    began: Instant,
    ended: Option<Instant>,
}

impl Attempt {
    /// Begins attempt number `number` of an opening.
    pub(super) fn start(
        now: Instant,
        config: Config,
        number: usize,
        path: &Path,
        remote: SocketAddr,
        remotes: &[SocketAddr],
        host: &mut dyn Host,
    ) -> Self {
        log::debug!(number, path = path.name, %remote, "attempt to open begins");
        let progress_due = now + config.attempt_delay;
        let first_id = (number as u32).wrapping_mul(IDS);
        let start = Start { path, remote, remotes, first_id };
        let connection = Box::new(Connection::connect(now, config, &start, host));
        Self {
            local: connection.subflows.first().map(|subflow| subflow.state.tuple().local),
            connection,
            way: Target { path: path.id, remote },
            renewal: host.paths().renewal(path.id),
            stage: AttemptStage::SynSent,
            outcome: AttemptOutcome::Running,
            progress_due,
            is_connected: false,
            is_readable: false,
            may_join: false,
            end: None,
            began: now,
            ended: None,
        }
    }

    /// Returns the number of the attempt of a subflow.
    pub(super) fn number_of(id: plait_base::SubflowId) -> usize {
        (id.0 / IDS) as usize
    }

    /// Returns our address.
    pub(super) fn local_address(&self) -> Option<core::net::IpAddr> {
        self.local.map(|local| local.ip())
    }

    pub(super) fn is_running(&self) -> bool {
        self.outcome == AttemptOutcome::Running
    }

    /// Whether its connection is over, reported or not.
    pub(super) fn has_ended(&self) -> bool {
        self.connection.closing.is_over()
    }

    /// Takes an event of its connection. Returns an event on which the owner of all attempts has to act.
    pub(super) fn take_event(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::SubflowOpened { .. }
            | Event::SubflowClosed { .. }
            | Event::PathsMixed
            | Event::Datagrams => {
                return Some(event);
            }
            Event::Connected => self.is_connected = true,
            Event::Readable => self.is_readable = true,
            Event::Closed(error) => self.end = Some(error),
            Event::Writable => {}
        }
        None
    }

    /// Updates the stage. A stage that is reached for the first time is progress, and there are few stages. A peer that sends byte by byte
    /// therefore cannot delay the other attempts.
    pub(super) fn note_progress(&mut self, now: Instant) {
        let stage = self.connection.opening_stage();
        if stage > self.stage {
            self.stage = stage;
            self.progress_due = now + self.progress_time();
        }
    }

    /// Returns how long the next step may take. After the handshake nothing is left to compute, so an answer takes a round trip. The
    /// round-trip time that the path shows may be forged.
    fn progress_time(&self) -> Duration {
        let step = self.connection.config.attempt_delay;
        if self.stage < AttemptStage::Authenticated {
            return step;
        }
        let round_trips = self.connection.subflows.iter().filter_map(|subflow| subflow.tcp.stats().srtt);
        step.max((2 * round_trips.max().unwrap_or_default()).min(MAX_ANSWER))
    }

    /// Whether the attempt succeeded over its own path. If the first subflow is silent, alters blocks or is gone, a join was needed.
    pub(super) fn got_through(&self) -> bool {
        let first = self.connection.subflows.iter().find(|subflow| subflow.state.is_first());
        let is_repaired = self.connection.counters.blocks_repaired > 0;
        let is_well = |subflow: &Subflow| subflow.is_open() && subflow.state.sealed().failures() == 0;
        !self.may_join && !is_repaired && first.is_some_and(is_well)
    }

    /// Ends the attempt.
    pub(super) fn end(&mut self, now: Instant, outcome: AttemptOutcome) {
        log::debug!(path = ?self.way.path, remote = %self.way.remote, ?outcome, stage = ?self.stage, "attempt to open is over");
        self.outcome = outcome;
        self.ended = Some(now);
    }

    /// Returns the status for display; `opened` is when the first attempt began.
    pub(super) fn status(&self, opened: Instant) -> AttemptStatus {
        let Target { path, remote } = self.way;
        let unspecified = match remote {
            SocketAddr::V4(_) => core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => core::net::IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
        };
        AttemptStatus {
            path,
            local: self.local.unwrap_or(SocketAddr::new(unspecified, 0)),
            remote,
            stage: self.stage,
            outcome: self.outcome,
            began: self.began.saturating_since(opened),
            ended: self.ended.map(|ended| ended.saturating_since(opened)),
            why: self.connection.protection.sealed_status().and_then(|sealed| sealed.failure),
            refusal: self.connection.protection.refusal(),
        }
    }
}

impl Connection {
    /// Returns the opening stage of this connection.
    fn opening_stage(&self) -> AttemptStage {
        let first = self.subflows.iter().find(|subflow| subflow.state.is_first());
        let is_open = first.is_some_and(|subflow| subflow.state.stage() == Stage::Open);
        let has_read = first.is_some_and(|subflow| subflow.state.has_read());
        self.protection.opening_stage(is_open || self.mode() != Mode::Opening, has_read)
    }
}
