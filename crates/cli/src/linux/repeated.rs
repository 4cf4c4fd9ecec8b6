//! Log lines that unknown peers cause, limited for all connections of a program together.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use plait_base::LogLimits;

/// Lines of a kind in an interval ([`plait_base::LOG_INTERVAL`]).
const MOST: u32 = 8;

/// What was said lately.
#[derive(Debug)]
pub(crate) struct Repeated {
    start: Instant,
    limits: Mutex<LogLimits>,
}

impl Default for Repeated {
    fn default() -> Self {
        Self { start: Instant::now(), limits: Mutex::default() }
    }
}

impl Repeated {
    /// `what` has happened: how many more times since the last line, if it is time for a line.
    pub(crate) fn note(&self, what: &'static str) -> Option<u64> {
        let now = plait_base::Instant::ZERO + self.start.elapsed();
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).note(now, what, MOST)
    }
}
