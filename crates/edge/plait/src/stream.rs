//! A connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::datagrams::Datagrams;
use crate::error::Error;
use crate::halves::{ReadHalf, WriteHalf};
use crate::status::{Monitor, Peer, Status};
use crate::subflow::Subflow;

/// A connection over all paths, read and written like any tokio socket. [`Stream::into_split`] returns two halves of it.
///
/// [`tokio::io::AsyncWriteExt::shutdown`] ends our direction and leaves the other open. Dropping the stream releases the connection:
/// written data is still delivered as long as the [`Host`](crate::Host) lives. If the peer has sent data that was not read, it gets a
/// reset.
#[derive(Debug)]
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    peer: Peer,
}

impl Stream {
    /// The stream of a connection that is open. `from`: where it came from, if it was not opened by us.
    pub(crate) fn new(monitor: Monitor, from: Option<SocketAddr>) -> Result<Self, Error> {
        let gone = || Error::from(io::Error::from(io::ErrorKind::NotConnected));
        let status = monitor.status().ok_or_else(gone)?;
        let subflows = status.subflows();
        let came_in = subflows.iter().find(|subflow| from == Some(subflow.peer_addr()));
        let first = came_in.or(subflows.iter().find(|subflow| subflow.is_usable())).or(subflows.first());
        let first = first.ok_or_else(gone)?;
        let peer_addr = from.unwrap_or(first.peer_addr());
        let (local_addr, peer) = (first.local_addr(), status.peer());
        let (read, write) = (ReadHalf::new(monitor.clone()), WriteHalf::new(monitor));
        Ok(Self { read, write, peer_addr, local_addr, peer })
    }

    /// The peer's address on the subflow that the connection was opened by. Others are in [`Stream::paths`].
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    /// Our address on that subflow, as the peer sees it without another NAT in between.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The identity that the peer has proved.
    #[must_use]
    pub fn peer_identity(&self) -> &Peer {
        &self.peer
    }

    /// The current and ended subflows.
    #[must_use]
    pub fn paths(&self) -> Vec<Subflow> {
        self.status().map_or_else(Vec::new, |status| status.subflows())
    }

    /// The current status of the connection; `None` after its host has ended.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.read.status()
    }

    /// Splits the stream into two halves that different tasks can read and write.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// Returns a monitor that reads the status, and can end the connection, while the stream is in use elsewhere.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.read.monitor.clone()
    }

    /// Returns the datagrams of the connection. They live beside the stream, whichever is dropped first.
    #[must_use]
    pub fn datagrams(&self) -> Datagrams {
        Datagrams::new(self.monitor())
    }

    /// Reads the next bytes without copying them; `None` at the end of the stream. Dropping the future loses none.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        self.read.read_chunk().await
    }

    /// Writes all of `data` without copying it, and leaves it empty.
    ///
    /// Dropping the future leaves in `data` what was not written yet; another call goes on with it.
    ///
    /// # Errors
    /// The connection failed, or was shut down.
    pub async fn write_chunk(&mut self, data: &mut Bytes) -> io::Result<()> {
        self.write.write_chunk(data).await
    }

    /// Waits until both directions have ended and the peer knows. Dropping the future changes nothing.
    ///
    /// # Errors
    /// The connection failed. Reading may have ended in order all the same: only this error reports the loss of written data.
    pub async fn closed(&self) -> io::Result<()> {
        self.read.closed().await
    }

    /// Asks the peer how it sees our subflows, in a block filled to this many bytes, at most 32 KiB. The answer is as long, and appears in
    /// [`Subflow::seen_from`] and [`Subflow::our_syn_at_peer`]. Returns `false` if the connection is not sealed, because an answer could not be
    /// trusted, or if the peer does not support the question.
    pub fn ask_view(&self, bytes: u16) -> bool {
        self.read.monitor.connection.look(bytes.into())
    }

    /// Ends the connection at once, in both directions.
    pub fn abort(&self) {
        self.read.monitor.abort();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().read).poll_read(context, buffer)
    }
}

impl AsyncBufRead for Stream {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().read).poll_fill_buf(context)
    }

    fn consume(self: Pin<&mut Self>, len: usize) {
        Pin::new(&mut self.get_mut().read).consume(len);
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().write).poll_write(context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_shutdown(context)
    }
}
