//! Accepts connections, until the signal to stop or until another process has replaced this one.

use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Context;
use plait::{Listener, Stream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::one::serve_one;
use super::{LAST_SILENCE, Shared};
use crate::exit;
use crate::linux::announcement::Announcement;
use crate::linux::control::Control;
use crate::linux::service as supervision;
use crate::linux::upgrade::{Event, OPENINGS, Succession, Successor, Upgrades};

/// What accepts, and what was accepted.
pub(super) struct Accepting {
    pub(super) listener: Listener,
    pub(super) control: Control,
    pub(super) flows: JoinSet<()>,
    /// The process that this one has replaced.
    pub(super) succession: Option<Succession>,
    /// The process that has replaced this one. It learns of the end of this process when this is dropped.
    pub(super) successor: Option<Successor>,
}

/// The end of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drained {
    /// The connections have ended, or their time is over.
    All,
    /// This process stops.
    Stopped,
    /// The successor has ended: this process is the server again.
    Alone,
}

impl Accepting {
    /// Serves until one of them, and the connections of then to their end.
    pub(super) async fn until(
        mut self,
        mut stopped: JoinHandle<exit::Interrupted>,
        shared: &Arc<Shared>,
        (announcement, supervised): (&Announcement, &supervision::Service),
    ) -> anyhow::Result<()> {
        let (mut announced, mut is_announced) = (pin!(announcement.print(&shared.host)), false);
        let mut upgrades = Upgrades::of(&shared.host, self.control.public());
        let (ended, is_over) = loop {
            tokio::select! {
                () = &mut announced, if !is_announced => is_announced = true,
                _ = &mut stopped => break (Ok(()), false),
                Some(_) = self.flows.join_next() => {}
                successor = upgrades.next() => {
                    let drained = tokio::select! {
                        drained = self.drain(&successor, &mut stopped, shared) => drained,
                        () = upgrades.refuse() => continue,
                    };
                    if drained == Drained::Alone {
                        self.resume(shared).await;
                        continue;
                    }
                    self.successor = Some(successor);
                    break (Ok(()), drained == Drained::All);
                }
                accepted = self.listener.accept() => match accepted {
                    Ok(stream) => self.admit(stream, shared),
                    Err(error) => break (Err(error).context("no more clients can be accepted"), false),
                },
            }
        };
        drop(upgrades);
        let farewell = if is_over { Duration::ZERO } else { of(&shared.farewell) };
        self.end(farewell, shared, supervised).await;
        ended
    }

    fn admit(&mut self, stream: Stream, shared: &Arc<Shared>) {
        let Some(place) = shared.door.enter() else {
            // There was room when the client was judged; a connection that is not sealed was not judged.
            stream.abort();
            if let Some(more_like_it) = shared.strangers.note("too many connections") {
                tracing::warn!(more_like_it, "too many connections: a client was reset");
            }
            return;
        };
        let shared = Arc::clone(shared);
        self.flows.spawn(async move {
            serve_one(shared, stream).await;
            drop(place);
        });
    }

    /// Serves the connections that are open, and finishes openings that were begun here.
    async fn drain(
        &mut self,
        successor: &Successor,
        stopped: &mut JoinHandle<exit::Interrupted>,
        shared: &Arc<Shared>,
    ) -> Drained {
        shared.running.replaced(true);
        shared.waiting.pause(true);
        // The successor has read the options as they are now. What they forbid since ends here as well.
        let reload = shared.running.reload().clone();
        tokio::spawn(async move { reload.ask().await });
        let begun = Instant::now();
        let (openings, limit) = (begun + OPENINGS, begun + of(&shared.upgrade_drain));
        tracing::info!(connections = self.flows.len(), "draining");
        let mut event = pin!(successor.event());
        loop {
            let is_quiet = self.flows.is_empty() && Instant::now() >= openings;
            tokio::select! {
                // What was written last is delivered.
                () = shared.host.drained(), if is_quiet => return Drained::All,
                Some(_) = self.flows.join_next() => {}
                event = &mut event => return match event {
                    Event::Stops => Drained::Stopped,
                    Event::HasEnded => Drained::Alone,
                },
                _ = &mut *stopped => return Drained::Stopped,
                () = sleep_until(openings), if Instant::now() < openings => {}
                () = sleep_until(limit) => {
                    tracing::warn!(connections = self.flows.len(), "the time of --upgrade-drain is over");
                    return Drained::All;
                }
                accepted = self.listener.accept() => match accepted {
                    Ok(stream) => self.admit(stream, shared),
                    Err(_) => return Drained::All,
                },
            }
        }
    }

    /// Accepts connections again.
    async fn resume(&mut self, shared: &Arc<Shared>) {
        tracing::error!(
            "the process that had replaced this one has ended: connections are accepted here again"
        );
        if let Err(error) = shared.host.take_back().await {
            tracing::error!(%error, "the ports cannot be taken back");
        }
        if let Err(error) = self.control.public().open() {
            tracing::error!("{error:#}");
        }
        shared.waiting.pause(false);
        shared.running.replaced(false);
    }

    /// Ends, after the connections have had the time for it.
    async fn end(self, farewell: Duration, shared: &Arc<Shared>, supervised: &supervision::Service) {
        let Self { listener, mut control, mut flows, succession, successor } = self;
        supervised.stops(farewell).await;
        shared.door.close();
        shared.waiting.stop();
        if let Some(succession) = &succession {
            succession.stop().await;
        }
        // Another process can use the port and the socket now, while the last connections end.
        drop(listener);
        control.release();
        tracing::info!(connections = flows.len(), "stopping");
        shared.silence.lower(LAST_SILENCE);
        // A second signal ends this wait too.
        tokio::select! {
            _ = timeout(farewell, async { while flows.join_next().await.is_some() {} }) => {}
            _ = exit::stopped() => {}
        }
        flows.shutdown().await;
        let _ = timeout(Duration::from_secs(1), shared.host.drained()).await;
        if let Some(succession) = succession {
            // Its connections are received here.
            succession.end(farewell + Duration::from_secs(3)).await;
        }
        drop(successor);
    }
}

fn of(duration: &std::sync::Mutex<Duration>) -> Duration {
    *duration.lock().unwrap_or_else(PoisonError::into_inner)
}
