//! Waking a thread of ours that waits in `ppoll`, at the price of one atomic exchange when it does not.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::Error;

/// Looking after its business.
const AWAKE: u8 = 0;
/// Waiting, or about to.
const ASLEEP: u8 = 1;
/// Somebody has asked since the thread last began to look.
const ASKED: u8 = 2;

/// One sleeper, any number of wakers.
#[derive(Debug)]
pub(crate) struct Wake {
    state: AtomicU8,
    event: EventFd,
}

impl Wake {
    pub(crate) fn new() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event =
            EventFd::from_flags(flags).map_err(|errno| Error::system("make an event descriptor", errno))?;
        Ok(Self { state: AtomicU8::new(AWAKE), event })
    }

    /// From any thread: the sleeper will look again, after this moment.
    pub(crate) fn ask(&self) {
        if self.state.swap(ASKED, Ordering::SeqCst) == ASLEEP {
            // It can only fail by overflow, and then the sleeper is being woken already.
            let _ = self.event.write(1);
        }
    }

    /// From the sleeper: what is asked from now on is not covered by the look that begins.
    pub(crate) fn begin_to_look(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// From the sleeper: whether it may wait. If not, somebody has asked since the look began.
    pub(crate) fn may_sleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// From the sleeper, after its descriptor became readable.
    pub(crate) fn clear(&self) {
        let _ = self.event.read();
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn is_signalled(wake: &Wake) -> bool {
        let mut fds = [PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).expect("polled") == 1
    }

    #[test]
    fn who_is_awake_is_not_signalled_but_does_not_fall_asleep() {
        let wake = Wake::new().expect("a descriptor");
        wake.begin_to_look();
        wake.ask();
        assert!(!is_signalled(&wake));
        assert!(!wake.may_sleep());
        wake.begin_to_look();
        assert!(wake.may_sleep());
    }

    #[test]
    fn who_sleeps_is_signalled_once() {
        let wake = Wake::new().expect("a descriptor");
        assert!(wake.may_sleep());
        wake.ask();
        wake.ask();
        assert!(is_signalled(&wake));
        wake.clear();
        assert!(!is_signalled(&wake));
    }
}
