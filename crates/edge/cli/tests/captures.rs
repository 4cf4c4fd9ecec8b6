//! What `--pcap` writes has the addresses and ports of the network, as `tcpdump` sees them on the devices. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use plait_lab::{End, Program};
use plait_netns::{Cidr, Link, Namespace};
use support::{PLAIT, SERVER, TIMEOUT, World, until};

/// The two ends of a packet: device, source, its port, destination, its port.
type Sent = BTreeSet<[String; 5]>;

/// What is in a capture, as tshark reads it: segments of TCP, or datagrams of UDP. `device` names a file's only one, which has no name there.
fn sent(file: &Path, protocol: &str, device: Option<&str>) -> Sent {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args([
        "-Y",
        protocol,
        "-T",
        "fields",
        "-E",
        "separator=|",
        "-E",
        "occurrence=f",
    ]);
    let [from, to] = ["srcport", "dstport"].map(|port| format!("{protocol}.{port}"));
    for field in ["frame.interface_name", "ip.src", "ipv6.src", &from, "ip.dst", "ipv6.dst", &to] {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| {
        let fields: Vec<_> = line.split('|').collect();
        let [name, from_v4, from_v6, from_port, to_v4, to_v6, to_port] = fields[..].try_into().expect(line);
        let name = device.unwrap_or(name).to_owned();
        let [from, to] = [format!("{from_v4}{from_v6}"), format!("{to_v4}{to_v6}")];
        [name, from, from_port.to_owned(), to, to_port.to_owned()]
    };
    text.lines().map(line).collect()
}

/// `tcpdump` on both devices of a host.
struct OnTheWire {
    programs: Vec<Program>,
    name: &'static str,
}

impl OnTheWire {
    fn watch(world: &World, host: &Namespace, name: &'static str) -> Self {
        let programs = ["wan1", "wan2"].map(|device| {
            let mut command = Command::new("tcpdump");
            command.args(["-i", device, "-U", "--immediate-mode", "-w"]);
            command.arg(world.file(&format!("{name}-{device}.pcap")));
            let mut program = world.start(host, &format!("tcpdump-{name}-{device}"), command);
            program.wait_for_line("listening on", TIMEOUT).expect("it listens");
            program
        });
        Self { programs: programs.into(), name }
    }

    /// What has crossed both devices.
    fn ended(mut self, world: &World, protocol: &str) -> Sent {
        for program in &mut self.programs {
            program.stop(TIMEOUT).expect("an end");
        }
        let devices = ["wan1", "wan2"];
        devices
            .into_iter()
            .flat_map(|device| {
                sent(&world.file(&format!("{}-{device}.pcap", self.name)), protocol, Some(device))
            })
            .collect()
    }
}

/// `plait listen` and `plait connect` with captures of their own, beside `tcpdump` at both: a host may have several addresses on a device, and the
/// second one is asked.
fn exchanged(world: &World, protocol: &str, address: &str) {
    let second: std::net::IpAddr = address.parse().expect("an address");
    let length = if second.is_ipv4() { 24 } else { 64 };
    let far = Link::existing(&world.server, "wan1").expect("the other end");
    far.add_address(Cidr::new(second, length)).expect("added");
    // Wherever a path leads, it gets there: what there is no route for is on no network.
    let route = |to: &str| world.client.ip(&format!("route add {to} dev wan2 metric 2000")).expect("a route");
    route("10.77.1.0/24 via 10.77.2.2");
    if second.is_ipv6() {
        route("fd77:1::/64 via fd77:2::2");
    }
    let watched = [&world.server, &world.client].into_iter().zip(["server", "client"]);
    let watched: Vec<_> = watched.map(|(host, name)| OnTheWire::watch(world, host, name)).collect();
    let start = |host: &Namespace, name: &str, words: &[&str]| {
        let mut command = Command::new(PLAIT);
        command.args(words).args(["--path", "wan1", "--path", "wan2", "--carrier", protocol]);
        command.arg("--keys").arg(world.file(&format!("{name}.keys")));
        command.arg("--pcap").arg(world.file(&format!("{name}.pcapng"))).current_dir(&world.directory);
        Program::start(host, &world.directory, name, command, End::Pipe, End::Own).expect("started")
    };
    let mut listen = start(&world.server, "server", &["listen", "5000"]);
    let line = listen.wait_for_line("our key is ", TIMEOUT).expect("it says so");
    let key = line.rsplit(' ').next().expect("a word").to_owned();
    listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
    let mut connect =
        start(&world.client, "client", &["connect", address, "5000", "--server-key", &key, "-vv"]);
    let mut input = connect.take_input().expect("a pipe");
    input.write_all(b"some words").expect("it reads");
    // Both paths are in the capture.
    until("a second path", || connect.errors().contains("join is complete"));
    drop((input, listen.take_input()));
    for program in [&mut connect, &mut listen] {
        assert!(program.wait(TIMEOUT).expect("it ends").success(), "{}", program.last_words());
    }
    for (wire, name) in watched.into_iter().zip(["server", "client"]) {
        let expected = wire.ended(world, protocol);
        let found = sent(&world.file(&format!("{name}.pcapng")), "tcp", None);
        assert_eq!(found, expected, "at the {name}");
        assert!(found.iter().any(|[device, from, ..]| device == "wan1" && from == address), "{found:?}");
        assert!(found.iter().any(|[device, ..]| device == "wan2"), "{found:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_capture_over_tcp_has_the_addresses_and_ports_of_the_network() {
    let world = World::without_server("pcap_tcp");
    exchanged(&world, "tcp", "10.77.1.9");
}

#[test]
#[ignore = "needs root"]
fn a_capture_over_tcp_has_the_addresses_of_ipv6_too() {
    let world = World::without_server("pcap_v6");
    world.add_ipv6();
    exchanged(&world, "tcp", "fd77:1::9");
}

#[test]
#[ignore = "needs root"]
fn a_capture_over_udp_shows_tcp_with_the_addresses_and_ports_of_the_datagrams() {
    let world = World::without_server("pcap_udp");
    exchanged(&world, "udp", "10.77.1.9");
}

#[test]
#[ignore = "needs root"]
fn the_captures_of_a_program_and_its_server_agree_with_the_network() {
    let mut world = World::without_server("pcap_run");
    let watched = [&world.server, &world.client].into_iter().zip(["server", "client"]);
    let watched: Vec<_> = watched.map(|(host, name)| OnTheWire::watch(&world, host, name)).collect();
    world.serve(&["--anyone", "--carrier", "tcp", "--pcap", "server.pcapng"]);
    world.make_file("page", 300_000);
    world.http();
    let url = format!("http://{SERVER}:8080/page");
    let program = ["curl", "-sSf", "-o", "/dev/null", &url];
    let output = world.run(&["--carrier", "tcp", "--pcap", "client.pcapng"], &program);
    support::assert_ended(&output, 0, &program);
    assert_eq!(world.stop_serving(), Some(0));
    for (wire, name) in watched.into_iter().zip(["server", "client"]) {
        let expected = wire.ended(&world, "tcp");
        let found = sent(&world.file(&format!("{name}.pcapng")), "tcp", None);
        assert!(
            !expected.is_empty() && found.is_superset(&expected),
            "at the {name}: {found:?}, {expected:?}"
        );
        // The second path leads to no address of the first: the client is told so by itself, at addresses of its own.
        let is_real = |address: &String| address.starts_with("10.77.");
        assert!(
            found.iter().all(|[_, from, _, to, _]| is_real(from) && is_real(to)),
            "at the {name}: {found:?}"
        );
    }
}
