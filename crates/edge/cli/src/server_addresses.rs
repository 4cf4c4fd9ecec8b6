//! The addresses of the server, which change when its name moves.
//!
//! The name is looked up again when no address answers, when the network of this machine changes, and every five minutes: the system's
//! resolver does not say for how long an answer is valid. The resolver is not trusted, and one path may lead to it. So the name is followed
//! only if each connection must be sealed and the server of the first one has proved its identity. The identity then decides whether a host
//! is the server, and a wrong answer costs time and no more: the addresses of the last connection are tried beside those of the name.
//! Otherwise all connections go to the addresses of the first one. Connections that run are not touched.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plait::Remote;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::line::Line;
use crate::time_limit::TimeLimit;

/// Time after which a connection that is not open has the name looked up. The attempt goes on.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval between two look-ups without another reason.
pub(crate) const INTERVAL: Duration = Duration::from_secs(300);
/// The same after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Time limit of a look-up.
const LIMIT: Duration = Duration::from_secs(10);
/// Shortest time between two look-ups. Many connections may fail one after the other, and the addresses of a device may change several
/// times while it comes up.
const SHORTEST: Duration = Duration::from_secs(1);
/// Interval between looks at the paths.
const TICK: Duration = Duration::from_secs(1);

/// The addresses of one server.
pub(crate) struct ServerAddresses {
    /// Without addresses: looked up by its name.
    remote: Remote,
    /// Whether the addresses of the name are used. Without that, there is no look-up.
    follows_name: bool,
    known: Mutex<Known>,
    /// The last look-up. Held during one, so that connections that fail together share it.
    last: tokio::sync::Mutex<Option<LookUp>>,
}

/// The result of a look-up.
#[derive(Clone, Copy)]
struct LookUp {
    ended_at: Instant,
    has_answer: bool,
}

struct Known {
    /// The addresses in the last answer, best first.
    current: Vec<SocketAddr>,
    /// Those over which the last connection was opened.
    proven: Vec<SocketAddr>,
}

impl ServerAddresses {
    /// `found` are the addresses over which the server has answered. `is_bound`: each connection fails unless the peer proves the identity
    /// of that server.
    pub(crate) fn new(remote: Remote, found: Vec<SocketAddr>, is_bound: bool) -> Self {
        let known = Known { current: found.clone(), proven: found };
        let follows_name = is_bound && remote.is_name();
        Self { remote, follows_name, known: Mutex::new(known), last: tokio::sync::Mutex::default() }
    }

    /// Opens something by `open` at the current addresses. If that fails, or takes longer than [`PATIENCE`] or half of `limit`, at the others
    /// that the server may have as well. The first success counts. `open` keeps to `limit`.
    ///
    /// # Errors
    /// That of the last attempt.
    pub(crate) async fn try_each<T, F>(&self, limit: TimeLimit, open: impl Fn(Remote) -> F) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>>,
    {
        let current = self.current();
        let mut first = pin!(self.try_at(&open, current.clone()));
        let early = timeout(PATIENCE, limit.half(&mut first)).await.ok().flatten();
        if let Some(Ok(opened)) = early {
            return Ok(opened);
        }
        let second = async {
            match self.other_than(&current, limit).await {
                Some(others) => Some(self.try_at(&open, others).await),
                None => None,
            }
        };
        let mut second = pin!(second);
        let error = match early {
            Some(Err(error)) => error,
            Some(Ok(opened)) => return Ok(opened),
            None => tokio::select! {
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

    pub(crate) fn current(&self) -> Vec<SocketAddr> {
        self.known().current.clone()
    }

    /// The addresses of the name now, or else those of the last connection, if they are not these.
    async fn other_than(&self, tried: &[SocketAddr], limit: TimeLimit) -> Option<Vec<SocketAddr>> {
        if !self.follows_name {
            return None;
        }
        if are_same(&self.current(), tried) {
            limit.whole(self.look_up()).await;
        }
        let known = self.known();
        [&known.current, &known.proven].into_iter().find(|known| !are_same(known, tried)).cloned()
    }

    /// Looks up the name, and returns whether there was an answer. A look-up that has just ended counts.
    async fn look_up(&self) -> bool {
        let mut last = self.last.lock().await;
        if let Some(recent) = last.filter(|last| last.ended_at.elapsed() < SHORTEST) {
            return recent.has_answer;
        }
        let answer = timeout(LIMIT, self.remote.resolve()).await;
        let has_answer = self.takes(answer.ok());
        *last = Some(LookUp { ended_at: Instant::now(), has_answer });
        has_answer
    }

    /// Notes an answer; without one in time, the addresses stay. Returns whether there was one.
    fn takes(&self, answer: Option<Result<Vec<SocketAddr>, plait::Error>>) -> bool {
        match answer {
            Some(Ok(found)) => {
                let mut known = self.known();
                // The order changes with each answer of some nameservers.
                if !are_same(&known.current, &found) {
                    tracing::info!("the name of the server has other addresses now");
                    tracing::debug!(?found, "the server's addresses");
                    known.current = found;
                }
                true
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "the server's addresses stay as they were");
                false
            }
            None => false,
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
    if !line.addresses.follows_name {
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
            (paths, due) = (now, Instant::now() + SHORTEST);
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
        ServerAddresses::new(Remote::from("localhost:7443").ipv4_only(), vec![at(1)], true)
    }

    fn limit() -> TimeLimit {
        TimeLimit::new(Some(Duration::from_secs(20)))
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
        assert_eq!(addresses.try_each(limit(), open).await.expect("found"), [here]);
        assert_eq!((addresses.current(), addresses.known().proven.clone()), (vec![here], vec![here]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_answer_of_dns_leaves_the_addresses_of_the_last_connection() {
        let addresses = moved();
        assert!(addresses.look_up().await);
        let open = async |remote: Remote| match addresses_of(remote).await {
            found if found == [at(1)] => Ok(found),
            _another_key => Err(io::ErrorKind::InvalidData.into()),
        };
        assert_eq!(addresses.try_each(limit(), open).await.expect("where it was"), [at(1)]);
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
        assert_eq!(addresses.try_each(limit(), open).await.expect("in the end"), [at(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_is_told_if_the_name_is_where_it_was() {
        let given = ServerAddresses::new(Remote::from("192.0.2.1:7443"), vec![at(1)], true);
        let refused = async |_| io::Result::<()>::Err(io::ErrorKind::ConnectionRefused.into());
        let opened = given.try_each(limit(), refused);
        assert_eq!(opened.await.expect_err("refused").kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_without_a_proved_identity_is_not_looked_up_and_tried_at_its_first_addresses_only() {
        let addresses = ServerAddresses { follows_name: false, ..moved() };
        let tried = Mutex::new(Vec::new());
        let open = async |remote: Remote| {
            let found = addresses_of(remote).await;
            tried.lock().expect("no panic").push(found);
            io::Result::<()>::Err(io::ErrorKind::ConnectionRefused.into())
        };
        addresses.try_each(limit(), open).await.expect_err("refused");
        assert_eq!(*tried.lock().expect("no panic"), [[at(1)]]);
        assert!(addresses.last.lock().await.is_none(), "no look-up");
        let unbound = ServerAddresses::new(Remote::from("localhost:7443"), vec![at(1)], false);
        assert!(!unbound.follows_name);
    }

    #[tokio::test(start_paused = true)]
    async fn all_attempts_and_the_look_up_end_with_one_time_limit() {
        for seconds in [2, 20] {
            let limit = TimeLimit::new(Some(Duration::from_secs(seconds)));
            let (addresses, begun, tried) = (moved(), Instant::now(), Mutex::new(0));
            let open = async |_| {
                *tried.lock().expect("no panic") += 1;
                limit.all(pending::<()>()).await
            };
            addresses.try_each(limit, open).await.expect_err("late");
            assert_eq!(*tried.lock().expect("no panic"), 2, "also at the new address");
            assert!(begun.elapsed() <= Duration::from_millis(seconds * 1000 + 10), "{:?}", begun.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_fail_together_share_one_look_up_and_its_failure() {
        let addresses = ServerAddresses::new(Remote::from("none.invalid:7443"), vec![at(1)], true);
        let (one, other) = tokio::join!(addresses.look_up(), addresses.look_up());
        assert_eq!((one, other), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_looked_up_at_most_once_a_second() {
        let addresses = moved();
        assert!(addresses.look_up().await);
        addresses.known().current = vec![at(2)];
        assert!(addresses.look_up().await);
        assert_eq!(addresses.current(), [at(2)], "the first answer counts");
        tokio::time::sleep(SHORTEST).await;
        assert!(addresses.look_up().await);
        assert_ne!(addresses.current(), [at(2)]);
    }
}
