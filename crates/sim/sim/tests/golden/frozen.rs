//! The file of hashes: reading, comparing, rewriting; and captures on disk to find a difference.

use core::fmt::Write as _;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::scenario::{Capture, Scenario};

/// What a run is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Fails where a capture differs.
    Compare,
    /// Rewrites the file of hashes.
    Write,
    /// Keeps the captures, as the old ones of a later comparison.
    Keep,
}

impl Mode {
    /// By the value of the environment variable `PLAIT_GOLDEN`.
    pub(crate) fn from_environment(value: Option<&str>) -> Self {
        match value {
            None | Some("") => Self::Compare,
            Some("write") => Self::Write,
            Some("keep") => Self::Keep,
            Some(other) => panic!("PLAIT_GOLDEN is `{other}`: it can be `write` or `keep`"),
        }
    }
}

/// What is known of a frozen capture.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    hash: String,
    packets: usize,
    marks: String,
}

/// The file of hashes.
pub(crate) struct Frozen(BTreeMap<String, Entry>);

/// Packets for each mark.
const STRIDE: usize = 32;
/// Hex digits of a mark.
const MARK: usize = 4;

const HEAD: &str = "\
# Hashes of simulated captures: name, SHA-256, packets, a mark for every 32 packets.
# Written by `PLAIT_GOLDEN=write cargo test -p plait-sim --test golden`; see golden/main.rs.
";

impl Frozen {
    /// Reads it; a file that is not there is empty.
    pub(crate) fn read() -> Self {
        let text = fs::read_to_string(list()).unwrap_or_default();
        let entry = |line: &str| {
            let mut words = line.split_whitespace();
            let mut word = || words.next().unwrap_or_else(|| panic!("captures.txt: `{line}`")).to_owned();
            let (name, hash) = (word(), word());
            let packets = word().parse().unwrap_or_else(|_| panic!("captures.txt: `{line}`"));
            (name, Entry { hash, packets, marks: word() })
        };
        Self(text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(entry).collect())
    }

    /// The names, sorted.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// What differs, if anything does; the capture is written to disk then.
    pub(crate) fn compare(&self, capture: &Capture) -> Option<String> {
        let Some(old) = self.0.get(capture.name) else {
            return Some(format!("{}: not in captures.txt yet", capture.name));
        };
        (old.hash != capture.hash).then(|| describe(old, capture))
    }

    /// Lines that no scenario has any longer.
    pub(crate) fn left_over(&self, scenarios: &[Scenario]) -> Vec<String> {
        let is_known = |name: &str| scenarios.iter().any(|scenario| scenario.name == name);
        let left = self.names().into_iter().filter(|name| !is_known(name));
        left.map(|name| format!("{name}: in captures.txt, but there is no such scenario")).collect()
    }

    /// Takes the capture for the frozen one.
    pub(crate) fn replace(&mut self, capture: &Capture) {
        let Capture { name, hash, lines, file: _ } = capture;
        let entry = Entry { hash: hash.clone(), packets: lines.len(), marks: marks(lines) };
        self.0.insert((*name).to_owned(), entry);
    }

    /// Writes it, without the lines that no scenario has any longer.
    pub(crate) fn write(&self, scenarios: &[Scenario]) {
        let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
        let mut text = HEAD.to_owned();
        for (name, Entry { hash, packets, marks }) in &self.0 {
            if scenarios.iter().any(|scenario| scenario.name == name) {
                let _ = writeln!(text, "{name:width$}  {hash}  {packets:5}  {marks}");
            }
        }
        fs::write(list(), text).expect("captures.txt can be written");
    }
}

/// Writes a capture where a later comparison finds it.
pub(crate) fn keep(capture: &Capture) {
    store(capture, "old");
}

/// The index of the first line that is not the same in both.
pub(crate) fn first_difference(old: &[String], new: &[String]) -> Option<usize> {
    let common = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    (common < old.len().max(new.len())).then_some(common)
}

/// Says where the difference lies, as exactly as the old capture is known.
fn describe(old: &Entry, capture: &Capture) -> String {
    let mut text = format!("{}: {} packets, frozen were {}", capture.name, capture.lines.len(), old.packets);
    let file = store(capture, "new");
    let _ = write!(text, "; the capture and its listing are {}.{{pcapng,txt}}", file.display());
    if let Some(kept) = kept_listing(old, capture.name) {
        let at = first_difference(&kept, &capture.lines).unwrap_or(0);
        let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "nothing more".to_owned());
        let _ = write!(text, "\n  first difference: packet {}", at + 1);
        let _ = write!(text, "\n  old: {}\n  new: {}", line(&kept), line(&capture.lines));
        return text;
    }
    let new = marks(&capture.lines);
    let equal =
        old.marks.as_bytes().chunks(MARK).zip(new.as_bytes().chunks(MARK)).take_while(|(a, b)| a == b);
    let first = equal.count() * STRIDE;
    let _ = write!(
        text,
        "\n  the first difference lies in the packets {} to {}; for the very packet run the old commit with PLAIT_GOLDEN=keep first",
        first + 1,
        first + STRIDE
    );
    text
}

/// The listing that a run of the frozen commit has kept, if it has.
fn kept_listing(old: &Entry, name: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(place(name, "old").with_extension("txt")).ok()?;
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    // Not that of some other commit.
    (marks(&lines) == old.marks).then_some(lines)
}

/// A digest of all packets up to each place that is a multiple of [`STRIDE`], and of all of them.
fn marks(lines: &[String]) -> String {
    let mut running = Sha256::new();
    let mut text = String::new();
    for chunk in lines.chunks(STRIDE) {
        for line in chunk {
            running.update(line);
            running.update("\n");
        }
        for byte in &running.clone().finalize()[..MARK / 2] {
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

/// Writes the file and its listing; the path is without an extension.
fn store(capture: &Capture, age: &str) -> PathBuf {
    let place = place(capture.name, age);
    fs::create_dir_all(place.parent().expect("it has a directory")).expect("the directory can be made");
    fs::write(place.with_extension("pcapng"), &capture.file).expect("the capture can be written");
    fs::write(place.with_extension("txt"), capture.lines.join("\n")).expect("the listing can be written");
    place
}

fn place(name: &str, age: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden").join(age).join(name)
}

fn list() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/captures.txt")
}
