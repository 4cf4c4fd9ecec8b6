//! Clients with limits: what a client keeps whose line is removed, changed, or out of date. Everything is on this machine, over UDP.

#![allow(clippy::disallowed_methods, reason = "processes, threads, sockets and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::Program;
use serde_json::Value;
use support::here::{key, plait, public, start};
use support::{TIMEOUT, until};
use tempfile::TempDir;

/// A server, and a service that repeats what it gets.
struct Scene {
    directory: TempDir,
    serve: Program,
    url: String,
    target: SocketAddr,
}

/// A client that forwards a port to the service.
struct Client {
    _program: Program,
    at: SocketAddr,
}

/// A server that `plait upgrade` has started: no child of the test.
struct Upgraded(i32);

impl Drop for Upgraded {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0), Signal::SIGTERM);
    }
}

impl Scene {
    /// `configuration` gets the address of the service.
    fn new(prepare: impl FnOnce(&Path, SocketAddr) -> String) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let service = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = service.local_addr().expect("bound");
        thread::spawn(move || {
            for stream in service.incoming().flatten() {
                thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        let configuration = prepare(directory.path(), target);
        fs::write(directory.path().join("gw.toml"), configuration).expect("written");
        let port = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let (at, rule) = (format!("127.0.0.1:{port}"), target.to_string());
        let words = [
            "serve",
            "--config",
            "gw.toml",
            "--proxy",
            "--allow",
            &rule,
            "--listen",
            &at,
            "--access-log",
            "access",
            "--carrier",
            "udp",
            "--path",
            "lo",
            "-v",
        ];
        let command = plait(directory.path(), "server", &words);
        let mut serve = start(directory.path(), "serve", command);
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
        Self { directory, serve, url, target }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn client(&self, keys: &str) -> Client {
        let local = format!("0:{}", self.target);
        let words = ["forward", "-s", &self.url, "-L", &local, "--carrier", "udp", "--path", "lo"];
        let mut program = start(self.path(), keys, plait(self.path(), keys, &words));
        let line = program.wait_for_line("forwarding ", TIMEOUT).expect("its address");
        let at = line.split(' ').nth(2).and_then(|at| at.parse().ok()).expect(&line);
        Client { _program: program, at }
    }

    fn check(&self, keys: &str) -> Output {
        let words = ["check", &self.url, "--carrier", "udp", "--path", "lo"];
        plait(self.path(), keys, &words).output().expect("started")
    }

    fn status(&self) -> Value {
        let words = ["status", "--json", &self.serve.pid().to_string()].map(str::to_owned);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let output = plait(self.path(), "server", &words).output().expect("started");
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["plaits"][0].clone()
    }

    /// What the status says of the client with this name.
    fn told(&self, name: &str) -> Value {
        let status = self.status();
        let mut clients = status["clients"].as_array().into_iter().flatten();
        clients.find(|client| client["name"] == name).cloned().unwrap_or_default()
    }

    fn reload_to(&self) -> Output {
        let words = ["reload", "--pid", &self.serve.pid().to_string()].map(str::to_owned);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        plait(self.path(), "server", &words).output().expect("started")
    }

    fn reload(&self) {
        let output = self.reload_to();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("changed: client"), "{output:?}");
    }
}

impl Client {
    /// A connection that works.
    fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        assert!(is_alive(&mut stream), "a connection");
        stream
    }

    /// Whether another connection works.
    fn reaches(&self) -> bool {
        let mut stream = TcpStream::connect(self.at).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        is_alive(&mut stream)
    }
}

fn is_alive(stream: &mut TcpStream) -> bool {
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut [0]).is_ok()
}

/// Waits for the end of a connection, and returns the time that it took.
fn end_of(stream: &mut TcpStream) -> Duration {
    let begun = Instant::now();
    let end = stream.read(&mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    assert!(begun.elapsed() < TIMEOUT / 4, "{:?}", begun.elapsed());
    begun.elapsed()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn clients_of_the_configuration_and_of_the_file_have_limits_and_lose_their_connections_with_their_line() {
    let table = |ada: &str, more: &str| {
        format!(
            "[serve]\naccounts = \"state/accounts.json\"\n\
             [[serve.client]]\nname = \"ada\"\nkey = \"{ada}\"\nconnections = 2\n{more}\n"
        )
    };
    let mut keys = [String::new(), String::new()];
    let mut scene = Scene::new(|directory, _| {
        keys = ["ada", "eve"].map(|name| public(directory, name));
        key(directory, "server", &["authorize", &keys[1], "eve"]);
        table(&keys[0], "")
    });
    let (ada, eve) = (scene.client("ada"), scene.client("eve"));

    // Two connections, whatever waits beside them, and no third one.
    let (mut first, mut second) = (ada.connect(), ada.connect());
    assert!(!ada.reaches(), "a third connection");
    assert_eq!(scene.told("ada")["connections_open"], 2, "{}", scene.status());
    let output = scene.check("ada");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(said(&output).contains("this client has as many connections there as it may have"), "{output:?}");
    assert!(scene.serve.errors().contains(" reason=too-many "), "{}", scene.serve.errors());
    assert!(scene.status()["clients_refused"]["too-many"].as_u64().is_some_and(|count| count > 0));
    let mut of_eve = eve.connect();

    // A line that goes takes its connections with it, and no other ones.
    assert_eq!(key(scene.path(), "server", &["revoke", "eve"]), "");
    println!("the connection of a revoked client ended after {:?}", end_of(&mut of_eve));
    assert!(is_alive(&mut first) && is_alive(&mut second));
    until("the end of all connections of the client", || {
        let told = scene.told("eve");
        told["connections_open"] == 0 && told["connections_ready"] == 0
    });
    assert!(!eve.reaches(), "neither a new connection nor one that was ready");
    assert_eq!(scene.check("eve").status.code(), Some(5));
    until("the line of the access log", || {
        fs::read_to_string(scene.path().join("access")).is_ok_and(|log| log.contains("\"end\":\"revoked\""))
    });
    assert!(scene.told("eve")["bytes_received"].as_u64().is_some_and(|bytes| bytes > 0), "its sums stay");

    // A limit that is lifted, and rules that forbid the destination of an open connection.
    fs::write(scene.path().join("gw.toml"), table(&keys[0], "allow = [\"10.0.0.0/8:*\"]")).expect("written");
    scene.reload();
    end_of(&mut first);
    end_of(&mut second);
    let log = scene.serve.errors();
    assert!(log.contains("the client may not use this destination any more"), "{log}");
    assert!(!ada.reaches());
    fs::write(scene.path().join("gw.toml"), table(&keys[0], "")).expect("written");
    scene.reload();
    until("the rules as they were", || ada.reaches());

    // A door that opens at the restart is not shut before.
    let mut open = ada.connect();
    fs::write(scene.path().join("gw.toml"), "[serve]\nanyone = true\n").expect("written");
    let output = scene.reload_to();
    let waits = ["a restart is needed for", "anyone", "client"].map(|word| said(&output).contains(word));
    assert!(waits == [true; 3] && !said(&output).contains("changed:"), "{output:?}");
    assert!(is_alive(&mut open) && ada.reaches());

    // The accounts have what the status had, also of the client that is gone.
    let carried = scene.told("eve")["bytes_received"].as_u64();
    assert!(scene.serve.stop(TIMEOUT).expect("it ends").success());
    let accounts = fs::read_to_string(scene.path().join("state/accounts.json")).expect("written");
    let accounts: Value = serde_json::from_str(&accounts).expect("JSON");
    let clients = accounts["clients"].as_object().expect("clients");
    let of_eve = clients.values().find(|client| client["name"] == "eve").expect("an account");
    let months = of_eve["months"].as_object().expect("months");
    let received: u64 = months.values().filter_map(|month| month["received"].as_u64()).sum();
    assert_eq!((Some(received), clients.len()), (carried, 2), "{accounts}");
}

#[test]
fn a_client_that_has_left_the_configuration_before_an_upgrade_loses_its_connections() {
    let mut ada = String::new();
    let scene = Scene::new(|directory, _| {
        ada = public(directory, "ada");
        format!("[[serve.client]]\nname = \"ada\"\nkey = \"{ada}\"\n")
    });
    let client = scene.client("ada");
    let mut open = client.connect();
    fs::write(scene.path().join("gw.toml"), "").expect("written");
    assert!(is_alive(&mut open), "nothing was read again");
    let words = ["upgrade", "--json", &scene.serve.pid().to_string()].map(str::to_owned);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let output = plait(scene.path(), "server", &words).output().expect("started");
    assert!(output.status.success(), "{output:?} {}", scene.serve.errors());
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let _new = Upgraded(i32::try_from(answer["pid"].as_i64().expect("a process")).expect("a number"));
    end_of(&mut open);
}

#[test]
fn access_ends_at_its_time_and_the_client_learns_that_it_has_expired() {
    let mut line = String::new();
    let scene = Scene::new(|directory, _| {
        line = public(directory, "ada");
        key(directory, "server", &["authorize", &line, "ada"]);
        String::new()
    });
    let ada = scene.client("ada");
    let mut open = ada.connect();
    let soon = Timestamp::now() + Duration::from_secs(5);
    key(scene.path(), "server", &["authorize", &line, "ada", "--expires", &soon.to_string()]);
    assert!(is_alive(&mut open), "a line that is replaced ends nothing");
    end_of(&mut open);
    assert!(Timestamp::now() >= soon, "not before its time");
    let output = scene.check("ada");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(said(&output).contains("the access of this client has expired there"), "{output:?}");
    assert!(!ada.reaches());
    let log = scene.serve.errors();
    assert!(
        log.contains(" reason=expired ") && log.contains("the access of the client has expired"),
        "{log}"
    );
    let listed = key(scene.path(), "server", &["list"]);
    assert!(listed.contains(&format!("expired on {soon}")), "{listed}");
    key(scene.path(), "server", &["authorize", &line, "ada", "--connections", "5"]);
    until("access again", || ada.reaches());
    assert!(key(scene.path(), "server", &["list"]).contains("5 connections at most"));
}

#[test]
fn a_client_of_the_configuration_that_is_in_the_file_as_well_is_an_error_that_names_both() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = public(directory.path(), "ada");
    key(directory.path(), "server", &["authorize", &line, "ada"]);
    let client = format!("{line} desk");
    let words =
        ["serve", "--forward", "127.0.0.1:1", "--client", &client, "--carrier", "udp", "--path", "lo"];
    let output = plait(directory.path(), "server", &words).output().expect("started");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for words in ["authorized_clients:1", "it has the key of the client desk of the configuration"] {
        assert!(said(&output).contains(words), "{output:?}");
    }
}
