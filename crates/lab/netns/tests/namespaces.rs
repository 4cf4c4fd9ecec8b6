//! The crate against the real kernel: `cargo test -p plait-netns -- --ignored`, as root.

#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use plait_netns::mptcp::{Endpoint, EndpointFlag};
use plait_netns::nft::Table;
use plait_netns::{Cidr, Link, Namespace, Offload, Rate, Route, Rule, Target, veth};

#[test]
#[ignore = "needs root"]
fn a_named_namespace_is_seen_by_ip_and_gone_after_the_last_handle() {
    let namespace = namespace("seen");
    let name = namespace.name().expect("it is named").to_owned();
    let second = namespace.clone();
    drop(namespace);
    assert!(names().contains(&name), "a clone keeps it");
    drop(second);
    assert!(!names().contains(&name), "the last handle deletes it");
}

#[test]
#[ignore = "needs root"]
fn a_closure_inside_does_not_move_the_callers_thread() {
    let namespace = namespace("inside");
    let own = || std::fs::read_link("/proc/thread-self/ns/net").expect("proc is mounted");
    let (before, inside) = (own(), namespace.enter(own).expect("entered"));
    assert_ne!(before, inside);
    assert_eq!(before, own());
}

#[test]
#[ignore = "needs root"]
fn two_namespaces_talk_over_a_veth_in_both_families_and_a_black_hole_is_silent() {
    let (a, b) = pair();
    let (long, short) = (Duration::from_secs(10), Duration::from_millis(300));
    let echo = |address, timeout| echo(a.namespace(), b.namespace(), address, timeout);
    for address in ["10.7.0.2", "fd07::2"] {
        assert_eq!(echo(address, long), Some(*b"ping"), "{address}");
    }
    let hole = Table::black_hole(b.namespace(), b.name()).expect("installed");
    assert_eq!(echo("10.7.0.2", short), None, "the packets are gone, without an error");
    assert!(hole.packets().expect("listed") > 0);
    drop(hole);
    assert_eq!(echo("10.7.0.2", long), Some(*b"ping"));
}

#[test]
#[ignore = "needs root"]
fn offloads_and_sysctls_read_back_as_they_were_set() {
    let (a, _b) = pair();
    assert!(a.has_offload(Offload::TcpSegmentation).expect("asked"));
    a.without_offloads().expect("veth takes them all");
    for offload in Offload::ALL {
        assert!(!a.has_offload(offload).expect("asked"), "{offload:?}");
    }
    let own = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").expect("readable");
    let other = if own.trim() == "1" { "0" } else { "1" };
    a.namespace().set_sysctl("net.ipv4.ip_forward", other).expect("set");
    assert_eq!(a.namespace().sysctl("net.ipv4.ip_forward").expect("read"), other);
    assert_eq!(std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").expect("readable"), own);
    assert!(a.namespace().set_sysctl("net.ipv4.no_such_thing", 1).is_err());
}

#[test]
#[ignore = "needs root"]
fn routes_and_rules_choose_the_way_and_can_be_taken_back() {
    let (a, _b) = pair();
    let namespace = a.namespace();
    let router: IpAddr = "10.7.0.2".parse().expect("an address");
    let route = Route::to(Target::DefaultV4).via(router).device(a.name()).table(77);
    namespace.add_route(&route).expect("the router is a neighbour");
    let rule = Rule::from(Cidr::host("10.7.0.1".parse().expect("an address")), 77);
    let reaches = || namespace.ip("route get 192.0.2.1 from 10.7.0.1").is_ok();
    assert!(!reaches(), "the main table has no default route");
    namespace.add_rule(&rule).expect("added");
    assert!(reaches());
    namespace.remove_rule(&rule).expect("removed");
    assert!(!reaches());
    assert!(namespace.add_route(&route).is_err(), "it is there already");
}

#[test]
#[ignore = "needs root"]
fn a_rate_limit_holds_to_the_rate() {
    let (a, b) = pair();
    for limit in [Link::limit_rate, Link::limit_rate_htb] {
        limit(&a, Rate::megabits(80)).expect("limited");
        let seconds = transfer(a.namespace(), b.namespace(), 5_000_000).as_secs_f64();
        // 5 MB at 10 MB/s, less what the buckets and socket buffers take at once; a busy machine may take longer.
        assert!(seconds > 0.3, "{seconds:.3} s");
        a.remove_rate_limit().expect("removed");
        let began = Instant::now();
        while transfer(a.namespace(), b.namespace(), 5_000_000).as_secs_f64() > 0.3 {
            assert!(began.elapsed() < Duration::from_secs(60), "it is still limited");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn the_kernels_path_manager_takes_limits_and_endpoints() {
    let (a, _b) = pair();
    let namespace = a.namespace();
    namespace.set_mptcp_limits(8, 8).expect("within the kernel's bounds");
    let endpoint = Endpoint {
        address: "10.7.0.1".parse().expect("an address"),
        id: 3,
        device: Some(a.name().to_owned()),
        port: None,
        flags: vec![EndpointFlag::Subflow],
    };
    namespace.add_mptcp_endpoint(&endpoint).expect("added");
    namespace.set_mptcp_backup(3, true).expect("changed");
    let shown = namespace.ip("mptcp endpoint show").expect("shown");
    assert!(shown.contains("id 3 subflow backup dev p1"), "{shown}");
    namespace.remove_mptcp_endpoint(3).expect("removed");
    assert!(namespace.remove_mptcp_endpoint(3).is_err());
}

#[test]
#[ignore = "needs root"]
fn the_sweep_takes_the_namespaces_of_the_dead_with_their_processes_and_leaves_those_of_the_living() {
    let living = namespace("living");
    // A process id that was ours to hand out and is free again.
    let mut brief = Command::new("true").spawn().expect("started");
    let dead = brief.id();
    brief.wait().expect("ended");
    let name = format!("plait-{dead}-0-dead");
    ip(&format!("netns add {name}"));
    let mut orphan = Command::new("ip")
        .args(["netns", "exec", &name, "sleep", "60"])
        .process_group(0)
        .spawn()
        .expect("started");
    while !pids(&name).contains(&orphan.id().to_string()) {
        std::thread::yield_now();
    }
    assert!(plait_netns::sweep().expect("swept").contains(&name));
    assert!(!names().contains(&name));
    assert!(!orphan.wait().expect("it was ours").success(), "it was killed");
    assert!(names().contains(&living.name().expect("named").to_owned()));
}

fn names() -> String {
    ip("netns list")
}

fn pids(name: &str) -> String {
    ip(&format!("netns pids {name}"))
}

fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("iproute2 is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn namespace(label: &str) -> Namespace {
    Namespace::named(label).expect("root can make namespaces")
}

fn pair() -> (Link, Link) {
    let (one, other) = (namespace("one"), Namespace::anonymous().expect("as root"));
    let (a, b) = veth((&one, "p1"), (&other, "p1")).expect("a pair");
    for (link, host) in [(&a, 1_u16), (&b, 2)] {
        let v4 = Cidr::new(format!("10.7.0.{host}").parse().expect("an address"), 24);
        let v6 = Cidr::new(format!("fd07::{host}").parse().expect("an address"), 64);
        link.add_address(v4).expect("added");
        link.add_address(v6).expect("added");
    }
    (a, b)
}

/// What comes back within `timeout`. Where something must, a lost SYN is to be sent again.
fn echo(from: &Namespace, to: &Namespace, address: &str, timeout: Duration) -> Option<[u8; 4]> {
    let address = SocketAddr::new(address.parse().expect("an address"), 4000);
    let listener = to.enter(|| TcpListener::bind(address)).expect("entered").expect("bound");
    let mut stream = from.enter(|| TcpStream::connect_timeout(&address, timeout)).expect("entered").ok()?;
    stream.write_all(b"ping").expect("sent");
    let (mut accepted, _) = listener.accept().expect("accepted");
    let mut word = [0; 4];
    accepted.read_exact(&mut word).expect("read");
    Some(word)
}

fn transfer(from: &Namespace, to: &Namespace, bytes: usize) -> Duration {
    let address: SocketAddr = "10.7.0.2:4001".parse().expect("an address");
    let listener = to.enter(|| TcpListener::bind(address)).expect("entered").expect("bound");
    let mut stream = from.enter(|| TcpStream::connect(address)).expect("entered").expect("connected");
    let (mut accepted, _) = listener.accept().expect("accepted");
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || stream.write_all(&vec![7; bytes]).expect("sent"));
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).expect("read");
        assert_eq!(all.len(), bytes);
    });
    began.elapsed()
}
