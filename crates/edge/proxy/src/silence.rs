//! The time limit for silence on connections of which one direction has ended.
//!
//! A program that waits for an answer ends its direction in order. The kernel does the same for a killed program. If the answer never comes,
//! only time distinguishes the two.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Time between two checks whether a stream has failed that is neither read nor written.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The time limit of all connections of a process. A clone is the same limit.
#[derive(Clone, Debug)]
pub struct SilenceLimit(Arc<watch::Sender<Option<Duration>>>);

/// A connection was silent for this time after one direction had ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silent(pub Duration);

/// The silence of one connection.
pub(crate) struct Silence {
    limit: SilenceLimit,
    started: Instant,
    /// Milliseconds from the start to the last movement.
    last: AtomicU64,
    half_closed: Notify,
}

impl SilenceLimit {
    /// The default: above the four minutes that a NAT must keep a connection that is closing (RFC 5382, REQ-5).
    pub const DEFAULT: Duration = Duration::from_secs(300);

    /// A limit; `None`: silence has no limit.
    pub fn new(limit: Option<Duration>) -> Self {
        Self(Arc::new(watch::Sender::new(limit)))
    }

    /// Sets another limit, for the connections that exist, too.
    pub fn set(&self, limit: Option<Duration>) {
        self.0.send_replace(limit);
    }

    /// Lowers the limit, for the connections that exist, too.
    pub fn lower(&self, to: Duration) {
        self.0.send_modify(|limit| *limit = Some(limit.map_or(to, |limit| limit.min(to))));
    }
}

impl Silence {
    pub(crate) fn new(limit: &SilenceLimit) -> Self {
        let (last, half_closed) = (AtomicU64::new(0), Notify::new());
        Self { limit: limit.clone(), started: Instant::now(), last, half_closed }
    }

    /// Notes that bytes have moved.
    pub(crate) fn on_moved(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Notes that one direction has ended.
    pub(crate) fn on_half_closed(&self) {
        self.on_moved();
        self.half_closed.notify_one();
    }

    /// Waits until one direction has ended and the connection has been silent for longer than the limit. `acknowledged` counts the bytes
    /// that the peers have acknowledged: a change is a movement. `check` returns the failure of a stream that has been read to its end, where
    /// no read returns it.
    ///
    /// # Errors
    /// A stream has failed.
    pub(crate) async fn too_long<E>(
        &self,
        acknowledged: impl Fn() -> u64,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<Silent, E> {
        self.half_closed.notified().await;
        let mut limits = self.limit.0.subscribe();
        let mut before = acknowledged();
        loop {
            let limit = *limits.borrow_and_update();
            let waited = async {
                match limit {
                    Some(limit) => {
                        sleep_until(self.last_moved() + limit).await;
                        limit
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender lives as long as `self`.
                _ = limits.changed() => {}
                () = sleep(CHECK_INTERVAL) => check()?,
                limit = waited => {
                    let now = acknowledged();
                    if now != before {
                        before = now;
                        self.on_moved();
                    } else if self.last_moved() + limit <= Instant::now() {
                        return Ok(Silent(limit));
                    }
                }
            }
        }
    }

    fn last_moved(&self) -> Instant {
        self.started + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one direction has ended, and the other one was silent for {} s", self.0.as_secs())
    }
}

impl std::error::Error for Silent {}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);

    /// Returns the time after which the connection counts as silent.
    async fn silent_after(silence: &Silence, acknowledged: impl Fn() -> u64) -> Duration {
        let begun = Instant::now();
        silence.too_long(acknowledged, || Ok::<_, Infallible>(())).await.expect("infallible");
        // The clock of the runtime has steps of a millisecond.
        Duration::from_secs((begun.elapsed() + Duration::from_millis(100)).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_is_lowered_ends_connections_that_were_silent_for_that_long() {
        let limit = SilenceLimit::new(None);
        let silence = Silence::new(&limit);
        silence.on_half_closed();
        let lowering = async {
            sleep(Duration::from_secs(10)).await;
            limit.lower(Duration::from_secs(3));
        };
        let (after, ()) = tokio::join!(silent_after(&silence, || 0), lowering);
        assert_eq!(after.as_secs(), 10);
        limit.lower(LIMIT);
        let silence = Silence::new(&limit);
        silence.on_half_closed();
        assert_eq!(silent_after(&silence, || 0).await.as_secs(), 3, "it is never raised");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_the_peer_still_acknowledges_restart_the_time() {
        let silence = Silence::new(&SilenceLimit::new(Some(LIMIT)));
        let begun = Instant::now();
        silence.on_half_closed();
        // A peer behind a slow path, which takes the last bytes in the first 400 seconds.
        let acknowledged = || begun.elapsed().as_secs().min(400);
        assert_eq!(silent_after(&silence, acknowledged).await.as_secs(), 900);
    }
}
