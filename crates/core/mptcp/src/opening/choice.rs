//! Selection of the attempt that becomes the connection, and the start of further attempts.

use plait_base::{Duration, Instant};
use plait_protect::sealed::OPENING_LEN;
use std::cmp::Reverse;

use super::active_open::ActiveOpen;
use super::attempt::Attempt;
use crate::connection::trust::may_open_over;
use crate::protection::sealed::Standing;
use crate::status::{AttemptOutcome, AttemptStage, AttemptStatus};
use crate::{Connection, ConnectionError, Event, Host, Path, Protect};

/// Time after the first OPENING after which no attempt begins: the peer does not remember openings forever.
const LAST_START: Duration = Duration::from_secs(60);
/// Time after the first OPENING after which no attempt sends OPENING if bytes may have been delivered: the peer remembers a claim for two
/// minutes. This holds only if the host's clock counts the time during which the host was suspended.
const LAST_OPENING: Duration = Duration::from_secs(110);

impl ActiveOpen {
    /// Handles the reports of the attempts and their consequences. Runs after every event.
    pub(super) fn settle(&mut self, now: Instant, host: &mut dyn Host) {
        loop {
            (0..self.attempts.len()).for_each(|number| self.drain_events(number));
            if self.chosen.is_some() {
                return;
            }
            if self.said_at.is_some_and(|said| said + LAST_START <= now) {
                self.waiting.clear();
            }
            let has_failed = self.take_failures(now);
            self.look_at_progress(now, host);
            self.note_told();
            let has_ended = self.attempts.iter().any(|attempt| attempt.is_running() && attempt.has_ended());
            if self.chosen.is_some() || has_ended {
                continue;
            }
            if self.may_start() && (has_failed || self.next_start().is_none_or(|at| at <= now)) {
                self.start_next(now, host);
            } else if self.is_hopeless(now) {
                self.fail(now);
            } else {
                return;
            }
        }
    }

    /// Returns the deadline that belongs to no attempt.
    pub(super) fn own_deadline(&self) -> Option<Instant> {
        if self.chosen.is_some() {
            return None;
        }
        if self.attempts.iter().any(|attempt| attempt.is_running() && attempt.end.is_some()) {
            // The attempt has failed while it was sending.
            return Some(self.opened);
        }
        let next = if self.may_start() { self.next_start() } else { None };
        let is_watched = |attempt: &&Attempt| {
            attempt.is_running() && attempt.stage == AttemptStage::Authenticated && !attempt.may_join
        };
        let silent = self.attempts.iter().filter(is_watched).map(|attempt| attempt.progress_due);
        silent.chain([next, self.last_chance()].into_iter().flatten()).min()
    }

    /// Passes on the events of the attempt.
    pub(super) fn drain_events(&mut self, number: usize) {
        let attempt = &mut self.attempts[number];
        let is_chosen = self.chosen == Some(number);
        while let Some(event) = attempt.connection.poll_event() {
            match event {
                Event::Connected if is_chosen && self.is_connected_told => {}
                event if is_chosen => self.events.push_back(event),
                event => self.events.extend(attempt.take_event(event)),
            }
        }
    }

    /// Ends the attempts with failed connections.
    fn take_failures(&mut self, now: Instant) -> bool {
        let mut has_failed = false;
        let leader = self.leader;
        let running = self.attempts.iter_mut().enumerate().filter(|(_, attempt)| attempt.is_running());
        for (number, attempt) in running {
            let Some(end) = attempt.end else { continue };
            let error = end.unwrap_or(ConnectionError::Reset);
            // If too few paths are in the keys, the peer delivers nothing, and has said so itself. The same is true if the peer has refused
            // the attempt that had the bytes.
            let is_denied = matches!(error, ConnectionError::RefusedByPeer(_))
                || attempt.connection.protection.is_denied();
            let is_refused = error == ConnectionError::PathsMissing || (leader == Some(number) && is_denied);
            if is_refused {
                self.instances.retract();
            }
            attempt.note_progress(now);
            attempt.progress_due = now;
            attempt.end(now, AttemptOutcome::Failed(error));
            has_failed = true;
            if !matches!(error, ConnectionError::TimedOut | ConnectionError::Unreachable) {
                self.failed_at = Some(now);
            }
        }
        has_failed
    }

    fn look_at_progress(&mut self, now: Instant, host: &mut dyn Host) {
        for number in 0..self.attempts.len() {
            let attempt = &mut self.attempts[number];
            if !attempt.is_running() {
                continue;
            }
            attempt.note_progress(now);
            if !attempt.is_connected {
                continue;
            }
            match attempt.connection.protection.standing() {
                Standing::Settled if self.is_told_to_another(number) => {
                    let attempt = &mut self.attempts[number];
                    attempt.connection.refuse_instance();
                    attempt.end(now, AttemptOutcome::Failed(ConnectionError::PerhapsDelivered));
                }
                Standing::Unasked | Standing::Settled => return self.choose(now, number, host),
                Standing::Unsaid => self.say_opening(now, number, host),
                Standing::Said => self.watch_silence(now, number, host),
                Standing::Elsewhere(token) => {
                    if let Some(other) = self.with_token(token) {
                        self.attempts[other].connection.settle_claim(now);
                        self.choose(now, other, host);
                        let connection = &mut self.attempts[other].connection;
                        return connection.handle_timeout(now, host);
                    }
                    // The attempt was given up here: the bytes sent on it are lost.
                    let attempt = &mut self.attempts[number];
                    attempt.connection.abort(now);
                    attempt.end(now, AttemptOutcome::Failed(ConnectionError::AllPathsLost));
                }
            }
        }
    }

    /// Sends OPENING on this attempt, its handshake being complete. If no other attempt was given the application's bytes before, they
    /// follow at once.
    fn say_opening(&mut self, now: Instant, number: usize, host: &mut dyn Host) {
        let attempt = &mut self.attempts[number];
        let peer = attempt.connection.protection.peer_identity();
        if self.peer.is_some() && self.peer != peer {
            attempt.connection.refuse_peer();
            return attempt.end(now, AttemptOutcome::Failed(ConnectionError::HandshakeFailed));
        }
        if !self.meets_right_instance(now, number, host) {
            let attempt = &mut self.attempts[number];
            attempt.connection.refuse_instance();
            return attempt.end(now, AttemptOutcome::Failed(ConnectionError::PerhapsDelivered));
        }
        let may_tell = self.may_repeat() || !self.instances.are_several();
        let attempt = &mut self.attempts[number];
        let id = *self.id.get_or_insert_with(|| {
            let mut id = [0; OPENING_LEN];
            host.secrets().fill(&mut id);
            id
        });
        attempt.connection.protection.say_opening(id);
        attempt.note_progress(now);
        self.said_at.get_or_insert(now);
        if self.peer.is_none() {
            self.peer = peer;
        }
        if self.leader.is_none() && may_tell {
            self.leader = Some(number);
            self.early.tell(now, &mut attempt.connection);
        }
        if !core::mem::replace(&mut self.is_connected_told, true) {
            self.events.push_back(Event::Connected);
        }
    }

    /// Notes the instance of the server that this attempt has found. Returns `false` if another instance may have bytes of the application,
    /// or if this instance received them so long ago that it may have forgotten them.
    fn meets_right_instance(&mut self, now: Instant, number: usize, host: &mut dyn Host) -> bool {
        let attempt = &self.attempts[number];
        let Some(instance) = attempt.connection.protection.instance() else { return true };
        self.instances.note(instance);
        host.note_instance(now, attempt.way.remote, instance);
        if attempt.connection.protection.denies_initial() || host.knows_several_instances(now, &self.remotes)
        {
            self.instances.expect_several();
        }
        if self.may_repeat() {
            return true;
        }
        if self.instances.are_several() && self.early.is_silent() {
            // No byte was sent yet. Later bytes wait until one attempt is chosen.
            self.leader = None;
        }
        let is_forgotten = self.said_at.is_some_and(|said| said + LAST_OPENING <= now);
        self.instances.may_tell(instance) && !(self.instances.is_any_told() && is_forgotten)
    }

    /// Whether an instance of the server other than that of this attempt may have bytes of the application.
    fn is_told_to_another(&self, number: usize) -> bool {
        let instance = self.attempts[number].connection.protection.instance();
        instance.is_some_and(|instance| !self.instances.may_tell(instance))
    }

    /// Whether the application has declared that its first bytes may be delivered twice.
    fn may_repeat(&self) -> bool {
        match &self.config.protect {
            Protect::Sealed(settings) => settings.may_repeat,
            Protect::Plain | Protect::Scramble(_) => false,
        }
    }

    /// Notes that bytes of the application may leave on the leader from now on.
    pub(super) fn note_told(&mut self) {
        let Some(leader) = self.leader.and_then(|number| self.attempts.get(number)) else { return };
        let protection = &leader.connection.protection;
        if !leader.is_running() || self.early.is_silent() || self.may_repeat() || protection.holds_data() {
            return;
        }
        if let Some(instance) = protection.instance() {
            self.instances.tell(instance);
        }
    }

    /// Lets the attempt join over the other paths if the peer is silent after the handshake, or if no subflow is left.
    fn watch_silence(&mut self, now: Instant, number: usize, host: &mut dyn Host) {
        let attempt = &mut self.attempts[number];
        let has_no_subflow = attempt.connection.closing.no_subflow_since().is_some();
        if !attempt.may_join && (has_no_subflow || attempt.progress_due <= now) {
            attempt.may_join = true;
            attempt.connection.allow_joins();
            attempt.connection.handle_timeout(now, host);
        }
    }

    /// Returns the attempt that waits for the acknowledgment of its OPENING and that has this token at the peer.
    fn with_token(&self, token: u32) -> Option<usize> {
        self.attempts.iter().position(|attempt| {
            let protection = &attempt.connection.protection;
            attempt.is_running()
                && protection.standing() == Standing::Said
                && protection.derived_peer_token() == Some(token)
        })
    }

    /// Makes this attempt the connection, and gives up the others.
    fn choose(&mut self, now: Instant, number: usize, host: &mut dyn Host) {
        self.chosen = Some(number);
        // Flows of datagrams can be opened from now on.
        self.events.push_back(Event::Datagrams);
        let path = self.attempts[number].way.path;
        for (other, attempt) in self.attempts.iter_mut().enumerate() {
            if other == number {
                attempt.end(now, AttemptOutcome::Chosen);
            } else if attempt.is_running() {
                attempt.connection.abort(now);
                attempt.end(now, AttemptOutcome::Overtaken);
            }
            // A path is to blame only if another path succeeded, and if this path had enough time.
            let remote = attempt.way.remote.ip();
            match attempt.outcome {
                AttemptOutcome::Chosen => host.note_opening(now, path, remote, attempt.got_through()),
                AttemptOutcome::Failed(_) | AttemptOutcome::Overtaken
                    if attempt.way.path != path && attempt.progress_due <= now =>
                {
                    host.note_opening(now, attempt.way.path, remote, false);
                }
                AttemptOutcome::Failed(_)
                | AttemptOutcome::Overtaken
                | AttemptOutcome::PathLost
                | AttemptOutcome::Running => {}
            }
        }
        let attempt = &mut self.attempts[number];
        attempt.connection.config.crypto_jobs = self.config.crypto_jobs;
        if self.leader != Some(number) {
            self.early.tell(now, &mut attempt.connection);
        }
        self.early.forget();
        if !core::mem::replace(&mut self.is_connected_told, true) {
            self.events.push_back(Event::Connected);
        }
        if core::mem::take(&mut attempt.is_readable) {
            self.events.push_back(Event::Readable);
        }
        if core::mem::take(&mut self.is_writer_waiting) {
            if attempt.connection.send_room() > 0 {
                self.events.push_back(Event::Writable);
            } else {
                attempt.connection.expect_room();
            }
        }
    }

    /// Aborts the opening for the application.
    pub(crate) fn abort(&mut self, now: Instant) {
        if let Some(connection) = self.chosen_mut() {
            return connection.abort(now);
        }
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.is_running()) {
            attempt.connection.abort(now);
            attempt.end(now, AttemptOutcome::Failed(ConnectionError::Aborted));
        }
        self.end_with(self.farthest(), ConnectionError::Aborted);
    }

    /// Discards the opening and the remains of its attempts, which have no owner any more.
    pub(crate) fn discard(&mut self, now: Instant) {
        self.abort(now);
        for attempt in &mut self.attempts {
            attempt.connection.discard(now);
        }
    }

    /// Whether no way is left to try, and no attempt can succeed.
    fn is_hopeless(&self, now: Instant) -> bool {
        let runs = self.attempts.iter().any(Attempt::is_running);
        (!runs && self.waiting.is_empty()) || self.last_chance().is_some_and(|at| at <= now)
    }

    /// Returns how long the other attempts may go on after one has failed for a reason other than silence. An attacker on that path alone
    /// may have caused it, so the other attempts go on. They get less time than if no path had answered.
    fn last_chance(&self) -> Option<Instant> {
        let is_silent = |attempt: &Attempt| attempt.stage == AttemptStage::SynSent;
        let all_silent = self.attempts.iter().filter(|attempt| attempt.is_running()).all(is_silent);
        let failed_at = self.failed_at.filter(|_| self.waiting.is_empty() && all_silent)?;
        Some(failed_at + self.config.remaining_attempts_timeout)
    }

    fn fail(&mut self, now: Instant) {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.is_running()) {
            attempt.connection.abort(now);
            attempt.end(now, AttemptOutcome::Failed(ConnectionError::TimedOut));
        }
        let number = self.farthest();
        let error = match self.attempts[number].outcome {
            AttemptOutcome::Failed(error) => error,
            AttemptOutcome::Running
            | AttemptOutcome::Chosen
            | AttemptOutcome::Overtaken
            | AttemptOutcome::PathLost => ConnectionError::Unreachable,
        };
        let is_any_told = self.instances.is_any_told();
        let error = if is_any_told { ConnectionError::PerhapsDelivered } else { error };
        self.end_with(number, error);
    }

    /// Ends the opening with the error of this attempt.
    fn end_with(&mut self, number: usize, error: ConnectionError) {
        self.chosen = Some(number);
        self.attempts[number].connection.closing.restate(error);
        self.waiting.clear();
        self.early.forget();
        self.events.extend([Event::Closed(Some(error)), Event::Readable]);
    }

    /// Returns the attempt with the most progress. Of several, it is the one that still runs, or the one with the most specific error.
    pub(super) fn farthest(&self) -> usize {
        let says_much = |attempt: &Attempt| match attempt.outcome {
            AttemptOutcome::Running | AttemptOutcome::Chosen => 4,
            AttemptOutcome::Failed(ConnectionError::TimedOut) => 1,
            AttemptOutcome::Failed(ConnectionError::Unreachable) => 2,
            AttemptOutcome::Failed(_) => 3,
            AttemptOutcome::Overtaken | AttemptOutcome::PathLost => 0,
        };
        let rank = |number: &usize| {
            let attempt = &self.attempts[*number];
            (attempt.stage, says_much(attempt), Reverse(*number))
        };
        (0..self.attempts.len()).max_by_key(rank).unwrap_or(0)
    }

    fn may_start(&self) -> bool {
        let running = self.attempts.iter().filter(|attempt| attempt.is_running()).count();
        !self.waiting.is_empty() && running < usize::from(self.config.max_subflows).max(1)
    }

    /// Returns when the running attempts have gone without progress for long enough; `None` if none runs.
    fn next_start(&self) -> Option<Instant> {
        self.attempts.iter().filter(|attempt| attempt.is_running()).map(|attempt| attempt.progress_due).max()
    }

    /// Starts an attempt over the next way.
    fn start_next(&mut self, now: Instant, host: &mut dyn Host) {
        while let Some(way) = self.waiting.pop_front() {
            let is_usable = |path: &&Path| path.up && may_open_over(&self.config.protect, path, host);
            let Some(path) = host.paths().get(way.path).filter(is_usable).cloned() else { continue };
            let config = crate::Config { crypto_jobs: 0, ..self.config.clone() };
            let number = self.attempts.len();
            self.attempts.push(Attempt::start(now, config, number, &path, way.remote, &self.remotes, host));
            if self.failed_at.is_some() {
                self.failed_at = Some(now);
            }
            return;
        }
    }
}

impl Connection {
    /// Turns the opening into this connection, which takes over the bytes written so far.
    pub(super) fn take_over(
        &mut self,
        opened: Instant,
        attempts: Vec<AttemptStatus>,
        events: impl Iterator<Item = Event>,
    ) {
        self.opened = opened;
        self.attempts = attempts;
        events.for_each(|event| self.notices.push(event));
    }
}
