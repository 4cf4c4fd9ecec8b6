//! The report of a measurement: a line for each subject, and figures for other programs.

use core::fmt::{Display, Write as _};
use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The columns of a table: a name at the left margin, then figures at the right margin of their columns. Its lines can be printed one
/// by one, as measurements end.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    name: usize,
    columns: Vec<(String, usize)>,
}

impl Table {
    /// Returns a table with this many characters for the name, and with these columns: head and width.
    pub fn new(name: usize, columns: impl IntoIterator<Item = (impl Into<String>, usize)>) -> Self {
        let columns = columns.into_iter().map(|(head, width)| (head.into(), width));
        Self { name, columns: columns.collect() }
    }

    /// Returns the head, with `name` over the names.
    pub fn head(&self, name: &str) -> String {
        self.row(name, self.columns.iter().map(|(head, _)| head), "")
    }

    /// Returns a line with one figure for each column; `remark` follows them.
    pub fn row(&self, name: &str, figures: impl IntoIterator<Item = impl Display>, remark: &str) -> String {
        let mut line = format!("{name:<0$}", self.name);
        for (figure, (_, width)) in figures.into_iter().zip(&self.columns) {
            // Writing to a string never fails. `Display` of a type may ignore the width, that of a string does not.
            let _ = write!(line, " {:>width$}", figure.to_string());
        }
        if !remark.is_empty() {
            let _ = write!(line, "  {remark}");
        }
        line.trim_end().to_owned()
    }
}

/// Returns milliseconds as text, `never` for infinity.
pub fn millis(value: f64) -> String {
    if value.is_finite() { format!("{value:.1} ms") } else { "never".to_owned() }
}

/// Writes the figures to a file, as JSON.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(path: &Path, figures: &impl Serialize) -> Result<()> {
    let file = File::create(path).with_context(|| format!("write {}", path.display()))?;
    serde_json::to_writer_pretty(file, figures).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_at_the_right_margin_of_their_column() {
        let table = Table::new(8, [("median", 7), ("most", 9)]);
        assert_eq!(table.head("system"), "system    median      most");
        assert_eq!(table.row("plait", [1.5, 20.0], "ok"), "plait        1.5        20  ok");
        assert_eq!(table.row("a longer name", ["-", ""], ""), "a longer name       -");
    }

    #[test]
    fn a_time_without_an_end_is_never() {
        assert_eq!([12.34, f64::INFINITY].map(millis), ["12.3 ms", "never"]);
    }
}
