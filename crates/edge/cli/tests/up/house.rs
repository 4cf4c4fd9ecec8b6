//! A host that has `plait up`, with two paths to the machine of the server, which is also the router to everything else.
//!
//! Without plait, programs of the host reach [`SERVER`] in clear, by the default route. A table of the server's machine counts what comes so.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use plait_lab::Program;
use plait_netns::nft::Table;

use super::support::traces::traces;
use super::support::{PLAIT, SERVER, SERVER_V6, TIMEOUT, World};

/// A nameserver that is not there: questions to it must not leave.
const NAMESERVER: &str = "192.0.2.53";

pub(super) struct House {
    pub(super) world: World,
    /// What leaves the host beside plait's segments.
    leaks: Table,
}

impl House {
    pub(super) fn new(label: &str) -> Self {
        Self::with_server(label, &["--anyone"])
    }

    pub(super) fn with_server(label: &str, arguments: &[&str]) -> Self {
        let mut world = World::without_server(label);
        world.add_ipv6();
        for path in [1, 2] {
            let metric = 100 + path;
            world
                .client
                .ip(&format!("route add default via 10.77.{path}.2 dev wan{path} metric {metric}"))
                .expect("a route");
            world
                .client
                .ip(&format!("-6 route add default via fd77:{path}::2 dev wan{path} metric {metric}"))
                .expect("a route");
        }
        let v6 = format!("[{SERVER_V6}]:*");
        world.serve(&[arguments, &["--carrier", "auto", "--allow", &v6]].concat());
        world.make_file("page", 1000);
        world.daemon(8080, "python3", &["-m", "http.server", "8080", "--bind", "::"]);
        world.resolver();
        fs::write(world.file("resolv.conf"), format!("nameserver {NAMESERVER}\n")).expect("written");
        let leaks = "chain i { type filter hook prerouting priority -300; \
             iifname != { wan1, wan2 } accept; th dport 7443 accept; ip daddr 10.77.1.2 udp dport 53 accept; \
             meta l4proto ipv6-icmp icmpv6 type != echo-request accept; meta l4proto icmp icmp type != echo-request accept; \
             ip6 daddr ff00::/8 accept; counter; }";
        let leaks = Table::install(&world.server, leaks).expect("nft is installed");
        Self { world, leaks }
    }

    /// Packets in clear so far.
    pub(super) fn leaks(&self) -> u64 {
        self.leaks.packets().expect("counters")
    }

    /// Starts `plait up` without waiting for its line.
    pub(super) fn start(&self, options: &[&str]) -> Program {
        let mut command = self.command(&["up", "-s", &self.world.url, "--keys", "client"]);
        command.args(["--accept-new", "--path", "wan1", "--path", "wan2"]).args(options);
        self.world.start(&self.world.client, "up", command)
    }

    /// Starts `plait up` and waits until it carries.
    pub(super) fn up(&self, options: &[&str]) -> Program {
        let mut up = self.start(options);
        let line = up.wait_for_line("go through the server", TIMEOUT);
        line.unwrap_or_else(|error| panic!("{error}: {} {}", up.errors(), self.world.serve_log()));
        up
    }

    /// A `plait` command of the host, with its `resolv.conf`.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = with_resolv_conf(PLAIT);
        command.args(words).current_dir(&self.world.directory);
        command
    }

    /// Runs a command of `plait` on the host to its end.
    pub(super) fn plait(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        self.world.client.enter(|| command.output()).expect("entered").expect("it runs")
    }

    /// Runs any program on the host.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = with_resolv_conf(program);
        command.args(arguments).current_dir(&self.world.directory).stdin(Stdio::null());
        self.world.client.enter(|| command.output()).expect("entered").expect("it is installed")
    }

    /// Whether a program gets the page at this host within these seconds.
    pub(super) fn gets_page(&self, host: &str, seconds: &str) -> bool {
        let url = format!("http://{host}:8080/page");
        let output = self.run("curl", &["-s", "-m", seconds, "-o", "got", &url]);
        output.status.success() && fs::read(self.world.file("got")).is_ok_and(|got| got.len() == 1000)
    }

    /// The outcome of a datagram to a port of [`SERVER`] without a listener, and the answer that it gets.
    pub(super) fn datagram(&self) -> std::io::Result<usize> {
        let send = || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect((SERVER, 9))?;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            // A refusal is reported by the next call.
            socket.send(b"datagram")?;
            socket.recv(&mut [0; 10])
        };
        self.world.client.enter(send).expect("entered")
    }

    /// A connection that a program of the host opens, in a thread of the test.
    pub(super) fn connect(&self, to: IpAddr, port: u16) -> std::io::Result<TcpStream> {
        let to = SocketAddr::new(to, port);
        self.world.client.enter(|| TcpStream::connect_timeout(&to, Duration::from_secs(5))).expect("entered")
    }

    /// All that `plait` may change on the host: rules, routes, devices, settings and files.
    pub(super) fn traces(&self) -> String {
        traces(&self.world.client) + &fs::read_to_string(self.world.file("resolv.conf")).expect("text")
    }
}

/// Answers questions for addresses of IPv4 by that of the server's machine, over UDP.
pub(super) fn answer_questions(socket: &UdpSocket) {
    let mut question = [0; 512];
    while let Ok((len, from)) = socket.recv_from(&mut question) {
        let Some(end) = question.get(12..len).and_then(|rest| rest.iter().position(|byte| *byte == 0)) else {
            continue;
        };
        let end = 12 + end + 5;
        let is_v4 = question[end - 4..end - 2] == [0, 1];
        let mut answer = question[..end].to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x80]);
        answer[6..12].copy_from_slice(&[0, u8::from(is_v4), 0, 0, 0, 0]);
        if is_v4 {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 77, 1, 2]);
        }
        let _ = socket.send_to(&answer, from);
    }
}

/// A program whose `/etc/resolv.conf` is that of the host, and which finds control groups of version 2 where they usually are.
fn with_resolv_conf(program: &str) -> Command {
    let mut command = Command::new("unshare");
    let script =
        "mount --bind resolv.conf /etc/resolv.conf && mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh", program]);
    command
}
