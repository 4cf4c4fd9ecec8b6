//! The congestion controls: their names, and what the rest of the stack must know about each.

use core::fmt;
use core::str::FromStr;

/// The congestion control of the subflows of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// CUBIC on a path with losses that come with a queue, BBR on one with losses without. Begins with CUBIC; a path that marks packets
    /// ([`crate::Ecn`]) stays with it.
    #[default]
    Adaptive,
    /// RFC 9438. Subflows that share a bottleneck together take what one TCP connection would.
    Cubic,
    /// RFC 5681 and 6582, coupled like CUBIC.
    NewReno,
    /// Linked increases (RFC 6356): the subflows together take no more than one TCP connection on the best path.
    Lia,
    /// Opportunistic linked increases (draft-khalili-mptcp-congestion-control): as LIA, and away from congested paths.
    Olia,
    /// BBR version 3 (draft-ietf-ccwg-bbr): a model of the path in place of a window that falls with each loss. Each subflow is on its own,
    /// always paced, and without ECN.
    Bbr,
}

/// The subflows that together increase as one TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coupled {
    /// All subflows of the connection.
    Connection,
    /// Those over one path, or over paths that share a queue.
    Bottleneck,
    /// None.
    Alone,
}

impl Algorithm {
    /// All of them, the default first.
    pub const ALL: &'static [Self] =
        &[Self::Adaptive, Self::Cubic, Self::NewReno, Self::Lia, Self::Olia, Self::Bbr];

    /// Its name in options and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Lia => "lia",
            Self::Olia => "olia",
            Self::Bbr => "bbr",
        }
    }

    /// A line about it for help texts.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Adaptive => "As cubic on a path with a queue at its losses, as bbr on a path without one",
            Self::Cubic => "RFC 9438",
            Self::NewReno => "RFC 5681 and 6582",
            Self::Lia => "RFC 6356: together no greedier than one TCP connection on the best path",
            Self::Olia => "As lia, and moves away from congested paths",
            Self::Bbr => {
                "BBR version 3: follows the rate and the round-trip time of each path, and hardly reacts to losses. Without ECN"
            }
        }
    }

    /// The subflows that it couples.
    #[must_use]
    pub const fn coupled(self) -> Coupled {
        match self {
            Self::Lia | Self::Olia => Coupled::Connection,
            Self::NewReno | Self::Cubic | Self::Adaptive => Coupled::Bottleneck,
            Self::Bbr => Coupled::Alone,
        }
    }

    /// Whether it reacts to routers that mark packets (RFC 3168). Only then a connection may accept ECN.
    pub(crate) fn answers_marks(self) -> bool {
        match self {
            Self::NewReno | Self::Cubic | Self::Lia | Self::Olia | Self::Adaptive => true,
            Self::Bbr => false,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name, as [`Algorithm::name`] returns it.
impl FromStr for Algorithm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.iter().find(|algorithm| algorithm.name() == text);
        named.copied().ok_or("not one of adaptive, cubic, newreno, lia, olia, bbr")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn each_name_is_parsed_as_it_is_printed() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(*algorithm));
            let all = "".parse::<Algorithm>().expect_err("no name");
            assert!(all.contains(algorithm.name()), "{algorithm} is missing in the error");
        }
        assert_eq!(Algorithm::ALL.first(), Some(&Algorithm::default()));
    }
}
