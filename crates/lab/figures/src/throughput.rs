//! Throughput of several systems over the same wires, by the size of the transfer.

use std::time::Duration;

use anyhow::Context;
use plait_bench::Spread;
use plait_lab::Direction;
use plait_report::{Axis, Chart, Line, Shape, key};

use crate::conversation::{Conversation, Talk};
use crate::figure::{Picture, Row};
use crate::measure::Runs;
use crate::place::Wires;
use crate::system::System;

/// The data of a transfer.
pub(crate) struct Transfer {
    pub(crate) direction: Direction,
    /// Bytes of a write.
    pub(crate) block: usize,
    /// Sizes, in MB, the largest last.
    pub(crate) sizes: Vec<u64>,
}

/// Longest that one transfer may take.
const TIMEOUT: Duration = Duration::from_secs(60);
const MEGABYTE: u64 = 1_000_000;
/// Width and height of the pictures: legible on a telephone.
pub(crate) const SIZE: (u32, u32) = (420, 260);

/// The results of one set of wires.
pub(crate) struct Throughput {
    /// The wires, for people.
    group: String,
    sizes: Vec<u64>,
    /// Per system, per size, Mbit/s.
    measured: Vec<(System, Vec<Spread>)>,
    /// Of one transfer per system.
    pub(crate) commands: Vec<String>,
    /// The share of all bytes that the second path has carried, over all systems; `None` where both share a wire.
    pub(crate) second: Option<f64>,
}

impl Throughput {
    /// Transfers by all systems in turn, run after run. One transfer per system and run has all sizes in it: the time is noted when
    /// so much has arrived.
    pub(crate) fn measure(
        runs: &Runs<'_>,
        group: &str,
        wires: &Wires,
        systems: &[System],
        transfer: &Transfer,
    ) -> anyhow::Result<Self> {
        let Transfer { direction, block, sizes } = transfer;
        let marks: Vec<u64> = sizes.iter().map(|size| size * MEGABYTE).collect();
        let bytes = *marks.last().context("no sizes")?;
        let talk = Talk::Transfer {
            direction: *direction,
            bytes,
            block: *block,
            pause: 0.0,
            marks,
            document: None,
            keep: None,
        };
        let before = wires.carried()?;
        let outcomes = runs.in_turn(systems, |runs, system| {
            let conversation = Conversation::start(system, &wires.place(), &talk, runs.fixture);
            let outcome = conversation.and_then(|it| it.finish(TIMEOUT)).with_context(|| failed(system))?;
            let commands = outcome.commands.clone();
            let report = outcome.whole(bytes).with_context(|| failed(system))?;
            let speed = |&(arrived, seconds): &(u64, f64)| arrived as f64 * 8e-6 / seconds.max(1e-9);
            Ok((commands, report.marks.iter().map(speed).collect::<Vec<f64>>()))
        })?;
        let carried: Vec<u64> =
            wires.carried()?.iter().zip(&before).map(|(after, before)| after - before).collect();
        let second =
            (carried.len() == 2).then(|| carried[1] as f64 / carried.iter().sum::<u64>().max(1) as f64);
        let (mut measured, mut commands) = (Vec::new(), Vec::new());
        for (system, outcomes) in systems.iter().zip(outcomes) {
            let of_size =
                |size: usize| Spread::of(outcomes.iter().filter_map(|(_, speeds)| speeds.get(size).copied()));
            let spreads: Option<Vec<Spread>> = (0..sizes.len()).map(of_size).collect();
            measured.push((*system, spreads.context("a size that no run has reached")?));
            commands.extend(outcomes.into_iter().next().into_iter().flat_map(|(commands, _)| commands));
        }
        Ok(Self { group: group.to_owned(), sizes: sizes.clone(), measured, commands, second })
    }

    /// Mbit/s of a system at the largest size.
    pub(crate) fn of(&self, system: System) -> anyhow::Result<f64> {
        Ok(self.spreads(system)?.last().context("no sizes")?.median)
    }

    /// Mbit/s of a system at all sizes.
    pub(crate) fn spreads(&self, system: System) -> anyhow::Result<&[Spread]> {
        let found = self.measured.iter().find(|(other, _)| *other == system);
        Ok(&found.with_context(|| format!("{} was not measured", system.name()))?.1)
    }

    /// How much faster the fastest size of a system is than its slowest, 1 if all are equal.
    pub(crate) fn unevenness(&self, system: System) -> anyhow::Result<f64> {
        let medians = || self.spreads(system).map(|spreads| spreads.iter().map(|spread| spread.median));
        Ok(medians()?.fold(0.0, f64::max) / medians()?.fold(f64::MAX, f64::min).max(1e-9))
    }

    /// The numbers; `paper` is that of a system, at any size.
    pub(crate) fn rows(&self, paper: impl Fn(System) -> Option<f64>) -> Vec<Row> {
        let mut rows = Vec::new();
        for (system, spreads) in &self.measured {
            for (size, spread) in self.sizes.iter().zip(spreads) {
                rows.push(Row {
                    group: self.group.clone(),
                    name: format!("{}, {size} MB", system.name()),
                    unit: "Mbit/s".to_owned(),
                    paper: paper(*system),
                    measured: spread.clone(),
                });
            }
        }
        rows
    }

    /// A line per system.
    pub(crate) fn picture(&self) -> anyhow::Result<Picture> {
        let (mut lines, mut highest) = (Vec::new(), 0.0f64);
        for (colour, (_, spreads)) in self.measured.iter().enumerate() {
            let sized = || self.sizes.iter().map(|size| *size as f64).zip(spreads);
            highest = spreads.iter().map(|spread| spread.most).fold(highest, f64::max);
            lines.push(Line {
                colour,
                shape: Shape::Marked,
                points: sized().map(|(size, spread)| (size, spread.median)).collect(),
                spreads: sized().map(|(size, spread)| (size, spread.least, spread.most)).collect(),
            });
        }
        let until = self.sizes.last().copied().unwrap_or(1) as f64 * 1.05;
        let chart = Chart {
            x: Axis { unit: "MB transferred", until },
            y: Axis { unit: "Mbit/s", until: highest * 1.08 },
            size: SIZE,
            mark: None,
            level: None,
            lines,
        };
        let names = self.measured.iter().enumerate().map(|(colour, (system, _))| (colour, system.name()));
        let group = plait_report::escape(&self.group);
        Ok(Picture {
            svg: chart.draw()?,
            caption: format!("<b>{group}</b>: medians, least and most {}", key(names)),
        })
    }
}

fn failed(system: System) -> String {
    format!("a transfer by {}", system.name())
}
