//! Encryption and decryption as jobs that may run on another core (Jadin et al., section IV).
//!
//! A job owns all that it needs: a share of the key, the nonce, the header, the bytes. It can run only once, because running consumes it.
//! Only the sealer creates sealing jobs. Therefore no nonce is used twice, on whatever core the jobs run.

use plait_protect::sealed::{OpenError, OpenJob, Opened, SealJob, SealedBlock};
use std::collections::VecDeque;

/// One block to be sealed or opened.
#[derive(Debug)]
#[must_use = "the connection waits for what comes of it"]
pub struct CryptoJob(Work);

#[derive(Debug)]
enum Work {
    Seal(SealJob),
    Open { ticket: Ticket, job: OpenJob },
}

/// The result of a [`CryptoJob`], for its connection.
#[derive(Debug)]
#[must_use = "the connection waits for it"]
pub struct CryptoResult(pub(super) Outcome);

#[derive(Debug)]
pub(super) enum Outcome {
    Sealed(SealedBlock),
    Opened { ticket: Ticket, result: Result<Opened, OpenError> },
}

/// Identifies a block that is being opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket(pub(super) u64);

impl CryptoJob {
    /// Runs the job: some 30 microseconds for 64 KiB.
    pub fn run(self) -> CryptoResult {
        CryptoResult(match self.0 {
            Work::Seal(job) => Outcome::Sealed(job.run()),
            Work::Open { ticket, job } => Outcome::Opened { ticket, result: job.run() },
        })
    }
}

/// The jobs of one connection that no runner has taken yet.
#[derive(Default)]
pub(super) struct Jobs(VecDeque<CryptoJob>);

impl Jobs {
    pub(super) fn seal(&mut self, job: SealJob) {
        self.0.push_back(CryptoJob(Work::Seal(job)));
    }

    pub(super) fn open(&mut self, ticket: Ticket, job: OpenJob) {
        self.0.push_back(CryptoJob(Work::Open { ticket, job }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<CryptoJob> {
        self.0.pop_front()
    }
}
