//! Applications with known content, so that each lost, doubled or moved byte is detected.

use bytes::Bytes;
use plait_base::Instant;
use plait_endpoint::{ConnectionId, Endpoint};
use plait_mptcp::{AttemptOutcome, ConnectionError, ReadError, Status, SubflowStatus};
use plait_tcp::FourTuple;
use std::collections::BTreeSet;

use crate::segments::Side;

/// An application on a connection.
pub(crate) struct Application {
    pub(crate) host: usize,
    /// Which start of its host it belongs to.
    starts: u64,
    pub(crate) id: ConnectionId,
    side: Side,
    /// Bytes that it is to say in all, and whether it finishes then.
    to_say: usize,
    finishes: bool,
    has_finished: bool,
    pub(crate) said: usize,
    pub(crate) heard: usize,
    /// The first byte that is none of the peer's.
    pub(crate) wrong_at: Option<usize>,
    /// The peer's end was read.
    pub(crate) is_at_end: bool,
    /// The error that was reported.
    pub(crate) failed: Option<ConnectionError>,
    /// The end of the connection, as the endpoint reports it.
    pub(crate) end: Option<Result<(), ConnectionError>>,
}

impl Application {
    pub(crate) fn new(host: usize, starts: u64, id: ConnectionId, side: Side) -> Self {
        Self {
            host,
            starts,
            id,
            side,
            to_say: 0,
            finishes: false,
            has_finished: false,
            said: 0,
            heard: 0,
            wrong_at: None,
            is_at_end: false,
            failed: None,
            end: None,
        }
    }

    pub(crate) fn is_on(&self, host: usize, starts: u64, id: ConnectionId) -> bool {
        (self.host, self.starts, self.id) == (host, starts, id)
    }

    /// It writes this many more bytes; then it finishes, or not.
    pub(crate) fn is_to_say(&mut self, bytes: usize, finishes: bool) {
        self.to_say += bytes;
        self.finishes = finishes;
    }

    /// Writes and reads what is possible now. An application of a server answers the client's end with ten bytes and its own end.
    pub(crate) fn talk(&mut self, now: Instant, endpoint: &mut Endpoint, notes: &mut Vec<String>) {
        self.hear(now, endpoint, notes);
        if self.side == Side::Server && self.is_at_end && !self.finishes {
            self.is_to_say(10, true);
        }
        while self.said < self.to_say {
            let bytes: Vec<u8> = (self.said..self.to_say).map(|at| byte(self.side, at)).collect();
            let taken = endpoint.write(now, self.id, Bytes::from(bytes));
            if taken == 0 {
                break;
            }
            self.said += taken;
        }
        if self.finishes && self.said == self.to_say && !core::mem::replace(&mut self.has_finished, true) {
            endpoint.finish(now, self.id);
        }
        if self.end.is_none()
            && let Some(end) = endpoint.end(self.id)
        {
            self.end = Some(end);
            notes.push(format!("{}: the connection is over: {end:?}", self.name()));
        }
    }

    fn hear(&mut self, now: Instant, endpoint: &mut Endpoint, notes: &mut Vec<String>) {
        while !self.is_at_end && self.failed.is_none() {
            match endpoint.read(now, self.id) {
                Ok(data) => {
                    for byte_heard in &data {
                        let is_right = *byte_heard == byte(self.side.other(), self.heard);
                        let at = self.heard;
                        self.wrong_at = self.wrong_at.or_else(|| (!is_right).then_some(at));
                        self.heard += 1;
                    }
                    notes.push(format!("{} hears {} bytes, {} in all", self.name(), data.len(), self.heard));
                }
                Err(ReadError::WouldBlock) => return,
                Err(ReadError::End) => {
                    self.is_at_end = true;
                    notes.push(format!("{} hears the end behind {} bytes", self.name(), self.heard));
                }
                Err(ReadError::Failed(error)) => {
                    self.failed = Some(error);
                    notes.push(format!("{} hears an error: {error:?}", self.name()));
                }
            }
        }
    }

    pub(crate) fn name(&self) -> String {
        match self.side {
            Side::Client => "the client's application".to_owned(),
            Side::Server => {
                format!("the application on server {} (start {}, {:?})", self.host, self.starts, self.id)
            }
        }
    }

    /// Whether its side has taken part: the client, or an application that has read something.
    pub(crate) fn side_has_spoken(&self) -> bool {
        self.side == Side::Client || self.heard > 0
    }

    /// An error that either the reader or the owner of the connection has been told.
    pub(crate) fn error(&self) -> Option<ConnectionError> {
        self.failed.or_else(|| self.end.and_then(Result::err))
    }

    pub(crate) fn status(&self, clock: Instant, endpoint: &Endpoint) -> Option<Status> {
        endpoint.status(clock, self.id)
    }

    /// Describes the observable state of its connection, without times.
    pub(crate) fn describe(&self, clock: Instant, endpoint: &Endpoint) -> String {
        let Self { said, heard, is_at_end, has_finished, .. } = self;
        let mut words = format!(
            "app {}.{} said {said} heard {heard} ends {is_at_end} {has_finished} {:?}",
            self.host,
            self.starts,
            self.error()
        );
        let Some(status) = self.status(clock, endpoint) else { return words };
        let mut subflows: Vec<_> = status
            .subflows
            .iter()
            .filter(|subflow| subflow.end.is_none())
            .map(|subflow| (subflow.path, subflow.usable, subflow.blocks_failed, subflow.tags_failed))
            .collect();
        subflows.sort();
        let sealed = status.sealed.map(|sealed| (sealed.generations, sealed.mixed_paths, sealed.suite));
        let attempts: Vec<_> = status
            .attempts
            .iter()
            .map(|attempt| {
                let is_running = attempt.outcome == AttemptOutcome::Running;
                (attempt.path, attempt.stage, is_running, attempt.outcome == AttemptOutcome::Chosen)
            })
            .collect();
        words += &format!(" {subflows:?} {sealed:?} {attempts:?}");
        words
    }

    /// The addresses of the subflows that live, as the client names them.
    pub(crate) fn living(&self, clock: Instant, endpoint: &Endpoint) -> BTreeSet<(String, String)> {
        let Some(status) = self.status(clock, endpoint) else { return BTreeSet::new() };
        let lives = status.subflows.iter().filter(|subflow| lives(subflow));
        lives
            .map(|SubflowStatus { tuple: FourTuple { local, remote }, .. }| match self.side {
                Side::Client => (local.to_string(), remote.to_string()),
                Side::Server => (remote.to_string(), local.to_string()),
            })
            .collect()
    }
}

/// Whether a subflow counts as living for its end.
fn lives(subflow: &SubflowStatus) -> bool {
    subflow.usable && subflow.end.is_none()
}

/// Byte number `at` of what a side says.
fn byte(side: Side, at: usize) -> u8 {
    let salt = match side {
        Side::Client => 17,
        Side::Server => 101,
    };
    (at.wrapping_mul(31) ^ (at >> 5)) as u8 ^ salt
}
