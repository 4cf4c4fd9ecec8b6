//! A scrambled connection: regular Multipath TCP of version 2 with flag D, whose stream is scrambled above the
//! data sequence numbers (Kato et al. 2017, section III-B), and whose first data keeps to trusted paths.
//!
//! Mappings, lengths and acknowledgments are those of the plain stream. There is no way back: neither to TCP nor
//! to an unscrambled stream, so whatever makes regular Multipath TCP fall back ends the connection.

use bytes::Bytes;
use protect::scramble::{Descrambler, Scrambler};

use crate::config::Protect;
use crate::event::Unscrambled;
use crate::protection::session::Session;
use crate::spare::Spare;
use crate::trust::TrustedPaths;
use crate::{Connection, ConnectionError, Fallback, PlainReason, ScrambleStart};

/// Settings of scrambling. Both hosts choose the same start value, and nothing on the wire tells whether they
/// did: with different ones the connection works and each side reads noise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrambleSettings {
    /// What stands before the first byte of each direction.
    pub start: ScrambleStart,
    /// What may happen where the peer does not scramble: fail, or go on unscrambled (and then, where
    /// [`Config::fallback`](crate::Config::fallback) allows it, in plain TCP).
    pub unscrambled: Fallback,
    /// Bytes at the start of our direction that only trusted paths carry, the first time and every time. The
    /// block that the last of them lies in is kept to them as a whole; `u64::MAX` for all there ever are.
    pub trusted_bytes: u64,
    /// What happens when the last trusted path is gone.
    pub without_trusted: WithoutTrusted,
}

/// What happens to a scrambled connection while it has no trusted path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WithoutTrusted {
    /// Nothing is sent before there is one again.
    #[default]
    Stall,
    /// Untrusted paths carry everything, first data included; [`ScrambleStatus::degraded`] tells.
    Degrade,
}

/// What a scrambled connection says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrambleStatus {
    /// The start value.
    pub start: ScrambleStart,
    /// The trusted paths, now.
    pub trusted: TrustedPaths,
    /// Whether it waits for a trusted path, now.
    pub stalled: bool,
    /// Bytes that untrusted paths carried because there was no trusted one ([`WithoutTrusted::Degrade`]).
    pub degraded: u64,
}

impl Default for ScrambleSettings {
    fn default() -> Self {
        Self {
            start: ScrambleStart::default(),
            unscrambled: Fallback::Refuse,
            trusted_bytes: FIRST_SEGMENT,
            without_trusted: WithoutTrusted::default(),
        }
    }
}

/// What a segment of any usual path holds: "the first segment", however small the application's first
/// writes are.
const FIRST_SEGMENT: u64 = 1460;

/// Both directions of a scrambled connection.
pub(crate) struct Scrambling {
    settings: ScrambleSettings,
    outgoing: Scrambler,
    incoming: Descrambler,
    sending: Spare,
    receiving: Spare,
    pub(crate) degraded: u64,
}

impl Scrambling {
    /// The next bytes of the application: in place if nobody else has them.
    pub(crate) fn scramble(&mut self, data: Bytes) -> Bytes {
        match data.try_into_mut() {
            Ok(mut own) => {
                self.outgoing.scramble(&mut own);
                own.freeze()
            }
            Err(shared) => self
                .sending
                .changed(&shared, |plain, scrambled| self.outgoing.scramble_into(plain, scrambled)),
        }
    }

    /// The next bytes of the peer.
    pub(crate) fn descramble(&mut self, data: Bytes) -> Bytes {
        match data.try_into_mut() {
            Ok(mut own) => {
                self.incoming.descramble(&mut own);
                own.freeze()
            }
            Err(shared) => self
                .receiving
                .changed(&shared, |scrambled, plain| self.incoming.descramble_into(scrambled, plain)),
        }
    }

    /// Whether an untrusted path may carry what starts at data offset `start` (the first byte has 1).
    pub(crate) fn may_leave_trust(&self, trusted: TrustedPaths, start: u64) -> bool {
        match (trusted, self.settings.without_trusted) {
            (TrustedPaths::Work, _) | (TrustedPaths::Stalled, WithoutTrusted::Degrade) => {
                start > self.settings.trusted_bytes
            }
            // Who can jam the trusted path must not get the other one to carry everything.
            (TrustedPaths::Stalled | TrustedPaths::Gone, WithoutTrusted::Stall) => false,
            (TrustedPaths::Gone, WithoutTrusted::Degrade) => true,
        }
    }
}

impl Connection {
    /// The settings, if scrambling is what was asked for.
    pub(crate) fn scramble_settings(&self) -> Option<ScrambleSettings> {
        match &self.config.protect {
            Protect::Plain => None,
            Protect::Scramble(settings) => Some(*settings),
            Protect::Sealed(_) => None,
        }
    }

    /// Both keys are known. What waits in the send buffer is scrambled when it gets its number, like all the rest.
    pub(crate) fn start_scrambling(&mut self) {
        let (Some(settings), Some(session)) = (self.scramble_settings(), &self.session) else { return };
        let Session { local: Some(local), remote: Some(remote), scrambled: true, .. } = session else {
            return;
        };
        let scrambling = Scrambling {
            settings,
            outgoing: Scrambler::new(settings.start, local.bytes()),
            incoming: Descrambler::new(settings.start, remote.bytes()),
            sending: Spare::default(),
            receiving: Spare::default(),
            degraded: 0,
        };
        self.protection = crate::protection::Protection::Scrambled(Box::new(scrambling));
    }

    /// Whether only a scrambled connection will do.
    pub(crate) fn must_scramble(&self) -> bool {
        self.scramble_settings().is_some_and(|settings| settings.unscrambled == Fallback::Refuse)
    }

    /// Why falling back to TCP is out of the question, if it is.
    pub(crate) fn scramble_forbids(&self, reason: PlainReason) -> Option<ConnectionError> {
        let is_agreed = self.session.as_ref().is_some_and(|session| {
            session.scrambled && (session.remote.is_some() || self.role == crate::connection::Role::Passive)
        });
        match reason {
            PlainReason::ChecksumFailed if is_agreed => Some(ConnectionError::Corrupted),
            _ if is_agreed => Some(ConnectionError::NotScrambled(Unscrambled::Stripped)),
            _ if self.must_scramble() => Some(ConnectionError::NotScrambled(Unscrambled::Plain)),
            _ => None,
        }
    }

    pub(crate) fn scramble_status(&self) -> Option<ScrambleStatus> {
        let crate::protection::Protection::Scrambled(scrambling) = &self.protection else { return None };
        let trusted = self.trusted_paths();
        Some(ScrambleStatus {
            start: scrambling.settings.start,
            trusted,
            stalled: scrambling.settings.without_trusted == WithoutTrusted::Stall
                && trusted != TrustedPaths::Work,
            degraded: scrambling.degraded,
        })
    }
}
