//! The messages of the Convert protocol (RFC 8803): the destination of a stream, and the result of connecting to it.
//!
//! They travel inside the protected stream, the client's in its first flight, so that the request costs no round trip. One message each
//! way precedes the bytes of the two programs.
//!
//! Nine things are plait's own. A destination may be a *name* ([`Destination::Name`], TLV type 0x7F, which RFC 8803 leaves unassigned):
//! the server resolves names, not the client. An address may have *names* beside it ([`Destination::Named`], TLV type 0x7D, unassigned too),
//! for rules by name. A socket in the file system of the server is a destination as well ([`Destination::Socket`], TLV type 0x7B),
//! and so is a service by name ([`Destination::Service`], the same type). A client can ask for a port of the server that leads to it
//! ([`Destination::Remote`], the same type). The unspecified address with port 53 means the resolver of the server. With port 17, the number
//! of UDP, it means flows of datagrams beside the stream ([`flows`](crate::flows)). With port 0 it
//! means no destination: the client only asks whether the server accepts it. The server answers success too, so that the client knows
//! when a refusal can no longer come. That answer contains the [`Instance`] of the server (TLV type 0x7E, unassigned too): a restarted
//! server has another one.

// With its path, because a fuzz target compiles this file in from elsewhere.
#[path = "convert/place.rs"]
mod place;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use self::place::{TLV_PLACE, emit_remote, emit_service, emit_socket};
pub use self::place::{is_path, is_service};

/// First bytes of every message: version 1, length in words, magic number (section 4.1).
const VERSION: u8 = 1;
const MAGIC: u16 = 0x2263;
/// Bytes of the fixed header.
const HEADER: usize = 4;
/// Longest message: the length field counts 32-bit words in one byte.
pub const MAX_MESSAGE: usize = 255 * 4;

const TLV_CONNECT: u8 = 0x0a;
const TLV_ERROR: u8 = 0x1e;
/// Port and address as in the Connect TLV, and names behind them: the length of each in a byte, and its bytes. Zeros fill the last word.
const TLV_NAMED: u8 = 0x7d;
const TLV_INSTANCE: u8 = 0x7e;
const TLV_NAME: u8 = 0x7f;
/// Bytes of a Connect TLV without TCP options.
const CONNECT: usize = 20;
/// Most names beside an address: hosts with many names share an address, and a program uses few of them.
pub const MAX_NAMES: usize = 4;
/// Most bytes of names in a message, with their lengths.
const MAX_NAMES_BYTES: usize = MAX_MESSAGE - HEADER - CONNECT;

/// One run of a server, from its start to its end: drawn at random, and sent to every client. It is as trustworthy as its stream: on a
/// sealed stream only the server can have sent it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instance(pub [u8; 16]);

/// The destination of a stream.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Destination {
    /// An address, by the Connect TLV (section 4.2.5).
    Address(SocketAddr),
    /// An address, and names (1 to [`MAX_NAMES`]) that had this address when a program looked them up. The server believes a name only if
    /// its own nameserver says so.
    Named(SocketAddr, Vec<String>),
    /// A host name (at most 255 bytes, no NUL) and a port.
    Name(String, u16),
    /// A socket in the file system of the server, by its path ([`is_path`]).
    Socket(String),
    /// A service that the server offers under this name ([`is_service`]).
    Service(String),
    /// Connections to this address and port of the server ([`crate::remote`]). The port is not 0.
    Remote(SocketAddr),
    /// The resolver of the server, for DNS over TCP.
    Resolver,
    /// No connection: flows of datagrams beside the stream.
    Datagrams,
    /// No connection: asks whether the server is there and accepts the client.
    Nowhere,
}

/// The port of a destination.
pub(crate) fn port_of(to: &Destination) -> Option<u16> {
    match to {
        Destination::Address(at) | Destination::Named(at, _) => Some(at.port()),
        Destination::Name(_, port) => Some(*port),
        Destination::Socket(_)
        | Destination::Service(_)
        | Destination::Remote(_)
        | Destination::Resolver
        | Destination::Nowhere
        | Destination::Datagrams => None,
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) | Self::Named(address, _) => write!(f, "{address}"),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
            Self::Socket(path) => write!(f, "unix:{path}"),
            Self::Service(name) => write!(f, "service:{name}"),
            Self::Remote(at) => write!(f, "remote:{at}"),
            Self::Resolver => write!(f, "resolver"),
            Self::Datagrams => write!(f, "datagrams"),
            Self::Nowhere => write!(f, "the server itself"),
        }
    }
}

/// Error codes (section 4.2.8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ErrorCode {
    /// 0.
    UnsupportedVersion,
    /// 1.
    MalformedMessage,
    /// 2.
    UnsupportedMessage,
    /// 3.
    MissingCookie,
    /// 32.
    NotAuthorized,
    /// 33.
    UnsupportedTcpOption,
    /// 64.
    ResourceExceeded,
    /// 65.
    NetworkFailure,
    /// 96.
    ConnectionReset,
    /// 97.
    DestinationUnreachable,
    /// A code that this version does not know.
    Other(u8),
}

impl ErrorCode {
    /// The code on the wire.
    pub fn code(self) -> u8 {
        match self {
            Self::UnsupportedVersion => 0,
            Self::MalformedMessage => 1,
            Self::UnsupportedMessage => 2,
            Self::MissingCookie => 3,
            Self::NotAuthorized => 32,
            Self::UnsupportedTcpOption => 33,
            Self::ResourceExceeded => 64,
            Self::NetworkFailure => 65,
            Self::ConnectionReset => 96,
            Self::DestinationUnreachable => 97,
            Self::Other(code) => code,
        }
    }
}

impl From<u8> for ErrorCode {
    fn from(code: u8) -> Self {
        match code {
            0 => Self::UnsupportedVersion,
            1 => Self::MalformedMessage,
            2 => Self::UnsupportedMessage,
            3 => Self::MissingCookie,
            32 => Self::NotAuthorized,
            33 => Self::UnsupportedTcpOption,
            64 => Self::ResourceExceeded,
            65 => Self::NetworkFailure,
            96 => Self::ConnectionReset,
            97 => Self::DestinationUnreachable,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::UnsupportedVersion => "the server speaks another version",
            Self::MalformedMessage => "the server could not read the request",
            Self::UnsupportedMessage => "the server does not know this kind of request",
            Self::MissingCookie => "the server asks for a cookie",
            Self::NotAuthorized => "the server's rules do not allow this destination",
            Self::UnsupportedTcpOption => "the server does not support a TCP option",
            Self::ResourceExceeded => "the server is out of resources",
            Self::NetworkFailure => "the server's network failed",
            Self::ConnectionReset => "the destination refused the connection",
            Self::DestinationUnreachable => "the destination cannot be reached",
            Self::Other(code) => return write!(f, "the server reports error {code}"),
        };
        f.write_str(text)
    }
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Client to server: connect there.
    Connect(Destination),
    /// Server to client: connected by this instance, data follows.
    Connected(Option<Instance>),
    /// Server to client: failed, and the reason.
    Failed(ErrorCode),
}

/// The result of reading the start of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// A message, and how many bytes it took.
    Message(Message, usize),
    /// No valid message; the only answer is this error.
    Invalid(ErrorCode),
}

impl Message {
    /// Appends the message to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[VERSION, 0]);
        out.extend_from_slice(&MAGIC.to_be_bytes());
        match self {
            Self::Connect(destination) => emit_destination(destination, out),
            Self::Connected(None) => {}
            Self::Connected(Some(Instance(bytes))) => {
                out.extend_from_slice(&[TLV_INSTANCE, 5, 0, 0]);
                out.extend_from_slice(bytes);
            }
            Self::Failed(code) => out.extend_from_slice(&[TLV_ERROR, 1, code.code(), 0]),
        }
        let words = (out.len() - start) / 4;
        out[start + 1] = u8::try_from(words).expect("a name of 255 bytes makes 66 words");
    }

    /// Reads a message at the start of a stream.
    pub fn parse(bytes: &[u8]) -> Parsed {
        let Some((header, _)) = bytes.split_at_checked(HEADER) else { return Parsed::Incomplete };
        if u16::from_be_bytes([header[2], header[3]]) != MAGIC {
            return Parsed::Invalid(ErrorCode::MalformedMessage);
        }
        if header[0] != VERSION {
            return Parsed::Invalid(ErrorCode::UnsupportedVersion);
        }
        let len = usize::from(header[1]) * 4;
        if len < HEADER {
            return Parsed::Invalid(ErrorCode::MalformedMessage);
        }
        let Some(tlvs) = bytes.get(HEADER..len) else { return Parsed::Incomplete };
        match parse_tlvs(tlvs) {
            Ok(message) => Parsed::Message(message, len),
            Err(code) => Parsed::Invalid(code),
        }
    }
}

pub(crate) fn emit_destination(destination: &Destination, out: &mut Vec<u8>) {
    match destination {
        Destination::Address(address) => emit_connect(*address, out),
        Destination::Socket(path) => emit_socket(path, out),
        Destination::Service(name) => emit_service(name, out),
        Destination::Remote(at) => emit_remote(*at, out),
        Destination::Resolver => emit_connect(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 53)), out),
        Destination::Datagrams => emit_connect(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 17)), out),
        Destination::Nowhere => emit_connect(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), out),
        Destination::Named(address, names) => {
            let start = out.len();
            emit_connect(*address, out);
            out[start] = TLV_NAMED;
            for name in names.iter().take(MAX_NAMES).filter(|name| (1..=255).contains(&name.len())) {
                if out.len() + 1 + name.len() <= start + CONNECT + MAX_NAMES_BYTES {
                    out.push(name.len() as u8);
                    out.extend_from_slice(name.as_bytes());
                }
            }
            let words = (out.len() - start).div_ceil(4);
            out.resize(start + words * 4, 0);
            out[start + 1] = words as u8;
        }
        Destination::Name(name, port) => {
            let name = &name.as_bytes()[..name.len().min(255)];
            let words = (5 + name.len()).div_ceil(4);
            let start = out.len();
            out.extend_from_slice(&[TLV_NAME, words as u8]);
            out.extend_from_slice(&port.to_be_bytes());
            out.push(name.len() as u8);
            out.extend_from_slice(name);
            out.resize(start + words * 4, 0);
        }
    }
}

fn emit_connect(address: SocketAddr, out: &mut Vec<u8>) {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    out.extend_from_slice(&[TLV_CONNECT, 5]);
    out.extend_from_slice(&address.port().to_be_bytes());
    out.extend_from_slice(&ip.octets());
}

pub(crate) fn parse_tlvs(mut bytes: &[u8]) -> Result<Message, ErrorCode> {
    let mut message = Message::Connected(None);
    while let [kind, words, ..] = *bytes {
        let len = usize::from(words) * 4;
        let (tlv, rest) = bytes.split_at_checked(len).ok_or(ErrorCode::MalformedMessage)?;
        if len == 0 || message != Message::Connected(None) {
            return Err(ErrorCode::MalformedMessage);
        }
        message = match kind {
            TLV_CONNECT => Message::Connect(parse_connect(tlv)?),
            TLV_NAMED => Message::Connect(parse_named(tlv)?),
            TLV_NAME => Message::Connect(parse_name(tlv)?),
            TLV_PLACE => Message::Connect(place::parse(tlv)?),
            TLV_ERROR => Message::Failed(ErrorCode::from(tlv[2])),
            TLV_INSTANCE => Message::Connected(Some(parse_instance(tlv)?)),
            _ => return Err(ErrorCode::UnsupportedMessage),
        };
        bytes = rest;
    }
    Ok(message)
}

/// Connect TLV: port and address; TCP options behind them are not supported.
fn parse_connect(tlv: &[u8]) -> Result<Destination, ErrorCode> {
    if tlv.len() > CONNECT {
        return Err(ErrorCode::UnsupportedTcpOption);
    }
    let octets: [u8; 16] =
        tlv.get(4..20).and_then(|ip| ip.try_into().ok()).ok_or(ErrorCode::MalformedMessage)?;
    let (ip, port) = (Ipv6Addr::from(octets), u16::from_be_bytes([tlv[2], tlv[3]]));
    match (ip.is_unspecified(), port) {
        (true, 53) => Ok(Destination::Resolver),
        (true, 17) => Ok(Destination::Datagrams),
        (true, 0) => Ok(Destination::Nowhere),
        (true | false, _) => Ok(Destination::Address(SocketAddr::new(ip.to_canonical(), port))),
    }
}

fn parse_instance(tlv: &[u8]) -> Result<Instance, ErrorCode> {
    let bytes = tlv.get(4..).and_then(|bytes| bytes.try_into().ok());
    bytes.map(Instance).ok_or(ErrorCode::MalformedMessage)
}

fn parse_name(tlv: &[u8]) -> Result<Destination, ErrorCode> {
    let len = usize::from(*tlv.get(4).ok_or(ErrorCode::MalformedMessage)?);
    let name = tlv.get(5..5 + len).ok_or(ErrorCode::MalformedMessage)?;
    Ok(Destination::Name(valid_name(name)?, u16::from_be_bytes([tlv[2], tlv[3]])))
}

fn parse_named(tlv: &[u8]) -> Result<Destination, ErrorCode> {
    let (connect, mut rest) = tlv.split_at_checked(CONNECT).ok_or(ErrorCode::MalformedMessage)?;
    let Destination::Address(address) = parse_connect(connect)? else {
        return Err(ErrorCode::MalformedMessage);
    };
    let mut names = Vec::new();
    while let Some((&len, behind)) = rest.split_first().filter(|(len, _)| **len > 0) {
        let name = behind.split_at_checked(len.into());
        let (name, others) = name.filter(|_| names.len() < MAX_NAMES).ok_or(ErrorCode::MalformedMessage)?;
        names.push(valid_name(name)?);
        rest = others;
    }
    if names.is_empty() {
        return Err(ErrorCode::MalformedMessage);
    }
    Ok(Destination::Named(address, names))
}

fn valid_name(bytes: &[u8]) -> Result<String, ErrorCode> {
    let name = str::from_utf8(bytes).map_err(|_| ErrorCode::MalformedMessage)?;
    if name.is_empty() || name.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(ErrorCode::MalformedMessage);
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    }

    fn samples() -> Vec<Message> {
        let mut samples = vec![
            Message::Connect(Destination::Address("192.0.2.1:443".parse().expect("an address"))),
            Message::Connect(Destination::Address("[2001:db8::1]:22".parse().expect("an address"))),
            Message::Connect(Destination::Resolver),
            Message::Connect(Destination::Datagrams),
            Message::Connect(Destination::Nowhere),
            Message::Connected(None),
            Message::Connected(Some(Instance([7; 16]))),
        ];
        samples.extend([1, 3, 4, 255].map(|n| Message::Connect(Destination::Name("x".repeat(n), 80))));
        let named = |names: &[usize]| {
            let names = names.iter().map(|n| "y".repeat(*n)).collect();
            Message::Connect(Destination::Named("192.0.2.1:443".parse().expect("an address"), names))
        };
        samples.extend([named(&[1]), named(&[3, 2]), named(&[250, 250, 250, 240]), named(&[255, 1, 2])]);
        samples.extend(
            [1, 3, 4, 106].map(|n| Message::Connect(Destination::Socket(format!("/{}", "z".repeat(n))))),
        );
        samples.extend([1, 3, 4, 63].map(|n| Message::Connect(Destination::Service("s".repeat(n)))));
        samples.extend(
            ["192.0.2.1:1", "[2001:db8::1]:65535"]
                .map(|at| Message::Connect(Destination::Remote(at.parse().expect(at)))),
        );
        samples.extend([0, 1, 32, 64, 65, 96, 97, 200].map(|code| Message::Failed(ErrorCode::from(code))));
        samples
    }

    #[test]
    fn a_connect_message_has_the_bytes_of_the_rfc() {
        let address = "192.0.2.1:443".parse().expect("an address");
        let bytes = bytes_of(&Message::Connect(Destination::Address(address)));
        let mut expected = vec![0x01, 0x06, 0x22, 0x63, 0x0a, 0x05, 0x01, 0xbb];
        expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn names_that_have_no_room_are_left_out() {
        let address = "192.0.2.1:443".parse().expect("an address");
        let names = |lens: &[usize]| lens.iter().map(|n| "y".repeat(*n)).collect::<Vec<_>>();
        for (lens, left) in [(&[255, 255, 255, 255][..], &[255, 255, 255][..]), (&[1, 0, 256, 2, 3], &[1, 2])]
        {
            let bytes = bytes_of(&Message::Connect(Destination::Named(address, names(lens))));
            let expected = Message::Connect(Destination::Named(address, names(left)));
            assert_eq!(Message::parse(&bytes), Parsed::Message(expected, bytes.len()), "{lens:?}");
        }
    }

    #[test]
    fn every_message_survives_the_wire_with_the_stream_behind_it() {
        for message in samples() {
            let mut bytes = bytes_of(&message);
            let len = bytes.len();
            bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
            assert_eq!(Message::parse(&bytes), Parsed::Message(message, len));
        }
    }

    #[test]
    fn every_beginning_of_a_message_asks_for_more() {
        for message in samples() {
            let bytes = bytes_of(&message);
            for len in 0..bytes.len() {
                assert_eq!(Message::parse(&bytes[..len]), Parsed::Incomplete, "{message:?} cut at {len}");
            }
        }
    }

    #[test]
    fn other_protocols_and_contradictions_are_refused() {
        let refused = |bytes: &[u8], code| assert_eq!(Message::parse(bytes), Parsed::Invalid(code));
        refused(b"GET / HTTP/1.1\r\n", ErrorCode::MalformedMessage);
        refused(&[2, 1, 0x22, 0x63], ErrorCode::UnsupportedVersion);
        refused(&[1, 0, 0x22, 0x63], ErrorCode::MalformedMessage);
        refused(&[1, 2, 0x22, 0x63, 0x42, 1, 0, 0], ErrorCode::UnsupportedMessage);
        refused(&[1, 2, 0x22, 0x63, 0x0a, 0, 0, 0], ErrorCode::MalformedMessage);
        refused(&[1, 2, 0x22, 0x63, 0x0a, 5, 0, 0], ErrorCode::MalformedMessage);
        refused(&[1, 2, 0x22, 0x63, 0x7e, 1, 0, 0], ErrorCode::MalformedMessage);
        refused(&[1, 2, 0x22, 0x63, 0x7f, 1, 0, 80], ErrorCode::MalformedMessage);
        refused(&[1, 3, 0x22, 0x63, 0x7f, 2, 0, 80, 2, b'a', b'\n', 0], ErrorCode::MalformedMessage);
        let named = |ip: u8, names: &[u8]| {
            let words = (names.len() / 4) as u8;
            let head = [1, 6 + words, 0x22, 0x63, 0x7d, 5 + words, 0, 80];
            [&head[..], &[0; 15], &[ip], names].concat()
        };
        refused(&named(1, &[]), ErrorCode::MalformedMessage);
        refused(&named(1, &[0; 4]), ErrorCode::MalformedMessage);
        refused(&named(1, &[4, b'a', b'b', b'c']), ErrorCode::MalformedMessage);
        refused(&named(1, &[1, b'a', 1, b' ']), ErrorCode::MalformedMessage);
        refused(&named(1, &[1, b'a', 1, b'b', 1, b'c', 1, b'd', 1, b'e', 0, 0]), ErrorCode::MalformedMessage);
        refused(&[1, 3, 0x22, 0x63, 0x1e, 1, 97, 0, 0x1e, 1, 97, 0], ErrorCode::MalformedMessage);
    }

    #[test]
    fn no_bytes_at_all_make_it_panic() {
        use plait_base::Random;
        let mut random = plait_base::SeededRandom::from_number(8803);
        for _ in 0..20_000 {
            let mut bytes = vec![0; usize::try_from(random.below(64)).expect("small")];
            random.fill(&mut bytes);
            if bytes.len() >= 4 && random.chance(0.9) {
                let words = (bytes.len() / 4) as u8;
                bytes[..4].copy_from_slice(&[1, words, 0x22, 0x63]);
            }
            let _ = Message::parse(&bytes);
        }
    }
}
