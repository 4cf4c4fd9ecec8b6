//! Pictures as SVG, to be put into the page as they are: ink in the page's own colour, so that they are legible on light and on dark.

use anyhow::anyhow;
use plotters::prelude::*;

use crate::run::{Run, STEP};

/// Colours of the paths, readable on light and on dark, and for people who do not see red and green apart.
pub(super) const PATHS: [RGBColor; 4] =
    [RGBColor(35, 130, 205), RGBColor(225, 110, 10), RGBColor(0, 150, 110), RGBColor(170, 100, 175)];
const SIZE: (u32, u32) = (560, 250);
const ATTACK: RGBColor = RGBColor(210, 50, 50);

/// A picture's extent, and what is to be marked in it.
#[derive(Clone, Copy)]
struct Frame {
    /// Seconds.
    until: f64,
    highest: f64,
    unit: &'static str,
    struck: Option<f64>,
}

/// Place in the stream over time, a point per arrival, a colour per path: the paper's Figure 9.
pub(super) fn arrivals(run: &Run, until: f64) -> anyhow::Result<String> {
    let highest = run.size.max(1) as f64 / 1e6;
    let frame = Frame { until, highest: highest * 1.05, unit: "MB of the stream", struck: run.struck };
    let points = |path: usize| -> Vec<(f64, f64)> {
        let mine = run.arrivals.iter().filter(|arrival| arrival.1 == path);
        mine.map(|(at, _, place)| (*at, *place as f64 / 1e6)).collect()
    };
    draw(frame, run.overheard.len(), points, Shape::Points)
}

/// Mbit/s over time, a line per path.
pub(super) fn rates(run: &Run, until: f64) -> anyhow::Result<String> {
    let highest = run.rates.iter().flatten().copied().fold(55.0, f64::max);
    let frame = Frame { until, highest: highest * 1.05, unit: "Mbit/s", struck: run.struck };
    let points = |path: usize| -> Vec<(f64, f64)> {
        let step = STEP.as_secs_f64();
        let mine = run.rates.get(path).into_iter().flatten().enumerate();
        // A step's rate belongs to its middle.
        mine.map(|(at, rate)| ((at as f64 + 0.5) * step, *rate)).collect()
    };
    draw(frame, run.overheard.len(), points, Shape::Lines)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Points,
    Lines,
}

fn draw(
    frame: Frame,
    paths: usize,
    points: impl Fn(usize) -> Vec<(f64, f64)>,
    shape: Shape,
) -> anyhow::Result<String> {
    let Frame { until, highest, unit, struck } = frame;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| anyhow!("drawing a chart: {error}");
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(14)
            .x_label_area_size(34)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..until.max(0.1), 0.0..highest.max(0.001))
            .map_err(|error| failed(&error))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.15))
            .x_desc("seconds")
            .y_desc(unit)
            .label_style(("sans-serif", 12))
            .draw()
            .map_err(|error| failed(&error))?;
        if let Some(at) = struck.filter(|at| *at <= until) {
            let line = [(at, 0.0), (at, highest)];
            chart
                .draw_series(DashedLineSeries::new(line, 4, 3, ATTACK.stroke_width(1)))
                .map_err(|error| failed(&error))?;
        }
        for path in 0..paths {
            let colour = PATHS[path % PATHS.len()];
            let points = points(path);
            let drawn = match shape {
                Shape::Points => chart
                    .draw_series(points.into_iter().map(|point| Circle::new(point, 1.8, colour.filled())))
                    .map(drop),
                Shape::Lines => chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).map(drop),
            };
            drawn.map_err(|error| failed(&error))?;
        }
        root.present().map_err(|error| failed(&error))?;
    }
    Ok(svg.replace("#000000", "currentColor"))
}
