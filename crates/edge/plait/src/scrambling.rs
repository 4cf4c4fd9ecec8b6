//! Data scrambling after Kato et al.: obfuscation, not encryption.

use ::plait_host::{Config, Protect, ScrambleSettings};

use crate::sealing::Weaker;

/// The configuration of scrambling: XOR with preceding bytes, which hides data from an eavesdropper that sees too few bytes in a row. This
/// is obfuscation, not encryption: a few hundred bytes in a row are enough to read them, and changes are not detected.
///
/// ```
/// use plait::{Protection, Scrambling, WithoutTrusted};
///
/// let protection = Protection::from(Scrambling::new().trusted_bytes(4096).without_trusted(WithoutTrusted::Stall));
/// # drop(protection);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "nothing happens before it is connected with"]
pub struct Scrambling {
    start: ScrambleStart,
    trusted_bytes: u64,
    without_trusted: WithoutTrusted,
    weaker: Weaker,
}

/// The starting point of scrambling. Both ends must agree on it beforehand: a difference is not detected.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum ScrambleStart {
    /// The sender's key, 8 bytes.
    #[default]
    Key8,
    /// The HMAC-SHA1 of the empty message with the sender's key, 20 bytes.
    HmacSha1,
}

/// The behaviour of a scrambled connection without a trusted path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum WithoutTrusted {
    /// Sends nothing until a trusted path works again.
    #[default]
    Stall,
    /// Uses untrusted paths for everything, and the status counts the bytes.
    Degrade,
}

impl Scrambling {
    /// Asks for a scrambled connection, or none.
    pub fn new() -> Self {
        let usual = ScrambleSettings::default();
        Self {
            start: ScrambleStart::default(),
            trusted_bytes: usual.trusted_bytes,
            without_trusted: WithoutTrusted::default(),
            weaker: Weaker::Nothing,
        }
    }

    /// Sets the starting point.
    pub fn start(self, start: ScrambleStart) -> Self {
        Self { start, ..self }
    }

    /// Sends the first bytes of our direction, this many, over trusted paths only; `u64::MAX` for all data.
    pub fn trusted_bytes(self, bytes: u64) -> Self {
        Self { trusted_bytes: bytes, ..self }
    }

    /// Sets the behaviour while no trusted path works.
    pub fn without_trusted(self, what: WithoutTrusted) -> Self {
        Self { without_trusted: what, ..self }
    }

    /// Also accepts Multipath TCP or plain TCP without any protection.
    pub fn or_plain(self) -> Self {
        Self { weaker: Weaker::Tcp, ..self }
    }

    /// Also accepts Multipath TCP without any protection, but not plain TCP.
    pub fn or_plain_multipath(self) -> Self {
        Self { weaker: Weaker::Multipath, ..self }
    }

    pub(crate) fn settings(&self, config: &Config) -> Config {
        let settings = ScrambleSettings {
            start: self.start.into(),
            unscrambled: self.weaker.unprotected(),
            trusted_bytes: self.trusted_bytes,
            without_trusted: match self.without_trusted {
                WithoutTrusted::Stall => ::plait_host::WithoutTrusted::Stall,
                WithoutTrusted::Degrade => ::plait_host::WithoutTrusted::Degrade,
            },
        };
        Config { protect: Protect::Scramble(settings), fallback: self.weaker.fallback(), ..config.clone() }
    }
}

impl Default for Scrambling {
    fn default() -> Self {
        Self::new()
    }
}

impl From<ScrambleStart> for ::plait_host::ScrambleStart {
    fn from(start: ScrambleStart) -> Self {
        match start {
            ScrambleStart::Key8 => Self::Key8,
            ScrambleStart::HmacSha1 => Self::HmacSha1,
        }
    }
}

impl From<::plait_host::ScrambleStart> for ScrambleStart {
    fn from(start: ::plait_host::ScrambleStart) -> Self {
        match start {
            ::plait_host::ScrambleStart::Key8 => Self::Key8,
            ::plait_host::ScrambleStart::HmacSha1 => Self::HmacSha1,
        }
    }
}
