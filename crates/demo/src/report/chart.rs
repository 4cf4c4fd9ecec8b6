//! Pictures as SVG, to be put into the page as they are.

use anyhow::anyhow;
use plotters::prelude::*;

use crate::episode::{Arrival, STEP};

/// Colours of the paths, readable for people who do not see red and green apart.
const PATHS: [RGBColor; 4] =
    [RGBColor(0, 95, 155), RGBColor(213, 94, 0), RGBColor(0, 135, 95), RGBColor(150, 80, 150)];
const SIZE: (u32, u32) = (560, 260);

/// Place in the stream over time, a point per arrival, a colour per path: the paper's Figure 9.
pub(super) fn arrivals(arrivals: &[Arrival], paths: &[&str], until: f64) -> anyhow::Result<String> {
    let highest = arrivals.iter().map(|arrival| arrival.2).max().unwrap_or(1) as f64 / 1e6;
    draw(
        until,
        highest * 1.05,
        "MB of the stream",
        paths,
        |path| {
            arrivals
                .iter()
                .filter(|arrival| arrival.1 == path)
                .map(|(at, _, place)| (*at, *place as f64 / 1e6))
                .collect()
        },
        true,
    )
}

/// Mbit/s over time, a line per path.
pub(super) fn rates(rates: &[Vec<f64>], paths: &[&str], until: f64) -> anyhow::Result<String> {
    let highest = rates.iter().flatten().copied().fold(1.0, f64::max);
    draw(
        until,
        highest * 1.1,
        "Mbit/s",
        paths,
        |path| {
            let step = STEP.as_secs_f64();
            rates[path].iter().enumerate().map(|(at, rate)| (at as f64 * step, *rate)).collect()
        },
        false,
    )
}

fn draw(
    until: f64,
    highest: f64,
    unit: &str,
    paths: &[&str],
    points: impl Fn(usize) -> Vec<(f64, f64)>,
    as_points: bool,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| anyhow!("drawing a chart: {error}");
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(14)
            .x_label_area_size(34)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..until.max(0.1), 0.0..highest.max(0.001))
            .map_err(|error| failed(&error))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc("seconds")
            .y_desc(unit)
            .label_style(("sans-serif", 12))
            .draw()
            .map_err(|error| failed(&error))?;
        for (index, name) in paths.iter().enumerate() {
            let colour = PATHS[index % PATHS.len()];
            let points = points(index);
            let drawn = if as_points {
                chart.draw_series(points.into_iter().map(|point| Circle::new(point, 1.6, colour.filled())))
            } else {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))
            };
            drawn
                .map_err(|error| failed(&error))?
                .label(format!("path {name}"))
                .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 10, y + 4)], colour.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .label_font(("sans-serif", 12))
            .draw()
            .map_err(|error| failed(&error))?;
        root.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}
