//! Changes of the network under a running transfer, one at a time, and a path that flaps. The checks of sources are strict. Needs root: run with
//! `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes, clocks and files")]

mod support;

use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use plait_lab::Program;
use plait_netns::Namespace;
use support::routed::Routed;
use support::stream::{self, Stream};
use support::{PLAIT, until};

const CARRIERS: [&str; 2] = ["tcp", "udp"];

/// A change of the first path: what it is called, the change, and what makes the path as it was.
type Change = (&'static str, fn(&Routed), fn(&Routed));

/// Each leaves the path usable, or makes it usable again.
const CHANGES: [Change; 7] = [
    ("another address beside the old one, which goes", another_address, first_address),
    ("a lease with another address", another_lease, first_lease),
    ("routes in the main table only", main_table_only, all_tables),
    ("routes in a table of the network only", own_table_only, all_tables),
    ("a smaller MTU", |routed| mtu(routed, 1280), |routed| mtu(routed, 1500)),
    ("no carrier for two seconds", no_carrier, all_tables),
    ("unplugged and plugged in again", plugged_in_again, all_tables),
];

fn ip(host: &Namespace, words: &str) {
    host.ip(words).expect(words);
}

fn another_address(routed: &Routed) {
    let client = &routed.world.client;
    client.set_sysctl("net.ipv4.conf.wan1.promote_secondaries", 1).expect("set");
    routed.configure(1, "wan1", 7);
    ip(client, "address delete 10.81.1.2/24 dev wan1");
    routed.route(1, "wan1");
}

fn first_address(routed: &Routed) {
    routed.configure(1, "wan1", 2);
    ip(&routed.world.client, "address delete 10.81.1.7/24 dev wan1");
    routed.route(1, "wan1");
}

fn another_lease(routed: &Routed) {
    ip(&routed.world.client, "address flush dev wan1");
    routed.configure(1, "wan1", 9);
}

fn first_lease(routed: &Routed) {
    ip(&routed.world.client, "address flush dev wan1");
    routed.configure(1, "wan1", 2);
}

fn main_table_only(routed: &Routed) {
    ip(&routed.world.client, "route delete default via 10.81.1.1 dev wan1 table 101");
}

fn own_table_only(routed: &Routed) {
    ip(&routed.world.client, "route delete default via 10.81.1.1 dev wan1 metric 101");
}

fn all_tables(routed: &Routed) {
    routed.route(1, "wan1");
}

fn mtu(routed: &Routed, bytes: u32) {
    ip(&routed.world.client, &format!("link set wan1 mtu {bytes}"));
    ip(&routed.router, &format!("link set c1 mtu {bytes}"));
}

fn no_carrier(routed: &Routed) {
    ip(&routed.router, "link set c1 down");
    thread::sleep(Duration::from_secs(2));
    ip(&routed.router, "link set c1 up");
}

fn plugged_in_again(routed: &Routed) {
    ip(&routed.world.client, "link delete wan1");
    thread::sleep(Duration::from_secs(2));
    routed.plug_in(1);
}

fn assert_survives_each_change(label: &str, carrier: &str, paths: &[&str]) {
    let routed = Routed::new(label, carrier);
    stream::services(&routed.world);
    let mut stream = Stream::start(&routed, carrier, paths);
    let pid = stream.run.pid();
    until("all paths", || in_use(&routed.world.client, pid).len() == paths.len());
    for (name, change, undo) in CHANGES {
        let what = format!("{carrier}, {} paths, {name}", paths.len());
        // With another path, the time counts from the beginning of the change.
        let begin = SystemTime::now();
        change(&routed);
        let usable = if paths.len() == 1 { SystemTime::now() } else { begin };
        stream.stands_still_after(&what, usable).assert_all_short(&what);
        undo(&routed);
        until("all paths again", || in_use(&routed.world.client, pid).len() == paths.len());
    }
}

#[test]
#[ignore = "needs root"]
fn a_change_of_the_only_path_holds_a_transfer_up_for_a_second_at_most_over_tcp() {
    assert_survives_each_change("one_tcp", "tcp", &["wan1"]);
}

#[test]
#[ignore = "needs root"]
fn a_change_of_the_only_path_holds_a_transfer_up_for_a_second_at_most_over_udp() {
    assert_survives_each_change("one_udp", "udp", &["wan1"]);
}

#[test]
#[ignore = "needs root"]
fn a_change_of_one_of_two_paths_holds_a_transfer_up_for_a_second_at_most_over_tcp() {
    assert_survives_each_change("two_tcp", "tcp", &["wan1", "wan2"]);
}

#[test]
#[ignore = "needs root"]
fn a_change_of_one_of_two_paths_holds_a_transfer_up_for_a_second_at_most_over_udp() {
    assert_survives_each_change("two_udp", "udp", &["wan1", "wan2"]);
}

#[test]
#[ignore = "needs root"]
fn a_device_that_is_renamed_holds_a_transfer_up_for_a_second_at_most() {
    for carrier in CARRIERS {
        let routed = Routed::new("renamed", carrier);
        stream::services(&routed.world);
        let mut stream = Stream::start(&routed, carrier, &["mac:02:00:00:00:00:01"]);
        for (old, new) in [("wan1", "wwan5"), ("wwan5", "wan1")] {
            let client = &routed.world.client;
            ip(client, &format!("link set {old} down"));
            ip(client, &format!("link set {old} name {new}"));
            ip(client, &format!("link set {new} up"));
            routed.route(1, new);
            let what = format!("{carrier}, {old} becomes {new}");
            stream.stands_still_after(&what, SystemTime::now()).assert_all_short(&what);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_default_route_that_moves_to_another_device_takes_the_transfer_along() {
    for carrier in CARRIERS {
        let routed = Routed::new("moved", carrier);
        stream::services(&routed.world);
        let client = &routed.world.client;
        ip(client, "route delete default via 10.81.2.1 dev wan2 metric 102");
        let mut stream = Stream::start(&routed, carrier, &["default"]);
        for (from, to) in [(1, 2), (2, 1)] {
            ip(client, &format!("route add default via 10.81.{to}.1 dev wan{to} metric 10{to}"));
            ip(client, &format!("route delete default via 10.81.{from}.1 dev wan{from} metric 10{from}"));
            let what = format!("{carrier}, default route from wan{from} to wan{to}");
            stream.stands_still_after(&what, SystemTime::now()).assert_all_short(&what);
            let pid = stream.run.pid();
            until("the new path", || in_use(client, pid) == [format!("wan{to}")]);
        }
    }
}

/// The state of a plait process, as `plait status --json` prints it.
fn status(host: &Namespace, pid: u32) -> serde_json::Value {
    let mut command = Command::new(PLAIT);
    command.args(["status", "--json", &pid.to_string()]).env_remove("SUDO_UID");
    let output = host.enter(|| command.output()).expect("entered").expect("started");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    json["plaits"][0].clone()
}

/// The devices over which the oldest connection of this process has an open subflow.
fn in_use(host: &Namespace, pid: u32) -> Vec<String> {
    let status = status(host, pid);
    let paths = status["connections"][0]["paths"].as_array().cloned().unwrap_or_default();
    let open = paths.iter().filter(|path| path["subflows_open"].as_u64().is_some_and(|open| open > 0));
    let mut names: Vec<_> = open.map(|path| path["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

/// Subflows of the oldest connection that its paths count as open, and that have no end.
fn open_subflows(host: &Namespace, pid: u32) -> [u64; 2] {
    let status = status(host, pid);
    let connection = &status["connections"][0];
    let all = |name: &str| connection[name].as_array().cloned().unwrap_or_default();
    let counted = all("paths").iter().filter_map(|path| path["subflows_open"].as_u64()).sum();
    [counted, all("subflows").iter().filter(|subflow| subflow["end"].is_null()).count() as u64]
}

/// Descriptors and resident bytes of both ends.
fn held(ends: [&Program; 2]) -> [(usize, u64); 2] {
    ends.map(|end| (end.descriptors().expect("it runs"), end.resident_bytes().expect("it runs")))
}

/// The second path is down and up again, or has another address, this many times: nothing grows from `settled` flaps on.
fn assert_nothing_grows(label: &str, carrier: &str, settled: u16, flaps: u16) {
    const DESCRIPTORS: usize = 8;
    let mut routed = Routed::without_server(label);
    let mut serve = routed.serve(carrier);
    routed.world.url = serve.wait_for_output("plait://", support::TIMEOUT).expect("its URL");
    let world = &routed.world;
    world.service(7020, |mut stream| {
        while std::io::Write::write_all(&mut stream, &[7; 1000]).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let read = format!("exec 3<>/dev/tcp/{}/7020; exec cat <&3 >/dev/null", support::SERVER);
    let run = routed.run(carrier, &["wan1", "wan2"], &["bash", "-c", &read]);
    let (client, pid) = (&world.client, run.pid());
    until("both paths", || in_use(client, pid) == ["wan1", "wan2"]);
    let mut before = None;
    for flap in 1..=flaps {
        if flap % 2 == 0 {
            ip(client, "link set wan2 down");
            until("one path", || in_use(client, pid) == ["wan1"]);
            ip(client, "link set wan2 up");
        }
        ip(client, "address flush dev wan2");
        routed.configure(2, "wan2", 10 + u8::try_from(flap % 200).expect("small"));
        until("both paths again", || {
            in_use(client, pid) == ["wan1", "wan2"] && open_subflows(client, pid)[0] == 2
        });
        if flap == settled {
            before = Some(held([&run, &serve]));
        }
    }
    let counts = open_subflows(client, pid);
    assert_eq!(counts, [2, 2], "what the status counts, and what is open");
    let (before, after) = (before.expect("more flaps"), held([&run, &serve]));
    println!("{carrier}: descriptors and bytes after {settled} flaps {before:?}, after {flaps} {after:?}");
    for (before, after) in before.into_iter().zip(after) {
        assert!(after.0 <= before.0 + DESCRIPTORS, "descriptors: {before:?} {after:?}");
        assert!(after.1 <= before.1 + before.1 / 20 + (1 << 20), "memory: {before:?} {after:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_path_that_flaps_twenty_times_is_in_use_and_nothing_grows() {
    for carrier in CARRIERS {
        assert_nothing_grows("flaps", carrier, 8, 20);
    }
}

/// They take minutes: `scripts/programs --only field` runs them.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root, and minutes"]
    fn a_path_that_flaps_three_hundred_times_over_tcp_is_in_use_and_nothing_grows() {
        assert_nothing_grows("flaps_tcp", "tcp", 20, 300);
    }

    #[test]
    #[ignore = "needs root, and minutes"]
    fn a_path_that_flaps_three_hundred_times_over_udp_is_in_use_and_nothing_grows() {
        assert_nothing_grows("flaps_udp", "udp", 20, 300);
    }
}
