//! Devices that lead into one network, or into two that look alike, on the real kernel. They need root, which network namespaces are made
//! with: `cargo test -p plait-host --test shared_networks -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "the kernel has a clock and threads")]

use std::time::{Duration, Instant};

use plait_host::{Carriers, CommonPoint, Host, HostSettings, NetworkId, Path, PathRule};
use plait_lab::home::{DEVICES, Home, ROUTER};

/// A host over UDP, which changes nothing in the network.
fn start(home: &Home) -> Host {
    let paths = DEVICES.map(|device| PathRule::new(device).expect("a name")).into();
    let settings = HostSettings { paths, carriers: Carriers::Udp, ..HostSettings::default() };
    home.client.enter(|| Host::start(settings).expect("a host")).expect("entered")
}

/// Asks again until there is an answer, or a minute has passed.
fn wait_for<T>(mut question: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        if let Some(answer) = question() {
            return Some(answer);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn paths(host: &Host) -> Vec<Path> {
    host.path_control().paths()
}

fn networks(host: &Host) -> Vec<Option<NetworkId>> {
    paths(host).iter().map(|path| path.network).collect()
}

#[test]
#[ignore = "needs root"]
fn two_devices_behind_one_gateway_share_a_network_which_is_named() {
    let home = Home::with_one_router().expect("root can make namespaces");
    let host = start(&home);
    let shared = host.path_control().shared_networks();
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert_eq!(shared[0].devices, DEVICES);
    let link_address = Some(home.link_address(0).expect("an address"));
    let gateway = CommonPoint::Gateway { address: ROUTER, link_address };
    assert_eq!(shared[0].junctions[0].at, gateway, "it was asked");
    assert_eq!(networks(&host), [Some(NetworkId(0)); 2]);
}

#[test]
#[ignore = "needs root"]
fn a_device_that_goes_down_and_loses_its_routes_stays_in_its_network() {
    let home = Home::with_one_router().expect("root can make namespaces");
    let host = start(&home);
    assert_eq!(networks(&host), [Some(NetworkId(0)); 2]);
    home.client.ip("link set eth0 down").expect("set");
    wait_for(|| (!paths(&host)[0].up).then_some(())).expect("it is down");
    assert_eq!(networks(&host), [Some(NetworkId(0)); 2]);
    home.client.ip("link set eth0 up").expect("set");
    wait_for(|| paths(&host)[0].up.then_some(())).expect("it is up again, without a default route");
    assert_eq!(networks(&host), [Some(NetworkId(0)); 2]);
}

#[test]
#[ignore = "needs root"]
fn a_lost_path_is_reported_before_a_gateway_that_does_not_answer_had_the_time_to() {
    let home = Home::with_one_router().expect("root can make namespaces");
    let host = start(&home);
    // The kernel forgets the neighbours of a device that has lost its carrier. The machine may be busy, so one of several attempts counts.
    let quick = (0..8).find_map(|_| {
        home.plug(0, false).expect("unplugged");
        let since = Instant::now();
        wait_for(|| (!paths(&host)[0].up).then_some(())).expect("it is down");
        let took = since.elapsed();
        home.plug(0, true).expect("plugged");
        wait_for(|| paths(&host)[0].up.then_some(())).expect("it is up again");
        (took < Duration::from_millis(250)).then_some(took)
    });
    assert!(quick.is_some(), "gateways have 300 ms for an answer");
}

#[test]
#[ignore = "needs root"]
fn two_gateways_with_the_same_private_address_are_two_networks() {
    let home = Home::with_two_routers().expect("root can make namespaces");
    let host = start(&home);
    assert_eq!(host.path_control().shared_networks(), [], "each was asked for its link-layer address");
    assert_eq!(networks(&host), [None; 2]);
}

#[test]
#[ignore = "needs root"]
fn a_device_that_comes_up_is_never_up_in_the_network_of_another_that_looks_like_its_own() {
    let home = Home::with_two_routers().expect("root can make namespaces");
    let host = start(&home);
    let ip = |words: &str| home.client.ip(words).expect("ip works");
    for _ in 0..4 {
        ip("address delete 192.168.1.3/24 dev wlan0");
        wait_for(|| (!paths(&host)[1].up).then_some(())).expect("it is down");
        ip("neighbour flush dev wlan0");
        ip("address add 192.168.1.3/24 dev wlan0");
        ip("route add default via 192.168.1.1 dev wlan0 metric 2");
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {
            let paths = paths(&host);
            let networks: Vec<_> = paths.iter().map(|path| path.network).collect();
            assert!(!paths[1].up || networks == [None; 2], "{networks:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        wait_for(|| paths(&host)[1].up.then_some(())).expect("it is up again");
    }
}

#[test]
#[ignore = "needs root"]
fn a_gateway_that_takes_the_link_address_of_another_is_one_network_with_it_only_as_long_as_it_does() {
    let home = Home::with_two_routers().expect("root can make namespaces");
    let [first, own] = [0, 1].map(|router| home.link_address(router).expect("an address"));
    let host = start(&home);
    assert_eq!(networks(&host), [None; 2]);
    home.pretend(1, &first).expect("set");
    let looks_like_one = |link_address: &str| {
        let at = host.path_control().shared_networks().pop()?.junctions.pop()?.at;
        let link_address = Some(link_address.to_owned());
        (at == CommonPoint::Gateway { address: ROUTER, link_address }).then_some(())
    };
    wait_for(|| looks_like_one(&first)).expect("they look like one");
    assert_eq!(networks(&host), [Some(NetworkId(0)); 2]);
    home.pretend(1, &own).expect("set");
    wait_for(|| (networks(&host) == [None; 2]).then_some(())).expect("two again");
    assert!(host.path_control().shared_networks().is_empty());
}
