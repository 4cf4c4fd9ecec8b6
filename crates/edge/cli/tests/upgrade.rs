//! `plait upgrade`: a running server is replaced, and no connection is cut. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::Program;
use serde_json::Value;
use support::{PLAIT, SERVER, TIMEOUT, World, sha256, slow_down, until, until_or_tell};

/// A server that was started by `plait upgrade`: no child of the test.
struct Upgraded(u32);

impl Upgraded {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.try_into().expect("a number")), signal).expect("it runs");
    }

    fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        // A zombie of an init that takes its time is none.
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
    }

    /// Ends it in order.
    fn stop(self) {
        self.signal(Signal::SIGTERM);
        until("the end of the new server", || self.has_ended());
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Runs `plait` on the server's host.
fn plait(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(PLAIT);
    command.args(arguments).current_dir(&world.directory).stdin(Stdio::null());
    world.server.enter(|| command.output()).expect("entered").expect("built")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Replaces the server.
fn upgrade(world: &World) -> Upgraded {
    let begun = Instant::now();
    let output = plait(world, &["upgrade", "--json", &world.serve_id().to_string()]);
    assert!(output.status.success(), "{}\n{}", said(&output), world.serve_log());
    println!("the upgrade took {:?}", begun.elapsed());
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    Upgraded(answer["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a process"))
}

/// What the status says of a process, and how many connections it has.
fn state(world: &World, pid: u32) -> Option<(String, u64)> {
    let output = plait(world, &["status", "--json", &pid.to_string()]);
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    let process = &status["plaits"][0];
    Some((process["state"].as_str()?.to_owned(), process["connections_open"].as_u64()?))
}

/// `plait run` over both paths.
fn start_run(world: &World, carrier: &str, name: &str, program: &[&str]) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", &world.url, "--path", "wan1", "--path", "wan2", "--carrier", carrier]);
    command.arg("--keys").arg(world.directory.join("client")).arg("--").args(program);
    command.current_dir(&world.directory);
    world.start(&world.client, name, command)
}

/// A download of `big` into `name`, once it is under way.
fn start_download(world: &World, carrier: &str, name: &str) -> Program {
    let url = format!("http://{SERVER}:8080/big");
    let download = start_run(world, carrier, name, &["curl", "-sSf", "-o", name, &url]);
    let len = || fs::metadata(world.file(name)).map_or(0, |file| file.len());
    until("a part of the file", || len() > 200_000);
    download
}

fn ends_well(world: &World, mut download: Program, name: &str, sum: &str) {
    let status = download.wait(TIMEOUT).expect("an end");
    assert!(status.success(), "{}\n{}", download.errors(), world.serve_log());
    assert_eq!(sha256(&world.file(name)), sum, "{name}");
}

/// The sum of a number about a path in the status of a client.
fn sum_over(pid: u32, path: &str, number: &str) -> u64 {
    let output = Command::new(PLAIT).args(["status", "--json", &pid.to_string()]).output().expect("built");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let connections = status["plaits"][0]["connections"].as_array().cloned().unwrap_or_default();
    let paths = connections.iter().flat_map(|one| one["paths"].as_array().cloned().unwrap_or_default());
    paths.filter(|one| one["name"] == path).filter_map(|one| one[number].as_u64()).sum()
}

fn slow_world(label: &str, len: usize, megabits: u32) -> (World, String) {
    let mut world = World::without_server(label);
    let sum = world.make_file("big", len);
    world.http();
    for path in &world.paths {
        slow_down(path, &world.server, megabits);
    }
    (world, sum)
}

/// Sends back what it gets.
const ECHO: &str = "
import socket, threading
def serve(s):
    while b := s.recv(65536): s.sendall(b)
    s.close()
listener = socket.create_server(('198.51.100.1', 7020))
while True: threading.Thread(target=serve, args=(listener.accept()[0],)).start()
";

/// Sends random bytes until the file `stop` is there. What comes back must be the same.
const PUMP: &str = "
import hashlib, os, socket, threading
s = socket.create_connection(('198.51.100.1', 7020))
sent, got = hashlib.sha256(), hashlib.sha256()
def send():
    while not os.path.exists('stop'):
        b = os.urandom(32768); sent.update(b); s.sendall(b)
    s.shutdown(socket.SHUT_WR)
sender = threading.Thread(target=send); sender.start()
while b := s.recv(65536): got.update(b)
sender.join()
assert sent.digest() == got.digest()
";

fn crosses(carrier: &str) {
    let (mut world, _) = slow_world(&format!("upgrade_{carrier}"), 1_000_000, 20);
    world.daemon(7020, "python3", &["-c", ECHO]);
    world.serve(&["--anyone", "--carrier", carrier]);
    let old = world.serve_id();
    let mut pump = start_run(&world, carrier, "pump", &["python3", "-c", PUMP]);
    let pid = pump.pid();
    let open_subflows = |path| sum_over(pid, path, "subflows_open");
    let moved = |path| sum_over(pid, path, "bytes_received").min(sum_over(pid, path, "bytes_sent"));
    until("both paths", || moved("wan1") > 0 && moved("wan2") > 100_000);
    let new = upgrade(&world);
    let is = |word: &str| Some(word.to_owned());
    assert_eq!(state(&world, old).map(|(state, _)| state), is("draining"));
    assert_eq!(state(&world, new.0), Some(("running".to_owned(), 0)));
    // A path of the old connection, whose first packet reaches the new process.
    world.client.ip("link set wan2 down").expect("it is there");
    until("the end of the subflow", || open_subflows("wan2") == 0);
    let before = moved("wan2");
    world.client.ip("link set wan2 up").expect("it is there");
    until("the new subflow", || open_subflows("wan2") == 1 && moved("wan2") > before + 100_000);
    // It carries the connection alone.
    world.client.ip("link set wan1 down").expect("it is there");
    until("the end of the first subflow", || open_subflows("wan1") == 0);
    let before = moved("wan2");
    until_or_tell(
        "more over the new subflow",
        || moved("wan2") > before + 1_000_000,
        || {
            let both = [pid, old].map(|pid| said(&plait(&world, &["status", "--json", &pid.to_string()])));
            format!("{}\n{}", both.join("\n"), world.serve_log())
        },
    );
    fs::write(world.file("stop"), "").expect("written");
    assert!(pump.wait(TIMEOUT).expect("an end").success(), "{}\n{}", pump.errors(), world.serve_log());
    world.client.ip("link set wan1 up").expect("it is there");
    let mut other = start_download(&world, carrier, "other");
    let _ = other.stop(TIMEOUT).expect("an end");
    until("the end of the replaced process", || state(&world, old).is_none());
    new.stop();
}

#[test]
#[ignore = "needs root"]
fn a_transfer_over_udp_crosses_an_upgrade_and_a_path_joins_it_afterwards() {
    crosses("udp");
}

#[test]
#[ignore = "needs root"]
fn a_transfer_over_tcp_crosses_an_upgrade_and_a_path_joins_it_afterwards() {
    crosses("tcp");
}

/// Opens a connection each 20 ms for five seconds, and prints the longest time until the service behind the server has answered.
const OPENER: &str = "
import socket, threading, time
times, failures = [], []
def once():
    begun = time.monotonic()
    try:
        s = socket.create_connection(('198.51.100.1', 7010), timeout=30)
        assert s.recv(1) == b'x'
        times.append(time.monotonic() - begun)
    except Exception as error:
        failures.append(repr(error))
end = time.monotonic() + 5
threads = []
while time.monotonic() < end:
    threads.append(threading.Thread(target=once))
    threads[-1].start()
    open('begun', 'w').close()
    time.sleep(0.02)
for thread in threads: thread.join()
print(len(times), max(times), sorted(times)[len(times) // 2], failures)
";

#[test]
#[ignore = "needs root"]
fn no_new_connection_fails_or_waits_long_during_an_upgrade() {
    for carrier in ["udp", "auto"] {
        let mut world = World::without_server(&format!("upgrade_new_{carrier}"));
        world.serve(&["--anyone", "--carrier", carrier]);
        world.service(7010, |mut stream| stream.write_all(b"x").expect("taken"));
        let mut opener = start_run(&world, carrier, "opener", &["python3", "-c", OPENER]);
        until("the first connection", || world.file("begun").exists());
        let new = upgrade(&world);
        assert!(opener.wait(TIMEOUT).expect("an end").success(), "{}", opener.errors());
        let line = fs::read_to_string(opener.output()).expect("text");
        println!("{carrier}: number, longest, median, failures: {line}");
        assert!(line.trim_end().ends_with("[]"), "{line}");
        let longest: f64 = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
        assert!(longest < 2.0, "{line}");
        new.stop();
    }
}

#[test]
#[ignore = "needs root"]
fn a_server_whose_successor_does_not_start_goes_on() {
    let (mut world, sum) = slow_world("upgrade_bad", 4_000_000, 16);
    let config = world.file("server.toml");
    fs::write(&config, "[serve]\nmax-connections = 100\n").expect("written");
    let config = config.to_str().expect("text").to_owned();
    world.serve(&["--anyone", "--carrier", "auto", "--config", &config]);
    let old = world.serve_id().to_string();
    let download = start_download(&world, "auto", "out");
    fs::write(&config, "[serve]\nmax-connections = \"many\"\n").expect("written");
    let refused = plait(&world, &["upgrade", &old]);
    assert!(!refused.status.success() && said(&refused).contains("max-connections"), "{}", said(&refused));
    // It gets as far as the ports, which it cannot open.
    fs::write(&config, "[serve]\nmetrics = \"192.0.2.1:1\"\n").expect("written");
    let refused = plait(&world, &["upgrade", &old]);
    assert!(!refused.status.success() && said(&refused).contains("metrics"), "{}", said(&refused));
    assert_eq!(state(&world, world.serve_id()).map(|(state, _)| state), Some("running".to_owned()));
    ends_well(&world, download, "out", &sum);
    let other = start_download(&world, "auto", "other");
    ends_well(&world, other, "other", &sum);
    fs::write(&config, "").expect("written");
    let new = upgrade(&world);
    let again = plait(&world, &["upgrade", &new.0.to_string()]);
    println!("{}", said(&again));
    assert!(again.status.success() || said(&again).contains("still serves connections"), "{}", said(&again));
    new.stop();
}

#[test]
#[ignore = "needs root"]
fn either_process_can_be_killed_while_the_other_goes_on_and_nothing_is_left() {
    let (mut world, sum) = slow_world("upgrade_killed", 6_000_000, 16);
    let before = World::network(&world.server);
    world.serve(&["--anyone", "--carrier", "auto"]);
    // The new one is killed: the old one is the server again.
    let download = start_download(&world, "auto", "out");
    let new = upgrade(&world);
    new.signal(Signal::SIGKILL);
    until("the old server", || state(&world, world.serve_id()).is_some_and(|(state, _)| state == "running"));
    let other = start_download(&world, "auto", "other");
    ends_well(&world, download, "out", &sum);
    ends_well(&world, other, "other", &sum);
    // The old one is killed: the new one goes on.
    let new = upgrade(&world);
    world.kill_serving();
    let last = start_download(&world, "auto", "last");
    ends_well(&world, last, "last", &sum);
    new.stop();
    assert_eq!(World::network(&world.server), before);
}

/// Ten transfers at once, and one more by the same `plait run` as soon as the file `go` is there.
const TEN: &str = "
for number in 0 1 2 3 4 5 6 7 8 9; do curl -sSf -o out$number http://198.51.100.1:8080/big & pids=\"$pids $!\"; done
while [ ! -e go ]; do sleep 0.05; done
curl -sSf -o late http://198.51.100.1:8080/big || exit 90
for pid in $pids; do wait $pid || exit 91; done
";

#[test]
#[ignore = "needs root"]
fn ten_transfers_cross_a_reload_a_path_and_an_upgrade() {
    let (mut world, sum) = slow_world("upgrade_ten", 1_500_000, 20);
    world.serve(&["--anyone", "--carrier", "auto"]);
    let downloads = start_run(&world, "auto", "ten", &["sh", "-c", TEN]);
    let names: Vec<String> = (0..10).map(|number| format!("out{number}")).collect();
    let len = |name: &String| fs::metadata(world.file(name)).map_or(0, |file| file.len());
    until("a part of each file", || names.iter().all(|name| len(name) > 50_000));
    let new = upgrade(&world);
    let pid = new.0.to_string();
    fs::write(world.file("go"), "").expect("written");
    // Both processes follow.
    new.signal(Signal::SIGHUP);
    let old = world.serve_id().to_string();
    for (change, has_path) in [("remove", false), ("add", true)] {
        let changed = plait(&world, &["path", "--pid", &pid, change, "wan2"]);
        assert!(changed.status.success(), "{}", said(&changed));
        until("the change in the replaced process", || {
            said(&plait(&world, &["path", "--pid", &old])).contains("wan2=trusted up") == has_path
        });
    }
    ends_well(&world, downloads, "late", &sum);
    for name in &names {
        assert_eq!(sha256(&world.file(name)), sum, "{name}");
    }
    new.stop();
}
