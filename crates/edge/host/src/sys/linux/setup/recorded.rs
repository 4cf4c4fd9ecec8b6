//! The state of a kernel whose answers are bytes in this file: for devices that the kernel of a test lacks.

use std::ffi::CStr;
use std::net::IpAddr;
use std::os::unix::net::UnixDatagram;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netlink_bindings::builtin::Nlmsghdr;
use netlink_bindings::consts::NLM_F_MULTI;
use netlink_bindings::rt_addr::{Ifaddrmsg, PushAddrAttrs};
use netlink_bindings::rt_link::{IfinfoFlags, Ifinfomsg, PushLinkAttrs};
use netlink_bindings::rt_route::{PushRouteAttrs, RtmType, Rtmsg};
use netlink_bindings::rt_rule::{FibRuleHdr, FrAct, PushFibRuleAttrs};

use super::netlink::Netlink;
use super::snapshot::{Family, Snapshot};
use super::source_check;
use crate::path_obstacle::PathObstacle;

/// Types of questions, of answers (plait knows them by its question), and of their end (linux/rtnetlink.h, linux/netlink.h).
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const RTM_GETRULE: u16 = 34;
const NLMSG_DONE: u16 = 3;

/// Questions of a look: devices, addresses, and of each family routes and rules.
const QUESTIONS: usize = 6;

/// Time for an answer: a test that is wrong ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// The answers to each of the questions.
#[derive(Default)]
struct Kernel {
    links: Vec<Vec<u8>>,
    addresses: Vec<Vec<u8>>,
    routes: Vec<Vec<u8>>,
    rules: Vec<Vec<u8>>,
}

/// A kernel with the domain `red` of table 10, which has `eth0`, the VLAN `eth0.7` beside it, and the tunnel `gre1` in the domain, over `eth0`.
fn kernel() -> Kernel {
    let mut kernel = Kernel::default();
    kernel.link(1, c"red", |facts| drop(facts.nested_linkinfo().nested_data_vrf().push_table(10)));
    kernel.link(2, c"eth0", |facts| drop(facts.push_master(1)));
    kernel
        .link(3, c"eth0.7", |facts| drop(facts.push_link(2).nested_linkinfo().nested_data_vlan().push_id(7)));
    let far = address("192.0.2.9");
    kernel.link(4, c"gre1", |facts| {
        drop(facts.push_master(1).push_link(2).nested_linkinfo().nested_data_gre().push_remote(far));
    });
    kernel.link(5, c"wan", |_| {});
    for (device, own) in [(2, "10.1.1.1"), (3, "10.7.7.1"), (4, "10.4.4.1"), (5, "10.5.5.1")] {
        kernel.address(device, own);
    }
    for (table, device, gateway) in [
        (5, 2, "10.1.1.5"),
        (10, 2, "10.1.1.10"),
        (254, 2, "10.1.1.254"),
        (10, 4, "10.4.4.10"),
        (254, 3, "10.7.7.254"),
        (10, 3, "10.7.7.10"),
        (254, 5, "10.5.5.254"),
    ] {
        kernel.default_route(table, device, gateway);
    }
    kernel
}

/// The rules that the kernel makes with the first domain.
fn with_rules(mut kernel: Kernel) -> Kernel {
    kernel.rule(1000, |facts| drop(facts.push_l3mdev(1)));
    kernel.rule(32_766, |facts| drop(facts.push_table(254)));
    kernel
}

fn over(snapshot: &Snapshot, device: &str) -> Vec<String> {
    snapshot.routes_over(device, Family::V4)
}

#[test]
fn a_path_in_a_domain_uses_the_table_of_its_domain() {
    let snapshot = with_rules(kernel()).snapshot();
    assert_eq!(over(&snapshot, "eth0"), ["default via 10.1.1.10 dev eth0"]);
    assert_eq!(over(&snapshot, "gre1"), ["default via 10.4.4.10 dev gre1"]);
    assert_eq!(over(&snapshot, "wan"), ["default via 10.5.5.254 dev wan"]);
    assert_eq!(
        over(&snapshot, "eth0.7"),
        ["default via 10.7.7.254 dev eth0.7"],
        "its lower device is in a domain"
    );
    assert!(snapshot.leads_out("eth0") && snapshot.leads_out("gre1") && !snapshot.leads_out("red"));
}

#[test]
fn a_path_in_a_domain_uses_its_table_where_the_rule_of_the_kernel_is_missing() {
    assert_eq!(over(&kernel().snapshot(), "eth0"), ["default via 10.1.1.10 dev eth0"]);
}

#[test]
fn a_rule_before_that_of_the_domains_decides_and_one_behind_it_does_not() {
    for (priority, gateway) in [(100, "10.1.1.5"), (2000, "10.1.1.10")] {
        let mut kernel = kernel();
        let ours = |kernel: &mut Kernel| {
            kernel.rule(priority, |facts| drop(facts.push_oifname(c"eth0").push_table(5)));
        };
        if priority < 1000 {
            ours(&mut kernel);
        }
        kernel.rule(1000, |facts| drop(facts.push_l3mdev(1)));
        if priority > 1000 {
            ours(&mut kernel);
        }
        assert_eq!(over(&kernel.snapshot(), "eth0"), [format!("default via {gateway} dev eth0")]);
    }
}

#[test]
fn devices_of_a_domain_are_devices_as_others_are_and_a_tunnel_in_it_is_one() {
    let snapshot = with_rules(kernel()).snapshot();
    let names: Vec<_> = snapshot.candidates().iter().map(|device| device.name.to_owned()).collect();
    assert_eq!(names, ["red", "eth0", "eth0.7", "gre1", "wan"]);
    let eth0 = snapshot.device("eth0");
    assert_eq!((eth0.v4.map(IpAddr::V4), eth0.mtu, eth0.is_up), (Some(address("10.1.1.1")), 1500, true));
    let tunnels = snapshot.tunnels_of(std::iter::empty());
    let gre = tunnels.of_device("gre1").expect("it is one");
    assert_eq!((gre.bound_to.as_deref(), &gre.remotes[..]), (Some("eth0"), &[address("192.0.2.9")][..]));
    for device in ["red", "eth0", "eth0.7"] {
        assert_eq!(tunnels.of_device(device), None, "{device}");
    }
}

#[test]
fn a_device_in_a_domain_carries_no_tcp_and_is_named_with_its_domain() {
    let snapshot = with_rules(kernel()).snapshot();
    for (device, domain) in [("eth0", Some("red")), ("gre1", Some("red")), ("eth0.7", None), ("wan", None)] {
        assert_eq!(snapshot.takes_tcp(device), domain.is_none(), "{device}");
        assert!(snapshot.device(device).is_up, "{device} is one over UDP");
        let named = domain.map(|domain| PathObstacle::RoutingDomain {
            device: device.to_owned(),
            domain: domain.to_owned(),
        });
        assert_eq!(source_check::domain(&snapshot, device), named);
    }
    assert!(!snapshot.takes_tcp("gone"));
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Kernel {
    fn link(&mut self, index: i32, name: &CStr, more: impl FnOnce(PushLinkAttrs<&mut Vec<u8>>)) {
        let mut header = Ifinfomsg::new();
        header.ifi_type = libc::ARPHRD_ETHER;
        header.ifi_index = index;
        header.ifi_flags = IfinfoFlags::Up as u32 | IfinfoFlags::LowerUp as u32;
        let mut message = header.as_slice().to_vec();
        more(PushLinkAttrs::new(&mut message).push_ifname(name).push_mtu(1500));
        self.links.push(message);
    }

    fn address(&mut self, device: u32, own: &str) {
        let mut header = Ifaddrmsg::new();
        (header.ifa_family, header.ifa_prefixlen, header.ifa_index) = (Family::V4.number(), 24, device);
        let mut message = header.as_slice().to_vec();
        drop(PushAddrAttrs::new(&mut message).push_local(address(own)));
        self.addresses.push(message);
    }

    fn default_route(&mut self, table: u32, device: u32, gateway: &str) {
        let mut header = Rtmsg::new();
        header.rtm_family = Family::V4.number();
        header.rtm_type = RtmType::Unicast as u8;
        let mut message = header.as_slice().to_vec();
        let facts = PushRouteAttrs::new(&mut message).push_table(table).push_oif(device);
        drop(facts.push_gateway(address(gateway)));
        self.routes.push(message);
    }

    fn rule(&mut self, priority: u32, more: impl FnOnce(PushFibRuleAttrs<&mut Vec<u8>>)) {
        let mut header = FibRuleHdr::new();
        (header.family, header.action) = (Family::V4.number(), FrAct::ToTbl as u8);
        let mut message = header.as_slice().to_vec();
        more(PushFibRuleAttrs::new(&mut message).push_priority(priority));
        self.rules.push(message);
    }

    /// What plait makes of these answers.
    fn snapshot(self) -> Snapshot {
        let (ours, theirs) = UnixDatagram::pair().expect("sockets");
        for socket in [&ours, &theirs] {
            socket.set_read_timeout(Some(PATIENCE)).expect("set");
        }
        let answering = self.answer(theirs);
        let snapshot = Snapshot::read_from(&mut Netlink::over(ours.into()), |_, _| None).expect("a state");
        answering.join().expect("all questions are known");
        snapshot
    }

    /// Answers all questions of a look.
    fn answer(self, socket: UnixDatagram) -> JoinHandle<()> {
        thread::spawn(move || {
            let mut question = [0; 4096];
            for _ in 0..QUESTIONS {
                let length = socket.recv(&mut question).expect("a question");
                let asked =
                    question.get(..Nlmsghdr::len()).and_then(Nlmsghdr::new_from_slice).expect("a header");
                let family = question[Nlmsghdr::len()];
                assert!(length > Nlmsghdr::len());
                let answers = match asked.r#type {
                    RTM_GETLINK => &self.links,
                    RTM_GETADDR => &self.addresses,
                    RTM_GETROUTE if family == Family::V4.number() => &self.routes,
                    RTM_GETRULE if family == Family::V4.number() => &self.rules,
                    RTM_GETROUTE | RTM_GETRULE => &Vec::new(),
                    other => panic!("{other} is none of the questions"),
                };
                let mut said = Vec::new();
                answers.iter().for_each(|answer| said.extend(message(RTM_NEWLINK, asked.seq, answer)));
                said.extend(message(NLMSG_DONE, asked.seq, &0_i32.to_ne_bytes()));
                socket.send(&said).expect("the other end waits");
            }
        })
    }
}

/// A message of a list.
fn message(kind: u16, sequence: u32, content: &[u8]) -> Vec<u8> {
    let mut header = Nlmsghdr::new();
    header.len = u32::try_from(Nlmsghdr::len() + content.len()).expect("short");
    (header.r#type, header.flags, header.seq) = (kind, NLM_F_MULTI as u16, sequence);
    let mut message = [header.as_slice(), content].concat();
    message.resize(message.len().next_multiple_of(4), 0);
    message
}
