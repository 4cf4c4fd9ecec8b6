//! Ways in and out beside ports: sockets in the file system, services by name, destinations that
//! are reached directly. Everything is on this machine, over UDP.

#![allow(clippy::disallowed_methods, reason = "processes, threads, sockets and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use nix::sys::signal::Signal;
use plait_lab::Program;
use support::here::{key, plait, public, start};
use support::{TIMEOUT, until};
use tempfile::TempDir;

/// A server on this machine.
struct Scene {
    directory: TempDir,
    serve: Program,
    url: String,
}

/// Makes a key for a client, and allows it with these rules under the name of the key.
fn authorize(directory: &Path, keys: &str, allow: &str) {
    let made = public(directory, keys);
    let words: Vec<_> = made.split(' ').take(2).collect();
    let rules = allow.split(',').flat_map(|rule| ["--allow", rule]);
    key(directory, "server", &[&["authorize"], &rules.collect::<Vec<_>>()[..], &words, &[keys]].concat());
}

impl Scene {
    /// A server for every client with these words, which get the directory.
    fn new(words: impl FnOnce(&Path) -> Vec<String>) -> Self {
        Self::with(&["--anyone"], words)
    }

    fn with(door: &[&str], words: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let at = format!("127.0.0.1:{port}");
        let own = words(directory.path());
        let mut words = vec!["serve", "--listen", &at, "--carrier", "udp", "--path", "lo", "-v"];
        words.extend(door);
        words.extend(["--access-log", "access"]);
        words.extend(own.iter().map(String::as_str));
        let mut serve = start(directory.path(), "serve", plait(directory.path(), "server", &words));
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
        Self { directory, serve, url }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let common = ["-s", &self.url, "--carrier", "udp", "--path", "lo"];
        plait(self.directory.path(), "client", &[words, &common].concat())
    }

    /// `plait forward` with these words, and the place that it names.
    fn forward(&self, words: &[&str]) -> (Program, String) {
        let command = self.command(&[&["forward"], words].concat());
        let mut program = start(self.directory.path(), "forward", command);
        let line = program.wait_for_line("forwarding ", TIMEOUT).expect("its address");
        let at = line.split(' ').nth(2).expect(&line).to_owned();
        (program, at)
    }

    /// The end of a command that cannot work.
    fn fails(&self, words: &[&str]) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = self.command(words).output().expect("started");
        (status.code(), String::from_utf8(stderr).expect("text"))
    }

    fn access_log(&self) -> String {
        fs::read_to_string(self.file("access")).unwrap_or_default()
    }
}

/// A service that sends what it gets in capitals, at an address.
fn shouting() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || listener.incoming().flatten().for_each(shout));
    at
}

/// A service that sends back what it gets.
fn repeating() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound").to_string();
    let repeat = |stream: TcpStream| thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(repeat(stream))));
    at
}

/// What `plait serve` with these words, which are an error of usage, says.
fn refusal(words: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let output = plait(directory.path(), "server", &[&["serve"], words].concat()).output().expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
    said
}

/// A socket of a service that sends what it gets in capitals.
fn shouting_at(path: &Path) -> String {
    let listener = UnixListener::bind(path).expect("a socket");
    thread::spawn(move || listener.incoming().flatten().for_each(shout));
    path.to_str().expect("text").to_owned()
}

fn shout(mut stream: impl Read + Write + Send + 'static) {
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let _ = stream.write_all(&text.to_ascii_uppercase());
    });
}

/// What comes back for a text and its end.
trait Talk: Read + Write + Sized {
    fn end(&self);

    fn talk(mut self) -> String {
        self.write_all(b"hello").expect("taken");
        self.end();
        let mut text = String::new();
        let _ = self.read_to_string(&mut text);
        text
    }
}

impl Talk for TcpStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).expect("open");
    }
}

impl Talk for UnixStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).expect("open");
    }
}

#[test]
fn sockets_lead_to_sockets_and_ports_in_every_combination() {
    let tcp = shouting();
    let scene = Scene::new(|here| {
        let socket = shouting_at(&here.join("service"));
        let rules = ["--proxy", "--allow", &tcp, "--allow", &format!("unix:{socket}")].map(str::to_owned);
        rules.to_vec()
    });
    let there = scene.file("service").to_str().expect("text").to_owned();
    let here = scene.file("app").to_str().expect("text").to_owned();
    for to in [&tcp, &there] {
        let (mut forward, at) = scene.forward(&["-L", &format!("{here}:{to}")]);
        assert_eq!(at, format!("unix:{here}"));
        let mode = fs::metadata(&here).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{mode:o}");
        assert_eq!(UnixStream::connect(&here).expect("it listens").talk(), "HELLO");
        assert!(forward.stop(TIMEOUT).expect("it ends").success());
        assert!(!Path::new(&here).exists(), "its file is gone");
    }
    let (_forward, at) = scene.forward(&["-L", &format!("0:{there}")]);
    assert_eq!(TcpStream::connect(&at).expect("it listens").talk(), "HELLO");
    until("the line", || scene.access_log().matches(&format!("\"unix:{there}\"")).count() >= 2);
    // No other rule allows a socket.
    let (_other, at) = scene.forward(&["-L", "0:/run/other.sock"]);
    assert_eq!(TcpStream::connect(&at).expect("it listens").talk(), "");
    until("the refusal", || scene.access_log().contains("\"unix:/run/other.sock\""));
    let log = scene.access_log();
    let line = log.lines().find(|line| line.contains("other.sock")).expect("there");
    assert!(line.contains("rules do not allow this destination"), "{line}");
}

#[test]
fn a_server_forwards_every_client_to_a_socket() {
    let scene = Scene::new(|here| {
        vec!["--forward".to_owned(), format!("unix:{}", shouting_at(&here.join("service")))]
    });
    let (_forward, at) = scene.forward(&["-L", "0:anywhere.example:1"]);
    assert_eq!(TcpStream::connect(&at).expect("it listens").talk(), "HELLO");
    fs::remove_file(scene.file("service")).expect("there");
    assert_eq!(TcpStream::connect(&at).expect("it listens").talk(), "");
    until("the reason", || scene.access_log().contains("the destination cannot be reached"));
    assert!(scene.serve.errors().contains("served"), "{}", scene.serve.errors());
}

#[test]
fn only_a_dead_socket_of_this_user_is_replaced() {
    let tcp = shouting();
    let scene = Scene::new(|_| vec!["--proxy".to_owned(), "--allow".to_owned(), tcp.clone()]);
    let here = scene.file("app").to_str().expect("text").to_owned();
    let local = format!("{here}:{tcp}");
    let (mut forward, _) = scene.forward(&["-L", &local, "--socket-mode", "660"]);
    assert!(forward.wait_for_line("warning: other users that reach", TIMEOUT).is_ok());
    let (code, said) = scene.fails(&["forward", "-L", &local]);
    assert!(code == Some(1) && said.contains("a program listens there already"), "{code:?}: {said}");
    assert_eq!(UnixStream::connect(&here).expect("the first one listens").talk(), "HELLO");
    forward.signal(Signal::SIGKILL);
    forward.wait(TIMEOUT).expect("an end");
    assert!(Path::new(&here).exists(), "a killed program leaves its socket");
    let (second, _) = scene.forward(&["-L", &local]);
    assert_eq!(UnixStream::connect(&here).expect("the second one listens").talk(), "HELLO");
    drop(second);
    let _ = fs::remove_file(&here);
    fs::write(&here, "precious").expect("written");
    let (code, said) = scene.fails(&["forward", "-L", &local]);
    assert!(code == Some(1) && said.contains("there is a file that is no socket"), "{code:?}: {said}");
    assert_eq!(fs::read_to_string(&here).expect("there"), "precious");
    for bad in [&format!("/{}:{tcp}", "x".repeat(107))[..], "/run/../x:web:80", "80:/run//x"] {
        let (code, said) = scene.fails(&["forward", "-L", bad]);
        assert!(code == Some(2) && said.contains("not the path of a socket"), "{code:?}: {said}");
    }
}

#[test]
fn services_have_names_and_each_client_those_of_its_own_rules() {
    let (web, directory) = (shouting(), tempfile::tempdir().expect("a directory"));
    let db = shouting_at(&directory.path().join("db"));
    let mut scene = Scene::with(&[], |here| {
        for (keys, allow) in [("client", "service:db"), ("other", "*:443,service:web")] {
            authorize(here, keys, allow);
        }
        ["--service", &format!("web={web}"), "--service", &format!("db=unix:{db}")]
            .map(str::to_owned)
            .to_vec()
    });
    let (_forward, at) = scene.forward(&["-L", "0:db"]);
    assert_eq!(TcpStream::connect(&at).expect("it listens").talk(), "HELLO");
    let (_forward, at) = scene.forward(&["-L", "0:web"]);
    assert_eq!(TcpStream::connect(&at).expect("it listens").talk(), "");
    until("the refusal", || {
        let log = scene.access_log();
        log.lines().any(|line| line.contains("service:web") && line.contains("do not allow"))
    });
    let line = scene.access_log().lines().find(|line| line.contains("service:db")).expect("there").to_owned();
    assert!(line.contains("\"client\":\"client\"") && line.contains("complete"), "{line}");
    let connect = |to: &str| {
        let words = ["connect", &scene.url, "--to", to, "--accept-new", "--carrier", "udp", "--path", "lo"];
        let mut command = plait(scene.directory.path(), "client", &words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.as_mut().expect("started");
        // It may end before it reads.
        let _ = child.stdin.take().expect("piped").write_all(b"hello");
        let (mut got, mut said) = (String::new(), String::new());
        child.stdout.take().expect("piped").read_to_string(&mut got).expect("text");
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (child.wait().expect("an end").code(), got, said)
    };
    assert_eq!(connect("db").1, "HELLO");
    let (code, _, said) = connect("web");
    assert!(code == Some(1) && said.contains("rules do not allow this destination"), "{code:?}: {said}");
    let (code, said) = scene.fails(&["forward", "-L", "0:no/name"]);
    assert!(code == Some(2) && said.contains("a name alone is a service"), "{code:?}: {said}");
    assert!(scene.serve.stop(TIMEOUT).expect("it ends").success());
    for (words, why) in [
        (["--service", "web=h:80", "--service", "web=h:81"], "two services have the name web"),
        (["--service", "web=h:80", "--forward", "h:80"], "cannot be used with"),
        (["--service", "80=h:80", "--proxy", "--anyone"], "is not the name of a service"),
    ] {
        assert!(refusal(&words).contains(why), "{words:?}: {}", refusal(&words));
    }
}

#[test]
fn a_service_that_asks_for_it_learns_the_client_and_others_do_not() {
    let (web, other) = (repeating(), shouting());
    let scene = Scene::with(&[], |here| {
        authorize(here, "client", "service:web,service:other");
        let services = [format!("web={web}"), format!("other={other}")];
        ["--service", &services[0], "--service", &services[1], "--proxy-protocol", "web"]
            .map(str::to_owned)
            .to_vec()
    });
    let (_forward, at) = scene.forward(&["-L", "0:other"]);
    assert_eq!(TcpStream::connect(&at).expect("it listens").talk(), "HELLO");
    let (_forward, at) = scene.forward(&["-L", "0:web"]);
    let mut stream = TcpStream::connect(&at).expect("it listens");
    stream.write_all(b"hello").expect("taken");
    Talk::end(&stream);
    let mut header = Vec::new();
    stream.read_to_end(&mut header).expect("its end");
    let rest = header.strip_prefix(b"\r\n\r\n\0\r\nQUIT\n\x21\x11").expect("version 2, IPv4");
    let (len, rest) = rest.split_first_chunk().expect("a length");
    let (addresses, fields) = rest[..u16::from_be_bytes(*len).into()].split_at(12);
    assert_eq!(&rest[addresses.len() + fields.len()..], b"hello");
    let expected = b"\xe0\0\x06client\xe1\0\x32SHA256:";
    assert!(fields.starts_with(expected), "{fields:?}");
    assert_eq!(fields.len(), 9 + 3 + 0x32);
    until("the line", || scene.access_log().contains("\"service:web\""));
    let log = scene.access_log();
    let line = log.lines().find(|line| line.contains("\"service:web\"")).expect("there");
    let port = u16::from_be_bytes([addresses[8], addresses[9]]);
    assert_eq!(addresses[..8], [127, 0, 0, 1, 127, 0, 0, 1]);
    assert!(line.contains(&format!("\"from\":\"127.0.0.1:{port}\"")), "{line}");
    let server: u16 = scene
        .url
        .split(['#', '/'])
        .nth(2)
        .and_then(|at| at.rsplit_once(':'))
        .expect("a port")
        .1
        .parse()
        .expect("a number");
    assert_eq!(addresses[10..], server.to_be_bytes());
    let said = refusal(&["--service", "web=h:80", "--proxy-protocol", "db"]);
    assert!(said.contains("db is no name of --service"), "{said}");
}

/// Asks a SOCKS5 proxy for a name or an address, and talks; `Err` is the code of a refusal.
fn by_socks(proxy: &str, host: &str, port: u16) -> Result<String, u8> {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    let name = [&[3, u8::try_from(host.len()).expect("short")], host.as_bytes()].concat();
    let to = host.parse::<Ipv4Addr>().map_or(name, |ip| [&[1][..], &ip.octets()].concat());
    stream.write_all(&[&[5, 1, 0, 5, 1, 0][..], &to, &port.to_be_bytes()].concat()).expect("taken");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    if answer[3] == 0 { Ok(stream.talk()) } else { Err(answer[3]) }
}

#[test]
fn a_proxy_reaches_what_is_listed_directly_and_says_so() {
    let (here, secret) = (shouting(), shouting());
    let scene = Scene::new(|_| vec!["--proxy".to_owned(), "--allow".to_owned(), here.clone()]);
    let port = |at: &str| at.rsplit_once(':').expect("a port").1.parse::<u16>().expect("a number");
    fs::write(scene.file("list"), "# this host\n127.0.0.2/31 # not the first\n*.corp.example\n")
        .expect("written");
    let words = ["proxy", "-v", "--socks", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let direct = ["--direct", "localhost", "--direct", "@list"];
    let command = scene.command(&[&words[..], &direct].concat());
    let mut proxy = start(scene.directory.path(), "proxy", command);
    let line = proxy.wait_for_line("SOCKS5 at ", TIMEOUT).expect("its address");
    let (socks, http) =
        line.split_once("SOCKS5 at ").and_then(|(_, at)| at.split_once(", HTTP at ")).expect(&line);
    let said = proxy.errors();
    assert!(said.contains("without protection: localhost, 2 rules of list"), "{said}");
    // The rules of the server do not allow it, and it is not asked.
    assert_eq!(by_socks(socks, "localhost", port(&secret)).as_deref(), Ok("HELLO"));
    let log = |text: &str| {
        proxy.errors().lines().any(|line| line.contains(text) && line.contains("is_direct=true"))
    };
    until("the line of the log", || log("localhost:"));
    assert_eq!(by_socks(socks, "127.0.0.1", port(&here)).as_deref(), Ok("HELLO"), "by the server");
    assert_eq!(by_socks(socks, "127.0.0.1", port(&secret)), Err(2), "the server refuses");
    let access = scene.access_log();
    assert!(access.contains(&here) && !access.contains("localhost"), "{access}");
    // By HTTP, to another address of this host.
    let listener = TcpListener::bind("127.0.0.3:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 1000];
            let _ = stream.read(&mut head);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnear");
        }
    });
    let mut stream = TcpStream::connect(http).expect("it listens");
    write!(stream, "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n").expect("taken");
    let mut page = String::new();
    let _ = stream.read_to_string(&mut page);
    assert!(page.ends_with("near"), "{page}");
    // Nothing listens there: an answer, and no connection to the server.
    assert_eq!(by_socks(socks, "127.0.0.2", 1), Err(5));
    fs::write(scene.file("list"), "127.0.0.2/31\nweb.example:80\n").expect("written");
    let (code, said) = scene.fails(&["proxy", "--direct", "@list"]);
    assert!(code == Some(2) && said.contains("list:2: `web.example:80`"), "{code:?}: {said}");
}
