//! Paths follow the devices that rules select, on the real kernel and in namespaces of their own: devices that are plugged in later, or come
//! back under another name, and the devices of default routes.
//! They need root: `cargo test -p plait --test selected -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "the kernel has a clock and threads")]

mod net;

use std::net::SocketAddr;

use net::{Net, block_on, wait_for};
use plait::{Carriers, Host, HostBuilder, Path, PathState, Protection, Service, Stream, Subflow, TrustLevel};
use plait_netns::{Namespace, veth};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PORT: u16 = 7011;
const BOTH: [Carriers; 2] = [Carriers::Tcp, Carriers::Udp];

fn host(namespace: &Namespace, rules: &[&str], carriers: Carriers) -> Host {
    let rules = rules.iter().map(|rule| rule.parse().expect("a rule"));
    let builder = rules.fold(Host::builder().carriers(carriers), HostBuilder::path);
    namespace.enter(|| builder.start().expect("a host")).expect("entered")
}

/// A host in the second namespace that sends everything back, over all devices whose names begin with b.
fn echo_host(net: &Net, carriers: Carriers) -> Host {
    let host = host(&net.b, &["b*"], carriers);
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

fn connect(near: &Host, address: &str) -> Stream {
    let server = SocketAddr::new(address.parse().expect("an address"), PORT);
    let mut stream = block_on(near.connect(server, Protection::plain())).expect("an answer");
    block_on(says(&mut stream, b"ping"));
    stream
}

/// Sends a word and waits for it.
async fn says(stream: &mut Stream, word: &[u8]) {
    stream.write_all(word).await.expect("taken");
    let mut answer = vec![0; word.len()];
    stream.read_exact(&mut answer).await.expect("an echo");
    assert_eq!(answer, word);
}

/// The devices of the usable subflows of a connection, in order, each once.
fn devices(stream: &Stream) -> Vec<String> {
    let mut usable = stream.paths();
    usable.retain(Subflow::is_usable);
    let mut names: Vec<_> = usable.iter().map(|subflow| subflow.device().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

fn until_over(stream: &Stream, wanted: &[&str]) {
    let is_so = || (devices(stream) == wanted).then_some(());
    assert!(wait_for(is_so).is_some(), "{:?} and not {wanted:?}", devices(stream));
}

/// The paths of a host: a device that is down stands in brackets.
fn paths(host: &Host) -> Vec<String> {
    let shown = |path: &PathState| {
        if path.is_up() { path.device().to_owned() } else { format!("({})", path.device()) }
    };
    host.paths().iter().map(shown).collect()
}

fn until_paths(host: &Host, wanted: &[&str]) {
    let is_so = || (paths(host) == wanted).then_some(());
    assert!(wait_for(is_so).is_some(), "{:?} and not {wanted:?}", paths(host));
}

/// Plugs a device with this name into the first namespace, joined to the second.
fn plug(net: &Net, name: &str, link_address: &str) {
    let (near, far) = veth((&net.a, name), (&net.b, "b3")).expect("a wire");
    net.a.ip(&format!("link set dev {name} address {link_address}")).expect("set");
    near.add_address(net::cidr("10.91.3.1", 24)).expect("added");
    far.add_address(net::cidr("10.91.3.2", 24)).expect("added");
    for link in [near, far] {
        link.up().expect("up");
    }
    net.a.ip(&format!("route add 10.91.1.2/32 via 10.91.3.2 dev {name} metric 300")).expect("added");
}

#[test]
#[ignore = "needs root"]
fn connections_join_over_a_device_of_a_pattern_that_is_plugged_in_later_and_again() {
    for carriers in BOTH {
        let net = Net::new();
        let before = net.traces();
        let far = echo_host(&net, carriers);
        let near = host(&net.a, &["a1", "usb*=untrusted"], carriers);
        assert_eq!(paths(&near), ["a1"]);
        let mut stream = connect(&near, "10.91.1.2");
        for name in ["usb0", "usb0", "usb1"] {
            plug(&net, name, "02:00:00:00:00:03");
            until_over(&stream, &["a1", name]);
            assert_eq!(near.paths().last().expect("two").trust_level(), TrustLevel::Untrusted);
            block_on(says(&mut stream, b"over both"));
            net.a.ip("link set dev a1 down").expect("set");
            until_over(&stream, &[name]);
            block_on(says(&mut stream, b"over one"));
            net.a.ip("link set dev a1 up").expect("set");
            until_over(&stream, &["a1", name]);
            net.a.ip(&format!("link delete dev {name}")).expect("unplugged");
            until_over(&stream, &["a1"]);
        }
        until_paths(&near, &["a1", "(usb0)", "(usb1)"]);
        drop((stream, near, far));
        assert_eq!(
            wait_for(|| (net.traces() == before).then_some(())),
            Some(()),
            "{}\n{before}",
            net.traces()
        );
    }
}

#[test]
#[ignore = "needs root"]
fn a_connection_survives_the_renaming_of_its_only_device_and_the_settings_are_put_back() {
    for carriers in BOTH {
        let net = Net::new();
        net.a.ip("link set dev a1 address 02:00:00:00:00:09").expect("set");
        let _far = echo_host(&net, carriers);
        let near = host(&net.a, &["mac:02:00:00:00:00:09"], carriers);
        let mut stream = connect(&near, "10.91.1.2");
        net.a.ip("link set dev a1 name wwan7").expect("renamed");
        until_paths(&near, &["wwan7"]);
        block_on(says(&mut stream, b"the same subflow"));
        assert_eq!(devices(&stream), ["wwan7"]);
        let again = connect(&near, "10.91.1.2");
        let setting = "net.ipv4.conf.wwan7.forwarding";
        if carriers == Carriers::Tcp {
            assert_eq!(net.a.sysctl(setting).expect("it is there"), "1");
            let guard = net.a.run("nft", "list table inet plait-guard").expect("closed");
            assert!(guard.contains("\"wwan7\"") && !guard.contains("\"a1\""), "{guard}");
            let rules = net.a.ip("rule").expect("ip works");
            assert!(rules.contains("iif wwan7 "), "{rules}");
        }
        drop((stream, again, near));
        assert_eq!(net.a.sysctl(setting).expect("it is there"), "0");
    }
}

#[test]
#[ignore = "needs root"]
fn a_modem_that_comes_back_under_another_name_is_in_use_again() {
    const MODEM: &str = "02:00:00:00:00:07";
    for carriers in BOTH {
        let net = Net::new();
        let _far = echo_host(&net, carriers);
        let near = host(&net.a, &["a1", &format!("mac:{MODEM}=backup")], carriers);
        let mut stream = connect(&near, "10.91.1.2");
        for name in ["wwan0", "wwan1", "eth5"] {
            plug(&net, name, MODEM);
            until_over(&stream, &["a1", name]);
            until_paths(&near, &["a1", name]);
            assert!(near.paths()[1].is_backup());
            block_on(says(&mut stream, b"hello again"));
            net.a.ip(&format!("link delete dev {name}")).expect("unplugged");
            until_paths(&near, &["a1", &format!("({name})")]);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn the_devices_of_default_routes_are_followed_as_the_routes_come_and_go() {
    for carriers in BOTH {
        let net = Net::new();
        let far = echo_host(&net, carriers);
        let near = host(&net.a, &["default"], carriers);
        assert_eq!(paths(&near), [""; 0]);
        net.a.ip("route add default via 10.91.1.2 dev a1 metric 100").expect("added");
        until_paths(&near, &["a1"]);
        let mut stream = connect(&near, "10.91.1.2");
        net.a.ip("route add default via 10.91.2.2 dev a2 metric 200").expect("added");
        until_over(&stream, &["a1", "a2"]);
        net.a.ip("route delete default via 10.91.1.2 dev a1").expect("deleted");
        until_over(&stream, &["a2"]);
        block_on(says(&mut stream, b"over the other"));
        assert_eq!(paths(&near), ["(a1)", "a2"]);
        net.a.ip("route add default via 10.91.1.2 dev a1 metric 300").expect("added");
        until_over(&stream, &["a1", "a2"]);
        drop((stream, near, far));
    }
}

#[test]
#[ignore = "needs root"]
fn paths_are_added_and_removed_while_connections_run() {
    for carriers in BOTH {
        let net = Net::new();
        let _far = echo_host(&net, carriers);
        let near = host(&net.a, &["a1"], carriers);
        let control = near.path_control();
        let rule = |text: &str| text.parse::<Path>().expect("a rule");
        let mut stream = connect(&near, "10.91.1.2");
        for _ in 0..3 {
            block_on(control.add(rule("a2=untrusted"))).expect("new");
            block_on(control.add(rule("a2"))).expect_err("it is there");
            until_over(&stream, &["a1", "a2"]);
            block_on(control.remove(&rule("a1"))).expect("it is there");
            until_over(&stream, &["a2"]);
            assert_eq!(paths(&near), ["a2"], "a removed path is not listed");
            block_on(says(&mut stream, b"over the other"));
            block_on(control.add(rule("a1"))).expect("new");
            until_over(&stream, &["a1", "a2"]);
            block_on(control.remove(&rule("a2"))).expect("it is there");
            block_on(control.remove(&rule("a2"))).expect_err("it is gone");
            until_over(&stream, &["a1"]);
        }
        // Of a listener, too.
        let answered = connect(&near, "10.91.1.2");
        block_on(control.set(rule("a9"))).expect_err("there is none");
        drop(answered);
    }
}
