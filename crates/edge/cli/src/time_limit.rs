//! The time limit of an attempt to reach a server.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plait::ConnectOptions;
use tokio::time::{Instant, sleep, timeout_at};

use crate::output::say;

/// Silence of a server after which a person is told that the program still tries.
const PATIENCE: Duration = Duration::from_secs(4);

/// The time of `--connect-timeout`, from now on: for all that is asked about a server, and for the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit {
    begun: Instant,
    limit: Option<Duration>,
}

impl TimeLimit {
    /// Starts the clock. `None`: what is awaited has limits of its own.
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { begun: Instant::now(), limit }
    }

    /// Does something within half of the time, so that the rest is left if it fails. `None`: it took longer.
    pub(crate) async fn half<T>(self, work: impl Future<Output = T>) -> Option<T> {
        by(self.limit.and_then(|limit| self.begun.checked_add(limit / 2)), work).await
    }

    /// Does something within the time. `None`: it took longer.
    pub(crate) async fn whole<T>(self, work: impl Future<Output = T>) -> Option<T> {
        by(self.limit.and_then(|limit| self.begun.checked_add(limit)), work).await
    }

    /// Looks up a name within the time.
    ///
    /// # Errors
    /// It took longer ([`io::ErrorKind::TimedOut`]).
    pub(crate) async fn all<T>(self, work: impl Future<Output = T>) -> io::Result<T> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the name of the server was not found in time");
        self.whole(work).await.ok_or_else(late)
    }

    /// The same limit without this time: it was spent on this machine, or by the user.
    pub(crate) fn without(self, spent: Duration) -> Self {
        Self { begun: self.begun + spent, ..self }
    }

    /// Awaits a connection to `place`. If it is not there after some seconds, one message says how much longer the program tries: the first
    /// connection of the program only.
    pub(crate) async fn patiently<T>(self, place: &str, work: impl Future<Output = T>) -> T {
        static IS_TOLD: AtomicBool = AtomicBool::new(false);
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            result = &mut work => return result,
            () = sleep(PATIENCE) => {}
        }
        if !IS_TOLD.swap(true, Ordering::Relaxed) {
            say(&format!("no answer yet from {place}; plait tries for {}", self.left()));
        }
        work.await
    }

    /// The time that is left, for people.
    fn left(self) -> String {
        match self.limit {
            Some(limit) => {
                let left = limit.saturating_sub(self.begun.elapsed());
                format!("{} s more", left.as_secs_f64().round())
            }
            None => "about two minutes in all (--connect-timeout SECONDS sets a limit)".to_owned(),
        }
    }

    /// Options of a connection that must be open in the time that is left.
    pub(crate) fn rest(self) -> ConnectOptions {
        let options = ConnectOptions::new();
        self.limit.map_or_else(ConnectOptions::new, |limit| {
            options.within(limit.saturating_sub(self.begun.elapsed()))
        })
    }
}

async fn by<T>(until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => timeout_at(until, work).await.ok(),
        None => Some(work.await),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_and_all_of_the_time_end_together_with_it() {
        let limit = TimeLimit::new(Some(Duration::from_millis(200)));
        assert_eq!(limit.half(pending::<()>()).await, None);
        assert!((100..=101).contains(&limit.begun.elapsed().as_millis()), "{limit:?}");
        let late = limit.all(pending::<()>()).await.expect_err("it never ends");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert!(limit.begun.elapsed() >= Duration::from_millis(200), "{limit:?}");
        assert_eq!(limit.half(async { 1 }).await, Some(1), "what needs no time is never late");
        let longer = limit.without(Duration::from_millis(100));
        assert_eq!(longer.whole(sleep(Duration::from_millis(90))).await, Some(()));
        assert_eq!(longer.whole(pending::<()>()).await, None);
        assert!((300..=301).contains(&limit.begun.elapsed().as_millis()), "{limit:?}");
    }

    #[tokio::test]
    async fn without_a_limit_nothing_is_late() {
        let limit = TimeLimit::new(None);
        assert_eq!((limit.half(async { 1 }).await, limit.all(async { 2 }).await.ok()), (Some(1), Some(2)));
    }
}
