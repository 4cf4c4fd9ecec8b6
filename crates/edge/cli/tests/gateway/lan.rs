//! A LAN of three devices at a bridge of a host that has `plait gateway`, with two paths to the machine of the server.
//!
//! Without plait, that host passes their packets on, and the machine of the server is the router to everything else. Tables there count what comes
//! from the addresses of each device, which is what leaves in clear.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use plait_lab::Program;
use plait_netns::nft::Table;
use plait_netns::{Namespace, veth};
use serde_json::Value;

use super::support::{PLAIT, SERVER, SERVER_V6, TIMEOUT, World};

/// A nameserver that is not there: questions to it must not leave.
const NAMESERVER: &str = "192.0.2.53";

pub(super) struct Lan {
    pub(super) world: World,
    pub(super) devices: [Device; 3],
}

pub(super) struct Device {
    pub(super) namespace: Namespace,
    pub(super) mac: String,
    pub(super) address: String,
    pub(super) address_v6: String,
    clear: Table,
    directory: std::path::PathBuf,
}

impl Lan {
    pub(super) fn new(label: &str) -> Self {
        let mut world = World::without_server(label);
        world.add_ipv6();
        let (host, server) = (&world.client, &world.server);
        for path in [1, 2] {
            let metric = 100 + path;
            for words in [
                format!("route add default via 10.77.{path}.2 dev wan{path} metric {metric}"),
                format!("-6 route add default via fd77:{path}::2 dev wan{path} metric {metric}"),
            ] {
                host.ip(&words).expect("a route");
            }
        }
        for words in [
            "link add br0 type bridge",
            "address add 10.66.0.1/24 dev br0",
            "-6 address add fd66::1/64 dev br0 nodad",
            "link set br0 up",
        ] {
            host.ip(words).expect(words);
        }
        for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            host.set_sysctl(name, 1).expect(name);
        }
        server.ip("route add 10.66.0.0/24 via 10.77.1.1").expect("added");
        server.ip("-6 route add fd66::/64 via fd77:1::1").expect("added");
        let devices = [1, 2, 3].map(|number| Device::new(&world, label, number));
        let v6 = format!("[{SERVER_V6}]:*");
        world.serve(&["--anyone", "--carrier", "auto", "--allow", &v6]);
        world.make_file("page", 1000);
        world.daemon(8080, "python3", &["-m", "http.server", "8080", "--bind", "::"]);
        world.resolver();
        fs::write(world.file("resolv.conf"), format!("nameserver {NAMESERVER}\n")).expect("written");
        Self { world, devices }
    }

    /// Starts `plait gateway` and waits until it carries.
    pub(super) fn gateway(&self, options: &[&str]) -> Program {
        let mut command = Command::new(PLAIT);
        command.args(["gateway", "-s", &self.world.url, "--keys", "client", "--accept-new"]);
        command.args(["--lan-device", "br0", "--path", "wan1", "--path", "wan2"]);
        command.args(options).current_dir(&self.world.directory);
        let mut gateway = self.world.start(&self.world.client, "gateway", command);
        let line = gateway.wait_for_line("go through the server", TIMEOUT);
        line.unwrap_or_else(|error| panic!("{error}: {} {}", gateway.errors(), self.world.serve_log()));
        gateway
    }

    /// Runs a command of `plait` on the host to its end.
    pub(super) fn plait(&self, words: &[&str]) -> Output {
        let mut command = Command::new(PLAIT);
        command.args(words).env_remove("SUDO_UID").current_dir(&self.world.directory).stdin(Stdio::null());
        self.world.client.enter(|| command.output()).expect("entered").expect("it runs")
    }

    /// The device with this link-layer address, as the gateway reports it.
    pub(super) fn report(&self, gateway: &Program, mac: &str) -> Value {
        let output = self.plait(&["status", "--json", &gateway.pid().to_string()]);
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let devices = status["plaits"][0]["devices"].as_array().cloned().unwrap_or_default();
        devices.into_iter().find(|device| device["mac"] == mac).unwrap_or_default()
    }
}

impl Device {
    fn new(world: &World, label: &str, number: u8) -> Self {
        let namespace = Namespace::named(&format!("{label}_{number}")).expect("root");
        let (port, device) =
            veth((&world.client, &format!("port{number}")), (&namespace, "eth0")).expect("a wire");
        let mac = format!("02:00:00:00:66:0{number}");
        let (address, address_v6) = (format!("10.66.0.1{number}"), format!("fd66::1{number}"));
        world.client.ip(&format!("link set {} master br0", port.name())).expect("set");
        namespace.ip(&format!("link set eth0 address {mac}")).expect("set");
        for link in [port, device] {
            link.up().expect("up");
        }
        for words in [
            format!("address add {address}/24 dev eth0"),
            format!("-6 address add {address_v6}/64 dev eth0 nodad"),
            "route add default via 10.66.0.1".to_owned(),
            "-6 route add default via fd66::1".to_owned(),
        ] {
            namespace.ip(&words).expect(&words);
        }
        let clear = format!(
            "chain i {{ type filter hook prerouting priority -300; ip saddr {address} counter; ip6 saddr {address_v6} counter; }}"
        );
        let clear = Table::install(&world.server, &clear).expect("nft is installed");
        Self { namespace, mac, address, address_v6, clear, directory: world.directory.clone() }
    }

    /// Packets of it in clear so far.
    pub(super) fn leaks(&self) -> u64 {
        self.clear.packets().expect("counters")
    }

    /// Runs any program on the device.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("unshare");
        let script = "mount --bind resolv.conf /etc/resolv.conf && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, "sh", program]).args(arguments);
        command.current_dir(&self.directory).stdin(Stdio::null());
        self.namespace.enter(|| command.output()).expect("entered").expect("it is installed")
    }

    /// Whether it gets the page at this host within these seconds.
    pub(super) fn gets_page(&self, host: &str, seconds: &str) -> bool {
        let url = format!("http://{host}:8080/page");
        let got = format!("got-{}", self.address);
        let output = self.run("curl", &["-s", "-m", seconds, "-o", &got, &url]);
        output.status.success() && fs::read(self.directory.join(got)).is_ok_and(|got| got.len() == 1000)
    }

    /// The outcome of a datagram to a port of [`SERVER`] without a listener, and the answer that it gets.
    pub(super) fn datagram(&self) -> io::Result<usize> {
        let send = || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect((SERVER, 443))?;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            // A refusal is reported by the next call.
            socket.send(b"datagram")?;
            socket.recv(&mut [0; 10])
        };
        self.namespace.enter(send).expect("entered")
    }

    /// A connection that a program of the device opens.
    pub(super) fn connect(&self, to: &str, port: u16) -> io::Result<TcpStream> {
        connect(&self.namespace, to, port)
    }
}

/// A connection that a program of a host opens, in a thread of the test.
pub(super) fn connect(host: &Namespace, to: &str, port: u16) -> io::Result<TcpStream> {
    let to = SocketAddr::new(to.parse::<IpAddr>().expect("an address"), port);
    host.enter(|| TcpStream::connect_timeout(&to, Duration::from_secs(3))).expect("entered")
}

pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
