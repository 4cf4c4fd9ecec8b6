//! Waiting for packets: one poller for the sockets of a thread and for what wakes it.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::UdpSocket;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use polling::{Event, Events, PollMode, Poller};

use crate::sys::{READY_AT_ONCE, Ready, Room};

/// Wakes a waiting thread.
#[derive(Debug)]
pub(crate) struct Signal(Arc<Poller>);

/// The UDP sockets to wait for. A signal found during a look is consumed: the looking thread has been woken.
#[derive(Debug)]
pub(crate) struct Sockets(Arc<Poller>);

/// What a carrier is waited for by: the poller of its sockets is that of the signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a>(PhantomData<&'a Sockets>);

/// The registration of a socket, until this is dropped.
pub(crate) struct Watched {
    poller: Arc<Poller>,
    socket: UdpSocket,
}

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Poller::new()?)))
    }

    pub(crate) fn set(&self) {
        // The sleeper may find it out later, at its deadline.
        let _ = self.0.notify();
    }

    /// Waits for the signal, for a packet or for the time. The signal is over then. Sockets are those made for it.
    pub(crate) fn wait(&self, _sources: &[(Source<'_>, Room)], timeout: Option<Duration>) -> io::Result<()> {
        // A readable socket stays readable until it is read.
        look(&self.0, timeout).map(drop)
    }
}

impl Sockets {
    /// None yet, for the thread that `signal` wakes.
    pub(crate) fn new(signal: &Signal) -> io::Result<Self> {
        Ok(Self(signal.0.clone()))
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source(PhantomData)
    }

    #[allow(unsafe_code)]
    pub(crate) fn add(&self, socket: &UdpSocket, number: u64) -> io::Result<Watched> {
        let key = usize::try_from(number).map_err(io::Error::other)?;
        let socket = socket.try_clone()?;
        // SAFETY: the poller must not know a socket that is closed. This one is owned by what is returned, which takes it out of the
        // poller before it closes it.
        unsafe { self.0.add_with_mode(&socket, Event::readable(key), PollMode::Level)? };
        Ok(Watched { poller: self.0.clone(), socket })
    }

    /// The readable sockets. The next look finds the others.
    pub(crate) fn ready(&self) -> io::Result<ArrayVec<Ready, READY_AT_ONCE>> {
        let events = look(&self.0, Some(Duration::ZERO))?;
        let ready = |event: Event| Ready { number: event.key as u64, has_errors: false };
        Ok(events.iter().map(ready).take(READY_AT_ONCE).collect())
    }
}

fn look(poller: &Poller, timeout: Option<Duration>) -> io::Result<Events> {
    const AT_ONCE: NonZeroUsize = NonZeroUsize::new(READY_AT_ONCE).expect("some are looked at");
    let mut events = Events::with_capacity(AT_ONCE);
    match poller.wait(&mut events, timeout) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Ok(_) | Err(_) => Ok(events),
    }
}

impl Watched {
    /// Waits for the socket no longer.
    pub(crate) fn end(self, _socket: &UdpSocket) {}
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.poller.delete(&self.socket);
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.socket).finish()
    }
}
