//! The line between two servers, or between a server and its starter: a pair of unix sockets that keeps messages apart, and takes a
//! descriptor with each.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use super::Message;

/// Longest message: the reason of a failure.
const MAX_MESSAGE: usize = 1 << 15;
/// Longest reason.
const MAX_REASON: usize = 4096;

/// One end of the line between two servers.
#[derive(Debug)]
pub(super) struct Line(UnixDatagram);

impl Line {
    /// An end that was made by [`pair`].
    pub(super) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        // The runtime waits for it as for a datagram socket.
        Ok(Self(UnixDatagram::from_std(descriptor.into())?))
    }

    pub(super) async fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        self.0.async_io(Interest::WRITABLE, || send(&self.0, &text, descriptor)).await
    }

    /// The next message; `None` if the other process has ended.
    pub(super) async fn receive(&self) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
        let (text, descriptor) = self.0.async_io(Interest::READABLE, || receive(&self.0)).await?;
        if text.is_empty() {
            return Ok(None);
        }
        Ok(Some((serde_json::from_slice(&text)?, descriptor)))
    }

    /// Returns when the other process has ended; other messages are passed over, except [`Message::Stop`].
    pub(super) async fn stop_or_end(&self) -> bool {
        loop {
            match self.receive().await {
                Ok(Some((Message::Stop, _))) => return true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }
}

/// Both ends of a line. They wait.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Whether this is an end of a line.
pub(super) fn is_end(descriptor: impl AsFd) -> bool {
    let descriptor = descriptor.as_fd();
    sockopt::socket_type(descriptor) == Ok(SocketType::SEQPACKET)
        && sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX)
}

/// The reason of a failure, as long as a message may be.
pub(super) fn shortened(why: &str) -> String {
    why.chars().take(MAX_REASON).collect()
}

pub(super) fn send(line: impl AsFd, text: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    sendmsg(line, &[IoSlice::new(text)], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A message and its descriptor; empty if the other process has ended.
pub(super) fn receive(line: impl AsFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut text = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let received =
        match recvmsg(line, &mut [IoSliceMut::new(&mut text)], &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            // It has ended with messages unread.
            Err(rustix::io::Errno::CONNRESET) => return Ok((Vec::new(), None)),
            Err(errno) => return Err(errno.into()),
        };
    let descriptors = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.flatten().last();
    text.truncate(received.bytes);
    if received.bytes == MAX_MESSAGE {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok((text, descriptor))
}
