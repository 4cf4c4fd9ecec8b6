//! Detects whether the server of the connections was restarted.
//!
//! A killed server sends nothing. After its restart it knows none of the old connections. It can only deny them by resets, which an
//! attacker on the path can send too. So two questions are asked if a connection stalls. A new connection to the address of the old one
//! asks which [`Instance`] of the server answers there: its handshake authenticates the server. And the peer of the old connection is asked
//! whether it still has the subflows.
//!
//! Another instance alone is not enough: it may be a replica, another server with the same key at the same address. The old connection is
//! ended only if, in addition, none of its subflows is verified any more, and the instance was not met while the old connection still
//! progressed. Otherwise only `--dead-after` ends a connection early: an attacker that cuts all paths could make use of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plait_proxy::convert::Instance;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::line::Line;
use crate::output::say;
use crate::running::{Level, Progress, SILENT_SERVER};

/// Interval between looks at the connections.
const TICK: Duration = Duration::from_millis(250);
/// The same with very many connections.
const SLOW_TICK: Duration = Duration::from_secs(2);
const MANY: usize = 256;
/// How long a connection may stall in the middle of a transfer before the server is asked.
const IN_TRANSFER: Duration = Duration::from_secs(1);
/// The same without an expected transfer: programs are idle at times.
const AT_REST: Duration = Duration::from_secs(15);
/// A connection that read at least this much since the last look is in the middle of a transfer.
const TRANSFER: u64 = 16 * 1024;
/// Longest interval between two questions about a connection that stays stalled.
const RAREST: Duration = Duration::from_secs(300);
/// How long a server may be silent before the user is told.
const SILENT: Duration = Duration::from_secs(3);
/// Time limit of one question.
const QUESTION: Duration = Duration::from_secs(5);
/// Time that a connection has to join again after a reset of its subflows; then it counts as lost.
const JOINING: Duration = Duration::from_secs(1);
/// A look that comes so much later than it could be is the first after an absence: this process was stopped.
const ABSENCE: Duration = Duration::from_secs(3);
/// Most instances that are kept: more than the servers of one name. The oldest is dropped first.
const MAX_MET: usize = 64;

/// The state of one connection.
#[derive(Clone, Copy, Debug)]
struct Watched {
    last: Progress,
    /// The time of its last progress.
    moved_at: Instant,
    /// The last proof that its server lives.
    lived_at: Instant,
    /// Whether it was in the middle of a transfer then.
    in_transfer: bool,
    /// Whether the last look with progress showed a transfer.
    has_transferred: bool,
    /// How long it may stall from now until the next question.
    patience: Duration,
    asked_at: Option<Instant>,
    /// The start of its server's silence.
    silent_since: Option<Instant>,
    /// The instance in the last answer, if it is not the connection's own.
    other: Option<Instance>,
}

/// All connections to a server.
#[derive(Debug, Default)]
struct Watch {
    connections: BTreeMap<u64, Watched>,
    /// Instances that have answered, with the time of the first answer.
    met: BTreeMap<Instance, Instant>,
    has_warned: bool,
}

/// Watches the connections of `line` until it is dropped.
pub(crate) async fn watch(line: Arc<Line>, dead_after: Option<Duration>) {
    let mut watch = Watch::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looked_at = Instant::now();
    loop {
        ticks.tick().await;
        if looked_at.elapsed() > SLOW_TICK + QUESTION + ABSENCE {
            watch.resume(Instant::now());
        }
        looked_at = Instant::now();
        watch.look_at(&line);
        if watch.connections.len() > MANY {
            ticks.reset_after(SLOW_TICK);
        }
        watch.end_lost(&line);
        if let Some(address) = watch.due(Instant::now()) {
            for number in watch.ask(Instant::now(), address) {
                line.running.ask_life(number);
            }
            let answered = line.instance(address, QUESTION).await;
            // Progress meanwhile precedes the answer.
            watch.look_at(&line);
            match answered {
                Some(instance) => {
                    watch.is_heard(&line);
                    watch.answers(Instant::now(), address, instance);
                }
                None => watch.is_silent(&line, address),
            }
        }
        if let Some(limit) = dead_after {
            watch.give_up(&line, limit);
        }
    }
}

impl Watch {
    fn look_at(&mut self, line: &Line) {
        let mut progress = line.running.progress();
        progress.retain(|progress| line.carries(progress.number));
        self.look(Instant::now(), &progress, |progress| line.unacknowledged(progress));
    }

    /// This process did not run until now: the silence of that time is not the server's.
    fn resume(&mut self, now: Instant) {
        for watched in self.connections.values_mut() {
            (watched.moved_at, watched.asked_at, watched.silent_since) = (now, None, None);
        }
    }

    /// Notes the progress of each connection.
    fn look(&mut self, now: Instant, all: &[Progress], unacknowledged: impl Fn(Progress) -> bool) {
        self.connections.retain(|number, _| all.iter().any(|progress| progress.number == *number));
        for progress in all {
            if let Some(instance) = progress.instance {
                self.meet(now, instance);
            }
            let owes = unacknowledged(*progress);
            let begun = Watched {
                last: *progress,
                moved_at: now,
                lived_at: now,
                in_transfer: owes,
                has_transferred: owes,
                patience: IN_TRANSFER,
                asked_at: None,
                silent_since: None,
                other: None,
            };
            let watched = self.connections.entry(progress.number).or_insert(begun);
            let read = progress.read - watched.last.read;
            let lives = progress.life.verified > watched.last.life.verified;
            if read > 0 || progress.delivered > watched.last.delivered {
                // Data that is read now may have arrived long ago.
                let lived_at = if lives { now } else { watched.lived_at };
                let has_transferred = owes || read >= TRANSFER;
                // A transfer that stops soon after a look reads little before the next one.
                let is_last_piece =
                    watched.has_transferred && now.duration_since(watched.moved_at) <= SLOW_TICK;
                let in_transfer = has_transferred || is_last_piece;
                *watched = Watched { lived_at, in_transfer, has_transferred, ..begun };
            } else if lives {
                // Its server has it: any other instance is a replica.
                (watched.lived_at, watched.silent_since, watched.other) = (now, None, None);
            }
            watched.last = *progress;
            watched.in_transfer |= owes;
        }
    }

    fn meet(&mut self, now: Instant, instance: Instance) {
        if !self.met.contains_key(&instance) && self.met.len() >= MAX_MET {
            let oldest = self.met.iter().min_by_key(|(_, since)| **since).map(|(oldest, _)| *oldest);
            oldest.and_then(|oldest| self.met.remove(&oldest));
        }
        self.met.entry(instance).or_insert(now);
    }

    /// The address for the next question, if any: that of the connection that has stalled for the longest time.
    fn due(&self, now: Instant) -> Option<SocketAddr> {
        let is_due = |watched: &&Watched| watched.is_due(now) && watched.last.life.server.is_some();
        let due = self.connections.values().filter(is_due);
        due.min_by_key(|watched| watched.asked_at.unwrap_or(watched.moved_at))?.last.life.server
    }

    /// Notes a question to the server at this address, about these connections.
    fn ask(&mut self, now: Instant, address: SocketAddr) -> Vec<u64> {
        let due =
            self.connections.iter_mut().filter(|(_, watched)| watched.is_due(now) && watched.is_at(address));
        let asked = due.map(|(number, watched)| {
            (watched.asked_at, watched.other) = (Some(now), None);
            *number
        });
        asked.collect()
    }

    fn is_heard(&mut self, line: &Line) {
        if std::mem::take(&mut self.has_warned) {
            line.running.take_back(SILENT_SERVER);
            say(&format!("the server {} answers again", line.name));
        }
    }

    /// Notes that the server has proved its identity at this address, and the instance that answers there.
    fn answers(&mut self, now: Instant, address: SocketAddr, instance: Instance) {
        self.meet(now, instance);
        let asked = self.connections.values_mut().filter(|watched| watched.is_at(address));
        for watched in asked.filter(|watched| watched.asked_at.is_some()) {
            watched.silent_since = None;
            watched.other =
                Some(instance).filter(|other| watched.last.instance.is_some_and(|own| own != *other));
            watched.patience = (watched.patience * 2).min(RAREST);
        }
    }

    /// Connections of a server that was restarted, as certainly as can be known.
    fn lost(&self, now: Instant) -> impl Iterator<Item = u64> {
        let is_lost = move |watched: &Watched| {
            let Some((other, asked_at)) = watched.other.zip(watched.asked_at) else { return false };
            // An instance that was met while the server of this connection lived is a replica.
            let is_newer = self.met.get(&other).is_none_or(|met| *met >= watched.lived_at);
            let life = watched.last.life;
            is_newer && life.verified.is_some() && !life.is_there && now.duration_since(asked_at) >= JOINING
        };
        self.connections.iter().filter(move |(_, watched)| is_lost(watched)).map(|(number, _)| *number)
    }

    fn end_lost(&self, line: &Line) {
        let ended = self.lost(Instant::now()).filter(|number| line.running.abort(*number)).count();
        if ended > 0 {
            line.warm.distrust();
            say(&format!(
                "the server {} was started again: {ended} connections to the earlier one were reset",
                line.name
            ));
        }
    }

    fn is_silent(&mut self, line: &Line, address: SocketAddr) {
        let asked = self.connections.values_mut().filter(|watched| watched.is_at(address));
        let stalled = asked.filter(|watched| watched.asked_at.is_some());
        let since = stalled.map(|watched| *watched.silent_since.get_or_insert(watched.moved_at)).min();
        let Some(since) = since.filter(|since| since.elapsed() >= SILENT) else { return };
        let what = format!("the server {} has not answered on any path", line.name);
        line.running.warn(Level::Error, SILENT_SERVER, what.as_str());
        if std::mem::replace(&mut self.has_warned, true) {
            return;
        }
        say(&format!("warning: {what} for {} s", since.elapsed().as_secs()));
    }

    /// Ends the connections that have stalled for so long while the server did not answer.
    fn give_up(&self, line: &Line, limit: Duration) {
        for (number, watched) in &self.connections {
            let is_silent = watched.silent_since.is_some_and(|since| since.elapsed() >= limit);
            if is_silent && watched.moved_at.elapsed() >= limit {
                line.running.abort(*number);
            }
        }
    }
}

impl Watched {
    fn is_due(&self, now: Instant) -> bool {
        let first = if self.in_transfer { IN_TRANSFER } else { AT_REST };
        match self.asked_at {
            None => now.duration_since(self.moved_at) >= first,
            Some(at) => now.duration_since(at) >= self.patience,
        }
    }

    fn is_at(&self, address: SocketAddr) -> bool {
        self.last.life.server == Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::Life;

    const OLD: Instance = Instance([1; 16]);
    const OTHER: Instance = Instance([2; 16]);
    const STILL: Duration = Duration::from_secs(3);

    fn address() -> SocketAddr {
        ([192, 0, 2, 1], 7443).into()
    }

    fn life(verified: u64, is_there: bool) -> Life {
        Life { verified: Some(Duration::from_secs(verified)), server: Some(address()), is_there }
    }

    fn at(read: u64) -> Progress {
        Progress { number: 1, instance: Some(OLD), delivered: 0, read, life: life(1, true) }
    }

    fn due_after(watch: &Watch, start: Instant) -> Duration {
        let is_due = |time: &Duration| watch.due(start + *time).is_some();
        (0..100_000).map(|step| TICK * step).find(is_due).expect("some day")
    }

    /// Returns a stalled download after a question to the server and the answer of an instance; and the time of the question.
    fn answered_by(instance: Instance) -> (Watch, Instant) {
        let (mut watch, start) = (Watch::default(), Instant::now());
        watch.look(start, &[at(0)], |_| false);
        watch.look(start, &[at(1_000_000)], |_| false);
        let asked_at = start + IN_TRANSFER;
        assert_eq!(watch.due(asked_at), Some(address()));
        assert_eq!(watch.ask(asked_at, address()), [1]);
        watch.answers(asked_at + TICK, address(), instance);
        (watch, asked_at)
    }

    fn is_lost(watch: &mut Watch, now: Instant, life: Life) -> bool {
        watch.look(now, &[Progress { life, ..at(1_000_000) }], |_| false);
        watch.lost(now).eq([1])
    }

    #[test]
    fn a_connection_ends_when_another_instance_answers_and_nothing_verifies_a_subflow() {
        let (mut watch, asked_at) = answered_by(OTHER);
        assert!(!is_lost(&mut watch, asked_at + TICK, life(1, false)), "it may join again");
        assert!(!is_lost(&mut watch, asked_at + STILL, life(1, true)), "a subflow is not doubted yet");
        assert!(is_lost(&mut watch, asked_at + STILL, life(1, false)));
        let (mut watch, asked_at) = answered_by(OLD);
        assert!(!is_lost(&mut watch, asked_at + STILL, life(1, false)), "the same instance is no restart");
    }

    #[test]
    fn a_connection_lives_on_beside_a_replica_when_a_subflow_is_verified_after_the_question() {
        let (mut watch, asked_at) = answered_by(OTHER);
        assert!(!is_lost(&mut watch, asked_at + 2 * TICK, life(2, true)));
        // All paths fail afterwards, and the replica answers again: it was met while the server of the connection lived.
        watch.ask(asked_at + STILL, address());
        watch.answers(asked_at + STILL + TICK, address(), OTHER);
        assert!(!is_lost(&mut watch, asked_at + 2 * STILL, life(2, false)));
        // An instance that was not met before may be a restarted server.
        watch.ask(asked_at + 3 * STILL, address());
        watch.answers(asked_at + 3 * STILL + TICK, address(), Instance([3; 16]));
        assert!(is_lost(&mut watch, asked_at + 4 * STILL, life(2, false)));
    }

    #[test]
    fn bytes_that_are_read_after_the_server_has_gone_do_not_make_the_new_instance_a_replica() {
        let (mut watch, asked_at) = answered_by(OTHER);
        let late = asked_at + STILL;
        let gone = Progress { life: life(1, false), ..at(1_100_000) };
        watch.look(late, &[gone], |_| false);
        assert_eq!(watch.lost(late).count(), 0, "the application goes on");
        watch.ask(late + STILL, address());
        watch.answers(late + STILL, address(), OTHER);
        watch.look(late + 2 * STILL, &[gone], |_| false);
        assert!(watch.lost(late + 2 * STILL).eq([1]));
    }

    #[test]
    fn after_an_absence_of_this_process_the_silence_of_the_server_counts_anew() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        watch.look(start, &[at(0)], |_| true);
        watch.ask(start + STILL, address());
        let now = start + Duration::from_secs(3600);
        watch.resume(now);
        assert_eq!(watch.due(now + IN_TRANSFER / 2), None);
        assert_eq!(watch.due(now + IN_TRANSFER), Some(address()));
        let watched = watch.connections[&1];
        assert_eq!((watched.silent_since, watched.moved_at), (None, now));
    }

    #[test]
    fn an_answer_from_another_address_than_that_of_the_connection_ends_nothing() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        watch.look(start, &[at(0)], |_| true);
        watch.ask(start + STILL, address());
        watch.answers(start + STILL, ([192, 0, 2, 2], 7443).into(), OTHER);
        watch.look(start + 2 * STILL, &[Progress { life: life(1, false), ..at(0) }], |_| true);
        assert_eq!(watch.lost(start + 2 * STILL).count(), 0);
    }

    #[test]
    fn a_transfer_that_stops_is_asked_about_at_once_and_a_program_at_rest_later() {
        let start = Instant::now();
        let seen = |steps: &[u64], owes: bool| {
            let mut watch = Watch::default();
            steps.iter().for_each(|read| watch.look(start, &[at(*read)], |_| owes));
            due_after(&watch, start)
        };
        assert_eq!(seen(&[0, 1_000_000], false), IN_TRANSFER, "a download");
        assert_eq!(seen(&[0], true), IN_TRANSFER, "an upload, or a request");
        assert_eq!(seen(&[0, 1_000_000, 1_000_100], false), IN_TRANSFER, "stopped soon after a look");
        assert_eq!(seen(&[0, 1_000_000, 1_000_100, 1_000_200], false), AT_REST, "the download is over");
        assert_eq!(seen(&[0, 100], false), AT_REST, "a few words and no more");
    }

    #[test]
    fn a_program_that_rests_for_long_is_asked_about_more_and_more_rarely() {
        let mut watch = Watch::default();
        let mut now = Instant::now();
        watch.look(now, &[at(0)], |_| false);
        let mut questions = 0;
        for _ in 0..4 * 3600 {
            now += TICK;
            if let Some(address) = watch.due(now) {
                questions += 1;
                watch.ask(now, address);
                watch.answers(now, address, OLD);
            }
        }
        assert!((5..25).contains(&questions), "{questions} in an hour");
    }
}
