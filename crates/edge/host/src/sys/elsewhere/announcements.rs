//! Without announcements, the state is polled.

use std::io;
use std::time::{Duration, Instant};

use super::Signal;
use crate::error::Error;

/// An address that is gone is noticed by the connections sooner.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// When it is time to look.
#[derive(Debug)]
pub(crate) struct Announcements {
    due: Option<Instant>,
}

impl Announcements {
    /// An occasion to look at addresses from time to time.
    pub(crate) fn of_links() -> Result<Self, Error> {
        Ok(Self { due: Some(Instant::now() + LOOK_AGAIN) })
    }

    /// There are no rules of ours.
    pub(crate) fn of_rules() -> Result<Self, Error> {
        Ok(Self { due: None })
    }

    /// Waits until the signal is given or it is time.
    pub(crate) fn wait(
        signal: &Signal,
        _links: &mut Self,
        _rules: Option<&mut Self>,
        until: Option<Instant>,
    ) -> io::Result<()> {
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        signal.wait(&[], timeout)
    }

    /// When to look.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    /// The state has been read.
    pub(crate) fn note_look(&mut self) {
        self.look_again(LOOK_AGAIN);
    }

    /// Looks again after a while.
    pub(crate) fn look_again(&mut self, after: Duration) {
        self.due = Some(Instant::now() + after);
    }
}
