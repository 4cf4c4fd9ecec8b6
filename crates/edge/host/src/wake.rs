//! Wakes a waiting thread of ours, for one atomic exchange if it does not wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::sync::{AtomicU8, Signal};

/// Running.
const AWAKE: u8 = 0;
/// Waiting, or about to wait.
const ASLEEP: u8 = 1;
/// A request has come since the thread last began to look.
const ASKED: u8 = 2;

/// One sleeper, any number of wakers.
#[derive(Debug)]
pub(crate) struct Wake {
    state: AtomicU8,
    signal: Signal,
}

impl Wake {
    pub(crate) fn new() -> Result<Self, Error> {
        let signal = Signal::new().map_err(|source| Error::system("make what wakes a thread", source))?;
        Ok(Self { state: AtomicU8::new(AWAKE), signal })
    }

    /// Called from any thread: the sleeper looks again after this moment.
    pub(crate) fn ask(&self) {
        if self.state.swap(ASKED, Ordering::SeqCst) == ASLEEP {
            self.signal.set();
        }
    }

    /// Called by the sleeper: requests from now on are not covered by the look that begins.
    pub(crate) fn begin_to_look(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// Called by the sleeper: whether it may wait. If not, a request has come since the look began.
    pub(crate) fn may_sleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The handle that the sleeper also waits for.
    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }
}

/// For tasks and carriers that know a [`std::task::Waker`] only.
impl std::task::Wake for Wake {
    fn wake(self: Arc<Self>) {
        self.ask();
    }
}

#[cfg(all(test, not(feature = "models")))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_millis(50);

    fn is_signalled(wake: &Wake) -> bool {
        let begin = Instant::now();
        wake.signal().wait(&[], Some(LONG)).expect("waited");
        begin.elapsed() < LONG
    }

    #[test]
    fn a_thread_that_is_awake_is_not_signalled_but_does_not_fall_asleep() {
        let wake = Wake::new().expect("a signal");
        wake.begin_to_look();
        wake.ask();
        assert!(!is_signalled(&wake));
        assert!(!wake.may_sleep());
        wake.begin_to_look();
        assert!(wake.may_sleep());
    }

    #[test]
    fn a_sleeping_thread_is_signalled_once() {
        let wake = Wake::new().expect("a signal");
        assert!(wake.may_sleep());
        wake.ask();
        wake.ask();
        assert!(is_signalled(&wake));
        assert!(!is_signalled(&wake));
    }
}
