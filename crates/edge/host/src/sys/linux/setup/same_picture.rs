//! What netlink says is what `ip` shows.
//! Most need root: `cargo test -p plait-host --lib same_picture -- --ignored`.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_bindings::rt_link::{LinkAttrs, PushLinkAttrs};
use plait_netns::Namespace;

use super::links::Link;
use super::neighbours::Neighbours;
use super::snapshot::{Family, Snapshot};
use super::tunnels::{Carried, Tunnels};
use crate::path_rule::PathRule;

/// Devices that this kernel has without modules: veth, a bridge, macvlan, VXLAN and TUN.
const DEVICES: &str = "link add eth0 type veth peer name eth1
link add br0 type bridge
link set eth0 address 02:00:00:00:00:01
link set eth0 up
link set eth1 up
link property add dev eth0 altname a-name-of-more-than-fifteen-characters altname other
link add va type veth peer name vb
link set va up
link set va mtu 1400
link add link eth0 name mv type macvlan
link set mv up
link add vx4 type vxlan id 4 remote 10.0.0.5 dstport 4789 dev eth0
link add vx6 type vxlan id 6 remote fd00::5 dstport 4790
link add vxm type vxlan id 7 group 239.1.1.1 dstport 4791 dev eth0
tuntap add tun0 mode tun
address add 10.1.0.1/24 dev eth0
address add 10.1.0.7/24 dev eth0
address add 10.3.0.1 peer 10.3.0.2 dev eth0
address add 169.254.3.3/16 dev eth0 scope link
address add 10.1.0.9/24 dev eth0 preferred_lft 0 valid_lft 1000
address add fd00::1/64 dev eth0 nodad
address add fd00::2/64 dev eth0 nodad preferred_lft 0
address add fd00::3/64 dev va
";

const ROUTES: &str = "nexthop add id 1 via 10.1.0.2 dev eth0
nexthop add id 2 via 10.1.0.3 dev eth0
nexthop add id 3 group 1/2
nexthop add id 4 blackhole
nexthop add id 5 via fd00::9 dev eth0
route add default via 10.1.0.254 dev eth0 metric 100
route add default via 10.1.0.253 dev eth0 metric 50
route add default via 10.1.0.252 dev eth0 table 100
route add 10.5.0.0/16 nhid 3
route add 10.55.0.0/16 nhid 4
route add 10.6.0.0/16 nexthop via 10.1.0.2 dev eth0 weight 3 nexthop via 10.1.0.3 dev eth0 onlink
route add 10.7.0.0/16 via inet6 fe80::1 dev eth0
route add 10.77.0.0/16 nexthop via inet6 fe80::1 dev eth0 nexthop via 10.1.0.3 dev eth0
route add 10.8.0.0/16 via 10.44.0.1 dev eth0 onlink metric 7 table 33
route add 10.88.0.1 dev eth0 mtu 1300 src 10.1.0.7
route add blackhole 10.99.0.0/16
route add unreachable 10.98.0.0/16 table 5
route add prohibit 10.97.0.0/16
route add throw 10.96.0.0/16 table 5
route add 10.95.0.0/16 dev eth0 table 1886126080
route add 10.94.0.0/16 dev va
route add local 10.93.0.1 dev lo table 300
-6 route add default via fd00::fe dev eth0 metric 10
-6 route add default via fe80::fe dev eth0 table 100
-6 route add fd01::/64 nexthop via fd00::9 dev eth0 nexthop via fd00::8 dev eth0
-6 route add fd02::/64 nhid 5
-6 route add unreachable fd09::/64
-6 route add blackhole fd08::/64 table 7
";

const RULES: &str = "rule add from 10.1.0.1 lookup 100
rule add from 10.1.0.0/24 fwmark 5 lookup 100
rule add from 10.1.0.0/24 lookup 33
rule add uidrange 0-5 lookup 100
rule add ipproto tcp dport 5 lookup 100
rule add not from 10.1.1.1 lookup 100
rule add l3mdev
rule add table main suppress_prefixlength 0
rule add table main suppress_ifgroup 5
rule add from 10.9.9.9 blackhole
rule add from all goto 32766 pref 5
rule add oif eth0 lookup 101
rule add oif gone lookup 101
rule add iif eth0 lookup 101
rule add to 10.2.0.0/16 lookup 101
rule add tos 0x10 lookup 101
rule add lookup 1886126080
-6 rule add from fd00::1 lookup 100
-6 rule add from fd00::/64 lookup 7
";

/// Runs these lines of `ip -batch`, those for IPv6 last.
fn batch(namespace: &Namespace, lines: &str) {
    let unique = format!("plait-batch-{}-{:?}", std::process::id(), std::thread::current().id());
    let file = std::env::temp_dir().join(unique);
    let (v6, others): (Vec<_>, Vec<_>) = lines.lines().map(str::trim).partition(|line| line.starts_with(V6));
    for (option, lines) in [("-oneline", others), (V6.trim(), v6)] {
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_start_matches(V6)).collect();
        std::fs::write(&file, lines.join("\n")).expect("written");
        let done = namespace.ip(&format!("{option} -batch {}", file.display()));
        std::fs::remove_file(&file).expect("removed");
        done.expect("made");
    }
}

/// Begins a line for IPv6.
const V6: &str = "-6 ";

fn namespace(lines: &[&str]) -> Namespace {
    let namespace = Namespace::anonymous().expect("a namespace");
    lines.iter().for_each(|lines| batch(&namespace, lines));
    namespace
}

fn assert_same(namespace: &Namespace) {
    let (said, shown) =
        namespace.enter(|| (Snapshot::take().expect("a state"), Snapshot::by_ip())).expect("entered");
    for (said, shown) in said.links().zip(shown.links()) {
        assert_eq!(said, shown);
    }
    assert_eq!(said, shown);
}

#[test]
#[ignore = "needs root"]
fn netlink_says_what_ip_shows() {
    assert_same(&namespace(&[]));
    let namespace = namespace(&[DEVICES, ROUTES, RULES]);
    // An address on a device without a carrier stays tentative.
    assert_same(&namespace);
    let said = namespace.enter(Snapshot::take).expect("entered").expect("a state");
    let count = |family: Family| said.routes_over("eth0", family).len();
    assert_eq!((count(Family::V4), count(Family::V6)), (10, 5), "nothing was left out: {said:#?}");
    assert_eq!(said.link("va").expect("there").v6(), None, "tentative");
    assert_eq!(said.default_devices(), ["eth0"]);
    let tunnel = |device: &str| said.tunnels_of(std::iter::empty()).of_device(device).cloned();
    assert_eq!(tunnel("vx4").map(|tunnel| tunnel.remotes), Some(vec![IpAddr::from([10, 0, 0, 5])]));
    assert_eq!(
        tunnel("vx6").map(|tunnel| tunnel.remotes),
        Some(vec!["fd00::5".parse().expect("an address")])
    );
    assert_eq!(tunnel("vxm"), None, "a group has no single end");
}

#[test]
#[ignore = "needs root"]
fn the_routes_of_a_path_are_the_same_if_those_over_other_devices_are_left_out() {
    let namespace = namespace(&[DEVICES, ROUTES, RULES]);
    let rules =
        |devices: &[&str]| devices.iter().map(|it| it.parse().expect("a rule")).collect::<Vec<PathRule>>();
    for devices in [&["eth0"][..], &["va"], &["eth0", "va"], &["eth*", "v*"], &["default"], &["missing"]] {
        let take = || (Snapshot::take(), Snapshot::take_for(&rules(devices)));
        let (all, some) = namespace.enter(take).expect("entered");
        let (all, some) = (all.expect("a state"), some.expect("a state"));
        let rules = rules(devices);
        let mut paths = all.candidates();
        paths.retain(|device| rules.iter().any(|rule| rule.may_select(device)));
        for device in paths.iter().map(|device| device.name) {
            for family in Family::BOTH {
                assert_eq!(all.routes_over(device, family), some.routes_over(device, family), "{device}");
            }
            assert_eq!(all.gateways_over(device), some.gateways_over(device), "{device}");
            assert_eq!(all.leads_out(device), some.leads_out(device), "{device}");
        }
    }
    let over_all = |rules: &[PathRule]| {
        let some = namespace.enter(|| Snapshot::take_for(rules)).expect("entered").expect("a state");
        !some.routes_over("eth0", Family::V4).is_empty()
    };
    assert!(over_all(&rules(&["default"])) && !over_all(&rules(&["va"])), "the others are left out");
}

#[test]
#[ignore = "needs root"]
fn routes_by_way_of_netlink_can_be_installed_again() {
    let namespace = namespace(&[DEVICES, ROUTES]);
    let copied = |family: Family| {
        namespace.enter(|| Snapshot::take().expect("a state").routes_over("eth0", family)).expect("entered")
    };
    for family in Family::BOTH {
        let (before, mut lines) = (copied(family), String::new());
        for route in &before {
            let prefix = if family == Family::V6 { V6 } else { "" };
            let _ = writeln!(lines, "{prefix}route replace {route} table 4000");
        }
        batch(&namespace, &lines);
        let shown = namespace.ip(&format!("{} route show table 4000", family.option())).expect("shown");
        assert!(!before.is_empty() && shown.lines().count() >= before.len() - 1, "{before:#?}\n{shown}");
    }
}

#[test]
#[ignore = "needs root"]
fn neighbours_are_those_that_ip_shows() {
    let namespace = namespace(&[
        DEVICES,
        "neigh add 10.1.0.2 lladdr 02:00:00:00:00:09 dev eth0
        neigh add 10.1.0.3 lladdr 02:00:00:00:00:0a dev eth0 nud stale
        neigh add 10.1.0.4 lladdr 02:00:00:00:00:0b dev eth0 nud noarp
        neigh add fd00::8 lladdr 02:00:00:00:00:0c dev eth0
        neigh add fd00::9 nud failed dev eth0
        neigh add proxy 10.1.0.5 dev eth0
        ",
    ]);
    let (said, shown) = namespace
        .enter(|| {
            let snapshot = Snapshot::take().expect("a state");
            (Neighbours::read(snapshot.links()), Neighbours::by_ip())
        })
        .expect("entered");
    assert_eq!(said, shown);
    assert_eq!(said.link_address("eth0", "fd00::8".parse().expect("an address")), Some("02:00:00:00:00:0c"));
    assert_eq!(said.link_address("eth0", IpAddr::from([10, 1, 0, 4])), None);
}

#[test]
#[ignore = "needs root"]
fn the_device_towards_an_address_is_that_of_ip_route_get() {
    use super::routes::{device_from, device_towards};
    let namespace = namespace(&[DEVICES, ROUTES]);
    let towards = |address: &str| {
        let address = address.parse().expect("an address");
        namespace.enter(|| device_towards(address)).expect("entered").ok().flatten()
    };
    assert_eq!(towards("192.0.2.1").as_deref(), Some("eth0"));
    assert_eq!(towards("10.94.1.1").as_deref(), Some("va"));
    assert_eq!(towards("127.0.0.1").as_deref(), Some("lo"));
    assert_eq!(towards("fd01::5").as_deref(), Some("eth0"));
    assert_eq!(towards("10.99.1.1"), None, "a black hole");
    let from =
        |own: [u8; 4], to: [u8; 4]| namespace.enter(|| device_from(own.into(), to.into())).expect("entered");
    assert_eq!(from([10, 1, 0, 7], [192, 0, 2, 1]).expect("a route").as_deref(), Some("eth0"));
    assert!(from([203, 0, 113, 1], [192, 0, 2, 1]).is_err(), "not our address");
}

/// Devices that this kernel lacks, in messages that the encoder of the library has made from the kernel's specification.
#[test]
fn tunnels_of_kinds_that_this_kernel_lacks_are_read() {
    let v4 = IpAddr::from([192, 0, 2, 9]);
    let v6: IpAddr = "2001:db8::9".parse().expect("an address");
    let octets = "2001:db8::9".parse::<std::net::Ipv6Addr>().expect("an address").octets();
    let mut facts: [Vec<u8>; 10] = std::array::from_fn(|_| Vec::new());
    let [gre, gretap, ip6gre, ipip, ip6tnl, vti, geneve, wireguard, vrf, away] = &mut facts;
    let info = |buffer| PushLinkAttrs::new(buffer).push_link(7).nested_linkinfo();
    info(gre).nested_data_gre().push_remote(v4);
    info(gretap).nested_data_gretap().push_remote(v4);
    info(ip6gre).nested_data_ip6gre().push_remote(&octets);
    info(ipip).nested_data_ipip().push_remote(v4);
    info(ip6tnl).nested_data_ip6tnl().push_remote(&octets);
    info(vti).nested_data_vti().push_remote(v4);
    info(geneve).nested_data_geneve().push_remote6(&octets);
    info(wireguard).push_kind(c"wireguard");
    info(vrf).nested_data_vrf().push_table(10);
    PushLinkAttrs::new(away)
        .push_link(7)
        .push_link_netnsid(0)
        .nested_linkinfo()
        .nested_data_sit()
        .push_remote(v4);
    let names = ["gre1", "tap1", "gre6", "ipip1", "tnl6", "vti1", "gnv1", "wg0", "vrf1", "sit1"];
    let named = |name: &str, index| Link { name: name.to_owned(), index, ..Link::default() };
    let links: Vec<Link> = names.iter().map(|name| named(name, 1)).chain([named("eth0", 7)]).collect();
    let carried = facts.iter().map(|facts| Carried::of(LinkAttrs::new(facts))).collect();
    let tunnels = Tunnels::among(&links, carried);
    for (name, remote) in
        [("gre1", v4), ("tap1", v4), ("gre6", v6), ("ipip1", v4), ("tnl6", v6), ("vti1", v4), ("gnv1", v6)]
    {
        let tunnel = tunnels.of_device(name).expect(name);
        assert_eq!((tunnel.bound_to.as_deref(), &tunnel.remotes), (Some("eth0"), &vec![remote]), "{name}");
    }
    assert!(tunnels.is_unreadable("wg0"));
    assert_eq!(tunnels.of_device("vrf1"), None);
    assert_eq!(tunnels.of_device("sit1").and_then(|tunnel| tunnel.bound_to.clone()), None, "it is elsewhere");
}

mod long {
    use super::*;

    /// The median time of some looks.
    fn time(namespace: &Namespace, look: impl Fn() + Sync) -> Duration {
        let times = (0..9).map(|_| {
            let look = || {
                let start = Instant::now();
                look();
                start.elapsed()
            };
            namespace.enter(look).expect("entered")
        });
        let mut times: Vec<Duration> = times.collect();
        times.sort();
        times[times.len() / 2]
    }

    /// Prints the time of a look by netlink, and by the five programs that show the same: `--nocapture`.
    #[test]
    #[ignore = "needs root"]
    fn a_look_costs_less_than_programs_that_show_the_same() {
        let mut routes =
            "link add br0 type bridge\nlink set br0 up\naddress add 10.1.0.1/16 dev br0\n".to_owned();
        for number in 0..100_000 {
            let (a, b, c) = (20 + number / 65536, number / 256 % 256, number % 256);
            let _ = writeln!(routes, "route add {a}.{b}.{c}.0/24 via 10.1.0.2 dev br0");
        }
        let mut devices = String::new();
        for number in 0..500 {
            let (b, c) = (number / 256, number % 256);
            let _ = writeln!(devices, "link add a{number} type veth peer name b{number}");
            let _ = writeln!(devices, "address add 10.{b}.{c}.1/24 dev a{number}\nlink set a{number} up");
        }
        for (name, lines) in [("nothing", ""), ("100,000 routes", &routes), ("1,000 devices", &devices)] {
            let namespace = namespace(&[lines]);
            let netlink = time(&namespace, || drop(Snapshot::take().expect("a state")));
            let programs = time(&namespace, || drop(Snapshot::by_ip()));
            let ratio = programs.as_secs_f64() / netlink.as_secs_f64();
            println!("{name}: netlink {netlink:?}, ip {programs:?}, ratio {ratio:.1}");
            assert!(netlink < programs, "{name}");
        }
    }

    /// Prints the time of a look with the routes over all devices, and without those over a device that is no path.
    #[test]
    #[ignore = "needs root"]
    fn a_full_table_over_a_device_that_is_no_path_costs_little() {
        let mut lines = "link add br0 type bridge\nlink set br0 up\naddress add 10.1.0.1/16 dev br0\n\
            link add br1 type bridge\nlink set br1 up\naddress add 10.2.0.1/16 dev br1\n"
            .to_owned();
        for number in 0..100_000 {
            let (a, b, c) = (20 + number / 65536, number / 256 % 256, number % 256);
            let _ = writeln!(lines, "route add {a}.{b}.{c}.0/24 via 10.1.0.2 dev br0");
        }
        let namespace = namespace(&[&lines]);
        let rules: [PathRule; 1] = ["br1".parse().expect("a rule")];
        let all = time(&namespace, || drop(Snapshot::take().expect("a state")));
        let some = time(&namespace, || drop(Snapshot::take_for(&rules).expect("a state")));
        let ratio = all.as_secs_f64() / some.as_secs_f64();
        println!(
            "100,000 routes: over all devices {all:?}, over that of the path {some:?}, ratio {ratio:.1}"
        );
        assert!(ratio > 3.0, "{ratio:.1}");
    }
}
