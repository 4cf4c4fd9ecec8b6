//! Two hosts in namespaces with two paths between them, real servers on one and `plait serve` before them.

#![allow(dead_code, reason = "each test uses what it needs")]

pub(crate) mod certificates;
pub(crate) mod here;
pub(crate) mod routed;
pub(crate) mod static_program;
pub(crate) mod stream;
pub(crate) mod traces;
pub(crate) mod udp;
pub(crate) mod user;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plait_lab::wired::{Pair, Wire};
use plait_lab::{End, Program};
use plait_netns::{Cidr, Link, Namespace, Rate};

/// Where the servers are: nowhere the client has a route to.
pub(crate) const SERVER: &str = "198.51.100.1";
/// The same over IPv6, in worlds that have it.
pub(crate) const SERVER_V6: &str = "2001:db8:100::1";
/// A name of it that only the server's resolver knows.
pub(crate) const NAME: &str = "files.example";
/// The program under test.
pub(crate) const PLAIT: &str = env!("CARGO_BIN_EXE_plait");

/// Longer than anything takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// A file that only its owner can use.
pub(crate) fn write_secret(file: &Path, text: &str) {
    fs::write(file, text).expect("written");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("ours");
}

pub(crate) struct World {
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
    /// The client's ends of the paths.
    pub(crate) paths: Vec<Link>,
    /// Files of this world, gone with it.
    pub(crate) directory: PathBuf,
    /// What `plait serve` printed.
    pub(crate) url: String,
    serve: Option<Program>,
    daemons: Vec<Program>,
}

impl World {
    /// With a server that allows every client to connect to all ports of [`SERVER`].
    pub(crate) fn new(label: &str) -> Self {
        let mut world = Self::without_server(label);
        world.serve(&["--anyone"]);
        world
    }

    pub(crate) fn without_server(label: &str) -> Self {
        plait_netns::tun::permitted().expect("root, with /dev/net/tun");
        let mut pair = Pair::new(label).expect("root can make namespaces");
        for (number, name) in [(1, "wan1"), (2, "wan2")] {
            let at = |host: u8| Cidr::new([10, 77, number, host].into(), 24);
            let devices = [name, name].map(str::to_owned);
            pair.lay(&Wire { devices, addresses: vec![[at(1), at(2)]] }).expect("a path");
        }
        let Pair { client, server, wires } = pair;
        let mut world = Self::unconnected(label, client, server);
        world.paths = wires.into_iter().map(|[near, _]| near).collect();
        world
    }

    /// Two hosts without a network, with the address of the services.
    pub(crate) fn unconnected(label: &str, client: Namespace, server: Namespace) -> Self {
        server.ip(&format!("address add {SERVER}/32 dev lo")).expect("added");
        let directory = std::env::temp_dir().join(format!("plait-{label}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        let (paths, url, daemons) = (Vec::new(), String::new(), Vec::new());
        Self { client, server, paths, directory, url, serve: None, daemons }
    }

    /// Starts `plait serve` for all ports of [`SERVER`] and waits for its line.
    pub(crate) fn serve(&mut self, arguments: &[&str]) {
        let rule = format!("{SERVER}:*");
        let name = format!("{NAME}:*");
        let mut command = Command::new(PLAIT);
        command.args([
            "serve", "--proxy", "--allow", &rule, "--allow", &name, "--path", "wan1", "--path", "wan2",
        ]);
        command.arg("--keys").arg(self.directory.join("server"));
        command.args(["--resolver", SERVER]).args(arguments).current_dir(&self.directory);
        let mut serve = self.start(&self.server, "serve", command);
        self.url = serve.wait_for_output("plait://", TIMEOUT).expect("the address of plait serve");
        self.serve = Some(serve);
    }

    /// Starts `plait serve` for every client, with the nameservers in the file `resolv.conf` of this world, and waits for its line.
    pub(crate) fn serve_with_nameservers(&mut self) {
        let script = "mount --bind resolv.conf /etc/resolv.conf && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", PLAIT, "serve", "--proxy", "--anyone"]);
        command.args(["--allow", &format!("{SERVER}:*"), "--path", "wan1", "--path", "wan2"]);
        command.arg("--keys").arg(self.directory.join("server")).current_dir(&self.directory);
        let mut serve = self.start(&self.server, "serve", command);
        self.url = serve.wait_for_output("plait://", TIMEOUT).expect("the address of plait serve");
        self.serve = Some(serve);
    }

    /// Starts a program in one of the hosts, with its output in files of this world.
    pub(crate) fn start(&self, host: &Namespace, name: &str, mut command: Command) -> Program {
        // The files here are root's, even if sudo runs the test.
        command.env_remove("SUDO_UID");
        Program::start(host, &self.directory, name, command, End::Own, End::Own).expect("started")
    }

    /// Ends `plait serve` by SIGTERM and returns its exit code.
    pub(crate) fn stop_serving(&mut self) -> Option<i32> {
        let mut serve = self.serve.take().expect("it runs");
        serve.stop(TIMEOUT).expect("an end").code()
    }

    /// Kills `plait serve`, which cannot tell its clients.
    pub(crate) fn kill_serving(&mut self) {
        let mut serve = self.serve.take().expect("it runs");
        serve.signal(nix::sys::signal::Signal::SIGKILL);
        serve.wait(TIMEOUT).expect("an end");
    }

    /// What plait may have put into the network of a host.
    pub(crate) fn network(host: &Namespace) -> String {
        let commands =
            ["ip -br link", "ip rule", "ip -6 rule", "ip route show table all proto 74", "nft list ruleset"];
        let output = |command: &&str| {
            let mut words = command.split(' ');
            let mut command = Command::new(words.next().expect("a program"));
            command.args(words);
            let output = host.enter(|| command.output()).expect("entered").expect("installed");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        commands.iter().map(output).collect()
    }

    /// What `plait serve` has printed so far.
    pub(crate) fn serve_output(&self) -> String {
        fs::read_to_string(self.serve.as_ref().expect("it runs").output()).expect("text")
    }

    /// What `plait serve` has said on standard error so far.
    pub(crate) fn serve_log(&self) -> String {
        self.serve.as_ref().expect("it runs").errors()
    }

    /// The process of `plait serve`.
    pub(crate) fn serve_id(&self) -> u32 {
        self.serve.as_ref().expect("it runs").pid()
    }

    /// IPv6 beside IPv4 on both paths, and at [`SERVER_V6`].
    pub(crate) fn add_ipv6(&self) {
        for (number, path) in (1..).zip(&self.paths) {
            let far = Link::existing(&self.server, path.name()).expect("the other end");
            for (link, host) in [(path, 1), (&far, 2)] {
                let address = format!("fd77:{number}::{host}").parse().expect("an address");
                link.add_address(Cidr::new(address, 64)).expect("added");
            }
        }
        self.server.ip(&format!("address add {SERVER_V6}/128 dev lo nodad")).expect("added");
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file of `len` bytes in which no two lines are alike; its SHA-256.
    pub(crate) fn make_file(&self, name: &str, len: usize) -> String {
        let bytes: Vec<u8> = (0..len.div_ceil(8) as u64)
            .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
            .take(len)
            .collect();
        fs::write(self.file(name), bytes).expect("written");
        sha256(&self.file(name))
    }

    /// Starts a server and waits until its port answers.
    pub(crate) fn daemon(&mut self, port: u16, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.directory);
        let name = format!("server-{port}");
        let daemon = self.start(&self.server, &name, command);
        self.daemons.push(daemon);
        let answers = || TcpStream::connect((SERVER, port)).is_ok();
        until(program, || self.server.enter(answers).expect("entered"));
    }

    /// An HTTP server for the files of this world at port 8080.
    pub(crate) fn http(&mut self) {
        self.daemon(8080, "python3", &["-m", "http.server", "8080"]);
    }

    /// Serves each connection to `port` by a thread of the test.
    pub(crate) fn service(&self, port: u16, talk: fn(TcpStream)) {
        let bind = || TcpListener::bind((SERVER, port)).expect("a port");
        let listener = self.server.enter(bind).expect("entered");
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                thread::spawn(move || talk(stream));
            }
        });
    }

    /// A resolver that knows [`NAME`].
    pub(crate) fn resolver(&self) {
        self.service(53, answer_queries);
    }

    /// `plait run` with these options for this world's server.
    pub(crate) fn run(&self, options: &[&str], program: &[&str]) -> Output {
        self.run_as("client", &self.url, options, program)
    }

    /// The same for another server, with the keys in a directory of this name.
    pub(crate) fn run_as(&self, keys: &str, url: &str, options: &[&str], program: &[&str]) -> Output {
        let mut command = Command::new("setsid");
        // In a session of its own: no terminal can be asked.
        command.args(["--wait", PLAIT, "run", "-s", url, "--path", "wan1", "--path", "wan2"]);
        command.arg("--keys").arg(self.directory.join(keys)).args(options).arg("--").args(program);
        // The files here are root's, even if sudo runs the test.
        command.env_remove("SUDO_UID").current_dir(&self.directory).stdin(Stdio::null());
        self.client.enter(|| command.output()).expect("entered").expect("setsid is installed")
    }

    /// Runs a program; its output must have this SHA-256.
    pub(crate) fn expect_bytes(&self, expected: &str, program: &[&str]) {
        let started = Instant::now();
        let output = self.run(&[], program);
        assert_ended(&output, 0, program);
        let got = self.file("got");
        fs::write(&got, &output.stdout).expect("written");
        assert_eq!(sha256(&got), expected, "{program:?}: {} bytes", output.stdout.len());
        println!("{}: {} bytes in {:?}", program[0], output.stdout.len(), started.elapsed());
    }

    /// Runs `plait key` for the keys in a directory of this name and returns what it says.
    pub(crate) fn key(&self, keys: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(PLAIT);
        command.arg("key").args(arguments).arg("--keys").arg(self.directory.join(keys));
        let output = command.output().expect("started");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Starts `plait proxy` and returns it with its address.
    pub(crate) fn proxy(&self, arguments: &[&str]) -> (Program, String) {
        let mut command = Command::new(PLAIT);
        command.args([
            "proxy",
            "-s",
            &self.url,
            "--path",
            "wan1",
            "--path",
            "wan2",
            "--socks",
            "127.0.0.1:0",
        ]);
        command.args(arguments).current_dir(&self.directory);
        let mut proxy = self.start(&self.client, "proxy", command);
        let line = proxy.wait_for_line("SOCKS5 at ", TIMEOUT).expect("its address");
        let at = line.strip_prefix("plait: SOCKS5 at ").expect(&line).to_owned();
        (proxy, at)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.serve = None;
        self.daemons.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Slows a path down in both directions of the client's view.
pub(crate) fn slow_down(link: &Link, server: &Namespace, megabits: u32) {
    link.limit_rate(Rate::megabits(megabits)).expect("limited");
    let far = Link::existing(server, link.name()).expect("the other end");
    far.limit_rate(Rate::megabits(megabits)).expect("limited");
}

pub(crate) fn assert_ended(output: &Output, code: i32, what: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{what:?} says {said}");
}

pub(crate) fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().expect("coreutils");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_whitespace().next().expect("a digest").to_owned()
}

pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_or_tell(what, is_so, String::new);
}

/// Waits, and tells what it was like if that lasts too long.
pub(crate) fn until_or_tell(what: &str, mut is_so: impl FnMut() -> bool, told: impl Fn() -> String) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}\n{}", told());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Names that [`answer_queries`] knows: [`NAME`], and the one in the book.
const NAMES: [&str; 2] = [NAME, "example.org"];

/// DNS over TCP: an address for [`NAMES`], and no other name.
pub(crate) fn answer_queries(mut stream: TcpStream) {
    let mut len = [0; 2];
    while stream.read_exact(&mut len).is_ok() {
        let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
        if stream.read_exact(&mut query).is_err() {
            return;
        }
        let known = NAMES.map(wire_form).into_iter().find(|name| query[12..].starts_with(name));
        let is_known = known.is_some();
        let is_v4 = known.is_some_and(|name| query[12..].get(name.len()..name.len() + 2) == Some(&[0, 1]));
        let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap_or(0) + 5;
        let mut answer = query[..end].to_vec();
        let has_answer = is_known && is_v4;
        answer[2..4].copy_from_slice(&[0x81, if is_known { 0x80 } else { 0x83 }]);
        answer[6..12].copy_from_slice(&[0, u8::from(has_answer), 0, 0, 0, 0]);
        if has_answer {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 51, 100, 1]);
        }
        let len = u16::try_from(answer.len()).expect("short");
        if stream.write_all(&[&len.to_be_bytes()[..], &answer].concat()).is_err() {
            return;
        }
    }
}

/// A name as DNS writes it.
fn wire_form(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| {
        let len = u8::try_from(label.len()).expect("short");
        std::iter::once(len).chain(label.bytes())
    });
    labels.chain([0]).collect()
}
