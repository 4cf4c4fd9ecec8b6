//! ICMP errors about our datagrams: the kernel keeps them in the error queue of their socket, with the quoted packet.
//!
//! An error is reported like an ICMP error about a segment of TCP, and is trusted as little. The quoted sequence number must be in flight
//! (RFC 5927), and an error ends a subflow only while it is being opened (RFC 5461).

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use plait_base::SeqNum;
use plait_wire::{IcmpError, IcmpReason, IpVersion};

/// Bytes of a quoted datagram that are looked at: data offset, flags and window, then the sequence number.
const QUOTED: usize = 8;

/// Makes the kernel keep the errors of a socket.
pub(super) fn ask_for(socket: &impl AsFd, is_v4: bool) -> Result<(), Errno> {
    if is_v4 {
        setsockopt(socket, sockopt::Ipv4RecvErr, &true)
    } else {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true)
    }
}

/// The next error of a socket at the stack's address `local`, if there is another one; `Some(None)` is one that says nothing about a segment.
pub(crate) fn next(
    socket: &UdpSocket,
    local: SocketAddr,
    remote: Option<SocketAddr>,
) -> Option<Option<IcmpError>> {
    let mut quoted = [0; QUOTED];
    // The error and its origin, and what the socket has asked to be told of each packet besides.
    let mut space = nix::cmsg_space!([u8; 256]);
    let mut buffers = [IoSliceMut::new(&mut quoted)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let fd = socket.as_fd().as_raw_fd();
    let message = recvmsg::<SockaddrStorage>(fd, &mut buffers, Some(&mut space), flags).ok()?;
    let len = message.bytes;
    let cause = message.cmsgs().ok()?.find_map(|part| match part {
        ControlMessageOwned::Ipv4RecvErr(cause, _) => Some((IpVersion::V4, cause)),
        ControlMessageOwned::Ipv6RecvErr(cause, _) => Some((IpVersion::V6, cause)),
        _ => None,
    });
    Some(cause.and_then(|(version, cause)| {
        let is_icmp = matches!(cause.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
        let reason = IcmpReason::of(version, cause.ee_type, cause.ee_code, cause.ee_info);
        let reason = reason.filter(|_| is_icmp)?;
        // A listener's socket tells where the datagram went.
        let went_to = || message.address.and_then(address_of);
        error_about((local, remote.or_else(went_to)?), quoted.get(..len)?, reason)
    }))
}

fn address_of(address: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port())))
}

/// The error for the endpoint; `None` if less is quoted than RFC 792 promises behind the header of TCP's length.
fn error_about(
    (source, destination): (SocketAddr, SocketAddr),
    quoted: &[u8],
    reason: IcmpReason,
) -> Option<IcmpError> {
    let [_, _, _, _, a, b, c, d] = *quoted.first_chunk::<QUOTED>()?;
    Some(IcmpError { source, destination, seq: SeqNum::new(u32::from_be_bytes([a, b, c, d])), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_segment_that_it_quotes_and_without_one_it_is_none() {
        let ends = ["198.19.255.128:40000", "192.0.2.1:443"].map(|text| text.parse().expect("an address"));
        let quoted = [0x50, 2, 0xff, 0xff, 1, 2, 3, 4];
        let reason = IcmpReason::Unreachable { code: 3 };
        let error = error_about((ends[0], ends[1]), &quoted, reason).expect("whole");
        assert_eq!((error.seq, error.source), (SeqNum::new(0x0102_0304), ends[0]));
        assert_eq!(error_about((ends[0], ends[1]), &quoted[..7], reason), None);
    }
}
