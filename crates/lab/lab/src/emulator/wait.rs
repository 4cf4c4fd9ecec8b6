//! Waiting for packets, tasks and arrivals at once.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::Emulator;
use super::replay::Replay;

impl Emulator {
    /// Waits until something is to be done.
    pub(super) fn wait(&self) {
        let now = self.clock.now();
        let queued = self.ways.iter().filter_map(|way| way.queue.next());
        let replayed = self.ways.iter().filter_map(|way| way.replay.as_ref()).map(Replay::next);
        let next = queued.chain(replayed).chain(self.injector.deadline()).min();
        let timeout = next.map(|at| TimeSpec::from_duration(at.saturating_since(now)));
        let mut waited = [
            PollFd::new(self.devices[0].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.devices[1].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        // An interrupted wait is a short one.
        let _ = ppoll(&mut waited, timeout, None);
        let is_woken = waited[2].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
        if is_woken {
            // It is readable: the counter goes back to zero, and the tasks are looked at next.
            let _ = self.wake.read();
        }
    }
}
