//! Destinations that are reached directly: without the server, and without protection.
//!
//! One value is a name, `*.NAME` for all names below another one, a network, or `@FILE` with such values, one a line. A name is looked up
//! here. An address with names, as a program in `plait run` has looked them up, goes directly if its network does, or if all of these names
//! do: hosts with many names share addresses, and no other name may lead past the server by accident.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use plait_keys::read_state;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{self, Dialer, Early, ForwardError, Opened};
use crate::convert::Destination;
use crate::destination::{connect, resolve_service};
use crate::dns::is_host;
use crate::prefix::{Prefix, merged};
use crate::relay::{Abort, relay};
use crate::request::RequestError;

/// The largest list that is read.
const MOST_BYTES: u64 = 1 << 20;

/// What one option says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectRule {
    /// The addresses of a network.
    Network(Prefix),
    /// A name, in small letters.
    Name(String),
    /// All names below this one.
    Below(String),
    /// The rules in a file.
    List(PathBuf, Vec<Self>),
}

/// All destinations that are reached directly.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Direct {
    networks: Vec<Prefix>,
    names: BTreeSet<String>,
    parents: BTreeSet<String>,
    /// The options, for people.
    said: Vec<String>,
}

impl DirectRule {
    /// The networks, if there is no name.
    ///
    /// # Errors
    /// The first name.
    pub fn networks(&self) -> Result<Vec<Prefix>, &Self> {
        match self {
            Self::Network(network) => Ok(vec![*network]),
            Self::Name(_) | Self::Below(_) => Err(self),
            Self::List(_, rules) => {
                let all: Result<Vec<_>, _> = rules.iter().map(Self::networks).collect();
                all.map(|all| all.concat())
            }
        }
    }

    fn one(text: &str) -> Result<Self, &'static str> {
        if text.contains('/') || text.parse::<IpAddr>().is_ok() {
            return text.parse().map(Self::Network);
        }
        let (is_parent, name) = text.strip_prefix("*.").map_or((false, text), |parent| (true, parent));
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        // A number at the end belongs to an address that is not complete.
        let ends_in_number =
            name.rsplit('.').next().is_none_or(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
        match (is_host(&name) && !ends_in_number, is_parent) {
            (true, true) => Ok(Self::Below(name)),
            (true, false) => Ok(Self::Name(name)),
            (false, _) => Err("neither a name, *.NAME, a network nor @FILE; a port is no part of it"),
        }
    }
}

impl FromStr for DirectRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix('@') {
            Some(file) => list(Path::new(file)).map(|rules| Self::List(file.into(), rules)),
            None => Self::one(text).map_err(str::to_owned),
        }
    }
}

/// Reads a list: one rule a line; `#` begins a remark.
fn list(file: &Path) -> Result<Vec<DirectRule>, String> {
    let text = read_state(file, MOST_BYTES).map_err(|error| chain(&error))?;
    let text = text.ok_or_else(|| format!("{}: there is no such file", file.display()))?;
    let lines = (1..)
        .zip(text.lines())
        .map(|(number, line)| (number, line.split('#').next().unwrap_or_default().trim()));
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| {
            DirectRule::one(line).map_err(|why| format!("{}:{number}: `{line}`: {why}", file.display()))
        })
        .collect()
}

fn chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map_or_else(String::new, |source| format!(": {source}"));
    format!("{error}{source}")
}

impl fmt::Display for DirectRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Name(name) => f.write_str(name),
            Self::Below(parent) => write!(f, "*.{parent}"),
            Self::List(file, rules) => write!(f, "{} rules of {}", rules.len(), file.display()),
        }
    }
}

impl Direct {
    /// All of these.
    pub fn new(rules: &[DirectRule]) -> Self {
        let said = rules.iter().map(DirectRule::to_string).collect();
        let mut all = Self { said, ..Self::default() };
        rules.iter().for_each(|rule| all.add(rule));
        all.networks = merged(&all.networks);
        all
    }

    fn add(&mut self, rule: &DirectRule) {
        match rule {
            DirectRule::Network(network) => self.networks.push(*network),
            DirectRule::Name(name) => drop(self.names.insert(name.clone())),
            DirectRule::Below(parent) => drop(self.parents.insert(parent.clone())),
            DirectRule::List(_, rules) => rules.iter().for_each(|rule| self.add(rule)),
        }
    }

    /// The warning for people, if anything is reached directly.
    pub fn warning(&self) -> Option<String> {
        let said = self.said.join(", ");
        (!said.is_empty())
            .then(|| format!("warning: these destinations are reached directly, without the server and without protection: {said}"))
    }

    /// Whether a destination is reached directly.
    pub fn takes(&self, destination: &Destination) -> bool {
        match destination {
            Destination::Address(at) => self.takes_address(at.ip()),
            Destination::Named(at, names) => {
                self.takes_address(at.ip())
                    || !names.is_empty() && names.iter().all(|name| self.takes_name(name))
            }
            Destination::Name(name, _) => match name.parse() {
                Ok(ip) => self.takes_address(ip),
                Err(_) => self.takes_name(name),
            },
            Destination::Socket(_)
            | Destination::Service(_)
            | Destination::Remote(_)
            | Destination::Resolver
            | Destination::Datagrams
            | Destination::Nowhere => false,
        }
    }

    /// Whether a name is reached directly.
    pub fn takes_name(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let mut parents = name.match_indices('.').map(|(at, _)| &name[at + 1..]);
        self.names.contains(&name) || parents.any(|parent| self.parents.contains(parent))
    }

    /// Whether any name is reached directly.
    pub fn has_names(&self) -> bool {
        !self.names.is_empty() || !self.parents.is_empty()
    }

    fn takes_address(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let Some(host) = Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 }) else { return false };
        // They are in order and apart, so only the last one that begins at the address or before it can have it.
        let behind = self.networks.partition_point(|network| *network <= host);
        behind.checked_sub(1).is_some_and(|at| self.networks[at].contains(ip))
    }
}

/// A connection to a destination.
#[derive(Debug)]
pub enum Way<S> {
    /// Through the server.
    Server(Opened<S>),
    /// Directly.
    Directly(TcpStream),
}

/// Connects to a destination directly. A name is looked up here.
///
/// # Errors
/// It cannot be reached.
pub async fn connect_directly(to: &Destination) -> Result<TcpStream, RequestError> {
    let connected = match to {
        Destination::Address(at) | Destination::Named(at, _) => connect(vec![*at]).await,
        to => match resolve_service(&to.to_string(), None).await {
            Ok(addresses) => connect(addresses).await,
            Err(unreached) => Err(unreached),
        },
    };
    connected.map_err(|unreached| RequestError::Refused(unreached.code()))
}

/// As [`client::open`], or directly if the destination is one of `direct`.
///
/// # Errors
/// As [`client::open`] and [`connect_directly`].
pub async fn open<D: Dialer>(
    (dialer, direct): (&D, &Direct),
    to: Destination,
    early: Early<'_>,
) -> Result<Way<D::Stream>, RequestError> {
    if !direct.takes(&to) {
        return client::open(dialer, to, early).await.map(Way::Server);
    }
    let mut stream = connect_directly(&to).await?;
    stream.write_all(early.bytes()).await?;
    Ok(Way::Directly(stream))
}

/// As [`client::join`], whatever the way.
///
/// # Errors
/// A stream broke; the program's connection was reset.
pub async fn join<D, P>(dialer: &D, program: &mut P, way: Way<D::Stream>) -> Result<(u64, u64), ForwardError>
where
    D: Dialer,
    P: AsyncRead + AsyncWrite + Abort + Unpin,
{
    match way {
        Way::Server(opened) => client::join(dialer, program, opened).await,
        Way::Directly(mut stream) => {
            let joined = relay(program, &mut stream, &dialer.silence_limit()).await;
            joined.map_err(ForwardError::Program)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(texts: &[&str]) -> Direct {
        Direct::new(&texts.iter().map(|text| text.parse().expect(text)).collect::<Vec<_>>())
    }

    fn named(name: &str) -> Destination {
        Destination::Name(name.to_owned(), 80)
    }

    #[test]
    fn names_match_whole_labels_and_networks_their_addresses() {
        let all = direct(&["*.Corp.example", "printer", "10.0.0.0/8", "2001:db8::/32", "192.0.2.7"]);
        let address = |text: &str| Destination::Address(text.parse().expect(text));
        for yes in ["a.corp.example", "A.B.Corp.Example.", "printer", "10.1.2.3", "2001:db8::1"] {
            assert!(all.takes(&named(yes)), "{yes}");
        }
        for no in ["corp.example", "acorp.example", "printer.example", "11.0.0.1", "example"] {
            assert!(!all.takes(&named(no)), "{no}");
        }
        assert!(all.takes(&address("192.0.2.7:1")) && all.takes(&address("[::ffff:10.0.0.1]:1")));
        assert!(!all.takes(&address("192.0.2.8:1")) && !all.takes(&Destination::Resolver));
        assert!(!direct(&[]).takes(&named("printer")) && direct(&[]).warning().is_none());
    }

    #[test]
    fn a_long_list_is_searched_in_its_order() {
        let networks: Vec<_> = (0..60_000_u32).map(|n| format!("10.{}.{}.0/25", n / 256, n % 256)).collect();
        let all =
            direct(&networks.iter().map(String::as_str).chain(["10.0.0.0/24", "::/0"]).collect::<Vec<_>>());
        let takes = |text: &str| all.takes(&named(text));
        assert!(takes("10.0.0.200") && takes("10.1.2.127") && takes("10.234.95.0") && takes("fe80::1"));
        assert!(!takes("10.1.2.128") && !takes("10.234.96.0") && !takes("9.255.255.255"));
    }

    #[test]
    fn an_address_goes_directly_only_if_all_its_names_do() {
        let all = direct(&["*.corp.example"]);
        let to = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Destination::Named("192.0.2.1:80".parse().expect("one"), names)
        };
        assert!(all.takes(&to(&["a.corp.example", "b.corp.example"])));
        assert!(!all.takes(&to(&["a.corp.example", "cdn.example"])) && !all.takes(&to(&[])));
    }

    #[test]
    fn a_value_that_is_no_destination_is_refused() {
        for bad in [
            "",
            "*",
            "*.",
            "a..b",
            "web.example:80",
            "http://web.example",
            "10.0.0",
            "10.0.0.0/33",
            "a*b",
            "1.2.3.4.5",
        ] {
            assert!(bad.parse::<DirectRule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_has_a_value_in_each_line_and_names_the_line_of_a_mistake() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("list");
        let parse = || format!("@{}", file.display()).parse::<DirectRule>();
        std::fs::write(&file, "# networks\n10.0.0.0/8   # office\n\n*.corp.example\n").expect("written");
        let all = Direct::new(&[parse().expect("a list")]);
        assert!(all.takes(&named("a.corp.example")) && all.takes(&named("10.0.0.1")));
        assert!(all.warning().expect("some").contains("2 rules of "));
        std::fs::write(&file, "10.0.0.0/8\nx:80\n").expect("written");
        assert!(parse().expect_err("a mistake").contains("list:2: `x:80`"));
        std::fs::write(&file, "@/etc/other\n").expect("written");
        assert!(parse().is_err(), "no list in a list");
        std::fs::remove_file(&file).expect("there");
        assert!(parse().expect_err("gone").contains("no such file"));
    }

    #[test]
    fn networks_alone_can_be_had_and_a_name_is_named() {
        let rule = |text: &str| text.parse::<DirectRule>().expect(text);
        assert_eq!(rule("10.0.0.0/8").networks().map(|all| all.len()), Ok(1));
        assert_eq!(rule("*.corp.example").networks(), Err(&DirectRule::Below("corp.example".to_owned())));
    }
}
