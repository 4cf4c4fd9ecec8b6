//! The examples, one against another, in network namespaces with two paths between them: what they print.
//!
//! They need root, which network namespaces are made with: `cargo test -p plait --test examples -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "programs have files and threads")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use plait::{Clients, Fingerprint, Host, Identity, Service};
use plait_lab::wired::{Pair, Wire};
use plait_lab::{End, Program, wait_until};
use plait_netns::{Cidr, Namespace};
use tokio::io::AsyncWriteExt;

/// How long a program may take for anything.
const TIMEOUT: Duration = Duration::from_secs(120);
const SERVER: &str = "10.95.1.2";

#[test]
#[ignore = "needs root"]
fn echo_sends_each_line_back() {
    let net = Net::new("echo");
    let mut server = net.server("echo", &["7007"]);
    let key = announced_key(&mut server);
    let mut client = net.client("echo", &[&format!("{SERVER}:7007"), &key]);
    let mut input = client.take_input().expect("a pipe");
    for line in ["first", "second"] {
        writeln!(input, "{line}").expect("it reads");
        client.wait_for_output(line, TIMEOUT).expect("it comes back");
    }
    drop(input);
    assert!(client.wait(TIMEOUT).expect("it ends").success(), "{}", client.last_words());
    assert_eq!(printed(&client), "first\nsecond\n");
    server.wait_for_output(" has come", TIMEOUT).expect("it saw a client");
}

#[test]
#[ignore = "needs root"]
fn datagram_echo_gets_each_datagram_back_over_two_paths() {
    let net = Net::new("dgram");
    let mut server = net.server("datagram_echo", &["7007"]);
    let key = announced_key(&mut server);
    let mut client = net.client("datagram_echo", &[&format!("{SERVER}:7007"), &key, "a1", "a2"]);
    assert!(client.wait(TIMEOUT).expect("it ends").success(), "{}", client.last_words());
    let printed = printed(&client);
    assert_eq!(printed.lines().count(), 10, "{printed}");
    assert!(printed.lines().all(|line| line.ends_with(" ms")), "two paths that lose nothing: {printed}");
}

#[test]
#[ignore = "needs root"]
fn http_get_fetches_a_page_from_a_server_on_the_kernels_tcp() {
    let net = Net::new("get");
    let listener = net.pair.server.enter(|| TcpListener::bind("0.0.0.0:80").expect("free")).expect("entered");
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("a whole request");
            request.extend(byte);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na page").expect("taken");
        String::from_utf8(request).expect("text")
    });
    let mut client = net.client("http_get", &[SERVER, "/index.html", "a1", "a2"]);
    assert!(client.wait(TIMEOUT).expect("it ends").success(), "{}", client.last_words());
    let request = serving.join().expect("a request came");
    assert!(request.starts_with(&format!("GET /index.html HTTP/1.1\r\nHost: {SERVER}\r\n")), "{request}");
    assert!(printed(&client).ends_with("\r\n\r\na page"), "{}", printed(&client));
    let said = client.errors();
    assert!(said.contains("44 bytes by plain TCP in "), "{said}");
    assert!(said.contains(&format!("44 bytes over a1 to {SERVER}:80")), "{said}");
}

#[test]
#[ignore = "needs root"]
fn sealed_server_keeps_its_key_greets_known_clients_and_ends_on_an_interrupt() {
    let net = Net::new("sealed");
    let key_file = net.file("key");
    let mut server = net.server("sealed_server", &["7443", &key_file]);
    let key = announced_key(&mut server);
    // It greets, and path_control reads until the end.
    let address = format!("{SERVER}:7443");
    let mut client = net.client("path_control", &[&address, &key, "a1", "a2"]);
    assert!(client.wait(TIMEOUT).expect("it ends").success(), "{}", client.last_words());
    assert_eq!(printed(&client), format!("{} bytes\n", "hello, client without a key\n".len()));
    interrupt(&mut server);

    let known = Fingerprint::new([7; 32]).to_string();
    let mut server = net.server("sealed_server", &["7443", &key_file, &known]);
    assert_eq!(announced_key(&mut server), key, "the key is kept");
    let mut client = net.client("path_control", &[&address, &key, "a1", "a2"]);
    assert!(!client.wait(TIMEOUT).expect("it ends").success(), "a stranger was let in: {}", printed(&client));
    interrupt(&mut server);
}

#[test]
#[ignore = "needs root"]
fn pinned_and_ca_knows_the_server_or_says_that_it_is_another() {
    let net = Net::new("pinned");
    let mut server = net.server("sealed_server", &["7443", &net.file("key")]);
    let key = announced_key(&mut server);
    let root = rcgen::generate_simple_self_signed(vec!["gw.example.com".to_owned()]).expect("a certificate");
    let (roots, known) = (net.file("roots.pem"), net.file("known_peers"));
    fs::write(&roots, root.cert.pem()).expect("written");
    let (other, address) = (Fingerprint::new([7; 32]).to_string(), format!("{SERVER}:7443"));
    let (same, another) = (format!("Key({key})"), format!("another host answers for {address}: "));
    for (words, answer) in [
        (vec!["pinned", &key], same.as_str()),
        (vec!["pinned", &other], &another),
        // The first time it is believed, the second time known.
        (vec!["known-by-one-path", &known], &same),
        (vec!["known", &known], &same),
        // It has no certificate to show.
        (vec!["ca", &roots], &another),
        (vec!["anonymous"], &same),
    ] {
        let arguments: Vec<&str> = std::iter::once(address.as_str()).chain(words).collect();
        let mut client = net.client("pinned_and_ca", &arguments);
        assert!(client.wait(TIMEOUT).expect("it ends").success(), "{arguments:?}: {}", client.last_words());
        assert!(printed(&client).contains(answer), "{arguments:?}: {}", printed(&client));
    }
    assert!(fs::read_to_string(&known).expect("made").contains(&address), "it is written down");
    // One path leads there: it is not enough for a new server, unless the caller asks for that.
    let mut client = net.client("pinned_and_ca", &[&address, "known", &net.file("nobody")]);
    assert!(!client.wait(TIMEOUT).expect("it ends").success(), "{}", printed(&client));
    assert!(client.last_words().contains("known_peers_by_one_path"), "{}", client.last_words());
}

#[test]
#[ignore = "needs root"]
fn path_control_uses_the_expensive_path_while_the_cheap_one_is_gone() {
    let net = Net::new("control");
    let (identity, cheap) = (Identity::generate().expect("a key"), &net.pair.wires[0][0]);
    let builder = Host::builder().path("b1".parse().expect("a path")).path("b2".parse().expect("a path"));
    let host = net.pair.server.enter(|| builder.start().expect("a host")).expect("entered");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("threads");
    let service = Service::sealed(&identity, Clients::anyone());
    let listener = runtime.block_on(host.listen(7443, service)).expect("a free port");
    let key = identity.fingerprint().to_string();
    let mut client = net.client("path_control", &[&format!("{SERVER}:7443"), &key, "a1", "a2"]);
    let mut stream = runtime.block_on(listener.accept()).expect("it comes");
    wait("the other path is joined", || {
        stream.paths().iter().any(|path| path.is_backup() && path.is_usable())
    });
    cheap.down().expect("the kernel does as it is told");
    client.wait_for_line("a1 is gone: a2", TIMEOUT).expect("it sees that");
    runtime.block_on(stream.write_all(b"over the other path")).expect("open");
    let arrived = |line: &str| line.starts_with("  a2: ") && !line.starts_with("  a2: 0 bytes");
    wait("bytes have come over a2", || client.errors().lines().any(arrived));
    cheap.up().expect("the kernel does as it is told");
    client.wait_for_line("a1 is back: a2", TIMEOUT).expect("it sees that, too");
    runtime.block_on(stream.shutdown()).expect("open");
    assert!(client.wait(TIMEOUT).expect("it ends").success(), "{}", client.last_words());
    assert_eq!(printed(&client), "19 bytes\n");
}

#[test]
#[ignore = "needs root"]
fn hyper_client_asks_the_service_of_axum_server() {
    let net = Net::new("axum");
    let mut server = net.server("axum_server", &["7080"]);
    let key = announced_key(&mut server);
    for (path, status, body) in
        [("/hello/plait", "200 OK", "hello, plait\n"), ("/nothing", "404 Not Found", "")]
    {
        let mut client = net.client("hyper_client", &[&format!("{SERVER}:7080"), &key, path]);
        assert!(client.wait(TIMEOUT).expect("it ends").success(), "{}", client.last_words());
        assert_eq!(printed(&client), body);
        assert!(client.errors().contains(status), "{}", client.errors());
    }
    interrupt(&mut server);
}

#[test]
#[ignore = "needs root"]
fn send_file_carries_a_file_and_says_when_all_of_it_has_arrived() {
    let net = Net::new("file");
    let (original, copy) = (net.file("original"), net.file("copy"));
    let bytes: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_be_bytes).collect();
    fs::write(&original, &bytes).expect("written");
    let mut server = net.server("send_file", &["receive", "7090", &copy]);
    let key = announced_key(&mut server);
    let mut client = net.client("send_file", &["send", &format!("{SERVER}:7090"), &key, &original]);
    assert!(client.wait(TIMEOUT).expect("it ends").success(), "{}", client.last_words());
    assert_eq!(printed(&client), "8000000 bytes have arrived\n");
    assert!(client.errors().contains(" of 8000000 bytes"), "{}", client.errors());
    assert!(server.wait(TIMEOUT).expect("it ends").success(), "{}", server.last_words());
    assert!(fs::read(&copy).expect("a file") == bytes, "the copy differs");
}

/// The key that a server's example prints when it listens.
fn announced_key(server: &mut Program) -> String {
    let line = server.wait_for_output("our key is ", TIMEOUT).expect("it says its key");
    line.trim_start_matches("our key is ").to_owned()
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    wait_until(what, TIMEOUT, || Ok::<_, plait_lab::Error>(is_so())).expect("in time");
}

fn printed(program: &Program) -> String {
    fs::read_to_string(program.output()).expect("text")
}

fn interrupt(server: &mut Program) {
    server.signal(nix::sys::signal::Signal::SIGINT);
    assert!(server.wait(TIMEOUT).expect("it ends").success(), "{}", server.last_words());
}

/// The folder of the examples, built as the test was.
fn examples() -> &'static PathBuf {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        // The whole workspace, as `scripts/test` builds it: then there is nothing left to do.
        let words = ["build", "--quiet", "--profile", "test", "--workspace", "--examples"];
        let status = Command::new(env!("CARGO")).args(words).status().expect("cargo is there");
        assert!(status.success(), "the examples do not build");
        let test = std::env::current_exe().expect("a test is a file");
        test.parent().and_then(|folder| folder.parent()).expect("target/debug/deps").join("examples")
    })
}

/// Two hosts with two paths; the first one has the default routes. Files and programs end with it.
struct Net {
    pair: Pair,
    directory: PathBuf,
}

impl Net {
    fn new(label: &str) -> Self {
        let mut pair = Pair::new(label).expect("root");
        for path in [1, 2] {
            let at = |host: u8| Cidr::new([10, 95, path, host].into(), 24);
            let devices = [format!("a{path}"), format!("b{path}")];
            pair.lay(&Wire { devices, addresses: vec![[at(1), at(2)]] }).expect("a path");
        }
        pair.client.ip(&format!("route add default via {SERVER}")).expect("added");
        pair.server.ip("route add default via 10.95.1.1").expect("added");
        let directory = std::env::temp_dir().join(format!("plait-examples-{label}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        Self { pair, directory }
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn server(&self, example: &str, arguments: &[&str]) -> Program {
        self.start(&self.pair.server, &format!("{example}-server"), example, arguments)
    }

    fn client(&self, example: &str, arguments: &[&str]) -> Program {
        self.start(&self.pair.client, &format!("{example}-client"), example, arguments)
    }

    fn start(&self, host: &Namespace, name: &str, example: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(examples().join(example));
        command.args(arguments);
        Program::start(host, &self.directory, name, command, End::Pipe, End::Own).expect("started")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
