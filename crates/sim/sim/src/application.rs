//! Applications that send a pattern and check what they receive.

use bytes::Bytes;
use plait_base::{Duration, Instant, Random, SeededRandom};
use plait_endpoint::{ConnectionId, Endpoint};
use plait_mptcp::{ConnectionError, ReadError, Status};

/// The behaviour of an application on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Bytes to send; then it finishes and reads to the end.
    pub bytes: u64,
    /// Reads only from this moment on.
    pub reads_from: Instant,
    /// The way in which it leaves.
    pub close_mode: CloseMode,
    /// The reaction to bytes that the peer has not sent.
    pub wrong_bytes: WrongBytes,
}

/// The reaction of an application to bytes that the peer has not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongBytes {
    /// They end the test.
    Panic,
    /// They are counted: payload is changed on the path, and plain TCP cannot detect it.
    Count,
}

/// The way in which an application leaves its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseMode {
    /// Sends all, reads all, releases the connection.
    Polite,
    /// Releases the connection after sending all, whatever the peer still sends.
    Hasty,
    /// Sends all and does not finish before the peer has.
    Waiting,
}

impl Workload {
    /// Sends this many bytes, and reads to the peer's end.
    pub const fn of(bytes: u64) -> Self {
        Self {
            bytes,
            reads_from: Instant::ZERO,
            close_mode: CloseMode::Polite,
            wrong_bytes: WrongBytes::Panic,
        }
    }

    /// The same, with another way of leaving.
    #[must_use]
    pub const fn leaving(self, close_mode: CloseMode) -> Self {
        Self { close_mode, ..self }
    }

    /// The same, counting bytes that the peer has not sent.
    #[must_use]
    pub const fn counting_wrong_bytes(self) -> Self {
        Self { wrong_bytes: WrongBytes::Count, ..self }
    }

    /// The same, without reading until `moment`.
    #[must_use]
    pub const fn reading_from(self, moment: Instant) -> Self {
        Self { reads_from: moment, ..self }
    }
}

/// The result of a connection.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The time of its end.
    pub at: Instant,
    /// Bytes sent (taken by the endpoint).
    pub said: u64,
    /// Bytes read; every one was right, except for [`Outcome::wrong`].
    pub heard: u64,
    /// Bytes read that the peer had not sent.
    pub wrong: u64,
    /// The orderly end, or the reason for another.
    pub result: Result<(), ConnectionError>,
    /// Longest time between two reads that gave bytes.
    pub longest_gap: Duration,
    /// The last status of the connection.
    pub status: Status,
}

/// One application on one connection.
pub struct Application {
    id: ConnectionId,
    workload: Workload,
    patterns: Patterns,
    said: u64,
    heard: u64,
    wrong: u64,
    has_finished: bool,
    last_heard: Option<Instant>,
    longest_gap: Duration,
    outcome: Option<Outcome>,
}

/// The patterns of the two sides of a conversation.
#[derive(Clone)]
pub(crate) struct Patterns {
    own: Bytes,
    peer: Bytes,
}

impl Patterns {
    /// The patterns of the side that opens connections.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = SeededRandom::from_number(seed);
        let mut draw = || {
            let mut period = vec![0; PERIOD];
            random.fill(&mut period);
            // Twice, so that every run of up to one period is a slice.
            Bytes::from([&period[..], &period[..]].concat())
        };
        Self { own: draw(), peer: draw() }
    }

    /// The same, seen from the other side.
    pub(crate) fn swapped(&self) -> Self {
        Self { own: self.peer.clone(), peer: self.own.clone() }
    }
}

/// Bytes before a pattern repeats: a prime, so that no block or segment size divides it.
const PERIOD: usize = 65_521;

/// Bytes per write of an application.
const WRITE: u64 = 48 << 10;

fn pattern(pattern_bytes: &Bytes, offset: u64, len: usize) -> Bytes {
    let start = (offset % PERIOD as u64) as usize;
    pattern_bytes.slice(start..start + len)
}

impl Application {
    pub(crate) fn new(id: ConnectionId, workload: Workload, patterns: Patterns) -> Self {
        Self {
            id,
            workload,
            patterns,
            said: 0,
            heard: 0,
            wrong: 0,
            has_finished: false,
            last_heard: None,
            longest_gap: Duration::ZERO,
            outcome: None,
        }
    }

    /// Bytes sent so far.
    pub fn said(&self) -> u64 {
        self.said
    }

    /// Bytes read so far.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// The result, once it is over.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The time of the next call without an event.
    pub(crate) fn wants_call_at(&self) -> Option<Instant> {
        (self.outcome.is_none() && self.workload.reads_from > Instant::ZERO)
            .then_some(self.workload.reads_from)
    }

    /// Writes and reads as much as possible now.
    pub(crate) fn talk(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.outcome.is_some() {
            return;
        }
        self.say(now, endpoint);
        let end = if now >= self.workload.reads_from { self.hear(now, endpoint) } else { None };
        match end {
            Some(Err(error)) => self.leave(now, endpoint, Err(error)),
            Some(Ok(())) if self.said == self.workload.bytes => {
                self.finish(now, endpoint);
                self.leave(now, endpoint, Ok(()));
            }
            None if self.workload.close_mode == CloseMode::Hasty && self.said == self.workload.bytes => {
                self.leave(now, endpoint, Ok(()));
            }
            Some(Ok(())) | None => {
                // The peer may have sent all, and then reset the connection.
                if let Some(Err(error)) = endpoint.end(self.id) {
                    self.leave(now, endpoint, Err(error));
                }
            }
        }
    }

    fn say(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while self.said < self.workload.bytes {
            let room = (endpoint.writable(self.id) as u64).min(WRITE).min(self.workload.bytes - self.said);
            if room == 0 {
                return;
            }
            let data = pattern(&self.patterns.own, self.said, room as usize);
            let taken = endpoint.write(now, self.id, data);
            assert_eq!(taken as u64, room, "an endpoint takes what it says it has room for");
            self.said += room;
        }
        if self.workload.close_mode != CloseMode::Waiting {
            self.finish(now, endpoint);
        }
    }

    fn finish(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if !self.has_finished {
            self.has_finished = true;
            endpoint.finish(now, self.id);
        }
    }

    /// Reads all available data; returns the end, if it has come.
    fn hear(&mut self, now: Instant, endpoint: &mut Endpoint) -> Option<Result<(), ConnectionError>> {
        loop {
            match endpoint.read(now, self.id) {
                Ok(data) => self.check(now, &data),
                Err(ReadError::WouldBlock) => return None,
                Err(ReadError::End) => return Some(Ok(())),
                Err(ReadError::Failed(error)) => return Some(Err(error)),
            }
        }
    }

    fn check(&mut self, now: Instant, data: &Bytes) {
        assert!(!data.is_empty(), "a read gives bytes or says why not");
        for piece in data.chunks(PERIOD) {
            let expected = pattern(&self.patterns.peer, self.heard, piece.len());
            let is_wrong = |(_, (got, wanted)): &(usize, (&u8, &u8))| got != wanted;
            let mut wrong = piece.iter().zip(&expected).enumerate().filter(is_wrong);
            match self.workload.wrong_bytes {
                WrongBytes::Count => self.wrong += wrong.count() as u64,
                WrongBytes::Panic => {
                    if let Some((at, _)) = wrong.next() {
                        panic!("{:?}: byte {} is not the one that was said", self.id, self.heard + at as u64);
                    }
                }
            }
            self.heard += piece.len() as u64;
        }
        let gap = self.last_heard.map_or(Duration::ZERO, |last| now.saturating_since(last));
        self.longest_gap = self.longest_gap.max(gap);
        self.last_heard = Some(now);
    }

    fn leave(&mut self, now: Instant, endpoint: &mut Endpoint, result: Result<(), ConnectionError>) {
        let status = endpoint.status(now, self.id).expect("it was held until now");
        let Self { said, heard, wrong, longest_gap, .. } = *self;
        self.outcome = Some(Outcome { at: now, said, heard, wrong, result, longest_gap, status });
        endpoint.release(now, self.id);
    }
}
