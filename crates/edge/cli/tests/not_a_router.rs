//! A host that runs `plait` does not forward between the networks of its paths. Needs root: run with `--ignored`.
//!
//! ```text
//!   left ── ha  middle  hb ── right          middle runs plait
//! ```
//!
//! Both neighbours use the middle as their router. Each counts what arrives from the network of the other one: UDP all the time,
//! TCP and ICMP when the test asks for it, over IPv4 and IPv6.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::Signal;
use plait_lab::wired::{Pair, Wire};
use plait_lab::{End, Program};
use plait_netns::nft::Table;
use plait_netns::{Cidr, Namespace, veth};
use support::{PLAIT, TIMEOUT, until};

/// The neighbours and the host between them.
struct Row {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
    /// What came to each neighbour from the other one.
    arrived: [Table; 2],
    directory: PathBuf,
}

impl Row {
    fn new(label: &str) -> Self {
        plait_netns::tun::permitted().expect("root, with /dev/net/tun");
        let mut pair = Pair::new(label).expect("root can make namespaces");
        pair.lay(&Wire { devices: ["left0", "ha"].map(str::to_owned), addresses: both_families(1).into() })
            .expect("a wire");
        let Pair { client: left, server: middle, wires: _ } = pair;
        let right = Namespace::named("right").expect("root");
        let (hb, r) = veth((&middle, "hb"), (&right, "right0")).expect("a pair");
        for [near, far] in both_families(2) {
            hb.add_address(far).expect("added");
            r.add_address(near).expect("added");
        }
        route_through(&left, 1);
        route_through(&right, 2);
        let arrived = [count_from(&left, 2), count_from(&right, 1)];
        let directory = std::env::temp_dir().join(format!("plait-{label}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let row = Self { left, middle, right, arrived, directory };
        // No duplicate address detection is under way any more: it would hold probes back.
        until("the addresses", || {
            let tentative = |host: &Namespace| host.ip("-6 address show tentative").expect("ip works");
            [&row.left, &row.middle, &row.right].into_iter().all(|host| tentative(host).is_empty())
        });
        row
    }

    /// Packets that came from one neighbour to the other so far, in both directions.
    fn crossed(&self) -> [u64; 2] {
        let [to_left, to_right] = &self.arrived;
        [to_right, to_left].map(|table| table.packets().expect("counters"))
    }

    /// TCP and ICMP from each neighbour to the other one, over both families.
    fn probe(&self) {
        let ways = [(&self.left, 2), (&self.right, 1)];
        thread::scope(|scope| {
            for (from, net) in ways {
                for address in neighbour(net) {
                    scope.spawn(move || {
                        let to = SocketAddr::new(address, 22);
                        let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(300)).is_ok();
                        let _ = from.enter(connect).expect("entered");
                    });
                    scope.spawn(move || from.run("ping", &format!("-c 1 -W 1 {address}")).is_ok());
                }
            }
        });
    }

    /// Starts `plait listen` for these paths in the middle, and waits until it listens.
    fn listen(&self, port: u16, paths: &str) -> Program {
        let mut program = self.plait(&format!("listen {port} --echo {paths}"));
        program.wait_for_line(&format!("listening on port {port}"), TIMEOUT).expect("it listens");
        program
    }

    /// Starts `plait` with these words in the middle, and waits until the middle forwards for it.
    fn plait(&self, words: &str) -> Program {
        let mut command = Command::new(PLAIT);
        command.args(words.split(' ')).arg("--keys").arg(self.directory.join("middle"));
        let program = self.start(&self.middle, command);
        until(words, || self.setting("ipv4/conf/ha/forwarding") == "1");
        program
    }

    fn start(&self, host: &Namespace, mut command: Command) -> Program {
        // The files here belong to root, also under sudo.
        command.env_remove("SUDO_UID").current_dir(&self.directory);
        Program::start(host, &self.directory, "plait", command, End::Own, End::Own).expect("started")
    }

    fn setting(&self, name: &str) -> String {
        let read = || std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
        self.middle.enter(read).expect("entered").trim().to_owned()
    }

    /// All that `plait` changes in the middle: rules, routes of its protocol number, devices, and settings.
    fn traces(&self) -> String {
        let mut traces = String::new();
        for words in [
            "-4 rule",
            "-6 rule",
            "-4 route show table all proto 74",
            "-6 route show table all proto 74",
            "tuntap",
        ] {
            traces += &self.middle.ip(words).expect("ip works");
        }
        traces += &self.middle.run("nft", "list ruleset").expect("nft works");
        for device in ["all", "ha", "hb"] {
            for setting in
                ["ipv4/conf/DEV/forwarding", "ipv6/conf/DEV/forwarding", "ipv6/conf/DEV/force_forwarding"]
            {
                traces += &format!("{setting} {device} {}\n", self.setting(&setting.replace("DEV", device)));
            }
        }
        traces
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Datagrams from each neighbour to the other one, over both families, without a pause until this is dropped.
struct Flood {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn start(row: &Row) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ways = [(&row.left, 2), (&row.right, 1)];
        let threads = ways.map(|(from, net)| {
            let targets = neighbour(net).map(|address| SocketAddr::new(address, 9));
            let open = || ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).expect("a socket"));
            let (sockets, ends) = (from.enter(open).expect("entered"), ends.clone());
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    for (socket, target) in sockets.iter().zip(targets) {
                        // What an ICMP error says of an earlier one is of no interest.
                        let _ = socket.send_to(b"datagram", target);
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            })
        });
        Self { ends, threads: threads.into() }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The addresses of the neighbour in this network.
fn neighbour(net: u8) -> [IpAddr; 2] {
    both_families(net).map(|[near, _]| near.address)
}

/// A neighbour's address and the middle's, per family.
fn both_families(net: u8) -> [[Cidr; 2]; 2] {
    let v4 = |host| Cidr::new([10, 81, net, host].into(), 24);
    let v6 = |host| Cidr::new([0xfd81, u16::from(net), 0, 0, 0, 0, 0, host].into(), 64);
    [[v4(2), v4(1)], [v6(2), v6(1)]]
}

/// Makes the middle the router of a neighbour.
fn route_through(neighbour: &Namespace, net: u8) {
    for [_, middle] in both_families(net) {
        neighbour.ip(&format!("route add default via {}", middle.address)).expect("a route");
    }
}

/// Counts what arrives from a network.
fn count_from(host: &Namespace, net: u8) -> Table {
    let [v4, v6] = [format!("ip saddr 10.81.{net}.0/24"), format!("ip6 saddr fd81:{net}::/64")];
    let rules =
        format!("chain i {{ type filter hook prerouting priority -300; {v4} counter; {v6} counter; }}");
    Table::install(host, &rules).expect("nft is installed")
}

#[test]
#[ignore = "needs root"]
fn whatever_command_runs_and_however_it_ends_nothing_crosses() {
    let row = Row::new("crossing");
    let server = |words: &str| {
        let mut command = Command::new(PLAIT);
        command.args(words.split(' ')).arg("--keys").arg(row.directory.join("right"));
        row.start(&row.right, command)
    };
    let mut proxy = server("serve --proxy --anyone --allow *:* -p right0");
    let serve = proxy.wait_for_output("plait://", TIMEOUT).expect("its address");
    let serve = serve.trim();
    let mut listener = server("listen 7005 --echo -p right0");
    let echo = listener.wait_for_line("plait connect plait://10.", TIMEOUT).expect("its address");
    let echo = echo.split_whitespace().next_back().expect("its last word");
    let before = row.traces();
    let flood = Flood::start(&row);
    row.probe();
    for words in [
        "listen 7001 --echo -p ha -p hb",
        "serve --forward 127.0.0.1:9 --anyone -p ha -p hb",
        &format!("proxy -s {serve} --socks 127.0.0.1:0 -p ha -p hb"),
        &format!("run -s {serve} -p ha -p hb -- sleep 1000"),
        &format!("forward -s {serve} -L 8022:127.0.0.1:9 -p ha -p hb"),
        &format!("connect {echo} -p ha -p hb"),
        &format!("check {echo} -p ha -p hb --idle 0.2 --connect-timeout 2"),
    ] {
        let mut program = row.plait(words);
        row.probe();
        program.signal(Signal::SIGKILL);
        program.wait(TIMEOUT).expect("an end");
        row.probe();
        let mut program = row.plait(words);
        row.probe();
        // A check ends by itself.
        let ended = if words.starts_with("check") { program.wait(TIMEOUT) } else { program.stop(TIMEOUT) };
        ended.expect("an end");
        row.probe();
        assert_eq!(row.crossed(), [0, 0], "{words}");
        assert_eq!(row.traces(), before, "{words}");
    }
    drop(flood);
    assert_eq!(row.crossed(), [0, 0]);
}

#[test]
#[ignore = "needs root"]
fn neither_a_device_that_comes_later_nor_rules_that_are_removed_open_a_way() {
    let row = Row::new("opening");
    let before = row.traces();
    row.middle.ip("link set hb down").expect("it exists");
    row.middle.ip("link set hb name other").expect("a free name");
    let flood = Flood::start(&row);
    let mut plait = row.listen(7001, "-p ha -p hb");
    row.middle.ip("link set other name hb").expect("it exists");
    row.middle.ip("link set hb up").expect("it exists");
    until("the device that came later", || row.setting("ipv4/conf/hb/forwarding") == "1");
    row.probe();
    for _ in 0..5 {
        row.middle.run("nft", "flush ruleset").expect("as a firewall does it that is loaded anew");
        row.probe();
        until("our table", || row.middle.run("nft", "list table inet plait-0").is_ok());
    }
    for family in ["-4", "-6"] {
        let rules = row.middle.ip(&format!("{family} rule")).expect("ip works");
        for rule in rules.lines().filter_map(|line| line.split_once(":\tfrom all iif ha")) {
            row.middle.ip(&format!("{family} rule delete preference {}", rule.0)).expect("it is there");
        }
        row.probe();
    }
    plait.stop(TIMEOUT).expect("an end");
    drop(flood);
    assert_eq!(row.crossed(), [0, 0]);
    assert_eq!(row.traces(), before);
}

#[test]
#[ignore = "needs root"]
fn as_long_as_another_plait_runs_what_one_leaves_behind_stays_closed() {
    let row = Row::new("beside");
    let before = row.traces();
    let flood = Flood::start(&row);
    // The one has what the other has not.
    let mut first = row.listen(7001, "-p ha");
    let mut second = row.listen(7002, "-p hb -p ha");
    until("the second", || row.setting("ipv4/conf/hb/forwarding") == "1");
    second.signal(Signal::SIGKILL);
    second.wait(TIMEOUT).expect("an end");
    row.probe();
    let mut third = row.listen(7002, "-p ha");
    row.probe();
    first.stop(TIMEOUT).expect("an end");
    row.probe();
    third.stop(TIMEOUT).expect("an end");
    row.probe();
    drop(flood);
    assert_eq!(row.crossed(), [0, 0]);
    assert_eq!(row.traces(), before);
}

#[test]
#[ignore = "needs root"]
fn what_a_killed_service_has_opened_stays_closed_when_root_cleans_up() {
    let row = Row::new("service");
    let before = row.traces();
    let flood = Flood::start(&row);
    // As in the units of systemd, its notes are in a directory of its own.
    let notes = row.directory.join("notes");
    std::fs::create_dir_all(&notes).expect("made");
    std::fs::create_dir_all("/run/plait").expect("made");
    let service = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind notes /run/plait && exec \"$@\"", "sh", PLAIT]);
        command.args("listen 7001 --echo -p ha -p hb --keys middle".split(' '));
        let mut service = row.start(&row.middle, command);
        service.wait_for_line("listening on port 7001", TIMEOUT).expect("it listens");
        until("forwarding", || row.setting("ipv4/conf/ha/forwarding") == "1");
        service
    };
    let mut killed = service();
    killed.signal(Signal::SIGKILL);
    killed.wait(TIMEOUT).expect("an end");
    let mut cleanup = Command::new(PLAIT);
    let cleanup = row.middle.enter(|| cleanup.arg("cleanup").output()).expect("entered").expect("built");
    assert!(cleanup.status.success(), "{cleanup:?}");
    let said = String::from_utf8_lossy(&cleanup.stderr).into_owned();
    assert!(said.contains("stay closed until it has started and ended"), "{said}");
    row.probe();
    assert_eq!(row.crossed(), [0, 0]);
    service().stop(TIMEOUT).expect("an end");
    row.probe();
    drop(flood);
    assert_eq!(row.crossed(), [0, 0]);
    assert_eq!(row.traces(), before);
}

#[test]
#[ignore = "needs root"]
fn what_was_forwarded_before_is_forwarded_all_the_time() {
    let row = Row::new("router");
    for setting in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.rp_filter"] {
        row.middle.set_sysctl(setting, 1).expect("root");
    }
    let before = row.traces();
    let arrives = |when: &str| {
        for address in neighbour(2) {
            let ping = row.left.run("ping", &format!("-c 1 -W 10 {address}"));
            assert!(ping.is_ok(), "{when}: {address}: {ping:?}");
        }
    };
    arrives("before");
    let mut plait = row.listen(7001, "-p ha -p hb");
    arrives("while it runs");
    plait.signal(Signal::SIGKILL);
    plait.wait(TIMEOUT).expect("an end");
    arrives("when it was killed");
    row.listen(7001, "-p ha -p hb").stop(TIMEOUT).expect("an end");
    arrives("afterwards");
    assert_eq!(row.traces(), before);
}

#[test]
#[ignore = "needs root"]
fn a_host_that_is_made_a_router_meanwhile_is_one() {
    let row = Row::new("made_router");
    let before = row.traces();
    let mut plait = row.listen(7001, "-p ha -p hb");
    // As Docker and others do it when they start.
    for setting in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        row.middle.set_sysctl(setting, 1).expect("root");
    }
    let arrives = || {
        let ping = |address: &IpAddr| row.left.run("ping", &format!("-c 1 -W 1 {address}")).is_ok();
        neighbour(2).iter().all(ping)
    };
    until("a ping", arrives);
    plait.stop(TIMEOUT).expect("an end");
    assert!(arrives(), "as it was made");
    assert_eq!(
        (
            row.setting("ipv4/conf/ha/forwarding").as_str(),
            row.setting("ipv6/conf/ha/force_forwarding").as_str()
        ),
        ("1", "0")
    );
    for setting in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        row.middle.set_sysctl(setting, 0).expect("root");
    }
    assert_eq!(row.traces(), before);
}

#[test]
#[ignore = "needs root"]
fn what_was_forwarded_one_way_before_is_not_forwarded_the_other_way() {
    let row = Row::new("one_way");
    row.middle.set_sysctl("net.ipv4.conf.ha.forwarding", 1).expect("root");
    let flood = Flood::start(&row);
    let mut plait = row.listen(7001, "-p ha -p hb");
    until("its second path", || row.setting("ipv4/conf/hb/forwarding") == "1");
    let [before, _] = row.crossed();
    until("more from the left", || row.crossed()[0] > before);
    row.probe();
    plait.stop(TIMEOUT).expect("an end");
    row.probe();
    drop(flood);
    assert_eq!(row.crossed()[1], 0, "from the right");
}

#[test]
#[ignore = "needs root"]
fn what_a_bridge_passes_it_passes_all_the_time() {
    let row = Row::new("bridge");
    let [a, b] = ["a", "b"].map(|label| Namespace::named(label).expect("root"));
    row.middle.ip("link add br0 type bridge").expect("a bridge");
    for (host, port, address) in [(&a, "pa", "10.81.3.2/24"), (&b, "pb", "10.81.3.3/24")] {
        let (_, end) = veth((&row.middle, port), (host, "e")).expect("a pair");
        row.middle.ip(&format!("link set {port} master br0")).expect("a port");
        let (address, length) = address.split_once('/').expect("both");
        let address = address.parse().expect("an address");
        end.add_address(Cidr::new(address, length.parse().expect("a number"))).expect("added");
    }
    row.middle.ip("address add 10.81.3.1/24 dev br0").expect("added");
    row.middle.ip("link set br0 up").expect("up");
    // As Docker and others have it: what is bridged passes the rules for what is routed. A kernel may be without that.
    let _ = row.middle.set_sysctl("net.bridge.bridge-nf-call-iptables", 1);
    let passes = || a.run("ping", "-c 1 -W 10 10.81.3.3").expect("the other port answers");
    passes();
    let mut plait = row.listen(7001, "-p ha -p br0");
    until("the bridge is a path", || row.setting("ipv4/conf/br0/forwarding") == "1");
    passes();
    plait.stop(TIMEOUT).expect("an end");
}
