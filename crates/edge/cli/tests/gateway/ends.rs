//! The end of `plait gateway`: by a crash, with removed rules, and beside `plait up`.

use nix::sys::signal::Signal;

use super::lan::{Lan, text};
use super::support::traces::traces;
use super::support::{NAME, SERVER, TIMEOUT, until};

#[test]
#[ignore = "needs root"]
fn after_a_crash_nothing_of_a_device_leaves_until_it_is_undone() {
    let lan = Lan::new("gateway_crash");
    let [direct, tunnelled, _] = &lan.devices;
    let before = traces(&lan.world.client);
    let of_direct = format!("{}=direct", direct.mac);
    for (carrier, way) in [("tcp", "cleanup"), ("udp", "gateway")] {
        let options = ["--carrier", carrier, "--device", &of_direct];
        let mut gateway = lan.gateway(&options);
        assert!(tunnelled.gets_page(SERVER, "20"), "{}", gateway.last_words());
        let leaks = tunnelled.leaks();
        if carrier == "udp" {
            // As a firewall does it that is loaded anew.
            for _ in 0..3 {
                lan.world.client.run("nft", "flush ruleset").expect("nft works");
                for _ in 0..10 {
                    let _ = tunnelled.datagram();
                }
                until("the rules", || lan.world.client.run("nft", "list table inet plait-gateway").is_ok());
            }
            assert!(tunnelled.gets_page(NAME, "20"), "{}", gateway.last_words());
        }
        let beside = lan.plait(&["up", "-s", &lan.world.url]);
        assert!(text(&beside).contains("plait up cannot run beside plait gateway"), "{}", text(&beside));
        let cleanup = lan.plait(&["cleanup"]);
        assert!(!cleanup.status.success() && text(&cleanup).contains("its rules stay"), "{}", text(&cleanup));
        gateway.signal(Signal::SIGKILL);
        gateway.wait(TIMEOUT).expect("an end");
        for host in [SERVER, NAME] {
            assert!(!tunnelled.gets_page(host, "2"), "{host}");
        }
        tunnelled.datagram().expect_err("no UDP");
        assert_eq!(tunnelled.leaks(), leaks, "{carrier}");
        let doctor = lan.plait(&["doctor"]);
        assert!(text(&doctor).contains("plait gateway has crashed"), "{}", text(&doctor));
        if way == "cleanup" {
            let done = lan.plait(&["cleanup"]);
            assert!(text(&done).contains("removed: table inet plait-gateway\n"), "{}", text(&done));
        } else {
            let mut gateway = lan.gateway(&options);
            assert!(
                tunnelled.gets_page(SERVER, "20") && tunnelled.leaks() == leaks,
                "{}",
                gateway.last_words()
            );
            let down = lan.plait(&["down"]);
            assert!(down.status.success(), "{}", text(&down));
            assert!(gateway.wait(TIMEOUT).expect("an end").success());
        }
        assert_eq!(traces(&lan.world.client), before, "{carrier}");
        assert!(tunnelled.gets_page(SERVER, "5"), "in clear again");
    }
}
