//! The schedulers: their names, and what the rest of the stack must know about each.

use core::fmt;
use core::num::NonZeroU16;
use core::str::FromStr;

/// Selects the subflow for the next block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Scheduler {
    /// The subflow with the smallest round-trip time that has room.
    #[default]
    LowestRtt,
    /// Each subflow in turn.
    RoundRobin,
    /// All subflows: each byte is sent on every subflow.
    Redundant,
    /// Each subflow in turn, with a limit for paths that are not trusted. As long as there is a trusted path, no untrusted path carries
    /// more than this many bytes of the stream in a row. First transmissions and reinjections are counted together. A gap of fewer than 64
    /// bytes does not end a row: an eavesdropper on scrambled bytes can bridge it.
    Dispersed {
        /// Largest number of bytes in a row.
        max_exposure: NonZeroU16,
    },
}

/// Bytes in a row of `dispersed` without a number: of twice as many, nearly all can be read.
const EXPOSURE: NonZeroU16 = NonZeroU16::new(64).expect("not zero");

impl Scheduler {
    /// Its name in options and tables, without a number.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowestRtt => "lowest-rtt",
            Self::RoundRobin => "round-robin",
            Self::Redundant => "redundant",
            Self::Dispersed { .. } => "dispersed",
        }
    }

    /// The largest number of bytes of the stream that an untrusted path may carry in a row, if it has a limit.
    pub(crate) const fn max_exposure(self) -> Option<NonZeroU16> {
        match self {
            Self::LowestRtt | Self::RoundRobin | Self::Redundant => None,
            Self::Dispersed { max_exposure } => Some(max_exposure),
        }
    }

    /// Whether each block is sent on every subflow.
    pub(crate) const fn copies(self) -> bool {
        match self {
            Self::LowestRtt | Self::RoundRobin | Self::Dispersed { .. } => false,
            Self::Redundant => true,
        }
    }
}

/// As it is parsed.
impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_exposure() {
            None => f.pad(self.name()),
            Some(bytes) => write!(f, "{}={bytes}", self.name()),
        }
    }
}

/// `lowest-rtt`, `round-robin`, `redundant`, or `dispersed[=BYTES]`.
impl FromStr for Scheduler {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some(("dispersed", bytes)) => {
                let max_exposure = bytes.parse().map_err(|_| "not a number of bytes from 1 to 65535")?;
                Ok(Self::Dispersed { max_exposure })
            }
            None if text == "dispersed" => Ok(Self::Dispersed { max_exposure: EXPOSURE }),
            Some(_) | None => {
                let plain = [Self::LowestRtt, Self::RoundRobin, Self::Redundant];
                let named = plain.into_iter().find(|scheduler| scheduler.name() == text);
                named.ok_or("not one of lowest-rtt, round-robin, redundant, dispersed[=BYTES]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_parsed_as_it_is_printed() {
        for text in ["lowest-rtt", "round-robin", "redundant", "dispersed=7"] {
            assert_eq!(text.parse::<Scheduler>().map(|scheduler| scheduler.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("dispersed".parse(), Ok(Scheduler::Dispersed { max_exposure: EXPOSURE }));
        for text in ["", "fastest", "round-robin=4", "dispersed=0", "dispersed=many"] {
            assert!(text.parse::<Scheduler>().is_err(), "{text}");
        }
    }
}
