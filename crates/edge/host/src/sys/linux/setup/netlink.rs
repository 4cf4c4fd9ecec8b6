//! Asks the kernel for its state over netlink (RFC 3549), with the messages of NETLINK_ROUTE.

use std::os::fd::{AsRawFd, OwnedFd};

use netlink_bindings::builtin::Nlmsghdr;
use netlink_bindings::consts::{NETLINK_GET_STRICT_CHK, NLM_F_DUMP_INTR, NLM_F_MULTI, NLM_F_REQUEST};
use netlink_bindings::traits::{NetlinkRequest, Protocol};
use netlink_bindings::utils::{nla_align_up, parse_i32};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send, socket,
};

use crate::error::Error;
use crate::log::debug;

/// Types of messages that end the answers (linux/netlink.h).
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Room for answers: the kernel fills up to 32 KiB at a time.
const ROOM: usize = 1 << 16;

/// Reads of a list that changes while it is read. The last one is taken as it is: what has changed is announced.
const ATTEMPTS: usize = 2;

/// A socket for questions.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    /// The number of the latest question.
    sequence: u32,
    answers: Vec<u8>,
}

/// The end of the answers to a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    /// The list has changed while it was read.
    Changed,
}

impl Netlink {
    /// Opens a socket in the network namespace of this thread.
    pub(super) fn open() -> Result<Self, Error> {
        let socket = connected().map_err(|errno| Error::system("open a netlink socket", errno))?;
        Ok(Self::over(socket))
    }

    /// Asks over this socket.
    pub(super) fn over(socket: OwnedFd) -> Self {
        Self { socket, sequence: 0, answers: vec![0; ROOM] }
    }

    /// Returns what `read` makes of the answers to a question.
    pub(super) fn ask<R: NetlinkRequest, T>(
        &mut self,
        question: &R,
        mut read: impl FnMut(R::ReplyType<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        for _ in 0..ATTEMPTS {
            found.clear();
            let end = self.try_ask(question, |answer| found.extend(read(R::decode_reply(answer))));
            // The question is about a device that has just gone, and what was over it with it.
            let end = if end == Err(Errno::ENODEV) { Ok(End::Complete) } else { end };
            let end = end.map_err(|errno| Error::system("read the network state of this host", errno))?;
            if end == End::Complete {
                break;
            }
            debug!("a list has changed while it was read");
        }
        Ok(found)
    }

    fn try_ask(&mut self, question: &impl NetlinkRequest, mut each: impl FnMut(&[u8])) -> Result<End, Errno> {
        let Protocol::Raw { request_type, .. } = question.protocol() else {
            return Err(Errno::EPROTONOSUPPORT);
        };
        self.sequence += 1;
        let payload = question.payload();
        let length = Nlmsghdr::len() + payload.len();
        let mut header = Nlmsghdr::new();
        header.len = u32::try_from(length).map_err(|_| Errno::EMSGSIZE)?;
        header.r#type = request_type;
        header.flags = question.flags() | NLM_F_REQUEST as u16;
        header.seq = self.sequence;
        send(self.socket.as_raw_fd(), &[header.as_slice(), payload].concat(), MsgFlags::empty())?;
        let mut end = End::Complete;
        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut self.answers, MsgFlags::MSG_TRUNC) {
                Err(Errno::EINTR) => continue,
                received => received?,
            };
            let mut rest = self.answers.get(..length).ok_or(Errno::EMSGSIZE)?;
            while let Some((header, answer)) = next_message(&mut rest)? {
                if header.seq != self.sequence {
                    continue;
                }
                if header.flags & NLM_F_DUMP_INTR as u16 != 0 {
                    end = End::Changed;
                }
                match header.r#type {
                    NLMSG_DONE | NLMSG_ERROR => {
                        // Negative; zero if there is none.
                        let error = parse_i32(answer).unwrap_or(0);
                        return if error < 0 { Err(Errno::from_raw(-error)) } else { Ok(end) };
                    }
                    _ => each(answer),
                }
                if header.flags & NLM_F_MULTI as u16 == 0 {
                    return Ok(end);
                }
            }
        }
    }
}

/// Takes the next message from a buffer of messages.
fn next_message<'a>(rest: &mut &'a [u8]) -> Result<Option<(Nlmsghdr, &'a [u8])>, Errno> {
    if rest.is_empty() {
        return Ok(None);
    }
    let header = rest.get(..Nlmsghdr::len()).and_then(Nlmsghdr::new_from_slice).ok_or(Errno::EBADMSG)?;
    let length = header.len as usize;
    let answer = rest.get(Nlmsghdr::len()..length).ok_or(Errno::EBADMSG)?;
    *rest = &rest[nla_align_up(length).min(rest.len())..];
    Ok(Some((header, answer)))
}

/// A socket to the kernel, from which alone it receives.
fn connected() -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    be_strict(&socket);
    connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    Ok(socket)
}

/// Asks for no more than the questions say. Kernels before 4.20 list cached routes, too.
#[allow(unsafe_code)]
fn be_strict(socket: &OwnedFd) {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open; the kernel reads as many bytes as the size of `on`.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            NETLINK_GET_STRICT_CHK,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if answer < 0 {
        debug!(error = %Errno::last(), "the kernel lists more than is asked for");
    }
}
