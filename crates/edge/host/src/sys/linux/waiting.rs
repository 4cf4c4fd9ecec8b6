//! Waiting for packets: `ppoll`, with an event descriptor to be woken by, an alarm that counts suspend, and an epoll for the sockets of
//! UDP.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::sys::{MAX_SOURCES, READY_AT_ONCE, Ready, Room};

/// Wakes a waiting thread.
#[derive(Debug)]
pub(crate) struct Signal {
    event: EventFd,
    /// On CLOCK_BOOTTIME: `ppoll` counts on CLOCK_MONOTONIC, which stands still while the machine is suspended.
    alarm: TimerFd,
}

/// The descriptor of a carrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a>(pub(super) BorrowedFd<'a>);

/// Shortest wait with an alarm. A shorter wait that spans a suspend ends that much too late, and saves a system call.
const SHORTEST_ALARM: Duration = Duration::from_secs(1);

/// The UDP sockets to wait for.
#[derive(Debug)]
pub(crate) struct Sockets(Arc<Epoll>);

/// Marks a registered socket. The kernel drops a closed one, unless another process has a descriptor of it.
#[derive(Debug)]
pub(crate) struct Watched(Arc<Epoll>);

impl Watched {
    /// Waits for the socket no longer.
    pub(crate) fn end(self, socket: &UdpSocket) {
        let _ = self.0.delete(socket);
    }
}

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let alarm =
            TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        Ok(Self { event, alarm })
    }

    pub(crate) fn set(&self) {
        // The write fails by overflow only, and then the sleeper is already being woken.
        let _ = self.event.write(1);
    }

    pub(super) fn clear(&self) {
        let _ = self.event.read();
    }

    /// Waits for the signal, for a packet in one of the sources (at most [`MAX_SOURCES`]), for room in one or for the time. The signal is
    /// consumed then.
    pub(crate) fn wait(&self, sources: &[(Source<'_>, Room)], timeout: Option<Duration>) -> io::Result<()> {
        let signal = PollFd::new(self.as_fd(), PollFlags::POLLIN);
        let alarm = timeout.filter(|timeout| *timeout >= SHORTEST_ALARM);
        if let Some(timeout) = alarm {
            // Setting it forgets that it has gone off before.
            self.alarm.set(Expiration::OneShot(timeout.into()), TimerSetTimeFlags::empty())?;
        }
        let alarm = alarm.map(|_| PollFd::new(self.alarm.as_fd(), PollFlags::POLLIN));
        let sources = sources.iter().take(MAX_SOURCES).map(|(Source(fd), room)| {
            let events = match room {
                Room::NotNeeded => PollFlags::POLLIN,
                Room::Awaited => PollFlags::POLLIN | PollFlags::POLLOUT,
            };
            PollFd::new(*fd, events)
        });
        let mut fds: ArrayVec<PollFd<'_>, { 2 + MAX_SOURCES }> =
            std::iter::once(signal).chain(alarm).chain(sources).collect();
        match ppoll(&mut fds, timeout.map(TimeSpec::from), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if fds[0].any().unwrap_or(false) {
            self.clear();
        }
        Ok(())
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Sockets {
    /// Returns an empty set for the thread that `_signal` wakes.
    pub(crate) fn new(_signal: &Signal) -> io::Result<Self> {
        Ok(Self(Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?)))
    }

    pub(crate) fn add(&self, socket: &UdpSocket, number: u64) -> io::Result<Watched> {
        self.0.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        Ok(Watched(self.0.clone()))
    }

    /// What to wait for until one of them is readable.
    pub(crate) fn source(&self) -> Source<'_> {
        Source(self.0.0.as_fd())
    }

    /// The readable sockets. The next look finds the others.
    pub(crate) fn ready(&self) -> io::Result<ArrayVec<Ready, READY_AT_ONCE>> {
        let mut events = [EpollEvent::empty(); READY_AT_ONCE];
        let count = match self.0.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let ready = |event: &EpollEvent| Ready {
            number: event.data(),
            has_errors: event.events().contains(EpollFlags::EPOLLERR),
        };
        Ok(events.iter().take(count).map(ready).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_set(signal: &Signal) -> bool {
        let mut fds = [PollFd::new(signal.as_fd(), PollFlags::POLLIN)];
        ppoll(&mut fds, Some(TimeSpec::from(Duration::ZERO)), None).expect("polled") == 1
    }

    #[test]
    fn the_alarm_of_a_wait_goes_off_and_its_next_wait_begins_anew() {
        let signal = Signal::new().expect("a descriptor");
        let alarm = || ppoll(&mut [PollFd::new(signal.alarm.as_fd(), PollFlags::POLLIN)], None, None);
        signal.wait(&[], Some(SHORTEST_ALARM)).expect("waited");
        // `ppoll` may have been a little earlier.
        assert_eq!(alarm(), Ok(1));
        let begin = std::time::Instant::now();
        signal.wait(&[], Some(SHORTEST_ALARM)).expect("waited");
        assert!(begin.elapsed() >= SHORTEST_ALARM - Duration::from_millis(1), "{:?}", begin.elapsed());
    }

    #[test]
    fn a_signal_ends_the_wait_and_is_over_then() {
        let signal = Signal::new().expect("a descriptor");
        signal.set();
        signal.set();
        assert!(is_set(&signal));
        signal.wait(&[], None).expect("waited");
        assert!(!is_set(&signal));
    }
}
