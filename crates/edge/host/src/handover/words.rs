//! The messages between two processes, byte by byte.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Flow, Left};
use crate::carriers::CarrierKind;

/// A message that is written.
pub(super) struct Writer(pub(super) Vec<u8>);

/// The rest of a message that is read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

/// A passed segment, without its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) carrier: CarrierKind,
    pub(super) device: String,
    pub(super) local: Option<IpAddr>,
    /// Source and destination.
    pub(super) ends: (SocketAddr, SocketAddr),
}

impl Writer {
    pub(super) fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub(super) fn flow(&mut self, (carrier, port, remote): &Flow) {
        self.0.push(number_of(*carrier));
        self.0.extend(port.to_be_bytes());
        self.end(*remote);
    }

    pub(super) fn head(&mut self, left: &Left, size: usize) {
        let Left { carrier, device, local, segment } = left;
        self.0.push(number_of(*carrier));
        let device = device.get(..device.len().min(255)).unwrap_or_default();
        self.0.push(device.len() as u8);
        self.0.extend_from_slice(device.as_bytes());
        match local {
            Some(address) => self.address(*address),
            None => self.0.push(0),
        }
        self.end(segment.source);
        self.end(segment.destination);
        self.0.push(segment.ecn);
        self.0.extend((size as u32).to_be_bytes());
    }

    fn end(&mut self, end: SocketAddr) {
        self.address(end.ip());
        self.0.extend(end.port().to_be_bytes());
    }

    fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => {
                self.0.push(4);
                self.0.extend(address.octets());
            }
            IpAddr::V6(address) => {
                self.0.push(6);
                self.0.extend(address.octets());
            }
        }
    }
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn short(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn flow(&mut self) -> Option<Flow> {
        Some((carrier_of(self.byte()?)?, self.short()?, self.end()?))
    }

    /// The head of a passed segment, the length of its datagrams but the last, its mark of congestion, and its datagrams.
    pub(super) fn head(mut self) -> Option<(Head, usize, u8, &'a [u8])> {
        let carrier = carrier_of(self.byte()?)?;
        let (device, rest) = {
            let len = usize::from(self.byte()?);
            self.0.split_at_checked(len)?
        };
        self.0 = rest;
        let device = String::from_utf8(device.to_vec()).ok()?;
        let local = match self.0.first()? {
            0 => self.byte().and(None),
            _ => Some(self.address()?),
        };
        let ends = (self.end()?, self.end()?);
        let (ecn, size) = (self.byte()? & 3, usize::try_from(self.long()?).ok()?);
        Some((Head { carrier, device, local, ends }, size, ecn, self.0))
    }

    fn end(&mut self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address()?, self.short()?))
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.byte()? {
            4 => self.take::<4>().map(|octets| Ipv4Addr::from(octets).into()),
            6 => self.take::<16>().map(|octets| Ipv6Addr::from(octets).into()),
            _ => None,
        }
    }
}

fn number_of(carrier: CarrierKind) -> u8 {
    match carrier {
        CarrierKind::Tcp => 0,
        CarrierKind::Udp => 1,
        #[cfg(test)]
        CarrierKind::Queues => 2,
    }
}

fn carrier_of(number: u8) -> Option<CarrierKind> {
    CarrierKind::ALL.get(usize::from(number)).copied()
}
