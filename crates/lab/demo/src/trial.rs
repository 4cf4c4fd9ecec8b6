//! One system in one situation, several times: the median of the results.

use plait_bench::Spread;
use serde::{Deserialize, Serialize};

use crate::run::{Run, Verdict};
use crate::system::System;

/// The runs of one system under one attack, or in peace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// The system.
    pub system: System,
    /// The attack, by its name; `None` in peace.
    pub attack: Option<String>,
    /// In their order; at least one.
    pub runs: Vec<Run>,
}

/// How the runs of a trial ended, the worst of them first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// A host got bytes that the other host did not send, without an error.
    AcceptedForged,
    /// A part was accepted as the whole.
    Truncated,
    /// The connection broke off, and the program reported it.
    BrokenOff,
    /// Every byte arrived, in every run.
    Intact,
}

impl Outcome {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::AcceptedForged => "accepted forged data",
            Self::Truncated => "took a part for the whole",
            Self::BrokenOff => "broken off",
            Self::Intact => "intact",
        }
    }

    const fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Survived => Self::Intact,
            Verdict::Died(_) => Self::BrokenOff,
            Verdict::WrongBytes => Self::AcceptedForged,
            Verdict::Truncated => Self::Truncated,
        }
    }
}

impl Trial {
    /// The worst that happened, and in how many of the runs.
    pub fn outcome(&self) -> (Outcome, usize) {
        let all = || self.runs.iter().map(|run| Outcome::of(&run.verdict));
        let worst = all().min().unwrap_or(Outcome::BrokenOff);
        (worst, all().filter(|outcome| *outcome == worst).count())
    }

    /// Whether every byte arrived in every run.
    pub fn is_intact(&self) -> bool {
        self.outcome().0 == Outcome::Intact
    }

    /// Mbit/s of the page from its first byte at the client to its last, of the runs in which all of it arrived.
    pub fn goodput(&self) -> Option<Spread> {
        self.of_whole(|run| Some(run.goodput))
    }

    /// Longest time in which the client got nothing, in milliseconds, of the same runs.
    pub fn gap(&self) -> Option<Spread> {
        self.of_whole(|run| Some(run.longest_gap * 1000.0))
    }

    /// Time from the strike until the page went on, in milliseconds, of the same runs.
    pub fn repair(&self) -> Option<Spread> {
        self.of_whole(|run| Some(run.repair? * 1000.0))
    }

    fn of_whole(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter(|run| run.verdict == Verdict::Survived).filter_map(of))
    }

    /// The run in the middle by its length, of those that ended as the trial did: what pictures show.
    pub fn typical(&self) -> Option<&Run> {
        let (worst, _) = self.outcome();
        let mut alike: Vec<&Run> =
            self.runs.iter().filter(|run| Outcome::of(&run.verdict) == worst).collect();
        alike.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        alike.get(alike.len() / 2).copied()
    }

    /// Packets that the injector put on the wire or took from it, in the run where these were fewest.
    pub fn injected(&self) -> u64 {
        self.runs.iter().map(|run| run.injected).min().unwrap_or(0)
    }
}
