//! The lab of the soak, the service behind the server, and the plait programs that run from the beginning to the end.

use std::fs;
use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::OnceLock;

use plait_lab::{Conditions, Lab, LabConfig, PathClass, PathConfig, Program};
use plait_netns::{Cidr, Link};

use crate::support::{PLAIT, SERVER, TIMEOUT, World};

/// The port of the service that all load goes to.
const SERVICE: u16 = 7020;
/// A port that the client may use or not, by turns.
pub(crate) const SOMETIMES: u16 = 7021;
/// The port of `plait serve`.
pub(crate) const GATE: u16 = 7443;
/// Bytes of the file from which all streams are made.
const BLOCK: usize = 1_000_003;
/// Largest piece of a stream that the service writes at once.
const PIECE: usize = 1 << 16;
/// Rate of each path and direction, and the delay of one way.
const MEGABITS: u64 = 10;
const DELAY_MS: u64 = 5;
/// The path without an attacker, and the other.
pub(crate) const PATHS: [&str; 2] = ["wan1", "wan2"];

/// Two hosts with an attacker on the second path, and the programs in them.
pub(crate) struct Scene {
    // In the order of dropping: the programs go before the namespaces.
    pub(crate) proxy: Program,
    /// The address of its SOCKS5 port.
    pub(crate) socks: String,
    pub(crate) forward: Program,
    /// The address of its port, which leads to the service.
    forwarded: String,
    /// The private half of the client's line in the configuration of the server.
    key: String,
    /// The network of the client and of the server before the programs.
    pub(crate) networks: [String; 2],
    pub(crate) world: World,
    pub(crate) lab: Lab,
}

impl Scene {
    pub(crate) fn new(label: &str) -> Self {
        let conditions = Conditions::megabits(MEGABITS, DELAY_MS);
        let classes = [PathClass::Trusted, PathClass::Untrusted];
        let paths =
            PATHS.iter().zip(classes).map(|(name, class)| PathConfig::new(name, class, conditions.clone()));
        let lab =
            Lab::up(LabConfig { paths: paths.collect(), memory: 0, ..LabConfig::default() }).expect("root");
        let (client, server) = (lab.client().namespace().clone(), lab.server().namespace().clone());
        // Whatever reaches the service went through plait.
        client.ip(&format!("route add blackhole {SERVER}")).expect("added");
        let networks = [World::network(&client), World::network(&server)];
        let mut world = World::unconnected(label, client, server);
        let link = |name| Link::existing(&world.client, name).expect("a path");
        world.paths = PATHS.map(link).to_vec();
        world.make_file("block", BLOCK);
        STREAM.get_or_init(|| fs::read(world.file("block")).expect("read").repeat(2));
        world.service(SERVICE, |stream| drop(talk(stream)));
        world.service(SOMETIMES, |mut stream| drop(stream.write_all(b"x")));
        let key = world.key("client", &["gen"]).lines().nth(1).expect("its second line").to_owned();
        write_configuration(&world, &key, true);
        let at = lab.service().v4.to_string();
        world.serve(&[
            "--config",
            "server.toml",
            "--carrier",
            "auto",
            "--advertise",
            &at,
            "--access-log",
            "access.log",
        ]);
        let (proxy, socks) = world.proxy(&["--carrier", "auto", "--keys", "client"]);
        let mut command = plait(&world, "forward", "udp");
        command.args(["-L", &format!("0:{SERVER}:{SERVICE}")]);
        let mut forward = world.start(&world.client, "forward", command);
        let line = forward.wait_for_line("forwarding ", TIMEOUT).expect("its address");
        let forwarded = line.split_whitespace().nth(2).expect("an address").to_owned();
        Self { proxy, socks, forward, forwarded, key, networks, world, lab }
    }

    /// Starts the three programs that talk to the service: through the proxy, the forwarded port, and `plait run`.
    pub(crate) fn start_load(&self) -> [Program; 3] {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soak/load.py");
        let start = |name: &str, mut command: Command, way: &[&str]| {
            command.arg(script).args(way).current_dir(&self.world.directory);
            self.world.start(&self.world.client, name, command)
        };
        [
            start("load-proxy", Command::new("python3"), &["socks", &self.socks]),
            start("load-forward", Command::new("python3"), &["forward", &self.forwarded]),
            start("load-run", self.run("tcp"), &["direct"]),
        ]
    }

    /// `plait run` with Python.
    pub(crate) fn run(&self, carrier: &str) -> Command {
        let mut command = plait(&self.world, "run", carrier);
        command.args(["--", "python3"]);
        command
    }

    /// The same load, as a client that does not end in order.
    pub(crate) fn start_victim(&self, carrier: &str) -> Program {
        let mut command = self.run(carrier);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soak/load.py")).arg("direct");
        command.current_dir(&self.world.directory);
        self.world.start(&self.world.client, "victim", command)
    }

    /// Allows the client to use [`SOMETIMES`], or not, as of the next reload.
    pub(crate) fn allow(&self, sometimes: bool) {
        write_configuration(&self.world, &self.key, sometimes);
    }

    /// Whether the proxy connects to [`SOMETIMES`].
    pub(crate) fn reaches_sometimes(&self) -> Result<bool> {
        let connect = || TcpStream::connect(&self.socks);
        let mut stream = self.world.client.enter(connect).expect("entered")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let address: std::net::Ipv4Addr = SERVER.parse().expect("an address");
        let mut request = vec![5, 1, 0, 5, 1, 0, 1];
        request.extend(address.octets());
        request.extend(SOMETIMES.to_be_bytes());
        stream.write_all(&request)?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        Ok(answer[3] == 0)
    }

    /// Brings the client's device of a path up, with its address and routes.
    pub(crate) fn connect(&self, path: usize) {
        let (link, address) = (&self.world.paths[path], self.address(path));
        link.up().expect("it is there");
        let ip = |words: String| self.world.client.ip(&words).expect("a route");
        ip(format!("address replace {address} dev {}", link.name()));
        ip(format!("route replace default dev {} table {}", link.name(), 7700 + path));
        ip(format!("route replace default dev {} metric {}", link.name(), 100 + path));
    }

    /// The client's address on a path.
    pub(crate) fn address(&self, path: usize) -> Cidr {
        Cidr::new(self.lab.paths()[path].client().v4, 24)
    }
}

/// `plait` with a command of clients.
fn plait(world: &World, command: &str, carrier: &str) -> Command {
    let mut plait = Command::new(PLAIT);
    plait.args([command, "-s", &world.url, "--path", PATHS[0], "--path", PATHS[1], "--carrier", carrier]);
    plait.args(["--keys", "client"]).current_dir(&world.directory);
    plait
}

fn write_configuration(world: &World, key: &str, sometimes: bool) {
    let more = if sometimes { format!(", \"{SERVER}:{SOMETIMES}\"") } else { String::new() };
    let text = format!(
        "[[serve.client]]\nname = \"soak\"\nkey = \"{}\"\nallow = [\"{SERVER}:{SERVICE}\"{more}]\n",
        key.trim()
    );
    fs::write(world.file("new"), text).expect("written");
    fs::rename(world.file("new"), world.file("server.toml")).expect("replaced");
}

/// The block twice, so that a piece of the stream is a slice.
static STREAM: OnceLock<Vec<u8>> = OnceLock::new();

/// The bytes of a stream from a place on, `PIECE` at most.
fn pattern(seed: u64, at: u64, len: usize) -> &'static [u8] {
    let from = ((seed + at) % BLOCK as u64) as usize;
    &STREAM.get().expect("set before")[from..from + len.min(PIECE)]
}

/// One connection to the service: `e` echoes, `d` sends a stream, `u` compares one; then length and seed.
fn talk(mut stream: TcpStream) -> Result<()> {
    let mut header = [0; 17];
    stream.read_exact(&mut header)?;
    let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| header[at + byte]));
    let (len, seed) = (number(1), number(9));
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    let mut is_same = true;
    while at < len {
        let most = (len - at).min(PIECE as u64) as usize;
        if header[0] == b'd' {
            stream.write_all(pattern(seed, at, most))?;
            at += most as u64;
            continue;
        }
        let count = stream.read(&mut buffer[..most])?;
        if count == 0 {
            return Ok(());
        }
        is_same &= buffer[..count] == *pattern(seed, at, count);
        at += count as u64;
        if header[0] == b'e' {
            stream.write_all(&buffer[..count])?;
        }
    }
    if header[0] == b'u' {
        stream.write_all(if is_same { b"k" } else { b"x" })?;
    }
    Ok(())
}
