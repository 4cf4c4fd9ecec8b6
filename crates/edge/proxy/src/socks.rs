//! SOCKS5, server side (RFC 1928, RFC 1929): CONNECT and UDP ASSOCIATE.
//!
//! A sans-I/O parser of the client's messages, with the bytes to answer. BIND is answered with "command not supported"; a client without an
//! acceptable method gets the answer for that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use subtle::ConstantTimeEq;

use crate::convert::{Destination, ErrorCode, port_of};

const VERSION: u8 = 5;
const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;
const PASSWORD_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0x00;
const USERNAME_PASSWORD: u8 = 0x02;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;

/// User name and password that a client must show.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
}

/// How far a client has come.
enum Stage {
    Greeting,
    Password,
    Request,
}

/// The next step for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// More bytes are needed.
    NeedMore,
    /// Send this and go on.
    Answer(Vec<u8>),
    /// It asks for this destination; answer with [`reply`].
    Connect(Destination),
    /// It asks for an association, to send datagrams from this port, or from a port that is not known yet: 0. Answer with `succeeded`.
    Associate(u16),
    /// Send this and close.
    Refuse(Vec<u8>),
}

/// One client's conversation before its bytes flow.
pub struct Conversation {
    stage: Stage,
    required: Option<Credentials>,
}

impl Conversation {
    /// Returns the state for a new client, which must show `required` if that is given.
    pub fn new(required: Option<Credentials>) -> Self {
        Self { stage: Stage::Greeting, required }
    }

    /// Looks at what the client has sent so far and says what to do, and how many bytes are dealt with.
    pub fn advance(&mut self, bytes: &[u8]) -> (Step, usize) {
        let step = match self.stage {
            Stage::Greeting => self.greeting(bytes),
            Stage::Password => self.password(bytes),
            Stage::Request => request(bytes),
        };
        step.unwrap_or((Step::NeedMore, 0))
    }

    fn greeting(&mut self, bytes: &[u8]) -> Option<(Step, usize)> {
        if *bytes.first()? != VERSION {
            return Some((Step::Refuse(vec![VERSION, NO_ACCEPTABLE_METHOD]), bytes.len()));
        }
        let len = 2 + usize::from(*bytes.get(1)?);
        let methods = bytes.get(2..len)?;
        let (wanted, next) = match self.required {
            Some(_) => (USERNAME_PASSWORD, Stage::Password),
            None => (NO_AUTHENTICATION, Stage::Request),
        };
        if !methods.contains(&wanted) {
            return Some((Step::Refuse(vec![VERSION, NO_ACCEPTABLE_METHOD]), len));
        }
        self.stage = next;
        Some((Step::Answer(vec![VERSION, wanted]), len))
    }

    fn password(&mut self, bytes: &[u8]) -> Option<(Step, usize)> {
        if *bytes.first()? != PASSWORD_VERSION {
            return Some((Step::Refuse(vec![PASSWORD_VERSION, 1]), bytes.len()));
        }
        let user_end = 2 + usize::from(*bytes.get(1)?);
        let password_end = user_end + 1 + usize::from(*bytes.get(user_end)?);
        let (user, password) = (bytes.get(2..user_end)?, bytes.get(user_end + 1..password_end)?);
        let right = self.required.as_ref().is_some_and(|required| {
            let user = required.user.as_bytes().ct_eq(user);
            bool::from(user & required.password.as_bytes().ct_eq(password))
        });
        if !right {
            return Some((Step::Refuse(vec![PASSWORD_VERSION, 1]), password_end));
        }
        self.stage = Stage::Request;
        Some((Step::Answer(vec![PASSWORD_VERSION, 0]), password_end))
    }
}

/// A destination that a client has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// This one, and the number of its bytes.
    For(Destination, usize),
    /// None.
    Wrong(Reply),
}

/// Reads a destination: the kind of address, the address and the port. `None`: more bytes are needed.
pub(crate) fn destination(bytes: &[u8]) -> Option<Asked> {
    let (destination, len) = match *bytes.first()? {
        1 => {
            let octets: [u8; 4] = bytes.get(1..5)?.try_into().ok()?;
            (Ok(IpAddr::V4(Ipv4Addr::from(octets))), 5)
        }
        4 => {
            let octets: [u8; 16] = bytes.get(1..17)?.try_into().ok()?;
            (Ok(IpAddr::V6(Ipv6Addr::from(octets))), 17)
        }
        3 => {
            let end = 2 + usize::from(*bytes.get(1)?);
            (Err(bytes.get(2..end)?), end)
        }
        _ => return Some(Asked::Wrong(Reply::AddressNotSupported)),
    };
    let port = u16::from_be_bytes(bytes.get(len..len + 2)?.try_into().ok()?);
    let destination = match destination {
        Ok(ip) => Destination::Address(SocketAddr::new(ip.to_canonical(), port)),
        Err(name) => match str::from_utf8(name) {
            // A name that is an address after all (curl --socks5-hostname with a literal).
            Ok(name) if name.parse::<IpAddr>().is_ok() => {
                Destination::Address(SocketAddr::new(name.parse().ok()?, port))
            }
            Ok(name) if !name.is_empty() && !name.contains(char::is_control) => {
                Destination::Name(name.to_owned(), port)
            }
            Ok(_) | Err(_) => return Some(Asked::Wrong(Reply::GeneralFailure)),
        },
    };
    Some(Asked::For(destination, len + 2))
}

/// An address as SOCKS has it.
pub(crate) fn address(of: SocketAddr) -> Vec<u8> {
    let ip = match of.ip().to_canonical() {
        IpAddr::V4(ip) => [&[1][..], &ip.octets()].concat(),
        IpAddr::V6(ip) => [&[4][..], &ip.octets()].concat(),
    };
    [&ip[..], &of.port().to_be_bytes()].concat()
}

fn request(bytes: &[u8]) -> Option<(Step, usize)> {
    let refuse = |code| Some((Step::Refuse(reply(code)), bytes.len()));
    let [version, command, _] = *bytes.first_chunk::<3>()?;
    if version != VERSION {
        return refuse(Reply::GeneralFailure);
    }
    let (to, len) = match (destination(&bytes[3..])?, command) {
        (Asked::Wrong(code @ Reply::AddressNotSupported), _) => return refuse(code),
        (_, command) if command != CONNECT && command != UDP_ASSOCIATE => {
            return refuse(Reply::CommandNotSupported);
        }
        (Asked::Wrong(code), _) => return refuse(code),
        (Asked::For(to, len), _) => (to, 3 + len),
    };
    let port = port_of(&to).unwrap_or_default();
    Some((if command == CONNECT { Step::Connect(to) } else { Step::Associate(port) }, len))
}

/// Reply codes (RFC 1928, section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TtlExpired = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

impl From<ErrorCode> for Reply {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::NotAuthorized => Self::NotAllowed,
            ErrorCode::NetworkFailure => Self::NetworkUnreachable,
            ErrorCode::ConnectionReset => Self::ConnectionRefused,
            ErrorCode::DestinationUnreachable => Self::HostUnreachable,
            ErrorCode::UnsupportedVersion
            | ErrorCode::MalformedMessage
            | ErrorCode::UnsupportedMessage
            | ErrorCode::MissingCookie
            | ErrorCode::UnsupportedTcpOption
            | ErrorCode::ResourceExceeded
            | ErrorCode::Other(_) => Self::GeneralFailure,
        }
    }
}

/// The bytes of the reply for an association at this address.
pub(crate) fn succeeded(at: SocketAddr) -> Vec<u8> {
    [&[VERSION, Reply::Succeeded as u8, 0][..], &address(at)].concat()
}

/// The bytes of a reply. The bound address is not ours to tell: unspecified.
pub fn reply(code: Reply) -> Vec<u8> {
    vec![VERSION, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Option<Credentials> {
        Some(Credentials { user: "ada".into(), password: "lace".into() })
    }

    /// Feeds `bytes` one by one and returns every step that is not "more".
    fn drip(conversation: &mut Conversation, bytes: &[u8]) -> Vec<Step> {
        let (mut waiting, mut steps) = (Vec::new(), Vec::new());
        for byte in bytes {
            waiting.push(*byte);
            let (step, used) = conversation.advance(&waiting);
            waiting.drain(..used);
            if step != Step::NeedMore {
                steps.push(step);
            }
        }
        steps
    }

    #[test]
    fn curl_with_a_host_name_is_connected() {
        let said = [&[5, 1, 0][..], &[5, 1, 0, 3, 11], b"example.org", &[0, 80]].concat();
        assert_eq!(
            drip(&mut Conversation::new(None), &said),
            [Step::Answer(vec![5, 0]), Step::Connect(Destination::Name("example.org".into(), 80))]
        );
    }

    #[test]
    fn both_address_families_are_understood() {
        let v4 = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 7, 0x1f, 0x90];
        let steps = drip(&mut Conversation::new(None), &v4);
        assert_eq!(
            steps[1],
            Step::Connect(Destination::Address("192.0.2.7:8080".parse().expect("an address")))
        );
        let mut v6 = vec![5, 1, 0, 5, 1, 0, 4];
        v6.extend("2001:db8::7".parse::<Ipv6Addr>().expect("an address").octets());
        v6.extend([0, 22]);
        let steps = drip(&mut Conversation::new(None), &v6);
        assert_eq!(
            steps[1],
            Step::Connect(Destination::Address("[2001:db8::7]:22".parse().expect("an address")))
        );
    }

    #[test]
    fn the_right_password_opens_and_the_wrong_one_does_not() {
        let said =
            |password: &[u8]| [&[5, 2, 0, 2, 1, 3][..], b"ada", &[password.len() as u8], password].concat();
        let right = drip(&mut Conversation::new(secret()), &said(b"lace"));
        assert_eq!(right, [Step::Answer(vec![5, 2]), Step::Answer(vec![1, 0])]);
        for wrong in [&b"lacy"[..], b"", b"lace "] {
            let steps = drip(&mut Conversation::new(secret()), &said(wrong));
            assert_eq!(steps.last(), Some(&Step::Refuse(vec![1, 1])));
        }
    }

    #[test]
    fn a_client_without_the_required_method_is_refused() {
        assert_eq!(
            drip(&mut Conversation::new(secret()), &[5, 1, 0]),
            [Step::Refuse(vec![5, NO_ACCEPTABLE_METHOD])]
        );
    }

    #[test]
    fn an_association_names_the_port_of_its_client_if_that_is_known() {
        for (said, port) in [
            (&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0][..], 0),
            (&[5, 3, 0, 1, 127, 0, 0, 1, 0x1f, 0x90], 8080),
            (&[5, 3, 0, 3, 1, b'x', 0x1f, 0x90], 8080),
        ] {
            let steps = drip(&mut Conversation::new(None), &[&[5, 1, 0][..], said].concat());
            assert_eq!(steps[1], Step::Associate(port));
        }
        let at = |text: &str| succeeded(text.parse().expect(text));
        assert_eq!(at("127.0.0.1:8080"), [5, 0, 0, 1, 127, 0, 0, 1, 0x1f, 0x90]);
        assert_eq!(at("[::ffff:127.0.0.1]:8080"), at("127.0.0.1:8080"));
        assert_eq!(at("[::1]:8080")[..4], [5, 0, 0, 4]);
    }

    #[test]
    fn bind_and_unknown_addresses_are_not_supported() {
        let said = |command, kind| {
            let said = [5, 1, 0, 5, command, 0, kind, 192, 0, 2, 7, 0, 80];
            drip(&mut Conversation::new(None), &said)[1].clone()
        };
        assert_eq!(said(2, 1), Step::Refuse(reply(Reply::CommandNotSupported)));
        assert_eq!(said(9, 1), Step::Refuse(reply(Reply::CommandNotSupported)));
        assert_eq!(said(1, 9), Step::Refuse(reply(Reply::AddressNotSupported)));
    }

    #[test]
    fn an_http_request_is_refused_at_its_first_byte() {
        assert_eq!(Conversation::new(None).advance(b"G").0, Step::Refuse(vec![5, NO_ACCEPTABLE_METHOD]));
    }
}
