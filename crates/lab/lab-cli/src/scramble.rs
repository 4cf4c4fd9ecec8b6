//! `plait-lab scramble`: an eavesdropper's attack on a scrambled connection.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use plait_console::output;
use plait_cryptanalysis::{Capture, Effort, Model, Recovered, Truth, read_runs};

#[derive(Debug, Args)]
pub(crate) struct Scramble {
    /// The capture (pcapng or pcap); the direction that carried more data is read.
    capture: PathBuf,
    /// The data that was sent, to compute how much of the recovered text is right.
    #[arg(long, value_name = "FILE")]
    plain: Option<PathBuf>,
    /// Text that is known to be in the data, 70 bytes or more (repeatable).
    #[arg(long = "crib", value_name = "TEXT")]
    cribs: Vec<String>,
    /// Number of the interface to read in a capture with several, counted from 0.
    #[arg(long, value_name = "N")]
    interface: Option<u32>,
    /// Write the recovered text to FILE instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Scramble {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        attack(&self)
    }
}

fn attack(arguments: &Scramble) -> anyhow::Result<()> {
    let place = arguments.capture.display();
    let file = File::open(&arguments.capture).with_context(|| format!("cannot open {place}"))?;
    let capture = Capture::read(BufReader::new(file), arguments.interface)
        .with_context(|| format!("cannot read {place}"))?;
    let Some((id, flow)) = capture.largest().filter(|(_, flow)| flow.payload_len() > 0) else {
        bail!("{place} holds no TCP segment with data");
    };
    let runs = flow.runs();
    let cribs: Vec<_> = arguments.cribs.iter().map(|crib| crib.clone().into_bytes()).collect();
    let recovered = read_runs(&runs, &cribs, &Model::shipped(), Effort::default());
    write_text(arguments, &recovered)?;
    let length = |run: &Recovered| run.plain.len() as u64;
    let bytes: u64 = recovered.iter().map(length).sum();
    let text: u64 = recovered.iter().filter(|run| run.bits_per_byte < TEXT).map(length).sum();
    let mut words = format!(
        "plait-lab: {} to {}: {bytes} bytes in {} runs; {text} of them look like text now\n",
        id.source,
        id.destination,
        recovered.len(),
    );
    if let Some(plain) = &arguments.plain {
        let plain = fs::read(plain).with_context(|| format!("cannot read {}", plain.display()))?;
        words += &match Truth::align(&plain, &runs).map(|truth| truth.score(&recovered)) {
            Some(score) => {
                let percent = 100.0 * score.fraction();
                format!("plait-lab: {percent:.1}% right: {} of {} bytes\n", score.right, score.seen)
            }
            None => "plait-lab: nothing in the capture belongs to that plain text\n".to_owned(),
        };
    }
    output::say_lines(&words);
    Ok(())
}

/// Bits per byte that the model needs for text; noise takes more than 5.
const TEXT: f32 = 4.4;

fn write_text(arguments: &Scramble, recovered: &[Recovered]) -> anyhow::Result<()> {
    let Some(place) = &arguments.output else {
        let shown = if io::stdout().is_terminal() { printable } else { <[u8]>::to_vec };
        return output::written(write_runs(io::stdout().lock(), recovered, shown));
    };
    let file = File::create(place);
    let written = file.and_then(|file| write_runs(BufWriter::new(file), recovered, <[u8]>::to_vec));
    written.with_context(|| format!("cannot write the recovered text to {}", place.display()))
}

/// All runs in order; a line marks each gap between two.
fn write_runs(
    mut out: impl Write,
    recovered: &[Recovered],
    shown: impl Fn(&[u8]) -> Vec<u8>,
) -> io::Result<()> {
    let mut end = None;
    for run in recovered {
        if let Some(missing) = end.and_then(|end: u64| run.start.checked_sub(end)) {
            write!(out, "\n[{missing} bytes not seen]\n")?;
        }
        out.write_all(&shown(&run.plain))?;
        end = Some(run.start.wrapping_add(run.plain.len() as u64));
    }
    out.flush()
}

/// Removes what a terminal would obey: the text is unknown.
fn printable(plain: &[u8]) -> Vec<u8> {
    let is_shown = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\n' | b'\t');
    plain.iter().map(|&byte| if is_shown(byte) { byte } else { b'.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, plain: &[u8]) -> Recovered {
        Recovered { start, plain: plain.to_vec(), before: Vec::new(), bits_per_byte: 3.0, settled: 0 }
    }

    #[test]
    fn what_was_not_seen_is_marked_and_a_terminal_is_spared() {
        let mut out = Vec::new();
        let runs = [run(100, b"one\x1b[2J"), run(200, b"two")];
        write_runs(&mut out, &runs, printable).expect("memory takes everything");
        assert_eq!(out, b"one.[2J\n[93 bytes not seen]\ntwo");
    }
}
