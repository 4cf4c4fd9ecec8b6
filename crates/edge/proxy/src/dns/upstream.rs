//! The resolvers that answer queries: that of the server, and for names that are reached directly those of this host.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::client::{self, Dialer, Early, Opened};
use crate::convert::Destination;
use crate::nameservers::{Asking, Nameservers};
use crate::request::RequestError;

/// Opens streams for DNS over TCP.
pub(super) trait Upstream: Sync {
    /// The type of a stream.
    type Stream: AsyncRead + AsyncWrite + Send;

    /// Opens a stream and sends these queries; returns the first bytes received, too.
    fn open(
        &self,
        queries: &[u8],
    ) -> impl Future<Output = Result<(Self::Stream, Vec<u8>), RequestError>> + Send;
}

/// The resolver of the server.
pub(super) struct OfServer<'a, D>(pub(super) &'a D);

impl<D: Dialer> Upstream for OfServer<'_, D> {
    type Stream = D::Stream;

    async fn open(&self, queries: &[u8]) -> Result<(D::Stream, Vec<u8>), RequestError> {
        let early = Early::Repeatable(queries);
        let Opened { stream, first } = client::open(self.0, Destination::Resolver, early).await?;
        Ok((stream, first))
    }
}

/// The nameservers of this host.
impl Upstream for Nameservers {
    type Stream = Asking;

    async fn open(&self, queries: &[u8]) -> Result<(Asking, Vec<u8>), RequestError> {
        let none =
            || std::io::Error::new(std::io::ErrorKind::HostUnreachable, "no nameserver of this host answers");
        let mut stream = self.connect().await.ok_or_else(none)?;
        stream.write_all(queries).await?;
        Ok((stream, Vec::new()))
    }
}
