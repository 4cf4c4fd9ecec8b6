//! Several servers for one command: one serves the new requests, the others stand by.
//!
//! At the start the servers are tried in their order, or all together. The first that answers is used until it does not answer any more.
//! Then the others are tried, and the first that answers takes its place. Connections that run stay where they are. Each server has an
//! identity that is known beforehand: an attacker that keeps one of them away leads the client to another one of the list, and to no other host.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use clap::ValueEnum;
use plait::{Host, Stream};
use plait_proxy::url::ServerUrl;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::contact::{Contact, Unreached};
use crate::dial::Towards;
use crate::line::{Beside, Line};
use crate::output::say;
use crate::running::Running;
use crate::time_limit::TimeLimit;
use crate::warm::supply;
use crate::{late_dial, server_addresses, server_watch};

/// Time without an answer after which the next server is tried as well.
const PATIENCE: Duration = Duration::from_secs(3);

/// The choice among several servers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Choice {
    /// The first of the list that answers. The next is tried after three seconds without an answer.
    #[default]
    Order,
    /// The one that answers first. All are tried together.
    Latency,
}

/// The servers of one command.
pub(crate) struct Servers {
    towards: Arc<Towards>,
    host: Host,
    running: Running,
    /// The work of the command, for people, without the server.
    what: String,
    /// At least one, in the order of the command.
    all: Vec<Server>,
    /// The index of the server of new requests.
    current: AtomicUsize,
    /// Most warm connections to a server.
    warm: AtomicUsize,
    /// The tasks that follow the servers, and keep connections ready.
    watching: Mutex<Vec<JoinHandle<()>>>,
}

struct Server {
    url: ServerUrl,
    /// The addresses that were looked up before the host was started.
    found: Vec<SocketAddr>,
    /// Set once it has answered.
    line: OnceLock<Arc<Line>>,
    /// Held by the first contact.
    reaching: tokio::sync::Mutex<()>,
    /// The last warning about it: each request may try it again.
    told: Mutex<String>,
}

/// The failure of a server.
pub(crate) struct Failure {
    /// The place of the server in the list of the command.
    pub(crate) index: usize,
    pub(crate) unreached: Unreached,
}

impl Servers {
    /// `found`: addresses of the servers, in their order, as far as they are known.
    pub(crate) fn new(
        towards: &Arc<Towards>,
        (host, running): (Host, Running),
        found: Vec<Vec<SocketAddr>>,
    ) -> Self {
        let mut found = found.into_iter();
        let server = |url: &ServerUrl| Server {
            url: url.clone(),
            found: found.next().unwrap_or_default(),
            line: OnceLock::new(),
            reaching: tokio::sync::Mutex::default(),
            told: Mutex::default(),
        };
        let all = towards.servers().iter().map(server).collect();
        Self {
            towards: towards.clone(),
            host,
            what: running.what(),
            running,
            all,
            current: AtomicUsize::new(0),
            warm: AtomicUsize::new(towards.warm()),
            watching: Mutex::default(),
        }
    }

    /// Reaches a server: the first that answers.
    ///
    /// # Errors
    /// None can be reached: the failure of each.
    pub(crate) async fn begin(&self, limit: TimeLimit) -> Result<(), Vec<Failure>> {
        let attempts = (0..self.all.len()).map(|index| async move {
            let reached = self.reach(index, limit).await;
            reached.map(|_| index).map_err(|unreached| {
                self.warn(index, &unreached);
                Failure { index, unreached }
            })
        });
        let delay = match self.towards.choice() {
            Choice::Order => PATIENCE,
            Choice::Latency => Duration::ZERO,
        };
        self.goes_to(first_of(attempts, delay).await?);
        Ok(())
    }

    /// The server of new requests. It was reached.
    pub(crate) fn current(&self) -> &Arc<Line> {
        let server = self.all.get(self.current.load(Ordering::Relaxed));
        server.and_then(|server| server.line.get()).expect("`begin` has reached the current server")
    }

    /// All servers that were reached.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Arc<Line>> {
        self.all.iter().filter_map(|server| server.line.get())
    }

    /// Keeps at most this many warm connections to a server.
    pub(crate) fn keeps_warm(&self, most: usize) {
        self.warm.store(most, Ordering::Relaxed);
        self.lines().for_each(|line| line.warm.set_most(most));
    }

    /// Opens a connection to the current server. If it does not answer, to another one, which is the current one from then on.
    ///
    /// # Errors
    /// The first of them.
    pub(crate) async fn open(&self, beside: Beside) -> io::Result<(Arc<Line>, Stream)> {
        let (current, count) = (self.current.load(Ordering::Relaxed), self.all.len());
        if count == 1 {
            let line = self.current().clone();
            let stream = line.open(beside).await?;
            return Ok((line, stream));
        }
        let attempts = (current..current + count).map(|index| self.open_at(index % count, current, beside));
        match first_of(attempts, PATIENCE).await {
            Ok((index, line, stream)) => {
                // Another request may have moved it meanwhile.
                let moves = index != current && self.current.load(Ordering::Relaxed) == current;
                if moves {
                    self.leaves(current);
                    self.goes_to(index);
                }
                Ok((line, stream))
            }
            Err(errors) => Err(errors.into_iter().next().unwrap_or_else(|| io::ErrorKind::NotFound.into())),
        }
    }

    async fn open_at(
        &self,
        index: usize,
        current: usize,
        beside: Beside,
    ) -> io::Result<(usize, Arc<Line>, Stream)> {
        let limit = TimeLimit::new(Some(self.towards.connect_timeout()));
        let reached = self.reach(index, limit).await;
        let line = reached.map_err(|unreached| {
            self.warn(index, &unreached);
            unreached.into_error()
        })?;
        // The connection of a first contact is ready. It has no datagrams.
        let is_usable = index != current && beside == Beside::Nothing;
        let kept = if is_usable { line.warm.take() } else { None };
        let stream = match kept {
            Some(kept) => kept.stream,
            None => line.open(beside).await?,
        };
        Ok((index, line, stream))
    }

    /// The connections to a server, after a first contact if there was none.
    async fn reach(&self, index: usize, limit: TimeLimit) -> Result<Arc<Line>, Unreached> {
        let server = &self.all[index];
        let _one_at_a_time = server.reaching.lock().await;
        if let Some(line) = server.line.get() {
            return Ok(line.clone());
        }
        let contact = Contact { towards: &self.towards, server: &server.url };
        let found = match server.found.is_empty() {
            true => contact.resolve(limit).await?,
            false => server.found.clone(),
        };
        let line = Arc::new(contact.reach((&self.host, &self.running), found, limit).await?);
        line.warm.set_most(self.warm.load(Ordering::Relaxed));
        self.watch(&line);
        Ok(server.line.get_or_init(|| line).clone())
    }

    /// Starts the tasks that follow the server and its addresses, and keep connections ready.
    fn watch(&self, line: &Arc<Line>) {
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        watching.push(tokio::spawn(server_watch::watch(line.clone(), self.towards.dead_after())));
        watching.push(tokio::spawn(server_addresses::follow(line.clone())));
        watching.push(tokio::spawn(supply::keep(line.clone())));
    }

    /// A server that is away is silent; a wrong key or a refusal is worth a line, although another server may be used.
    fn warn(&self, index: usize, unreached: &Unreached) {
        if self.all.len() <= 1 || unreached.is_away() {
            return;
        }
        let (server, reason) = (&self.all[index], unreached.reason());
        let mut told = server.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != reason {
            say(&format!("warning: the server {} cannot be used: {reason}", server.url.authority()));
            *told = reason;
        }
    }

    /// Ends the tasks that follow the servers: they hold the host, which ends with its last holder.
    #[cfg(target_os = "linux")]
    pub(crate) async fn end(&self) {
        let watching = std::mem::take(&mut *self.watching.lock().unwrap_or_else(PoisonError::into_inner));
        for task in watching {
            task.abort();
            // It was cancelled.
            let _ = task.await;
        }
    }

    fn leaves(&self, index: usize) {
        if let Some(line) = self.all[index].line.get() {
            line.warm.distrust();
            say(&format!("warning: the server {} does not answer", line.name));
        }
    }

    fn goes_to(&self, index: usize) {
        self.current.store(index, Ordering::Relaxed);
        let name = self.all[index].url.authority();
        self.running.is_now(format!("{} through {name}", self.what));
        if self.all.len() > 1 {
            say(&format!("the server in use is {name}"));
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The tasks hold the host, which ends with its last holder.
        let watching = self.watching.get_mut().unwrap_or_else(PoisonError::into_inner);
        watching.iter().for_each(JoinHandle::abort);
    }
}

impl Unreached {
    /// Whether another server may help: this one does not answer. A wrong key or a refusal is an error of its own.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::Said(error) => late_dial::is_away(error),
            Self::Failed { error, .. } => late_dial::may_return(error.kind()),
        }
    }

    /// The reason in one line.
    pub(crate) fn reason(&self) -> String {
        let text = match self {
            Self::Said(error) => format!("{error:#}"),
            Self::Failed { error, .. } => error.to_string(),
        };
        text.lines().next().unwrap_or_default().to_owned()
    }

    fn into_error(self) -> io::Error {
        let error = match self {
            Self::Failed { error, .. } => return error.into(),
            Self::Said(error) => error,
        };
        let kind = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>().map(io::Error::kind));
        io::Error::new(kind.unwrap_or(io::ErrorKind::Other), error)
    }
}

/// Returns the first success. The next attempt begins when the last one has failed, or has not ended after `delay`.
///
/// # Errors
/// Those of all attempts, in the order of their ends.
async fn first_of<T, E, F>(attempts: impl IntoIterator<Item = F>, delay: Duration) -> Result<T, Vec<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut rest = attempts.into_iter().fuse();
    let (mut running, mut errors) = (Vec::new(), Vec::new());
    loop {
        let next = rest.next();
        let may_have_more = next.is_some();
        running.extend(next.map(Box::pin));
        if running.is_empty() {
            return Err(errors);
        }
        tokio::select! {
            biased;
            (index, ended) = any_of(&mut running) => {
                drop(running.swap_remove(index));
                match ended {
                    Ok(success) => return Ok(success),
                    Err(error) => errors.push(error),
                }
            }
            () = sleep(delay), if may_have_more => {}
        }
    }
}

/// Returns the first of the futures that ends, by its index, and its result.
async fn any_of<F: Future>(running: &mut [Pin<Box<F>>]) -> (usize, F::Output) {
    poll_fn(|context| {
        for (index, attempt) in running.iter_mut().enumerate() {
            if let Poll::Ready(ended) = attempt.as_mut().poll(context) {
                return Poll::Ready((index, ended));
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::Instant;

    /// An attempt that ends after so many seconds.
    async fn after(seconds: u64, ended: Result<u64, u64>) -> Result<u64, u64> {
        sleep(Duration::from_secs(seconds)).await;
        ended
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_server_is_tried_after_three_seconds_or_at_once_after_a_failure() {
        let begun = Instant::now();
        let silent = [after(3600, Ok(1)), after(1, Ok(2)), after(0, Ok(3))];
        assert_eq!(first_of(silent, PATIENCE).await, Ok(2));
        assert_eq!(begun.elapsed().as_secs(), 4);
        let refused = [after(1, Err(1)), after(1, Err(2)), after(1, Ok(3))];
        assert_eq!(first_of(refused, PATIENCE).await, Ok(3));
        assert_eq!(begun.elapsed().as_secs(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_counts_although_the_next_was_tried() {
        assert_eq!(first_of([after(4, Ok(1)), after(9, Ok(2))], PATIENCE).await, Ok(1));
        assert_eq!(first_of([after(4, Ok(1)), after(0, Err(2))], PATIENCE).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn all_errors_are_told_if_no_server_answers() {
        assert_eq!(first_of([after(4, Err(1)), after(0, Err(2))], PATIENCE).await, Err(vec![2, 1]));
        let none: [std::future::Pending<Result<(), ()>>; 0] = [];
        assert_eq!(first_of(none, PATIENCE).await, Err(vec![]));
        let first = first_of([pending::<Result<(), ()>>()], PATIENCE);
        assert!(
            tokio::time::timeout(Duration::from_secs(60), first).await.is_err(),
            "it has limits of its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_fastest_server_is_used_if_all_are_tried_together() {
        assert_eq!(first_of([after(2, Ok(1)), after(1, Ok(2))], Duration::ZERO).await, Ok(2));
    }
}
