//! The state of the kernel as `ip -json` shows it, for tests: in their words, and beside what netlink says.

use std::net::IpAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::addresses::Prefix;
use super::command::run;
use super::links::{Address, Flags, Link, Scope};
use super::neighbours::{Neighbour, Neighbours};
use super::routing_tables::{LOCAL, MAIN, NextHop, Route, RoutingTables, Rule};
use super::snapshot::{Family, Snapshot};
use super::tunnels::{Tunnel, Tunnels};

#[derive(Deserialize, Default)]
#[serde(default)]
struct ShownLink {
    ifname: String,
    ifindex: u32,
    altnames: Vec<String>,
    address: Option<String>,
    permaddr: Option<String>,
    flags: Vec<String>,
    mtu: u32,
    addr_info: Vec<ShownAddress>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ShownAddress {
    local: Option<IpAddr>,
    scope: String,
    prefixlen: u8,
    tentative: bool,
    dadfailed: bool,
    deprecated: bool,
    temporary: bool,
}

#[derive(Deserialize)]
struct ShownRoute {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    dst: String,
    #[serde(default)]
    table: Option<String>,
    #[serde(default)]
    metric: Option<u32>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(flatten)]
    hop: ShownHop,
    #[serde(default)]
    nexthops: Vec<ShownHop>,
}

#[derive(Deserialize)]
struct ShownHop {
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    via: Option<ShownVia>,
    #[serde(default)]
    dev: Option<String>,
}

#[derive(Deserialize)]
struct ShownVia {
    host: IpAddr,
}

#[derive(Deserialize)]
struct ShownRule {
    src: String,
    #[serde(default)]
    srclen: Option<u8>,
    #[serde(default)]
    oif: Option<String>,
    #[serde(default)]
    table: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct ShownNeighbour {
    dst: IpAddr,
    dev: String,
    #[serde(default)]
    lladdr: Option<String>,
}

fn parsed<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_json::from_str(text).expect("as ip prints it")
}

/// What `ip -json` prints; nothing for an empty list.
fn ip_json<T: DeserializeOwned>(words: &str) -> Vec<T> {
    let text = run("ip", &format!("-json {words}")).expect("ip");
    if text.trim().is_empty() { Vec::new() } else { parsed(&text) }
}

fn table(name: &str) -> u32 {
    match name {
        "main" => MAIN,
        "local" => LOCAL,
        "default" => 253,
        number => number.parse().expect("the number of a table"),
    }
}

impl Flags {
    /// The flags of these names.
    pub(super) fn named<S: AsRef<str>>(names: &[S]) -> Self {
        let has = |flag: &str| names.iter().any(|name| name.as_ref() == flag);
        Self {
            is_up: has("UP"),
            is_lower_up: has("LOWER_UP"),
            is_loopback: has("LOOPBACK"),
            is_noarp: has("NOARP"),
        }
    }
}

impl From<ShownLink> for Link {
    fn from(shown: ShownLink) -> Self {
        Self {
            name: shown.ifname,
            index: shown.ifindex,
            other_names: shown.altnames,
            link_address: shown.address,
            hardware_address: shown.permaddr,
            flags: Flags::named(&shown.flags),
            mtu: shown.mtu,
            addresses: shown.addr_info.into_iter().map(Address::from).collect(),
        }
    }
}

impl From<ShownAddress> for Address {
    fn from(shown: ShownAddress) -> Self {
        let scope = match shown.scope.as_str() {
            "global" => Scope::Global,
            "host" => Scope::Host,
            _ => Scope::Other,
        };
        let ShownAddress { local, prefixlen, tentative, dadfailed, deprecated, temporary, .. } = shown;
        Self {
            local,
            scope,
            prefix_length: prefixlen,
            tentative,
            dad_failed: dadfailed,
            deprecated,
            temporary,
        }
    }
}

impl From<ShownHop> for NextHop {
    fn from(shown: ShownHop) -> Self {
        let gateway = shown.gateway.or(shown.via.map(|via| via.host));
        Self { gateway, device: shown.dev.map(Into::into) }
    }
}

impl ShownRoute {
    fn route(self, family: Family) -> Route {
        let has = |flag: &str| self.flags.iter().any(|known| known == flag);
        let everything = Prefix { address: family.unspecified(), length: 0 };
        Route {
            destination: Prefix::parse(&self.dst).unwrap_or(everything),
            table: self.table.as_deref().map_or(MAIN, table),
            is_unicast: self.kind.as_deref().is_none_or(|kind| kind == "unicast"),
            is_dead: has("dead"),
            is_onlink: has("onlink"),
            metric: self.metric,
            hop: self.hop.into(),
            hops: self.nexthops.into_iter().map(NextHop::from).collect(),
        }
    }
}

impl From<ShownRule> for Rule {
    fn from(shown: ShownRule) -> Self {
        const FACTS: [&str; 4] = ["priority", "protocol", "oif_detached", "l3mdev"];
        let source = shown.src.parse().ok().map(Prefix::host);
        Self {
            source: source.map(|host| Prefix { length: shown.srclen.unwrap_or(host.length), ..host }),
            output: shown.oif,
            table: shown.table.as_deref().map(table),
            is_of_domains: shown.rest.contains_key("l3mdev"),
            is_special: shown.rest.keys().any(|key| !FACTS.contains(&key.as_str())),
        }
    }
}

impl RoutingTables {
    /// The routes of IPv4 and rules that `ip -json` shows as these.
    pub(super) fn shown(routes: &str, rules: &str) -> Self {
        Self::of_shown(Family::V4, parsed(routes), parsed(rules))
    }

    fn of_shown(family: Family, routes: Vec<ShownRoute>, rules: Vec<ShownRule>) -> Self {
        let routes = routes.into_iter().map(|route| route.route(family)).collect();
        Self::of(routes, rules.into_iter().map(Rule::from).collect())
    }
}

impl Neighbours {
    /// The neighbours that `ip -json` shows as these.
    pub(super) fn of(json: &str) -> Self {
        Self::of_shown(parsed(json))
    }

    /// The neighbours that `ip` shows.
    pub(super) fn by_ip() -> Self {
        Self::of_shown(ip_json("neighbour show"))
    }

    fn of_shown(shown: Vec<ShownNeighbour>) -> Self {
        let neighbour = |shown: ShownNeighbour| Neighbour {
            address: shown.dst,
            device: shown.dev,
            link_address: shown.lladdr,
        };
        Self(shown.into_iter().map(neighbour).collect())
    }
}

impl Tunnels {
    /// The tunnels among `links`, as `ip -details -json` shows them.
    pub(super) fn of(links: &[Value]) -> Self {
        let tunnels = links.iter().filter_map(|link| {
            let device = link["ifname"].as_str()?.to_owned();
            let is_wireguard = link["linkinfo"]["info_kind"] == "wireguard";
            let data = &link["linkinfo"]["info_data"];
            let remotes = [&data["remote"], &data["remote6"]].into_iter().filter_map(Value::as_str);
            let remotes = remotes.filter_map(|remote| remote.parse().ok());
            let remotes: Vec<IpAddr> = remotes.filter(|remote: &IpAddr| !remote.is_unspecified()).collect();
            let bound_to = link["link"].as_str().map(str::to_owned).filter(|_| !is_wireguard);
            let is_tunnel = is_wireguard || !remotes.is_empty();
            is_tunnel.then_some(Tunnel { device, bound_to, remotes, is_wireguard })
        });
        Self(tunnels.collect())
    }
}

impl Snapshot {
    /// The state that `ip -json` shows as these devices and routes of both families.
    pub(crate) fn of(links: &str, v4: &str, v6: &str) -> Self {
        let links = parsed::<ShownLink>(links).into_iter().map(Link::from).collect();
        let tables = [(Family::V4, v4), (Family::V6, v6)];
        let tables =
            tables.map(|(family, routes)| RoutingTables::of_shown(family, parsed(routes), Vec::new()));
        Self::with(links, tables, Tunnels::default())
    }

    /// The state that `ip` shows, by five programs.
    pub(super) fn by_ip() -> Self {
        let links: Vec<Value> = ip_json("-details address show");
        let tunnels = Tunnels::of(&links);
        let links =
            links.into_iter().map(|link| serde_json::from_value::<ShownLink>(link).expect("a device").into());
        let tables = Family::BOTH.map(|family| {
            let option = family.option();
            let routes = ip_json(&format!("{option} route show table all"));
            RoutingTables::of_shown(family, routes, ip_json(&format!("{option} rule show")))
        });
        Self::with(links.collect(), tables, tunnels)
    }
}
