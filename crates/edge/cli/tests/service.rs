//! The service protocol of systemd, with a notify socket of the test's own.

#![allow(clippy::disallowed_methods, reason = "processes, sockets and files")]

mod support;

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use plait_lab::{End, Program};
use support::{PLAIT, TIMEOUT, World};
use tempfile::TempDir;

/// A service manager: a socket, and the messages so far.
struct Manager {
    socket: UnixDatagram,
    directory: TempDir,
    told: Vec<String>,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        Self { socket, directory, told: Vec::new() }
    }

    /// `plait` with these words, supervised.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PLAIT);
        command.args(words).arg("--keys").arg(self.directory.path().join("keys"));
        command.env("NOTIFY_SOCKET", self.directory.path().join("notify")).env_remove("SUDO_UID");
        command
    }

    /// Starts it here, over UDP.
    fn start(&self, words: &[&str], watchdog: Option<Duration>) -> Program {
        let mut command = self.command(words);
        command.args(["--carrier", "udp", "--path", "lo"]);
        if let Some(limit) = watchdog {
            command.env("WATCHDOG_USEC", limit.as_micros().to_string());
        }
        let nothing = End::Given(Stdio::null());
        Program::start_here(self.directory.path(), "plait", command, nothing, End::Own).expect("started")
    }

    /// Waits for a message with these words, after those that were awaited before.
    fn wait_for(&mut self, words: &str, limit: Duration) -> Option<String> {
        let until = Instant::now() + limit;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return None;
            }
            self.socket.set_read_timeout(Some(rest)).expect("a socket");
            let mut bytes = [0; 4096];
            let Ok(len) = self.socket.recv(&mut bytes) else { continue };
            let message = String::from_utf8_lossy(&bytes[..len]).into_owned();
            self.told.push(message.clone());
            if message.contains(words) {
                return Some(message);
            }
        }
    }

    fn expect(&mut self, words: &str) -> String {
        let found = self.wait_for(words, TIMEOUT);
        found.unwrap_or_else(|| panic!("{words} is not in {:?}", self.told))
    }
}

/// A port that is free now.
fn port() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("bound").port().to_string()
}

#[test]
fn a_service_manager_learns_of_the_start_the_state_a_reload_and_the_stop() {
    let mut manager = Manager::new();
    let at = format!("127.0.0.1:{}", port());
    let words = ["serve", "--forward", "127.0.0.1:9", "--anyone", "--listen", &at, "--drain", "7"];
    let mut serve = manager.start(&words, Some(Duration::from_millis(600)));
    let ready = manager.expect("READY=1");
    assert!(ready.contains(&format!("STATUS=port {at}, forwards to 127.0.0.1:9; paths up: lo")), "{ready}");
    assert!(ready.contains("connections: 0 of 0"), "{ready}");
    for _ in 0..3 {
        manager.expect("WATCHDOG=1");
    }
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
    serve.signal(Signal::SIGHUP);
    let reloading = manager.expect("RELOADING=1");
    let time = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).expect(&reloading);
    assert!(time.parse::<u64>().is_ok_and(|time| time > 0), "{reloading}");
    manager.expect("READY=1");

    // A request changes the status.
    let mut client = Command::new(PLAIT);
    client.args(["forward", "-s", &url, "-L", "0:127.0.0.1:9", "--carrier", "udp", "--path", "lo"]);
    client.arg("--keys").arg(manager.directory.path().join("client")).arg("--accept-new");
    let nothing = End::Given(Stdio::null());
    let client = Program::start_here(manager.directory.path(), "client", client, nothing, End::Own);
    let mut client = client.expect("started");
    let line = client.wait_for_line("forwarding ", TIMEOUT).expect("it has reached the server");
    let local = line.split_whitespace().nth(2).expect(&line);
    drop(TcpStream::connect(local).expect("it listens"));
    let status = manager.expect("of 1");
    assert!(status.starts_with("STATUS=port "), "{status}");
    client.stop(TIMEOUT).expect("it ends");

    assert!(serve.stop(TIMEOUT).expect("it ends").success(), "{}", serve.last_words());
    let stopping = manager.expect("STOPPING=1");
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC=17000000"), "{stopping}");
}

#[test]
fn a_service_manager_follows_the_process_that_an_upgrade_starts() {
    let mut manager = Manager::new();
    let at = format!("127.0.0.1:{}", port());
    let words = ["serve", "--forward", "127.0.0.1:9", "--anyone", "--listen", &at];
    let mut serve = manager.start(&words, Some(Duration::from_millis(600)));
    manager.expect("READY=1");
    let mut upgrade = Command::new(PLAIT);
    upgrade.args(["upgrade", "--json", &serve.pid().to_string()]);
    let upgraded = upgrade.output().expect("built");
    assert!(upgraded.status.success(), "{}{}", String::from_utf8_lossy(&upgraded.stderr), serve.last_words());
    let upgraded: serde_json::Value = serde_json::from_slice(&upgraded.stdout).expect("JSON");
    let pid = upgraded["pid"].as_i64().expect("a process");
    manager.expect(&format!("MAINPID={pid}"));
    // From here on, the new process speaks.
    let ready = manager.expect("READY=1");
    assert!(ready.contains(&format!("STATUS=port {at}, forwards to 127.0.0.1:9; paths up: lo")), "{ready}");
    manager.expect("WATCHDOG=1");
    let pid = Pid::from_raw(pid.try_into().expect("a number"));
    nix::sys::signal::kill(pid, Signal::SIGTERM).expect("it runs");
    manager.expect("STOPPING=1");
    // The new process has stopped the replaced one, which has no connections.
    assert!(serve.wait(TIMEOUT).expect("it ends").success(), "{}", serve.last_words());
}

#[test]
fn a_client_that_starts_before_its_server_is_ready_and_says_what_it_waits_for() {
    let mut manager = Manager::new();
    let at = format!("127.0.0.1:{}", port());
    let server = format!("plait://{at}#SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU");
    let local = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let words = ["proxy", "-s", &server, "--socks", &local, "--connect-timeout", "1"];
    let mut proxy = manager.start(&words, None);
    manager.expect("READY=1");
    let status = manager.expect("waiting for the server");
    assert!(status.starts_with(&format!("STATUS=SOCKS5 at {local}; waiting for the server: ")), "{status}");
    assert!(proxy.stop(TIMEOUT).expect("it ends").success(), "{}", proxy.last_words());
    manager.expect("STOPPING=1");
    assert!(!manager.told.iter().any(|message| message.contains("WATCHDOG")), "it was not asked for");

    // Its twin, without a service manager: a script learns of the failure.
    let mut command = manager.command(&words);
    command.args(["--carrier", "udp", "--path", "lo"]).env_remove("NOTIFY_SOCKET");
    let output = command.stdin(Stdio::null()).output().expect("started");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}

#[test]
#[ignore = "needs root"]
fn a_machine_that_starts_without_a_network_is_ready_and_says_when_a_path_is_there() {
    let mut manager = Manager::new();
    let world = World::without_server("service_offline");
    world.server.ip("link set wan1 down").expect("set");
    let words = ["serve", "--forward", "127.0.0.1:9", "--anyone", "--path", "wan1", "--path", "wan9"];
    for carrier in ["tcp", "udp"] {
        let mut command = manager.command(&words);
        command.args(["--carrier", carrier]).current_dir(&world.directory);
        let mut serve = world.start(&world.server, carrier, command);
        let ready = manager.expect("READY=1");
        assert!(ready.contains("waiting for a path"), "{carrier}: {ready}");
        world.server.ip("link set wan1 up").expect("set");
        manager.expect("paths up: wan1");
        assert!(serve.stop(TIMEOUT).expect("it ends").success(), "{}", serve.last_words());
        manager.expect("STOPPING=1");
        world.server.ip("link set wan1 down").expect("set");
    }
}

#[test]
#[ignore = "needs root"]
fn the_watchdog_is_not_told_while_the_event_loop_hangs() {
    let mut manager = Manager::new();
    let limit = Duration::from_millis(600);
    let at = format!("127.0.0.1:{}", port());
    let words = ["serve", "--forward", "127.0.0.1:9", "--anyone", "--listen", &at];
    let mut serve = manager.start(&words, Some(limit));
    manager.expect("WATCHDOG=1");
    let tasks = fs::read_dir(format!("/proc/{}/task", serve.pid())).expect("it runs").flatten();
    let is_driver = |task: &std::path::PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "plait-driver")
    };
    let driver = tasks.map(|task| task.path()).find(is_driver).expect("its thread");
    let id: i32 =
        driver.file_name().and_then(|name| name.to_str()).and_then(|id| id.parse().ok()).expect("an id");
    let thread = Pid::from_raw(id);
    // Only this thread of the process stands still.
    ptrace::seize(thread, ptrace::Options::empty()).expect("root may");
    ptrace::interrupt(thread).expect("it runs");
    nix::sys::wait::waitpid(thread, None).expect("it stands still");
    // Those that were under way.
    while manager.wait_for("WATCHDOG=1", limit).is_some() {}
    assert_eq!(manager.wait_for("WATCHDOG=1", 4 * limit), None);
    assert!(serve.errors().contains("the event loop has not turned"), "{}", serve.errors());
    ptrace::detach(thread, None).expect("it is there");
    manager.expect("WATCHDOG=1");
    assert!(serve.stop(TIMEOUT).expect("it ends").success(), "{}", serve.last_words());
}
