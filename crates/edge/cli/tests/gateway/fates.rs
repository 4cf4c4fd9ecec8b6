//! One device direct, one through the server, one through the server over one path, and one that gets nothing.

use std::io::ErrorKind;

use plait_netns::nft::Table;

use super::lan::{Device, Lan, connect, text};
use super::support::traces::traces;
use super::support::{NAME, SERVER, SERVER_V6, TIMEOUT, until};

#[test]
#[ignore = "needs root"]
fn each_device_has_its_fate_and_nothing_of_a_tunnelled_one_leaves_in_clear() {
    let lan = Lan::new("gateway_fates");
    let [direct, tunnelled, trusted] = &lan.devices;
    for device in &lan.devices {
        assert!(device.gets_page(SERVER, "5") && device.leaks() > 0, "without plait, in clear");
    }
    let before = traces(&lan.world.client);
    let v6 = format!("[{SERVER_V6}]");
    lan.world.make_file("large", 4 << 20);
    for carrier in ["udp", "tcp"] {
        let of_direct = format!("{}=direct", direct.mac);
        let [of_trusted, of_trusted_v6] =
            [&trusted.address, &trusted.address_v6].map(|address| format!("{address}=paths=wan1"));
        let mut gateway = lan.gateway(&[
            "--carrier",
            carrier,
            "--device",
            &of_direct,
            "--device",
            &of_trusted,
            "--device",
            &of_trusted_v6,
        ]);
        assert!(gateway.errors().contains("leave without protection"), "{}", gateway.errors());
        let leaks = direct.leaks();
        assert!(direct.gets_page(SERVER, "5") && direct.leaks() > leaks, "{carrier}: as before");
        let leaks = [tunnelled, trusted].map(Device::leaks);
        for host in [SERVER, NAME, &v6] {
            assert!(tunnelled.gets_page(host, "20"), "{carrier}, {host}: {}", gateway.last_words());
        }
        until("the second stack", || trusted.gets_page(SERVER, "5"));
        assert!(trusted.gets_page(NAME, "20") && trusted.gets_page(&v6, "20"), "{}", gateway.last_words());
        // The nameserver of a device is the gateway itself, by both families.
        for nameserver in ["10.66.0.1", "fd66::1"] {
            let script = format!(
                "echo nameserver {nameserver} >r && mount --bind r /etc/resolv.conf && getent ahostsv4 {NAME}"
            );
            let answer = text(&tunnelled.run("sh", &["-c", &script]));
            assert!(answer.contains(SERVER), "{carrier}, {nameserver}: {answer}");
        }
        for device in [tunnelled, trusted] {
            let refused = device.datagram().expect_err("no UDP");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "at once: {refused}");
            assert!(!device.run("ping", &["-c", "1", "-W", "2", SERVER]).status.success());
        }
        assert_eq!([tunnelled, trusted].map(Device::leaks), leaks, "{carrier}");
        // All bytes of the third device come over the first path.
        let second =
            "chain o { type filter hook output priority 300; oifname wan2 meta length > 200 counter; }";
        let second = Table::install(&lan.world.server, second).expect("installed");
        let url = format!("http://{SERVER}:8080/large");
        let got = trusted.run("curl", &["-s", "-m", "60", "-o", "large-got", &url]);
        assert!(got.status.success(), "{carrier}: {}", text(&got));
        assert!(second.packets().expect("counters") < 20, "{carrier}: keepalives alone");
        let report = lan.report(&gateway, &trusted.mac);
        assert!(report["bytes_down"].as_u64().is_some_and(|bytes| bytes > 4 << 20), "{report}");
        assert_eq!(report["addresses"][0], trusted.address.as_str(), "{report}");
        // This host itself is not captured, and the listeners take nothing from outside.
        assert!(connect(&lan.world.client, SERVER, 8080).is_ok());
        let rules = lan.world.client.run("nft", "list table inet plait-gateway").expect("there");
        let ports = rules.lines().find_map(|line| line.trim().strip_suffix("} drop")?.rsplit_once('{'));
        let ports: Vec<u16> =
            ports.expect("ports").1.split(',').map(|port| port.trim().parse().expect("a port")).collect();
        assert_eq!(ports.len(), 4, "{rules}");
        for port in ports {
            for (host, to) in [(&lan.world.server, "10.77.1.1"), (&tunnelled.namespace, "10.66.0.1")] {
                let dropped = connect(host, to, port).expect_err("dropped");
                assert_eq!(dropped.kind(), ErrorKind::TimedOut, "{to} {port}: {dropped}");
            }
        }
        gateway.stop(TIMEOUT).expect("an end");
        assert_eq!(traces(&lan.world.client), before, "{carrier}");
    }
    assert!(tunnelled.gets_page(SERVER, "5"), "in clear again");
}

#[test]
#[ignore = "needs root"]
fn without_forwarding_devices_are_carried_and_one_of_never_reaches_nothing() {
    let lan = Lan::new("gateway_never");
    let [never, tunnelled, _] = &lan.devices;
    lan.world.client.set_sysctl("net.ipv4.ip_forward", 0).expect("set");
    let of_never = format!("{}=never", never.mac);
    let mut gateway = lan.gateway(&["--carrier", "udp", "--device", &of_never]);
    let leaks = [never, tunnelled].map(Device::leaks);
    assert!(tunnelled.gets_page(SERVER, "20") && tunnelled.gets_page(NAME, "20"), "{}", gateway.last_words());
    for host in [SERVER, NAME, &format!("[{SERVER_V6}]")] {
        assert!(!never.gets_page(host, "2"), "{host}");
    }
    assert!(
        never.run("ping", &["-c", "1", "-W", "2", "10.66.0.1"]).status.success(),
        "this host is reachable"
    );
    assert_eq!([never, tunnelled].map(Device::leaks), leaks);
    gateway.stop(TIMEOUT).expect("an end");
}
