//! The addresses of the server, which change when its name moves.
//!
//! The name is looked up again when no address answers, when the network of this machine changes, and every five minutes: the system's
//! resolver does not say for how long an answer is valid. The key decides whether a host is the server, so a wrong answer costs time and no
//! more: the addresses of the last connection are tried beside those of the name. Connections that run are not touched.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plait::Remote;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::dial::Line;

/// Time after which a connection that is not open has the name looked up. The attempt goes on.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval between two look-ups without another reason.
pub(crate) const INTERVAL: Duration = Duration::from_secs(300);
/// The same after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Time limit of a look-up.
const LIMIT: Duration = Duration::from_secs(10);
/// Interval between looks at the paths.
const TICK: Duration = Duration::from_secs(1);

/// The addresses of one server.
pub(crate) struct ServerAddresses {
    /// Without addresses: looked up by its name.
    remote: Remote,
    known: Mutex<Known>,
    /// The end of the last look-up. Held during one, so that connections that fail together share it.
    asked_at: tokio::sync::Mutex<Instant>,
}

struct Known {
    /// The addresses in the last answer, best first.
    current: Vec<SocketAddr>,
    /// Those over which the last connection was opened.
    proven: Vec<SocketAddr>,
}

impl ServerAddresses {
    /// `found` are the addresses over which the server has answered.
    pub(crate) fn new(remote: Remote, found: Vec<SocketAddr>) -> Self {
        let known = Known { current: found.clone(), proven: found };
        Self { remote, known: Mutex::new(known), asked_at: tokio::sync::Mutex::new(Instant::now()) }
    }

    /// Opens something by `open` at the current addresses. If that fails, or takes longer than [`PATIENCE`], at the others that the server
    /// may have as well. The first success counts.
    ///
    /// # Errors
    /// That of the last attempt.
    pub(crate) async fn try_each<T, F>(&self, open: impl Fn(Remote) -> F) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>>,
    {
        let current = self.current();
        let mut first = pin!(self.try_at(&open, current.clone()));
        let early = timeout(PATIENCE, &mut first).await;
        if let Ok(Ok(opened)) = early {
            return Ok(opened);
        }
        let second = async {
            match self.other_than(&current).await {
                Some(others) => Some(self.try_at(&open, others).await),
                None => None,
            }
        };
        let mut second = pin!(second);
        let error = match early {
            Ok(Err(error)) => error,
            Ok(Ok(opened)) => return Ok(opened),
            Err(_) => tokio::select! {
                opened = &mut first => match opened {
                    Ok(opened) => return Ok(opened),
                    Err(error) => error,
                },
                opened = &mut second => return match opened {
                    Some(Ok(opened)) => Ok(opened),
                    Some(Err(_)) | None => first.await,
                },
            },
        };
        second.await.unwrap_or(Err(error))
    }

    async fn try_at<T, F>(&self, open: impl Fn(Remote) -> F, addresses: Vec<SocketAddr>) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>>,
    {
        let opened = open(self.at(addresses.iter().copied())).await?;
        self.known().proven = addresses;
        Ok(opened)
    }

    /// The server at these addresses only.
    pub(crate) fn at(&self, addresses: impl IntoIterator<Item = SocketAddr>) -> Remote {
        self.remote.clone().at(addresses)
    }

    /// The first address of the last connection.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.known().proven.first().copied()
    }

    fn current(&self) -> Vec<SocketAddr> {
        self.known().current.clone()
    }

    /// The addresses of the name now, or else those of the last connection, if they are not these.
    async fn other_than(&self, tried: &[SocketAddr]) -> Option<Vec<SocketAddr>> {
        if are_same(&self.current(), tried) {
            self.look_up().await;
        }
        let known = self.known();
        [&known.current, &known.proven].into_iter().find(|known| !are_same(known, tried)).cloned()
    }

    /// Looks up the name, and returns whether there was an answer.
    async fn look_up(&self) -> bool {
        let begun = Instant::now();
        let mut asked_at = self.asked_at.lock().await;
        if *asked_at > begun {
            return true;
        }
        let answer = timeout(LIMIT, self.remote.resolve()).await;
        *asked_at = Instant::now();
        match answer {
            Ok(Ok(found)) => {
                let mut known = self.known();
                // The order changes with each answer of some nameservers.
                if !are_same(&known.current, &found) {
                    tracing::info!("the name of the server has other addresses now");
                    tracing::debug!(?found, "the server's addresses");
                    known.current = found;
                }
                true
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the server's addresses stay as they were");
                false
            }
            Err(_late) => false,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn are_same(one: &[SocketAddr], other: &[SocketAddr]) -> bool {
    one.iter().all(|address| other.contains(address)) && other.iter().all(|address| one.contains(address))
}

/// Looks up the name of the server of `line` when the network changes, and every [`INTERVAL`], until it is dropped.
pub(crate) async fn follow(line: Arc<Line>) {
    if !line.addresses.remote.is_name() {
        return pending().await;
    }
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut paths = line.host.paths();
    let mut due = Instant::now() + INTERVAL;
    loop {
        ticks.tick().await;
        let now = line.host.paths();
        if paths != now {
            (paths, due) = (now, Instant::now());
        }
        if Instant::now() >= due {
            let answered = line.addresses.look_up().await;
            due = Instant::now() + if answered { INTERVAL } else { AFTER_FAILURE };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 7443).into()
    }

    /// A server by the name `localhost`, which was elsewhere at the start.
    fn moved() -> ServerAddresses {
        ServerAddresses::new(Remote::from("localhost:7443").ipv4_only(), vec![at(1)])
    }

    async fn addresses_of(remote: Remote) -> Vec<SocketAddr> {
        remote.resolve().await.expect("given")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_looked_up_and_found_and_then_known() {
        let addresses = moved();
        let here: SocketAddr = "127.0.0.1:7443".parse().expect("an address");
        let open = async |remote: Remote| {
            let found = addresses_of(remote).await;
            if found == [at(1)] {
                return pending().await;
            }
            Ok(found)
        };
        assert_eq!(addresses.try_each(open).await.expect("found"), [here]);
        assert_eq!((addresses.current(), addresses.peer()), (vec![here], Some(here)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_answer_of_dns_leaves_the_addresses_of_the_last_connection() {
        let addresses = moved();
        assert!(addresses.look_up().await);
        let open = async |remote: Remote| match addresses_of(remote).await {
            found if found == [at(1)] => Ok(found),
            _another_key => Err(io::ErrorKind::InvalidData.into()),
        };
        assert_eq!(addresses.try_each(open).await.expect("where it was"), [at(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_connection_counts_although_the_name_has_moved() {
        let addresses = moved();
        let open = async |remote: Remote| {
            let found = addresses_of(remote).await;
            if found != [at(1)] {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            tokio::time::sleep(PATIENCE * 3).await;
            Ok(found)
        };
        assert_eq!(addresses.try_each(open).await.expect("in the end"), [at(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_is_told_if_the_name_is_where_it_was() {
        let given = ServerAddresses::new(Remote::from("192.0.2.1:7443"), vec![at(1)]);
        let opened = given.try_each(async |_| io::Result::<()>::Err(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(opened.await.expect_err("refused").kind(), io::ErrorKind::ConnectionRefused);
    }
}
