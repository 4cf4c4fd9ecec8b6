//! The access log of `plait serve`, and log files: rotated, on a full disk, as JSON, in the journal.

#![allow(clippy::disallowed_methods, reason = "processes, threads, sockets and files")]

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::sys::signal::Signal;
use plait_lab::{End, Program};
use serde_json::Value;
use support::{PLAIT, TIMEOUT, until};
use tempfile::TempDir;

/// A server over UDP on this machine, a client that forwards a port, and a service that repeats what it gets.
struct Scene {
    directory: TempDir,
    serve: Program,
    forward: Program,
    at: SocketAddr,
    target: SocketAddr,
}

fn plait(directory: &Path, name: &str, words: &[&str], errors: Option<&str>) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(words).args(["--carrier", "udp", "--path", "lo"]).current_dir(directory);
    command.env("PLAIT_KEYS", directory.join(name)).env_remove("RUST_LOG").env_remove("SUDO_UID");
    let mut command = match errors {
        None => command,
        Some(to) => {
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("exec \"$@\" 2>{to}"), "bash", PLAIT]).args(command.get_args());
            shell.current_dir(directory).env("PLAIT_KEYS", directory.join(name)).env_remove("RUST_LOG");
            shell
        }
    };
    command.env_remove("SUDO_UID");
    let nothing = End::Given(Stdio::null());
    Program::start_here(directory, name, command, nothing, End::Own).expect("started")
}

impl Scene {
    fn new(options: &[&str], errors: Option<&str>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let service = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = service.local_addr().expect("bound");
        thread::spawn(move || {
            for stream in service.incoming().flatten() {
                thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        let port = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let at = format!("127.0.0.1:{port}");
        let key = |words: &[&str], keys: &str| {
            let mut command = Command::new(PLAIT);
            command.arg("key").args(words).env("PLAIT_KEYS", directory.path().join(keys));
            String::from_utf8(command.output().expect("started").stdout).expect("text")
        };
        let line = key(&["gen"], "forward").lines().nth(1).expect("its second line").to_owned();
        let words: Vec<_> = line.split(' ').collect();
        key(&["authorize", words[0], words[1], "ada"], "serve");
        let rule = target.to_string();
        let mut words = vec!["serve", "--proxy", "--allow", &rule, "--listen", &at];
        words.extend(options);
        let mut serve = plait(directory.path(), "serve", &words, errors);
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
        let local = format!("0:{target}");
        let refused = "0:127.0.0.1:1";
        let words = ["forward", "-s", &url, "-L", &local, "-L", refused];
        let mut forward = plait(directory.path(), "forward", &words, None);
        let line = forward.wait_for_line("forwarding ", TIMEOUT).expect("its address");
        let at = line.split(' ').nth(2).and_then(|at| at.parse().ok()).expect(&line);
        Self { directory, serve, forward, at, target }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sends these bytes, and gets them back.
    fn talk(&self, bytes: &[u8]) {
        let mut stream = TcpStream::connect(self.at).expect("it listens");
        stream.write_all(bytes).expect("taken");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("its end");
        assert_eq!(back, bytes);
    }

    /// The lines of a file, as JSON.
    fn lines(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    /// The lines about connections to the service.
    fn served(&self, name: &str) -> Vec<Value> {
        let is_it = |line: &Value| line["destination"] == self.target.to_string();
        self.lines(name).into_iter().filter(is_it).collect()
    }
}

#[test]
fn each_connection_has_a_line_with_its_client_its_bytes_and_its_end() {
    let mut scene = Scene::new(&["--access-log", "access", "--drain", "0"], None);
    scene.talk(&[7; 1000]);
    until("the line", || !scene.served("access").is_empty());
    let line = scene.served("access").remove(0);
    for (key, value) in [
        ("schema", Value::from(1)),
        ("client", "ada".into()),
        ("received", 1000.into()),
        ("sent", 1000.into()),
        ("end", "complete".into()),
        ("reason", Value::Null),
    ] {
        assert_eq!(line[key], value, "{key}: {line}");
    }
    assert!(line["key"].as_str().is_some_and(|key| key.starts_with("SHA256:")), "{line}");
    assert!(line["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")), "{line}");
    assert!(line["started"].as_str().is_some_and(|at| at.ends_with('Z')), "{line}");
    assert!(line["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{line}");
    let path = &line["paths"][0];
    assert_eq!((&path["name"], &path["carrier"]), (&"lo".into(), &"udp".into()), "{line}");
    assert!(path["received"].as_u64().is_some_and(|bytes| bytes > 1000), "{line}");

    // A connection to a destination that no rule allows.
    let errors = scene.forward.wait_for_line("to 127.0.0.1:1", TIMEOUT).expect("its address");
    let at = errors.split(' ').nth(2).expect("an address").to_owned();
    let _ = TcpStream::connect(at).expect("it listens").read(&mut [0]);
    let refused = || scene.lines("access").into_iter().find(|line| line["end"] == "refused");
    until("the line of the refusal", || refused().is_some());
    let line = refused().expect("there");
    assert_eq!(line["destination"], "127.0.0.1:1", "{line}");
    assert!(line["reason"].is_string(), "{line}");

    // One that is open when the server stops.
    let mut open = TcpStream::connect(scene.at).expect("it listens");
    open.write_all(b"x").expect("taken");
    open.read_exact(&mut [0]).expect("repeated");
    assert!(scene.serve.stop(TIMEOUT).expect("it ends").success());
    let last = scene.served("access").pop().expect("a line");
    assert_eq!((&last["end"], &last["client"]), (&"stopped".into(), &"ada".into()), "{last}");
}

#[test]
fn log_files_are_opened_again_at_a_signal_and_may_be_emptied() {
    let options = ["--access-log", "access", "--log-file", "log", "--log-format", "json", "-v"];
    let mut scene = Scene::new(&options, None);
    scene.talk(b"one");
    until("the line", || scene.served("access").len() == 1);
    for name in ["access", "log"] {
        fs::rename(scene.file(name), scene.file(&format!("{name}.1"))).expect("renamed");
    }
    scene.serve.signal(Signal::SIGUSR1);
    until("new files", || scene.file("access").exists() && scene.file("log").exists());
    scene.talk(b"two");
    until("the line", || scene.served("access").len() == 1);
    assert_eq!(scene.served("access.1").len(), 1);
    let has = |name: &str, message: &str| scene.lines(name).iter().any(|line| line["message"] == message);
    until("the log", || has("log", "served"));
    assert!(has("log.1", "served"));
    let line = scene.lines("log").into_iter().find(|line| line["message"] == "served").expect("there");
    assert_eq!((&line["level"], &line["client"]), (&"INFO".into(), &"ada".into()), "{line}");

    // As copytruncate does it.
    File::create(scene.file("access")).expect("emptied");
    scene.talk(b"three");
    until("the line", || scene.served("access").len() == 1);
    assert!(!fs::read(scene.file("access")).expect("read").contains(&0), "no gap");
    assert!(scene.serve.stop(TIMEOUT).expect("it ends").success());
}

#[test]
fn a_full_disk_stops_neither_the_log_nor_the_server() {
    for options in [
        &["--access-log", "/dev/full", "--log-file", "/dev/full", "-vv"][..],
        &["--access-log", "-", "--log-format", "json", "-vv"],
    ] {
        let mut scene = Scene::new(options, Some("/dev/full"));
        for _ in 0..3 {
            scene.talk(b"through");
        }
        assert!(scene.serve.stop(TIMEOUT).expect("it ends").success());
    }
}

#[test]
fn a_log_file_that_cannot_be_opened_is_an_error() {
    let words = ["--log-file", "/nonexistent/log", "key", "show"];
    let output = Command::new(PLAIT).args(words).output().expect("started");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("plait: error: cannot write to /nonexistent/log\n  cause: "), "{said}");
}
