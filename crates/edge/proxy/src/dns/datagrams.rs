//! The sockets of queries over UDP.
//!
//! An answer must leave from the address that its query came to. The kernel chooses the source of what a socket at the wildcard address sends
//! by its routes, so such a socket asks for the address of each query (`IP_PKTINFO`, RFC 3542 for IPv6).

use std::io;
use std::net::SocketAddr;

use tokio::net::UdpSocket;

/// A socket, at one address of this host or at all.
pub(super) struct Datagrams {
    socket: UdpSocket,
    /// Whether queries come to different addresses of it.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "it takes IP_PKTINFO"))]
    is_wildcard: bool,
}

/// The way back to where a query came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    pub(super) to: SocketAddr,
    own: Own,
}

/// The address of this host that a query came to.
#[derive(Clone, Copy, Debug)]
enum Own {
    /// That of the socket.
    OfSocket,
    #[cfg(target_os = "linux")]
    V4(nix::libc::in_pktinfo),
    #[cfg(target_os = "linux")]
    V6(nix::libc::in6_pktinfo),
}

impl Datagrams {
    /// # Errors
    /// The kernel does not tell the addresses.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let is_wildcard = cfg!(target_os = "linux") && address.ip().is_unspecified();
        #[cfg(target_os = "linux")]
        if is_wildcard {
            linux::ask_for_addresses(&socket, address.is_ipv6())?;
        }
        Ok(Self { socket, is_wildcard })
    }

    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Return)> {
        #[cfg(target_os = "linux")]
        if self.is_wildcard {
            return linux::receive(&self.socket, buffer).await;
        }
        let (len, to) = self.socket.recv_from(buffer).await?;
        Ok((len, Return { to, own: Own::OfSocket }))
    }

    pub(super) async fn send(&self, answer: &[u8], back: Return) -> io::Result<()> {
        match back.own {
            Own::OfSocket => self.socket.send_to(answer, back.to).await.map(drop),
            #[cfg(target_os = "linux")]
            Own::V4(_) | Own::V6(_) => linux::send(&self.socket, answer, back).await,
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, IoSlice, IoSliceMut};
    use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
    use std::os::fd::AsRawFd;

    use nix::cmsg_space;
    use nix::libc::in6_pktinfo;
    use nix::sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
    };
    use tokio::io::Interest;
    use tokio::net::UdpSocket;

    use super::{Own, Return};

    pub(super) fn ask_for_addresses(socket: &UdpSocket, is_v6: bool) -> io::Result<()> {
        match is_v6 {
            true => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?,
            false => setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?,
        }
        Ok(())
    }

    pub(super) async fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Return)> {
        let read = || {
            // The longer one of the two.
            let mut space = cmsg_space!(in6_pktinfo);
            let mut parts = [IoSliceMut::new(buffer)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let got = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
            let own = got.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::Ipv4PacketInfo(info) => Some(Own::V4(info)),
                ControlMessageOwned::Ipv6PacketInfo(info) => Some(Own::V6(info)),
                _ => None,
            });
            let to = got.address.as_ref().and_then(peer).ok_or(io::ErrorKind::InvalidData)?;
            Ok((got.bytes, Return { to, own: own.unwrap_or(Own::OfSocket) }))
        };
        socket.async_io(Interest::READABLE, read).await
    }

    pub(super) async fn send(socket: &UdpSocket, answer: &[u8], back: Return) -> io::Result<()> {
        let (v4, v6);
        let from = match back.own {
            Own::OfSocket => None,
            Own::V4(info) => {
                // The address in the header is the source of the answer.
                v4 = nix::libc::in_pktinfo { ipi_spec_dst: info.ipi_addr, ..info };
                Some(ControlMessage::Ipv4PacketInfo(&v4))
            }
            Own::V6(info) => {
                v6 = info;
                Some(ControlMessage::Ipv6PacketInfo(&v6))
            }
        };
        let (from, to) = (from.as_slice(), SockaddrStorage::from(back.to));
        let write = || {
            let parts = [IoSlice::new(answer)];
            sendmsg(socket.as_raw_fd(), &parts, from, MsgFlags::MSG_DONTWAIT, Some(&to))?;
            Ok(())
        };
        socket.async_io(Interest::WRITABLE, write).await
    }

    fn peer(address: &SockaddrStorage) -> Option<SocketAddr> {
        let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4(SocketAddrV4::from(*v4)));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6(SocketAddrV6::from(*v6))))
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_comes_from_the_address_that_was_asked() {
        let socket = UdpSocket::bind("0.0.0.0:0").await.expect("a socket");
        let port = socket.local_addr().expect("bound").port();
        let datagrams = Datagrams::new(socket).expect("addresses are told");
        let program = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        // The kernel would choose 127.0.0.1.
        program.connect(("127.0.0.7", port)).await.expect("connected");
        program.send(b"question").await.expect("sent");
        let mut buffer = [0; 100];
        let (len, back) = datagrams.receive(&mut buffer).await.expect("a question");
        assert_eq!((&buffer[..len], back.to), (&b"question"[..], program.local_addr().expect("bound")));
        datagrams.send(b"answer", back).await.expect("sent");
        // A connected socket takes no answer from another address.
        assert_eq!(program.recv(&mut buffer).await.expect("an answer"), 6);
    }
}
