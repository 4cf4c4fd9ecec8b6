//! The dissector of Wireshark (`crates/edge/cli/wireshark`) reads the captures of all scenarios.
//!
//! Of the sealed ones it says, packet by packet, what `scripts/decode` says. Both were written from docs/protocol.md, in other languages than the core.

use plait_pcap::{Interface, Packet, Reader, Writer};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::scenario::Scenario;
use crate::{scenarios, sealed};

mod damage;

/// Time between the captures of two scenarios in one file.
const PAUSE: Duration = Duration::from_secs(1000);
/// No scenario has more.
const PATHS: usize = 4;
/// The fields that are compared. The first one is that of the time.
const FIELDS: [&str; 12] = [
    "frame.time_relative",
    "plait.block.number",
    "plait.block.generation",
    "plait.block.tag",
    "plait.block.option_tag",
    "plait.block.first",
    "plait.record.name",
    "plait.ack.number",
    "plait.ack.tag",
    "plait.check.tag",
    "plait.pathkey.tag",
    "plait.join.tag",
];
/// Values of fields that say whether something verifies.
const OK: &str = "1";
const FAILED: &str = "2";

/// How often something was seen, by nanoseconds since the first packet and what it is.
type Seen = BTreeMap<(u64, String), usize>;

/// The file of the dissector with this name.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../edge/cli/wireshark").join(name)
}

/// An empty directory for the files of a test.
fn directory(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wireshark").join(name);
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("the directory can be made");
    place
}

/// `tshark` with the dissector, and without the settings and plugins of this user.
fn tshark(place: &Path, script_name: &str) -> Command {
    let mut command = Command::new("tshark");
    command
        .env("HOME", place)
        .env_remove("WIRESHARK_CONFIG_DIR")
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(place);
    command.arg("-X").arg(format!("lua_script:{}", script(script_name).display()));
    command
}

/// Runs it, and returns what it prints.
fn output(mut command: Command) -> String {
    let output = command.output().expect("tshark is installed (fix: scripts/setup)");
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains("Lua") && !text.contains("Lua Error"), "{errors}\n{text}");
    text
}

/// The fields of all packets of a file, with what the key log of this name decrypts; none if it is empty.
fn fields(place: &Path, capture: &str, keys: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = tshark(place, "plait.lua");
    command.args(["-n", "-r", capture, "-o", &format!("plait.keylog:{keys}")]);
    // The second pass shows what has become known later. Without keys that is little.
    command.args((!keys.is_empty()).then_some("-2"));
    command.args(["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"]);
    for field in fields.iter().chain(&["_ws.lua.text"]) {
        command.args(["-e", field]);
    }
    let rows: Vec<Vec<String>> =
        output(command).lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    for row in &rows {
        assert_eq!(row.last().map(String::as_str), Some(""), "an error of Lua: {row:?}");
    }
    rows
}

/// The values of a field in a row.
fn values<'a>(row: &'a [String], name: &str) -> Vec<&'a str> {
    let column = FIELDS.iter().position(|field| *field == name).expect("it is compared");
    row[column].split(',').filter(|value| !value.is_empty()).collect()
}

/// How often a field has a value, in all rows.
fn count(rows: &[Vec<String>], name: &str, value: &str) -> usize {
    rows.iter().flat_map(|row| values(row, name)).filter(|found| *found == value).count()
}

/// The captures of these scenarios in one file, one behind the other, since a program that reads them starts slowly.
fn joined(scenarios: &[Scenario]) -> Vec<u8> {
    let mut writer = writer();
    let mut start = Duration::ZERO;
    for scenario in scenarios {
        let file = scenario.capture().file;
        let mut last = start;
        for packet in packets(&file) {
            last = start + packet.at;
            writer.write(&Packet { at: last, ..packet }).expect("memory takes everything");
        }
        start = last + PAUSE;
    }
    writer.into_inner()
}

fn writer() -> Writer<Vec<u8>> {
    let interfaces = (0..PATHS).map(|path| Interface::named(format!("path{path}")));
    Writer::new(Vec::new(), None, interfaces).expect("memory takes everything")
}

fn packets(file: &[u8]) -> impl Iterator<Item = Packet<'static>> {
    let owned =
        |packet: Packet<'_>| Packet { data: packet.data.into_owned().into(), comment: None, ..packet };
    let all: Vec<_> =
        Reader::new(file).expect("a pcapng file").map(|packet| owned(packet.expect("well-formed"))).collect();
    all.into_iter()
}

/// Scenarios that are sealed or ask for it, or the others.
fn chosen(is_sealed: bool) -> Vec<Scenario> {
    let begins =
        |scenario: &Scenario| scenario.name.starts_with("tls") || scenario.name.starts_with("tcpcrypt");
    scenarios().into_iter().filter(|scenario| begins(scenario) == is_sealed).collect()
}

fn scenario(name: &str) -> Scenario {
    scenarios().into_iter().find(|scenario| scenario.name == name).expect("it exists")
}

/// What `scripts/decode` prints about a capture.
fn decoded(place: &Path, capture: &str) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/decode");
    let mut command = Command::new(script);
    command.args(["--json", "--keys", "keys", capture]).current_dir(place);
    let output = command.output().expect("python3 is installed (fix: scripts/setup)");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// What the dissector has verified: blocks, their records, and Data-ACKs; and how much of it was not seen before.
fn seen_by_dissector(rows: &[Vec<String>]) -> (Seen, usize) {
    let (mut seen, mut first) = (Seen::new(), 0);
    for row in rows {
        let at = nanoseconds(row[0].parse().expect("a time"));
        let mut found = Vec::new();
        let blocks = values(row, "plait.block.number").into_iter().zip(values(row, "plait.block.generation"));
        for ((number, generation), tag) in blocks.zip(values(row, "plait.block.tag")) {
            assert_eq!(tag, OK, "{row:?}");
            found.push(format!("block {number} of generation {generation}"));
        }
        found.extend(values(row, "plait.record.name").into_iter().map(str::to_owned));
        // A packet that completes a repeated block completes no other one in these captures.
        first += if values(row, "plait.block.first").is_empty() { found.len() } else { 0 };
        for (number, tag) in values(row, "plait.ack.number").into_iter().zip(values(row, "plait.ack.tag")) {
            assert_eq!(tag, OK, "{row:?}");
            found.push(format!("Data-ACK {number}"));
            first += 1;
        }
        for what in found {
            *seen.entry((at, what)).or_default() += 1;
        }
    }
    (seen, first)
}

/// The same by `scripts/decode`.
fn seen_by_decoder(lines: &[Value]) -> Seen {
    let mut seen = Seen::new();
    for line in lines {
        let (what, fields) = (line["what"].as_str().expect("a word"), &line["fields"]);
        let at = nanoseconds(line["time"].as_f64().unwrap_or_default());
        let mut add = |what| *seen.entry((at, what)).or_default() += 1;
        match what {
            "block of data" | "block of control" => {
                add(format!("block {} of generation {}", fields["dsn"], fields["generation"]));
            }
            "Data-ACK" if fields["data ack"].is_u64() => {
                add(format!("Data-ACK {}", fields["data ack"]));
            }
            // Names of records; RST and FIN are those of segments.
            _ if what == what.to_uppercase()
                && !["RST", "FIN", "FAILED", "MP_FASTCLOSE", "REPORT"].contains(&what) =>
            {
                add(what.to_owned());
            }
            _ => {}
        }
    }
    seen
}

#[test]
fn the_dissector_says_of_sealed_connections_what_the_second_decoder_says() {
    let place = directory("sealed");
    let all: Vec<_> = chosen(true).into_iter().chain([sealed::outage()]).collect();
    fs::write(place.join("capture.pcapng"), joined(&all)).expect("written");
    fs::write(place.join("keys"), sealed::key_log()).expect("written");
    let rows = fields(&place, "capture.pcapng", "keys", &FIELDS);
    let lines = decoded(&place, "capture.pcapng");
    let ((found, first), known) = (seen_by_dissector(&rows), seen_by_decoder(&lines));
    // Of a block that was sent several times, the decoder reports the transmission on the subflow that began first.
    let missing = known.iter().filter(|(what, times)| found.get(what) < Some(times));
    assert_eq!(missing.collect::<Vec<_>>(), [], "only the decoder has seen these");
    assert_eq!(first, known.values().sum::<usize>(), "what was not seen before");
    assert!(first > 4000, "{first}");
    let sum = |names: &[&str]| -> u64 {
        let summaries = lines.iter().filter(|line| line["what"] == "summary");
        summaries.flat_map(|line| names.iter().map(|name| line[*name].as_u64().unwrap_or(0))).sum()
    };
    for (field, names) in [
        ("plait.block.option_tag", &["transmissions", "syn_data"][..]),
        ("plait.ack.tag", &["acks"]),
        ("plait.check.tag", &["questions", "answers"]),
        // The SYN/ACK and the third segment of a join; offer and answer of an exchange.
        ("plait.join.tag", &["joins", "joins"]),
        ("plait.pathkey.tag", &["shares", "shares"]),
    ] {
        assert_eq!(count(&rows, field, OK) as u64, sum(names), "{field}");
        assert_eq!(count(&rows, field, FAILED), 0, "{field}");
        assert!(sum(names) > 0, "{field}");
    }
    assert!(sum(&["syn_data"]) > 0, "data in SYNs");
    assert!(sum(&["datagrams"]) > 400 && sum(&["reports"]) > 50, "{} datagrams", sum(&["datagrams"]));
    let is_about_datagrams = |line: &&Value| {
        let text = line.to_string();
        line["what"] == "FAILED" && (text.contains("datagram") || text.contains("REPORT"))
    };
    assert_eq!(lines.iter().filter(is_about_datagrams).collect::<Vec<_>>(), Vec::<&Value>::new());
}

#[test]
fn the_dissector_reads_the_captures_of_all_other_scenarios() {
    let place = directory("others");
    let names = [
        "plait.protection",
        "plait.mapping.number",
        "plait.block.number",
        "plait.analysis.reinjected",
        "plait.join.tag",
    ];
    fs::write(place.join("capture.pcapng"), joined(&chosen(false))).expect("written");
    let rows = fields(&place, "capture.pcapng", "", &names);
    let of = |column: usize, value: &str| {
        let is = |found: &str| if value.is_empty() { !found.is_empty() } else { found == value };
        rows.iter().filter(|row| is(&row[column])).count()
    };
    assert!(of(0, "plain") > 10_000, "{}", of(0, "plain"));
    assert!(of(0, "scrambled") > 1000, "{}", of(0, "scrambled"));
    assert_eq!(of(0, "sealed"), 0);
    for (column, least) in [(1, 10_000), (2, 5000), (3, 100)] {
        assert!(of(column, "") > least, "{}: {}", names[column], of(column, ""));
    }
    // The keys are in clear, so the HMACs are checked.
    assert!(of(4, OK) > 100, "{}", of(4, OK));
    assert_eq!(of(4, FAILED), 0);
}

#[test]
fn the_exposure_of_each_path_counts_all_its_blocks() {
    let place = directory("exposure");
    fs::write(place.join("capture.pcapng"), joined(&[scenario("tcpcrypt-two-paths")])).expect("written");
    let mut command = tshark(&place, "plait.lua");
    // Without the keys, the second path is that of an unknown connection.
    fs::write(place.join("keys"), sealed::key_log()).expect("written");
    command.args(["-q", "-r", "capture.pcapng", "-o", "plait.exposure:TRUE", "-o", "plait.keylog:keys"]);
    let text = output(command);
    // Connection, subflow, two addresses with ports, "A to B", blocks, bytes.
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|row: &Vec<_>| row.len() == 14)
        .collect();
    assert_eq!(rows.len(), 4, "two subflows, in both directions: {text}");
    let number = |row: &[&str], column: usize| -> usize { row[column].parse().expect("a number") };
    assert!(rows.iter().all(|row| number(row, 10) > 0), "{text}");
    let listed = fields(&place, "capture.pcapng", "keys", &["plait.block.number", "plait.block.length"]);
    let sum = |column: usize| {
        listed.iter().flat_map(move |row| row[column].split(',')).filter(|word| !word.is_empty())
    };
    assert_eq!(rows.iter().map(|row| number(row, 10)).sum::<usize>(), sum(0).count(), "{text}");
    let bytes: usize = sum(1).map(|word| word.parse::<usize>().expect("a number")).sum();
    assert_eq!(rows.iter().map(|row| number(row, 11)).sum::<usize>(), bytes, "{text}");
}

#[test]
fn the_hashes_and_ciphers_of_the_dissector_give_the_published_values() {
    let place = directory("selftest");
    fs::write(place.join("capture.pcapng"), joined(&[])).expect("written");
    let mut command = tshark(&place, "selftest.lua");
    command.args(["-r", "capture.pcapng"]);
    let text = output(command);
    assert!(text.contains(" values checked, 0 differ") && !text.contains("FAILED"), "{text}");
}
