//! Whether a packet is lost.

use plait_base::{Random, SeededRandom};

/// A law of loss, per packet.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Each packet alone, independent of all others.
    Bernoulli {
        /// Probability of loss.
        probability: f64,
    },
    /// Two states, each with a probability of loss (Gilbert and Elliott); the state may change before each
    /// packet. Starts in the good one.
    Gilbert {
        /// Probability of going from good to bad.
        to_bad: f64,
        /// Probability of going from bad to good.
        to_good: f64,
        /// Probability of loss in the good state.
        loss_in_good: f64,
        /// Probability of loss in the bad state.
        loss_in_bad: f64,
    },
}

impl Loss {
    /// A cable that is cut.
    pub const ALL: Self = Self::Bernoulli { probability: 1.0 };

    /// Loss in bursts: all packets of the bad state, none of the good one. `probability` is the share lost
    /// in the long run, below 1; `length` the mean number of packets lost in a row, at least 1.
    pub fn bursts(probability: f64, length: f64) -> Self {
        let to_good = 1.0 / length.max(1.0);
        let share = probability.clamp(0.0, 1.0);
        Self::Gilbert {
            to_bad: to_good * share / (1.0 - share),
            to_good,
            loss_in_good: 0.0,
            loss_in_bad: 1.0,
        }
    }
}

/// The state of the law and its generator.
pub(crate) struct LossState {
    is_bad: bool,
    random: SeededRandom,
}

impl LossState {
    pub(crate) const fn new(random: SeededRandom) -> Self {
        Self { is_bad: false, random }
    }

    /// Whether the next packet is lost.
    pub(crate) fn strikes(&mut self, loss: Loss) -> bool {
        // Both are drawn whatever the law, so that a change of law does not shift what follows.
        let (change, strike) = (draw(&mut self.random), draw(&mut self.random));
        match loss {
            Loss::None => false,
            Loss::Bernoulli { probability } => strike < probability,
            Loss::Gilbert { to_bad, to_good, loss_in_good, loss_in_bad } => {
                let leave = if self.is_bad { to_good } else { to_bad };
                self.is_bad ^= change < leave;
                strike < if self.is_bad { loss_in_bad } else { loss_in_good }
            }
        }
    }
}

/// Evenly spread over 0 to 1, 1 excluded: below a probability of 1 always, below one of 0 never.
pub(crate) fn draw(random: &mut SeededRandom) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
