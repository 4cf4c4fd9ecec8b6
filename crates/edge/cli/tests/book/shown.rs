//! The comparison of output with what a block shows.
//!
//! `…` stands for any text in a line, and a line `…` for any number of lines. A [`NAMES`] stands for one word: later commands
//! that contain the name get the word that was printed last. Spaces count as one, because columns are as wide as their contents.

use std::collections::BTreeMap;

/// The beginning of a line that is printed if the machine of the test is slow.
const SLOW: &str = "plait: no answer yet from ";

/// Words that differ in each run.
const NAMES: [&str; 4] = ["FINGERPRINT", "ROOTKEY", "KEY", "PID"];

/// The words that the names stand for so far.
pub(super) type Words = BTreeMap<&'static str, String>;

/// Returns the command with the words that the names in it stand for.
pub(super) fn filled_in(command: &str, words: &Words) -> String {
    // The longer names come first.
    NAMES.iter().fold(command.to_owned(), |command, name| match words.get(name) {
        Some(word) => command.replace(name, word),
        None => command,
    })
}

/// Whether the output is what is shown; if so, the names in it stand for new words.
pub(super) fn agrees(shown: &[String], output: &str, words: &mut Words) -> bool {
    let shown: Vec<String> = shown.iter().map(|line| squeezed(line)).collect();
    let lines: Vec<String> = output.lines().filter(|line| !line.starts_with(SLOW)).map(squeezed).collect();
    let mut found = Words::new();
    let agrees = lines_agree(&without_empty(&shown), &without_empty(&lines), &mut found);
    if agrees {
        words.extend(found);
    }
    agrees
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn without_empty(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect()
}

fn lines_agree(shown: &[&str], lines: &[&str], found: &mut Words) -> bool {
    match shown {
        [] => lines.is_empty(),
        ["…", rest @ ..] => (0..=lines.len()).any(|skipped| lines_agree(rest, &lines[skipped..], found)),
        [first, rest @ ..] => lines.split_first().is_some_and(|(line, others)| {
            line_agrees(first, line, found) && lines_agree(rest, others, found)
        }),
    }
}

fn line_agrees(shown: &str, line: &str, found: &mut Words) -> bool {
    if let Some(rest) = shown.strip_prefix('…') {
        let mut ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
        return ends.any(|end| line_agrees(rest, &line[end..], found));
    }
    if let Some(name) = NAMES.iter().find(|name| shown.starts_with(**name)) {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "+/-_=".contains(letter);
        let len = line.find(|letter| !is_part(letter)).unwrap_or(line.len());
        if len > 0 && line_agrees(&shown[name.len()..], &line[len..], found) {
            found.insert(name, line[..len].to_owned());
            return true;
        }
        return false;
    }
    match (shown.chars().next(), line.chars().next()) {
        (None, None) => true,
        (Some(one), Some(other)) if one == other => {
            line_agrees(&shown[one.len_utf8()..], &line[other.len_utf8()..], found)
        }
        _ => false,
    }
}

#[test]
fn what_differs_in_each_run_has_a_name_or_dots() {
    let mut words = Words::new();
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let url = shown(&["plait://gw.example:7443#FINGERPRINT"]);
    assert!(agrees(&url, "plait://gw.example:7443#ab_c-9\n", &mut words));
    assert_eq!(
        filled_in("plait check plait://gw#FINGERPRINT KEY", &words),
        "plait check plait://gw#ab_c-9 KEY"
    );
    assert!(!agrees(&url, "plait://gw.example:7444#ab_c-9\n", &mut words));
    assert!(!agrees(&url, "plait://gw.example:7443#ab_c-9\nmore\n", &mut words));
    let table = shown(&["PATH  RTT", "wlan0 …ms", "…"]);
    assert!(agrees(&table, "PATH   RTT\nwlan0  2.4ms\n\nand more\n", &mut words));
    assert!(agrees(&table, "PATH RTT\nwlan0 2.4ms\n", &mut words));
    assert!(!agrees(&table, "PATH RTT\nwlan0 2.4s\n", &mut words));
}
