//! The goals of a sealed connection, beside TLS over the kernel's Multipath TCP, and whether they are met.

use plait_bench::digits;
use serde::{Deserialize, Serialize};

use crate::run::{PAYLOAD_SHARE, RATE};
use crate::system::System;
use crate::walkthrough::Walkthrough;

/// How much slower than TLS over the kernel's Multipath TCP sealed may be, undisturbed.
const SLOWER: f64 = 0.10;
/// How much less than the capacity of the remaining path it may carry under attack.
const LESS: f64 = 0.15;

/// A goal and its measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Goal {
    /// In peace, or the attack.
    pub situation: String,
    /// Mbit/s that sealed must reach; `None`: there is nothing to compare with.
    pub least: Option<f64>,
    /// The source of that.
    pub why: String,
    /// Median of its Mbit/s; `None`: no page arrived.
    pub reached: Option<f64>,
    /// Longest gaps, medians in milliseconds: sealed, and TLS over the kernel's Multipath TCP where its page arrived.
    pub gaps: [Option<f64>; 2],
}

impl Goal {
    /// Whether it was met.
    pub fn is_met(&self) -> bool {
        match (self.least, self.reached) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(least), Some(reached)) => reached >= least,
        }
    }

    /// In a line.
    pub fn line(&self) -> String {
        let number = |value: Option<f64>, unit: &str| {
            value.map_or("nothing arrived".to_owned(), |value| format!("{} {unit}", digits(value)))
        };
        let least = self.least.map_or(String::new(), |least| {
            let verdict = if self.is_met() { "met" } else { "MISSED" };
            format!(", goal {} ({}): {verdict}", digits(least), self.why)
        });
        let [sealed, kernel] = self.gaps;
        format!(
            "{:<10} sealed {}{least}; longest gap {}, TLS over kernel MPTCP {}",
            self.situation,
            number(self.reached, "Mbit/s"),
            number(sealed, "ms"),
            number(kernel, "ms")
        )
    }
}

/// The goals of a walkthrough: peace first, then each attack.
pub(crate) fn goals(walkthrough: &Walkthrough) -> Vec<Goal> {
    let median = |system, attack: Option<&str>, of: fn(&crate::Trial) -> Option<plait_bench::Spread>| {
        walkthrough.trial(system, attack).and_then(of).map(|spread| spread.median)
    };
    let gaps = |attack| {
        [System::Sealed, System::TlsOverKernel].map(|system| median(system, attack, crate::Trial::gap))
    };
    let kernel = median(System::TlsOverKernel, None, crate::Trial::goodput);
    let peace = Goal {
        situation: "peace".to_owned(),
        least: kernel.map(|kernel| kernel * (1.0 - SLOWER)),
        why: "TLS over kernel MPTCP less 10 %".to_owned(),
        reached: median(System::Sealed, None, crate::Trial::goodput),
        gaps: gaps(None),
    };
    let attacked = walkthrough.attacks().into_iter().map(|attack| Goal {
        situation: attack.to_owned(),
        least: Some(RATE as f64 * PAYLOAD_SHARE * (1.0 - LESS)),
        why: "what path a alone carries less 15 %".to_owned(),
        reached: median(System::Sealed, Some(attack), crate::Trial::goodput),
        gaps: gaps(Some(attack)),
    });
    std::iter::once(peace).chain(attacked).collect()
}
