//! Bars from left to right, one below the other, each with its name above it: legible on a narrow screen.

use std::fmt::Write as _;

use crate::chart::css;
use crate::escape;

/// One thing compared.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// The value in words, with its unit.
    pub text: String,
    /// Least and most.
    pub spread: Option<(f64, f64)>,
    /// A reference measurement of another source, drawn as a stroke across.
    pub reference: Option<f64>,
    /// Its colour, as in a chart.
    pub colour: usize,
}

/// The meaning of equal steps from left to right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Equal differences; it begins at zero.
    Linear,
    /// Equal factors; it begins at the power of ten below the least.
    Logarithmic,
}

const WIDTH: f64 = 400.0;
/// Of one bar with its name.
const ROW: f64 = 38.0;
const MARGIN: f64 = 8.0;

/// The bars as SVG.
pub fn bars(bars: &[Bar], scale: Scale) -> String {
    let values = || bars.iter().flat_map(|bar| bar.reference.into_iter().chain([bar.value]));
    let most =
        values().chain(bars.iter().filter_map(|bar| Some(bar.spread?.1))).fold(f64::MIN_POSITIVE, f64::max);
    let least = values().filter(|value| *value > 0.0).fold(most, f64::min);
    let floor = 10f64.powf(least.log10().floor());
    let place = |value: f64| {
        let share = match scale {
            Scale::Linear => value / most,
            Scale::Logarithmic => {
                // A range of one value has no width of its own.
                let decades = (most / floor).log10().max(1.0);
                (value.max(floor) / floor).log10() / decades
            }
        };
        MARGIN + share.clamp(0.0, 1.0) * (WIDTH - 2.0 * MARGIN)
    };
    let height = ROW * bars.len() as f64 + MARGIN;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" font-family=\"sans-serif\" font-size=\"13\" \
         fill=\"currentColor\">"
    );
    for (row, bar) in bars.iter().enumerate() {
        let top = ROW * row as f64;
        let (text, middle, end) = (top + 15.0, top + 27.0, place(bar.value));
        let (name, value, right) = (escape(&bar.name), escape(&bar.text), WIDTH - MARGIN);
        let length = (end - MARGIN).max(1.0);
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{text}\">{name}</text><text x=\"{right}\" y=\"{text}\" text-anchor=\"end\">{value}</text>\
             <rect x=\"{MARGIN}\" y=\"{}\" width=\"{length:.1}\" height=\"12\" fill=\"{}\"/>",
            middle - 6.0,
            css(bar.colour)
        );
        if let Some((least, most)) = bar.spread {
            let _ = write!(
                svg,
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"currentColor\"/>",
                place(least),
                place(most)
            );
        }
        if let Some(reference) = bar.reference {
            let at = place(reference);
            let _ = write!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{}\" y2=\"{}\" stroke=\"currentColor\" stroke-width=\"3\"/>",
                middle - 8.0,
                middle + 8.0
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64, reference: Option<f64>) -> Bar {
        Bar { name: "<a>".into(), value, text: value.to_string(), spread: None, reference, colour: 0 }
    }

    #[test]
    fn equal_factors_are_equal_steps_and_names_are_text() {
        let svg = bars(&[bar(1.0, None), bar(10.0, None), bar(100.0, Some(1.0))], Scale::Logarithmic);
        for width in ["width=\"1.0\"", "width=\"192.0\"", "width=\"384.0\""] {
            assert!(svg.contains(width), "{width} in {svg}");
        }
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("<a>"));
        let svg = bars(&[bar(25.0, None), bar(100.0, None)], Scale::Linear);
        assert!(svg.contains("width=\"96.0\""), "{svg}");
    }

    #[test]
    fn nothing_and_zero_are_drawn_too() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            assert!(bars(&[], scale).ends_with("</svg>"));
            assert!(!bars(&[bar(0.0, None)], scale).contains("NaN"));
        }
    }
}
