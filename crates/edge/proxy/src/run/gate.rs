//! The first packets of a program's connections, held until the destination has answered.
//!
//! A listener of the kernel accepts a connection before it is known whether its destination can be reached. So the SYNs of a program are
//! dropped in its network, and a copy of each comes here (NFLOG). Once the server has connected, the copy is sent on with a mark that lets
//! it pass, and the kernel accepts it. If the server has refused, the program gets the reset that the destination would have sent. Without
//! either, the program's kernel sends its SYN again, as on any network. Datagrams are refused; copies of a few come here, so that the
//! refusal can be reported.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, recv,
    send, sendto, setsockopt, socket, sockopt,
};
use plait_wire::checksum_of;
use tokio::io::unix::AsyncFd;

/// The NFLOG group of the copies in a private network; its number has no meaning elsewhere.
pub(super) const GROUP: u16 = 7;
/// The mark of the SYNs that may pass.
pub const MARK: u32 = 0x706c_6169;

/// `NFNL_SUBSYS_ULOG` with `NFULNL_MSG_PACKET` and `NFULNL_MSG_CONFIG` (linux/netfilter/nfnetlink_log.h).
const PACKET: u16 = 4 << 8;
const CONFIG: u16 = 4 << 8 | 1;
/// Attributes: a packet, a command, how much is copied, and how many packets make a message.
const PAYLOAD: u16 = 9;
const COMMAND: u16 = 1;
const MODE: u16 = 2;
const THRESHOLD: u16 = 5;
/// Headers of netlink and of netfilter's netlink, and of an attribute.
const HEADERS: usize = 16 + 4;
const ATTRIBUTE: usize = 4;
/// Bytes of a packet that are copied: a SYN with all of its options.
const COPIED: u32 = 256;
/// Most messages that wait: about a thousand SYNs at once.
const BUFFER: usize = 4 << 20;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The sockets that the child opens and its parent uses.
pub(super) struct Sockets {
    copies: OwnedFd,
    raw4: OwnedFd,
    /// `None` on a host without IPv6.
    raw6: Option<OwnedFd>,
}

/// The queue of the first segments of a program.
#[derive(Debug)]
pub struct Gate {
    copies: AsyncFd<OwnedFd>,
    raw4: OwnedFd,
    raw6: Option<OwnedFd>,
    waiting: VecDeque<Knock>,
    buffer: Vec<u8>,
}

/// The start of a flow of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Knock {
    /// A connection.
    Tcp(Syn),
    /// A datagram to this address, which was refused.
    Udp(SocketAddr),
}

/// A connection that waits to be accepted ([`Gate::admit`]) or refused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Syn {
    /// The program's end.
    pub from: SocketAddr,
    /// The destination.
    pub to: SocketAddr,
    packet: Vec<u8>,
    /// Offset of its TCP header.
    segment: usize,
}

impl Sockets {
    /// Opens them in the network of the calling thread, with this NFLOG group.
    pub(super) fn open(group: u16, has_ipv6: bool) -> anyhow::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let copies = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkNetFilter)?;
        bind(copies.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        for (kind, value) in [
            (COMMAND, &[1][..]),
            (MODE, &[&COPIED.to_be_bytes()[..], &[2, 0]].concat()),
            (THRESHOLD, &1_u32.to_be_bytes()),
        ] {
            configure(&copies, group, (kind, value)).context("asking for copies of packets (NFLOG)")?;
        }
        // More than the limit of others, if we may.
        let _ = setsockopt(&copies, sockopt::RcvBufForce, &BUFFER);
        let raw = |family| -> nix::Result<OwnedFd> {
            let raw = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
            setsockopt(&raw, sockopt::Mark, &MARK)?;
            Ok(raw)
        };
        let raw6 = has_ipv6.then(|| raw(AddressFamily::Inet6)).transpose()?;
        Ok(Self { copies, raw4: raw(AddressFamily::Inet)?, raw6 })
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = i32> {
        let raw6 = self.raw6.as_ref().map(AsRawFd::as_raw_fd);
        [self.copies.as_raw_fd(), self.raw4.as_raw_fd()].into_iter().chain(raw6)
    }
}

/// Sends one attribute of the configuration of our group, which the kernel acknowledges.
fn configure(copies: &OwnedFd, group: u16, (kind, value): (u16, &[u8])) -> anyhow::Result<()> {
    let len = ATTRIBUTE + value.len();
    let whole = HEADERS + len.next_multiple_of(4);
    let mut message = Vec::with_capacity(whole);
    message.extend_from_slice(&u32::try_from(whole)?.to_ne_bytes());
    // NLM_F_REQUEST and NLM_F_ACK; number and port are not used here.
    message.extend_from_slice(&[CONFIG.to_ne_bytes(), 5_u16.to_ne_bytes()].concat());
    message.extend_from_slice(&[0; 10]);
    message.extend_from_slice(&group.to_be_bytes());
    message.extend_from_slice(&[u16::try_from(len)?.to_ne_bytes(), kind.to_ne_bytes()].concat());
    message.extend_from_slice(value);
    message.resize(whole, 0);
    send(copies.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let got = recv(copies.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let code = answer[..got].get(16..20).and_then(|bytes| bytes.first_chunk().copied());
    let code = i32::from_ne_bytes(code.context("an answer that is none")?);
    ensure!(code == 0, "{}", Errno::from_raw(-code).desc());
    Ok(())
}

impl Gate {
    /// Opens the queue of the network of the calling thread for the packets that rules log to this NFLOG group. It needs CAP_NET_ADMIN and
    /// CAP_NET_RAW.
    ///
    /// # Errors
    /// The kernel has no NFLOG, or another program uses the group.
    pub fn open(group: u16, has_ipv6: bool) -> anyhow::Result<Self> {
        let Sockets { copies, raw4, raw6 } = Sockets::open(group, has_ipv6)?;
        Ok(Self::new([copies, raw4], raw6)?)
    }

    pub(super) fn new([copies, raw4]: [OwnedFd; 2], raw6: Option<OwnedFd>) -> io::Result<Self> {
        fcntl(copies.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        #[allow(
            deprecated,
            reason = "an OwnedFd keeps its descriptor, which is what the newer, unsafe constructor asks for"
        )]
        let copies = AsyncFd::new(copies)?;
        Ok(Self { copies, raw4, raw6, waiting: VecDeque::new(), buffer: vec![0; 64 * 1024] })
    }

    /// Waits for the next flow of the program. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn next(&mut self) -> io::Result<Knock> {
        loop {
            if let Some(knock) = self.waiting.pop_front() {
                return Ok(knock);
            }
            let mut ready = self.copies.readable().await?;
            match recv(self.copies.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(len) => knocks_in(&self.buffer[..len], &mut self.waiting),
                Err(Errno::EAGAIN) => ready.clear_ready(),
                // Some were lost: they are sent again.
                Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Admits a connection: the kernel accepts it.
    ///
    /// # Errors
    /// The segment cannot be sent; the program sends it again.
    pub fn admit(&self, syn: &Syn) -> io::Result<()> {
        // The kernel leaves the checksum to the device, and a copy has none.
        self.send(&checked(&syn.packet, syn.segment, syn), syn.to.ip())
    }

    /// Refuses a connection, as if its destination refused it.
    ///
    /// # Errors
    /// The segment cannot be sent; the program tries again.
    pub fn refuse(&self, syn: &Syn) -> io::Result<()> {
        self.send(&reset(syn), syn.from.ip())
    }

    fn send(&self, packet: &[u8], to: IpAddr) -> io::Result<()> {
        let raw = if to.is_ipv4() { Some(&self.raw4) } else { self.raw6.as_ref() };
        let Some(raw) = raw else { return Err(io::ErrorKind::Unsupported.into()) };
        let to = SockaddrStorage::from(SocketAddr::new(to, 0));
        sendto(raw.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}

/// Reads the messages of a datagram of netlink.
fn knocks_in(mut bytes: &[u8], knocks: &mut VecDeque<Knock>) {
    while let Some(len) = bytes.first_chunk().map(|len| u32::from_ne_bytes(*len) as usize)
        && len >= HEADERS
        && let Some(message) = bytes.get(..len)
    {
        if message[4..6] == PACKET.to_ne_bytes() {
            knocks.extend(attribute(&message[HEADERS..], PAYLOAD).and_then(knock_in));
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// The value of the attribute of this kind.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(ATTRIBUTE..len)?;
        if u16::from_ne_bytes([c, d]) == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

/// The flow that a packet of the program begins; `None` for other packets.
fn knock_in(packet: &[u8]) -> Option<Knock> {
    let v4 = |at: usize| Some(IpAddr::from(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?)));
    let v6 = |at: usize| Some(IpAddr::from(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?)));
    let (protocol, from, to, segment) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, v4(12)?, v4(16)?, usize::from(packet[0] & 0x0f) * 4),
        6 => (*packet.get(6)?, v6(8)?, v6(24)?, 40),
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(*packet.get(segment + at..)?.first_chunk()?));
    let (from, to) = (SocketAddr::new(from, port(0)?), SocketAddr::new(to, port(2)?));
    match protocol {
        // With all of its header.
        TCP if packet.len() >= segment + 20 => {
            Some(Knock::Tcp(Syn { from, to, packet: packet.to_vec(), segment }))
        }
        UDP => Some(Knock::Udp(to)),
        _ => None,
    }
}

/// Returns `packet` with the checksum of its TCP segment, which has the addresses of `syn` in either order.
fn checked(packet: &[u8], segment: usize, syn: &Syn) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[segment + 16..segment + 18].fill(0);
    let mut sum = Vec::with_capacity(packet.len() + 40);
    for ip in [syn.from.ip(), syn.to.ip()] {
        match ip {
            IpAddr::V4(ip) => sum.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => sum.extend_from_slice(&ip.octets()),
        }
    }
    // Protocol and length (RFC 9293, section 3.1); in IPv6 both have 32 bits, which sums up to the same.
    sum.extend_from_slice(&[0, TCP]);
    sum.extend_from_slice(&((packet.len() - segment) as u16).to_be_bytes());
    sum.extend_from_slice(&packet[segment..]);
    let checksum = checksum_of(&sum);
    packet[segment + 16..segment + 18].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The answer of a port without a listener (RFC 9293, section 3.10.7.1): `RST, ACK` of the SYN.
fn reset(syn: &Syn) -> Vec<u8> {
    let (mut packet, segment) = match (syn.from.ip(), syn.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0];
            header.extend_from_slice(&[to.octets(), from.octets()].concat());
            (header, 20)
        }
        (from, to) => {
            let octets = |ip| match ip {
                IpAddr::V4(ip) => Ipv4Addr::to_ipv6_mapped(&ip).octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let mut header = vec![0x60, 0, 0, 0, 0, 20, TCP, 64];
            header.extend_from_slice(&[octets(to), octets(from)].concat());
            (header, 40)
        }
    };
    let sequence = syn.packet[syn.segment + 4..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    packet.extend_from_slice(&[syn.to.port().to_be_bytes(), syn.from.port().to_be_bytes()].concat());
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(&sequence.wrapping_add(1).to_be_bytes());
    packet.extend_from_slice(&[0x50, 0x14, 0, 0, 0, 0, 0, 0]);
    checked(&packet, segment, syn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, TCP, 0, 0, 192, 0, 2, 1, 192, 0, 2, 80];
        packet.extend_from_slice(&[
            0x9c, 0x40, 0, 80, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0x50, 2, 1, 0, 9, 9, 0, 0,
        ]);
        packet
    }

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let len = HEADERS + ATTRIBUTE + payload.len();
        let mut message = [&(len as u32).to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 14]].concat();
        message.extend_from_slice(&((ATTRIBUTE + payload.len()) as u16).to_ne_bytes());
        message.extend_from_slice(&PAYLOAD.to_ne_bytes());
        message.extend_from_slice(payload);
        message.resize(len.next_multiple_of(4), 0);
        message
    }

    fn knocks(bytes: &[u8]) -> Vec<Knock> {
        let mut knocks = VecDeque::new();
        knocks_in(bytes, &mut knocks);
        knocks.into()
    }

    #[test]
    fn copies_of_what_a_program_sends_are_read_and_everything_else_is_passed_over() {
        let mut udp = syn();
        udp[9] = UDP;
        let both = [message(PACKET, &syn()), message(3, &syn()), message(PACKET, &udp)].concat();
        let found = knocks(&both);
        let [Knock::Tcp(first), Knock::Udp(to)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (first.from.to_string(), first.to.to_string()),
            ("192.0.2.1:40000".into(), "192.0.2.80:80".into())
        );
        assert_eq!(to.to_string(), "192.0.2.80:80");
        for len in 0..message(PACKET, &syn()).len() {
            assert_eq!(knocks(&message(PACKET, &syn())[..len]), [], "cut at {len}");
        }
        for len in 0..syn().len() {
            assert!(!matches!(knocks(&message(PACKET, &syn()[..len]))[..], [Knock::Tcp(_)]), "cut at {len}");
        }
    }

    #[test]
    fn a_refusal_is_the_reset_of_a_closed_port() {
        let Some(Knock::Tcp(syn)) = knock_in(&syn()) else { panic!("a SYN") };
        let reset = reset(&syn);
        assert_eq!(reset[12..20], [192, 0, 2, 80, 192, 0, 2, 1], "from where it wanted to go");
        assert_eq!(reset[20..24], [0, 80, 0x9c, 0x40]);
        assert_eq!(
            (&reset[28..32], reset[33]),
            (&[0, 0, 0, 0][..], 0x14),
            "the number behind the SYN, round the end"
        );
        let pseudo = [&reset[12..20], &[0, TCP, 0, 20], &reset[20..]].concat();
        assert_eq!(checksum_of(&pseudo), 0);
    }
}
