//! The option for connections of which one direction has ended.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use plait_proxy::silence::SilenceLimit;

use crate::options::seconds;

#[derive(Clone, Debug, Args)]
pub(crate) struct HalfClosed {
    /// Reset a connection if one direction has ended and the other one was silent for so many seconds, as after a program was killed that
    /// waited for an answer. 0 or never: no limit. Connections that are open in both directions have no limit.
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    half_closed_timeout: Limit,
}

/// A time limit, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limit(Option<Duration>);

impl HalfClosed {
    /// The limit, which all connections share.
    pub(crate) fn limit(&self) -> SilenceLimit {
        SilenceLimit::new(self.duration())
    }

    pub(crate) fn duration(&self) -> Option<Duration> {
        self.half_closed_timeout.0
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "0" | "never" => Ok(Self(None)),
            text => seconds(text).map(|limit| Self(Some(limit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_of_seconds_or_none() {
        let parse = |text: &str| text.parse::<Limit>();
        assert_eq!(parse("300"), Ok(Limit(Some(SilenceLimit::DEFAULT))));
        assert_eq!((parse("0"), parse("never")), (Ok(Limit(None)), Ok(Limit(None))));
        for bad in ["", "-1", "soon"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
