//! Socket activation: a service manager holds the ports of `proxy` and `forward`, here the test.

#![allow(clippy::disallowed_methods, reason = "processes, sockets and files")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;

use plait_lab::{End, Program};
use support::{PLAIT, TIMEOUT};
use tempfile::TempDir;

/// Passes standard input as descriptor 3, as sd_listen_fds(3) has it.
const PASS: &str = r#"exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@""#;

/// A server over UDP that forwards to a service, which says hello.
struct Served {
    directory: TempDir,
    url: String,
    service: SocketAddr,
    _serve: Program,
}

impl Served {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let service = listener.local_addr().expect("bound");
        thread::spawn(move || {
            listener.incoming().flatten().for_each(|mut client| drop(client.write_all(b"hello")));
        });
        let mut command = Command::new(PLAIT);
        command.args([
            "serve",
            "--proxy",
            "--anyone",
            "--listen",
            &free_port(),
            "--allow",
            &service.to_string(),
        ]);
        command.args(["--carrier", "udp", "--path", "lo", "--keys"]).arg(directory.path().join("server"));
        let nothing = End::Given(Stdio::null());
        let mut serve =
            Program::start_here(directory.path(), "serve", command, nothing, End::Own).expect("started");
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
        Self { directory, url, service, _serve: serve }
    }

    /// A client with these words, to which `held` is passed.
    fn client(&self, words: &[&str], held: &TcpListener) -> Program {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", PASS, "sh", PLAIT]).args(words).args(["-s", &self.url, "--accept-new"]);
        command
            .args(["--carrier", "udp", "--path", "lo", "--keys"])
            .arg(self.directory.path().join("client"));
        let held = OwnedFd::from(held.try_clone().expect("a descriptor"));
        Program::start_here(self.directory.path(), "client", command, End::Given(held.into()), End::Own)
            .expect("started")
    }
}

/// An address with a port of UDP that is free now.
fn free_port() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("bound").to_string()
}

/// What comes on a connection until it ends.
fn read(mut connection: TcpStream) -> String {
    connection.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("it comes");
    text
}

#[test]
fn programs_that_connect_while_a_forward_restarts_wait_and_are_served() {
    let served = Served::new();
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = held.local_addr().expect("bound");
    let local = format!("{at}:{}", served.service);
    let words = ["forward", "-L", &local];
    let mut client = served.client(&words, &held);
    client.wait_for_line("forwarding ", TIMEOUT).expect("it has taken the socket");
    assert_eq!(read(TcpStream::connect(at).expect("it listens")), "hello");
    assert!(client.stop(TIMEOUT).expect("it ends").success(), "{}", client.last_words());

    let waiting = TcpStream::connect(at).expect("the socket stays");
    let mut client = served.client(&words, &held);
    assert_eq!(read(waiting), "hello");
    client.stop(TIMEOUT).expect("it ends");
}

#[test]
fn a_proxy_takes_the_socket_of_its_address() {
    let served = Served::new();
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = held.local_addr().expect("bound");
    let mut client = served.client(&["proxy", "--socks", &at.to_string()], &held);
    client.wait_for_line("SOCKS5 at ", TIMEOUT).expect("it has taken the socket");
    let mut connection = TcpStream::connect(at).expect("it listens");
    connection.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let (SocketAddr::V4(service), mut answer) = (served.service, [0; 12]) else { panic!("IPv4") };
    let port = service.port().to_be_bytes();
    connection.write_all(&[&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &port].concat()).expect("sent");
    connection.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[..4], [5, 0, 5, 0], "no authentication, and connected");
    assert_eq!(read(connection), "hello");
    client.stop(TIMEOUT).expect("it ends");
}

#[test]
fn a_socket_at_an_address_that_nothing_names_is_an_error() {
    let served = Served::new();
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = held.local_addr().expect("bound");
    for words in [&["proxy", "--socks", "127.0.0.1:0"][..], &["forward", "-L", "127.0.0.1:0:127.0.0.1:9"]] {
        let mut client = served.client(words, &held);
        assert!(!client.wait(TIMEOUT).expect("it ends").success());
        let words = client.last_words();
        assert!(words.contains(&format!("passed a socket at {at}, where no option listens")), "{words}");
        assert!(words.contains("fix: the same address as ListenStream="), "{words}");
    }
}
