//! The destinations that a server connects its clients to.
//!
//! A rule is `HOST:PORT`. The host is an address, a prefix (`10.0.0.0/8`), a name, a name with leading `*.`,
//! or `*`; the port is a number, a range (`8000-8099`) or `*`. A destination without a matching rule is
//! refused, so that no open proxy exists by accident. A name that is allowed by name may resolve to any
//! address except those that are meaningful on the server only (loopback, link-local, unspecified,
//! multicast); these must be allowed as addresses. A rule by name also allows an address, if a nameserver of the server says that the name
//! has it ([`Destination::Named`]). `unix:PATH` allows a socket in the file system of the server, and
//! `service:NAME` a service by name; no other rule does. `remote=[ADDRESS:]PORT` lets a client listen on ports of the server, at loopback
//! addresses unless the rule has another one.
//!
//! A rule is for TCP. `udp:HOST:PORT` is for UDP. The rule `*:*`, which names everything, is for both ([`for_udp`]).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::convert::{Destination, is_path, is_service};

/// Begins a rule for UDP.
const UDP: &str = "udp:";
const ALL_PORTS: (u16, u16) = (0, u16::MAX);

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    is_udp: bool,
    host: Host,
    ports: (u16, u16),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Host {
    Any,
    Prefix(IpAddr, u8),
    Name(String),
    Below(String),
    Socket(String),
    Service(String),
    /// Listening: at this address, or at loopback addresses.
    Remote(Option<IpAddr>),
}

/// The reason that a rule is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRule {
    rule: String,
    reason: &'static str,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rule '{}': {}; examples: *:443  10.0.0.0/8:*  git.example.org:22  unix:/run/app.sock  udp:*:443",
            self.rule, self.reason
        )
    }
}

impl std::error::Error for BadRule {}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let bad = |reason| BadRule { rule: text.to_owned(), reason };
        if let Some(path) = text.strip_prefix("unix:").filter(|rest| rest.starts_with('/')) {
            let path = Some(path).filter(|path| is_path(path));
            let path = path.ok_or_else(|| bad("not the path of a socket, of at most 107 bytes"))?;
            return Ok(Self { host: Host::Socket(path.to_owned()), ports: (0, 0), is_udp: false });
        }
        if let Some(name) = text.strip_prefix("service:").filter(|name| is_service(name)) {
            return Ok(Self { host: Host::Service(name.to_owned()), ports: (0, 0), is_udp: false });
        }
        // Without a second colon it is a host of that name.
        let udp = text.strip_prefix(UDP).filter(|rest| rest.contains(':'));
        let remote = text.strip_prefix("remote=");
        let text = udp.or(remote).unwrap_or(text);
        let loopback = remote.filter(|rest| !rest.contains(':')).map(|ports| ("", ports));
        let (host, port) =
            loopback.or_else(|| text.rsplit_once(':')).ok_or_else(|| bad("a port is missing"))?;
        let ports = match port.split_once('-') {
            _ if port == "*" => ALL_PORTS,
            Some((low, high)) => number(low).zip(number(high)).ok_or_else(|| bad("not a port range"))?,
            None => number(port).map(|port| (port, port)).ok_or_else(|| bad("not a port"))?,
        };
        if ports.0 > ports.1 {
            return Err(bad("the port range runs backwards"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if remote.is_some() {
            let at = Some(host).filter(|host| !host.is_empty()).map(str::parse).transpose();
            return Ok(Self {
                is_udp: false,
                host: Host::Remote(at.map_err(|_| bad("not an address of this host"))?),
                ports,
            });
        }
        let host = match (host, host.split_once('/')) {
            ("*", _) => Host::Any,
            ("", _) => return Err(bad("a host is missing")),
            (_, Some((ip, bits))) => {
                let ip: IpAddr = ip.parse().map_err(|_| bad("not an address before the '/'"))?;
                let bits: u8 = bits.parse().map_err(|_| bad("not a prefix length"))?;
                if bits > if ip.is_ipv4() { 32 } else { 128 } {
                    return Err(bad("the prefix is longer than the address"));
                }
                Host::Prefix(ip, bits)
            }
            (name, None) => match (name.parse::<IpAddr>(), name.strip_prefix("*.")) {
                (Ok(ip), _) => Host::Prefix(ip, if ip.is_ipv4() { 32 } else { 128 }),
                (Err(_), Some(parent)) => Host::Below(parent.to_ascii_lowercase()),
                (Err(_), None) if name.contains('*') => {
                    return Err(bad("'*' is only allowed alone or as '*.'"));
                }
                (Err(_), None) => Host::Name(name.to_ascii_lowercase()),
            },
        };
        Ok(Self { is_udp: udp.is_some(), host, ports })
    }
}

/// Its text form, which parses to the same rule.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_udp {
            f.write_str(UDP)?;
        }
        match &self.host {
            Host::Any => f.write_str("*")?,
            Host::Prefix(ip @ IpAddr::V4(_), bits) => write!(f, "{ip}/{bits}")?,
            Host::Prefix(ip @ IpAddr::V6(_), bits) => write!(f, "[{ip}/{bits}]")?,
            Host::Name(name) => f.write_str(name)?,
            Host::Below(parent) => write!(f, "*.{parent}")?,
            Host::Socket(path) => return write!(f, "unix:{path}"),
            Host::Service(name) => return write!(f, "service:{name}"),
            Host::Remote(None) => return write!(f, "remote={}", self.shown_ports()),
            Host::Remote(Some(ip @ IpAddr::V4(_))) => write!(f, "remote={ip}")?,
            Host::Remote(Some(ip @ IpAddr::V6(_))) => write!(f, "remote=[{ip}]")?,
        }
        write!(f, ":{}", self.shown_ports())
    }
}

impl Rule {
    fn shown_ports(&self) -> String {
        match self.ports {
            ALL_PORTS => "*".to_owned(),
            (low, high) if low == high => low.to_string(),
            (low, high) => format!("{low}-{high}"),
        }
    }

    /// A rule for UDP allows nothing else.
    fn allows_port(&self, port: u16) -> bool {
        !self.is_udp && (self.ports.0..=self.ports.1).contains(&port)
    }

    /// Whether it names everything: every host, every port, TCP and UDP.
    #[must_use]
    pub fn is_all(&self) -> bool {
        !self.is_udp && self.host == Host::Any && self.ports == ALL_PORTS
    }

    fn allows_address(&self, ip: IpAddr) -> bool {
        match &self.host {
            Host::Any => !is_local(ip),
            Host::Prefix(prefix, bits) => in_prefix(ip, *prefix, *bits),
            Host::Name(_) | Host::Below(_) | Host::Socket(_) | Host::Service(_) | Host::Remote(_) => false,
        }
    }

    /// Whether it lets clients listen on ports of the server.
    pub fn is_remote(&self) -> bool {
        matches!(self.host, Host::Remote(_))
    }

    fn allows_remote(&self, at: SocketAddr) -> bool {
        let is_there = match self.host {
            Host::Remote(None) => at.ip().is_loopback(),
            Host::Remote(Some(ip)) => at.ip() == ip,
            Host::Any
            | Host::Prefix(..)
            | Host::Name(_)
            | Host::Below(_)
            | Host::Socket(_)
            | Host::Service(_) => false,
        };
        is_there && self.allows_port(at.port())
    }

    fn allows_name(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        match &self.host {
            Host::Any => true,
            Host::Name(allowed) => name == *allowed,
            Host::Below(parent) => name.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.')),
            Host::Prefix(..) | Host::Socket(_) | Host::Service(_) | Host::Remote(_) => false,
        }
    }
}

/// Whether `rules` allow `destination`, as far as this is known before a name is resolved.
pub fn allow(rules: &[Rule], destination: &Destination) -> bool {
    match destination {
        Destination::Address(address) => {
            rules.iter().any(|rule| rule.allows_port(address.port()) && rule.allows_address(address.ip()))
        }
        Destination::Named(address, names) => {
            let by_name = |rule: &Rule| {
                rule.allows_port(address.port()) && names.iter().any(|name| rule.allows_name(name))
            };
            allow(rules, &Destination::Address(*address)) || rules.iter().any(by_name)
        }
        // A name may still turn out to be an address that a prefix rule allows.
        Destination::Name(name, port) => rules.iter().any(|rule| {
            rule.allows_port(*port) && (rule.allows_name(name) || matches!(rule.host, Host::Prefix(..)))
        }),
        Destination::Socket(path) => {
            rules.iter().any(|rule| matches!(&rule.host, Host::Socket(allowed) if allowed == path))
        }
        Destination::Service(name) => {
            rules.iter().any(|rule| matches!(&rule.host, Host::Service(allowed) if allowed == name))
        }
        Destination::Remote(at) => rules.iter().any(|rule| rule.allows_remote(*at)),
        Destination::Resolver => !rules.is_empty(),
        Destination::Datagrams => !for_udp(rules).is_empty(),
        Destination::Nowhere => true,
    }
}

/// Those of `rules` that are for UDP, as rules to be asked about its destinations: `udp:HOST:PORT`, and `*:*`. No other rule for TCP opens
/// anything for UDP.
#[must_use]
pub fn for_udp(rules: &[Rule]) -> Vec<Rule> {
    let chosen = rules.iter().filter(|rule| rule.is_udp || rule.is_all());
    chosen.map(|rule| Rule { is_udp: false, ..rule.clone() }).collect()
}

/// Those of `rules` that allow one of `names` at this port.
pub(crate) fn by_name(rules: &[Rule], names: &[String], port: u16) -> Vec<Rule> {
    let is_by_name = |rule: &&Rule| rule.allows_port(port) && names.iter().any(|name| rule.allows_name(name));
    rules.iter().filter(is_by_name).cloned().collect()
}

/// Whether `rules` allow `name`, which was resolved to `ip`.
pub fn allow_resolved(rules: &[Rule], name: &str, ip: IpAddr, port: u16) -> bool {
    rules.iter().filter(|rule| rule.allows_port(port)).any(|rule| {
        let by_name = rule.allows_name(name) && !is_local(ip.to_canonical());
        by_name || rule.allows_address(ip.to_canonical())
    })
}

/// Addresses of the server itself or its link.
fn is_local(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local
}

fn in_prefix(ip: IpAddr, prefix: IpAddr, bits: u8) -> bool {
    let (ip, prefix, width) = match (ip, prefix) {
        (IpAddr::V4(ip), IpAddr::V4(prefix)) => {
            (u128::from(u32::from(ip)), u128::from(u32::from(prefix)), 32)
        }
        (IpAddr::V6(ip), IpAddr::V6(prefix)) => (u128::from(ip), u128::from(prefix), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    (ip ^ prefix).checked_shr(width - u32::from(bits)).unwrap_or(0) == 0
}

fn number(text: &str) -> Option<u16> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    fn to(text: &str) -> Destination {
        match text.parse() {
            Ok(address) => Destination::Address(address),
            Err(_) => {
                let (name, port) = text.rsplit_once(':').expect("a port");
                Destination::Name(name.into(), port.parse().expect("a number"))
            }
        }
    }

    #[test]
    fn a_rule_is_written_as_it_is_read() {
        for text in [
            "*:443",
            "unix:/run/app.sock",
            "service:web",
            "service:80",
            "remote=8000-8099",
            "remote=0.0.0.0:80",
            "remote=[::]:80",
            "remote=*",
            "10.0.0.0/8:*",
            "[2001:db8::/32]:22",
            "*.example.org:8000-8099",
            "git.example.org:22",
        ] {
            if !["unix:", "service:", "remote="].iter().any(|place| text.starts_with(place)) {
                let udp = format!("udp:{text}");
                assert_eq!(udp.parse::<Rule>().expect("a rule").to_string(), udp);
            }
            let rule: Rule = text.parse().expect("a rule");
            assert_eq!(rule.to_string(), text);
        }
        assert_eq!("192.0.2.1:22".parse::<Rule>().expect("a rule").to_string(), "192.0.2.1/32:22");
    }

    #[test]
    fn udp_has_rules_of_its_own_and_shares_only_the_one_for_everything() {
        let may = |texts: &[&str], udp: &str| allow(&for_udp(&rules(texts)), &to(udp));
        assert!(may(&["udp:*:443"], "192.0.2.1:443") && !may(&["udp:*:443"], "192.0.2.1:80"));
        assert!(may(&["udp:dns.example:53"], "dns.example:53"));
        assert!(may(&["*:443", "*:*"], "192.0.2.1:53"), "everything");
        assert!(!may(&["*:*"], "127.0.0.1:53"), "but not the server itself");
        for tcp in ["*:443", "*:0-65534", "0.0.0.0/0:*", "192.0.2.1:443", "*.example:*"] {
            assert!(!may(&[tcp], "192.0.2.1:443"), "{tcp}");
            assert!(!allow(&rules(&[tcp]), &Destination::Datagrams), "{tcp}");
        }
        assert!(!allow(&rules(&["udp:*:443", "udp:10.0.0.0/8:*"]), &to("10.0.0.1:443")), "not TCP");
        assert!(!allow_resolved(&rules(&["udp:*:*"]), "a.example", [192, 0, 2, 1].into(), 443));
        assert!(!allow(&rules(&["udp:*:443"]), &to("a.example:443")));
        assert!(allow(&rules(&["udp:*:443"]), &Destination::Datagrams));
        assert_eq!("udp:53".parse::<Rule>().expect("a host").to_string(), "udp:53");
    }

    #[test]
    fn what_no_rule_allows_is_refused() {
        assert!(!allow(&[], &to("192.0.2.1:443")));
        assert!(!allow(&[], &Destination::Resolver));
        assert!(!allow(&rules(&["10.0.0.0/8:443"]), &to("11.0.0.1:443")));
        assert!(!allow(&rules(&["10.0.0.0/8:443"]), &to("10.0.0.1:80")));
    }

    #[test]
    fn prefixes_of_both_families_and_port_ranges_match_to_their_edges() {
        let rules = rules(&["10.0.0.0/8:8000-8099", "2001:db8::/32:*", "[2001:db9::1]:22", "0.0.0.0/0:25"]);
        for yes in
            ["10.0.0.0:8000", "10.255.255.255:8099", "[2001:db8:ffff::1]:1", "[2001:db9::1]:22", "9.9.9.9:25"]
        {
            assert!(allow(&rules, &to(yes)), "{yes}");
        }
        for no in ["10.0.0.0:7999", "10.0.0.0:8100", "[2001:db9::1]:23", "[::1]:25"] {
            assert!(!allow(&rules, &to(no)), "{no}");
        }
    }

    #[test]
    fn ports_that_lead_to_clients_are_at_loopback_unless_a_rule_names_an_address() {
        let remote = |text: &str| Destination::Remote(text.parse().expect(text));
        let loopback = rules(&["remote=8000-8099"]);
        assert!(allow(&loopback, &remote("127.0.0.1:8000")) && allow(&loopback, &remote("[::1]:8099")));
        for no in ["127.0.0.1:8100", "0.0.0.0:8000", "192.0.2.1:8000", "[::]:8000"] {
            assert!(!allow(&loopback, &remote(no)), "{no}");
        }
        let all = rules(&["remote=0.0.0.0:80"]);
        assert!(allow(&all, &remote("0.0.0.0:80")) && !allow(&all, &remote("192.0.2.1:80")));
        assert!(!allow(&rules(&["*:*", "127.0.0.1:*", "remote:*"]), &remote("127.0.0.1:8000")));
        assert!(!allow(&loopback, &to("127.0.0.1:8000")) && !allow(&loopback, &to("remote:8000")));
        for bad in ["remote=0-x", "remote=9-8", "remote=127.0.0.1:x", "remote=gw:80", "remote=:80x"] {
            assert!(bad.parse::<Rule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_service_is_allowed_by_its_name_alone() {
        let service = |name: &str| Destination::Service(name.to_owned());
        assert!(allow(&rules(&["service:web"]), &service("web")));
        assert!(!allow(&rules(&["service:web"]), &service("web2")));
        assert!(
            !allow(&rules(&["*:*", "service:*", "unix:/web"]), &service("web")),
            "a host may have this name"
        );
    }

    #[test]
    fn a_socket_is_allowed_by_its_path_alone() {
        let socket = |path: &str| Destination::Socket(path.to_owned());
        let one = rules(&["unix:/run/app.sock"]);
        assert!(allow(&one, &socket("/run/app.sock")));
        assert!(!allow(&one, &socket("/run/app.sock2")) && !allow(&one, &to("192.0.2.1:0")));
        assert!(!allow(&rules(&["*:*", "0.0.0.0/0:*", "*.sock:*"]), &socket("/run/app.sock")));
        assert!(allow(&rules(&["unix:80"]), &to("unix:80")), "a host may have this name");
    }

    #[test]
    fn names_match_whole_labels_and_ignore_case() {
        let rules = rules(&["*.example.org:443", "git.example.com:22"]);
        assert!(allow(&rules, &to("WWW.Example.ORG:443")));
        assert!(allow(&rules, &to("git.example.com.:22")));
        assert!(!allow(&rules, &to("badexample.org:443")));
        assert!(!allow(&rules, &to("example.org:443")), "the parent itself is another name");
    }

    #[test]
    fn any_host_does_not_mean_the_server_itself() {
        let open = rules(&["*:80"]);
        for local in ["127.0.0.1:80", "[::1]:80", "0.0.0.0:80", "169.254.169.254:80", "[fe80::1]:80"] {
            assert!(!allow(&open, &to(local)), "{local}");
        }
        assert!(!allow_resolved(&open, "rebind.example.org", "127.0.0.1".parse().expect("ip"), 80));
        assert!(!allow_resolved(&open, "rebind.example.org", "::ffff:127.0.0.1".parse().expect("ip"), 80));
        assert!(allow(&rules(&["127.0.0.1:80"]), &to("127.0.0.1:80")), "unless it is allowed as such");
    }

    #[test]
    fn a_bad_rule_says_what_is_wrong() {
        for (text, reason) in [
            ("example.org", "a port is missing"),
            ("example.org:http", "not a port"),
            ("10.0.0.0/33:80", "the prefix is longer than the address"),
            ("exa*mple.org:80", "'*' is only allowed alone or as '*.'"),
            ("*:90-80", "the port range runs backwards"),
            (":80", "a host is missing"),
            ("unix:/run/../app", "not the path of a socket, of at most 107 bytes"),
        ] {
            assert_eq!(text.parse::<Rule>().expect_err(text).reason, reason);
        }
    }
}
