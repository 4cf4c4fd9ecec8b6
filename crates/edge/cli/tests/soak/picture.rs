//! The page with the curves.

use std::collections::{BTreeMap, BTreeSet};

use plait_report::{Axis, Chart, Line, Shape, escape, key, page};

use crate::samples::Sample;

/// A picture each: the title, the unit, and the number of a sample.
type Curve = (&'static str, &'static str, fn(&Sample) -> f64);

const CURVES: [Curve; 4] = [
    ("Resident memory", "MiB", |sample| sample.resident / 1024.0),
    ("Descriptors", "open", |sample| sample.descriptors),
    ("Threads", "threads", |sample| sample.threads),
    ("Connections, with a request or ready for one", "connections", |sample| sample.open + sample.ready),
];

/// One curve for each process in each picture, those of the processes of the server in one colour; `words` are the outcome.
pub(crate) fn draw(rows: &BTreeMap<String, Vec<Sample>>, words: &[String]) -> String {
    // Of a name such as `serve 2`, the command.
    let commands: BTreeSet<&str> = rows.keys().filter_map(|name| name.split(' ').next()).collect();
    let colour = |name: &str| commands.iter().position(|command| name.starts_with(command)).unwrap_or(0);
    let last = rows.values().filter_map(|rows| rows.last()).map(|sample| sample.at).fold(0.0, f64::max);
    let mut body =
        format!("<h1>Soak of {:.0} minutes</h1><pre>{}</pre>", last / 60.0, escape(&words.join("\n")));
    for (title, unit, number) in CURVES {
        let lines = rows.iter().map(|(name, rows)| Line {
            colour: colour(name),
            shape: Shape::Lines,
            points: rows.iter().map(|sample| (sample.at / 60.0, number(sample))).collect(),
            spreads: Vec::new(),
        });
        let most = rows.values().flatten().map(number).fold(0.0, f64::max);
        let (x, y) = (Axis { unit: "minutes", until: last / 60.0 }, Axis { unit, until: most * 1.05 });
        let chart = Chart { x, y, size: (1000, 320), mark: None, level: None, lines: lines.collect() };
        let names = key(commands.iter().copied().enumerate());
        let svg = chart.draw().expect("ranges of numbers");
        body += &format!("<h2>{title}</h2><figure>{svg}<figcaption>{names}</figcaption></figure>");
    }
    page("Soak", "", &body, &words).expect("text")
}
