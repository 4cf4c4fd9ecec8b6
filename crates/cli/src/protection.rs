//! What protects the streams of `run`, `serve` and `proxy`.

use std::fmt;

use clap::ValueEnum;

/// What protects the bytes on their way.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protection {
    /// Encrypted, the server known by its key.
    #[default]
    Sealed,
    /// Scrambled: whoever reads one path only reads nothing.
    Scramble,
    /// Nothing: regular Multipath TCP, readable by everybody on the way.
    Plain,
}

/// A protection that is asked for and not to be had. Nothing weaker takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotToBeHad(Protection);

impl Protection {
    /// Makes the connections' settings protect.
    pub(crate) fn apply(self, _config: &mut host::Config) -> Result<(), NotToBeHad> {
        match self {
            Self::Plain => Ok(()),
            Self::Sealed | Self::Scramble => Err(NotToBeHad(self)),
        }
    }
}

impl fmt::Display for NotToBeHad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        write!(
            f,
            "this build cannot protect connections as {name}, and takes nothing weaker unasked\n  fix: a build \
             that can, or --protect plain where everybody on the way may read and change what is sent"
        )
    }
}

impl std::error::Error for NotToBeHad {}
