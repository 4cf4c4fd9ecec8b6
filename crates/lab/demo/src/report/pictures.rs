//! A typical run over time.

use std::fmt::Write as _;

use plait_report::{Axis, Chart, Level, Line, Shape};

use crate::run::{RATE, Run, STEP};
use crate::system::System;
use crate::walkthrough::Walkthrough;

/// Width and height of the pictures before they are made to fit.
const SIZE: (u32, u32) = (400, 230);
/// Longer than this no picture goes on, in seconds.
const LONGEST: f64 = 5.0;

/// Pictures of peace, of a changed byte, and of a path that dies.
pub(super) fn all(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    let both = [System::TlsOverKernel, System::Sealed];
    html.push_str(
        "<h2>Over time</h2><p class=\"note\">Each picture is of the run in the middle of all runs of its kind. Throughput is what arrived at the client's end of each path, headers \
         included: averages over 200 ms, all on the same axis; no path can carry more than its rate, the dotted line. The dashed red line is the attack.</p>",
    );
    group(walkthrough, None, &both, "In peace", html)?;
    group(walkthrough, Some("flip"), &System::ALL, "One byte changed on path b", html)?;
    group(walkthrough, Some("cut"), &both, "Path b dies", html)
}

fn group(
    walkthrough: &Walkthrough,
    attack: Option<&str>,
    systems: &[System],
    title: &str,
    html: &mut String,
) -> anyhow::Result<()> {
    let runs: Vec<(System, &Run)> = systems
        .iter()
        .filter_map(|system| Some((*system, walkthrough.trial(*system, attack)?.typical()?)))
        .collect();
    let until = runs.iter().map(|(_, run)| run.seconds.min(LONGEST)).fold(0.5, f64::max);
    write!(html, "<h3>{title}</h3><div class=\"pair\">")?;
    for (system, run) in runs {
        for (what, svg) in [
            ("throughput of each path", rates(run, until)?),
            ("place in the stream of what arrives", arrivals(run, until)?),
        ] {
            write!(
                html,
                "<figure>{svg}<figcaption><b>{}</b>: {what}{}</figcaption></figure>",
                system.name(),
                key(run, what.starts_with("throughput"))
            )?;
        }
    }
    html.push_str("</div>");
    Ok(())
}

/// The legend of the paths' colours, and of the lines.
fn key(run: &Run, has_level: bool) -> String {
    let mut key = plait_report::key([(0, "path a"), (1, "path b")]);
    if has_level {
        key.push_str("<span class=\"entry\"><span class=\"dotted\"></span>rate of a path</span> ");
    }
    if run.struck.is_some() {
        key.push_str("<span class=\"entry\"><span class=\"dashed\"></span>attack</span>");
    }
    key
}

/// Place in the stream over time, a point per arrival, a colour per path: the paper's Figure 9.
fn arrivals(run: &Run, until: f64) -> anyhow::Result<String> {
    let points = |path: usize| -> Vec<(f64, f64)> {
        let mine = run.arrivals.iter().filter(|arrival| arrival.1 == path);
        mine.map(|(at, _, place)| (*at, *place as f64 / 1e6)).collect()
    };
    let y = Axis { unit: "MB of the stream", until: run.size.max(1) as f64 / 1e6 * 1.05 };
    draw(run, until, y, points, Shape::Points, None)
}

/// Mbit/s over time, a line per path.
fn rates(run: &Run, until: f64) -> anyhow::Result<String> {
    let points = |path: usize| -> Vec<(f64, f64)> {
        let mine = run.rates.get(path).into_iter().flatten().enumerate();
        mine.map(|(at, rate)| (at as f64 * STEP.as_secs_f64(), *rate))
            .filter(|(at, _)| *at <= until)
            .collect()
    };
    let level = Level { at: RATE as f64 };
    draw(run, until, Axis { unit: "Mbit/s", until: RATE as f64 * 1.2 }, points, Shape::Lines, Some(level))
}

fn draw(
    run: &Run,
    until: f64,
    y: Axis<'_>,
    points: impl Fn(usize) -> Vec<(f64, f64)>,
    shape: Shape,
    level: Option<Level>,
) -> anyhow::Result<String> {
    let line = |path| Line { colour: path, shape, points: points(path), spreads: Vec::new() };
    let lines = (0..run.rates.len()).map(line).collect();
    Chart { x: Axis { unit: "seconds", until }, y, size: SIZE, mark: run.struck, level, lines }.draw()
}
