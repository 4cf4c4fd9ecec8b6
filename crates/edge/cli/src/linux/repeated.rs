//! Log lines that unknown peers cause, limited for all connections of a program together.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use plait_base::LogLimits;

/// Most lines of a kind in an interval ([`plait_base::LOG_INTERVAL`]).
const MOST: u32 = 8;

/// The recent lines.
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
    /// Notes that `what` has happened; returns the number of further cases since the last line, if
    /// a line is due.
    pub(crate) fn note(&self, what: &'static str) -> Option<u64> {
        let now = plait_base::Instant::ZERO + self.start.elapsed();
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).note(now, what, MOST)
    }
}
