//! The channel between two processes of one user: messages with a descriptor, over a pair of unix sockets that no other process has.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::cmsg_space;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    setsockopt, socketpair, sockopt,
};
use nix::sys::time::TimeSpec;

use super::waiting::Source;

/// A descriptor for another process.
pub(crate) type OwnDescriptor = OwnedFd;

/// Room for messages that the other process has not read, if the system allows it: some tens of the longest segments.
const BUFFER: usize = 4 << 20;

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Returns both ends; the second one is for the other process.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok((Self::with_room(near), far))
    }

    /// The end that another process has made.
    pub(crate) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self::with_room(descriptor))
    }

    fn with_room(descriptor: OwnedFd) -> Self {
        if setsockopt(&descriptor, sockopt::SndBufForce, &BUFFER).is_err() {
            // As much as permitted.
            let _ = setsockopt(&descriptor, sockopt::SndBuf, &BUFFER);
        }
        Self(descriptor)
    }

    /// Sends a message, which must not be empty.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room. The other process has ended.
    pub(crate) fn send(&self, message: &[u8], descriptor: Option<&impl AsRawFd>) -> io::Result<()> {
        let descriptors: Vec<RawFd> = descriptor.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(message)], rights, flags, None)?;
        Ok(())
    }

    /// Receives a message, with its descriptor; the length 0 if the other process has ended.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    #[allow(unsafe_code)]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut space = cmsg_space!([RawFd; 1]);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let received = match recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Ok(received) => received,
            // The other process was killed with messages unread.
            Err(nix::Error::ECONNRESET) => return Ok((0, None)),
            Err(errno) => return Err(errno.into()),
        };
        let mut descriptors = Vec::new();
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(rights) = message {
                // SAFETY: the kernel has just made these descriptors for this process, and nothing else knows their numbers.
                descriptors.extend(rights.into_iter().map(|right| unsafe { OwnedFd::from_raw_fd(right) }));
            }
        }
        Ok((received.bytes, descriptors.pop()))
    }

    /// Receives a message, and waits for it this long.
    ///
    /// # Errors
    /// `TimedOut`.
    pub(crate) fn wait_for_message(
        &self,
        buffer: &mut [u8],
        limit: Duration,
    ) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        if ppoll(&mut polled, Some(TimeSpec::from(limit)), None)? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        self.receive(buffer)
    }

    /// What to wait for until there is a message, or room.
    pub(crate) fn source(&self) -> Source<'_> {
        Source(self.0.as_fd())
    }
}
