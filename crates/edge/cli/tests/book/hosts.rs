//! The hosts of the book: a laptop with Wi-Fi and a modem, a server, and the network between them with a nameserver and a web server.
//!
//! ```text
//!         192.168.1.10 wlan0 ── 192.168.1.1 ┐
//!  laptop                                   network 192.0.2.254 ── eth0 192.0.2.1  server
//!           10.64.0.10 wwan0 ── 10.64.0.1   ┘       198.51.100.1 example.org
//! ```
//!
//! Each host has its own processes, name, users, homes, `/etc/plait` and `/run`. All of it ends with [`Hosts`].

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use plait_lab::{End, Program};
use plait_netns::{Namespace, veth};

use super::chapter::Step;
use super::shown::{self, Words};
use super::support::{self, TIMEOUT, user};

pub(super) const NAMES: [&str; 2] = ["laptop", "server"];
/// The name that the book gives to the server, and a page that is somewhere else.
const ADDRESSES: &str = "127.0.0.1 localhost\n192.0.2.1 gw.example\n198.51.100.1 example.org\n";
const NAMESERVER: &str = "198.51.100.1";
/// The ordinary user of each host.
const USER: &str = "ada";
const ID: &str = "4242";

/// The user can log in to the server by ssh: what a reader of the book has before plait comes in.
const LOGIN: &str = "
    mkdir -p -m 700 /home/ada/.ssh /etc/ssh; mount -t tmpfs tmpfs /etc/ssh
    cp ../login /home/ada/.ssh/id_ed25519; cp ../login.pub /home/ada/.ssh/authorized_keys; chmod 600 /home/ada/.ssh/*
    chown -R 4242:4242 /home/ada/.ssh
    ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
    printf 'ListenAddress 127.0.0.1\\nUsePAM no\\nPidFile none\\n' >/etc/ssh/sshd_config; /usr/sbin/sshd -E /dev/null
";

pub(super) struct Hosts {
    hosts: Vec<Host>,
    words: Words,
    /// Programs that keep running.
    running: Vec<Program>,
    directory: PathBuf,
    _web: Program,
    _network: Namespace,
}

struct Host {
    name: &'static str,
    /// The first process of the host, and the one that keeps it.
    first: u32,
    /// The exit status of the last command.
    status: i32,
    _keeper: Program,
    _namespace: Namespace,
}

impl Hosts {
    pub(super) fn new() -> Self {
        plait_netns::tun::permitted().expect("root, with /dev/net/tun");
        let directory = user::place("book");
        let [laptop, server, network] =
            ["book", "book", "book"].map(|label| Namespace::named(label).expect("root"));
        network.set_sysctl("net.ipv4.ip_forward", 1).expect("set");
        for (host, near, far) in
            [(&laptop, "wlan0", "wifi"), (&laptop, "wwan0", "lte"), (&server, "eth0", "dsl")]
        {
            veth((host, near), (&network, far)).expect("a wire");
        }
        for (host, words) in [
            (&laptop, "address add 192.168.1.10/24 dev wlan0"),
            (&network, "address add 192.168.1.1/24 dev wifi"),
            (&laptop, "address add 10.64.0.10/24 dev wwan0"),
            (&network, "address add 10.64.0.1/24 dev lte"),
            (&server, "address add 192.0.2.1/24 dev eth0"),
            (&network, "address add 192.0.2.254/24 dev dsl"),
            (&network, "address add 198.51.100.1/32 dev lo"),
            (&laptop, "route add default via 192.168.1.1 dev wlan0 metric 600"),
            (&laptop, "route add default via 10.64.0.1 dev wwan0 metric 700"),
            (&server, "route add default via 192.0.2.254 dev eth0"),
        ] {
            host.ip(words).expect(words);
        }
        let web = services(&network, &directory);
        let mut key = Command::new("ssh-keygen");
        key.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(directory.join("login"));
        assert!(key.status().expect("ssh is installed").success());
        let hosts = [("laptop", laptop), ("server", server)]
            .map(|(name, namespace)| Host::new(name, namespace, &directory))
            .into();
        Self { hosts, words: Words::new(), running: Vec::new(), directory, _web: web, _network: network }
    }

    /// Runs a command to its end and compares what it prints.
    pub(super) fn run(&mut self, step: &Step, may_fail: bool) -> Result<(), String> {
        let line = shown::filled_in(&step.command, &self.words);
        let host = self.hosts.iter_mut().find(|host| host.name == step.host).expect("one of the two");
        let started = Instant::now();
        loop {
            let mut command = host.command(step.is_root, &line);
            let output = command.output().expect("nsenter is installed");
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            let (status, ended) = (output.status.code(), host.status);
            host.status = status.unwrap_or(-1);
            let failed = status != Some(0) && !may_fail;
            let agrees = step.output.is_empty() || shown::agrees(&step.output, &printed, &mut self.words);
            if agrees && !failed {
                return Ok(());
            }
            if !step.only_looks() || started.elapsed() > TIMEOUT {
                let running: String =
                    self.running.iter().rev().take(2).map(|program| tail(&output_of(program))).collect();
                return Err(format!(
                    "status {status:?}, printed:\n{printed}running programs printed:\n{running}"
                ));
            }
            host.status = ended;
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// Starts a command that does not end, and waits until it has printed what the block shows.
    pub(super) fn start(&mut self, step: &Step) -> Result<(), String> {
        let line = shown::filled_in(&step.command, &self.words);
        let host = self.hosts.iter().find(|host| host.name == step.host).expect("one of the two");
        let command = host.command_without_limit(step.is_root, &line);
        let name = format!("{}-{}", step.host, self.running.len());
        let mut program = Program::start_here(&self.directory, &name, command, End::Own, End::Own)
            .expect("nsenter is installed");
        let mut wanted = step.output.clone();
        wanted.push("…".to_owned());
        let started = Instant::now();
        let result = loop {
            let printed = output_of(&program);
            if shown::agrees(&wanted, &printed, &mut self.words) {
                break Ok(());
            }
            if program.has_ended().expect("a process of ours") || started.elapsed() > TIMEOUT {
                break Err(format!("printed:\n{}", output_of(&program)));
            }
            thread::sleep(Duration::from_millis(50));
        };
        self.running.push(program);
        result
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.running.clear();
        self.hosts.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Host {
    fn new(name: &'static str, namespace: Namespace, directory: &Path) -> Self {
        let at = directory.join(name);
        for part in ["etc", "state", "tmp"] {
            fs::create_dir_all(at.join(part)).expect("a directory");
        }
        let mut users = fs::read_to_string("/etc/passwd").expect("text");
        users.push_str(&format!("{USER}:x:{ID}:{ID}::/home/{USER}:/bin/bash\n"));
        for (file, text) in [
            ("passwd", users.as_str()),
            ("hosts", ADDRESSES),
            ("resolv.conf", &format!("nameserver {NAMESERVER}\n")),
        ] {
            fs::write(at.join(file), text).expect("written");
        }
        let script = format!(
            "set -e; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /opt; cp {program} /opt/plait; cd {at}
             mkdir -p /etc/plait /var/lib/plait; chmod 1777 tmp
             mount --bind etc /etc/plait; mount --bind state /var/lib/plait
             for file in passwd hosts resolv.conf; do mount --bind $file /etc/$file; done
             mount -t tmpfs tmpfs /home; mkdir /home/{USER}; mount -t tmpfs tmpfs /run
             mkdir -p /run/user/{ID} /run/sshd; chmod 700 /run/user/{ID}; chown {ID}:{ID} /home/{USER} /run/user/{ID}
             {LOGIN}
             mount --bind tmp /tmp; hostname {name}; echo ready; exec sleep infinity",
            program = directory.join("plait").display(),
            at = at.display(),
        );
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
            "-c",
            &script,
        ]);
        let mut keeper =
            Program::start(&namespace, directory, name, command, End::Own, End::Own).expect("unshare");
        keeper.wait_for_output("ready", TIMEOUT).expect("a host");
        let children = format!("/proc/{pid}/task/{pid}/children", pid = keeper.pid());
        let children = fs::read_to_string(children).expect("the kernel lists children");
        let first = children.trim().parse().expect("one process");
        Self { name, first, status: 0, _keeper: keeper, _namespace: namespace }
    }

    /// A command of a user on this host, with standard error in standard output. It ends after a while.
    fn command(&self, is_root: bool, line: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &TIMEOUT.as_secs().to_string()]);
        self.enter(&mut command, is_root, line);
        command
    }

    fn command_without_limit(&self, is_root: bool, line: &str) -> Command {
        let mut command = Command::new("env");
        self.enter(&mut command, is_root, line);
        command
    }

    fn enter(&self, command: &mut Command, is_root: bool, line: &str) {
        command.args(["nsenter", "-n", "-m", "-u", "-p", "-t", &self.first.to_string(), "--"]);
        let home = if is_root { "/run".to_owned() } else { format!("/home/{USER}") };
        if !is_root {
            command.args(["setpriv", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
            command.args([format!("--reuid={ID}"), format!("--regid={ID}")]);
        }
        command.args(["env", "-i", "PATH=/opt:/usr/bin:/bin:/usr/sbin:/sbin", &format!("HOME={home}")]);
        let script = format!("exec 2>&1 </dev/null; cd; (exit {}); {line}", self.status);
        command.args(["bash", "-c", &script]);
    }
}

/// The nameserver and the web server of the network.
fn services(network: &Namespace, directory: &Path) -> Program {
    let listener = network.enter(|| TcpListener::bind((NAMESERVER, 53)).expect("a port")).expect("entered");
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || support::answer_queries(stream));
        }
    });
    let pages = directory.join("pages");
    fs::create_dir_all(&pages).expect("a directory");
    fs::write(pages.join("index.html"), "Hello from example.org\n").expect("written");
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", "http.server", "80", "--bind", NAMESERVER]).current_dir(&pages);
    let web = Program::start(network, directory, "web", command, End::Own, End::Own).expect("started");
    let answers = || std::net::TcpStream::connect((NAMESERVER, 80)).is_ok();
    support::until("the web server", || network.enter(answers).expect("entered"));
    web
}

fn output_of(program: &Program) -> String {
    fs::read_to_string(program.output()).unwrap_or_default()
}

/// The last lines of a program, for the message of a failure.
fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(6)..].iter().map(|line| format!("  {line}\n")).collect()
}
