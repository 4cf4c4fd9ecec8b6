//! The slides of 2017: request/response.

use std::time::Duration;

use anyhow::{Context, ensure};
use plait_report::{Bar, Scale, bars};

use crate::claim::Claim;
use crate::conversation::{Conversation, Talk};
use crate::figure::{Finding, Picture, Row};
use crate::measure::Runs;
use crate::place::Wires;
use crate::system::Instructions::Used;
use crate::system::System;
use plait_bench::{Spread, digits};

const SYSTEMS: [System; 4] =
    [System::Mptcp, System::Tls { instructions: Used }, System::Plain, System::Sealed { instructions: Used }];
/// Bytes of a request, and of its response.
const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
/// Mbit/s of each wire, as on the slide "Benchmarks".
const WIRE: u32 = 100;
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn measure(runs: &Runs<'_>) -> anyhow::Result<Finding> {
    let rounds = if runs.is_quick { 5 } else { 40 };
    let talk = Talk::Questions { sizes: SIZES.to_vec(), rounds };
    let outcomes = runs.in_turn(&SYSTEMS, |runs, system| {
        let wires = Wires::without_offloads(WIRE)?;
        let outcome = Conversation::start(system, &wires.place(), &talk, runs.fixture)?.finish(TIMEOUT)?;
        let error = outcome.report.error.as_deref().unwrap_or("no error was told");
        ensure!(outcome.report.delays.len() == SIZES.len(), "{} answers no more: {error}", system.name());
        Ok(outcome)
    })?;
    let commands = outcomes.iter().filter_map(|of| of.first()).flat_map(|outcome| outcome.commands.clone());
    let commands: Vec<String> = commands.collect();
    let (mut rows, mut medians) = (Vec::new(), vec![Vec::new(); SIZES.len()]);
    for (system, outcomes) in SYSTEMS.iter().zip(outcomes) {
        for (number, (size, medians)) in SIZES.iter().zip(&mut medians).enumerate() {
            let times =
                outcomes.iter().map(|outcome| Spread::of(outcome.report.delays[number].1.iter().copied()));
            let times: Option<Vec<Spread>> = times.collect();
            let times = times.context("no question was asked")?;
            let measured = Spread::of(times.iter().map(|times| times.median * 1e3)).context("no runs")?;
            medians.push(measured.median);
            let name = format!("{}, {size} bytes", system.name());
            rows.push(Row { group: String::new(), name, unit: "ms".to_owned(), paper: None, measured });
        }
    }
    let claims = medians.iter().zip(SIZES).map(|(of_size, size)| {
        let each: Vec<String> = SYSTEMS
            .iter()
            .zip(of_size)
            .map(|(system, delay)| format!("{} {} ms", system.name(), digits(*delay)))
            .collect();
        Claim::unstated(
            &format!(
                "A picture of request/response for TLS over MPTCP, MPTCPsec and MPTCP; here for {size} bytes."
            ),
            each.join(", "),
        )
    });
    let claims = claims.collect();
    let pictures = SIZES.iter().enumerate().map(|(at, size)| picture(*size, &rows, at)).collect();
    Ok(Finding {
        title: "Delay of request and response",
        source: "Slides of 2017, \"Benchmarks : request/response\"",
        published: "A picture only: the text of the slides has neither its numbers nor the sizes. The testbed: a client with an Intel i5 and a server with an Intel Core 2, \
                    100 Mbit/s, MTU 1500, offloading off.",
        made: format!(
            "Two wires of {WIRE} Mbit/s without delay and without segmentation offload. The client's application sends a request and waits for a response of \
             the same size, {rounds} times for each size over one connection; the median of these is the run's number."
        ),
        commands,
        departures: vec![
            "The sizes are ours.".to_owned(),
            "plait is reached through a pipe, and the delay includes reading and writing it in another process; the kernel is reached by a socket.".to_owned(),
        ],
        rows,
        claims,
        pictures,
        exhibits: Vec::new(),
    })
}

fn picture(size: usize, rows: &[Row], at: usize) -> Picture {
    let bar = |(colour, (system, row)): (usize, (&System, &Row))| Bar {
        name: system.name().to_owned(),
        value: row.measured.median,
        text: format!("{} ms", digits(row.measured.median)),
        spread: Some((row.measured.least, row.measured.most)),
        reference: None,
        colour,
    };
    let of_size = rows.iter().skip(at).step_by(SIZES.len());
    let all: Vec<Bar> = SYSTEMS.iter().zip(of_size).enumerate().map(bar).collect();
    Picture { svg: bars(&all, Scale::Linear), caption: format!("<b>{size} bytes</b> each way") }
}
