//! The original destination of a redirected connection.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::socket::{getsockopt, sockopt};
use tokio::net::TcpStream;

/// The destination before the redirection (`SO_ORIGINAL_DST`).
///
/// # Errors
/// The connection was not redirected: a program in the namespace has connected to the listener
/// itself.
pub fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    match stream.local_addr()? {
        SocketAddr::V4(_) => {
            let raw = getsockopt(stream, sockopt::OriginalDst)?;
            let ip = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
            Ok(SocketAddr::from((ip, u16::from_be(raw.sin_port))))
        }
        SocketAddr::V6(_) => {
            let raw = getsockopt(stream, sockopt::Ip6tOriginalDst)?;
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Ok(SocketAddr::from((ip, u16::from_be(raw.sin6_port))))
        }
    }
}
