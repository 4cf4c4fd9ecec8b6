//! Threads that seal and open blocks, so that the driver need not (Jadin et al., section IV).
//!
//! They take jobs from one queue and put the results in another; the connections order them. The endpoint limits
//! the number of concurrent jobs.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use plait_endpoint::ConnectionId;
use plait_mptcp::{CryptoJob, CryptoResult};

use crate::error::Error;
use crate::shared::Shared;

/// The threads. Dropping them waits for the running jobs; queued jobs are dropped.
pub(crate) struct Workers {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

/// The queues of jobs and results.
#[derive(Default)]
struct Desk {
    inbox: Mutex<Inbox>,
    arrival: Condvar,
    outbox: Mutex<Vec<(ConnectionId, CryptoResult)>>,
}

#[derive(Default)]
struct Inbox {
    jobs: VecDeque<(ConnectionId, CryptoJob)>,
    /// Threads that wait for a job.
    idle: usize,
    is_over: bool,
}

impl Workers {
    /// Starts this many threads, which wake the driver when a result is ready.
    pub(crate) fn start(count: usize, shared: &Arc<Shared>) -> Result<Self, Error> {
        let mut workers = Self { desk: Arc::default(), threads: Vec::with_capacity(count) };
        for _ in 0..count {
            let worker = Worker { desk: workers.desk.clone(), shared: shared.clone() };
            let thread = std::thread::Builder::new()
                .name("plait-crypto".into())
                .spawn(move || worker.run())
                .map_err(|source| Error::system("start a thread", source))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Queues jobs; as many threads as there are jobs start at once.
    pub(crate) fn give(&self, jobs: &mut Vec<(ConnectionId, CryptoJob)>) {
        if jobs.is_empty() {
            return;
        }
        let mut inbox = lock(&self.desk.inbox);
        let wanted = inbox.idle.min(jobs.len());
        inbox.jobs.extend(jobs.drain(..));
        drop(inbox);
        for _ in 0..wanted {
            self.desk.arrival.notify_one();
        }
    }

    /// Takes the results, in the order in which they were finished.
    pub(crate) fn collect(&self, results: &mut Vec<(ConnectionId, CryptoResult)>) {
        results.append(&mut lock(&self.desk.outbox));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.desk.inbox).is_over = true;
        self.desk.arrival.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One thread's view.
struct Worker {
    desk: Arc<Desk>,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(self) {
        while let Some((id, job)) = self.next() {
            let result = job.run();
            lock(&self.desk.outbox).push((id, result));
            self.shared.wake.ask();
        }
    }

    fn next(&self) -> Option<(ConnectionId, CryptoJob)> {
        let mut inbox = lock(&self.desk.inbox);
        loop {
            if inbox.is_over {
                return None;
            }
            if let Some(job) = inbox.jobs.pop_front() {
                return Some(job);
            }
            inbox.idle += 1;
            inbox = self.desk.arrival.wait(inbox).unwrap_or_else(PoisonError::into_inner);
            inbox.idle -= 1;
        }
    }
}

impl Drop for Worker {
    /// A panic loses a job, and its connection would wait for ever: all connections are reset.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.change(|state, _| state.begin_to_stop());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
