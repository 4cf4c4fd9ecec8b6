//! What `plait -v`, `-vv` and `-vvv` say: each what the one before does not, and none of them a byte of the application or a key. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use plait_lab::{End, Program};
use plait_netns::Namespace;
use support::{PLAIT, TIMEOUT, World};

/// What the client sends.
const PAYLOAD: &str = "a letter that only its reader may read";
/// Secrets of a connection by TLS 1.3 that both ends log for Wireshark.
const LABELS: [&str; 5] = [
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
    "EXPORTER_SECRET",
];

#[test]
#[ignore = "needs root"]
fn the_most_detailed_log_has_packets_and_neither_payload_nor_keys() {
    let world = World::without_server("logs");
    let mut listen = start(&world, &world.server, "listen", &["listen", "5000", "--allow-key-log"]);
    let line = listen.wait_for_line("our key is ", TIMEOUT).expect("it says so");
    let key = line.rsplit(' ').next().expect("a word").to_owned();
    listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
    let mut connect = start(
        &world,
        &world.client,
        "connect",
        &["connect", "10.77.1.2", "5000", "--server-key", &key, "--allow-key-log"],
    );
    let mut input = connect.take_input().expect("a pipe");
    input.write_all(PAYLOAD.as_bytes()).expect("it reads");
    drop((input, listen.take_input()));
    for program in [&mut connect, &mut listen] {
        assert!(program.wait(TIMEOUT).expect("it ends").success(), "{}", program.last_words());
    }

    let received = fs::read_to_string(listen.output()).expect("text");
    assert!(has(&received, PAYLOAD.as_bytes()), "it arrives, and the search finds it there: {received}");
    for (program, name) in [(&connect, "connect"), (&listen, "listen")] {
        let log = program.errors();
        for packet in ["segment leaves", "segment arrives"] {
            assert!(
                log.lines().any(|line| line.contains("TRACE") && line.contains(packet)),
                "{packet}: {log}"
            );
        }
        assert!(!has(&log, PAYLOAD.as_bytes()), "the payload is in the log of {name}");
        let key_log = fs::read_to_string(world.file(&format!("{name}.keylog"))).expect("it was asked for");
        for label in LABELS {
            let secret = secret(&key_log, label);
            assert!(has(&key_log, &secret), "the search finds what is there");
            assert!(!has(&log, &secret), "{label} is in the log of {name}");
        }
        for private in private_keys(&world.file(&format!("{name}.keys"))) {
            assert!(!log.contains(&private), "a private key is in the log of {name}");
        }
    }
    assert!(!private_keys(&world.file("listen.keys")).is_empty(), "the server has one");
}

#[test]
#[ignore = "needs root"]
fn each_v_says_more_and_the_scripts_of_rules_come_with_the_packets_only() {
    let world = World::new("verbosity");
    // A program that ends at once without a connection causes a line of its own.
    let said = |words: &[&str]| {
        let output = world.run(words, &["sleep", "3.1"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let [silent, comes_and_goes, decides, packets] = [&[][..], &["-v"], &["-vv"], &["-vvv"]].map(said);
    assert_eq!(silent, "");
    for part in ["connected", "sealed by", "path=\"wan1\"", "in use"] {
        assert!(comes_and_goes.contains(part), "{part}: {comes_and_goes}");
    }
    // Once for each device, which is a path over TCP and another over UDP.
    for device in ["wan1", "wan2"] {
        let path = format!("path=\"{device}\"");
        let changes =
            comes_and_goes.lines().filter(|line| line.contains("path changes") && line.contains(&path));
        let changes: Vec<_> = changes.collect();
        assert!(changes.len() == 1 && changes[0].contains("carriers=\"tcp, udp\""), "{comes_and_goes}");
    }
    assert!(!comes_and_goes.contains("DEBUG") && !comes_and_goes.contains("10.77."), "{comes_and_goes}");
    // Which programs are run, and not what they are told.
    assert!(decides.contains("DEBUG") && decides.contains("nft"), "{decides}");
    for script in ["masquerade", "chain "] {
        assert!(!decides.contains(script) && packets.contains(script), "{script}: {decides}");
    }
    assert!(packets.contains("segment leaves"), "{packets}");
}

/// `plait` with all logs, keys of its own and a key log.
fn start(world: &World, host: &Namespace, name: &str, words: &[&str]) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(words).args(["-vvv", "--path", "wan1", "--path", "wan2", "--keys"]);
    command.arg(world.file(&format!("{name}.keys")));
    command.env("SSLKEYLOGFILE", world.file(&format!("{name}.keylog"))).env_remove("RUST_LOG");
    Program::start(host, &world.directory, name, command, End::Pipe, End::Own).expect("started")
}

/// The secret of this name in a log of the format NSS has.
fn secret(key_log: &str, label: &str) -> Vec<u8> {
    let mut lines = key_log.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.find(|words| words.len() == 3 && words[0] == label);
    let hex = line.unwrap_or_else(|| panic!("{label} is not in {key_log}"))[2];
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Whether `bytes`, or the first sixteen of them, are in a text as characters, as hexadecimal numbers, or as a list.
fn has(text: &str, bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(16)];
    let mut hex = String::new();
    for byte in start {
        write!(hex, "{byte:02x}").expect("strings take everything");
    }
    let list = format!("{start:?}");
    text.contains(&*String::from_utf8_lossy(start))
        || text.to_lowercase().contains(&hex)
        || text.contains(list.trim_end_matches(']'))
}

/// The longest line of each private key in a folder: the rest of PEM is the same for all.
fn private_keys(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let keys = texts.filter(|text| text.contains("PRIVATE KEY"));
    keys.filter_map(|text| text.lines().max_by_key(|line| line.len()).map(str::to_owned)).collect()
}

#[test]
#[ignore = "needs root"]
fn a_line_of_the_log_is_in_words_and_the_last_one_names_the_destination() {
    let mut world = World::new("log_words");
    world.http();
    let to = format!("{}:8080", support::SERVER);
    let mut words = vec!["forward", "-s", &world.url, "--path", "wan1", "-v", "-L"];
    let local = format!("0:{to}");
    words.push(&local);
    let mut command = Command::new(PLAIT);
    command.args(&words).env("PLAIT_KEYS", world.file("client")).env_remove("RUST_LOG");
    let mut forward = world.start(&world.client, "forward", command);
    let line = forward.wait_for_line("forwarding ", TIMEOUT).expect("its port");
    let at = line.split(' ').nth(2).expect("an address").to_owned();
    let (mut proxy, socks) = world.proxy(&["-v", "--keys", world.file("client").to_str().expect("text")]);
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--output", "/dev/null"]).args(arguments);
        assert!(world.client.enter(|| curl.status()).expect("entered").expect("curl").success());
    };
    curl(&[&format!("http://{at}/")]);
    curl(&["--socks5", &socks, &format!("http://{to}/")]);
    for program in [&mut forward, &mut proxy] {
        let line = program.wait_for_line("a connection has ended", TIMEOUT).expect("it says so");
        assert!(line.contains(&format!("destination=\"{to}\"")), "{line}");
        program.stop(TIMEOUT).expect("it ends");
    }
    let log = forward.errors() + &proxy.errors() + &world.serve_log();
    assert!(log.contains("Multipath TCP version") && log.contains("class=\"trusted\""), "{log}");
    for debug in ["nowhere", "{", "Some(", "Multipath {", "PathId(", "class=Trusted"] {
        assert!(!log.contains(debug), "{debug} in {log}");
    }
}
