//! Systems without sockets in the file system.

use std::convert::Infallible;
use std::io;
use std::path::Path;

/// There is none.
pub(crate) type Client = tokio::net::TcpStream;

/// There is none.
#[derive(Debug)]
pub(crate) struct LocalSocket(Infallible);

impl LocalSocket {
    /// # Errors
    /// Always.
    pub(crate) fn listen(path: &Path, _mode: u32) -> anyhow::Result<Self> {
        anyhow::bail!("cannot listen on {}: this system has no sockets in the file system", path.display());
    }

    #[allow(clippy::unused_async, reason = "as where there are some")]
    pub(crate) async fn accept(&self) -> io::Result<Client> {
        match self.0 {}
    }
}
