//! Crypto jobs of both sides, run in times that differ from job to job.

use plait_base::{Duration, Instant, Random};
use plait_mptcp::{Association, CryptoResult};
use std::collections::BTreeMap;

use super::World;

#[derive(Default)]
pub(crate) struct CryptoWorkers {
    /// No job takes longer.
    pub(crate) longest: Duration,
    /// Results by when they are there and by the number of the job, with whose they are.
    under_way: BTreeMap<(Instant, u64), (usize, CryptoResult)>,
    begun: u64,
    /// Most jobs of one side at a time.
    pub(crate) most: usize,
    /// Results that came before those of jobs that had begun earlier.
    pub(crate) overtaken: usize,
}

impl CryptoWorkers {
    pub(crate) fn next_result(&self) -> Option<Instant> {
        self.under_way.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Jobs that have not come back.
    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }
}

impl World {
    /// Takes the jobs of a side.
    pub(super) fn take_jobs(&mut self, number: usize) {
        while let Some(job) = self.sides[number].connection.as_mut().and_then(Association::poll_crypto) {
            let takes = self.crypto_workers.longest.mul_f64(self.random.below(1000) as f64 / 1000.0);
            self.crypto_workers.begun += 1;
            self.crypto_workers
                .under_way
                .insert((self.now + takes, self.crypto_workers.begun), (number, job.run()));
        }
        let of_side = self.crypto_workers.under_way.values().filter(|(side, _)| *side == number).count();
        self.crypto_workers.most = self.crypto_workers.most.max(of_side);
    }

    /// Gives the next result back.
    pub(super) fn return_result(&mut self) {
        let Some(((_, begun), (number, result))) = self.crypto_workers.under_way.pop_first() else { return };
        self.crypto_workers.overtaken +=
            usize::from(self.crypto_workers.under_way.keys().any(|(_, other)| *other < begun));
        let now = self.now;
        let side = &mut self.sides[number];
        if let Some(connection) = &mut side.connection {
            connection.handle_crypto(now, result, &mut side.host);
        }
        self.serve(number);
    }
}
