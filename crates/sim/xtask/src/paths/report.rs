//! Tables, goals, and figures for other programs.

use core::fmt;
use plait_bench::{Spread, Table};

use super::course::Course;
use super::measure::{Congestion, Figure, Protection, Rule, Settings, Size};

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
    pub(crate) fn new(settings: &Settings, course: &Course, both: &Figure, alone: [f64; 2]) -> Self {
        let Settings { congestion, protection, rule, size, send_buffer: _, pacing: _, seed: _ } = *settings;
        let [best, sum] = [alone[0].max(alone[1]), alone[0] + alone[1]];
        Self {
            pair: course.name.clone(),
            congestion,
            protection,
            scheduler: rule,
            size,
            loss: course.loss(),
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

/// All cells, table by table and in a table pair by pair.
pub(crate) struct Report(Vec<Cell>);

impl Report {
    pub(crate) fn new(cells: Vec<Cell>) -> Self {
        Self(cells)
    }

    pub(crate) fn cells(&self) -> &[Cell] {
        &self.0
    }

    fn tables(&self) -> impl Iterator<Item = &[Cell]> {
        self.0.chunk_by(|one, next| one.table() == next.table())
    }

    /// Whether the default scheduler reaches all goals.
    pub(crate) fn is_good(&self) -> bool {
        let is_default = |cells: &&[Cell]| cells[0].scheduler == Rule::LowestRtt;
        self.tables().filter(is_default).all(|cells| {
            let is_median_good = of_sums(cells).is_none_or(|sums| sums.median >= GOAL_MEDIAN);
            cells.iter().all(Cell::is_good) && is_median_good
        })
    }
}

/// The parts of the sum of those cells that have a goal for it.
fn of_sums(cells: &[Cell]) -> Option<Spread> {
    Spread::of(cells.iter().filter(|cell| cell.has_sum_goal()).map(|cell| cell.of_sum))
}

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cells in self.tables() {
            let (congestion, protection, scheduler) = cells[0].table();
            writeln!(to, "\n{scheduler:?}, {protection:?}, {congestion:?}")?;
            write_table(to, cells)?;
            write_goals(to, cells)?;
        }
        Ok(())
    }
}

/// A line for each pair: for each size goodput (Mbit/s), its part of the better path and of the sum; `!` where a goal is missed.
fn write_table(to: &mut fmt::Formatter<'_>, cells: &[Cell]) -> fmt::Result {
    let rows = || cells.chunk_by(|one, next| one.pair == next.pair);
    let sizes = rows().next().into_iter().flatten().map(|cell| (format!("{:?}", cell.size), 18));
    let rest = [("second path", 11), ("reinjected", 10), ("each alone", 13)];
    let table = Table::new(36, sizes.chain(rest.map(|(head, width)| (head.to_owned(), width))));
    writeln!(to, "{}", table.head("Mbit/s, of the best, of the sum"))?;
    for row in rows() {
        let figures = row.iter().map(|cell| {
            let mark = if cell.is_good() { ' ' } else { '!' };
            format!("{:.1} {:.2} {:.2} {mark}", cell.goodput, cell.of_best, cell.of_sum)
        });
        let last = row.last().ok_or(fmt::Error)?;
        let second = last.shares.get(1).copied().unwrap_or_default();
        let rest = [
            format!("{:.1} %", second * 100.0),
            format!("{:.1} %", last.reinjected * 100.0),
            format!("{:.1} + {:.1}", last.alone[0], last.alone[1]),
        ];
        writeln!(to, "{}", table.row(&last.pair, figures.chain(rest), ""))?;
    }
    Ok(())
}

fn write_goals(to: &mut fmt::Formatter<'_>, cells: &[Cell]) -> fmt::Result {
    let below = cells.iter().filter(|cell| !cell.is_good()).count();
    let worst = cells.iter().map(|cell| cell.of_best).fold(f64::INFINITY, f64::min);
    writeln!(
        to,
        "{below} of {} cells below a goal; the least is {worst:.2} of the better path alone",
        cells.len()
    )?;
    if let Some(Spread { median, .. }) = of_sums(cells) {
        writeln!(to, "median in steady state with at most {GOAL_LOSS} % of loss: {median:.2} of the sum")?;
    }
    Ok(())
}
