//! A line for each run, what all of them say together, and the goals.

use core::fmt;
use std::ops::RangeInclusive;

use clap::ValueEnum;
use plait_bench::{Spread, Table};

use super::fight::Carried;
use super::{Paths, Setting};

/// plait's share of a path beside one TCP.
const SHARE: RangeInclusive<f64> = 0.35..=0.65;
/// Most throughput of coupled subflows together over one bottleneck, as a multiple of one TCP's there.
const TIMES: f64 = 1.2;

/// One run.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Row {
    setting: Setting,
    run: u32,
    /// By path, Mbit/s of payload.
    carried: Vec<Carried>,
    /// With a rival on each path: the share that plait has of each. With one rival for both: how many times as much plait takes.
    figures: Vec<f64>,
}

impl Row {
    pub(crate) fn new(setting: Setting, run: u32, carried: Vec<Carried>) -> Self {
        let figures = match setting.paths() {
            Paths::One | Paths::Two => {
                carried.iter().map(|one| one.plait / (one.plait + one.rival)).collect()
            }
            Paths::Shared => {
                let plait: f64 = carried.iter().map(|one| one.plait).sum();
                vec![plait / carried.iter().map(|one| one.rival).sum::<f64>()]
            }
        };
        Self { setting, run, carried, figures }
    }

    /// Whether it reaches its goal.
    fn holds(&self) -> bool {
        self.figures.iter().all(|figure| reaches(self.setting, *figure))
    }
}

fn reaches(setting: Setting, figure: f64) -> bool {
    if matches!(setting, Setting::Control | Setting::BbrShared) {
        return true;
    }
    match setting.paths() {
        Paths::One | Paths::Two => SHARE.contains(&figure),
        Paths::Shared => figure <= TIMES,
    }
}

/// Each figure of each setting that has run: its spread, if a run has a number, and the runs that have none.
fn spreads(rows: &[Row]) -> Vec<(Setting, usize, Option<Spread>, usize)> {
    let mut all = Vec::new();
    for &setting in Setting::value_variants() {
        for place in 0..setting.paths().figures() {
            let of_setting = rows.iter().filter(|row| row.setting == setting);
            let figures = of_setting.filter_map(|row| row.figures.get(place).copied());
            let (spread, without) = Spread::of_finite(figures);
            if spread.is_some() || without > 0 {
                all.push((setting, place, spread, without));
            }
        }
    }
    all
}

/// Whether each median reaches its goal. Single runs need not: what the kernel's TCP takes beside its like (`control`) differs as much.
/// A figure that is no number, since a path has carried nothing, reaches none.
pub(crate) fn holds(rows: &[Row]) -> bool {
    spreads(rows).iter().all(|(setting, _, spread, without)| {
        let median = spread.as_ref().map(|spread| spread.median);
        *without == 0 && median.is_some_and(|median| reaches(*setting, median))
    })
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<15} {:>3} ", self.setting.name(), self.run)?;
        for Carried { plait, rival } in &self.carried {
            write!(f, "  {plait:6.2} + {rival:6.2} Mbit/s")?;
        }
        for figure in &self.figures {
            write!(f, "  {figure:.2}")?;
        }
        f.write_str(if self.holds() { "" } else { "  beyond its goal" })
    }
}

/// Lowest, median and highest figure of each setting, and how many runs reach the goal.
pub(crate) fn summary(rows: &[Row]) -> String {
    let table = Table::new(
        15,
        [("figure", 15), ("lowest", 7), ("median", 7), ("highest", 8), ("runs that hold", 15)],
    );
    let mut lines = vec![table.head("setting")];
    for (setting, place, spread, without) in spreads(rows) {
        let of_setting = || rows.iter().filter(|row| row.setting == setting);
        let what = match setting.paths() {
            Paths::One | Paths::Two => format!("share of path {}", place + 1),
            Paths::Shared => "times one TCP".to_owned(),
        };
        let shown = |of: fn(&Spread) -> f64| {
            spread.as_ref().map_or("-".to_owned(), |spread| format!("{:.2}", of(spread)))
        };
        let [least, median, most] =
            [shown(|spread| spread.least), shown(|spread| spread.median), shown(|spread| spread.most)];
        let remark = if without == 0 { String::new() } else { format!("{without} without a figure") };
        let held = format!("{} of {}", of_setting().filter(|row| row.holds()).count(), of_setting().count());
        lines.push(table.row(setting.name(), [what, least, median, most, held], &remark));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(setting: Setting, carried: &[(f64, f64)]) -> Row {
        let carried = carried.iter().map(|&(plait, rival)| Carried { plait, rival }).collect();
        Row::new(setting, 1, carried)
    }

    #[test]
    fn half_of_each_path_is_fair_and_four_fifths_of_one_are_not() {
        assert!(row(Setting::Cubic, &[(9.0, 10.0), (10.0, 9.0)]).holds());
        assert!(!row(Setting::Cubic, &[(9.0, 10.0), (16.0, 4.0)]).holds());
        assert!(!row(Setting::Cubic, &[(2.0, 18.0), (10.0, 10.0)]).holds(), "nor a tenth");
    }

    #[test]
    fn what_coupled_subflows_take_counts_together() {
        assert!(row(Setting::Lia, &[(5.0, 10.0), (5.0, 0.0)]).holds());
        assert!(!row(Setting::Olia, &[(7.0, 10.0), (7.0, 0.0)]).holds());
    }

    #[test]
    fn one_path_and_a_shared_bottleneck_have_the_goals_of_their_kind() {
        assert!(row(Setting::AdaptiveOne, &[(9.0, 10.0)]).holds());
        assert!(!row(Setting::BbrOne, &[(15.0, 5.0)]).holds());
        assert!(!row(Setting::AdaptiveShared, &[(7.0, 10.0), (7.0, 0.0)]).holds());
        assert!(row(Setting::BbrShared, &[(7.0, 5.0), (7.0, 0.0)]).holds(), "no goal");
    }

    #[test]
    fn what_the_kernel_takes_beside_itself_has_no_goal() {
        assert!(row(Setting::Control, &[(2.0, 18.0), (10.0, 10.0)]).holds());
    }

    #[test]
    fn a_path_that_carries_nothing_holds_no_goal() {
        assert!(!row(Setting::Cubic, &[(0.0, 0.0), (10.0, 10.0)]).holds());
        assert!(!row(Setting::Lia, &[(0.0, 0.0), (0.0, 0.0)]).holds());
    }

    #[test]
    fn the_median_of_the_runs_has_to_reach_the_goal() {
        let shares = |of: [f64; 3]| of.map(|share| row(Setting::Cubic, &[(share, 1.0 - share), (0.5, 0.5)]));
        assert!(holds(&shares([0.3, 0.5, 0.5])));
        assert!(!holds(&shares([0.3, 0.3, 0.5])) && !holds(&shares([0.8, 0.8, 0.5])));
    }

    #[test]
    fn a_run_without_a_figure_does_not_hide_the_others() {
        let rows = [(8.0, 10.0), (0.0, 0.0)].map(|carried| row(Setting::Lia, &[carried, (0.0, 0.0)]));
        let line = |rows: &[Row]| {
            let text = summary(rows);
            text.lines().last().expect("a line").split_whitespace().skip(4).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(&rows), "0.80 0.80 0.80 1 of 2 1 without a figure");
        assert_eq!(line(&rows[1..]), "- - - 0 of 1 1 without a figure");
        assert!(!holds(&rows));
    }

    #[test]
    fn the_summary_tells_lowest_median_and_highest() {
        let rows = [5.0, 10.0, 8.0].map(|plait| row(Setting::Lia, &[(plait, 10.0), (0.0, 0.0)]));
        let text = summary(&rows);
        let line = text.lines().last().expect("a line");
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>()[4..],
            ["0.50", "0.80", "1.00", "3", "of", "3"]
        );
    }
}
