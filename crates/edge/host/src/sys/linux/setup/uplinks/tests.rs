use super::*;

const A: &str = "02:00:00:00:00:0a";
const B: &str = "02:00:00:00:00:0b";

/// eth0 and wlan0 with addresses in one subnet, wwan0 with another; each has a default route, by these gateways.
fn snapshot(gateways: [&str; 3]) -> Snapshot {
    let link = |name: &str, address: &str| {
        format!(
            r#"{{"ifname":"{name}","flags":["UP","LOWER_UP"],
            "addr_info":[{{"local":"{address}","prefixlen":24,"scope":"global"}}]}}"#
        )
    };
    let links = [("eth0", "192.168.1.2"), ("wlan0", "192.168.1.3"), ("wwan0", "10.0.0.2")];
    let devices = links.map(|(name, _)| name);
    let links = links.map(|(name, address)| link(name, address)).join(",");
    let route = |(device, gateway): (&str, &str)| {
        format!(r#"{{"dst":"default","gateway":"{gateway}","dev":"{device}","metric":{}}}"#, device.len())
    };
    let routes = devices.into_iter().zip(gateways).map(route).collect::<Vec<_>>().join(",");
    Snapshot::of(&format!("[{links}]"), &format!("[{routes}]"), "[]")
}

fn neighbours(known: &[(&str, &str, &str)]) -> Neighbours {
    let of = |(device, address, link): &(&str, &str, &str)| {
        format!(r#"{{"dst":"{address}","dev":"{device}","lladdr":"{link}","state":["STALE"]}}"#)
    };
    Neighbours::of(&format!("[{}]", known.iter().map(of).collect::<Vec<_>>().join(",")))
}

/// Trusted paths over these devices.
fn paths(devices: &[&str]) -> Vec<PathSpec> {
    devices.iter().map(|device| PathSpec::new(device).expect("a name")).collect()
}

/// The shared networks in words.
fn words(networks: &SharedNetworks) -> Vec<String> {
    networks.iter().map(ToString::to_string).collect()
}

/// The shared networks of a single look in words, after all questions.
fn shared(snapshot: &Snapshot, devices: &[&str], tunnels: &Tunnels, neighbours: &Neighbours) -> Vec<String> {
    let mut looks = Looks::at(devices);
    looks.look(snapshot, tunnels, neighbours);
    looks.later(ANSWER);
    words(&looks.look(snapshot, tunnels, neighbours).0)
}

/// The looks at the ways of some paths, one after the other.
struct Looks {
    uplinks: Uplinks,
    paths: Vec<PathSpec>,
    now: Instant,
}

impl Looks {
    fn at(devices: &[&str]) -> Self {
        Self { uplinks: Uplinks::default(), paths: paths(devices), now: Instant::now() }
    }

    fn later(&mut self, time: Duration) {
        self.now += time;
    }

    /// Returns the shared networks, and the devices of the gateways that are asked.
    fn look(
        &mut self,
        snapshot: &Snapshot,
        tunnels: &Tunnels,
        neighbours: &Neighbours,
    ) -> (SharedNetworks, Vec<String>) {
        let (networks, to_ask) =
            self.uplinks.take(self.now, &Seen { snapshot, tunnels, neighbours }, &self.paths);
        (networks, to_ask.into_iter().map(|gateway| gateway.carrier).collect())
    }

    /// The devices that are reported as down although they are up.
    fn coming(&self) -> Vec<String> {
        self.uplinks.coming.devices().into_iter().collect()
    }

    /// Returns the number of shared networks, the devices of the gateways that are asked, and the next look.
    fn count(&mut self, snapshot: &Snapshot, neighbours: &Neighbours) -> (usize, Vec<String>, NextLook) {
        let (networks, asked) = self.look(snapshot, &Tunnels::default(), neighbours);
        (networks.iter().count(), asked, self.uplinks.next)
    }
}

#[test]
fn the_same_gateway_with_the_same_link_address_is_one_network() {
    let snapshot = snapshot(["192.168.1.1", "192.168.1.1", "10.0.0.1"]);
    let known =
        neighbours(&[("eth0", "192.168.1.1", A), ("wlan0", "192.168.1.1", A), ("wwan0", "10.0.0.1", A)]);
    let shared = shared(&snapshot, &["eth0", "wlan0", "wwan0"], &Tunnels::default(), &known);
    let why = format!("eth0 and wlan0 count as one path: eth0 and wlan0 have the gateway 192.168.1.1 ({A})");
    assert_eq!(shared, [why]);
}

#[test]
fn the_same_private_address_with_another_link_address_is_another_network() {
    // A router at home, and a mobile one: both are 192.168.1.1.
    let snapshot = snapshot(["192.168.1.1", "192.168.1.1", "10.0.0.1"]);
    let known = neighbours(&[("eth0", "192.168.1.1", A), ("wlan0", "192.168.1.1", B)]);
    assert_eq!(shared(&snapshot, &["eth0", "wlan0"], &Tunnels::default(), &known), [""; 0]);
}

#[test]
fn modems_of_one_type_that_give_the_same_address_are_two_networks() {
    let modem = |name: &str| {
        format!(
            r#"{{"ifname":"{name}","flags":["UP","LOWER_UP"],
            "addr_info":[{{"local":"192.168.8.100","prefixlen":24,"scope":"global"}}]}}"#
        )
    };
    let links = format!("[{},{}]", modem("usb0"), modem("usb1"));
    let route = |device: &str| format!(r#"{{"dst":"default","gateway":"192.168.8.1","dev":"{device}"}}"#);
    let routes = format!("[{},{}]", route("usb0"), route("usb1"));
    let snapshot = Snapshot::of(&links, &routes, "[]");
    let known = neighbours(&[("usb0", "192.168.8.1", A), ("usb1", "192.168.8.1", A)]);
    assert_eq!(shared(&snapshot, &["usb0", "usb1"], &Tunnels::default(), &known), [""; 0]);
}

const SAME: [&str; 3] = ["192.168.1.1", "192.168.1.1", "192.168.1.1"];

#[test]
fn unknown_link_addresses_are_asked_for_once_and_the_devices_are_not_up_until_the_answers() {
    let snapshot = snapshot(SAME);
    let mut looks = Looks::at(&["eth0", "wlan0", "wwan0"]);
    let all = ["eth0", "wlan0", "wwan0"].map(str::to_owned).to_vec();
    let none = neighbours(&[]);
    // wwan0 is in another subnet, and is asked as well.
    assert_eq!(looks.count(&snapshot, &none), (0, all.clone(), NextLook::Answer(FIRST_LOOK)));
    assert_eq!(looks.coming(), all);
    looks.later(FIRST_LOOK);
    assert_eq!(looks.count(&snapshot, &none), (0, Vec::new(), NextLook::Answer(FIRST_LOOK)), "asked before");
    assert_eq!(looks.coming(), all);
    looks.later(FIRST_LOOK);
    let answers = neighbours(&[("eth0", SAME[0], A), ("wlan0", SAME[0], B), ("wwan0", SAME[0], A)]);
    let (networks, asked) = looks.look(&snapshot, &Tunnels::default(), &answers);
    assert_eq!(asked, [""; 0]);
    let why = format!("eth0 and wwan0 count as one path: eth0 and wwan0 have the gateway 192.168.1.1 ({A})");
    assert_eq!(words(&networks), [why]);
    assert_eq!(looks.coming(), [""; 0]);
    assert_eq!(looks.uplinks.next, NextLook::Review(REVIEW));
}

#[test]
fn without_an_answer_devices_in_one_subnet_count_as_one_and_the_gateways_are_asked_again_later() {
    let snapshot = snapshot(SAME);
    let mut looks = Looks::at(&["eth0", "wlan0", "wwan0"]);
    let of_eth0 = [("eth0", SAME[0], A), ("wlan0", SAME[0], "00:00:00:00:00:00")];
    let known = neighbours(&of_eth0);
    let others = ["wlan0", "wwan0"].map(str::to_owned).to_vec();
    assert_eq!(looks.count(&snapshot, &known).1, others, "zeros are no address");
    let mut waited = Duration::ZERO;
    while let NextLook::Answer(after) = looks.uplinks.next {
        assert!(after >= FIRST_LOOK.min(ANSWER - waited), "{after:?} after {waited:?}");
        looks.later(after);
        waited += after;
        looks.count(&snapshot, &known);
    }
    assert_eq!(waited, ANSWER);
    let (networks, asked) = looks.look(&snapshot, &Tunnels::default(), &known);
    let why = "eth0 and wlan0 count as one path: \
               eth0 and wlan0 have the gateway 192.168.1.1, of unknown link-layer address";
    assert_eq!((words(&networks), asked), (vec![why.to_owned()], Vec::new()), "not wwan0");
    assert_eq!(looks.uplinks.next, NextLook::Review(ASK_AGAIN - ANSWER));
    looks.later(ASK_AGAIN - ANSWER);
    let (networks, asked) = looks.look(&snapshot, &Tunnels::default(), &known);
    assert_eq!(
        (words(&networks), asked),
        (vec![why.to_owned()], others),
        "a second question changes nothing"
    );
    assert_eq!(looks.uplinks.next, NextLook::Answer(ANSWER), "one look at the answer");
    let mut questions = 1;
    for _ in 0..60 {
        let (NextLook::Answer(after) | NextLook::Review(after)) = looks.uplinks.next else { break };
        looks.later(after);
        questions += usize::from(!looks.look(&snapshot, &Tunnels::default(), &known).1.is_empty());
    }
    assert_eq!(questions, 31, "with a single look at each answer");
    assert_eq!(looks.uplinks.next, NextLook::Answer(ANSWER), "it is asked all the time");
    looks.later(ANSWER);
    looks.look(&snapshot, &Tunnels::default(), &known);
    assert_eq!(
        looks.uplinks.next,
        NextLook::Review(REVIEW - ANSWER),
        "in intervals that do not grow any more"
    );
}

#[test]
fn gateways_of_different_addresses_are_not_asked() {
    let snapshot = snapshot(["192.168.1.1", "192.168.1.9", "10.0.0.1"]);
    let mut looks = Looks::at(&["eth0", "wlan0", "wwan0"]);
    assert_eq!(looks.count(&snapshot, &neighbours(&[])), (0, Vec::new(), NextLook::NotNeeded));
}

#[test]
fn no_gateway_is_asked_over_a_path_that_must_carry_nothing_until_it_may() {
    let snapshot = snapshot(["192.168.1.1", "10.0.0.1", "192.168.1.1"]);
    let mut looks = Looks::at(&["eth0", "wwan0"]);
    looks.paths[1] = looks.paths[1].clone().with_class(PathClass::Never);
    let none = neighbours(&[]);
    assert_eq!(looks.count(&snapshot, &none), (0, Vec::new(), NextLook::NotNeeded));
    looks.paths[1] = looks.paths[1].clone().with_class(PathClass::Untrusted);
    assert_eq!(looks.count(&snapshot, &none).1, ["eth0", "wwan0"]);
}

#[test]
fn a_device_that_is_down_or_has_no_gateway_keeps_its_network_and_is_not_asked() {
    let known = neighbours(&[("eth0", SAME[0], A), ("wwan0", SAME[0], A)]);
    let why =
        [format!("eth0 and wwan0 count as one path: eth0 and wwan0 have the gateway 192.168.1.1 ({A})")];
    let up = snapshot(SAME);
    // The kernel forgets the neighbours of a device without carrier, and the routes of one that is down or has no lease.
    let without_carrier = up.clone().with_flags("eth0", &["UP", "NO-CARRIER"]);
    let down = up.clone().with_flags("eth0", &[]).without_routes_over("eth0");
    let without_lease = up.clone().without_routes_over("eth0");
    let of_wwan0 = neighbours(&[("wwan0", SAME[0], A)]);
    for state in [without_carrier, down, without_lease, Snapshot::default()] {
        let mut looks = Looks::at(&["eth0", "wwan0"]);
        assert_eq!(words(&looks.look(&up, &Tunnels::default(), &known).0), why);
        let (networks, asked) = looks.look(&state, &Tunnels::default(), &of_wwan0);
        assert_eq!((words(&networks), asked), (why.to_vec(), Vec::new()));
        // It is back, and its gateway must be asked again: another network may have this address.
        let (networks, asked) = looks.look(&up, &Tunnels::default(), &of_wwan0);
        assert_eq!((networks.iter().count(), asked), (1, vec!["eth0".to_owned()]));
        let other = neighbours(&[("eth0", SAME[0], B), ("wwan0", SAME[0], A)]);
        assert_eq!(words(&looks.look(&up, &Tunnels::default(), &other).0), [""; 0]);
    }
    // Known from the start as down: there is nothing to keep, and nothing to ask.
    let down = up.clone().with_flags("eth0", &["UP", "NO-CARRIER"]);
    let mut looks = Looks::at(&["eth0", "wwan0"]);
    assert_eq!(looks.look(&down, &Tunnels::default(), &of_wwan0).1, [""; 0]);
}

#[test]
fn a_tunnel_is_in_the_network_of_the_device_that_carries_it() {
    let snapshot = snapshot(["192.168.1.1", "192.168.1.9", "10.0.0.1"]);
    let links = r#"[
        {"ifname":"gre1","link":null,"linkinfo":{"info_kind":"gre","info_data":{"remote":"203.0.113.1"}}},
        {"ifname":"gre2","link":"wwan0","linkinfo":{"info_kind":"gre","info_data":{"remote":"203.0.113.1"}}},
        {"ifname":"wg0","linkinfo":{"info_kind":"wireguard"}}]"#;
    let links: Vec<serde_json::Value> = serde_json::from_str(links).expect("JSON");
    let tunnels = Tunnels::of(&links).with_endpoints("wg0\tAAAA=\t10.0.0.77:51820\n");
    let shared = |devices: &[&str]| shared(&snapshot, devices, &tunnels, &Neighbours::default());
    assert_eq!(shared(&["gre1", "eth0"]), ["gre1 and eth0 count as one path: gre1 is a tunnel over eth0"]);
    assert_eq!(shared(&["gre1", "wlan0"]), [""; 0], "the route of lowest metric leads over eth0");
    assert_eq!(shared(&["gre2", "gre1"]), [""; 0]);
    assert_eq!(shared(&["gre2", "wwan0"]), ["gre2 and wwan0 count as one path: gre2 is a tunnel over wwan0"]);
    assert_eq!(shared(&["wg0", "eth0"]).len(), 1, "by the default route");
}

#[test]
fn wireguard_whose_other_end_is_unreadable_counts_as_carried_by_the_device_of_the_default_route() {
    let snapshot = snapshot(["192.168.1.1", "192.168.1.9", "10.0.0.1"]);
    let links = [serde_json::json!({"ifname": "wg0", "linkinfo": {"info_kind": "wireguard"}})];
    let tunnels = Tunnels::of(&links);
    let shared = |devices: &[&str]| shared(&snapshot, devices, &tunnels, &Neighbours::default());
    assert_eq!(shared(&["wg0", "eth0"]), ["wg0 and eth0 count as one path: wg0 is a tunnel over eth0"]);
    assert_eq!(shared(&["wg0", "wlan0"]), [""; 0], "its default route has a higher metric");
}

/// eth0 and wwan0 are up, and known as two networks. The gateways of all three devices have the same address.
fn two_networks() -> (Looks, Snapshot) {
    let all = snapshot(SAME);
    let mut looks = Looks::at(&["eth0", "wlan0", "wwan0"]);
    let before = all.clone().with_flags("wlan0", &["UP"]).without_routes_over("wlan0");
    assert_eq!(looks.count(&before, &neighbours(&OF_TWO)).0, 0);
    assert_eq!(looks.coming(), [""; 0], "it is down, not coming");
    (looks, all)
}

const OF_TWO: [(&str, &str, &str); 2] = [("eth0", SAME[0], A), ("wwan0", SAME[0], B)];

#[test]
fn a_device_that_comes_up_is_up_when_its_gateway_has_answered_and_merges_no_others_before() {
    let (mut looks, all) = two_networks();
    let (networks, asked) = looks.look(&all, &Tunnels::default(), &neighbours(&OF_TWO));
    assert_eq!((words(&networks), asked), (Vec::new(), vec!["wlan0".to_owned()]));
    assert_eq!(looks.coming(), ["wlan0"]);
    looks.later(FIRST_LOOK);
    let answers = neighbours(&[OF_TWO[0], OF_TWO[1], ("wlan0", SAME[0], "02:00:00:00:00:0c")]);
    assert_eq!(looks.count(&all, &answers).0, 0, "a third network");
    assert_eq!(looks.coming(), [""; 0]);
}

#[test]
fn a_device_that_comes_up_behind_a_silent_gateway_is_up_after_the_time_for_an_answer() {
    let (mut looks, all) = two_networks();
    looks.look(&all, &Tunnels::default(), &neighbours(&OF_TWO));
    let mut waited = Duration::ZERO;
    while let NextLook::Answer(after) = looks.uplinks.next {
        assert_eq!(looks.coming(), ["wlan0"], "after {waited:?}");
        looks.later(after);
        waited += after;
        looks.look(&all, &Tunnels::default(), &neighbours(&OF_TWO));
    }
    assert_eq!((waited, looks.coming()), (ANSWER, Vec::new()));
    // A device that goes meanwhile is down, and its return is another coming.
    looks.look(&all.clone().with_flags("wlan0", &[]), &Tunnels::default(), &neighbours(&OF_TWO));
    looks.look(&all, &Tunnels::default(), &neighbours(&OF_TWO));
    assert_eq!(looks.coming(), ["wlan0"]);
}

#[test]
fn a_device_waits_also_for_the_other_gateway_that_decides() {
    let all = snapshot(SAME);
    let mut looks = Looks::at(&["eth0", "wlan0"]);
    let before = all.clone().with_flags("wlan0", &["UP"]).without_routes_over("wlan0");
    looks.look(&before, &Tunnels::default(), &neighbours(&[]));
    assert_eq!(looks.coming(), [""; 0], "no other device had this gateway");
    let of_wlan0 = neighbours(&[("wlan0", SAME[0], A)]);
    let (networks, asked) = looks.look(&all, &Tunnels::default(), &of_wlan0);
    assert_eq!((words(&networks), asked), (Vec::new(), vec!["eth0".to_owned()]));
    assert_eq!(looks.coming(), ["wlan0"], "eth0 stays up");
}

#[test]
fn a_device_that_stays_up_counts_by_its_earlier_way_and_one_with_a_new_address_or_its_first_way_comes() {
    let (mut looks, all) = two_networks();
    // The kernel has forgotten the gateway of wwan0.
    let of_eth0 = neighbours(&OF_TWO[..1]);
    let before = all.clone().without_routes_over("wlan0");
    assert_eq!(looks.count(&before, &of_eth0).0, 0);
    assert_eq!(looks.coming(), [""; 0], "wlan0 is up without a gateway");
    assert_eq!(looks.count(&all, &of_eth0).0, 0);
    assert_eq!(looks.coming(), ["wlan0"], "its first way");
    let with_lease = |address: &str| all.clone().with_address("wwan0", address);
    assert_eq!(looks.count(&with_lease("10.0.0.3"), &of_eth0).0, 0);
    assert_eq!(looks.coming(), ["wlan0", "wwan0"], "a new address");
    // eth0 returns with its address first, and with its routes later.
    looks.later(ANSWER);
    let without_eth0 = all.clone().without_routes_over("eth0");
    looks.count(&without_eth0.clone().with_flags("eth0", &[]), &of_eth0);
    looks.count(&without_eth0, &of_eth0);
    assert!(!looks.coming().contains(&"eth0".to_owned()), "it has no gateway to ask");
    looks.count(&all, &neighbours(&[]));
    assert!(looks.coming().contains(&"eth0".to_owned()), "its way may be another one");
}

#[test]
fn a_path_that_may_carry_something_again_comes_up() {
    let all = snapshot(SAME);
    let mut looks = Looks::at(&["eth0", "wwan0"]);
    let allowed = looks.paths[1].clone();
    looks.paths[1] = allowed.clone().with_class(PathClass::Never);
    looks.look(&all, &Tunnels::default(), &neighbours(&OF_TWO[..1]));
    looks.paths[1] = allowed;
    looks.look(&all, &Tunnels::default(), &neighbours(&OF_TWO[..1]));
    assert_eq!(looks.coming(), ["wwan0"]);
}

#[test]
fn a_look_that_fails_is_not_repeated_at_the_pace_of_the_answers() {
    let mut looks = Looks::at(&["eth0", "wlan0"]);
    let snapshot = snapshot(["192.168.1.1", "192.168.1.1", "10.0.0.1"]);
    looks.look(&snapshot, &Tunnels::default(), &Neighbours::default());
    assert_eq!(looks.uplinks.look_again(), Some(FIRST_LOOK));
    assert!(looks.uplinks.look_at(Err(Error::NoFreeRange), |_| looks.paths.clone()).is_err());
    assert_eq!(looks.uplinks.look_again(), None, "the monitor decides");
}
