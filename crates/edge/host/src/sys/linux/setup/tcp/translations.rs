//! The four-tuples of the stack after translation by the kernel's connection tracking (`nfnetlink_conntrack.h`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};
use plait_tcp::FourTuple;

/// NFNL_SUBSYS_CTNETLINK and IPCTNL_MSG_CT_GET: a question; IPCTNL_MSG_CT_NEW: the answer.
const GET: u16 = 0x0101;
const NEW: u16 = 0x0100;
/// NLM_F_REQUEST.
const REQUEST: u16 = 1;
/// NLA_F_NESTED.
const NESTED: u16 = 0x8000;
const HEADER: usize = 16;
/// Behind the header: family, version and resource (`nfgenmsg`).
const GENERAL: usize = 4;
const TCP: u8 = 6;

/// CTA_TUPLE_ORIG: the direction of the host that began. CTA_TUPLE_REPLY: the other direction.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
/// CTA_TUPLE_IP and CTA_TUPLE_PROTO.
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
/// CTA_PROTO_NUM, CTA_PROTO_SRC_PORT and CTA_PROTO_DST_PORT.
const NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// A handle for questions in one network namespace.
#[derive(Debug)]
pub(crate) struct Translations {
    socket: OwnedFd,
}

impl Translations {
    /// Opens it in the network namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkNetFilter)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { socket })
    }

    /// Returns the four-tuple on the network of `inside`; `None` if the kernel does not know or return it.
    pub(crate) fn of(&self, inside: &FourTuple) -> Option<FourTuple> {
        // The kernel finds the connection by either of its directions.
        send(self.socket.as_raw_fd(), &question(inside), MsgFlags::empty()).ok()?;
        let mut answer = [0; 2048];
        // The kernel has answered before it returns.
        loop {
            let len = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty()).ok()?;
            if let Some(outside) = outside(&answer[..len], inside) {
                return Some(outside);
            }
        }
    }
}

/// A direction of a connection: source and destination.
type Way = (SocketAddr, SocketAddr);

fn question(inside: &FourTuple) -> Vec<u8> {
    let FourTuple { local, remote } = inside;
    let addresses = match (local.ip(), remote.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            [attribute(1, &from.octets()), attribute(2, &to.octets())].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            [attribute(3, &from.octets()), attribute(4, &to.octets())].concat()
        }
        _ => Vec::new(),
    };
    let protocol = [
        attribute(NUMBER, &[TCP]),
        attribute(SOURCE_PORT, &local.port().to_be_bytes()),
        attribute(DESTINATION_PORT, &remote.port().to_be_bytes()),
    ];
    let tuple = [attribute(ADDRESSES | NESTED, &addresses), attribute(PROTOCOL | NESTED, &protocol.concat())];
    let family = if local.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let mut message = vec![family as u8, 0, 0, 0];
    message.extend(attribute(ORIGINAL | NESTED, &tuple.concat()));
    let mut whole = ((HEADER + message.len()) as u32).to_ne_bytes().to_vec();
    whole.extend([GET.to_ne_bytes(), REQUEST.to_ne_bytes()].concat());
    // Number and port of the question: there is never more than one.
    whole.extend([0; 8]);
    whole.extend(message);
    whole
}

/// Returns the other direction of the answer than `inside`, reversed.
fn outside(answer: &[u8], inside: &FourTuple) -> Option<FourTuple> {
    if number(answer, 4)? != NEW {
        return None;
    }
    let body = answer.get(HEADER + GENERAL..)?;
    let ways = [ORIGINAL, REPLY]
        .map(|kind| attributes(body).find(|(of, _)| *of == kind).and_then(|(_, tuple)| way(tuple)));
    let other = match ways {
        [Some(original), Some(reply)] if original == (inside.local, inside.remote) => reply,
        [Some(original), Some(reply)] if reply == (inside.local, inside.remote) => original,
        _ => return None,
    };
    Some(FourTuple { local: other.1, remote: other.0 })
}

fn way(tuple: &[u8]) -> Option<Way> {
    let part = |kind| attributes(tuple).find(|(of, _)| *of == kind).map(|(_, part)| part);
    let (addresses, protocol) = (part(ADDRESSES)?, part(PROTOCOL)?);
    let address = |kinds: [u16; 2]| {
        let (_, bytes) = attributes(addresses).find(|(of, _)| kinds.contains(of))?;
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
    };
    let port = |kind| {
        let (_, bytes) = attributes(protocol).find(|(of, _)| *of == kind)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    };
    let source = SocketAddr::new(address([1, 3])?, port(SOURCE_PORT)?);
    let destination = SocketAddr::new(address([2, 4])?, port(DESTINATION_PORT)?);
    Some((source, destination))
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut whole = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    whole.extend(kind.to_ne_bytes());
    whole.extend(value);
    whole.resize(whole.len().next_multiple_of(4), 0);
    whole
}

/// The attributes in `bytes`, each with its kind and value; stops at an invalid one.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (len, kind) = (usize::from(number(bytes, 0)?), number(bytes, 2)?);
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !NESTED, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(local: &str, remote: &str) -> FourTuple {
        let [local, remote] = [local, remote].map(|text| text.parse().expect("an address"));
        FourTuple { local, remote }
    }

    /// An answer of the kernel's, made of two questions: what it says of each direction has the form of what it is asked.
    fn answer(original: &FourTuple, reply: &FourTuple) -> Vec<u8> {
        let mut whole = question(original);
        whole[4..6].copy_from_slice(&NEW.to_ne_bytes());
        let mut second = question(reply)[HEADER + GENERAL..].to_vec();
        second[2..4].copy_from_slice(&(REPLY | NESTED).to_ne_bytes());
        whole.extend(second);
        whole
    }

    #[test]
    fn an_opener_is_seen_at_the_address_that_is_answered_to() {
        let inside = tuple("198.18.0.10:4000", "203.0.113.7:443");
        let answer = answer(&inside, &tuple("203.0.113.7:443", "192.0.2.1:61000"));
        assert_eq!(outside(&answer, &inside), Some(tuple("192.0.2.1:61000", "203.0.113.7:443")));
    }

    #[test]
    fn an_acceptor_is_seen_at_the_address_that_was_asked() {
        let inside = tuple("[fd70::a]:443", "[2001:db8::7]:5000");
        let answer = answer(&tuple("[2001:db8::7]:5000", "[2001:db8::1]:443"), &inside);
        assert_eq!(outside(&answer, &inside), Some(tuple("[2001:db8::1]:443", "[2001:db8::7]:5000")));
    }

    #[test]
    fn what_is_no_answer_says_nothing() {
        let inside = tuple("198.18.0.10:4000", "203.0.113.7:443");
        let whole = answer(&inside, &tuple("203.0.113.7:443", "192.0.2.1:61000"));
        let stranger = tuple("198.18.0.10:4001", "203.0.113.7:443");
        assert_eq!(outside(&whole, &stranger), None, "it is about another");
        for len in 0..whole.len() {
            assert_eq!(outside(&whole[..len], &inside), None, "{len} bytes");
        }
        // NLMSG_ERROR: there is none.
        assert_eq!(outside(&question(&inside), &inside), None);
    }
}
