//! The routes of the kernel, from all of its tables, and the rules that choose a table.
//!
//! A host with several uplinks often has a table for each of them: `ip rule add from ADDRESS table 100`, and the default route of the uplink
//! in table 100 only. A path has a table of its own ([`super::routes`]), with the routes over its device and no others. They come from the
//! tables that the rules choose for the addresses of the device, in their order, then from the others: a route over the device is a way out,
//! for whatever packets it was made.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;
use tracing::debug;

use super::addresses::Prefix;
use super::command::ip_json;
use super::routes::is_table_of_a_path;
use super::snapshot::Family;
use crate::error::Error;

const MAIN: &str = "main";
const LOCAL: &str = "local";

/// The routes and rules of a family.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct RoutingTables {
    main: Vec<Route>,
    /// Routes of the other tables, except ours and the table of the host's own addresses.
    others: Vec<Route>,
    rules: Vec<Rule>,
}

/// A rule as `ip -json rule` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct Rule {
    #[serde(default)]
    src: String,
    #[serde(rename = "srclen", default)]
    src_length: Option<u8>,
    #[serde(default)]
    oif: Option<String>,
    #[serde(default)]
    table: Option<String>,
    /// Further selectors, and facts about the rule.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// A route as `ip -json route` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Route {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    dst: String,
    /// The name or number of its table; the main one if there is none.
    #[serde(default)]
    table: Option<String>,
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    via: Option<Via>,
    #[serde(default)]
    dev: Option<String>,
    #[serde(default)]
    metric: Option<u32>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    nexthops: Vec<NextHop>,
}

/// A gateway of another family than the route's.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct Via {
    family: String,
    host: IpAddr,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct NextHop {
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    dev: Option<String>,
}

impl RoutingTables {
    /// Reads them, by two short programs.
    pub(super) fn take(family: Family) -> Result<Self, Error> {
        let routes = ip_json(&format!("{} route show table all", family.option()))?;
        let rules = ip_json(&format!("{} rule show", family.option()));
        Ok(Self::of(
            routes,
            rules.unwrap_or_else(|error| {
                debug!(%error, "the rules of this host are unknown");
                Vec::new()
            }),
        ))
    }

    fn of(routes: Vec<Route>, rules: Vec<Rule>) -> Self {
        let is_foreign =
            |table: Option<&str>| table.is_none_or(|table| table != LOCAL && !is_table_of_a_path(table));
        let routes = routes.into_iter().filter(|route| is_foreign(route.table.as_deref()));
        let (main, mut others): (Vec<_>, Vec<_>) = routes.partition(|route| route.table() == MAIN);
        others.retain(Route::is_unicast);
        Self {
            main,
            others,
            rules: rules.into_iter().filter(|rule| is_foreign(rule.table.as_deref())).collect(),
        }
    }

    /// All routes, those of the main table first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.main.iter().chain(&self.others)
    }

    /// The devices of the default routes of the main table, best first.
    pub(super) fn default_devices(&self) -> impl Iterator<Item = &String> {
        let mut defaults: Vec<&Route> = self.main.iter().filter(|route| route.dst == "default").collect();
        defaults.sort_by_key(|route| route.metric.unwrap_or(0));
        defaults.into_iter().flat_map(|route| {
            route.dev.iter().chain(route.nexthops.iter().filter_map(|hop| hop.dev.as_ref()))
        })
    }

    /// The device of the main table's best route to `address`, apart from the routes over `except`.
    pub(super) fn device_to(&self, address: IpAddr, except: &str) -> Option<&str> {
        let leads = |route: &&Route| route.device().is_some_and(|device| device != except);
        let best = self
            .main
            .iter()
            .filter(leads)
            .filter_map(|route| Some((route, route.match_of(address)?)))
            .max_by_key(|(route, length)| (*length, Reverse(route.metric.unwrap_or(0))));
        best.and_then(|(route, _)| route.device())
    }

    /// Whether a route over `device` leads to `address`.
    pub(super) fn reach(&self, device: &str, address: IpAddr) -> bool {
        self.iter().any(|route| route.over(device).is_some() && route.match_of(address).is_some())
    }

    /// The routes over `device` as `ip route replace` takes them, connected ones first so that gateways can be reached. The routes to
    /// each destination come from one table, the first of those for a device with these addresses.
    pub(super) fn over(&self, device: &str, addresses: &[Prefix]) -> Vec<String> {
        // First, because other devices may have a million routes.
        let routes = self.iter().filter_map(|route| Some((route, route.over(device)?)));
        let routes: Vec<_> = routes.collect();
        let ruled = self
            .rules
            .iter()
            .filter(|rule| rule.chooses(device, addresses))
            .filter_map(|rule| rule.table.as_deref());
        let mut tables: Vec<&str> = Vec::new();
        for table in ruled.chain([MAIN]).chain(routes.iter().map(|(route, _)| route.table())) {
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        let place = |route: &Route| tables.iter().position(|table| *table == route.table());
        let found = routes.into_iter().filter_map(|(route, words)| Some((place(route)?, route, words)));
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|(place, ..)| *place);
        let mut chosen: BTreeMap<&str, usize> = BTreeMap::new();
        found.retain(|(place, route, _)| *chosen.entry(&route.dst).or_insert(*place) == *place);
        found.sort_by_key(|(_, _, (has_gateway, _))| *has_gateway);
        found.into_iter().map(|(_, _, (_, words))| words).collect()
    }
}

impl Rule {
    /// Whether it chooses its table for all packets from one of these addresses, or over this device.
    fn chooses(&self, device: &str, addresses: &[Prefix]) -> bool {
        /// Facts that are no selectors.
        const FACTS: [&str; 3] = ["priority", "protocol", "oif_detached"];
        if self.rest.keys().any(|key| !FACTS.contains(&key.as_str())) {
            return false;
        }
        let is_for_device = self.oif.as_deref().is_none_or(|oif| oif == device);
        let is_for_address = || {
            let Some(source) = self.src.parse().ok().map(Prefix::host) else { return self.src == "all" };
            let source = Prefix { length: self.src_length.unwrap_or(source.length), ..source };
            addresses.iter().any(|own| source.overlaps(Prefix::host(own.address)))
        };
        is_for_device && is_for_address()
    }
}

impl Route {
    fn table(&self) -> &str {
        self.table.as_deref().unwrap_or(MAIN)
    }

    fn is_unicast(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == "unicast")
    }

    /// The network that it leads to, unless that is everything.
    pub(super) fn network(&self) -> Option<Prefix> {
        Prefix::parse(&self.dst)
    }

    /// Its gateway, if it leads over `device`.
    pub(super) fn gateway_over(&self, device: &str) -> Option<IpAddr> {
        if self.dev.as_deref() == Some(device) {
            return self.gateway.or(self.via.as_ref().map(|via| via.host));
        }
        self.nexthops.iter().find(|hop| hop.dev.as_deref() == Some(device))?.gateway
    }

    /// The device of its first next hop, if it is a route to other hosts.
    fn device(&self) -> Option<&str> {
        let first = || self.nexthops.iter().find_map(|hop| hop.dev.as_deref());
        self.dev.as_deref().or_else(first).filter(|_| self.is_unicast())
    }

    /// The length of its prefix, if that has `address`.
    fn match_of(&self, address: IpAddr) -> Option<u8> {
        if self.dst == "default" {
            return Some(0);
        }
        let prefix = self.network()?;
        prefix.overlaps(Prefix::host(address)).then_some(prefix.length)
    }

    /// Whether it has a gateway, and the route in words, if it leads over `device`.
    fn over(&self, device: &str) -> Option<(bool, String)> {
        if !self.is_unicast() || self.flags.iter().any(|flag| flag == "dead") {
            return None;
        }
        let direct = (self.dev.as_deref() == Some(device)).then_some(self.gateway);
        let gateway = direct.or_else(|| {
            let hop = self.nexthops.iter().find(|hop| hop.dev.as_deref() == Some(device));
            hop.map(|hop| hop.gateway)
        })?;
        let mut words = self.dst.clone();
        if let Some(gateway) = gateway {
            words += &format!(" via {gateway}");
        } else if let Some(via) = &self.via {
            words += &format!(" via {} {}", via.family, via.host);
        }
        words += &format!(" dev {device}");
        if self.flags.iter().any(|flag| flag == "onlink") {
            words += " onlink";
        }
        if let Some(metric) = self.metric {
            words += &format!(" metric {metric}");
        }
        Some((gateway.is_some() || self.via.is_some(), words))
    }
}

#[cfg(test)]
impl RoutingTables {
    /// The routes and rules that `ip -json` shows as these.
    pub(super) fn shown(routes: &str, rules: &str) -> Self {
        Self::of(serde_json::from_str(routes).expect("routes"), serde_json::from_str(rules).expect("rules"))
    }

    pub(super) fn drop_routes_over(&mut self, device: &str) {
        let is_other = |route: &Route| route.dev.as_deref() != Some(device);
        self.main.retain(is_other);
        self.others.retain(is_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = r#"[{"dst":"default","gateway":"10.1.1.9","dev":"wan","table":"100","flags":[]},
        {"dst":"default","gateway":"10.1.1.8","dev":"wan","table":"51","flags":[]},
        {"dst":"default","gateway":"10.2.1.1","dev":"eth0","flags":[]},
        {"dst":"10.1.1.0/24","dev":"wan","scope":"link","flags":[]},
        {"dst":"10.7.0.0/16","gateway":"10.1.1.7","dev":"wan","table":"51","flags":[]},
        {"dst":"default","gateway":"10.1.1.6","dev":"wan","table":"1886126080","flags":[]},
        {"type":"local","dst":"10.1.1.1","dev":"wan","table":"local","flags":[]}]"#;

    fn over(rules: &str) -> Vec<String> {
        let own = Prefix::parse("10.1.1.1/24").expect("an address");
        RoutingTables::shown(ROUTES, rules).over("wan", &[own])
    }

    #[test]
    fn the_routes_of_a_device_come_from_the_table_that_a_rule_chooses_for_its_address() {
        let expected =
            ["10.1.1.0/24 dev wan", "default via 10.1.1.9 dev wan", "10.7.0.0/16 via 10.1.1.7 dev wan"];
        for selector in
            [r#""src":"10.1.1.1""#, r#""src":"10.1.1.0","srclen":24"#, r#""src":"all","oif":"wan""#]
        {
            let main = r#"{"priority":32766,"src":"all","table":"main"}"#;
            let rules = format!(r#"[{{"priority":100,{selector},"table":"100"}},{main}]"#);
            assert_eq!(over(&rules), expected, "{selector}");
        }
    }

    #[test]
    fn a_rule_for_other_packets_decides_nothing_and_its_table_may_still_have_the_only_way_out() {
        let marked = r#"[{"priority":100,"src":"all","fwmark":"0x1","table":"51"},
            {"priority":101,"src":"10.1.1.77","table":"100"}]"#;
        let routes = over(marked);
        assert!(routes.contains(&"10.7.0.0/16 via 10.1.1.7 dev wan".to_owned()), "{routes:?}");
        assert!(
            routes.contains(&"default via 10.1.1.9 dev wan".to_owned()),
            "the first that is there: {routes:?}"
        );
        let tables = RoutingTables::shown(ROUTES, marked);
        assert!(tables.reach("wan", "192.0.2.1".parse().expect("an address")));
        assert!(!tables.reach("wlan0", "192.0.2.1".parse().expect("an address")));
        assert_eq!(
            tables.default_devices().collect::<Vec<_>>(),
            ["eth0"],
            "other tables name no device to use"
        );
    }
}
