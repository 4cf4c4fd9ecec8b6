//! The rules of `plait up`: what leaves this host goes to plait, is exempt, or is refused.
//!
//! Each packet that a program sends passes four chains. `decide` sees it first, with its destination: it lets pass what is exempt and what
//! will be captured, and refuses the rest. `captured` redirects connections and questions of DNS to the listeners of plait. `sealed` is last:
//! it refuses what is neither exempt nor redirected, whatever rules of other programs have done in between. `forwarded` refuses what others
//! send through this host, such as containers. `strays` refuses segments that belong to no known connection: such a segment of a peer would
//! otherwise make connection tracking take an old connection of this host for one that the peer has opened.
//!
//! plait's own packets have a mark ([`OWN_MARK`]), which takes CAP_NET_ADMIN or CAP_NET_RAW. Over TCP they come from its TUN device instead.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::num::NonZeroU32;

use plait_proxy::run::GATE_MARK;

use super::exempt::{Exempt, Lan, present};
use super::process::Owner;
use super::table::RuleSet;
use super::visitors::Visitor;
use plait_proxy::prefix::{Prefix, merged};

/// In front of the number of plait's process, in the name of an empty chain.
pub(super) const PROCESS: &str = "process-";
/// The mark of plait's own sockets.
pub(super) const OWN_MARK: NonZeroU32 = NonZeroU32::new(0x706c_6175).expect("not zero");
/// The NFLOG group of first segments.
pub(super) const GROUP: u16 = 7442;

/// Networks in which devices may be attached: private ones. A network that hands out other addresses gets nothing by that.
const PRIVATE: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];
/// The link itself, multicast and broadcast.
const LINK: [&str; 5] = ["169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "fe80::/10", "ff00::/8"];

/// The ports of the listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct Ports {
    /// TCP, and DNS over UDP.
    pub(in crate::linux) both: u16,
    /// DNS over TCP, by IPv4.
    pub(in crate::linux) dns_tcp: u16,
    pub(in crate::linux) has_ipv6: bool,
}

/// All that the rules depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    pub(super) ports: Ports,
    pub(super) exempt: Exempt,
    /// Networks of devices, and the routes over the devices that are exempt.
    pub(super) networks: Networks,
    /// The exempt control groups that are there.
    pub(super) groups: Vec<Group>,
    pub(super) visitors: Vec<Visitor>,
    /// Whether first segments wait for an answer of their destination.
    pub(super) has_gate: bool,
}

/// The networks of this host's devices.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(in crate::linux) struct Networks {
    /// Networks that devices are attached to.
    pub(in crate::linux) attached: Vec<Prefix>,
    /// Destinations of the routes over exempt devices, default routes excluded.
    pub(in crate::linux) of_devices: Vec<(String, Vec<Prefix>)>,
}

/// A control group. Another one may have its path later, and rules are for one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) path: String,
    /// The kernel's number of it.
    pub(super) number: u64,
}

/// Whether a network is in one of the private ones.
pub(super) fn is_private(network: &Prefix) -> bool {
    PRIVATE.into_iter().filter_map(|text| text.parse::<Prefix>().ok()).any(|private| private.covers(network))
}

impl RuleSet for Rules {
    const OWNER: Owner = Owner::Up;

    fn chains(&self) -> String {
        written(&[
            ("refuse", "", refusals()),
            ("ways", "", self.ways()),
            ("exempt", "", self.exemptions()),
            ("decide", "type filter hook output priority -150; policy drop;", self.decisions()),
            ("captured", "type nat hook output priority -110; policy accept;", self.captures()),
            ("sealed", "type filter hook output priority 300; policy drop;", seals()),
            ("forwarded", "type filter hook forward priority 300; policy drop;", forwards()),
            ("strays", "type filter hook input priority -150; policy accept;", self.strays()),
        ])
    }

    fn renew(&mut self, has_moved: bool) -> Option<&'static str> {
        if has_moved {
            let networks = Networks::read(&self.exempt.devices);
            if networks != self.networks {
                self.networks = networks;
                return Some("the networks of this host");
            }
        }
        let groups = present(&self.exempt.cgroups);
        let has_changed = groups != self.groups;
        self.groups = groups;
        has_changed.then_some("the control groups of this host")
    }

    fn without_gate(&mut self) -> bool {
        std::mem::take(&mut self.has_gate)
    }
}

impl Rules {
    /// Exemptions that hold for packets of others, too.
    fn ways(&self) -> Vec<String> {
        let Self { exempt, networks, .. } = self;
        let mut rules = Vec::new();
        if !exempt.marks.is_empty() {
            rules.push(format!("meta mark {} accept", set(exempt.marks.iter())));
        }
        rules.extend(towards(&exempt.networks).map(|there| format!("{there} accept")));
        for (device, there) in &networks.of_devices {
            rules.extend(towards(there).map(|there| format!("oifname \"{device}\" {there} accept")));
        }
        // Errors, and what a link needs: neighbours, routers, groups.
        rules.push("meta l4proto icmp icmp type != echo-request accept".to_owned());
        rules.push("meta l4proto ipv6-icmp icmpv6 type != echo-request accept".to_owned());
        rules.push("meta l4proto 2 accept".to_owned());
        // Answers to connections that others have opened: `strays` lets them begin with a SYN only.
        rules.push("meta l4proto tcp ct direction reply accept".to_owned());
        if exempt.lan == Lan::Direct {
            for there in towards(&self.lan()) {
                // Names are asked for through the server all the same.
                rules.push(format!("{there} meta l4proto != {{ tcp, udp }} accept"));
                rules.push(format!("{there} meta l4proto {{ tcp, udp }} th dport != {{ 53, 853 }} accept"));
            }
        }
        rules
    }

    /// Exemptions of what this host sends.
    fn exemptions(&self) -> Vec<String> {
        let Exempt { users, has_udp, .. } = &self.exempt;
        let mut rules = vec!["oifname \"lo\" accept".to_owned(), format!("meta mark {OWN_MARK} accept")];
        if !users.is_empty() {
            rules.push(format!("meta skuid {} accept", set(users.iter())));
        }
        rules.extend(self.groups.iter().map(|Group { path, number: _ }| {
            let level = path.split('/').count();
            format!("socket cgroupv2 level {level} \"{path}\" accept")
        }));
        // DHCP: both ports are those of root.
        rules.push("meta nfproto ipv4 udp sport 68 udp dport 67 accept".to_owned());
        rules.push("meta nfproto ipv6 udp sport 546 udp dport 547 accept".to_owned());
        rules.extend(visits(&self.visitors, ["daddr", "dport", "sport"]));
        rules.push("jump ways".to_owned());
        if *has_udp {
            rules.push("udp dport != 53 accept".to_owned());
        }
        rules
    }

    fn decisions(&self) -> Vec<String> {
        let mut rules = vec!["oifname \"lo\" accept".to_owned(), format!("meta mark {OWN_MARK} accept")];
        rules.extend(towards(&self.exempt.never).map(|there| format!("{there} goto refuse")));
        rules.push("jump exempt".to_owned());
        rules.extend(["udp", "tcp"].map(|over| format!("meta nfproto ipv4 {over} dport 53 accept")));
        if self.ports.has_ipv6 {
            rules.push("meta nfproto ipv6 udp dport 53 accept".to_owned());
        } else {
            rules.push("meta nfproto ipv6 goto refuse".to_owned());
        }
        if self.exempt.lan == Lan::Refuse {
            rules.extend(towards(&self.lan()).map(|there| format!("{there} goto refuse")));
        }
        let first = "meta l4proto tcp tcp flags & (fin | syn | rst | ack) == syn";
        if self.has_gate {
            rules.push(format!("meta mark {GATE_MARK} {first} accept"));
            rules.push(format!("{first} log group {GROUP} queue-threshold 1 drop"));
        } else {
            rules.push(format!("{first} accept"));
        }
        // The rest of connections that were redirected; older ones are reset.
        rules.push("meta l4proto tcp ct status dnat accept".to_owned());
        rules.push("goto refuse".to_owned());
        rules
    }

    fn captures(&self) -> Vec<String> {
        let Ports { both, dns_tcp, has_ipv6 } = self.ports;
        let mut rules = vec![
            "jump exempt".to_owned(),
            format!("meta nfproto ipv4 udp dport 53 redirect to :{both}"),
            format!("meta nfproto ipv4 tcp dport 53 redirect to :{dns_tcp}"),
            format!("meta nfproto ipv4 meta l4proto tcp redirect to :{both}"),
        ];
        if has_ipv6 {
            rules.push(format!("meta nfproto ipv6 udp dport 53 redirect to :{both}"));
            rules.push(format!("meta nfproto ipv6 meta l4proto tcp redirect to :{both}"));
        }
        rules
    }

    fn strays(&self) -> Vec<String> {
        let mut rules: Vec<_> = visits(&self.visitors, ["saddr", "sport", "dport"]).collect();
        rules.push(
            "iifname != \"lo\" meta l4proto tcp ct state new tcp flags & (fin | syn | rst | ack) != syn drop"
                .to_owned(),
        );
        rules
    }

    /// The private networks that devices are attached to, and the links themselves.
    fn lan(&self) -> Vec<Prefix> {
        let attached = self.networks.attached.iter().filter(|network| is_private(network));
        attached.copied().chain(links()).collect()
    }
}

/// The link itself, multicast and broadcast.
pub(in crate::linux) fn links() -> impl Iterator<Item = Prefix> {
    LINK.into_iter().filter_map(|text| text.parse().ok())
}

/// A chain: its name, its hook, and its rules.
pub(in crate::linux) type Chain<'a> = (&'a str, &'a str, Vec<String>);

/// The chains as `nft` reads them.
pub(in crate::linux) fn written(chains: &[Chain<'_>]) -> String {
    chains.iter().fold(String::new(), |mut text, (name, hook, rules)| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "chain {name} {{\n{hook}\n{}\n}}", rules.join("\n"));
        text
    })
}

/// A refusal that programs notice at once. UDP is refused like a closed port, so that QUIC gives way to TCP.
pub(in crate::linux) fn refusals() -> Vec<String> {
    [
        "meta l4proto tcp reject with tcp reset",
        "meta l4proto { icmp, ipv6-icmp } reject with icmpx type admin-prohibited",
        "reject with icmpx type port-unreachable",
    ]
    .map(str::to_owned)
    .into()
}

fn seals() -> Vec<String> {
    ["jump exempt", "ip daddr 127.0.0.0/8 accept", "ip6 daddr ::1 accept", "goto refuse"]
        .map(str::to_owned)
        .into()
}

fn forwards() -> Vec<String> {
    ["iifname \"plait*\" accept", "oifname \"plait*\" accept", "jump ways", "goto refuse"]
        .map(str::to_owned)
        .into()
}

/// The matches of packets towards these networks, one per family that has some.
pub(in crate::linux) fn towards(networks: &[Prefix]) -> impl Iterator<Item = String> {
    let networks = merged(networks);
    [("ip", false), ("ip6", true)].into_iter().filter_map(move |(family, is_v6)| {
        let mut of_family = networks.iter().filter(|network| network.is_v6() == is_v6).peekable();
        of_family.peek()?;
        Some(format!("{family} daddr {}", set(of_family)))
    })
}

/// Rules for connections that others have opened before.
fn visits(visitors: &[Visitor], [address, theirs, ours]: [&str; 3]) -> impl Iterator<Item = String> {
    visitors.iter().map(move |visitor| {
        let family = if visitor.remote.is_ipv4() { "ip" } else { "ip6" };
        let (remote, port, own) = (visitor.remote.ip(), visitor.remote.port(), visitor.own_port);
        format!("{family} {address} {remote} tcp {theirs} {port} tcp {ours} {own} accept")
    })
}

pub(in crate::linux) fn set(elements: impl Iterator<Item = impl ToString>) -> String {
    let all: BTreeSet<String> = elements.map(|element| element.to_string()).collect();
    format!("{{ {} }}", all.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(exempt: Exempt) -> Rules {
        let ports = Ports { both: 1000, dns_tcp: 1001, has_ipv6: true };
        let networks = |all: &[&str]| all.iter().map(|text| text.parse().expect(text)).collect::<Vec<_>>();
        let networks = Networks {
            attached: networks(&["192.168.7.0/24", "203.0.113.0/24", "fd77:1::/64", "2001:db8:1::/64"]),
            of_devices: vec![("wg0".to_owned(), networks(&["10.8.0.0/16"]))],
        };
        Rules { ports, exempt, networks, groups: Vec::new(), visitors: Vec::new(), has_gate: true }
    }

    #[test]
    fn only_private_networks_are_local_and_names_never_are() {
        let text = rules(Exempt { lan: Lan::Direct, ..Exempt::default() }).chains();
        assert!(text.contains("192.168.7.0/24") && text.contains("fd77:1::/64"), "{text}");
        assert!(!text.contains("203.0.113.0") && !text.contains("2001:db8:1::"), "{text}");
        assert!(text.contains("th dport != { 53, 853 } accept"), "{text}");
        let text = rules(Exempt::default()).chains();
        let refused = text.lines().find(|line| line.contains("192.168.7.0/24")).expect("it is named");
        assert!(refused.ends_with("goto refuse"), "{refused}");
    }

    #[test]
    fn what_is_never_let_out_comes_before_what_is_exempt_and_the_own_mark_before_both() {
        let exempt = Exempt { never: vec!["192.0.2.0/24".parse().expect("one")], ..Exempt::default() };
        let decisions = rules(exempt).decisions();
        let place = |what: &str| decisions.iter().position(|rule| rule.contains(what)).expect(what);
        assert!(place(&OWN_MARK.to_string()) < place("192.0.2.0/24"));
        assert!(place("192.0.2.0/24") < place("jump exempt"));
        assert_eq!(decisions.last().map(String::as_str), Some("goto refuse"));
    }

    #[test]
    fn without_ipv6_for_this_process_other_programs_have_none_either() {
        let mut rules = rules(Exempt::default());
        rules.ports.has_ipv6 = false;
        let text = rules.chains();
        assert!(
            text.contains("meta nfproto ipv6 goto refuse") && !text.contains("ipv6 udp dport 53 redirect")
        );
    }

    #[test]
    fn a_device_is_exempt_for_its_own_networks_only() {
        let text = rules(Exempt::default()).chains();
        assert!(text.contains("oifname \"wg0\" ip daddr { 10.8.0.0/16 } accept"), "{text}");
    }
}
