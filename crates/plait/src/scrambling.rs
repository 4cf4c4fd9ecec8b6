//! Data scrambling after Kato et al.: obfuscation, not encryption.

use ::plait_host::{Config, Protect, ScrambleSettings};

use crate::sealing::Weaker;

/// How a connection is scrambled: XOR with what went before, which hides the bytes from an eavesdropper who sees too few of them in a row. This is
/// obfuscation, not encryption: a few hundred bytes in a row are enough to read them, and changes are not noticed.
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

/// What scrambling starts from. The two ends have to agree on it beforehand: they do not notice a difference.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum ScrambleStart {
    /// The sender's key, 8 bytes.
    #[default]
    Key8,
    /// The HMAC-SHA1 of nothing with the sender's key, 20 bytes.
    HmacSha1,
}

/// What happens to a scrambled connection while it has no path that is trusted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum WithoutTrusted {
    /// Nothing is sent before one works again.
    #[default]
    Stall,
    /// Paths that are not trusted carry everything, and the status tells how much.
    Degrade,
}

impl Scrambling {
    /// Scrambled, or no connection.
    pub fn new() -> Self {
        let usual = ScrambleSettings::default();
        Self {
            start: ScrambleStart::default(),
            trusted_bytes: usual.trusted_bytes,
            without_trusted: WithoutTrusted::default(),
            weaker: Weaker::Nothing,
        }
    }

    /// What it starts from.
    pub fn start(self, start: ScrambleStart) -> Self {
        Self { start, ..self }
    }

    /// So many bytes at the start of our direction are carried by trusted paths only; `u64::MAX` for all that there ever are.
    pub fn trusted_bytes(self, bytes: u64) -> Self {
        Self { trusted_bytes: bytes, ..self }
    }

    /// What happens while no trusted path works.
    pub fn without_trusted(self, what: WithoutTrusted) -> Self {
        Self { without_trusted: what, ..self }
    }

    /// The same; where it cannot be, Multipath TCP or plain TCP without any protection.
    pub fn or_plain(self) -> Self {
        Self { weaker: Weaker::Tcp, ..self }
    }

    /// The same; where it cannot be, Multipath TCP without any protection, but not plain TCP.
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
