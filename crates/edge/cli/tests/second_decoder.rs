//! `scripts/decode`, written from docs/protocol.md alone, verifies what `plait` puts on the wire: captures with key logs of real transfers over two
//! paths (with root), and the published vectors.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use plait_lab::{End, Program};
use plait_netns::Namespace;
use serde_json::Value;
use support::{PLAIT, TIMEOUT, World, until};

/// The records of each direction that every transfer of this test has.
const RECORDS: [&str; 4] = ["MIX", "KEY_UPDATE", "MAX_DATA", "EOF"];
/// Beginnings of options that have a tag, or say where a PATHKEY is; and a byte of each that one flipped bit makes wrong.
const OPTIONS: [([u8; 3], usize); 4] =
    [([30, 12, 0xf0], 6), ([30, 20, 0xf2], 14), ([30, 20, 0xf3], 6), ([30, 9, 0xf1], 6)];

/// What the decoder has said of a capture.
struct Decoded {
    output: Output,
    lines: Vec<Value>,
}

impl Decoded {
    /// Runs `scripts/decode` on a capture with the key log of the same program.
    fn of(world: &World, capture: &str, key_log: &str) -> Self {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/decode");
        let mut command = Command::new(script);
        command.arg("--json").arg("--streams").arg(world.file("streams"));
        let output = command.arg("--keys").arg(world.file(key_log)).arg(world.file(capture)).output();
        let output = output.expect("python3 is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        Self { output, lines }
    }

    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    fn said<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["what"] == what)
    }

    /// All lines, for the message of a failed test.
    fn text(&self) -> String {
        let failures: Vec<_> =
            self.said("FAILED").chain(self.said("summary")).map(Value::to_string).collect();
        format!("{}\n{}", failures.join("\n"), String::from_utf8_lossy(&self.output.stderr))
    }
}

/// `plait` on both paths with a capture, a key log, and its input from the test.
fn start(world: &World, host: &Namespace, name: &str, words: &[&str]) -> Program {
    start_on(world, host, name, &[words, &["--path", "wan1", "--path", "wan2"]].concat())
}

/// The same on the paths that are among the words.
fn start_on(world: &World, host: &Namespace, name: &str, words: &[&str]) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(words).args(["-vv", "--allow-key-log"]);
    command.arg("--keys").arg(world.file(&format!("{name}.keys")));
    command.arg("--pcap").arg(world.file(&format!("{name}.pcapng")));
    command.env("SSLKEYLOGFILE", world.file(&format!("{name}.keylog"))).env_remove("RUST_LOG");
    command.env_remove("SUDO_UID").current_dir(&world.directory);
    Program::start(host, &world.directory, name, command, End::Pipe, End::Own).expect("started")
}

/// Bytes in which no two places look alike.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let word = |number: u64| (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

/// Tells a client how to use its paths from now on.
fn use_paths(world: &World, client: &Program, paths: &[&str]) {
    let mut command = Command::new(PLAIT);
    command.args(["path", "--pid", &client.pid().to_string()]).args(paths).stdin(Stdio::null());
    let changed = world.client.enter(|| command.output()).expect("entered").expect("built");
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
}

/// A transfer in both directions in which a path joins, a share of it goes into the keys, and it goes away again. Returns what
/// the client and the server have sent.
fn transfer(world: &World, carrier: &str, handshake: &str) -> [Vec<u8>; 2] {
    let parts = [text(1, 300_000), text(2, 300_000), text(3, 100_000)];
    let answer = text(4, 200_000);
    let mut listen = start(world, &world.server, "server", &["listen", "5000", "--carrier", carrier]);
    let line = listen.wait_for_line("our key is ", TIMEOUT).expect("it says so");
    let key = line.rsplit(' ').next().expect("a word").to_owned();
    listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
    let mut words = vec!["connect", "10.77.1.2", "5000", "--carrier", carrier, "--handshake", handshake];
    if handshake == "tls" {
        words.extend(["--server-key", &key]);
    }
    let mut connect = start(world, &world.client, "client", &words);
    let mut input = connect.take_input().expect("a pipe");
    let mut back = listen.take_input().expect("a pipe");
    let arrived = |program: &Program| fs::metadata(program.output()).map_or(0, |file| file.len());
    input.write_all(&parts[0]).expect("it reads");
    back.write_all(&answer).expect("it reads");
    until("a second path", || connect.errors().contains("join is complete"));
    input.write_all(&parts[1]).expect("it reads");
    until("two parts", || arrived(&listen) >= 600_000 && arrived(&connect) >= 200_000);
    // The second path is to be used no more.
    use_paths(world, &connect, &["wan2=never"]);
    until("the end of the subflow", || listen.errors().contains("subflow is lost"));
    input.write_all(&parts[2]).expect("it reads");
    drop((input, back));
    for program in [&mut connect, &mut listen] {
        assert!(program.wait(TIMEOUT).expect("it ends").success(), "{}", program.last_words());
    }
    let sent = [parts.concat(), answer];
    for (program, sent) in [(&listen, &sent[0]), (&connect, &sent[1])] {
        assert!(fs::read(program.output()).expect("a file") == *sent, "what was sent has arrived");
    }
    sent
}

/// Every block and every tag verifies at both ends, and the text is what was sent.
fn assert_verified(world: &World, sent: &[Vec<u8>; 2], handshake: &str) {
    for name in ["client", "server"] {
        let decoded = Decoded::of(world, &format!("{name}.pcapng"), &format!("{name}.keylog"));
        assert_eq!(decoded.code(), Some(0), "at the {name}: {}", decoded.text());
        let all: Vec<_> = decoded.said("summary").collect();
        let [summary] = all[..] else { panic!("one connection: {}", decoded.text()) };
        for (way, sent) in ["ab", "ba"].into_iter().zip(sent) {
            let number = &summary["connection"];
            let read = fs::read(world.file("streams").join(format!("{number}-{way}"))).expect("a file");
            assert!(read == *sent, "at the {name}, {way}: {} bytes of {}", read.len(), sent.len());
            for record in RECORDS {
                let count = &summary["records"][way][record];
                assert!(count.as_u64() >= Some(1), "at the {name}, {way}, {record}: {}", decoded.text());
            }
            assert!(summary["generations"][way].as_u64() >= Some(1), "{}", decoded.text());
        }
        let of = |way: &str, record: &str| summary["records"][way][record].as_u64().unwrap_or(0);
        // The client has ended the subflow. The end that had the answer of the exchange says AGREED.
        assert!(of("ab", "GONE") >= 1, "{}", decoded.text());
        assert!(of("ab", "AGREED") + of("ba", "AGREED") >= 1, "{}", decoded.text());
        assert_eq!(of("ab", "OPENING"), 1, "{}", decoded.text());
        assert_eq!(of("ba", "TICKET"), u64::from(handshake == "tls"), "{}", decoded.text());
        for what in ["transmissions", "acks", "questions", "answers", "shares", "joins"] {
            assert!(summary[what].as_u64() >= Some(1), "{what} at the {name}: {}", decoded.text());
        }
    }
}

/// Where one flipped bit is to be noticed: in the middle of the largest packet, and in the first option of each kind in [`OPTIONS`].
fn places(capture: &[u8]) -> Vec<usize> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut largest) = (0, (0, 0));
    while at < capture.len() {
        // An enhanced packet block (pcapng, section 4.3) has 28 bytes in front of the packet.
        if word(at) == 6 {
            largest = largest.max((word(at + 20) as usize, at + 28));
        }
        at += word(at + 4) as usize;
    }
    let (length, start) = largest;
    let option = |(beginning, byte): &([u8; 3], usize)| {
        let at = capture.windows(3).position(|window| window == beginning);
        at.unwrap_or_else(|| panic!("no option {beginning:?}")) + byte
    };
    [start + length / 2].into_iter().chain(OPTIONS.iter().map(option)).collect()
}

/// One bit flipped anywhere in what is authenticated is found, and said.
fn assert_flips_are_found(world: &World) {
    let capture = fs::read(world.file("client.pcapng")).expect("a capture");
    for place in places(&capture) {
        let mut flipped = capture.clone();
        flipped[place] ^= 0x10;
        fs::write(world.file("flipped.pcapng"), flipped).expect("written");
        let decoded = Decoded::of(world, "flipped.pcapng", "client.keylog");
        assert_eq!(decoded.code(), Some(1), "a bit at {place}: {}", decoded.text());
        assert!(decoded.said("FAILED").count() >= 1, "a bit at {place}: {}", decoded.text());
    }
}

/// A confirmation with one other bit is found, and named.
fn assert_another_confirmation_is_found(world: &World) {
    let whole = Decoded::of(world, "client.pcapng", "client.keylog");
    let fields = &whole.said("handshake").next().expect("a handshake")["fields"];
    let text = fields["confirmation"].as_str().expect("in hexadecimal");
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    let confirmation: Vec<_> = (0..text.len()).step_by(2).map(byte).collect();
    let mut capture = fs::read(world.file("client.pcapng")).expect("a capture");
    // A segment may end within it: then eight bytes of it are in one piece all the same.
    let place = confirmation
        .windows(8)
        .find_map(|known| capture.windows(8).position(|window| window == known))
        .expect("in the capture");
    capture[place] ^= 0x10;
    fs::write(world.file("flipped.pcapng"), capture).expect("written");
    let decoded = Decoded::of(world, "flipped.pcapng", "client.keylog");
    assert_eq!(decoded.code(), Some(1), "{}", decoded.text());
    assert!(decoded.text().contains("the confirmation of B does not fit"), "{}", decoded.text());
}

#[test]
#[ignore = "needs root"]
fn what_tls_seals_over_two_paths_is_verified_by_the_second_decoder() {
    let world = World::without_server("dec_tls");
    let sent = transfer(&world, "tcp", "tls");
    assert_verified(&world, &sent, "tls");
    assert_flips_are_found(&world);
    assert_another_confirmation_is_found(&world);
}

#[test]
#[ignore = "needs root"]
fn what_tcpcrypt_seals_over_udp_is_verified_by_the_second_decoder() {
    let world = World::without_server("dec_crypt");
    let sent = transfer(&world, "udp", "tcpcrypt");
    assert_verified(&world, &sent, "tcpcrypt");
    assert_flips_are_found(&world);
    assert_another_confirmation_is_found(&world);
}

#[test]
#[ignore = "needs root"]
fn blocks_in_the_syn_of_a_join_and_an_abort_are_verified_by_the_second_decoder() {
    let world = World::without_server("dec_syn");
    let mut listen = start(&world, &world.server, "server", &["listen", "5000", "--carrier", "tcp"]);
    listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
    let words = ["connect", "10.77.1.2", "5000", "--carrier", "tcp", "--handshake", "tcpcrypt"];
    let mut connect = start(&world, &world.client, "client", &words);
    let mut input = connect.take_input().expect("a pipe");
    let parts = [text(5, 50_000), text(6, 50_000)];
    input.write_all(&parts[0]).expect("it reads");
    until("a second path", || listen.errors().contains("join is complete"));
    use_paths(&world, &connect, &["wan2=never"]);
    until("the end of the subflow", || listen.errors().contains("subflow is lost"));
    // The only path is exchanged for the other one: no subflow works, and the first SYN brings blocks.
    use_paths(&world, &connect, &["wan1=never", "wan2=trusted"]);
    input.write_all(&parts[1]).expect("it reads");
    until("all of it", || fs::metadata(listen.output()).map_or(0, |file| file.len()) >= 100_000);
    // A program that is told to end aborts its connection.
    connect.signal(nix::sys::signal::Signal::SIGTERM);
    for program in [&mut connect, &mut listen] {
        assert!(!program.wait(TIMEOUT).expect("it ends").success(), "{}", program.last_words());
    }
    drop(input);
    for name in ["client", "server"] {
        let decoded = Decoded::of(&world, &format!("{name}.pcapng"), &format!("{name}.keylog"));
        assert_eq!(decoded.code(), Some(0), "at the {name}: {}", decoded.text());
        let summary = decoded.said("summary").next().expect("a connection");
        assert!(summary["syn_data"].as_u64() >= Some(1), "at the {name}: {}", decoded.text());
        assert!(decoded.said("MP_FASTCLOSE").count() >= 1, "at the {name}: {}", decoded.text());
        assert!(fs::read(world.file("streams").join("0-ab")).expect("a file") == parts.concat());
    }
}

#[test]
#[ignore = "needs root"]
fn a_ticket_is_verified_by_the_second_decoder() {
    let world = World::without_server("dec_ticket");
    let words = ["listen", "5000", "--carrier", "tcp", "--path", "wan1"];
    let mut listen = start_on(&world, &world.server, "server", &words);
    let line = listen.wait_for_line("our key is ", TIMEOUT).expect("it says so");
    let key = line.rsplit(' ').next().expect("a word");
    listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
    let words = ["connect", "10.77.1.2", "5000", "--carrier", "tcp", "--path", "wan1", "--server-key", key];
    let mut connect = start_on(&world, &world.client, "client", &words);
    connect.take_input().expect("a pipe").write_all(b"hello").expect("it reads");
    drop(listen.take_input());
    for program in [&mut connect, &mut listen] {
        assert!(program.wait(TIMEOUT).expect("it ends").success(), "{}", program.last_words());
    }
    for name in ["client", "server"] {
        let decoded = Decoded::of(&world, &format!("{name}.pcapng"), &format!("{name}.keylog"));
        assert_eq!(decoded.code(), Some(0), "at the {name}: {}", decoded.text());
        let ways: Vec<_> = decoded.said("TICKET").map(|line| line["from"].clone()).collect();
        assert_eq!(ways, ["B"], "at the {name}: {}", decoded.text());
    }
}

#[test]
#[ignore = "needs root"]
fn a_refusal_is_verified_by_the_second_decoder() {
    let world = World::without_server("dec_refused");
    let words = ["serve", "--forward", "127.0.0.1:9", "--carrier", "tcp"];
    let mut serve = start(&world, &world.server, "server", &words);
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its URL");
    let mut connect = start(&world, &world.client, "client", &["connect", &url]);
    assert_eq!(connect.wait(TIMEOUT).expect("it ends").code(), Some(5), "{}", connect.last_words());
    serve.stop(TIMEOUT).expect("an end");
    for name in ["client", "server"] {
        let decoded = Decoded::of(&world, &format!("{name}.pcapng"), &format!("{name}.keylog"));
        assert_eq!(decoded.code(), Some(0), "at the {name}: {}", decoded.text());
        let refusals: Vec<_> = decoded.said("REFUSED").collect();
        assert!(!refusals.is_empty(), "at the {name}: {}", decoded.text());
        for refusal in refusals {
            assert_eq!(refusal["from"], "B");
            assert_eq!(refusal["fields"]["reason"], "not authorized");
        }
    }
}

#[test]
fn the_published_vectors_are_those_of_the_second_decoder() {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/decode");
    let output = Command::new(script).arg("--vectors").output().expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
