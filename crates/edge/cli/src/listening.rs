//! Ports at which programs connect: bound by this process, or passed to it by a service manager that holds them while it restarts.

use std::future::pending;
use std::io;
use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use tokio::net::{TcpListener, TcpStream};

use crate::system;

/// The sockets that a service manager has passed and that no port has taken yet.
#[derive(Debug)]
pub(crate) struct Passed {
    listeners: Vec<std::net::TcpListener>,
}

impl Passed {
    /// Takes what was passed; nothing without a service manager.
    ///
    /// # Errors
    /// A descriptor is not a listening TCP socket.
    pub(crate) fn take() -> anyhow::Result<Self> {
        Ok(Self { listeners: system::passed_listeners()? })
    }

    /// Listens at `at`: by the passed socket with that address, or by a new one.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) async fn listen(&mut self, at: SocketAddr) -> anyhow::Result<TcpListener> {
        let is_there =
            |listener: &std::net::TcpListener| listener.local_addr().is_ok_and(|address| address == at);
        let listener = match self.listeners.iter().position(is_there) {
            Some(index) => TcpListener::from_std(self.listeners.swap_remove(index)),
            None => TcpListener::bind(at).await,
        };
        listener.with_context(|| format!("cannot listen on {at}"))
    }

    /// All ports listen.
    ///
    /// # Errors
    /// A socket was passed at an address that no option names: programs that connect there would wait for ever.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let Some(listener) = self.listeners.first() else { return Ok(()) };
        let at = listener.local_addr()?;
        bail!(
            "the service manager has passed a socket at {at}, where no option listens\n  fix: the same address as \
             ListenStream= of the socket unit, and in the configuration"
        );
    }
}

/// The next connection to a listener; waits for ever if there is none.
pub(crate) async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => pending().await,
    }
}
