//! Connections that are open before a program asks for one. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use plait_lab::{Attack, AttackName, Conditions, End, Lab, LabConfig, PathClass, PathConfig, Program};
use support::{PLAIT, TIMEOUT, until};

/// One way.
const DELAY_MS: u64 = 50;
const PAGE: u16 = 8080;

/// Two hosts, two paths with a long delay, and a service at the server that answers each line.
struct Far {
    lab: Lab,
    directory: PathBuf,
    at: SocketAddr,
    serve: Option<Program>,
    url: String,
}

impl Far {
    fn new(label: &str, conditions: &Conditions) -> Self {
        let path = |name, class| PathConfig::new(name, class, conditions.clone());
        let paths = vec![path("a", PathClass::Trusted), path("b", PathClass::Untrusted)];
        let lab = Lab::up(LabConfig { paths, ..LabConfig::default() }).expect("root can make one");
        let at = SocketAddr::new(lab.service().v4, PAGE);
        let listener =
            lab.server().namespace().enter(|| TcpListener::bind(at)).expect("entered").expect("a port");
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                thread::spawn(move || answer(stream));
            }
        });
        let directory = std::env::temp_dir().join(format!("plait-{label}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        Self { lab, directory, at, serve: None, url: String::new() }
    }

    fn serve(&mut self, arguments: &[&str]) {
        let mut command = Command::new(PLAIT);
        let rule = self.at.to_string();
        command.args(["serve", "--proxy", "--allow", &rule, "--path", "a", "--path", "b"]).args(arguments);
        command.arg("--keys").arg(self.directory.join("server"));
        let host = self.lab.server().namespace();
        let started = Program::start(host, &self.directory, "serve", command, End::Own, End::Own);
        let serve = self.serve.insert(started.expect("started"));
        let printed = serve.wait_for_output("plait://", TIMEOUT).expect("the address of plait serve");
        // The clients come to the address of the service, which is on no path.
        let (_, fingerprint) = printed.split_once('#').expect("a fingerprint");
        self.url = format!("plait://{}:7443#{fingerprint}", self.at.ip());
    }

    /// A `plait proxy` and its address.
    fn proxy(&self, arguments: &[&str]) -> (Program, SocketAddr) {
        let mut command = Command::new(PLAIT);
        command.args(["proxy", "-s", &self.url, "--path", "a", "--path", "b", "--socks", "127.0.0.1:0"]);
        command.arg("--keys").arg(self.directory.join("client")).args(arguments);
        let host = self.lab.client().namespace();
        let started = Program::start(host, &self.directory, "proxy", command, End::Own, End::Own);
        let mut proxy = started.expect("started");
        let line = proxy.wait_for_line("SOCKS5 at ", TIMEOUT).expect("its address");
        let at = line.strip_prefix("plait: SOCKS5 at ").expect(&line).parse().expect("an address");
        (proxy, at)
    }

    /// The time to the first byte of an answer, over a connection of its own: directly, or through a proxy.
    fn first_byte(&self, proxy: Option<SocketAddr>) -> Result<Duration, std::io::Error> {
        let host = self.lab.client().namespace();
        let begun = Instant::now();
        let mut stream = host.enter(|| TcpStream::connect(proxy.unwrap_or(self.at))).expect("entered")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        if proxy.is_some() {
            socks(&mut stream, self.at)?;
        }
        stream.write_all(b"hello\n")?;
        let mut answer = [0; 6];
        stream.read_exact(&mut answer[..1])?;
        let took = begun.elapsed();
        stream.read_exact(&mut answer[1..])?;
        assert_eq!(&answer, b"HELLO\n");
        Ok(took)
    }

    /// A `plait forward` to the service, and its local address.
    fn forward(&self) -> (Program, SocketAddr) {
        let mut command = Command::new(PLAIT);
        command.args([
            "forward",
            "-s",
            &self.url,
            "--path",
            "a",
            "--path",
            "b",
            "-L",
            &format!("0:{}", self.at),
        ]);
        command.arg("--keys").arg(self.directory.join("client"));
        let host = self.lab.client().namespace();
        let started = Program::start(host, &self.directory, "forward", command, End::Own, End::Own);
        let mut forward = started.expect("started");
        let line = forward.wait_for_line("forwarding ", TIMEOUT).expect("its address");
        let local = line.split_whitespace().nth(2).expect(&line).parse().expect("an address");
        (forward, local)
    }

    /// The time to the first byte of an answer at an address of the client.
    fn first_byte_at(&self, local: SocketAddr) -> Result<Duration, std::io::Error> {
        let host = self.lab.client().namespace();
        let begun = Instant::now();
        let mut stream = host.enter(|| TcpStream::connect(local)).expect("entered")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"hello\n")?;
        stream.read_exact(&mut [0; 6])?;
        Ok(begun.elapsed())
    }

    /// The number of connections of a process that wait for a request.
    fn ready(&self, program: &Program) -> u64 {
        let pid = program.pid().to_string();
        let asked = Command::new(PLAIT).args(["status", "--json", &pid]).output().expect("it runs");
        let status: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("JSON");
        status["plaits"][0]["connections_ready"].as_u64().expect("a count")
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.serve = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Answers each line in capitals.
fn answer(mut stream: TcpStream) {
    let mut text = [0; 64];
    while let Ok(len @ 1..) = stream.read(&mut text) {
        if stream.write_all(&text[..len].to_ascii_uppercase()).is_err() {
            return;
        }
    }
}

/// Asks a SOCKS5 proxy (RFC 1928) for a destination.
fn socks(stream: &mut TcpStream, to: SocketAddr) -> Result<(), std::io::Error> {
    let SocketAddr::V4(to) = to else { unreachable!("IPv4 here") };
    stream.write_all(&[5, 1, 0])?;
    stream.read_exact(&mut [0; 2])?;
    stream.write_all(&[&[5, 1, 0, 1], &to.ip().octets()[..], &to.port().to_be_bytes()].concat())?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    if reply[1] == 0 { Ok(()) } else { Err(std::io::Error::other(format!("refused: {}", reply[1]))) }
}

fn far_away() -> Conditions {
    Conditions::megabits(100, DELAY_MS)
}

#[test]
#[ignore = "needs root"]
fn a_request_waits_for_no_handshake_and_the_first_one_takes_the_connection_of_the_start() {
    let mut far = Far::new("warm", &far_away());
    far.serve(&["--anyone"]);
    // The smallest of some times: other tests share the processors.
    let best = |proxy, count| {
        let times = (0..count).map(|_| {
            thread::sleep(Duration::from_millis(700));
            far.first_byte(proxy).expect("an answer")
        });
        times.min().expect("some")
    };
    let direct = best(None, 3);
    let (_cold, without) = far.proxy(&["--warm", "0"]);
    let slow = best(Some(without), 3);
    let (_warm, with) = far.proxy(&[]);
    let first = far.first_byte(Some(with)).expect("an answer");
    let later = best(Some(with), 5);
    println!("direct {direct:?}, warm: the first {first:?}, later ones {later:?}; without {slow:?}");
    assert!(slow > direct.mul_f64(1.7), "the measurement sees a handshake: {slow:?}, direct {direct:?}");
    assert!(first < direct.mul_f64(1.7), "the first takes {first:?}, directly {direct:?}");
    assert!(later < direct.mul_f64(1.3), "later ones take {later:?}, directly {direct:?}");
}

#[test]
#[ignore = "needs root"]
fn loss_and_an_attacker_on_one_path_take_no_request() {
    let lossy = Conditions { loss: 0.02, reordering: 0.02, ..Conditions::megabits(100, 10) };
    let mut far = Far::new("warmloss", &lossy);
    far.serve(&["--anyone"]);
    let (proxy, at) = far.proxy(&[]);
    let path = far.lab.path("a").expect("a path");
    for attack in [AttackName::Rst, AttackName::Flip] {
        until("warm connections", || far.ready(&proxy) > 0);
        path.attack(Attack::new(attack).every(100)).expect("attacked");
        for _ in 0..5 {
            far.first_byte(Some(at)).expect("an answer");
        }
        assert!(path.injections().expect("it runs").count(attack) > 0, "{attack:?} was not tried");
        path.call_off().expect("called off");
    }
}

#[test]
#[ignore = "needs root"]
fn a_server_that_was_started_again_serves_the_next_request() {
    let mut far = Far::new("warmrestart", &Conditions::megabits(100, 10));
    far.serve(&["--anyone"]);
    let (proxy, at) = far.proxy(&[]);
    far.first_byte(Some(at)).expect("an answer");
    until("warm connections", || far.ready(&proxy) >= 2);
    // It is killed, and cannot tell its clients.
    far.serve = None;
    far.serve(&["--anyone"]);
    for _ in 0..3 {
        let took = far.first_byte(Some(at)).expect("an answer");
        assert!(took < Duration::from_secs(6), "{took:?}");
    }
    // A forward, whose first bytes must not arrive twice: at most the connections that were under way fail.
    let (_forward, local) = far.forward();
    far.first_byte_at(local).expect("an answer");
    far.serve = None;
    far.serve(&["--anyone"]);
    let begun = Instant::now();
    while let Err(error) = far.first_byte_at(local) {
        assert!(begun.elapsed() < Duration::from_secs(15), "{error}");
    }
    // One that stops ends what waits, and does not wait for it.
    until("warm connections", || far.ready(&proxy) >= 2);
    let begun = Instant::now();
    far.serve.as_mut().expect("it runs").stop(TIMEOUT).expect("it ends");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    until("none is ready", || far.ready(&proxy) == 0);
}

#[test]
#[ignore = "needs root"]
fn a_revoked_client_gets_nothing_over_a_connection_that_was_ready() {
    let mut far = Far::new("warmrevoked", &Conditions::megabits(100, 10));
    let key = |keys: &str, words: &[&str]| {
        let mut command = Command::new(PLAIT);
        command.arg("key").args(words).arg("--keys").arg(far.directory.join(keys));
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let made = key("client", &["gen"]);
    let public = made.lines().find(|line| line.contains("plait-ed25519")).unwrap_or(&made).trim().to_owned();
    let public = &public[public.find("plait-ed25519").expect("a key")..];
    key("server", &["authorize", public, "--name", "laptop"]);
    far.serve(&[]);
    let (proxy, at) = far.proxy(&[]);
    far.first_byte(Some(at)).expect("an answer");
    until("warm connections", || far.ready(&proxy) >= 2);
    let mut command = Command::new(PLAIT);
    command.args(["key", "revoke", "laptop", "--keys"]).arg(far.directory.join("server"));
    assert!(command.status().expect("it runs").success());
    far.first_byte(Some(at)).expect_err("revoked");
}

#[test]
#[ignore = "needs root"]
fn a_server_bounds_how_many_connections_of_a_client_wait() {
    for (most, fewest) in [("1", 1), ("0", 0)] {
        let mut far = Far::new("warmbound", &Conditions::megabits(100, 10));
        let log = far.directory.join("access");
        far.serve(&["--anyone", "--max-warm", most, "--access-log", log.to_str().expect("text")]);
        let (_proxy, at) = far.proxy(&[]);
        for _ in 0..6 {
            far.first_byte(Some(at)).expect("an answer");
        }
        let serve = far.serve.as_ref().expect("it runs");
        until("what waits is bounded", || far.ready(serve) == fewest);
        // Longer than one that waits needs to show that the server lets it.
        thread::sleep(Duration::from_secs(9));
        // One more may be on its way out.
        assert!(far.ready(serve) <= fewest + 1);
        // The client asks less and less often.
        let lines = fs::read_to_string(&log).expect("written");
        let turned_away = lines.lines().filter(|line| line.contains("the server itself")).count();
        assert!(turned_away < 10, "{turned_away} were turned away: {lines}");
    }
}
