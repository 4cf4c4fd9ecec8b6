//! Connections that others open to us.

use crate::error::Error;
use crate::stream::Stream;

/// A port that connections are accepted on, over all paths. Dropping it gives the port back to the kernel; accepted
/// connections go on.
#[derive(Debug)]
pub struct Listener {
    pub(crate) inner: ::plait_host::Listener,
    pub(crate) control: ::plait_host::PathControl,
}

impl Listener {
    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.inner.port()
    }

    /// The next connection. Those that do not meet what the [`Service`](crate::Service) asks for never come here.
    ///
    /// # Errors
    /// The host is gone.
    pub async fn accept(&mut self) -> Result<Stream, Error> {
        loop {
            let (stream, from) = self.inner.accept().await?;
            // One that has ended already is of no interest.
            if let Ok(stream) = Stream::new(stream, self.control.clone(), Some(from)) {
                return Ok(stream);
            }
        }
    }
}
