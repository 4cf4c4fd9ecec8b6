//! A scrambled connection: regular Multipath TCP of version 2 with flag D, whose stream is scrambled above the
//! data sequence numbers (Kato et al. 2017, section III-B), and whose first data keeps to trusted paths.
//!
//! Mappings, lengths and acknowledgments are those of the plain stream. Once it is agreed on there is no way back:
//! neither to TCP nor to an unscrambled stream, so whatever makes regular Multipath TCP fall back ends the connection.

use bytes::Bytes;
use plait_protect::scramble::{Descrambler, Scrambler};
use plait_wire::MpCapable;

use super::plain::Plain;
use super::session::{OpenerKeys, Session};
use super::{Mode, Opened};
use crate::TrustedPaths;
use crate::buffer_pool::BufferPool;
use crate::event::Unscrambled;
use crate::{ConnectionError, Fallback, PlainReason, ScrambleStart};

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

/// Why there is always something to scramble with.
const NO_KEYS: &str = "no byte has a number before both keys are known";

/// A connection that is scrambled, or shall be.
pub(crate) struct Scrambled {
    settings: ScrambleSettings,
    stage: Stage,
}

enum Stage {
    /// Our SYN offers it.
    Offered(Session),
    /// Our SYN/ACK agrees to it; the key of the opener is to come.
    Answered(Session),
    /// Both keys are known.
    Agreed(Session, Coders),
    /// It came to nothing, and there is nothing in its place.
    Refused,
}

/// What scrambles and descrambles.
struct Coders {
    outgoing: Scrambler,
    incoming: Descrambler,
    sending: BufferPool,
    receiving: BufferPool,
    degraded: u64,
}

impl Scrambled {
    /// What our SYN offers.
    pub(super) fn offer(settings: ScrambleSettings, session: Session) -> Self {
        Self { settings, stage: Stage::Offered(Session { scrambled: true, ..session }) }
    }

    /// What our SYN/ACK agrees to.
    pub(super) fn answer(settings: ScrambleSettings, session: Session) -> Self {
        Self { settings, stage: Stage::Answered(Session { scrambled: true, ..session }) }
    }

    /// The connection fails before anything was agreed on.
    pub(super) fn refused(settings: ScrambleSettings) -> Self {
        Self { settings, stage: Stage::Refused }
    }

    pub(super) fn mode(&self) -> Mode {
        match self.stage {
            Stage::Offered(_) | Stage::Answered(_) | Stage::Refused => Mode::Opening,
            Stage::Agreed(..) => Mode::Multipath,
        }
    }

    pub(super) fn session(&self) -> Option<&Session> {
        match &self.stage {
            Stage::Offered(session) | Stage::Answered(session) | Stage::Agreed(session, _) => Some(session),
            Stage::Refused => None,
        }
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.stage {
            Stage::Offered(session) | Stage::Answered(session) | Stage::Agreed(session, _) => Some(session),
            Stage::Refused => None,
        }
    }

    /// Whether a SYN that does not offer it could be of use.
    pub(super) fn may_omit_offer(&self) -> bool {
        self.settings.unscrambled == Fallback::Allow
    }

    /// The SYN/ACK. Where the peer answers with regular Multipath TCP, and that is good enough, there is a plain
    /// connection in place of this one.
    pub(super) fn take_answer(
        &mut self,
        answer: Option<&MpCapable>,
        was_plain: bool,
    ) -> (Option<Plain>, Opened) {
        let mut session = match core::mem::replace(&mut self.stage, Stage::Refused) {
            Stage::Offered(session) => session,
            other @ (Stage::Answered(_) | Stage::Agreed(..) | Stage::Refused) => {
                self.stage = other;
                return (None, Opened::Fail(ConnectionError::Protocol));
            }
        };
        let reason = match answer {
            _ if was_plain => Some(PlainReason::SynDropped),
            None => Some(PlainReason::NotInSynAck),
            Some(answer) if session.take_answer(answer) => None,
            Some(_) => Some(PlainReason::Unsupported),
        };
        match reason {
            Some(reason) => {
                self.stage = Stage::Offered(session);
                (None, Opened::FallBack(reason))
            }
            None if session.scrambled => {
                self.stage = self.agreed(session);
                (None, Opened::Multipath)
            }
            None if self.may_omit_offer() => (Some(Plain::multipath(session)), Opened::Multipath),
            None => (None, Opened::Fail(ConnectionError::NotScrambled(Unscrambled::Multipath))),
        }
    }

    /// The keys of the third ACK; `false` if they are not those of the handshake.
    pub(super) fn take_keys(&mut self, keys: &OpenerKeys) -> bool {
        match core::mem::replace(&mut self.stage, Stage::Refused) {
            Stage::Answered(mut session) => {
                let is_right = session.take_keys(keys);
                self.stage = if is_right { self.agreed(session) } else { Stage::Answered(session) };
                is_right
            }
            other @ (Stage::Offered(_) | Stage::Agreed(..) | Stage::Refused) => {
                self.stage = other;
                false
            }
        }
    }

    /// What waits in the send buffer is scrambled when it gets its number, like all the rest.
    fn agreed(&self, session: Session) -> Stage {
        let Some(remote) = &session.remote else { return Stage::Answered(session) };
        let coders = Coders {
            outgoing: Scrambler::new(self.settings.start, session.local.bytes()),
            incoming: Descrambler::new(self.settings.start, remote.bytes()),
            sending: BufferPool::default(),
            receiving: BufferPool::default(),
            degraded: 0,
        };
        Stage::Agreed(session, coders)
    }

    /// The plain connection in place of this one: there is one only where nothing was agreed on yet, and the settings
    /// allow it.
    pub(super) fn step_down(&mut self, reason: PlainReason) -> Result<Plain, ConnectionError> {
        match core::mem::replace(&mut self.stage, Stage::Refused) {
            Stage::Offered(session) if self.may_omit_offer() => {
                Ok(Plain::opening(Some(Session { scrambled: false, ..session })))
            }
            Stage::Offered(_) | Stage::Refused => Err(ConnectionError::NotScrambled(Unscrambled::Plain)),
            // What was received in order is still to be read.
            agreed @ (Stage::Answered(_) | Stage::Agreed(..)) => {
                self.stage = agreed;
                Err(match reason {
                    PlainReason::ChecksumFailed => ConnectionError::Corrupted,
                    PlainReason::NotOffered
                    | PlainReason::PeerPlain
                    | PlainReason::NotInSynAck
                    | PlainReason::SynDropped
                    | PlainReason::NotInAck
                    | PlainReason::NoDss
                    | PlainReason::Unsupported
                    | PlainReason::PeerFellBack => ConnectionError::NotScrambled(Unscrambled::Stripped),
                })
            }
        }
    }

    /// The next bytes of the application: in place if nobody else has them.
    pub(super) fn scramble(&mut self, data: Bytes) -> Bytes {
        let Stage::Agreed(_, coders) = &mut self.stage else { unreachable!("{NO_KEYS}") };
        match data.try_into_mut() {
            Ok(mut own) => {
                coders.outgoing.scramble(&mut own);
                own.freeze()
            }
            Err(shared) => coders
                .sending
                .changed(&shared, |plain, scrambled| coders.outgoing.scramble_into(plain, scrambled)),
        }
    }

    /// The next bytes of the peer.
    pub(super) fn descramble(&mut self, data: Bytes) -> Bytes {
        let Stage::Agreed(_, coders) = &mut self.stage else { unreachable!("{NO_KEYS}") };
        match data.try_into_mut() {
            Ok(mut own) => {
                coders.incoming.descramble(&mut own);
                own.freeze()
            }
            Err(shared) => coders
                .receiving
                .changed(&shared, |scrambled, plain| coders.incoming.descramble_into(scrambled, plain)),
        }
    }

    /// Whether an untrusted path may carry what starts at data offset `start` (the first byte has 1).
    pub(super) fn may_leave_trust(&self, trusted: TrustedPaths, start: u64) -> bool {
        match (trusted, self.settings.without_trusted) {
            (TrustedPaths::Work, _) | (TrustedPaths::Stalled, WithoutTrusted::Degrade) => {
                start > self.settings.trusted_bytes
            }
            // Who can jam the trusted path must not get the other one to carry everything.
            (TrustedPaths::Stalled | TrustedPaths::Gone, WithoutTrusted::Stall) => false,
            (TrustedPaths::Gone, WithoutTrusted::Degrade) => true,
        }
    }

    /// An untrusted path carries so many bytes because there is no trusted one.
    pub(super) fn note_degraded(&mut self, bytes: u64) {
        if let Stage::Agreed(_, coders) = &mut self.stage {
            coders.degraded += bytes;
        }
    }

    /// For people, once it is agreed on.
    pub(super) fn status(&self, trusted: TrustedPaths) -> Option<ScrambleStatus> {
        let Stage::Agreed(_, coders) = &self.stage else { return None };
        Some(ScrambleStatus {
            start: self.settings.start,
            trusted,
            stalled: self.settings.without_trusted == WithoutTrusted::Stall && trusted != TrustedPaths::Work,
            degraded: coders.degraded,
        })
    }
}
