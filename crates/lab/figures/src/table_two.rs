//! Kato 2017 and 2018, Table II: time for a message of 1280 bytes.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::Context;
use plait_report::{Bar, Scale, bars};

use crate::alternatives::methods::{Kind, Method, methods};
use crate::claim::Claim;
use crate::figure::{Finding, Picture, Row};
use crate::measure::Runs;
use crate::published::table_two as published;
use plait_bench::{Rounds, Spread, digits};

/// Bytes of the message: 160 blocks of DES, 80 of AES.
const MESSAGE: usize = 1280;
/// How long the turn of one method takes, about.
const TURN: Duration = Duration::from_millis(1);
/// Turns of each method in a run, of which the median counts.
const TURNS: NonZeroU32 = NonZeroU32::new(21).expect("not zero");
const QUICK_TURNS: NonZeroU32 = NonZeroU32::new(3).expect("not zero");

pub(crate) fn measure(runs: &Runs<'_>) -> anyhow::Result<Finding> {
    let mut methods = methods();
    let mut message = vec![0x41; MESSAGE];
    let repeats: Vec<u32> = methods.iter_mut().map(|method| repeats(method, &mut message)).collect();
    let turns = if runs.is_quick { QUICK_TURNS } else { TURNS };
    // A run is a measurement of its own, of which the medians count.
    let run = |_: &mut (), _| {
        let methods = methods.iter_mut().zip(&repeats);
        let times = Rounds::of(turns)
            .take_turns(methods, |(method, repeats), _| Ok(turn(method, &mut message, **repeats)))?;
        let median = |(_, times): &(_, Vec<f64>)| Spread::of(times.iter().copied()).map(|times| times.median);
        times.iter().map(median).collect::<Option<Vec<f64>>>().context("a turn took no time")
    };
    let medians: Vec<Vec<f64>> =
        runs.rounds.take_turns([()], run)?.into_iter().flat_map(|(_, runs)| runs).collect();
    // Of the engines that this processor can run, the fastest is the one that plait takes.
    let fastest = methods.iter().rposition(|method| method.kind == Kind::Scrambler);
    let mut rows = Vec::new();
    for (at, method) in methods.iter().enumerate() {
        let measured = Spread::of(medians.iter().map(|run| run[at])).context("no runs")?;
        let (name, paper) = if Some(at) == fastest {
            (format!("scrambling, vectorised ({})", method.name), None)
        } else {
            described(method)
        };
        rows.push(Row { group: String::new(), name, unit: "µs".to_owned(), paper, measured });
    }
    let claims = claims(&rows)?;
    let pictures = vec![Picture {
        svg: picture(&rows),
        caption: "Microseconds for a message of 1280 bytes, there and back, on a logarithmic scale. The \
                  stroke across is the paper's number."
            .to_owned(),
    }];
    Ok(Finding {
        title: "Time to encipher and to scramble a message of 1280 bytes",
        source: "Kato 2017 and 2018, Table II",
        published: "Encryption and decryption, or scrambling and descrambling, of a message of 1280 bytes, by programs in C on an Intel \
                    Core i5-3230M at 2.6 GHz: 10,000 iterations by the command time. DES 2.24 ms, TDEA 6.69, AES-128 2.29, AES-192 \
                    2.80, AES-256 3.40, scrambling straightforward 0.950, revised 0.0352. Ciphers in ECB mode, from a public \
                    Japanese collection of sample programs.",
        made: format!(
            "In this process, on one core. A run has {turns} turns in which every method has its turn of about 1 ms; the median of \
             the turns is the run's number. The key is expanded beforehand. \"portable\" is AES by code that any processor runs; \
             \"AES-NI\" by the processor's instructions where it has them. \"straightforward\" and \"revised\" are the papers' two, \
             \"vectorised\" is what plait uses on this processor."
        ),
        commands: Vec::new(),
        departures: vec![
            "The paper's sample programs for DES and AES are not at hand; in their place stand those of RustCrypto. AES-GCM, \
             ChaCha20-Poly1305 and AES by instructions are ours to add."
                .to_owned(),
        ],
        rows,
        claims,
        pictures,
        exhibits: Vec::new(),
    })
}

/// Seconds become microseconds, for a message there and back.
fn turn(method: &mut Method, message: &mut [u8], repeats: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        (method.hide)(black_box(message));
        (method.show)(black_box(message));
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(repeats)
}

fn repeats(method: &mut Method, message: &mut [u8]) -> u32 {
    let mut repeats = 1;
    while turn(method, message, repeats) * f64::from(repeats) < TURN.as_secs_f64() * 1e6 && repeats < 1 << 20
    {
        repeats *= 2;
    }
    repeats
}

/// How a method is called here, and the paper's number for it.
fn described(method: &Method) -> (String, Option<f64>) {
    let paper = match method.name.as_str() {
        "DES ECB" => Some(published::DES),
        "TDEA ECB" => Some(published::TDEA),
        PORTABLE_128 => Some(published::AES_128),
        "AES-192 ECB, portable" => Some(published::AES_192),
        "AES-256 ECB, portable" => Some(published::AES_256),
        "straightforward" => Some(published::STRAIGHTFORWARD),
        "revised" => Some(published::REVISED),
        _ => None,
    };
    let name = match method.kind {
        Kind::Scrambler => format!("scrambling, {}", method.name),
        Kind::Cipher | Kind::Sealing => method.name.clone(),
    };
    (name, paper)
}

const PORTABLE_128: &str = "AES-128 ECB, portable";
const INSTRUCTIONS_128: &str = "AES-128 ECB, AES-NI";
const REVISED: &str = "scrambling, revised";
const STRAIGHTFORWARD: &str = "scrambling, straightforward";

fn claims(rows: &[Row]) -> anyhow::Result<Vec<Claim>> {
    let of = |name: &str| {
        let row = rows.iter().find(|row| row.name.starts_with(name));
        row.map(|row| row.measured.median).with_context(|| format!("there is no row {name}"))
    };
    let (des, aes, straightforward, revised) =
        (of("DES ECB")?, of(PORTABLE_128)?, of(STRAIGHTFORWARD)?, of(REVISED)?);
    let (instructions, sealed, vectorised) =
        (of(INSTRUCTIONS_128)?, of("AES-128-GCM")?, of("scrambling, vectorised")?);
    let lead = des.min(aes) / revised;
    // What the paper's programs take for a byte each way, on its own clock.
    let cycles = published::AES_128 * 1e-6 * published::CLOCK / (2.0 * MESSAGE as f64);
    let triple = of("TDEA ECB")? / des;
    let gain = straightforward / revised;
    Ok(vec![
        Claim::judged(
            "Revised scrambling takes less than 1/60 of the time of DES and AES.",
            format!("1/{} of the faster of DES and portable AES-128", digits(lead)),
            "less than 1/60 of both, by portable code",
            lead > published::LEAD,
            &format!(
                "The factor came from the AES that it was compared with: 2.29 ms for 1280 bytes there and back are some {cycles:.0} cycles for \
                 a byte, which is the speed of that program and not of AES. Portable AES-128 takes {} µs here.",
                digits(aes)
            ),
        ),
        Claim::judged(
            "The proposed method will require much less overhead than encryption (Kato 2019, section V-C; here beside AES as processors have it today).",
            format!(
                "revised {} µs, AES-128 by instructions {} µs, AES-128-GCM {} µs, vectorised scrambling {} µs",
                digits(revised),
                digits(instructions),
                digits(sealed),
                digits(vectorised)
            ),
            "revised scrambling takes less than half of AES-128 by instructions",
            2.0 * revised < instructions,
            "Processors have had instructions for AES since 2010, and scrambling byte by byte waits for each byte. What is vectorised keeps up, but \
             sealing protects from reading and changing, and scrambling from neither.",
        ),
        Claim::judged(
            "TDEA takes about three times as long as DES.",
            format!("{} times", digits(triple)),
            "2 to 4 times",
            (2.0..=4.0).contains(&triple),
            "The initial and final permutations, and what is prepared for each block, weigh otherwise here.",
        ),
        Claim::judged(
            "The revised implementation decreases the time of the straightforward one largely (0.950 to 0.0352 ms, 27 times).",
            format!("{} times", digits(gain)),
            "at least three times",
            gain >= 3.0,
            "Compilers turn the sum over 64 bytes and their shift into a few vector instructions.",
        ),
    ])
}

fn picture(rows: &[Row]) -> String {
    let bar = |row: &Row| Bar {
        name: row.name.clone(),
        value: row.measured.median,
        text: format!("{} µs", digits(row.measured.median)),
        spread: Some((row.measured.least, row.measured.most)),
        reference: row.paper,
        colour: if row.name.starts_with("scrambling") { 1 } else { 0 },
    };
    bars(&rows.iter().map(bar).collect::<Vec<_>>(), Scale::Logarithmic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_paper_stands_beside_one_of_ours() {
        let named: Vec<(String, Option<f64>)> = methods().iter().map(described).collect();
        let papers: Vec<f64> = named.iter().filter_map(|(_, paper)| *paper).collect();
        assert_eq!(papers, [2240.0, 6690.0, 2290.0, 2800.0, 3400.0, 950.0, 35.2]);
    }
}
