//! The methods of a connection that is being opened.

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::{Instant, SubflowId};
use plait_protect::sealed::OPENING_LEN;
use plait_wire::{IcmpError, Segment};
use std::collections::VecDeque;

use super::attempt::Attempt;
use super::early::Early;
use super::instances::Instances;
use super::ways::{Target, ways};
use crate::connection::options_in::Signals;
use crate::status::AttemptStage;
use crate::{
    Config, Connection, CryptoJob, CryptoResult, Event, Host, Memory, PeerIdentity, ReadError, Refused,
    Status,
};

/// A connection that is being opened: attempts over one path each, until one of them becomes the connection.
pub struct ActiveOpen {
    pub(super) config: Config,
    pub(super) remotes: Vec<SocketAddr>,
    pub(super) opened: Instant,
    /// Ways that have not been tried yet.
    pub(super) waiting: VecDeque<Target>,
    /// All attempts so far, including failed ones. Each stays until its subflows are closed. The attempt with the most progress determines
    /// how the opening failed. At most one per way.
    pub(super) attempts: Vec<Attempt>,
    /// Number of the attempt that became the connection, or its remains.
    pub(super) chosen: Option<usize>,
    /// Number of the sealed attempt that gets the application's bytes before the peer has confirmed an attempt. None if several instances
    /// of the server are known.
    pub(super) leader: Option<usize>,
    /// When the first attempt sent OPENING.
    pub(super) said_at: Option<Instant>,
    /// The identity of the peer on that attempt, on which the application relies.
    pub(super) peer: Option<PeerIdentity>,
    /// The instances of the server that were found, and the instance that may have bytes of the application.
    pub(super) instances: Instances,
    /// The name of this opening, once it is needed.
    pub(super) id: Option<[u8; OPENING_LEN]>,
    pub(super) early: Early,
    pub(super) events: VecDeque<Event>,
    /// Whether the application has learned that data can flow.
    pub(super) is_connected_told: bool,
    /// Whether a write of the application found no room.
    pub(super) is_writer_waiting: bool,
    /// When an attempt failed for a reason other than silence, or when the last attempt after that began.
    pub(super) failed_at: Option<Instant>,
}

impl ActiveOpen {
    /// Begins with the best way to `remotes`, which are addresses of one host, best first. Returns `None` if there is no way.
    pub(super) fn start(
        now: Instant,
        config: Config,
        remotes: &[SocketAddr],
        host: &mut dyn Host,
    ) -> Option<Self> {
        let waiting = ways(now, &config, remotes, host);
        if waiting.is_empty() {
            return None;
        }
        let mut open = Self {
            config,
            remotes: remotes.to_vec(),
            opened: now,
            waiting,
            attempts: Vec::new(),
            chosen: None,
            leader: None,
            said_at: None,
            peer: None,
            instances: Instances::default(),
            id: None,
            early: Early::default(),
            events: VecDeque::new(),
            is_connected_told: false,
            is_writer_waiting: false,
            failed_at: None,
        };
        open.settle(now, host);
        Some(open)
    }

    /// As [`Connection::handle_segment`].
    pub fn handle_segment(&mut self, now: Instant, id: SubflowId, segment: &Segment, host: &mut dyn Host) {
        if let Some(attempt) = self.attempts.get_mut(Attempt::number_of(id)) {
            attempt.connection.handle_segment(now, id, segment, host);
            self.settle(now, host);
        }
    }

    /// As [`Connection::handle_join`], for the attempt with that token.
    pub fn handle_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        host: &mut dyn Host,
    ) -> Result<SubflowId, Refused> {
        let result = self.joined_by(syn).map(|joined| joined.handle_join(now, syn, host));
        self.settle(now, host);
        result.unwrap_or(Err(Refused::Malformed))
    }

    /// As [`Connection::answer_join`], for the attempt with that token.
    pub fn answer_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        nonce: u32,
        host: &mut dyn Host,
    ) -> Result<Option<Segment>, Refused> {
        self.joined_by(syn).ok_or(Refused::Malformed)?.answer_join(now, syn, nonce, host)
    }

    /// As [`Connection::recall_join`], for the attempt with that token.
    pub fn recall_join(
        &mut self,
        then: Instant,
        syn: &Segment,
        nonce: u32,
        host: &mut dyn Host,
    ) -> Result<SubflowId, Refused> {
        self.joined_by(syn).ok_or(Refused::Malformed)?.recall_join(then, syn, nonce, host)
    }

    /// Returns the attempt with the token of this SYN.
    fn joined_by(&mut self, syn: &Segment) -> Option<&mut Connection> {
        let Some(plait_wire::MpJoin::Syn { token, .. }) = Signals::read(syn).join else { return None };
        let attempt = self.attempts.iter_mut().find(|attempt| attempt.connection.token() == Some(token));
        attempt.map(|attempt| &mut *attempt.connection)
    }

    /// As [`Connection::handle_icmp`].
    pub fn handle_icmp(&mut self, now: Instant, id: SubflowId, error: &IcmpError, host: &mut dyn Host) {
        if let Some(attempt) = self.attempts.get_mut(Attempt::number_of(id)) {
            attempt.connection.handle_icmp(now, id, error, host);
            self.settle(now, host);
        }
    }

    /// As [`Connection::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant, host: &mut dyn Host) {
        for attempt in &mut self.attempts {
            if attempt.connection.poll_timeout().is_some_and(|at| at <= now) {
                attempt.connection.handle_timeout(now, host);
            }
        }
        self.settle(now, host);
    }

    /// As [`Connection::handle_paths`]. A path that comes or comes back is tried at once.
    pub fn handle_paths(&mut self, now: Instant, host: &mut dyn Host) {
        for attempt in &mut self.attempts {
            attempt.connection.handle_paths(now, host);
        }
        self.follow_paths(now, host);
        self.settle(now, host);
    }

    /// As [`Connection::handle_crypto`].
    pub fn handle_crypto(&mut self, now: Instant, result: CryptoResult, host: &mut dyn Host) {
        if let Some(connection) = self.chosen_mut() {
            connection.handle_crypto(now, result, host);
            self.settle(now, host);
        }
    }

    /// As [`Connection::poll_crypto`]. Attempts have no jobs before one of them is chosen.
    pub fn poll_crypto(&mut self) -> Option<CryptoJob> {
        self.chosen_mut()?.poll_crypto()
    }

    /// As [`Connection::has_crypto`].
    pub fn has_crypto(&self) -> bool {
        self.chosen().is_some_and(Connection::has_crypto)
    }

    /// As [`Connection::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        self.attempts.iter_mut().find_map(|attempt| attempt.connection.poll_transmit(now))
    }

    /// As [`Connection::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let attempts = self.attempts.iter().filter_map(|attempt| attempt.connection.poll_timeout());
        attempts.chain(self.own_deadline()).min()
    }

    /// As [`Connection::poll_event`].
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            (0..self.attempts.len()).for_each(|number| self.drain_events(number));
        }
        self.events.pop_front()
    }

    /// Whether joins with this token belong to one of the attempts.
    pub fn has_token(&self, token: u32) -> bool {
        self.attempts.iter().any(|attempt| attempt.connection.token() == Some(token))
    }

    /// As [`Connection::token`], once an attempt was chosen.
    pub fn token(&self) -> Option<u32> {
        self.chosen()?.token()
    }

    /// As [`Connection::writable`].
    pub fn writable(&self) -> usize {
        match self.chosen() {
            Some(connection) => connection.writable(),
            None if self.early.is_finished() => 0,
            None => self.config.send_buffer.saturating_sub(self.early.len()),
        }
    }

    /// As [`Connection::write`].
    pub fn write(&mut self, now: Instant, mut data: Bytes) -> usize {
        if let Some(connection) = self.chosen_mut() {
            return connection.write(now, data);
        }
        let room = self.writable();
        if data.len() >= room {
            data.truncate(room);
            self.is_writer_waiting = true;
        }
        let taken = data.len();
        if let Some(leader) = self.leader_mut() {
            leader.take_early(data.clone());
        }
        self.early.write(data);
        self.note_told();
        taken
    }

    /// As [`Connection::read`].
    pub fn read(&mut self, now: Instant) -> Result<Bytes, ReadError> {
        self.chosen_mut().map_or(Err(ReadError::WouldBlock), |connection| connection.read(now))
    }

    /// As [`Connection::finish`].
    pub fn finish(&mut self, now: Instant) {
        match self.chosen_mut() {
            Some(connection) => connection.finish(now),
            None => {
                self.early.finish();
                if let Some(leader) = self.leader_mut() {
                    leader.finish(now);
                }
                self.note_told();
                self.delete_if_given_up(now);
            }
        }
    }

    /// As [`Connection::look`], once an attempt was chosen.
    pub fn look(&mut self, bytes: usize) -> bool {
        self.chosen_mut().is_some_and(|connection| connection.look(bytes))
    }

    /// As [`Connection::ask_life`], once an attempt was chosen.
    pub fn ask_life(&mut self) {
        if let Some(connection) = self.chosen_mut() {
            connection.ask_life();
        }
    }

    /// As [`Connection::stop_reading`].
    pub fn stop_reading(&mut self, now: Instant) {
        match self.chosen_mut() {
            Some(connection) => connection.stop_reading(now),
            None => {
                self.early.stop_reading();
                if let Some(leader) = self.leader_mut() {
                    leader.stop_reading(now);
                }
                self.delete_if_given_up(now);
            }
        }
    }

    /// Ends the opening if the application has given up both directions and written nothing before any peer has answered. The end of
    /// writing alone is not a CLOSE, because the application still wants the peer's stream.
    fn delete_if_given_up(&mut self, now: Instant) {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.4
        //# SYN-SENT STATE
        //# *  Delete the TCB and return "error: closing" responses to any
        //#    queued SENDs, or RECEIVEs.
        let is_unanswered = |attempt: &Attempt| attempt.stage == AttemptStage::SynSent;
        let mut running = self.attempts.iter().filter(|attempt| attempt.is_running());
        if self.early.is_given_up() && running.all(is_unanswered) {
            self.abort(now);
        }
    }

    /// As [`Connection::is_done`].
    pub fn is_done(&self) -> bool {
        self.chosen.is_some() && self.attempts.iter().all(|attempt| attempt.connection.is_done())
    }

    /// As [`Connection::is_time_wait`].
    pub fn is_time_wait(&self) -> bool {
        self.chosen.is_some() && self.attempts.iter().all(|attempt| attempt.connection.is_time_wait())
    }

    /// As [`Connection::status`]: that of the connection, or of the attempt with the most progress.
    pub fn status(&self, now: Instant) -> Status {
        let number = self.chosen.unwrap_or_else(|| self.farthest());
        let mut status = self.attempts[number].connection.status(now);
        status.age = now.saturating_since(self.opened);
        status.attempts = self.attempts.iter().map(|attempt| attempt.status(self.opened)).collect();
        status
    }

    /// Returns the memory of all attempts.
    pub(crate) fn memory(&self) -> Memory {
        // Bytes that wait in an attempt are shared with those kept for the other attempts.
        let early = Memory { used: self.early.len() as u64, promised: 0 };
        let attempts = self.attempts.iter().map(|attempt| attempt.connection.memory());
        Memory::sum(attempts.chain([early]))
    }

    /// Returns the connection once one attempt is chosen and the subflows of all others are closed.
    pub(super) fn turn(&mut self, now: Instant) -> Option<Box<Connection>> {
        let chosen = self.chosen?;
        let others = self.attempts.iter().enumerate().filter(|(number, _)| *number != chosen);
        if !others.map(|(_, other)| other).all(|other| other.connection.is_done()) {
            return None;
        }
        let attempts = self.status(now).attempts;
        (0..self.attempts.len()).for_each(|number| self.drain_events(number));
        let mut connection = self.attempts.swap_remove(chosen).connection;
        connection.take_over(self.opened, attempts, self.events.drain(..));
        Some(connection)
    }

    fn leader_mut(&mut self) -> Option<&mut Connection> {
        Some(&mut self.attempts.get_mut(self.leader?)?.connection)
    }

    pub(super) fn chosen(&self) -> Option<&Connection> {
        Some(&self.attempts.get(self.chosen?)?.connection)
    }

    pub(super) fn chosen_mut(&mut self) -> Option<&mut Connection> {
        Some(&mut self.attempts.get_mut(self.chosen?)?.connection)
    }
}
