//! All figures, one after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::claim::Conclusion;
use crate::conversation::Fixture;
use crate::figure::{Figure, Finding, Id};
use crate::system::System;
use crate::{
    attack, captures, hand_over, page, request_response, scrambled_throughput, sealed_throughput, table_two,
};
use plait_bench::Rounds;
use plait_lab::{Machine, Watch};

/// Fewer runs than this are no measurement to rely on, and the page says so.
pub(crate) const ENOUGH: usize = 5;

/// The selection of measurements.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `plait` program.
    pub plait: PathBuf,
    /// A directory for certificates, keys and what is transferred; removed at the end.
    pub scratch: PathBuf,
    /// Of each figure; five and more are enough.
    pub runs: usize,
    /// Small sizes: whether all of it works, and nothing more.
    pub is_quick: bool,
    /// The figures to measure; all, if it is empty.
    pub only: Vec<Id>,
}

/// All that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Of plait.
    pub version: String,
    /// The measuring machine.
    pub machine: Machine,
    /// Of each figure.
    pub runs: usize,
    /// Small sizes: nothing to rely on.
    pub is_quick: bool,
    /// Whether the program was built with optimisation; without it Table II says nothing.
    pub is_optimised: bool,
    /// How long all of it took.
    pub seconds: f64,
    /// Whether the machine had too much else to do while one of the figures was measured.
    pub was_busy: bool,
    /// In the order of the papers.
    pub figures: Vec<Figure>,
}

impl Figures {
    /// Returns the contradictions to plait's own promise, whatever a paper says: that a sealed connection survives an attack on one
    /// path.
    pub fn contradictions(&self) -> Vec<String> {
        let attacks = self.figures.iter().filter(|figure| figure.id == Id::JadinFigure9);
        let broken = attacks
            .flat_map(|figure| &figure.claims)
            .filter(|claim| claim.conclusion == Conclusion::Differs && claim.paper == attack::PROMISE);
        broken.map(|claim| format!("{}: {}", claim.paper, claim.measured)).collect()
    }
}

/// The context of every measurement.
pub(crate) struct Runs<'a> {
    pub(crate) rounds: Rounds,
    pub(crate) is_quick: bool,
    pub(crate) fixture: &'a Fixture,
}

impl Runs<'_> {
    /// Returns the results of `once` for each system; in each run, all systems take turns.
    pub(crate) fn in_turn<T>(
        &self,
        systems: &[System],
        once: impl Fn(&Self, System) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<Vec<T>>> {
        let all = self
            .rounds
            .take_turns(systems, |system, _| once(self, **system).with_context(|| system.name()))?;
        Ok(all.into_iter().map(|(_, results)| results).collect())
    }
}

/// Measures one figure after the other; `begins` and `told` hear of each.
///
/// # Errors
/// The hosts cannot be built here, a program is missing, or a transfer that nothing disturbs does not arrive.
pub fn measure(
    options: &Options,
    mut begins: impl FnMut(Id),
    mut told: impl FnMut(&Figure),
) -> anyhow::Result<Figures> {
    let fixture = Fixture { plait: options.plait.clone(), scratch: options.scratch.clone() };
    let _scratch = Scratch(&options.scratch);
    fixture.prepare()?;
    let began = Instant::now();
    let count = options.runs.max(1);
    let rounds = Rounds::of(u32::try_from(count)?.try_into()?);
    let runs = Runs { rounds, is_quick: options.is_quick, fixture: &fixture };
    let mut figures = Vec::new();
    for id in Id::ALL.into_iter().filter(|id| options.only.is_empty() || options.only.contains(id)) {
        begins(id);
        let watch = Watch::start();
        let finding = find(id, &runs).with_context(|| format!("measuring {}", id.as_str()))?;
        let figure = finding.under(id, watch.end());
        told(&figure);
        figures.push(figure);
    }
    Ok(Figures {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Machine::look(),
        runs: count,
        is_quick: options.is_quick,
        is_optimised: !cfg!(debug_assertions),
        seconds: began.elapsed().as_secs_f64(),
        was_busy: figures.iter().any(|figure| figure.strain.was_busy),
        figures,
    })
}

/// A directory that goes with its owner, also where a measurement fails.
struct Scratch<'a>(&'a Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

fn find(id: Id, runs: &Runs<'_>) -> anyhow::Result<Finding> {
    match id {
        Id::KatoTable2 => table_two::measure(runs),
        Id::KatoFigures13And14 => captures::of_digits(runs),
        Id::KatoFigures16And17 => captures::of_text(runs),
        Id::KatoFigure18 => scrambled_throughput::measure(runs),
        Id::JadinFigure8 => sealed_throughput::measure(runs),
        Id::JadinFigure9 => attack::measure(runs),
        Id::JadinRequestResponse => request_response::measure(runs),
        Id::JadinHandOver => hand_over::measure(runs),
    }
}

/// Writes `figures.html` and `figures.json` into a directory, which is made if it is not there; their names.
///
/// # Errors
/// A file cannot be written.
pub fn write(figures: &Figures, directory: &Path) -> anyhow::Result<[PathBuf; 2]> {
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let (html, json) = (directory.join("figures.html"), directory.join("figures.json"));
    let write = |file: &Path, text: String| {
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    };
    write(&html, page::page(figures)?)?;
    write(&json, serde_json::to_string_pretty(figures)? + "\n")?;
    Ok([html, json])
}
