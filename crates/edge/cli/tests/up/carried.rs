//! What programs send goes through the server, over both carriers and by both families; nothing else leaves.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::thread;

use plait_netns::Cidr;

use super::house::{House, answer_questions};
use super::support::{NAME, SERVER, SERVER_V6, TIMEOUT, until};

#[test]
#[ignore = "needs root"]
fn a_page_by_its_name_comes_through_the_server_and_nothing_leaves_in_clear() {
    let house = House::new("up_carried");
    assert!(house.gets_page(SERVER, "5") && house.leaks() > 0, "without plait, in clear");
    let before = house.traces();
    // The nameserver of plait, which knows its server. Programs do not ask it.
    let nameserver =
        house.world.server.enter(|| UdpSocket::bind("10.77.1.2:53")).expect("entered").expect("a port");
    thread::spawn(move || answer_questions(&nameserver));
    let by_name = house.world.url.trim().replace("10.77.1.2", "gw.example");
    for (carrier, url) in [("tcp", house.world.url.as_str()), ("udp", by_name.as_str())] {
        let leaks = house.leaks();
        let mut up = house.up(&["--carrier", carrier, "-s", url, "--nameserver", "10.77.1.2"]);
        for host in [NAME, SERVER, &format!("[{SERVER_V6}]")] {
            assert!(house.gets_page(host, "20"), "{carrier}, {host}: {}", up.last_words());
        }
        let refused = house.connect(SERVER.parse().expect("an address"), 7999).expect_err("no listener");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "as the destination says");
        let refused = house.datagram().expect_err("no UDP");
        // The kernel reports the refusal by the call itself, or by an ICMP error.
        assert!(
            matches!(refused.kind(), ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied),
            "at once: {refused}"
        );
        assert!(!house.run("ping", &["-c", "1", "-W", "2", SERVER]).status.success());
        assert_eq!(house.leaks(), leaks, "{carrier}");
        up.stop(TIMEOUT).expect("an end");
        assert_eq!(house.traces(), before, "{carrier}");
    }
    assert!(house.gets_page(SERVER, "5"), "in clear again");
}

#[test]
#[ignore = "needs root"]
fn a_restarted_server_another_address_and_removed_rules_open_nothing() {
    let mut house = House::with_server("up_outlives", &["--anyone", "--listen", "7443"]);
    let leaks = house.leaks();
    let mut up = house.up(&["--carrier", "udp", "--lan", "refuse"]);
    assert!(house.gets_page(NAME, "20"), "{}", up.last_words());
    // As a firewall does it that is loaded anew, with a connection that is open.
    let open = house.connect(SERVER.parse().expect("an address"), 8080).expect("a connection");
    for _ in 0..5 {
        house.world.client.run("nft", "flush ruleset").expect("nft works");
        for _ in 0..10 {
            // Each of them would be a packet in clear.
            let _ = std::io::Write::write(&mut &open, b"G");
            let _ = house.datagram();
        }
        until("the rules", || house.world.client.run("nft", "list table inet plait-up").is_ok());
    }
    assert!(house.gets_page(NAME, "20"), "{}", up.last_words());
    // As a DHCP client does it with another lease.
    let path = &house.world.paths[0];
    let old = Cidr::new([10, 77, 1, 1].into(), 24);
    path.add_address(Cidr::new([10, 77, 1, 9].into(), 24)).expect("added");
    path.remove_address(old).expect("removed");
    let _ = house.world.client.ip("route replace default via 10.77.1.2 dev wan1 metric 101");
    until("a page from the new address", || house.gets_page(NAME, "20"));
    house.world.kill_serving();
    let v6 = format!("[{SERVER_V6}]:*");
    house.world.serve(&["--anyone", "--carrier", "auto", "--listen", "7443", "--allow", &v6]);
    until("a page from the new server", || house.gets_page(NAME, "20"));
    assert_eq!(house.leaks(), leaks);
    up.stop(TIMEOUT).expect("an end");
}
