//! Pictures as SVG, to be put into the page as they are: ink in the page's own colour, so that they are legible on light and on dark.

use std::collections::BTreeSet;

use anyhow::anyhow;
use plotters::prelude::*;

/// Colours of the compared series, readable on light and on dark, and for people with red-green colour blindness.
const COLOURS: [RGBColor; 6] = [
    RGBColor(35, 130, 205),
    RGBColor(225, 110, 10),
    RGBColor(0, 150, 110),
    RGBColor(170, 100, 175),
    RGBColor(125, 125, 125),
    RGBColor(185, 150, 0),
];
/// Points nearer than this to each other, in units of the picture, are one.
const GRAIN: i32 = 2;
/// Of labels. In the picture they are four fifths of it, and have to be legible where a picture 400 wide is made to fit a telephone.
const FONT: u32 = 16;
const MARK: RGBColor = RGBColor(210, 50, 50);

/// A picture of numbers over numbers.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// The values from left to right.
    pub x: Axis<'a>,
    /// The values upwards.
    pub y: Axis<'a>,
    /// Width and height before it is made to fit the page.
    pub size: (u32, u32),
    /// A dashed line from bottom to top at this place.
    pub mark: Option<f64>,
    /// A dotted line from left to right.
    pub level: Option<Level>,
    /// The layers of the drawing, one over the other.
    pub lines: Vec<Line>,
}

/// A height that means something, as the rate of a path.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// On the y axis.
    pub at: f64,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// The unit.
    pub unit: &'a str,
    /// Where it ends; it begins at zero.
    pub until: f64,
}

/// One of the things compared.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its colour, counted from zero; after the last, colours repeat.
    pub colour: usize,
    /// The style of the points.
    pub shape: Shape,
    /// Places on both axes.
    pub points: Vec<(f64, f64)>,
    /// For a place on the x axis the least and the most.
    pub spreads: Vec<(f64, f64, f64)>,
}

/// A style of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Each on its own.
    Points,
    /// Joined.
    Lines,
    /// Joined, and each marked: few points, each of them measured.
    Marked,
}

impl Chart<'_> {
    /// The picture as SVG.
    ///
    /// # Errors
    /// An axis is no range of numbers.
    pub fn draw(&self) -> anyhow::Result<String> {
        let Self { x, y, size, mark, level, lines } = self;
        let mut svg = String::new();
        let mut points = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, *size).into_drawing_area();
            let failed = |error: &dyn std::fmt::Display| anyhow!("drawing a chart: {error}");
            let mut chart = ChartBuilder::on(&root)
                .margin(6)
                .margin_right(14)
                .x_label_area_size(40)
                .y_label_area_size(60)
                .build_cartesian_2d(0.0..x.until.max(0.1), 0.0..y.until.max(0.001))
                .map_err(|error| failed(&error))?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.15))
                .x_desc(x.unit)
                .y_desc(y.unit)
                .label_style(("sans-serif", FONT))
                .axis_desc_style(("sans-serif", FONT))
                .x_labels(6)
                .y_labels(6)
                .draw()
                .map_err(|error| failed(&error))?;
            if let Some(at) = mark.filter(|at| *at <= x.until) {
                let line = [(at, 0.0), (at, y.until)];
                chart
                    .draw_series(DashedLineSeries::new(line, 4, 3, MARK.stroke_width(1)))
                    .map_err(|error| failed(&error))?;
            }
            if let Some(Level { at }) = level {
                let line = [(0.0, *at), (x.until, *at)];
                chart
                    .draw_series(DashedLineSeries::new(line, 2, 3, BLACK.mix(0.7).stroke_width(1)))
                    .map_err(|error| failed(&error))?;
            }
            for Line { colour, shape, points: places, spreads } in lines {
                let colour = COLOURS[colour % COLOURS.len()];
                for &(at, least, most) in spreads {
                    let whisker = [(at, least), (at, most)];
                    chart
                        .draw_series(LineSeries::new(whisker, colour.mix(0.6).stroke_width(1)))
                        .map_err(|error| failed(&error))?;
                }
                if matches!(shape, Shape::Lines | Shape::Marked) {
                    let line = LineSeries::new(places.iter().copied(), colour.stroke_width(2));
                    chart.draw_series(line).map_err(|error| failed(&error))?;
                }
                match shape {
                    Shape::Points => points.push_str(&cloud(
                        colour,
                        places
                            .iter()
                            .filter(|place| place.0 <= x.until && place.1 <= y.until)
                            .map(|place| chart.backend_coord(place)),
                    )),
                    Shape::Marked => {
                        let dots = places.iter().map(|point| Circle::new(*point, 3.0, colour.filled()));
                        chart.draw_series(dots).map_err(|error| failed(&error))?;
                    }
                    Shape::Lines => {}
                }
            }
            root.present().map_err(|error| failed(&error))?;
        }
        if let Some(end) = svg.rfind("</svg>") {
            svg.insert_str(end, &points);
        }
        // It fits the page by its view box; a size of its own would not.
        Ok(svg.replace("#000000", "currentColor"))
    }
}

/// Points of one colour as one path of round dots: a tenth of what a circle for each would take. Those that would lie on one another are
/// drawn once.
fn cloud(colour: RGBColor, places: impl Iterator<Item = (i32, i32)>) -> String {
    let places: BTreeSet<(i32, i32)> = places.map(|(x, y)| (x / GRAIN * GRAIN, y / GRAIN * GRAIN)).collect();
    let dots: String = places.iter().map(|(x, y)| format!("M{x} {y}h0")).collect();
    let RGBColor(red, green, blue) = colour;
    format!(
        "<path d=\"{dots}\" fill=\"none\" stroke=\"rgb({red},{green},{blue})\" stroke-width=\"3\" stroke-linecap=\"round\"/>"
    )
}

/// A legend of the colours: HTML for a caption, with the names escaped.
pub fn key<'a>(names: impl IntoIterator<Item = (usize, &'a str)>) -> String {
    let entry = |(colour, name): (usize, &str)| {
        let name = crate::escape(name);
        format!(
            "<span class=\"entry\"><span class=\"key\" style=\"background: {}\"></span>{name}</span> ",
            css(colour)
        )
    };
    names.into_iter().map(entry).collect()
}

/// A colour as CSS has it, counted as in a chart.
pub fn css(colour: usize) -> String {
    let RGBColor(red, green, blue) = COLOURS[colour % COLOURS.len()];
    format!("rgb({red} {green} {blue})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_one_another_are_one_and_all_of_a_colour_are_one_element() {
        let points: Vec<(f64, f64)> =
            (0..5000).map(|n| (f64::from(n % 100) / 100.0, f64::from(n / 1000))).collect();
        let line = Line { colour: 0, shape: Shape::Points, points, spreads: Vec::new() };
        let axis = |until| Axis { unit: "s", until };
        let chart = Chart {
            x: axis(1.0),
            y: axis(5.0),
            size: (400, 230),
            mark: Some(0.5),
            level: Some(Level { at: 3.0 }),
            lines: vec![line],
        };
        let svg = chart.draw().expect("a picture");
        assert_eq!(svg.matches("stroke-linecap=\"round\"").count(), 1);
        let dots = svg.matches("h0").count();
        assert!((200..=500).contains(&dots), "{dots} dots");
        assert!(svg.ends_with("</svg>") || svg.ends_with("</svg>\n"), "{svg}");
    }
}
