//! Tables, goals, and figures for other programs.

use core::fmt;
use std::collections::BTreeMap;

use super::measure::{Congestion, Figure, Protection, Rule, Settings, Size};
use super::pairs::PathPair;

/// One figure beside those of the paths alone.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub(crate) struct Cell {
    pair: String,
    congestion: Congestion,
    protection: Protection,
    scheduler: Rule,
    size: Size,
    /// Highest loss of the two paths, percent.
    loss: f64,
    /// Mbit/s.
    goodput: f64,
    /// Of each path alone, Mbit/s.
    alone: [f64; 2],
    /// Goodput as a part of that of the better path alone.
    of_best: f64,
    /// And of the sum of both.
    of_sum: f64,
    /// Part of the payload that each path carried.
    shares: Vec<f64>,
    /// Bytes sent on a further subflow, as a part of those said.
    reinjected: f64,
}

/// No cell of the default scheduler is below this part of the better path alone.
const GOAL_OF_BEST: f64 = 0.97;
/// Nor, in steady state with at most [`GOAL_LOSS`] percent of loss, below this part of the sum.
const GOAL_OF_SUM: f64 = 0.90;
const GOAL_LOSS: f64 = 0.1;
/// And the median of these is not below this part of the sum.
const GOAL_MEDIAN: f64 = 0.95;

impl Cell {
    pub(crate) fn new(settings: &Settings, pair: &PathPair, both: &Figure, alone: [f64; 2]) -> Self {
        let Settings { congestion, protection, rule, size, send_buffer: _, pacing: _, seed: _ } = *settings;
        let [best, sum] = [alone[0].max(alone[1]), alone[0] + alone[1]];
        Self {
            pair: pair.name(),
            congestion,
            protection,
            scheduler: rule,
            size,
            loss: pair.loss(),
            goodput: both.goodput,
            alone,
            of_best: both.goodput / best.max(1e-9),
            of_sum: both.goodput / sum.max(1e-9),
            shares: both.shares.clone(),
            reinjected: both.reinjected,
        }
    }

    fn has_sum_goal(&self) -> bool {
        self.size == Size::Steady && self.loss <= GOAL_LOSS
    }

    fn is_good(&self) -> bool {
        self.of_best >= GOAL_OF_BEST && (!self.has_sum_goal() || self.of_sum >= GOAL_OF_SUM)
    }

    /// The common properties of the cells of one table.
    fn table(&self) -> (Congestion, Protection, Rule) {
        (self.congestion, self.protection, self.scheduler)
    }
}

/// All cells.
pub(crate) struct Report(Vec<Cell>);

impl Report {
    pub(crate) fn new(cells: Vec<Cell>) -> Self {
        Self(cells)
    }

    pub(crate) fn cells(&self) -> &[Cell] {
        &self.0
    }

    /// Whether the default scheduler reaches all goals.
    pub(crate) fn is_good(&self) -> bool {
        let is_default = |cell: &&Cell| cell.scheduler == Rule::LowestRtt;
        let mut tables: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
        for cell in self.0.iter().filter(is_default) {
            tables.entry(cell.table()).or_default().push(cell);
        }
        tables.values().all(|cells| {
            let middle = median(cells.iter().filter(|cell| cell.has_sum_goal()).map(|cell| cell.of_sum));
            cells.iter().all(|cell| cell.is_good()) && middle.is_none_or(|middle| middle >= GOAL_MEDIAN)
        })
    }
}

fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tables: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
        for cell in &self.0 {
            tables.entry(cell.table()).or_default().push(cell);
        }
        for ((congestion, protection, scheduler), cells) in tables {
            writeln!(to, "\n{scheduler:?}, {protection:?}, {congestion:?}")?;
            write_table(to, &cells)?;
            write_goals(to, &cells)?;
        }
        Ok(())
    }
}

/// A line for each pair: for each size goodput (Mbit/s), its part of the better path and of the sum; `!` where a goal is missed.
fn write_table(to: &mut fmt::Formatter<'_>, cells: &[&Cell]) -> fmt::Result {
    let mut rows: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
    let mut names = Vec::new();
    for cell in cells {
        if !rows.contains_key(cell.pair.as_str()) {
            names.push(cell.pair.as_str());
        }
        rows.entry(&cell.pair).or_default().push(cell);
    }
    write!(to, "{:36}", "Mbit/s, of the best, of the sum")?;
    for cell in &rows[names[0]] {
        write!(to, " | {:^18}", format!("{:?}", cell.size))?;
    }
    writeln!(to, " | second path, reinjected | each alone")?;
    for name in names {
        write!(to, "{name:36}")?;
        for cell in &rows[name] {
            let mark = if cell.is_good() { ' ' } else { '!' };
            write!(to, " | {:6.1} {:4.2} {:4.2} {mark}", cell.goodput, cell.of_best, cell.of_sum)?;
        }
        let last = rows[name].last().expect("a row has cells");
        let second = last.shares.get(1).copied().unwrap_or_default();
        write!(to, " | {:4.1} % {:4.1} %", second * 100.0, last.reinjected * 100.0)?;
        writeln!(to, " | {:5.1} + {:5.1}", last.alone[0], last.alone[1])?;
    }
    Ok(())
}

fn write_goals(to: &mut fmt::Formatter<'_>, cells: &[&Cell]) -> fmt::Result {
    let below = cells.iter().filter(|cell| !cell.is_good()).count();
    let worst = cells.iter().map(|cell| cell.of_best).fold(f64::INFINITY, f64::min);
    writeln!(
        to,
        "{below} of {} cells below a goal; the least is {worst:.2} of the better path alone",
        cells.len()
    )?;
    if let Some(middle) = median(cells.iter().filter(|cell| cell.has_sum_goal()).map(|cell| cell.of_sum)) {
        writeln!(to, "median in steady state with at most {GOAL_LOSS} % of loss: {middle:.2} of the sum")?;
    }
    Ok(())
}
