//! From the bytes behind an IP header to [`Segment`].

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::SeqNum;

use super::{Flags, Segment};
use crate::ip::{IpHeader, pseudo_header};
use crate::{Malformed, OptionBytes, Protocol, Trust};

impl Segment {
    /// The segment in `packet` behind the header `ip`.
    pub(crate) fn parse(
        packet: &Bytes,
        ip: &IpHeader,
        segment_size: u16,
        trust: Trust,
    ) -> Result<Self, Malformed> {
        let segment = Self::parse_shown(packet, ip, segment_size, trust)?;
        if segment.flags.are_possible() { Ok(segment) } else { Err(Malformed::Flags) }
    }

    /// The same for a packet in which captures and simulations show a datagram.
    pub(crate) fn parse_shown(
        packet: &Bytes,
        ip: &IpHeader,
        segment_size: u16,
        trust: Trust,
    ) -> Result<Self, Malformed> {
        let bytes = &packet[ip.payload.clone()];
        let (fixed, _) = bytes.split_first_chunk::<20>().ok_or(Malformed::Truncated)?;
        let header = usize::from(fixed[12] >> 4) * 4;
        // No range where the data offset lies below the fixed header or beyond the packet.
        let options = bytes.get(fixed.len()..header).ok_or(Malformed::HeaderLength)?;
        let options = OptionBytes::try_from(options).map_err(|_| Malformed::HeaderLength)?;
        match trust {
            Trust::Verify => verify(ip, bytes)?,
            Trust::Offloaded => {}
        }
        let flags = Flags::from_header([fixed[12], fixed[13]]);
        let port = |high, low| match u16::from_be_bytes([high, low]) {
            0 => Err(Malformed::Address),
            port => Ok(port),
        };
        let payload = packet.slice(ip.payload.start + header..ip.payload.end);
        Ok(Self {
            source: SocketAddr::new(ip.source, port(fixed[0], fixed[1])?),
            destination: SocketAddr::new(ip.destination, port(fixed[2], fixed[3])?),
            seq: SeqNum::new(u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]])),
            ack: SeqNum::new(u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]])),
            flags,
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
            urgent: u16::from_be_bytes([fixed[18], fixed[19]]),
            options,
            segment_size: match segment_size {
                // Below 65,536: the length fields of IP are 16 bits wide.
                0 => payload.len().max(1) as u16,
                size => size,
            },
            payload,
            ecn: ip.ecn,
            flow_label: ip.flow_label,
        })
    }
}

fn verify(ip: &IpHeader, bytes: &[u8]) -> Result<(), Malformed> {
    let mut sum = pseudo_header(&ip.source, &ip.destination, Protocol::Tcp, bytes.len());
    sum.add(bytes);
    if sum.fits() { Ok(()) } else { Err(Malformed::Checksum) }
}
