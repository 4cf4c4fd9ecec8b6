//! A host follows the addresses, routes and settings of its devices, on the real kernel and in namespaces of its own.
//! They need root: `cargo test -p plait --test follows -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "the kernel has a clock and threads")]

mod net;

use std::net::{IpAddr, SocketAddr};

use net::{Net, block_on, wait_for};
use plait::{Carrier, Carriers, Host, HostBuilder, Path, PathState, Protection, Remote, Service, Stream};
use plait_netns::Namespace;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PORT: u16 = 7010;

/// An address of the peer that no network has: the routes decide how it is reached.
const BEHIND: &str = "10.99.0.1";

fn host(namespace: &Namespace, devices: &[&str], carriers: Carriers) -> Host {
    let paths = devices.iter().map(|device| Path::new(device).expect("a name"));
    let builder = paths.fold(Host::builder().carriers(carriers), HostBuilder::path);
    namespace.enter(|| builder.start().expect("a host")).expect("entered")
}

/// A host in the second namespace that sends everything back.
fn echo_host(net: &Net, carriers: Carriers) -> Host {
    let host = host(&net.b, &["b1", "b2"], carriers);
    let listener = block_on(host.listen(PORT, Service::plain())).expect("a free port");
    std::thread::spawn(move || {
        block_on(async {
            while let Ok(stream) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
    });
    host
}

/// Sends a word and waits for it.
async fn says(stream: &mut Stream, word: &[u8]) {
    stream.write_all(word).await.expect("taken");
    let mut answer = vec![0; word.len()];
    stream.read_exact(&mut answer).await.expect("an echo");
    assert_eq!(answer, word);
}

fn server(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), PORT)
}

fn address(host: &Host) -> Option<IpAddr> {
    host.paths()[0].ipv6().map(IpAddr::V6)
}

/// Waits until the only path of a host has this address.
fn until_at(host: &Host, wanted: &str) {
    let wanted = wanted.parse().ok();
    assert!(wait_for(|| (address(host) == wanted).then_some(())).is_some(), "{:?}", address(host));
}

/// Waits until the host has taken all changes so far, also those without an effect to wait for: it takes one more, of the MTU.
fn settle(net: &Net, host: &Host, device: &str) {
    let mtu = || host.paths().iter().filter(|path| path.device() == device).map(PathState::mtu).max();
    let next = mtu().expect("a path") - 20;
    net.a.ip(&format!("link set dev {device} mtu {next}")).expect("set");
    wait_for(|| (mtu() == Some(next)).then_some(())).expect("the host looks");
}

fn an_old_address_is_kept(carriers: Carriers) {
    let net = Net::new();
    let ip = |words: &str| net.a.ip(words).expect("ip works");
    let _far = echo_host(&net, carriers);
    let near = host(&net.a, &["a1"], carriers);
    until_at(&near, "fd91:1::1");
    let to = server("fd91:1::2");
    let mut old = block_on(near.connect(to, Protection::plain())).expect("it answers");
    block_on(says(&mut old, b"one"));

    ip("-6 address change fd91:1::1/64 dev a1 valid_lft forever preferred_lft 0");
    settle(&net, &near, "a1");
    block_on(says(&mut old, b"two"));
    let mut other = block_on(near.connect(to, Protection::plain())).expect("there is no other address");
    block_on(says(&mut other, b"three"));

    // A new address: for new connections only, and not before it is known to be unique.
    ip("-6 address add fd91:1::7/64 dev a1");
    until_at(&near, "fd91:1::7");
    let mut new = block_on(near.connect(to, Protection::plain())).expect("it answers");
    for stream in [&mut old, &mut other, &mut new] {
        block_on(says(stream, b"four"));
    }
    ip("-6 address delete fd91:1::1/64 dev a1");
    settle(&net, &near, "a1");
    block_on(says(&mut new, b"five"));
}

#[test]
#[ignore = "needs root"]
fn a_deprecated_address_is_kept_by_what_runs_over_udp_and_used_if_there_is_no_other() {
    an_old_address_is_kept(Carriers::Udp);
}

#[test]
#[ignore = "needs root"]
fn a_deprecated_address_is_kept_by_what_runs_over_tcp_and_used_if_there_is_no_other() {
    an_old_address_is_kept(Carriers::Tcp);
}

#[test]
#[ignore = "needs root"]
fn a_path_is_used_whose_default_route_is_in_a_table_of_its_own() {
    let net = Net::new();
    net.b.ip(&format!("address add {BEHIND}/32 dev lo")).expect("added");
    for words in [
        "route add default via 10.91.1.2 dev a1",
        "route add default via 10.91.2.2 dev a2 table 100",
        "rule add from 10.91.2.1 table 100",
    ] {
        net.a.ip(words).expect("added");
    }
    let echo = net.echo_server(BEHIND);
    let near = net.host(&["a2"]);
    let mut stream = block_on(near.connect(echo, Protection::plain())).expect("there is a route");
    block_on(says(&mut stream, b"ping"));
    // A route that comes later, in a table that no rule for this address names.
    let other = net.host(&["a1"]);
    net.a.ip("route delete default via 10.91.1.2 dev a1").expect("it is there");
    net.a.ip("route add 10.99.0.0/24 via 10.91.1.2 dev a1 table 200").expect("added");
    settle(&net, &other, "a1");
    let echo = net.echo_server(BEHIND);
    let mut stream = block_on(other.connect(echo, Protection::plain())).expect("there is a route");
    block_on(says(&mut stream, b"ping"));
}

#[test]
#[ignore = "needs root"]
fn a_strict_check_of_sources_is_loosened_while_a_host_runs_and_put_back() {
    let net = Net::new();
    net.b.ip(&format!("address add {BEHIND}/32 dev lo")).expect("added");
    net.a.ip("route add default via 10.91.1.2 dev a1").expect("added");
    net.a.ip("route add default via 10.91.2.2 dev a2 metric 200").expect("added");
    let names = ["all", "a1", "a2"].map(|device| format!("net.ipv4.conf.{device}.rp_filter"));
    let values = || names.each_ref().map(|name| net.a.sysctl(name).expect("it is there"));
    for name in &names {
        net.a.set_sysctl(name, 1).expect("root");
    }
    let _far = echo_host(&net, Carriers::Udp);
    let near = host(&net.a, &["a1", "a2"], Carriers::Auto);
    assert_eq!(values(), ["1", "1", "2"], "the device of the default route passes the check");
    // TCP is not answered: the connection is one over UDP.
    let mut stream = block_on(near.connect(server(BEHIND), Protection::plain())).expect("an answer");
    block_on(says(&mut stream, b"ping"));
    let is_answered = || {
        let mut usable = stream.paths();
        usable.retain(plait::Subflow::is_usable);
        assert!(usable.iter().all(|subflow| subflow.carrier() == Carrier::Udp));
        usable.iter().any(|subflow| subflow.device() == "a2")
    };
    wait_for(|| is_answered().then_some(())).expect("a subflow over the other device");
    drop(stream);
    drop(near);
    assert_eq!(values(), ["1", "1", "1"]);
    drop(host(&net.a, &["a2"], Carriers::Tcp));
    assert_eq!(values(), ["1", "1", "1"], "TCP alone needs nothing");
    drop(host(&net.a, &["a2"], Carriers::Udp));
    assert_eq!(values(), ["1", "1", "1"], "UDP alone changes nothing");
}

#[test]
#[ignore = "needs root"]
fn a_strict_check_of_sources_stays_where_it_is_no_obstacle_and_where_an_administrator_sets_it_again() {
    let net = Net::new();
    net.a.ip("route add default via 10.91.1.2 dev a1").expect("added");
    let names = ["a1", "a2"].map(|device| format!("net.ipv4.conf.{device}.rp_filter"));
    let value = || net.a.sysctl(&names[1]).expect("it is there");
    for name in &names {
        net.a.set_sysctl(name, 1).expect("root");
    }
    let near = host(&net.a, &["a1", "a2"], Carriers::Auto);
    assert_eq!(value(), "1", "without a way out, as before the routes come");
    let set = |path: &str| block_on(near.path_control().set(path.parse().expect("a path"))).expect("set");
    set("a2=never");
    net.a.ip("route add default via 10.91.2.2 dev a2 metric 200").expect("added");
    settle(&net, &near, "a2");
    assert_eq!(value(), "1", "it carries nothing");
    set("a2=trusted");
    wait_for(|| (value() == "2").then_some(())).expect("it is an obstacle");
    net.a.set_sysctl(&names[1], 1).expect("root");
    settle(&net, &near, "a2");
    assert_eq!(value(), "1", "an administrator has set it");
    drop(near);
    assert_eq!(value(), "1");
}

#[test]
#[ignore = "needs root"]
fn errors_name_the_address_of_the_device_and_not_that_of_the_stack() {
    let net = Net::new();
    let near = host(&net.a, &["a1", "a2"], Carriers::Auto);
    let to = [server("10.91.1.2"), server("10.91.2.2")];
    let to = Remote::from(to[0]).at(to);
    let error = block_on(near.connect(to, Protection::plain())).expect_err("no program listens");
    let text = error.to_string();
    assert!(text.contains("10.91.1.1 to 10.91.1.2:7010"), "{text}");
    assert!(!text.contains("198.1") && !text.contains("fd70"), "{text}");
}
