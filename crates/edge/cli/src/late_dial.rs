//! `--wait`: a server that is away at the start.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use plait::ErrorKind;
use plait_proxy::client::{ACKNOWLEDGMENT, Dialer};
use plait_proxy::convert::{Destination, Instance};
use plait_proxy::silence::SilenceLimit;
use tokio::time::{Instant, sleep};

use crate::dial::{Dial, Towards, Watched};
use crate::output::say;
use crate::protection::WrongPeer;
use crate::running::Running;
use crate::system::{self, service};

/// Pauses between two attempts: the shortest, which doubles each time, and the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Interval between looks at the network.
const TICK: Duration = Duration::from_secs(1);

/// The server of `proxy` and `forward`.
#[derive(Debug, Args)]
pub(crate) struct TowardsLater {
    /// Listen at once, also while the server cannot be reached or its name is unknown, as on a machine that starts without a network. Until
    /// the server answers, clients are refused (SOCKS reply 3, or a reset). Attempts are repeated after 1 to 30 seconds, and when the network
    /// changes. A wrong key (except for up), a refusal or a missing privilege still ends the program. Without this option, each failure at the start ends the
    /// program, so that a script learns of it. A service manager that sets NOTIFY_SOCKET, as systemd does, has this option set.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    pub(crate) towards: Towards,
}

/// Opens streams to one server as soon as it has answered.
pub(crate) struct LateDial {
    dial: OnceLock<Dial>,
    silence: SilenceLimit,
}

/// Reaches the server. Ready only with an error that time does not mend.
pub(crate) type Reaching = Pin<Box<dyn Future<Output = anyhow::Error>>>;

impl TowardsLater {
    /// Opens the connection to the server. With `--wait` it is opened by the returned future, which must be polled until the end. It tries
    /// again after errors that `is_waited_out` names.
    pub(crate) async fn open(
        self,
        running: Running,
        is_waited_out: fn(&anyhow::Error) -> bool,
    ) -> anyhow::Result<(Arc<LateDial>, Reaching)> {
        let late = Arc::new(LateDial { dial: OnceLock::new(), silence: self.towards.silence_limit() });
        let towards = Arc::new(self.towards);
        if !self.wait && !service::is_supervised() {
            late.is_open(towards.open(running).await?);
            return Ok((late, Box::pin(pending())));
        }
        let found = Arc::clone(&late);
        let reaching = async move {
            match reach(&towards, running, is_waited_out).await {
                Ok(dial) => found.is_open(dial),
                Err(error) => return error,
            }
            pending().await
        };
        Ok((late, Box::pin(reaching)))
    }
}

/// Opens a further stack of the process, after the first one: that one has settled the identity of the server. The future must be polled until
/// the end; it is ready only with an error that time does not mend.
#[cfg(target_os = "linux")]
pub(crate) fn beside(
    first: Arc<LateDial>,
    towards: Towards,
    running: &Running,
    is_waited_out: fn(&anyhow::Error) -> bool,
) -> (Arc<LateDial>, Reaching) {
    let late = Arc::new(LateDial { dial: OnceLock::new(), silence: towards.silence_limit() });
    let (found, running, towards) = (Arc::clone(&late), running.beside(), Arc::new(towards));
    let reaching = async move {
        while first.dial.get().is_none() {
            sleep(TICK).await;
        }
        match reach(&towards, running, is_waited_out).await {
            Ok(dial) => found.is_open(dial),
            Err(error) => return error,
        }
        pending().await
    };
    (late, Box::pin(reaching))
}

/// Tries until the server answers.
///
/// # Errors
/// The first that is not waited out.
async fn reach(
    towards: &Arc<Towards>,
    running: Running,
    is_waited_out: fn(&anyhow::Error) -> bool,
) -> anyhow::Result<Dial> {
    let what = running.what();
    let mut pause = SHORTEST_PAUSE;
    let mut told = String::new();
    loop {
        let error = match towards.open(running.clone()).await {
            Ok(dial) => {
                // Without --path they depend on the time.
                running.waits(None);
                say(&format!("the server answers; the paths are {}", dial.devices().join(", ")));
                return Ok(dial);
            }
            Err(error) if is_waited_out(&error) => error,
            Err(error) => return Err(error),
        };
        running.is_now(what.clone());
        let text = format!("{error:#}");
        let why = text.lines().next().unwrap_or_default().to_owned();
        if why != told {
            // A wrong key has a fix.
            say(&format!("waiting for the server: {}", if is_away(&error) { &why } else { &text }));
            running.waits(Some(why.clone()));
            told = why;
        }
        pause = if network_changes_within(pause).await { SHORTEST_PAUSE } else { pause * 2 };
        pause = pause.min(LONGEST_PAUSE);
    }
}

/// Waits for a change of the network, for at most this time; returns whether there was one.
async fn network_changes_within(limit: Duration) -> bool {
    let until = Instant::now() + limit;
    // The devices of the failed attempt go away meanwhile.
    sleep(TICK).await;
    let before = system::network();
    while Instant::now() < until {
        sleep(TICK).await;
        if system::network() != before {
            return true;
        }
    }
    false
}

/// Whether the server may answer later, without a change of anything that was given.
pub(crate) fn is_away(error: &anyhow::Error) -> bool {
    let kind = error.chain().find_map(|cause| {
        let by_plait = cause.downcast_ref::<plait::Error>().map(plait::Error::kind);
        by_plait.or_else(|| cause.downcast_ref::<io::Error>().map(ErrorKind::of))
    });
    kind.is_some_and(may_return)
}

/// Whether another host of the network may be the cause: the server is away, or another host answers in its place, or one strips options.
pub(crate) fn may_be_the_network(error: &anyhow::Error) -> bool {
    let is_attack = |kind| {
        matches!(
            kind,
            ErrorKind::NotProtected
                | ErrorKind::NotAuthenticated
                | ErrorKind::CertificateDates
                | ErrorKind::PerhapsDelivered
                | ErrorKind::Corrupted
        )
    };
    let mut by_plait = error.chain().filter_map(|cause| cause.downcast_ref::<plait::Error>());
    let is_wrong = error.chain().any(<dyn std::error::Error>::is::<WrongPeer>);
    is_away(error) || is_wrong || by_plait.any(|error| is_attack(error.kind()))
}

/// The same as [`is_away`] for one kind of error.
pub(crate) fn may_return(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnknownName
            | ErrorKind::Unreachable
            | ErrorKind::Refused
            | ErrorKind::TimedOut
            | ErrorKind::Busy
            | ErrorKind::Reset
            | ErrorKind::PathsMissing
    )
}

impl LateDial {
    fn is_open(&self, dial: Dial) {
        // It is opened once.
        let _ = self.dial.set(dial);
    }

    /// Opens a stream that has datagrams beside it, for a request.
    pub(crate) async fn dial_with_datagrams(&self) -> io::Result<Watched> {
        match self.dial.get() {
            Some(dial) => dial.dial_with_datagrams().await,
            None => Err(io::ErrorKind::NetworkUnreachable.into()),
        }
    }

    /// Waits until all subflows are closed.
    pub(crate) async fn drained(&self) {
        if let Some(dial) = self.dial.get() {
            dial.drained().await;
        }
    }

    /// Ends the tasks that hold the stack, so that it ends when this is dropped.
    #[cfg(target_os = "linux")]
    pub(crate) async fn end(&self) {
        if let Some(dial) = self.dial.get() {
            dial.end().await;
        }
    }
}

impl Dialer for LateDial {
    type Stream = Watched;

    fn ready(&self, to: &Destination) -> Option<Watched> {
        self.dial.get()?.ready(to)
    }

    fn patience(&self, stream: &Watched) -> Duration {
        self.dial.get().map_or(ACKNOWLEDGMENT, |dial| dial.patience(stream))
    }

    fn distrust(&self) {
        if let Some(dial) = self.dial.get() {
            dial.distrust();
        }
    }

    async fn dial(&self, to: &Destination) -> io::Result<Watched> {
        match self.dial.get() {
            Some(dial) => dial.dial(to).await,
            None => Err(io::ErrorKind::NetworkUnreachable.into()),
        }
    }

    fn silence_limit(&self) -> SilenceLimit {
        self.silence.clone()
    }

    async fn delivered(&self, stream: &Watched) -> io::Result<()> {
        match self.dial.get() {
            Some(dial) => dial.delivered(stream).await,
            None => Ok(()),
        }
    }

    fn number(&self, stream: &Watched) -> u64 {
        self.dial.get().map_or(0, |dial| dial.number(stream))
    }

    fn answered(&self, number: u64, instance: Option<Instance>) {
        if let Some(dial) = self.dial.get() {
            dial.answered(number, instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_server_is_waited_for_and_a_wrong_one_or_a_refusal_is_not() {
        let failed = |kind: io::ErrorKind| {
            let result: Result<(), _> = Err(plait::Error::from(io::Error::from(kind)));
            result.context("cannot reach the server").expect_err("an error")
        };
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::ConnectionRefused] {
            assert!(is_away(&failed(kind)), "{kind:?}");
        }
        assert!(is_away(
            &anyhow::Error::from(io::Error::from(io::ErrorKind::TimedOut)).context("no greeting")
        ));
        assert!(!is_away(&failed(io::ErrorKind::PermissionDenied)));
        let wrong = WrongPeer("another key".to_owned()).into();
        assert!(!is_away(&wrong) && may_be_the_network(&wrong));
        assert!(may_be_the_network(&failed(io::ErrorKind::TimedOut)));
        assert!(!may_be_the_network(&anyhow::anyhow!("options that contradict each other")));
    }
}
