//! The report of one figure or table of a paper.

use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Conclusion, together};
use plait_bench::Spread;
use plait_lab::Strain;

/// The figures, by their names in files and on the command line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// Kato 2017 and 2018, Table II.
    KatoTable2,
    /// Kato 2019, Figures 13 and 14.
    KatoFigures13And14,
    /// Kato 2019, Figures 16 and 17.
    KatoFigures16And17,
    /// Kato 2019, Figure 18.
    KatoFigure18,
    /// Jadin 2017, Figure 8.
    JadinFigure8,
    /// Jadin 2017, Figure 9.
    JadinFigure9,
    /// The slides of 2017, request/response.
    JadinRequestResponse,
    /// The slides of 2017, hand-over.
    JadinHandOver,
}

impl Id {
    /// All, in the order of the papers.
    pub const ALL: [Self; 8] = [
        Self::KatoTable2,
        Self::KatoFigures13And14,
        Self::KatoFigures16And17,
        Self::KatoFigure18,
        Self::JadinFigure8,
        Self::JadinFigure9,
        Self::JadinRequestResponse,
        Self::JadinHandOver,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KatoTable2 => "kato-table2",
            Self::KatoFigures13And14 => "kato-figures13-and14",
            Self::KatoFigures16And17 => "kato-figures16-and17",
            Self::KatoFigure18 => "kato-figure18",
            Self::JadinFigure8 => "jadin-figure8",
            Self::JadinFigure9 => "jadin-figure9",
            Self::JadinRequestResponse => "jadin-request-response",
            Self::JadinHandOver => "jadin-hand-over",
        }
    }
}

/// One figure or table of a paper, and the measurement in its place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Its name.
    pub id: Id,
    /// For people.
    pub title: String,
    /// The paper, and the place in it.
    pub source: String,
    /// The measurement of the paper: its subject, its method, and its result.
    pub published: String,
    /// The measurement here: conditions and steps.
    pub made: String,
    /// Command lines that were run, one of each kind.
    pub commands: Vec<String>,
    /// The parts that were scaled or left out, and the reasons.
    pub departures: Vec<String>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The conclusions of the paper, and whether they hold here.
    pub claims: Vec<Claim>,
    /// All claims together.
    pub conclusion: Conclusion,
    /// Pictures of these; not in the JSON, which has their numbers.
    #[serde(skip)]
    pub pictures: Vec<Picture>,
    /// Bytes as an eavesdropper has them.
    pub exhibits: Vec<Exhibit>,
    /// The load of the machine.
    pub strain: Strain,
}

/// One number, the paper's and ours.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The name of a group of rows; empty if there is one group only.
    pub group: String,
    /// The measured quantity.
    pub name: String,
    /// The unit of both numbers.
    pub unit: String,
    /// The paper's number; `None` if it has none for this.
    pub paper: Option<f64>,
    /// Ours.
    pub measured: Spread,
}

/// A picture.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Picture {
    /// SVG.
    pub svg: String,
    /// Its caption: HTML.
    pub caption: String,
}

/// Bytes, to be looked at.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Exhibit {
    /// Their description.
    pub title: String,
    /// As `tshark -x` shows them, or as text.
    pub text: String,
}

/// The result of a measurement; the caller watches the machine.
pub(crate) struct Finding {
    pub(crate) title: &'static str,
    pub(crate) source: &'static str,
    pub(crate) published: &'static str,
    pub(crate) made: String,
    pub(crate) commands: Vec<String>,
    pub(crate) departures: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) pictures: Vec<Picture>,
    pub(crate) exhibits: Vec<Exhibit>,
}

impl Finding {
    pub(crate) fn under(self, id: Id, strain: Strain) -> Figure {
        let Self { title, source, published, made, commands, departures, rows, claims, pictures, exhibits } =
            self;
        let conclusion = together(&claims);
        Figure {
            id,
            title: title.to_owned(),
            source: source.to_owned(),
            published: published.to_owned(),
            made,
            commands,
            departures,
            rows,
            claims,
            conclusion,
            pictures,
            exhibits,
            strain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_one_name_everywhere() {
        for id in Id::ALL {
            assert_eq!(serde_json::to_string(&id).expect("a name"), format!("\"{}\"", id.as_str()));
        }
    }
}
