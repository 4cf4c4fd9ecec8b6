//! TCP segments made by hand, and their raw socket.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const PSH_ACK: u8 = 0x18;
pub(super) const ACK: u8 = 0x10;

/// How long a SYN/ACK may take.
const TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Clone, Default)]
pub(super) struct Segment {
    pub(super) port: u16,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) options: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// A raw socket for TCP: the kernel makes the IP header only, unless it is told to leave that to us.
pub(super) struct Raw {
    socket: Socket,
    /// The source of segments: the address of the socket, or any address if the headers are ours.
    pub(super) from: IpAddr,
    to: SocketAddr,
    makes_headers: bool,
}

impl Raw {
    pub(super) fn open(from: IpAddr, to: SocketAddr) -> Result<Self> {
        let socket =
            Socket::new(Domain::for_address(to), Type::RAW, Some(Protocol::TCP)).context("a raw socket")?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        Ok(Self { socket, from, to, makes_headers: false })
    }

    /// From now on the IP header is ours as well, and segments may come from anywhere.
    pub(super) fn include_headers(&mut self) -> Result<()> {
        let set = match self.to {
            SocketAddr::V4(_) => self.socket.set_header_included_v4(true),
            SocketAddr::V6(_) => self.socket.set_header_included_v6(true),
        };
        self.makes_headers = true;
        set.context("make IP headers")
    }

    /// The IP header of so many bytes; the kernel fills in the checksum and the length of IPv4.
    fn header(&self, len: usize) -> Vec<u8> {
        let mut header = Vec::with_capacity(40 + len);
        match (self.from, self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                header.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0]);
                header.extend(from.octets());
                header.extend(to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let [high, low] = u16::try_from(len).unwrap_or(0).to_be_bytes();
                header.extend([0x60, 0, 0, 0, high, low, 6, 64]);
                header.extend(from.octets());
                header.extend(to.octets());
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
        }
        header
    }

    pub(super) fn send(&self, segment: &Segment) -> Result<()> {
        self.send_with_checksum(self.bytes_of(segment))
    }

    /// Without the checksum. Options are filled up with ends of the option list.
    pub(super) fn bytes_of(&self, segment: &Segment) -> Vec<u8> {
        let Segment { port, seq, ack, flags, options, payload } = segment;
        let words = options.len().div_ceil(4).min(10);
        let mut bytes = Vec::with_capacity(60 + payload.len());
        bytes.extend(port.to_be_bytes());
        bytes.extend(self.to.port().to_be_bytes());
        bytes.extend(seq.to_be_bytes());
        bytes.extend(ack.to_be_bytes());
        let offset = u8::try_from(5 + words).unwrap_or(15);
        bytes.extend([offset << 4, *flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(options);
        bytes.resize(20 + 4 * words, 0);
        bytes.extend(payload);
        bytes
    }

    pub(super) fn send_with_checksum(&self, mut bytes: Vec<u8>) -> Result<()> {
        let mut whole = Vec::with_capacity(40 + bytes.len());
        for address in [self.from, self.to.ip()] {
            match address {
                IpAddr::V4(address) => whole.extend(address.octets()),
                IpAddr::V6(address) => whole.extend(address.octets()),
            }
        }
        whole.extend(u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
        whole.extend([0, 0, 0, 6]);
        whole.extend(&bytes);
        if whole.len() % 2 == 1 {
            whole.push(0);
        }
        let sum: u32 = whole.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        let checksum = !u16::try_from(folded & 0xffff).unwrap_or(0);
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        self.send_bytes(&bytes)
    }

    pub(super) fn send_bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut whole = if self.makes_headers { self.header(bytes.len()) } else { Vec::new() };
        whole.extend(bytes);
        // The port of a raw IPv6 socket's destination must be zero.
        match self.socket.send_to(&whole, &SocketAddr::new(self.to.ip(), 0).into()) {
            // The device's queue is full, or random flags make it one of the resets that the scenario drops: the segment is
            // lost, as on any wire.
            Err(error) if error.raw_os_error() == Some(105) => Ok(()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            other => other.map(drop).context("send"),
        }
    }

    /// Waits for the SYN/ACK to a port of ours: what acknowledges it, and its options.
    pub(super) fn syn_ack_for(&self, port: u16) -> Result<Option<(u32, Vec<u8>)>> {
        let until = Instant::now() + TIMEOUT;
        let mut room = [0; 2048];
        while Instant::now() < until {
            let length = match (&self.socket).read(&mut room) {
                Ok(length) => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) => return Err(error).context("receive"),
            };
            if let Some(found) = syn_ack(&room[..length], self.to, port) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The acknowledgment of this packet, and its options, if it is a SYN/ACK from `server` to `port`. IPv4 packets come with their IP
/// header.
fn syn_ack(packet: &[u8], server: SocketAddr, port: u16) -> Option<(u32, Vec<u8>)> {
    let tcp = match server.ip() {
        IpAddr::V4(_) => packet.get(usize::from(packet.first()? & 15) * 4..)?,
        IpAddr::V6(_) => packet,
    };
    let header: &[u8; 20] = tcp.first_chunk()?;
    let ports = [server.port().to_be_bytes(), port.to_be_bytes()].concat();
    if header[..4] != ports || header[13] & (SYN | ACK) != SYN | ACK {
        return None;
    }
    let seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let options = tcp.get(20..usize::from(header[12] >> 4) * 4)?;
    Some((seq.wrapping_add(1), options.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syn_ack_is_taken_only_from_the_server_to_the_port() {
        let server: SocketAddr = "[fd00::1]:5201".parse().expect("an address");
        let mut packet = vec![0x14, 0x51, 0x04, 0x00, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0];
        assert_eq!(syn_ack(&packet, server, 1024), Some((10, Vec::new())));
        assert_eq!(syn_ack(&packet, server, 1025), None);
        packet[13] = ACK;
        assert_eq!(syn_ack(&packet, server, 1024), None);
        assert_eq!(syn_ack(&packet[..19], server, 1024), None);
    }
}
