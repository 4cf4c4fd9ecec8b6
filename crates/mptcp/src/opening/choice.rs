//! Which attempt is the connection, and when the next one begins.

use plait_base::{Duration, Instant};
use plait_protect::sealed::OPENING_LEN;
use std::cmp::Reverse;

use super::active_open::ActiveOpen;
use super::attempt::Attempt;
use crate::connection::trust::may_open_over;
use crate::protection::sealed::Standing;
use crate::status::{AttemptOutcome, AttemptStage, AttemptStatus};
use crate::{Connection, ConnectionError, Event, Host, Path, PathClass, Protect};

/// No attempt begins so long after one has said OPENING: the peer does not remember openings for ever.
const LAST_START: Duration = Duration::from_secs(60);
/// No attempt says OPENING so long after the first, where bytes may have been delivered: the peer remembers a claim for two minutes.
/// That holds as far as the clock of the host counts the time for which it was suspended.
const LAST_OPENING: Duration = Duration::from_secs(110);

impl ActiveOpen {
    /// After anything has happened: hears what the attempts report, and does what follows from it.
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

    /// When there is something to do that no attempt knows of.
    pub(super) fn own_deadline(&self) -> Option<Instant> {
        if self.chosen.is_some() {
            return None;
        }
        if self.attempts.iter().any(|attempt| attempt.is_running() && attempt.end.is_some()) {
            // It has failed while it was sending.
            return Some(self.opened);
        }
        let next = if self.may_start() { self.next_start() } else { None };
        let is_watched = |attempt: &&Attempt| {
            attempt.is_running() && attempt.stage == AttemptStage::Authenticated && !attempt.may_join
        };
        let silent = self.attempts.iter().filter(is_watched).map(|attempt| attempt.progress_due);
        silent.chain([next, self.last_chance()].into_iter().flatten()).min()
    }

    /// Passes on what the attempt reports.
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

    /// Ends the attempts whose connections have failed.
    fn take_failures(&mut self, now: Instant) -> bool {
        let mut has_failed = false;
        let leader = self.leader;
        let running = self.attempts.iter_mut().enumerate().filter(|(_, attempt)| attempt.is_running());
        for (number, attempt) in running {
            let Some(end) = attempt.end else { continue };
            let error = end.unwrap_or(ConnectionError::Reset);
            // Under keys of too few paths the peer delivers nothing, and said so itself; nor does it where it has refused the attempt that
            // was told.
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
                    // It was given up here: what was said on it is lost.
                    let attempt = &mut self.attempts[number];
                    attempt.connection.abort(now);
                    attempt.end(now, AttemptOutcome::Failed(ConnectionError::AllPathsLost));
                }
            }
        }
    }

    /// The handshake of this attempt is through: OPENING goes out at once, and behind it what the application has said, if
    /// no other attempt was told before.
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

    /// Notes which instance of the server this attempt has found. `false` if bytes of the application may have reached another one, or this
    /// one so long ago that it may have forgotten them.
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
            // Nothing was said yet: what will be waits until it is certain which attempt is the connection.
            self.leader = None;
        }
        let is_forgotten = self.said_at.is_some_and(|said| said + LAST_OPENING <= now);
        self.instances.may_tell(instance) && !(self.instances.is_any_told() && is_forgotten)
    }

    /// Whether another instance of the server than that of this attempt may have bytes of the application.
    fn is_told_to_another(&self, number: usize) -> bool {
        let instance = self.attempts[number].connection.protection.instance();
        instance.is_some_and(|instance| !self.instances.may_tell(instance))
    }

    /// Whether the application has declared that it does no harm if what it says first is delivered twice.
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

    /// Silence behind the handshake, or nobody left to speak: the attempt joins over the other paths.
    fn watch_silence(&mut self, now: Instant, number: usize, host: &mut dyn Host) {
        let attempt = &mut self.attempts[number];
        let has_no_subflow = attempt.connection.closing.no_subflow_since().is_some();
        if !attempt.may_join && (has_no_subflow || attempt.progress_due <= now) {
            attempt.may_join = true;
            attempt.connection.allow_joins();
            attempt.connection.handle_timeout(now, host);
        }
    }

    /// The attempt that waits for its OPENING to be acknowledged and whose token at the peer is this one.
    fn with_token(&self, token: u32) -> Option<usize> {
        self.attempts.iter().position(|attempt| {
            let protection = &attempt.connection.protection;
            attempt.is_running()
                && protection.standing() == Standing::Said
                && protection.derived_peer_token() == Some(token)
        })
    }

    /// This one is the connection. The others are let go.
    fn choose(&mut self, now: Instant, number: usize, host: &mut dyn Host) {
        self.chosen = Some(number);
        let path = self.attempts[number].way.path;
        for (other, attempt) in self.attempts.iter_mut().enumerate() {
            if other == number {
                attempt.end(now, AttemptOutcome::Chosen);
            } else if attempt.is_running() {
                attempt.connection.abort(now);
                attempt.end(now, AttemptOutcome::Overtaken);
            }
            // A path is to blame only where another has got through, and if it had its time.
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

    /// The application gives the connection up.
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

    /// Nobody waits for it any more, nor for what its attempts have left.
    pub(crate) fn discard(&mut self, now: Instant) {
        self.abort(now);
        for attempt in &mut self.attempts {
            attempt.connection.discard(now);
        }
    }

    /// Nothing is left to try and to hope for.
    fn is_hopeless(&self, now: Instant) -> bool {
        let runs = self.attempts.iter().any(Attempt::is_running);
        (!runs && self.waiting.is_empty()) || self.last_chance().is_some_and(|at| at <= now)
    }

    /// Something on one path was worse than silence, which may be a lie told on that path alone: the others keep a chance,
    /// but not as long as where nobody has said anything.
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

    /// This one speaks for all: it has failed, and so has the opening.
    fn end_with(&mut self, number: usize, error: ConnectionError) {
        self.chosen = Some(number);
        self.attempts[number].connection.closing.restate(error);
        self.waiting.clear();
        self.early.forget();
        self.events.extend([Event::Closed(Some(error)), Event::Readable]);
    }

    /// The attempt that has come farthest; of several the one that still runs, or whose end says most.
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

    /// When none of those that run has made progress for long enough; `None` if none runs.
    fn next_start(&self) -> Option<Instant> {
        self.attempts.iter().filter(|attempt| attempt.is_running()).map(|attempt| attempt.progress_due).max()
    }

    /// The next way is tried.
    fn start_next(&mut self, now: Instant, host: &mut dyn Host) {
        while let Some(way) = self.waiting.pop_front() {
            let is_usable = |path: &&Path| path.up && may_open_over(&self.config.protect, path, host);
            let Some(path) = host.paths().get(way.path).filter(is_usable).cloned() else { continue };
            let config = crate::Config { crypto_jobs: 0, ..self.config.clone() };
            let number = self.attempts.len();
            let to = (&path, way.remote);
            self.attempts.push(Attempt::start(now, config, number, to, &self.remotes, host));
            if self.failed_at.is_some() {
                self.failed_at = Some(now);
            }
            return;
        }
    }

    /// Attempts whose paths have gone are given up, unless there is nothing else: TCP outlives a path that comes back.
    pub(super) fn follow_paths(&mut self, now: Instant, host: &dyn Host) {
        if self.chosen.is_some() {
            return;
        }
        let is_gone = |attempt: &Attempt| {
            let remote = attempt.way.remote.ip();
            let path = host.paths().get(attempt.way.path);
            !path.is_some_and(|path| {
                path.up && path.class != PathClass::Never && path.local_for(remote) == attempt.local_address()
            })
        };
        let is_other = |attempt: &Attempt| attempt.is_running() && !is_gone(attempt);
        if self.waiting.is_empty() && !self.attempts.iter().any(is_other) {
            return;
        }
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.is_running()) {
            // Behind the handshake an attempt can be joined over another path, and the peer may have claimed it.
            if attempt.stage < AttemptStage::Authenticated && is_gone(attempt) {
                attempt.connection.abort(now);
                attempt.end(now, AttemptOutcome::PathLost);
            }
        }
    }
}

impl Connection {
    /// This connection is what came of an opening: what was said there is its own from now on.
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
