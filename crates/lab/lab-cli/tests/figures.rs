//! `plait-lab figures`: that every figure is there with numbers, as a page and as JSON, and that nothing stays behind. Needs
//! root, and `plait` beside `plait-lab` (`cargo build -p plait-cli`).

#![allow(clippy::disallowed_methods, reason = "processes and files")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plait_figures::{Conclusion, Figures, Id};

const PLAIT_LAB: &str = env!("CARGO_BIN_EXE_plait-lab");

#[test]
#[ignore = "needs root"]
fn every_figure_is_measured_and_told_with_its_numbers() {
    plait_lab::privilege::check().expect("this machine can have a lab");
    let place = Place::new();
    let (page, json) = (place.0.join("out/figures.html"), place.0.join("out/figures.json"));
    let mut command = Command::new(PLAIT_LAB);
    command.args(["figures", "--quick", "--runs", "1", "--out"]).arg(place.0.join("out"));
    command.env("TMPDIR", &place.0);
    let output = command.stdin(Stdio::null()).output().expect("started");
    assert!(output.status.success(), "{output:?}");

    let figures: Figures = serde_json::from_str(&read(&json)).expect("what was written");
    assert!(figures.is_quick && figures.runs == 1);
    let measured: Vec<Id> = figures.figures.iter().map(|figure| figure.id).collect();
    assert_eq!(measured, Id::ALL);
    let html = read(&page);
    for figure in &figures.figures {
        let name = figure.id.as_str();
        assert!(html.contains(&format!("<section id=\"{name}\"")), "{name}");
        assert!(!figure.rows.is_empty() && !figure.claims.is_empty(), "{name}");
        for row in &figure.rows {
            assert_eq!(row.measured.runs.len(), 1, "{name}, {}", row.name);
            assert!(row.measured.median.is_finite() && row.measured.median >= 0.0, "{name}, {}", row.name);
        }
        let is_moving = figure.rows.iter().any(|row| row.measured.median > 0.0);
        assert!(is_moving, "{name}: all that was measured is nothing");
        for claim in &figure.claims {
            let is_explained = !claim.why.is_empty();
            assert_eq!(is_explained, claim.conclusion == Conclusion::Differs, "{name}: {}", claim.paper);
        }
        assert!(figure.strain.seconds > 0.0, "{name}");
    }
    assert!(html.contains("--quick"), "the page says that no number is one to rely on");
    let left: Vec<PathBuf> =
        fs::read_dir(&place.0).expect("a directory").flatten().map(|it| it.path()).collect();
    assert_eq!(left, [place.0.join("out")], "the scratch directory is gone");
}

#[test]
fn a_figure_that_there_is_not_is_an_error_of_usage_that_names_all() {
    let output = Command::new(PLAIT_LAB).args(["figures", "--only", "figure-99"]).output().expect("started");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(Id::ALL.iter().all(|id| said.contains(id.as_str())), "{said}");
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("it was written")
}

/// A directory that goes with its owner.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("plait-lab-cli-figures-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
