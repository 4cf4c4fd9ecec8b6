//! Whether the server that connections go to is still the one that they were opened to.
//!
//! A server that is killed says nothing. Started again, it knows none of the old connections, and can only deny them by resets, which
//! anybody on the way can send. So where a connection stands still, the server is asked over a fresh one which [`Instance`] it is: the
//! handshake proves that it is the server who answers. If it is another instance, the old connection has no other end any more, and is ended
//! at once. Nothing else ends one early but `--dead-after`, if that is asked for: who cuts all paths could make use of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plait_proxy::convert::Instance;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::dial::Line;
use crate::output::say;
use crate::running::Progress;

/// How often connections are looked at.
const TICK: Duration = Duration::from_millis(250);
/// The same where there are very many.
const SLOW_TICK: Duration = Duration::from_secs(2);
const MANY: usize = 256;
/// How long a connection may stand still in the middle of a transfer before the server is asked.
const IN_TRANSFER: Duration = Duration::from_secs(1);
/// How long one may on which nothing was to be expected: programs rest.
const AT_REST: Duration = Duration::from_secs(15);
/// A connection that read as much as this since it was looked at last is in the middle of a transfer.
const TRANSFER: u64 = 16 * 1024;
/// Longest time between two questions about a connection that goes on standing still.
const RAREST: Duration = Duration::from_secs(300);
/// How long a server may be silent before people are told.
const SILENT: Duration = Duration::from_secs(3);
/// How long one question may take.
const QUESTION: Duration = Duration::from_secs(5);

/// What is known of one connection.
#[derive(Clone, Copy, Debug)]
struct Watched {
    last: Progress,
    /// When it last went on.
    moved_at: Instant,
    /// Whether it was in the middle of a transfer then.
    in_transfer: bool,
    /// How long it may stand still from now until the next question.
    patience: Duration,
    asked_at: Option<Instant>,
}

/// All connections to a server.
#[derive(Debug, Default)]
struct Watch {
    connections: BTreeMap<u64, Watched>,
    /// Since when the server has not answered a question.
    silent_since: Option<Instant>,
    has_warned: bool,
}

/// Watches the connections of `line` until it is dropped.
pub(crate) async fn watch(line: Arc<Line>, dead_after: Option<Duration>) {
    let mut watch = Watch::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        watch.look(now, &line.running.progress(), |number| line.unacknowledged(number));
        if watch.connections.len() > MANY {
            ticks.reset_after(SLOW_TICK);
        }
        if watch.is_due(now) {
            let answered = line.instance(QUESTION).await;
            watch.asked(now);
            match answered {
                Some(instance) => watch.answers(&line, instance),
                None => watch.is_silent(&line, now),
            }
        }
        if let Some(limit) = dead_after {
            watch.give_up(&line, limit);
        }
    }
}

impl Watch {
    /// Takes note of how far each connection is.
    fn look(&mut self, now: Instant, all: &[Progress], unacknowledged: impl Fn(Progress) -> bool) {
        self.connections.retain(|number, _| all.iter().any(|progress| progress.number == *number));
        for progress in all {
            let owes = unacknowledged(*progress);
            let begun = Watched {
                last: *progress,
                moved_at: now,
                in_transfer: owes,
                patience: IN_TRANSFER,
                asked_at: None,
            };
            let watched = self.connections.entry(progress.number).or_insert(begun);
            let read = progress.read - watched.last.read;
            if read > 0 || progress.delivered > watched.last.delivered {
                *watched = Watched { in_transfer: owes || read >= TRANSFER, ..begun };
            }
            watched.last = *progress;
            watched.in_transfer |= owes;
        }
    }

    /// Whether the server is to be asked about one of them.
    fn is_due(&self, now: Instant) -> bool {
        self.connections.values().any(|watched| watched.is_due(now))
    }

    /// The server was asked about those that were due.
    fn asked(&mut self, now: Instant) {
        for watched in self.connections.values_mut().filter(|watched| watched.is_due(now)) {
            watched.asked_at = Some(now);
        }
    }

    /// The server has proved who it is, and said which instance.
    fn answers(&mut self, line: &Line, instance: Instance) {
        if self.has_warned {
            say(&format!("the server {} answers again", line.name));
        }
        (self.silent_since, self.has_warned) = (None, false);
        let mut ended = 0;
        for (number, watched) in &mut self.connections {
            let is_other = watched.last.instance.is_some_and(|old| old != instance);
            if watched.asked_at.is_some() && is_other && line.running.abort(*number) {
                ended += 1;
            }
            watched.patience = (watched.patience * 2).min(RAREST);
        }
        if ended > 0 {
            say(&format!(
                "the server {} was started again: {ended} connections to the earlier one were reset",
                line.name
            ));
        }
    }

    fn is_silent(&mut self, line: &Line, now: Instant) {
        let stalled = self.connections.values().filter(|watched| watched.asked_at.is_some());
        let since = stalled.map(|watched| watched.moved_at).min().unwrap_or(now);
        self.silent_since.get_or_insert(since);
        if since.elapsed() >= SILENT && !self.has_warned {
            self.has_warned = true;
            say(&format!(
                "warning: the server {} has not answered on any path for {} s",
                line.name,
                since.elapsed().as_secs()
            ));
        }
    }

    /// Ends those that have stood still for so long while the server did not answer.
    fn give_up(&self, line: &Line, limit: Duration) {
        if self.silent_since.is_none_or(|since| since.elapsed() < limit) {
            return;
        }
        for (number, watched) in &self.connections {
            if watched.moved_at.elapsed() >= limit {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Instance = Instance([1; 16]);

    fn at(read: u64) -> Progress {
        Progress { number: 1, instance: Some(OLD), delivered: 0, read }
    }

    fn due_after(watch: &Watch, start: Instant) -> Duration {
        (0..100_000).map(|step| TICK * step).find(|time| watch.is_due(start + *time)).expect("some day")
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
            if watch.is_due(now) {
                questions += 1;
                watch.asked(now);
                for watched in watch.connections.values_mut() {
                    watched.patience = (watched.patience * 2).min(RAREST);
                }
            }
        }
        assert!((5..25).contains(&questions), "{questions} in an hour");
    }
}
