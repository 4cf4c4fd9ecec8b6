//! The routes of the kernel, from all of its tables, and the rules that choose a table.
//!
//! A host with several uplinks often has a table for each of them: `ip rule add from ADDRESS table 100`, and the default route of the uplink
//! in table 100 only. A path has a table of its own ([`super::routes`]), with the routes over its device and no others. They come from the
//! tables that the rules choose for the addresses of the device, in their order, then from the others: a route over the device is a way out,
//! for whatever packets it was made.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use netlink_bindings::rt_route::{self, IterableRouteAttrs, RouteAttrs, RtmFlag, RtmType, Rtmsg};
use netlink_bindings::rt_rule::{self, FibRuleAttrs, FibRuleHdr, FrAct, IterableFibRuleAttrs};
use netlink_bindings::utils::{find_attr, nla_align_up, parse_i32, parse_ip, parse_u16};

use super::addresses::Prefix;
use super::netlink::Netlink;
use super::routes::is_table_of_a_path;
use super::snapshot::Family;
use crate::error::Error;
use crate::log::debug;

/// Numbers of tables (linux/rtnetlink.h).
pub(super) const MAIN: u32 = libc::RT_TABLE_MAIN as u32;
pub(super) const LOCAL: u32 = libc::RT_TABLE_LOCAL as u32;

/// The gateway of another family than the route's (linux/rtnetlink.h): `struct rtvia`, a family and an address.
const RTA_VIA: u16 = 18;

/// Flags of next hops (linux/rtnetlink.h).
const RTNH_F_DEAD: u32 = 1;
const RTNH_F_ONLINK: u32 = 4;

/// Flags of rules (linux/fib_rules.h): the selectors choose all other packets.
const FIB_RULE_INVERT: u32 = 2;

/// The names of devices by their numbers.
pub(super) type Names = BTreeMap<u32, Arc<str>>;

/// The routes and rules of a family.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct RoutingTables {
    main: Vec<Route>,
    /// Routes of the other tables, except ours and the table of the host's own addresses.
    others: Vec<Route>,
    rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    /// `None`: packets from anywhere.
    pub(super) source: Option<Prefix>,
    pub(super) output: Option<String>,
    pub(super) table: Option<u32>,
    /// Whether it looks into the table of the domain of the device (VRF).
    pub(super) is_of_domains: bool,
    /// Whether it has further selectors, or does anything else than look into its table.
    pub(super) is_special: bool,
}

/// A route. Hosts may have a million of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Route {
    /// Length 0: everything.
    pub(super) destination: Prefix,
    pub(super) table: u32,
    pub(super) is_unicast: bool,
    pub(super) is_dead: bool,
    pub(super) is_onlink: bool,
    pub(super) metric: Option<u32>,
    /// The only next hop.
    pub(super) hop: NextHop,
    /// The next hops of a route with several.
    pub(super) hops: Vec<NextHop>,
}

/// A next hop.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct NextHop {
    /// Possibly of another family than the route's destination.
    pub(super) gateway: Option<IpAddr>,
    pub(super) device: Option<Arc<str>>,
}

impl RoutingTables {
    /// Reads the rules, and the routes over the devices with these numbers, or over all. The kernel cannot list the default routes alone.
    pub(super) fn read(
        netlink: &mut Netlink,
        family: Family,
        over: Option<&[u32]>,
        names: &Names,
    ) -> Result<Self, Error> {
        let number = family.number();
        let mut routes: Vec<Route> = Vec::new();
        match over {
            None => routes = list(netlink, family, None, names)?,
            Some(devices) => {
                for (place, device) in devices.iter().enumerate() {
                    let name = |index: &u32| names.get(index).map(|name| &**name);
                    // A route with several next hops is in the lists of several devices, and old kernels list all routes each time.
                    let is_new = |route: &Route| {
                        let is_over =
                            |index: &u32| name(index).is_some_and(|name| route.hop_over(name).is_some());
                        is_over(device) && !devices[..place].iter().any(is_over)
                    };
                    routes.extend(list(netlink, family, Some(*device), names)?.into_iter().filter(is_new));
                }
            }
        }
        let question =
            rt_rule::Request::new().op_getrule_dump(&FibRuleHdr { family: number, ..FibRuleHdr::new() });
        let rules = netlink
            .ask(&question, |(header, facts)| (header.family == number).then(|| Rule::of(&header, facts)));
        Ok(Self::of(
            routes,
            rules.unwrap_or_else(|error| {
                debug!(%error, "the rules of this host are unknown");
                Vec::new()
            }),
        ))
    }

    pub(super) fn of(routes: Vec<Route>, rules: Vec<Rule>) -> Self {
        let is_foreign = |table: u32| table != LOCAL && !is_table_of_a_path(table);
        let routes = routes.into_iter().filter(|route| is_foreign(route.table));
        let (main, mut others): (Vec<_>, Vec<_>) = routes.partition(|route| route.table == MAIN);
        others.retain(|route| route.is_unicast);
        Self {
            main,
            others,
            rules: rules.into_iter().filter(|rule| rule.table.is_none_or(is_foreign)).collect(),
        }
    }

    /// All routes, those of the main table first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.main.iter().chain(&self.others)
    }

    /// The devices of the default routes of the main table, best first.
    pub(super) fn default_devices(&self) -> impl Iterator<Item = &str> {
        let mut defaults: Vec<&Route> =
            self.main.iter().filter(|route| route.destination.length == 0).collect();
        defaults.sort_by_key(|route| route.metric.unwrap_or(0));
        defaults.into_iter().flat_map(Route::all_hops).filter_map(|hop| hop.device.as_deref())
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
        self.iter().any(|route| route.match_of(address).is_some() && route.usable_over(device).is_some())
    }

    /// The routes over `device` as `ip route replace` takes them, connected ones first so that gateways can be reached. The routes to
    /// each destination come from one table, the first of those for a device with these addresses, in the domain with this table if in any.
    pub(super) fn over(&self, device: &str, addresses: &[Prefix], domain: Option<u32>) -> Vec<String> {
        // First, because other devices may have a million routes.
        let routes = self.iter().filter_map(|route| Some((route, route.usable_over(device)?)));
        let routes: Vec<_> = routes.collect();
        let chosen = self.rules.iter().filter(|rule| rule.chooses(device, addresses));
        let ruled = chosen.filter_map(|rule| if rule.is_of_domains { domain } else { rule.table });
        let mut tables: Vec<u32> = Vec::new();
        for table in ruled.chain(domain).chain([MAIN]).chain(routes.iter().map(|(route, _)| route.table)) {
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        let place = |route: &Route| tables.iter().position(|table| *table == route.table);
        let found = routes.into_iter().filter_map(|(route, hop)| Some((place(route)?, route, hop)));
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|(place, ..)| *place);
        let mut chosen: BTreeMap<(IpAddr, u8), usize> = BTreeMap::new();
        found.retain(|(place, Route { destination, .. }, _)| {
            *chosen.entry((destination.address, destination.length)).or_insert(*place) == *place
        });
        found.sort_by_key(|(_, _, hop)| hop.gateway.is_some());
        found.into_iter().map(|(_, route, hop)| route.in_words(hop, device)).collect()
    }
}

/// The routes of a family over the device with this number, or over all.
fn list(
    netlink: &mut Netlink,
    family: Family,
    over: Option<u32>,
    names: &Names,
) -> Result<Vec<Route>, Error> {
    let number = family.number();
    let mut question =
        rt_route::Request::new().op_getroute_dump(&Rtmsg { rtm_family: number, ..Rtmsg::new() });
    if let Some(device) = over {
        question.encode().push_oif(device);
    }
    netlink.ask(&question, |(header, facts)| {
        // A kernel without IPv6 lists the routes of all other families, and old kernels list cached ones.
        let is_asked = header.rtm_family == number && header.rtm_flags & RtmFlag::Cloned as u32 == 0;
        let is_local = u32::from(header.rtm_table) == LOCAL;
        (is_asked && !is_local).then(|| Route::of(&header, facts, family, names))
    })
}

impl Rule {
    /// The rule in an answer.
    fn of(header: &FibRuleHdr, facts: IterableFibRuleAttrs<'_>) -> Self {
        let mut rule = Self {
            source: None,
            output: None,
            table: Some(u32::from(header.table)),
            is_of_domains: false,
            is_special: header.flags & FIB_RULE_INVERT != 0
                || header.action != FrAct::ToTbl as u8
                || (header.dst_len, header.tos) != (0, 0),
        };
        for fact in facts {
            match fact {
                Ok(FibRuleAttrs::Src(address)) => {
                    rule.source = Some(Prefix { address, length: header.src_len });
                }
                Ok(FibRuleAttrs::Oifname(name)) => rule.output = Some(name.to_string_lossy().into_owned()),
                Ok(FibRuleAttrs::Table(table)) => rule.table = Some(table),
                Ok(FibRuleAttrs::L3mdev(is_set)) => rule.is_of_domains = is_set != 0,
                // The kernel says that it does not suppress any route.
                Ok(
                    FibRuleAttrs::SuppressPrefixlen(u32::MAX)
                    | FibRuleAttrs::SuppressIfgroup(u32::MAX)
                    | FibRuleAttrs::Priority(_)
                    | FibRuleAttrs::Protocol(_)
                    | FibRuleAttrs::Pad(_),
                ) => {}
                // A selector, or one that is newer than plait.
                Ok(_) | Err(_) => rule.is_special = true,
            }
        }
        rule.table = rule.table.filter(|table| *table != 0);
        rule.source = rule.source.filter(|source| source.length != 0);
        rule
    }

    /// Whether it chooses its table for all packets from one of these addresses, or over this device.
    fn chooses(&self, device: &str, addresses: &[Prefix]) -> bool {
        let is_for_device = self.output.as_deref().is_none_or(|output| output == device);
        let is_for_address = || {
            self.source
                .is_none_or(|source| addresses.iter().any(|own| source.overlaps(Prefix::host(own.address))))
        };
        !self.is_special && is_for_device && is_for_address()
    }
}

impl Route {
    /// The route in an answer.
    fn of(header: &Rtmsg, facts: IterableRouteAttrs<'_>, family: Family, names: &Names) -> Self {
        let mut route = Self {
            destination: Prefix { address: family.unspecified(), length: header.rtm_dst_len },
            table: u32::from(header.rtm_table),
            is_unicast: header.rtm_type == RtmType::Unicast as u8,
            is_dead: header.rtm_flags & RTNH_F_DEAD != 0,
            is_onlink: header.rtm_flags & RTNH_F_ONLINK != 0,
            metric: None,
            hop: NextHop::of(facts),
            hops: Vec::new(),
        };
        for fact in facts.flatten() {
            match fact {
                RouteAttrs::Dst(address) => route.destination.address = address,
                RouteAttrs::Table(table) => route.table = table,
                RouteAttrs::Priority(metric) => route.metric = Some(metric),
                RouteAttrs::Oif(index) => route.hop.device = names.get(&index).cloned(),
                RouteAttrs::Multipath(hops) => route.hops = next_hops(hops, names),
                _ => {}
            }
        }
        route
    }

    /// The network that it leads to, unless that is everything.
    pub(super) fn network(&self) -> Option<Prefix> {
        Some(self.destination).filter(|destination| destination.length != 0)
    }

    /// Its next hops.
    fn all_hops(&self) -> impl Iterator<Item = &NextHop> {
        std::iter::once(&self.hop).chain(&self.hops)
    }

    /// Its next hop over `device`.
    fn hop_over(&self, device: &str) -> Option<&NextHop> {
        self.all_hops().find(|hop| hop.device.as_deref() == Some(device))
    }

    /// The same, if packets can take it.
    fn usable_over(&self, device: &str) -> Option<&NextHop> {
        self.hop_over(device).filter(|_| self.is_unicast && !self.is_dead)
    }

    /// Its gateway, if it leads over `device`.
    pub(super) fn gateway_over(&self, device: &str) -> Option<IpAddr> {
        self.hop_over(device)?.gateway
    }

    /// The device of its first next hop, if it is a route to other hosts.
    fn device(&self) -> Option<&str> {
        self.all_hops().find_map(|hop| hop.device.as_deref()).filter(|_| self.is_unicast)
    }

    /// The length of its prefix, if that has `address`.
    fn match_of(&self, address: IpAddr) -> Option<u8> {
        let Prefix { length, .. } = self.destination;
        (length == 0 || self.destination.overlaps(Prefix::host(address))).then_some(length)
    }

    /// The route by this next hop, as `ip route` takes it.
    fn in_words(&self, hop: &NextHop, device: &str) -> String {
        let Prefix { address, length } = self.destination;
        let mut words = match self.network() {
            None => "default".to_owned(),
            Some(network) if length == Prefix::host(address).length => network.address.to_string(),
            Some(network) => network.to_string(),
        };
        if let Some(gateway) = hop.gateway {
            let family = match (gateway, address) {
                (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => "",
                (IpAddr::V4(_), IpAddr::V6(_)) => "inet ",
                (IpAddr::V6(_), IpAddr::V4(_)) => "inet6 ",
            };
            let _ = write!(words, " via {family}{gateway}");
        }
        let _ = write!(words, " dev {device}");
        if self.is_onlink {
            words += " onlink";
        }
        if let Some(metric) = self.metric {
            let _ = write!(words, " metric {metric}");
        }
        words
    }
}

impl NextHop {
    /// The next hop in the facts of a route or of one of its next hops, without its device.
    fn of(facts: IterableRouteAttrs<'_>) -> Self {
        let same_family = facts.flatten().find_map(|fact| match fact {
            RouteAttrs::Gateway(gateway) => Some(gateway),
            _ => None,
        });
        let other_family = || parse_ip(find_attr(facts.get_buf(), RTA_VIA)?.get(2..)?);
        Self { gateway: same_family.or_else(other_family), device: None }
    }
}

/// The next hops of a route with several (linux/rtnetlink.h, `struct rtnexthop`): length, flags, weight and device of each, and its facts.
fn next_hops(mut rest: &[u8], names: &Names) -> Vec<NextHop> {
    const HEADER: usize = 8;
    let mut hops = Vec::new();
    while let (Some(length), Some(index)) = (parse_u16(rest), rest.get(4..).and_then(parse_i32)) {
        let length = usize::from(length);
        let Some(facts) = rest.get(HEADER..length) else { break };
        let device = names.get(&index.cast_unsigned()).cloned();
        hops.push(NextHop { device, ..NextHop::of(RouteAttrs::new(facts)) });
        rest = &rest[nla_align_up(length).min(rest.len())..];
    }
    hops
}

#[cfg(test)]
impl RoutingTables {
    pub(super) fn drop_routes_over(&mut self, device: &str) {
        let is_other = |route: &Route| route.hop.device.as_deref() != Some(device);
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
        RoutingTables::shown(ROUTES, rules).over("wan", &[own], None)
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
