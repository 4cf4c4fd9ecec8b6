//! Most connections of one device.

use std::io::{ErrorKind, Read};

use super::lan::Lan;
use super::support::{SERVER, SERVER_V6, TIMEOUT, until};

#[test]
#[ignore = "needs root"]
fn a_device_has_its_connections_by_all_its_addresses_and_others_have_theirs() {
    let lan = Lan::new("gateway_limits");
    let [greedy, other, _] = &lan.devices;
    lan.world.service(7100, |mut stream| {
        // It holds the connection until its client ends it.
        let _ = std::io::Write::write_all(&mut stream, b"held");
        let _ = stream.read(&mut [0; 1]);
    });
    let mut gateway = lan.gateway(&["--carrier", "udp", "--max-device-connections", "4"]);
    let held: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = greedy.connect(SERVER, 7100).expect("a connection");
            stream.set_read_timeout(Some(TIMEOUT)).expect("set");
            stream.read_exact(&mut [0; 4]).expect("it is carried");
            stream
        })
        .collect();
    // Another address is no other device.
    for to in [SERVER, SERVER_V6] {
        // It is accepted first, and reset then.
        let refused = greedy.connect(to, 8080).and_then(|mut refused| {
            refused.set_read_timeout(Some(TIMEOUT))?;
            refused.read(&mut [0; 1])
        });
        assert_eq!(refused.expect_err("a reset").kind(), ErrorKind::ConnectionReset, "{to}");
    }
    assert!(other.gets_page(SERVER, "20"), "{}", gateway.last_words());
    let report = lan.report(&gateway, &greedy.mac);
    assert_eq!(
        (&report["connections_open"], &report["connections_refused"]),
        (&4.into(), &2.into()),
        "{report}"
    );
    drop(held);
    until("a free place", || greedy.gets_page(SERVER, "5"));
    let status = lan.plait(&["status", &gateway.pid().to_string()]);
    let status = super::lan::text(&status);
    assert!(
        status.contains(&format!("device {}", greedy.address)) && status.contains("2 refused"),
        "{status}"
    );
    gateway.stop(TIMEOUT).expect("an end");
}
