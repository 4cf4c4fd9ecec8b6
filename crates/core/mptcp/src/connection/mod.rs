//! The connection: its state and its public methods.

mod absence;
mod addresses;
mod closing;
mod coupling;
mod fallback;
mod handshake;
mod joining;
mod notices;
pub(crate) mod options_in;
mod overtaking;
pub(crate) mod receiving;
mod reinjecting;
mod sealed;
pub(crate) mod sending;
mod trial;
pub(crate) mod trust;

use crate::log;
use bytes::Bytes;
use core::cell::Cell;
use core::net::SocketAddr;
use plait_base::{Instant, SubflowId};
use plait_tcp::State;
use plait_wire::{IcmpError, ResetReason, Segment};

use crate::closing::Closing;
use crate::connection::handshake::SubflowOpening;
use crate::connection::notices::Notices;
use crate::datagrams::Datagrams;
use crate::paths::PathManager;
use crate::protection::sealed::{CryptoJob, CryptoResult, Established};
use crate::protection::{Mode, Protection};
use crate::receive::RecvStream;
use crate::role::Role;
use crate::send::SendStream;
use crate::subflows::Subflows;
use crate::subflows::sealed::SynData;
use crate::subflows::{Kind, ResetInfo};
use crate::timers::{Timer, Timers};
use crate::{
    AttemptStatus, Config, ConnectionError, Counters, Host, Negotiated, Path, ReadError, Refused, Status,
};

/// Parameters of an active open.
pub(crate) struct Start<'a> {
    /// The path of the first subflow.
    pub(crate) path: &'a Path,
    /// The address of the peer.
    pub(crate) remote: SocketAddr,
    /// All addresses of the peer that are known beforehand, for further subflows.
    pub(crate) remotes: &'a [SocketAddr],
    /// The id of the first subflow; the others count up.
    pub(crate) first_id: u32,
}

/// A Multipath TCP connection, or the plain TCP connection that is left after a fallback.
pub struct Connection {
    pub(crate) config: Config,
    pub(crate) role: Role,
    pub(crate) opened: Instant,
    /// The result of each attempt to open it.
    pub(crate) attempts: Vec<AttemptStatus>,
    /// Protection of the bytes, and the mode.
    pub(crate) protection: Protection,
    pub(crate) subflows: Subflows,
    /// The stream to the peer.
    pub(crate) outgoing: SendStream,
    /// The stream from the peer.
    pub(crate) incoming: RecvStream,
    /// Progress of closing.
    pub(crate) closing: Closing,
    /// Ways to the peer.
    pub(crate) paths: PathManager,
    pub(crate) notices: Notices,
    /// Datagrams beside the streams, from the first flow on.
    pub(crate) datagrams: Option<Box<Datagrams>>,
    pub(crate) counters: Counters,
    /// Memory that the host has for outgoing bytes of the application, if it is less than the send buffer.
    pub(crate) send_share: usize,
    /// The deadlines and their owners; `None` if they must be computed.
    timers: Cell<Option<Timers>>,
}

impl Connection {
    /// Opens actively over one path: one attempt of an [`ActiveOpen`](crate::ActiveOpen).
    pub(crate) fn connect(now: Instant, config: Config, start: &Start<'_>, host: &mut dyn Host) -> Self {
        let (protection, offered) = Protection::offer(&config, || host.draw_key());
        let mut connection = Self::new(now, config, Role::Active, protection);
        connection.subflows = Subflows::new(start.first_id);
        connection.paths.set_remotes(start.remotes);
        let first =
            SubflowOpening { kind: Kind::FirstActive, remote_address: Some(0), syn_data: SynData::None };
        if let Err(error) = offered {
            connection.fail(error);
        } else if connection.open_subflow(now, start.path, start.remote, first, host).is_none() {
            connection.fail(ConnectionError::Unreachable);
        }
        connection
    }

    /// Returns a connection that has failed before any attempt.
    pub(crate) fn failed(now: Instant, config: Config, error: ConnectionError) -> Self {
        let protection = Protection::unanswered(&config);
        let mut connection = Self::new(now, config, Role::Active, protection);
        connection.fail(error);
        connection
    }

    /// Opens passively, in answer to a SYN without MP_JOIN.
    pub fn accept(now: Instant, config: Config, syn: &Segment, host: &mut dyn Host) -> Self {
        match Self::way_in(&config, syn, &*host) {
            Ok(path) => Self::answer_syn(now, config, syn, &path, host),
            Err(error) => {
                let protection = Protection::unanswered(&config);
                let mut connection = Self::new(now, config, Role::Passive, protection);
                connection.fail(error);
                connection
            }
        }
    }

    pub(crate) fn new(now: Instant, config: Config, role: Role, protection: Protection) -> Self {
        Self {
            role,
            opened: now,
            attempts: Vec::new(),
            protection,
            subflows: Subflows::default(),
            outgoing: SendStream::new(),
            incoming: RecvStream::new(now, config.receive_buffer),
            closing: Closing::default(),
            paths: PathManager::default(),
            notices: Notices::default(),
            datagrams: None,
            counters: Counters::default(),
            send_share: usize::MAX,
            timers: Cell::new(None),
            config,
        }
    }

    /// Handles a SYN with MP_JOIN and the token of this connection.
    pub fn handle_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        host: &mut dyn Host,
    ) -> Result<SubflowId, Refused> {
        let result = self.accept_join(now, syn, host);
        if result.is_err_and(|refused| refused != Refused::Crowded) {
            log::debug!(?result, "join refused");
            self.counters.joins_refused += 1;
        }
        self.settle(now, host);
        result
    }

    /// Handles a segment for one of its subflows.
    pub fn handle_segment(&mut self, now: Instant, id: SubflowId, segment: &Segment, host: &mut dyn Host) {
        if let Some(index) = self.subflows.index_of(id) {
            if segment.is_datagram() {
                self.take_datagram(now, index, segment);
            } else {
                self.take_segment(now, index, segment, host);
            }
            self.settle(now, host);
        }
    }

    /// Handles an ICMP error about one of its subflows.
    pub fn handle_icmp(&mut self, now: Instant, id: SubflowId, error: &IcmpError, host: &mut dyn Host) {
        if let Some(index) = self.subflows.index_of(id) {
            self.subflows.touch(index).tcp.handle_icmp(now, error);
            self.settle(now, host);
        }
    }

    /// Runs what is due.
    pub fn handle_timeout(&mut self, now: Instant, host: &mut dyn Host) {
        for timer in self.timers().due(now) {
            match timer {
                Timer::Subflows => self.run_subflows(now),
                Timer::ThirdAck => self.repeat_third_acks(now),
                Timer::Announcement => self.repeat_announcements(now),
                Timer::Unmapped => self.check_unmapped(now),
                Timer::Data => self.run_data_timer(now),
                Timer::NoSubflow => self.run_outage(now),
                Timer::Handshake => self.give_up_handshake(host),
                // Checked after every event.
                Timer::Stall
                | Timer::Join
                | Timer::Life
                | Timer::Repair
                | Timer::Datagrams
                | Timer::Closing => {}
            }
        }
        self.settle(now, host);
    }

    /// Handles a change of the host's paths (up, down, new, gone, class, backup). Several changes may be handled at once. A change that
    /// does not concern the connection ([`Connection::wants_paths`]) may be left out.
    pub fn handle_paths(&mut self, now: Instant, host: &mut dyn Host) {
        self.follow_paths(now, host);
        self.settle(now, host);
    }

    /// Returns the next segment to send. Call until `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        self.timers.set(None);
        let segment = self.next_segment(now);
        if segment.is_none() {
            self.reap();
        }
        segment
    }

    /// Returns the next block to be sealed or opened. The runner of this connection's jobs calls it until `None`, on this core or another.
    /// There are no jobs unless [`Config::crypto_jobs`] allows them.
    pub fn poll_crypto(&mut self) -> Option<CryptoJob> {
        self.next_job()
    }

    /// Whether [`Connection::poll_crypto`] has a job to return.
    pub fn has_crypto(&self) -> bool {
        self.has_jobs()
    }

    /// Takes the result of a job of this connection. Results may come in any order.
    pub fn handle_crypto(&mut self, now: Instant, result: CryptoResult, host: &mut dyn Host) {
        self.take_result(now, result);
        self.settle(now, host);
    }

    /// Returns the earliest deadline of the connection and all its subflows.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers().next()
    }

    /// Returns the next event. Call until `None`.
    pub fn poll_event(&mut self) -> Option<crate::Event> {
        if self.protection.established_mut().is_some_and(Established::poll_paths_mixed) {
            self.notices.push(crate::Event::PathsMixed);
        }
        self.notices.pop()
    }

    /// Returns our token once Multipath TCP is negotiated, or offered passively. Joins are looked up by it.
    pub fn token(&self) -> Option<u32> {
        self.protection.token(self.role)
    }

    /// Returns the room in the send buffer in bytes; 0 after [`Connection::finish`] or failure. After a return of 0, the connection reports
    /// [`Event::Writable`](crate::Event::Writable) when room is available.
    pub fn writable(&self) -> usize {
        let room = self.send_room();
        if room == 0 {
            self.notices.writer_waits();
        }
        room
    }

    /// Returns the room in the send buffer in bytes, and does not register a waiter. The room may shrink without a write: sealed bytes need
    /// more room than the bytes that were written.
    pub(crate) fn send_room(&self) -> usize {
        if self.outgoing.is_finished() || self.closing.is_over() {
            return 0;
        }
        self.config.send_buffer.min(self.send_share).saturating_sub(self.kept())
    }

    /// Takes bytes of the application and returns how many were taken. The caller has checked [`Connection::writable`]. More bytes are a
    /// bug of the caller and are cut off.
    pub fn write(&mut self, now: Instant, mut data: Bytes) -> usize {
        let _ = now;
        self.timers.set(None);
        let room = self.send_room();
        let is_filled = data.len() >= room;
        data.truncate(room);
        let taken = data.len();
        self.outgoing.write(data);
        if is_filled {
            self.notices.writer_waits();
            self.outgoing.set_filled(true);
        } else if self.send_room() > self.config.send_buffer / 2 {
            self.outgoing.set_filled(false);
        }
        taken
    }

    /// Takes bytes that the opening has accepted from the application. No byte is cut off, although the overhead of sealing (headers of
    /// blocks, control records) also needs room in the send buffer.
    pub(crate) fn take_early(&mut self, data: Bytes) {
        self.timers.set(None);
        if !self.outgoing.is_finished() && !self.closing.is_over() {
            self.outgoing.write(data);
        }
    }

    /// Registers that the application waits for room.
    pub(crate) fn expect_room(&mut self) {
        self.notices.writer_waits();
    }

    /// Returns the next bytes of the peer, in order.
    pub fn read(&mut self, now: Instant) -> Result<Bytes, ReadError> {
        let is_limited = self.protection.authenticates_data_acks();
        let round_trip = || reinjecting::slowest_round_trip(now, &self.subflows, is_limited);
        if let Some(data) = self.incoming.read(now, round_trip) {
            self.offer_window();
            return Ok(self.protection.deliver(data));
        }
        if self.incoming.is_exhausted() {
            return Err(ReadError::End);
        }
        match self.closing.error() {
            Some(error) => Err(ReadError::Failed(error)),
            None => {
                self.notices.reader_waits();
                Err(ReadError::WouldBlock)
            }
        }
    }

    /// Ends writing: DATA_FIN (or FIN) follows the last byte. Reading continues.
    pub fn finish(&mut self, now: Instant) {
        self.timers.set(None);
        self.outgoing.finish();
        self.progress_closing(now);
    }

    /// Ends the connection at once: MP_FASTCLOSE, or RST on plain TCP.
    pub fn abort(&mut self, now: Instant) {
        let _ = now;
        self.timers.set(None);
        self.fail(ConnectionError::Aborted);
    }

    /// Aborts a connection that has no owner any more. If the connection is over already, the subflows that have not closed are reset.
    /// Otherwise an attacker in control of a path could keep such a subflow forever with a closed window before its FIN.
    pub fn discard(&mut self, now: Instant) {
        self.abort(now);
        for subflow in self.subflows.touch_all() {
            if !matches!(subflow.tcp.state(), State::TimeWait | State::Closed) {
                subflow.reset(ResetInfo::because(ResetReason::Unspecified));
            }
        }
    }

    /// Ends reading. Data that still arrives is refused (RST or MP_FASTCLOSE once data comes).
    pub fn stop_reading(&mut self, now: Instant) {
        let _ = now;
        self.timers.set(None);
        self.refuse_data();
    }

    /// Whether nothing is left to do, TIME-WAIT included. The owner can then drop the connection.
    pub fn is_done(&self) -> bool {
        self.closing.is_over() && self.subflows.is_empty()
    }

    /// Whether only TIME-WAIT is left: for each subflow the four-tuple and the state needed to answer for it. The endpoint may keep these
    /// in a smaller form and drop the connection.
    pub fn is_time_wait(&self) -> bool {
        self.closing.is_over() && self.subflows.iter().all(|subflow| subflow.tcp.state() == State::TimeWait)
    }

    /// Returns the status for display.
    pub fn status(&self, now: Instant) -> Status {
        let negotiated = match (self.mode(), self.protection.version()) {
            (Mode::Opening, _) | (Mode::Multipath, None) => Negotiated::Opening,
            (Mode::Multipath, Some(version)) => {
                Negotiated::Multipath { version, checksum: self.protection.has_checksums() }
            }
            (Mode::Plain(tcp), _) => Negotiated::Plain(tcp.reason()),
        };
        Status {
            negotiated,
            scrambling: self.protection.scramble_status(self.trusted_paths()),
            sealed: self.protection.sealed_status(),
            attempts: self.attempts.clone(),
            subflows: self.subflows.status(),
            forgotten: self.subflows.forgotten().clone(),
            bytes_delivered: self.outgoing.delivered(),
            bytes_read: self.incoming.bytes_read(),
            age: now.saturating_since(self.opened),
            datagrams: self.datagram_status(),
            counters: self.counters,
        }
    }

    /// Whether the peer that opened the connection has answered our SYN/ACK, which validates its address.
    pub fn has_proved_address(&self) -> bool {
        self.subflows
            .first()
            .is_some_and(|subflow| !matches!(subflow.tcp.state(), State::SynReceived | State::Closed))
    }

    /// Whether `segment`, on the first subflow, would validate the address: it acknowledges our SYN/ACK.
    pub fn would_prove_address(&self, segment: &Segment) -> bool {
        self.subflows.first().is_some_and(|subflow| subflow.tcp.is_third_segment(segment))
    }

    /// Whether the handshake of a sealed connection is complete.
    pub fn is_authenticated(&self) -> bool {
        self.protection.has_sealing_keys()
    }

    /// Returns the fingerprint of the key that the peer of a sealed connection has shown. `None` without a key, and before the handshake is
    /// complete.
    pub fn peer_key(&self) -> Option<[u8; 32]> {
        self.protection.established()?.peer_key()
    }

    /// Returns the mode: opening, Multipath TCP or plain TCP.
    pub(crate) fn mode(&self) -> Mode {
        self.protection.mode()
    }

    /// Bytes of the application in the send buffer.
    fn kept(&self) -> usize {
        match self.mode() {
            Mode::Opening | Mode::Multipath => self.outgoing.kept(),
            Mode::Plain(_) => {
                self.outgoing.queued() + (self.outgoing.next() - self.outgoing.acked()) as usize
            }
        }
    }

    /// Handles the reports of the subflows and their consequences. Runs after every event.
    fn settle(&mut self, now: Instant, host: &mut dyn Host) {
        self.timers.set(None);
        self.set_memory_share(host.memory_share());
        self.drain_subflows(now);
        self.progress_sealing(now, host);
        self.check_stalls(now);
        self.progress_closing(now);
        self.offer_window();
        self.announce_addresses(host);
        self.end_if_forgotten(now, host);
        self.open_joins(now, host);
        self.progress_datagrams(now);
        if self.send_room() > 0 {
            self.notices.writable();
        }
    }

    /// Collects the deadlines and their owners.
    fn timers(&self) -> Timers {
        let timers = self.timers.get().unwrap_or_else(|| self.look_for_timers());
        self.timers.set(Some(timers));
        timers
    }

    fn look_for_timers(&self) -> Timers {
        let tcp = self.subflows.iter().filter_map(|subflow| subflow.figures().tcp).min();
        let mut timers = Timers::default();
        for (timer, at) in [
            (Timer::Subflows, tcp),
            (Timer::ThirdAck, self.third_ack_deadline()),
            (Timer::Announcement, self.announcement_deadline()),
            (Timer::Unmapped, self.unmapped_deadline()),
            (Timer::Data, self.data_timer_deadline()),
            (Timer::Stall, self.stall_deadline()),
            (Timer::NoSubflow, self.no_subflow_deadline()),
            (Timer::Join, self.join_deadline()),
            (Timer::Handshake, self.handshake_deadline()),
            (Timer::Life, self.life_deadline()),
            (Timer::Repair, self.repair_deadline()),
            (Timer::Datagrams, self.datagram_deadline()),
            (Timer::Closing, self.closing.closing_deadline()),
        ] {
            timers.set(timer, at);
        }
        timers
    }

    /// Runs the subflows' timers that are due.
    fn run_subflows(&mut self, now: Instant) {
        for index in 0..self.subflows.len() {
            if self.subflows[index].figures().tcp.is_some_and(|at| at <= now) {
                self.subflows.touch(index).tcp.handle_timeout(now);
            }
        }
    }
}
