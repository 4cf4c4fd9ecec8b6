//! `plait forward -R`: ports of the server that lead to services of the client. Everything is on this machine, over UDP.

#![allow(clippy::disallowed_methods, reason = "processes, threads, sockets and files")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plait_lab::Program;
use support::here::{key, plait, public, start};
use support::{TIMEOUT, until};
use tempfile::TempDir;

/// A server that lets clients listen on one port, and the port.
struct Scene {
    directory: TempDir,
    serve: Program,
    url: String,
    port: u16,
}

impl Scene {
    /// With the clients `client` and `other`; the second one has a rule for another port.
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        for (keys, rule) in
            [("client", None), ("second", None), ("other", Some(format!("remote={}", port ^ 1)))]
        {
            let made = public(directory.path(), keys);
            let words: Vec<_> = made.split(' ').take(2).collect();
            let rule = rule.iter().flat_map(|rule| ["--allow", rule]).collect::<Vec<_>>();
            key(directory.path(), "server", &[&["authorize"], &rule[..], &words, &[keys]].concat());
        }
        let rule = format!("remote={port}");
        let words =
            ["serve", "--proxy", "--allow", &rule, "--listen", &at, "--carrier", "udp", "--path", "lo"];
        let words = [&words[..], &["-v", "--access-log", "access", "--drain", "60"]].concat();
        let mut serve = start(directory.path(), "serve", plait(directory.path(), "server", &words));
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
        Self { directory, serve, url, port }
    }

    fn command(&self, keys: &str, remote: &str) -> Command {
        let words = ["forward", "-v", "-s", &self.url, "-R", remote, "--carrier", "udp", "--path", "lo"];
        plait(self.directory.path(), keys, &words)
    }

    /// `plait forward -R` that is ready.
    fn forward(&self, to: &str) -> Program {
        let command = self.command("client", &format!("{}:{to}", self.port));
        let mut forward = start(self.directory.path(), "forward", command);
        forward.wait_for_line("of the server to", TIMEOUT).expect("it is ready");
        forward
    }

    fn fails(&self, keys: &str, remote: &str) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = self.command(keys, remote).output().expect("started");
        (status.code(), String::from_utf8(stderr).expect("text"))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        stream
    }

    fn is_open(&self) -> bool {
        TcpListener::bind(("127.0.0.1", self.port)).is_err()
    }

    fn access_log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("access")).unwrap_or_default()
    }
}

/// A service that sends what it gets in capitals.
fn shouting() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stream.read_to_end(&mut text);
                let _ = stream.write_all(&text.to_ascii_uppercase());
            });
        }
    });
    at
}

fn talk(mut stream: TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).expect("taken");
    stream.shutdown(Shutdown::Write).expect("open");
    let mut back = String::new();
    let _ = stream.read_to_string(&mut back);
    back
}

#[test]
fn connections_to_a_port_of_the_server_come_to_the_client_and_the_port_ends_with_it() {
    let mut scene = Scene::new();
    assert!(!scene.is_open());
    let mut forward = scene.forward(&shouting());
    let talks: Vec<_> = (0..30)
        .map(|number| {
            let stream = scene.connect();
            thread::spawn(move || talk(stream, &format!("hello {number}")))
        })
        .collect();
    for (number, talk) in talks.into_iter().enumerate() {
        assert_eq!(talk.join().expect("no panic"), format!("HELLO {number}"), "{}", forward.errors());
    }
    until("the lines", || scene.access_log().matches("\"complete\"").count() >= 30);
    let destination = format!("\"destination\":\"remote:127.0.0.1:{}\"", scene.port);
    let log = scene.access_log();
    assert!(
        log.lines().any(|line| line.contains(&destination) && line.contains("\"client\":\"client\"")),
        "{log}"
    );
    // Another client does not get the port.
    let (code, said) = scene.fails("second", &format!("{}:127.0.0.1:1", scene.port));
    assert!(code == Some(1) && said.contains("out of resources"), "{code:?}: {said}");
    let begun = Instant::now();
    assert!(forward.stop(TIMEOUT).expect("it ends").success());
    until("the port is closed", || !scene.is_open());
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let mut forward = scene.forward(&shouting());
    let begun = Instant::now();
    assert!(scene.serve.stop(TIMEOUT).expect("it ends").success());
    assert!(begun.elapsed() < Duration::from_secs(40), "streams that wait do not count for --drain");
    assert!(!scene.is_open() && !forward.has_ended().expect("asked"));
}

#[test]
fn a_port_that_no_rule_allows_is_refused_with_the_reason() {
    let scene = Scene::new();
    for (keys, remote) in [
        ("client", format!("{}:127.0.0.1:1", scene.port ^ 1)),
        ("client", format!("0.0.0.0:{}:127.0.0.1:1", scene.port)),
        ("other", format!("{}:127.0.0.1:1", scene.port)),
        ("other", format!("{}:127.0.0.1:1", scene.port ^ 1)),
    ] {
        let (code, said) = scene.fails(keys, &remote);
        let why = "the server's rules do not allow this destination";
        assert!(code == Some(1) && said.contains(why), "{keys} {remote}: {code:?}: {said}");
    }
    assert!(!scene.is_open());
    let (code, said) = scene.fails("client", "8080:/run/x");
    assert!(code == Some(2) && said.contains("[ADDR:]PORT:HOST:PORT"), "{code:?}: {said}");
    let words = ["serve", "--proxy", "--anyone", "--allow", "remote=8080"];
    let output = plait(scene.directory.path(), "server", &words).output().expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("belongs to one client"), "{said}");
}

#[test]
fn a_destination_that_refuses_and_a_killed_client_reset_the_connection() {
    let scene = Scene::new();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let mut forward = scene.forward(&closed);
    let error = scene.connect().read(&mut [0]).expect_err("a reset, and no end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    forward.signal(Signal::SIGKILL);
    forward.wait(TIMEOUT).expect("an end");
    // The same client again: the port is still its own, and the latest stream is used first.
    let forward = scene.forward(&shouting());
    assert_eq!(talk(scene.connect(), "again"), "AGAIN", "{}", forward.errors());
}
