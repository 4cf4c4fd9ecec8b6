//! Networks as they are found: NATs that renumber and forget, firewalls that deny first, temporary addresses, modems that look alike, and a path
//! that returns. The checks of sources are strict. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes, clocks and files")]

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use plait_netns::nft::Table;
use plait_netns::{Link, Namespace, Rate, veth};
use support::routed::{Routed, host, run_at, two_modems};
use support::stream::{self, Stream};
use support::{PLAIT, SERVER, TIMEOUT, until};

const CARRIERS: [&str; 2] = ["tcp", "udp"];
const PATHS: [&str; 2] = ["wan1", "wan2"];

/// Each connection gets another port, whatever the port of the client was.
const SYMMETRIC: &str = "chain post { type nat hook postrouting priority 100; oifname \"s\" \
                         masquerade random,fully-random; }";

fn ip(host: &Namespace, words: &str) {
    host.ip(words).expect(words);
}

/// Makes connection tracking forget everything, as at the end of an absolute lifetime: the netlink message of `conntrack -F`.
fn forget_connections(router: &Namespace) {
    const FLUSH: &str = "import socket, struct\n\
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)\n\
        s.send(struct.pack('=IHHIIBBH', 20, 0x102, 5, 1, 0, 0, 0, 0))\n\
        assert struct.unpack('=i', s.recv(100)[16:20]) == (0,)\n";
    let mut command = Command::new("python3");
    command.args(["-c", FLUSH]);
    let output = router.enter(|| command.output()).expect("entered").expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "needs root"]
fn a_nat_of_one_address_for_one_carries_everything() {
    for carrier in CARRIERS {
        let routed = Routed::new("one_to_one", carrier);
        stream::services(&routed.world);
        let mut rules = [String::new(), String::new()];
        for path in [1, 2] {
            ip(&routed.router, &format!("address add 10.82.1.10{path}/24 dev s"));
            let (inside, outside) = (format!("10.81.{path}.2"), format!("10.82.1.10{path}"));
            rules[0] += &format!("ip daddr {outside} dnat ip to {inside}; ");
            rules[1] += &format!("oifname \"s\" ip saddr {inside} snat ip to {outside}; ");
        }
        let [before, after] = rules;
        let chains = format!(
            "chain pre {{ type nat hook prerouting priority -100; {before} }}
             chain post {{ type nat hook postrouting priority 100; {after} }}"
        );
        let _nat = Table::install(&routed.router, &chains).expect("rules");
        let mut stream = Stream::start(&routed, carrier, &PATHS);
        let what = format!("{carrier}, one address for one");
        stream.stands_still_after(&what, SystemTime::now()).assert_short(&what);
    }
}

/// A transfer through a NAT that forgets all connections again and again.
fn assert_survives_forgetting(label: &str, carrier: &str, times: u32, pause: Duration) {
    let routed = Routed::new(label, carrier);
    stream::services(&routed.world);
    let _nat = Table::install(&routed.router, SYMMETRIC).expect("rules");
    let mut stream = Stream::start(&routed, carrier, &PATHS);
    for time in 1..=times {
        thread::sleep(pause);
        let begin = SystemTime::now();
        forget_connections(&routed.router);
        let what = format!("{carrier}, symmetric NAT that has forgotten {time} times");
        stream.stands_still_after(&what, begin).assert_short(&what);
    }
}

#[test]
#[ignore = "needs root"]
fn a_symmetric_nat_that_forgets_everything_holds_a_transfer_over_tcp_up_for_a_moment() {
    assert_survives_forgetting("forget_tcp", "tcp", 2, Duration::from_secs(1));
}

#[test]
#[ignore = "needs root"]
fn a_symmetric_nat_that_forgets_everything_holds_a_transfer_over_udp_up_for_a_moment() {
    assert_survives_forgetting("forget_udp", "udp", 2, Duration::from_secs(1));
}

#[test]
#[ignore = "needs root"]
fn two_clients_behind_one_address_do_not_disturb_each_other() {
    for carrier in CARRIERS {
        let routed = Routed::new("carrier", carrier);
        stream::services(&routed.world);
        let _nat = Table::install(&routed.router, SYMMETRIC).expect("rules");
        let other = host("other");
        veth((&other, "wan1"), (&routed.router, "c3")).expect("a wire");
        ip(&routed.router, "address add 10.81.3.1/24 dev c3");
        ip(&other, "address add 10.81.3.2/24 dev wan1");
        ip(&other, "route add default via 10.81.3.1 dev wan1");
        let mut first = Stream::start(&routed, carrier, &PATHS);
        let words = stream::program();
        let words = words.each_ref().map(String::as_str);
        let mut second = Stream::of(run_at(&routed.world, &other, "other", carrier, &["wan1"], &words));
        let begin = SystemTime::now();
        for (name, stream) in [("first", &mut first), ("second", &mut second)] {
            let what = format!("{carrier}, {name} client behind one address");
            stream.stands_still_after(&what, begin).assert_short(&what);
        }
        drop(second);
        let what = format!("{carrier}, after the second client has ended");
        first.stands_still_after(&what, SystemTime::now()).assert_short(&what);
    }
}

/// Whether a connection by SOCKS5 to the echo service is answered.
fn is_answered(proxy: &str) -> bool {
    let talk = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(proxy)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(&[5, 1, 0])?;
        let mut reply = [0; 10];
        stream.read_exact(&mut reply[..2])?;
        let address: Ipv4Addr = SERVER.parse().expect("an address");
        let to = [&[5, 1, 0, 1][..], &address.octets(), &7021_u16.to_be_bytes()].concat();
        stream.write_all(&to)?;
        stream.read_exact(&mut reply)?;
        if reply[1] != 0 {
            return Ok(false);
        }
        stream.write_all(b"ping")?;
        stream.read_exact(&mut reply[..4])?;
        Ok(&reply[..4] == b"ping")
    };
    talk().unwrap_or(false)
}

/// A server whose firewall denies everything that comes in, also what is forwarded.
fn behind_a_firewall(label: &str, carrier: &str) -> (Routed, Table, plait_lab::Program) {
    let mut routed = Routed::without_server(label);
    stream::services(&routed.world);
    let chains = ["input", "forward"].map(|hook| {
        format!(
            "chain {hook} {{ type filter hook {hook} priority 0; policy drop; iifname \"lo\" accept; }}\n"
        )
    });
    let firewall = Table::install(&routed.world.server, &chains.concat()).expect("rules");
    let mut serve = routed.serve(carrier);
    routed.world.url = serve.wait_for_output("plait://", TIMEOUT).expect("its URL");
    (routed, firewall, serve)
}

/// Time for which the firewall denies.
const DENIED: Duration = Duration::from_secs(4);
/// What a client may take once the firewall is open: its SYNs and the attempts of a proxy come with growing pauses.
const USABLE_AT_MOST: Duration = Duration::from_secs(6);

#[test]
#[ignore = "needs root"]
fn a_proxy_that_waits_is_usable_soon_after_the_firewall_of_its_server_has_opened() {
    for carrier in CARRIERS {
        let (routed, firewall, _serve) = behind_a_firewall("denied_proxy", carrier);
        let mut command = Command::new(PLAIT);
        command.args(["proxy", "--wait", "-s", &routed.world.url, "--carrier", carrier, "--keys", "client"]);
        command.args(["--path", "wan1", "--path", "wan2", "--socks", "127.0.0.1:0"]);
        command.current_dir(&routed.world.directory);
        let mut proxy = routed.world.start(&routed.world.client, "proxy", command);
        let line = proxy.wait_for_line("SOCKS5 at ", TIMEOUT).expect("its address");
        let at = line.split("SOCKS5 at ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let at = at.expect("an address").trim_end_matches([',', ';', '.']).to_owned();
        thread::sleep(DENIED);
        drop(firewall);
        let begin = Instant::now();
        until("an answer", || routed.world.client.enter(|| is_answered(&at)).expect("entered"));
        let took = begin.elapsed();
        println!("{carrier}: a proxy is usable {took:?} after the firewall has opened");
        assert!(took <= USABLE_AT_MOST, "{took:?}: {}", proxy.errors());
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_that_starts_before_the_firewall_of_its_server_opens_is_connected_soon_after() {
    for carrier in CARRIERS {
        let (routed, firewall, _serve) = behind_a_firewall("denied_run", carrier);
        let words = stream::program();
        let mut run = routed.run(carrier, &PATHS, &words.each_ref().map(String::as_str));
        thread::sleep(DENIED);
        drop(firewall);
        let begin = Instant::now();
        run.wait_for_output("stream", TIMEOUT).expect("the stream flows");
        let took = begin.elapsed();
        println!("{carrier}: run is usable {took:?} after the firewall has opened");
        assert!(took <= USABLE_AT_MOST, "{took:?}: {}", run.errors());
    }
}

#[test]
#[ignore = "needs root"]
fn temporary_addresses_that_come_and_go_do_not_hold_a_transfer_up() {
    for carrier in CARRIERS {
        let mut routed = Routed::without_server("temporary");
        stream::services(&routed.world);
        let (client, server) = (&routed.world.client, &routed.world.server);
        routed.router.set_sysctl("net.ipv6.conf.all.forwarding", 1).expect("set");
        for (name, value) in [
            ("use_tempaddr", 2),
            ("temp_prefered_lft", 3),
            ("temp_valid_lft", 5),
            ("max_desync_factor", 0),
            ("dad_transmits", 0),
            ("regen_max_retry", 1),
        ] {
            client.set_sysctl(&format!("net.ipv6.conf.wan1.{name}"), value).expect("set");
        }
        ip(&routed.router, "address add fd81:1::1/64 dev c1 nodad");
        ip(&routed.router, "address add fd82::1/64 dev s nodad");
        ip(server, "address add fd82::2/64 dev wan1 nodad");
        ip(server, "route add default via fd82::1 dev wan1");
        ip(client, "address add fd81:1::1234/64 dev wan1 mngtmpaddr");
        ip(client, "route add default via fd81:1::1 dev wan1");
        let mut serve = routed.serve(carrier);
        let url = serve.wait_for_output("plait://[fd82::2]", TIMEOUT).expect("its URL");
        routed.world.url = url;
        let mut stream = Stream::start(&routed, carrier, &["wan1"]);
        let temporary =
            || routed.world.client.ip("-6 -o address show dev wan1 temporary -deprecated").expect("a list");
        let (begin, first) = (SystemTime::now(), temporary());
        assert!(!first.trim().is_empty(), "the kernel makes temporary addresses");
        thread::sleep(Duration::from_secs(6));
        assert_ne!(temporary(), first, "they have been replaced");
        let what = format!("{carrier}, temporary addresses");
        stream.stands_still_within(&what, begin, Duration::from_secs(6)).assert_short(&what);
    }
}

#[test]
#[ignore = "needs root"]
fn two_modems_with_one_address_and_one_gateway_are_two_paths_of_a_transfer() {
    for carrier in CARRIERS {
        let (mut routed, _modems, _tables) = two_modems("modems");
        // Over UDP alone plait changes no setting, and no route by source can tell the modems apart.
        for name in ["all", "wan1", "wan2"] {
            routed.world.client.set_sysctl(&format!("net.ipv4.conf.{name}.rp_filter"), 2).expect("set");
        }
        stream::services(&routed.world);
        let mut serve = routed.serve(carrier);
        routed.world.url = serve.wait_for_output("plait://", TIMEOUT).expect("its URL");
        let mut stream = Stream::start(&routed, carrier, &PATHS);
        let world = &routed.world;
        until("both paths carry something", || carried(&world.client).iter().all(|bytes| *bytes > 10_000));
        for (device, metric) in [("wan1", 101), ("wan2", 102)] {
            let begin = SystemTime::now();
            ip(&world.client, &format!("link set {device} down"));
            let what = format!("{carrier}, the modem of {device} goes");
            stream.stands_still_after(&what, begin).assert_short(&what);
            ip(&world.client, &format!("link set {device} up"));
            let route = format!("route add default via 192.168.8.1 dev {device} metric {metric}");
            ip(&world.client, &route);
            // The other modem goes next.
            let before = carried(&world.client);
            let is_back = |device: usize| carried(&world.client)[device] > before[device] + 2_000;
            until("the path is back", || is_back(metric - 101));
        }
    }
}

/// Bytes that have arrived over each path.
fn carried(client: &Namespace) -> [u64; 2] {
    let counters = client.interface_counters().expect("counters");
    PATHS.map(|path| counters[path].received_bytes)
}

#[test]
#[ignore = "needs root"]
fn both_paths_carry_data_again_soon_after_the_first_has_returned() {
    /// Of each path, in bytes for a second.
    const RATE: u64 = 1_000_000;
    for carrier in CARRIERS {
        let routed = Routed::new("returned", carrier);
        let (world, router) = (&routed.world, &routed.router);
        for device in ["c1", "c2"] {
            let link = Link::existing(router, device).expect("a wire");
            link.limit_rate(Rate::megabits(8)).expect("limited");
        }
        world.service(7022, |mut stream| while stream.write_all(&[7; 65536]).is_ok() {});
        let read = format!("exec 3<>/dev/tcp/{SERVER}/7022; exec cat <&3 >/dev/null");
        let _run = routed.run(carrier, &PATHS, &["bash", "-c", &read]);
        let aggregated = || {
            let before = carried(&world.client);
            thread::sleep(Duration::from_millis(500));
            let after = carried(&world.client);
            // Half of the rate for half of a second.
            before.iter().zip(after).all(|(before, after)| after - before > RATE / 4)
        };
        until("both paths carry data", aggregated);
        ip(&world.client, "link set wan1 down");
        thread::sleep(Duration::from_secs(3));
        ip(&world.client, "link set wan1 up");
        routed.route(1, "wan1");
        let begin = Instant::now();
        until("both paths carry data again", aggregated);
        let took = begin.elapsed();
        println!("{carrier}: both paths carry data {took:?} after the first has returned");
        assert!(took < Duration::from_secs(6), "{took:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_forward_that_every_host_reaches_says_so() {
    let routed = Routed::new("open", "udp");
    for (at, is_open) in [("0.0.0.0:8081", true), ("127.0.0.1:8082", false)] {
        let mut command = Command::new(PLAIT);
        command.args(["forward", "-s", &routed.world.url, "--carrier", "udp", "--keys", "client"]);
        command.args(["--path", "wan1", "-L", &format!("{at}:{SERVER}:7021")]);
        command.current_dir(&routed.world.directory);
        let mut forward = routed.world.start(&routed.world.client, "forward", command);
        let warning = format!("every host that reaches {at} can use it");
        if is_open {
            forward.wait_for_line(&warning, TIMEOUT).expect("a warning");
        } else {
            forward.wait_for_line(at, TIMEOUT).expect("it listens");
            thread::sleep(Duration::from_millis(100));
            assert!(!forward.errors().contains(&warning), "{}", forward.errors());
        }
    }
}

/// They need a server and a client of DHCP, which `scripts/setup --with-programs` installs: `scripts/programs --only field` runs them.
mod long {
    use super::*;

    use std::fs;
    use std::path::PathBuf;

    use nix::sys::signal::Signal;
    use plait_lab::Program;

    /// What a DHCP client does: it notes the time at which the device can be used.
    const SCRIPT: &str = "#!/bin/sh\n\
        case $1 in\n\
        deconfig) ip -4 address flush dev $interface; ip link set $interface up ;;\n\
        bound | renew)\n\
        \x20 ip address replace $ip/$mask dev $interface\n\
        \x20 ip route replace default via $router dev $interface metric 101\n\
        \x20 ip route replace default via $router dev $interface table 101\n\
        \x20 echo $1 $ip $(date +%s.%N) >> NOTES ;;\n\
        esac\n";

    /// A client of DHCP on `wan1`, and the server in the router.
    struct Leases<'a> {
        routed: &'a Routed,
        client: Program,
        server: Option<Program>,
        notes: PathBuf,
    }

    impl<'a> Leases<'a> {
        /// Gives the client its first lease.
        fn begin(routed: &'a Routed, last: u8) -> Self {
            let directory = &routed.world.directory;
            let (script, notes) = (directory.join("lease"), directory.join("notes"));
            fs::write(&notes, "").expect("written");
            fs::write(&script, SCRIPT.replace("NOTES", &notes.display().to_string())).expect("written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&script, mode).expect("set");
            ip(&routed.world.client, "address flush dev wan1");
            let server = Some(serve(routed, last));
            let mut command = Command::new("udhcpc");
            command.args(["-f", "-t", "20", "-T", "1", "-i", "wan1", "-s"]).arg(&script);
            let client = routed.world.start(&routed.world.client, "udhcpc", command);
            let leases = Self { routed, client, server, notes };
            leases.wait_for("bound", last, 0);
            leases
        }

        /// Renews the lease; the server gives the address that ends with `last`. Returns when the device could be used.
        fn renew(&mut self, last: u8) -> SystemTime {
            let before = self.lines().len();
            let is_same = self.lines().last().is_some_and(|line| line.contains(&format!(".{last} ")));
            if !is_same {
                drop(self.server.take());
                self.server = Some(serve(self.routed, last));
            }
            self.client.signal(Signal::SIGUSR1);
            self.wait_for(if is_same { "renew" } else { "bound" }, last, before)
        }

        fn lines(&self) -> Vec<String> {
            fs::read_to_string(&self.notes).expect("text").lines().map(str::to_owned).collect()
        }

        fn wait_for(&self, word: &str, last: u8, after: usize) -> SystemTime {
            let start = format!("{word} 10.81.1.{last} ");
            let found = || {
                let lines = self.lines();
                let line = lines.into_iter().skip(after).find(|line| line.starts_with(&start))?;
                line[start.len()..].parse::<f64>().ok()
            };
            until("a lease", || found().is_some());
            SystemTime::UNIX_EPOCH + Duration::from_secs_f64(found().expect("just seen"))
        }
    }

    /// A server that gives `wan1` this address, and denies every other one.
    fn serve(routed: &Routed, last: u8) -> Program {
        let mut command = Command::new("dnsmasq");
        command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root"]);
        command.args(["--pid-file=", "--interface=c1", "--bind-interfaces", "--dhcp-authoritative"]);
        command.args(["--dhcp-range=10.81.1.50,10.81.1.99,2m", "--dhcp-option=3,10.81.1.1", "--no-ping"]);
        command.arg(format!("--dhcp-host=02:00:00:00:00:01,10.81.1.{last}"));
        let file = routed.world.directory.join(format!("leases-{last}"));
        command.arg(format!("--dhcp-leasefile={}", file.display()));
        let server = routed.world.start(&routed.router, &format!("dnsmasq-{last}"), command);
        thread::sleep(Duration::from_millis(300));
        server
    }

    #[test]
    #[ignore = "needs root, dnsmasq and udhcpc"]
    fn a_lease_that_is_renewed_with_the_same_or_another_address_holds_a_transfer_up_for_a_second_at_most() {
        for carrier in CARRIERS {
            let routed = Routed::new("leases", carrier);
            stream::services(&routed.world);
            let mut leases = Leases::begin(&routed, 51);
            let mut stream = Stream::start(&routed, carrier, &["wan1"]);
            for last in [51, 61, 61, 51] {
                let usable = leases.renew(last);
                let what = format!("{carrier}, a lease of 10.81.1.{last}");
                stream.stands_still_after(&what, usable).assert_short(&what);
            }
        }
    }
}
