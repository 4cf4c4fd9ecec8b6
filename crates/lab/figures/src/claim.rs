//! A conclusion of a paper, and whether it holds here.

use serde::{Deserialize, Serialize};

/// Whether a paper's conclusion is ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The conclusion holds here as well.
    Holds,
    /// The conclusion differs here.
    Differs,
    /// The text of the paper has no number to compare with.
    Unstated,
}

impl Conclusion {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Differs => "differs",
            Self::Unstated => "no number in the paper's text",
        }
    }
}

/// One conclusion of a paper, beside what was found here.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The text of the paper.
    pub paper: String,
    /// The measurement here.
    pub measured: String,
    /// When it is taken to hold: the rule that `conclusion` comes from.
    pub rule: String,
    /// The verdict.
    pub conclusion: Conclusion,
    /// The reason of a difference, otherwise empty.
    pub why: String,
}

impl Claim {
    /// A claim that `holds` or not by `rule`; `why` is only told where it does not.
    pub(crate) fn judged(paper: &str, measured: String, rule: &str, holds: bool, why: &str) -> Self {
        let (conclusion, why) = match holds {
            true => (Conclusion::Holds, ""),
            false => (Conclusion::Differs, why),
        };
        Self { paper: paper.to_owned(), measured, rule: rule.to_owned(), conclusion, why: why.to_owned() }
    }

    /// A claim that the paper shows in a picture, without its numbers in the text.
    pub(crate) fn unstated(paper: &str, measured: String) -> Self {
        let conclusion = Conclusion::Unstated;
        Self { paper: paper.to_owned(), measured, rule: String::new(), conclusion, why: String::new() }
    }
}

/// The verdict of all claims together: one that differs is enough.
pub(crate) fn together(claims: &[Claim]) -> Conclusion {
    let has = |conclusion| claims.iter().any(|claim| claim.conclusion == conclusion);
    match (has(Conclusion::Differs), has(Conclusion::Holds)) {
        (true, _) => Conclusion::Differs,
        (false, true) => Conclusion::Holds,
        (false, false) => Conclusion::Unstated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_claim_that_differs_is_enough_and_a_reason_goes_with_it_only() {
        let judged = |holds| Claim::judged("it is so", String::new(), "", holds, "because");
        assert_eq!(judged(true).why, "");
        assert_eq!(judged(false).why, "because");
        let unstated = Claim::unstated("a picture", String::new());
        assert_eq!(together(&[judged(true), unstated.clone()]), Conclusion::Holds);
        assert_eq!(together(&[judged(true), judged(false)]), Conclusion::Differs);
        assert_eq!(together(&[unstated]), Conclusion::Unstated);
    }
}
