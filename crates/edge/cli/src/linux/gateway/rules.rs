//! The rules of `plait gateway`: what devices send to this host to pass on goes to plait, is exempt, or is refused.
//!
//! Each packet of a device passes two chains. `captured` redirects connections and questions of DNS to the listeners of plait, before the
//! packet is routed. `forwarded` refuses what it has not redirected, whatever rules of other programs have done in between. `guarded` keeps the
//! listeners, which are at all addresses of this host, from everything that was not redirected.
//!
//! plait's own packets leave by `output`, or come from its TUN device: no chain here sees them as those of a device.

use plait_proxy::prefix::Prefix;

use super::device_rule::Which;
use crate::linux::up::process::Owner;
use crate::linux::up::rules::{Networks, Ports, links, refusals, set, towards, written};
use crate::linux::up::table::RuleSet;

/// Questions of DNS.
const DNS: &str = "meta l4proto { tcp, udp } th dport 53";

/// All that the rules depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GatewayRules {
    /// The devices of this host that face the LAN. They may come and go.
    pub(super) lan: Vec<String>,
    /// The first that matches counts; without any, the first of the doors.
    pub(super) fates: Vec<(Which, Fate)>,
    pub(super) doors: Vec<Ports>,
    /// The networks of the LAN devices.
    pub(super) networks: Networks,
}

/// What becomes of the packets of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// They go to the listeners with this index.
    Door(usize),
    /// They pass as without plait.
    Direct,
    /// They are refused.
    Never,
}

impl RuleSet for GatewayRules {
    const OWNER: Owner = Owner::Gateway;

    fn chains(&self) -> String {
        let doors: Vec<_> = (0..self.doors.len()).map(door).collect();
        let mut chains = vec![("refuse", "", refusals()), ("between", "", self.between())];
        let of_doors = doors.iter().zip(&self.doors);
        chains.extend(of_doors.map(|(name, ports)| (name.as_str(), "", self.redirections(*ports))));
        chains.extend([
            ("own", "", self.own()),
            ("captured", "type nat hook prerouting priority -110; policy accept;", self.captures()),
            ("forwarded", "type filter hook forward priority 300; policy accept;", self.forwards()),
            ("guarded", "type filter hook input priority -150; policy accept;", self.guards()),
        ]);
        written(&chains)
    }

    fn renew(&mut self, has_moved: bool) -> Option<&'static str> {
        let networks = has_moved.then(|| Networks::read(&self.lan))?;
        let has_changed = networks.of_devices != self.networks.of_devices;
        self.networks = networks;
        has_changed.then_some("the networks of the devices")
    }
}

impl GatewayRules {
    fn is_not_of_lan(&self) -> String {
        format!("iifname != {} accept", names(&self.lan))
    }

    fn captures(&self) -> Vec<String> {
        let of = |(which, fate): &(Which, Fate)| match fate {
            Fate::Door(index) => format!("{which} goto {}", door(*index)),
            // The first passes `forwarded`, the second does not.
            Fate::Direct | Fate::Never => format!("{which} accept"),
        };
        let all = self.fates.iter().map(of);
        [self.is_not_of_lan()].into_iter().chain(all).chain([format!("goto {}", door(0))]).collect()
    }

    /// The redirections to the listeners of one door.
    fn redirections(&self, Ports { both, dns_tcp, has_ipv6 }: Ports) -> Vec<String> {
        let mut rules = Vec::new();
        if !has_ipv6 {
            rules.push("meta nfproto ipv6 accept".to_owned());
        }
        rules.push(format!("udp dport 53 redirect to :{both}"));
        rules.push(format!("tcp dport 53 redirect to :{dns_tcp}"));
        // Services of this host, and what no router passes on.
        rules.push("fib daddr type { local, broadcast, anycast, multicast } accept".to_owned());
        rules.extend(towards(&self.near()).map(|there| format!("{there} accept")));
        rules.push(format!("meta l4proto tcp redirect to :{both}"));
        rules
    }

    /// The networks of the LAN devices, and the links themselves.
    fn near(&self) -> Vec<Prefix> {
        self.networks.of_devices.iter().flat_map(|(_, networks)| networks).copied().chain(links()).collect()
    }

    /// What may pass from one LAN device to another.
    fn between(&self) -> Vec<String> {
        let mut rules = Vec::new();
        for (device, networks) in &self.networks.of_devices {
            rules.extend(towards(networks).map(|there| format!("oifname \"{device}\" {there} accept")));
        }
        rules.push("goto refuse".to_owned());
        rules
    }

    fn forwards(&self) -> Vec<String> {
        let of = |(which, fate): &(Which, Fate)| match fate {
            Fate::Door(_) => format!("{which} goto between"),
            Fate::Direct => format!("{which} accept"),
            Fate::Never => format!("{which} goto refuse"),
        };
        let all = self.fates.iter().map(of);
        [self.is_not_of_lan()].into_iter().chain(all).chain(["goto between".to_owned()]).collect()
    }

    /// A resolver of this host would ask for devices that must not reach anything.
    fn own(&self) -> Vec<String> {
        let of = |(which, fate): &(Which, Fate)| match fate {
            Fate::Door(_) | Fate::Direct => format!("{which} return"),
            Fate::Never => format!("{which} goto refuse"),
        };
        self.fates.iter().map(of).collect()
    }

    fn guards(&self) -> Vec<String> {
        let ports = set(self.doors.iter().flat_map(|ports| [ports.both, ports.dns_tcp]));
        let (lan, listeners) = (names(&self.lan), format!("meta l4proto {{ tcp, udp }} th dport {ports}"));
        vec![
            format!("iifname {lan} {DNS} jump own"),
            format!("iifname {lan} {listeners} ct status dnat accept"),
            format!("{listeners} drop"),
        ]
    }
}

/// The chain of a door.
fn door(index: usize) -> String {
    format!("door-{index}")
}

fn names(devices: &[String]) -> String {
    set(devices.iter().map(|device| format!("\"{device}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(fates: Vec<(Which, Fate)>) -> GatewayRules {
        let networks = ["10.1.0.0/24", "fd01::/64"].map(|text| text.parse().expect(text)).to_vec();
        GatewayRules {
            lan: vec!["br0".to_owned(), "lan1".to_owned()],
            fates,
            doors: [1000, 990].map(|both| Ports { both, dns_tcp: both - 1, has_ipv6: true }).to_vec(),
            networks: Networks { attached: Vec::new(), of_devices: vec![("br0".to_owned(), networks)] },
        }
    }

    #[test]
    fn devices_have_their_fate_in_the_order_of_the_options() {
        let which = |text: &str| text.parse::<Which>().expect(text);
        let fates = vec![
            (which("02:00:00:00:00:01"), Fate::Direct),
            (which("10.1.0.128/25"), Fate::Never),
            (which("fd01::7"), Fate::Door(1)),
        ];
        let rules = rules(fates);
        assert_eq!(
            rules.captures(),
            [
                "iifname != { \"br0\", \"lan1\" } accept",
                "ether saddr 02:00:00:00:00:01 accept",
                "ip saddr 10.1.0.128/25 accept",
                "ip6 saddr fd01::7/128 goto door-1",
                "goto door-0"
            ]
        );
        let forwards = rules.forwards();
        assert_eq!(
            forwards[1..3],
            ["ether saddr 02:00:00:00:00:01 accept", "ip saddr 10.1.0.128/25 goto refuse"]
        );
        assert_eq!(forwards.last().map(String::as_str), Some("goto between"));
        assert_eq!(rules.between().last().map(String::as_str), Some("goto refuse"));
    }

    #[test]
    fn names_are_asked_for_through_the_server_also_at_near_addresses() {
        let [ports, _] = rules(Vec::new()).doors[..] else { panic!("two") };
        let redirections = rules(Vec::new()).redirections(ports);
        let place = |what: &str| redirections.iter().position(|rule| rule.contains(what)).expect(what);
        assert!(place("tcp dport 53") < place("fib daddr") && place("udp dport 53") < place("10.1.0.0/24"));
        assert!(place("fd01::/64") < place("meta l4proto tcp redirect"));
    }

    #[test]
    fn the_listeners_take_what_was_redirected_and_nothing_else() {
        let guards = rules(Vec::new()).guards();
        assert!(guards[1].contains("{ 1000, 989, 990, 999 } ct status dnat accept"), "{guards:?}");
        assert!(guards[2].ends_with("{ 1000, 989, 990, 999 } drop"), "{guards:?}");
    }
}
