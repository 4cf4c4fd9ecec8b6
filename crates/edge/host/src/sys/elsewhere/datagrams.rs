//! Sockets of UDP that are bound to an address.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use plait_wire::IcmpError;

/// A socket at `own` that is connected to `remote`, from a port that the system chooses.
pub(crate) fn connected(_device: &str, own: IpAddr, remote: SocketAddr) -> io::Result<UdpSocket> {
    let io = UdpSocket::bind((own, 0))?;
    io.connect(remote)?;
    Ok(io)
}

/// A socket for what comes to `port` of `own`.
pub(crate) fn listening(_device: &str, own: IpAddr, port: u16) -> io::Result<UdpSocket> {
    UdpSocket::bind((own, port))
}

/// No socket may hold more than the system lets it.
pub(crate) fn force_buffers(_io: &UdpSocket, _bytes: usize) -> [bool; 2] {
    [false; 2]
}

/// Trains are made only where it is known that they are cut.
pub(crate) fn is_refusal(_error: &io::Error) -> bool {
    false
}

/// Whether the error is one that ICMP has brought, about an earlier datagram.
pub(crate) fn is_about_another(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
    )
}

/// There is no queue of ICMP errors.
pub(crate) fn next_error(
    _io: &UdpSocket,
    _local: SocketAddr,
    _remote: Option<SocketAddr>,
) -> Option<Option<IcmpError>> {
    None
}
