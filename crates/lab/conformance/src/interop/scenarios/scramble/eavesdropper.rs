//! The second path is the untrusted one. The eavesdropper has its router, and only the capture there.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::{NOT_US, TIMEOUT, plait};
use crate::interop::scenario::{Context, Verdict};
use crate::interop::session::PORT;
use plait_lab::wired::{Shape, Testbed};
use plait_lab::{End, Program, wait_until};

/// The share of the text that the attack has to read off visits of a segment and more.
const READ_GOAL: f64 = 95.0;
/// Bytes per visit: the rows of the table.
const VISITS: [u16; 7] = [32, 64, 128, 256, 512, 1024, 4096];
/// For the attack on one connection, which takes a tenth of a second per visit on an idle machine.
const TIME_TO_THINK: Duration = Duration::from_secs(900);
/// Connections that a row is shared by.
const CONNECTIONS: usize = 4;
/// The text is turned by so many bytes from one connection to the next, so that visits fall elsewhere in it.
const TURN: usize = 4099;
/// Most bytes on the trusted path between two visits: a segment.
const BETWEEN: usize = 1460;

/// English, none of which the attack's model was made from: its own test sees to that.
fn text() -> Vec<u8> {
    let parts = [
        include_str!("../../../../../../../docs/scrambling.md"),
        include_str!("../../../../../../../docs/protocol.md"),
        include_str!("../../../../../../../ARCHITECTURE.md"),
        include_str!("../../../../../../../README.md"),
        include_str!("../../../../../cryptanalysis/tests/text/alice.txt"),
    ];
    parts.concat().into_bytes()
}

/// Bytes that are sent before the second path is there.
const HEAD: usize = 2000;

pub(super) fn run(context: &Context<'_>) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(NOT_US);
    }
    let bed = Testbed::new(Shape::Routed)?;
    let directory = context.run_directory()?;
    let text = text();
    let readable = overhear(context, &bed, &directory, &text, ("plain", "dispersed=4096"))?;
    let seen = runs_of(&text, &fs::read(readable)?).len();
    ensure!(seen > 2000, "only {seen} places of the plain text are in a capture of the plain connection");
    let least = if context.is_quick() { 4 << 10 } else { 16 << 10 };
    let rows = VISITS.map(|visit| read_by_visits(context, &bed, &directory, &text, (visit, least)));
    let (mut table, mut worst_of_long) = (String::new(), f64::INFINITY);
    for (visit, row) in VISITS.into_iter().zip(rows) {
        let Row { seen, right, lowest, highest, connections } = row?;
        let percent = 100.0 * right as f64 / seen as f64;
        table += &format!(
            "\n    {visit:>5} bytes per visit: {percent:5.1} % of {seen} bytes in {connections} connections ({lowest:.1} to {highest:.1} %)"
        );
        if visit >= 512 {
            worst_of_long = worst_of_long.min(percent);
        }
    }
    let evidence = format!(
        "plain: {seen} places of 8 bytes of the text; scrambled: none, and read all the same:{table}"
    );
    ensure!(worst_of_long >= READ_GOAL, "{evidence}");
    Ok(Verdict::Passed(evidence))
}

/// The success of the attack on visits of one length.
#[derive(Default)]
struct Row {
    /// Bytes captured, and read rightly.
    seen: u64,
    right: u64,
    /// Percent of one connection each.
    lowest: f64,
    highest: f64,
    connections: usize,
}

/// Connections are made, each with the text turned further and repeated as often as its share of `least` takes, until so
/// many bytes were captured.
fn read_by_visits(
    context: &Context<'_>,
    bed: &Testbed,
    directory: &Path,
    text: &[u8],
    (visit, least): (u16, u64),
) -> Result<Row> {
    let plain_file = directory.join("text");
    let (mut row, visit) = (Row { lowest: 100.0, ..Row::default() }, usize::from(visit));
    let visits = usize::try_from(least)?.div_ceil(CONNECTIONS * visit);
    let length = HEAD + visits * (visit + BETWEEN.max(visit));
    while row.seen < least {
        let plain: Vec<u8> =
            text.iter().copied().cycle().skip(row.connections * TURN % text.len()).take(length).collect();
        fs::write(&plain_file, &plain)?;
        let scheduler = format!("dispersed={visit}");
        let capture = overhear(context, bed, directory, &plain, ("scramble", &scheduler))?;
        let by_method = runs_of(&plain, &by_the_papers(&plain));
        let mut shown = runs_of(&plain, &fs::read(&capture)?);
        shown.retain(|run| !by_method.contains(run));
        let first = shown.first().map(|run| String::from_utf8_lossy(run).into_owned());
        ensure!(
            shown.is_empty(),
            "{} places of the plain text are in a capture of the scrambled connection, first {first:?}",
            shown.len()
        );
        let (right, seen) = attack(context, bed, directory, &capture, &plain_file)?;
        ensure!(seen > 0, "nothing crossed the untrusted path");
        let percent = 100.0 * right as f64 / seen as f64;
        (row.lowest, row.highest) = (row.lowest.min(percent), row.highest.max(percent));
        (row.seen, row.right, row.connections) = (row.seen + seen, row.right + right, row.connections + 1);
    }
    Ok(row)
}

/// Sends the text to the server; the capture of the untrusted path.
fn overhear(
    context: &Context<'_>,
    bed: &Testbed,
    directory: &Path,
    text: &[u8],
    (protect, scheduler): (&str, &str),
) -> Result<PathBuf> {
    let (port, address) = (PORT.to_string(), bed.server_address(context.family, 1).to_string());
    let file = directory.join(format!("{protect}-{scheduler}.pcap"));
    let mut command = Command::new("tcpdump");
    // With room for all of a connection: a machine that is busy must not make the eavesdropper miss a packet.
    command.args(["-i", "s", "--immediate-mode", "-U", "-B", "65536", "-s", "0", "-w"]).arg(&file).arg("tcp");
    let mut tcpdump = Program::start(bed.router(2)?, directory, "tcpdump", command, End::Own, End::Own)?;
    tcpdump.wait_for_line("listening on", Duration::from_secs(60))?;
    let paths = ["--path", "p1", "--path", "p2=untrusted", "--protect", protect];
    let command = plait(context, &[&["listen", &port][..], &paths].concat())?;
    let mut server = Program::start(&bed.server, directory, "server", command, End::Own, End::Own)?;
    server.wait_for_line("listening", Duration::from_secs(60))?;
    let before = bed.carried()?[1].1;
    let words = [&["connect", &address, &port][..], &paths, &["--scheduler", scheduler]].concat();
    let command = plait(context, &words)?;
    let source = End::Given(Stdio::piped());
    let mut client = Program::start(&bed.client, directory, "client", command, source, End::Own)?;
    let mut input = client.take_input().context("the pipe was asked for")?;
    input.write_all(&text[..HEAD])?;
    // SYN and third ACK of the join.
    wait_until("the join over the second path", Duration::from_secs(60), || {
        anyhow::Ok(bed.carried()?[1].1 >= before + 150)
    })?;
    std::thread::sleep(Duration::from_millis(200));
    input.write_all(&text[HEAD..])?;
    drop(input);
    let until = Instant::now() + TIMEOUT;
    for end in [&mut client, &mut server] {
        let status = end.wait_by(until)?;
        ensure!(status.success(), "one end failed: {}", end.last_words());
    }
    ensure!(fs::read(directory.join("server.out"))? == text, "the text arrived as something else");
    // The capture lags behind. With a header per packet and the way back it is longer than what went to the server.
    let carried = bed.carried()?[1].1 - before;
    let mut size = 0;
    wait_until("the end of the capture", Duration::from_secs(60), || {
        std::thread::sleep(Duration::from_millis(100));
        let now = fs::metadata(&file)?.len();
        anyhow::Ok(std::mem::replace(&mut size, now) == now && now > carried)
    })?;
    tcpdump.signal(Signal::SIGINT);
    tcpdump.wait_by(until)?;
    Ok(file)
}

/// Fewer different bytes in a run say nothing: where one byte of the text is repeated for more than 65 places, as in a
/// line of dashes, the scrambled stream repeats a byte as well, and that may be the byte of some other such line.
const FEWEST_VALUES: usize = 4;

/// Places of the text with eight bytes that are in the capture.
fn runs_of<'a>(text: &'a [u8], capture: &[u8]) -> Vec<&'a [u8]> {
    let there: BTreeSet<&[u8]> = capture.windows(8).collect();
    let says_something = |run: &&[u8]| run.iter().collect::<BTreeSet<_>>().len() >= FEWEST_VALUES;
    text.windows(8).filter(says_something).filter(|run| there.contains(run)).collect()
}

/// The text as the papers' formula has it (Kato et al. 2017, section III-B), but for its first bytes, which the key is in. A few runs of a text can be in it as they are: where
/// it repeats itself after 64 bytes the sum of these stays what it is, and at times that is zero.
fn by_the_papers(text: &[u8]) -> Vec<u8> {
    text.windows(65).map(|bytes| bytes.iter().fold(0, |sum, byte| sum ^ byte)).collect()
}

/// `plait-lab scramble`, beside `plait`, on the capture: bytes that it reads rightly, and bytes that it saw.
fn attack(
    context: &Context<'_>,
    bed: &Testbed,
    directory: &Path,
    capture: &Path,
    plain: &Path,
) -> Result<(u64, u64)> {
    let program = context.plait().context("only plait scrambles")?.with_file_name("plait-lab");
    let mut command = Command::new(program);
    command
        .arg("scramble")
        .arg(capture)
        .arg("--plain")
        .arg(plain)
        .arg("--output")
        .arg(directory.join("recovered"));
    let mut program = Program::start(&bed.client, directory, "attack", command, End::Own, End::Own)?;
    let status = program.wait(TIME_TO_THINK)?;
    ensure!(status.success(), "the attack failed: {}", program.last_words());
    let said = program.errors();
    let counts = said.split("% right: ").nth(1).and_then(|rest| rest.split_once(" of "));
    let counts = counts.and_then(|(right, rest)| {
        let seen = rest.split_whitespace().next()?;
        Some((right.parse().ok()?, seen.parse().ok()?))
    });
    counts.with_context(|| format!("the attack said nothing about the plain text: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_repeats_itself_after_64_bytes_whose_sum_is_zero_is_scrambled_to_itself() {
        let half = b"0123456789abcdefghijklmnopqrstuv";
        let text = [half.as_slice(), half, half].concat();
        assert_eq!(by_the_papers(&text), half);
        assert_eq!(runs_of(&text, &by_the_papers(&text)).len(), 3 * (half.len() - 7));
    }
}
