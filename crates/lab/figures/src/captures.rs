//! Kato 2019, Figures 13, 14, 16 and 17: the text that a capture of the untrusted path reveals, before scrambling and after.

use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use plait_bench::{Spread, digits};
use plait_cryptanalysis::{Effort, Model, Run as Stretch, constant_key, read_pieces, read_runs};
use plait_lab::documents::diary;
use plait_lab::{Conditions, Direction};

use crate::claim::Claim;
use crate::conversation::{Conversation, JOIN, Talk};
use crate::figure::{Exhibit, Finding, Row};
use crate::measure::Runs;
use crate::place::{place_of, two_paths};
use crate::published::captures as published;
use crate::system::System;

/// The data that `iperf` sends.
const DIGITS: &[u8] = b"0123456789";
/// Bytes of the transfer: enough for both paths to carry some.
const SIZE: usize = 1_000_000;
/// The longest pieces of a capture, and bytes from the start of each, that are attacked.
const PIECES: usize = 8;
const PIECE: usize = 16_384;
/// Bytes that are shown: what fits into a first segment is more.
const SHOWN: usize = 256;
/// Bytes of the plain text that an attacker is assumed to know if it must know some: the window and one more, and a few to find
/// their place by.
const CRIB: usize = 80;
const TIMEOUT: Duration = Duration::from_secs(30);

/// The data of the eavesdropper on path b of one transfer.
struct Heard {
    /// The longest piece without a gap first.
    pieces: Vec<Vec<u8>>,
    payload: u64,
    /// Share of what was kept that a person reads as text.
    readable: f64,
    /// Places with eight bytes in a row of the plain text.
    matches: u64,
    commands: Vec<String>,
}

fn hear(runs: &Runs<'_>, system: System, direction: Direction, text: &[u8]) -> anyhow::Result<Heard> {
    let lab = two_paths(Conditions::megabits(20, 10))?;
    let path = lab.path("b")?;
    path.watch(text)?;
    let document = runs.fixture.scratch.join("document");
    fs::write(&document, text)?;
    let talk = Talk::Transfer {
        direction,
        bytes: text.len() as u64,
        block: 4096,
        pause: JOIN,
        marks: Vec::new(),
        document: Some(document),
        keep: None,
    };
    let outcome = Conversation::start(system, &place_of(&lab)?, &talk, runs.fixture)?.finish(TIMEOUT)?;
    let commands = outcome.commands.clone();
    outcome.whole(text.len() as u64)?;
    let summary = path.summary()?;
    let heard = summary.heard(direction);
    let mut pieces = path.payload(direction)?;
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
    // More says nothing more, and takes time to attack.
    pieces.truncate(PIECES);
    pieces.iter_mut().for_each(|piece| piece.truncate(PIECE));
    let is_enough = pieces.first().is_some_and(|piece| piece.len() >= 2 * SHOWN);
    ensure!(is_enough, "path b carried {} bytes of payload only, by {}", heard.payload, system.name());
    Ok(Heard {
        pieces,
        payload: heard.payload,
        readable: heard.readable_share(),
        matches: heard.matches,
        commands,
    })
}

/// The results of all runs, before and after.
struct Both {
    rows: Vec<Row>,
    before: Heard,
    after: Heard,
    recovered: Spread,
    /// Places with eight bytes in a row of the text per byte of payload, after scrambling: the most of all runs.
    shown: f64,
    steady: bool,
}

/// Transfers `text` again and again, before and after. `recover` gives the share of what was captured that is recovered, 0 to 1.
fn both(
    runs: &Runs<'_>,
    direction: Direction,
    text: &[u8],
    recover: impl Fn(&Heard) -> anyhow::Result<f64>,
) -> anyhow::Result<Both> {
    let systems = [System::Mptcp, System::Scrambled];
    let heard = runs.in_turn(&systems, |runs, system| hear(runs, system, direction, text))?;
    let [mut plain, mut hidden] = <[_; 2]>::try_from(heard).ok().context("two systems")?;
    let shares =
        |heard: &[Heard], of: &dyn Fn(&Heard) -> f64| Spread::of(heard.iter().map(of)).context("no runs");
    let row = |group: &str, name: &str, unit: &str, measured: Spread| Row {
        group: group.to_owned(),
        name: name.to_owned(),
        unit: unit.to_owned(),
        paper: None,
        measured,
    };
    let (before, after) = ("before: kernel MPTCP", "after: plait, scrambled");
    let recovered = hidden.iter().map(&recover).collect::<anyhow::Result<Vec<f64>>>()?;
    let recovered = Spread::of(recovered.iter().map(|share| 100.0 * share)).context("no runs")?;
    let mut rows = Vec::new();
    for (group, heard) in [(before, &plain), (after, &hidden)] {
        rows.push(row(group, "payload on path b", "bytes", shares(heard, &|it| it.payload as f64)?));
        rows.push(row(
            group,
            "places with eight bytes in a row of the text",
            "",
            shares(heard, &|it| it.matches as f64)?,
        ));
        rows.push(row(group, "readable as text", "%", shares(heard, &|it| 100.0 * it.readable)?));
    }
    rows.push(row(after, "recovered from path b alone", "%", recovered.clone()));
    let shown = hidden.iter().map(|it| it.matches as f64 / it.payload.max(1) as f64).fold(0.0, f64::max);
    let steady = hidden.iter().all(|heard| is_steady(&heard.pieces[0], published::STEADY));
    let (before, after) = (plain.swap_remove(0), hidden.swap_remove(0));
    Ok(Both { rows, before, after, recovered, shown, steady })
}

/// Figures 13 and 14: digits.
pub(crate) fn of_digits(runs: &Runs<'_>) -> anyhow::Result<Finding> {
    let text: Vec<u8> = DIGITS.iter().copied().cycle().take(SIZE).collect();
    let Both { rows, before, after, recovered, shown: _, steady } =
        both(runs, Direction::ToServer, &text, recover_digits)?;
    let clear = before.pieces[0].windows(DIGITS.len()).any(|window| window == DIGITS);
    let first = String::from_utf8_lossy(&after.pieces[0][..10]).into_owned();
    let claims = vec![
        Claim::judged(
            "Without scrambling the attacker reads the digits (Figure 13).",
            format!("{} % of what path b carried is readable as text", digits(100.0 * before.readable)),
            "the digits stand in the capture in their order",
            clear,
            "The digits are not in the capture.",
        ),
        Claim::judged(
            "In steady state the scrambled stream repeats \"4163850729\" (Figure 14).",
            format!("the capture begins with \"{}\"", printable(&first)),
            "these ten bytes, from any of them on, again and again in the whole of the longest piece",
            steady,
            "Other bytes are repeated.",
        ),
        Claim::judged(
            "The attacker cannot understand the content (Figure 14).",
            format!(
                "{} % of what path b carried recovered from it alone, by an attacker that knows {CRIB} bytes of the text",
                digits(recovered.median)
            ),
            "less than a tenth is recovered",
            recovered.median < 10.0,
            "Two neighbours on the wire differ by two bytes of the text only: the key is gone from that. 65 bytes that are known give \
             the rest. And what repeats in the text repeats on the wire, with the same period.",
        ),
    ];
    Ok(Finding {
        title: "A capture of the untrusted path: digits",
        source: "Kato 2019, Figures 13 and 14",
        published: "iperf sends \"0123456789\" again and again from client to server, over Ethernet (trusted) and WLAN (untrusted, not \
                    encrypted); Wireshark captures the WLAN. Figure 13 shows the digits; Figure 14, with scrambling, \"4163850729\" repeated.",
        made: made("1,000,000 bytes of digits, from client to server"),
        commands: [before.commands, after.commands].concat(),
        departures: vec!["The digits come from an application in place of iperf: the same bytes.".to_owned()],
        rows,
        claims,
        pictures: Vec::new(),
        exhibits: vec![
            dump("Before (Figure 13): kernel MPTCP, path b", &before.pieces[0]),
            dump("After (Figure 14): plait, scrambled, path b", &after.pieces[0]),
        ],
    })
}

/// Figures 16 and 17: a text.
pub(crate) fn of_text(runs: &Runs<'_>) -> anyhow::Result<Finding> {
    let text = diary(SIZE);
    let read = |heard: &Heard| {
        let reading = read_pieces(heard.pieces.clone(), &text).context("nothing long enough was captured")?;
        Ok(reading.right)
    };
    let Both { rows, before, after, recovered, shown, steady: _ } =
        both(runs, Direction::ToClient, &text, read)?;
    let reading = read_pieces(after.pieces.clone(), &text).context("nothing long enough was captured")?;
    let paper = constant_key(&published::FIGURE_17, &Model::shipped());
    let paper_text = String::from_utf8_lossy(&paper.plain).into_owned();
    let claims = vec![
        Claim::judged(
            "Without scrambling the attacker obtains the content of the file (Figure 16).",
            format!("{} % of what path b carried is readable as text", digits(100.0 * before.readable)),
            "the text stands in the capture",
            before.matches > 0,
            "The text is not in the capture.",
        ),
        Claim::judged(
            "With scrambling the content of the file does not show in a capture (Figure 17).",
            format!(
                "eight bytes in a row of the text at {} of a million places, in the worst run",
                digits(1e6 * shown)
            ),
            "at most 100 of a million: letters XORed with letters are few values, and eight of them are of the text by chance",
            shown <= 1e-4,
            "Text stands in the capture.",
        ),
        Claim::judged(
            "Since the content is scrambled, the attacker cannot recognize it (Figure 17).",
            format!(
                "{} % of what path b carried is recovered from it alone, without any known text",
                digits(recovered.median)
            ),
            "less than a tenth is recovered",
            recovered.median < 10.0,
            "Scrambling is no encryption. Of a piece without gaps 65 bytes are unknown, however long it is, and each of them shows itself: the \
             right one makes text of every 65th byte.",
        ),
        Claim::judged(
            "Figure 17 shows what scrambling makes of the text.",
            format!(
                "three lines of the published capture, XORed with 0x{:02x} at every place: \"{}\"",
                paper.key,
                printable(&paper_text)
            ),
            "no single byte XORed with the published bytes makes text of them",
            !paper_text.is_ascii() || paper_text.matches(' ').count() < 5,
            "The published bytes are the text XORed with one byte throughout: what comes of it if the oldest byte of the ring buffer is \
             overwritten before it is taken out of the sum. A round trip does not show it.",
        ),
    ];
    Ok(Finding {
        title: "A capture of the untrusted path: a text file",
        source: "Kato 2019, Figures 16 and 17",
        published: "A text file goes from server to client over Ethernet (trusted) and WLAN (untrusted); tshark captures the WLAN. Figure 16 \
                    shows the text of the file; Figure 17, with scrambling, other bytes.",
        made: made("1,000,000 bytes of English text, from server to client"),
        commands: [before.commands, after.commands].concat(),
        departures: vec![
            "The text is an invented diary, which the model of language behind the attack has not been trained on.".to_owned(),
        ],
        rows,
        claims,
        pictures: Vec::new(),
        exhibits: vec![
            dump("Before (Figure 16): kernel MPTCP, path b", &before.pieces[0]),
            dump("After (Figure 17): plait, scrambled, path b", &after.pieces[0]),
            Exhibit {
                title: "What the attack makes of the latter, from path b alone".to_owned(),
                text: printable(&String::from_utf8_lossy(&reading.longest[..reading.longest.len().min(3 * SHOWN)])),
            },
        ],
    })
}

fn made(what: &str) -> String {
    format!(
        "{what}, over two paths of 20 Mbit/s and 20 ms between two hosts in network namespaces. Before: kernel MPTCP; after: plait with \
         --protect scramble. The eavesdropper on path b (untrusted) keeps the payload of what passes there and has nothing else; shown are the \
         first 256 bytes of its longest piece without a gap. Of the {PIECES} longest pieces {PIECE} bytes each are attacked. The application waits for 0.3 s behind its first write, so that both \
         paths carry some of the rest."
    )
}

/// The share of a capture of digits that is recovered by an attacker that knows a few of them.
fn recover_digits(heard: &Heard) -> anyhow::Result<f64> {
    let crib: Vec<u8> = DIGITS.iter().copied().cycle().take(CRIB).collect();
    let model = Model::shipped();
    let (mut right, mut all) = (0, 0);
    for piece in heard.pieces.iter().filter(|piece| piece.len() > 2 * CRIB) {
        let runs = [Stretch { start: 0, scrambled: piece.clone() }];
        for recovered in read_runs(&runs, std::slice::from_ref(&crib), &model, Effort::default()) {
            right += longest_agreement(&recovered.plain);
            all += recovered.plain.len();
        }
    }
    ensure!(all > 0, "nothing long enough was captured");
    Ok(right as f64 / all as f64)
}

/// How many bytes are the digits in their order, begun at the digit for which it is most.
fn longest_agreement(bytes: &[u8]) -> usize {
    let agreeing = |first: usize| {
        let digits = DIGITS.iter().cycle().skip(first);
        bytes.iter().zip(digits).filter(|(byte, digit)| byte == digit).count()
    };
    (0..DIGITS.len()).map(agreeing).max().unwrap_or(0)
}

/// Whether `bytes` are `period` again and again, begun at any place of it. What is mixed with the key, at the start of the
/// stream, is not.
fn is_steady(bytes: &[u8], period: &[u8]) -> bool {
    (0..period.len())
        .any(|first| bytes.iter().zip(period.iter().cycle().skip(first)).all(|(one, other)| one == other))
}

/// Bytes as `tshark -x` shows them.
fn dump(title: &str, bytes: &[u8]) -> Exhibit {
    let line = |(at, bytes): (usize, &[u8])| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
        let text: String =
            bytes.iter().map(|&byte| if (0x20..0x7f).contains(&byte) { byte as char } else { '.' }).collect();
        format!("{:04x}  {hex:<48} {text}\n", 16 * at)
    };
    let shown = &bytes[..bytes.len().min(SHOWN)];
    Exhibit { title: title.to_owned(), text: shown.chunks(16).enumerate().map(line).collect() }
}

/// Text with what cannot be printed replaced, but line ends.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '.' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_found_from_any_of_its_bytes_and_one_byte_breaks_it() {
        assert!(is_steady(b"3850729416385072", published::STEADY));
        assert!(!is_steady(b"3850729416385172", published::STEADY));
    }

    #[test]
    fn digits_count_from_the_one_where_most_of_them_agree() {
        assert_eq!(longest_agreement(b"567890123"), 9);
        assert_eq!(longest_agreement(b"5678x0123"), 8);
    }

    #[test]
    fn a_dump_has_sixteen_bytes_in_a_line_and_dots_for_what_cannot_be_printed() {
        let text = dump("", b"0123456789abcde\x00f").text;
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().next().is_some_and(|line| line.ends_with("00  0123456789abcde.")), "{text}");
        assert!(text.contains("\n0010  66 "), "{text}");
    }
}
