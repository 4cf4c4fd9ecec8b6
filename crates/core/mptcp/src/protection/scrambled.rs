//! A scrambled connection: regular Multipath TCP of version 2 with flag D. The stream is scrambled above the data sequence numbers (Kato et
//! al. 2017, section III-B), and its first data stays on trusted paths.
//!
//! Mappings, lengths and acknowledgments are those of the plain stream. After the negotiation there is no way back to TCP or to an
//! unscrambled stream. Therefore each reason for a fallback of regular Multipath TCP ends the connection.

use bytes::Bytes;
use plait_protect::scramble::{Descrambler, Scrambler};
use plait_wire::MpCapable;

use super::plain::Plain;
use super::session::{OpenerKeys, Session};
use super::{Mode, Opened};
use crate::TrustedPaths;
use crate::buffer_pool::BufferPool;
use crate::config::{ScrambleSettings, WithoutTrusted};
use crate::event::Unscrambled;
use crate::status::ScrambleStatus;
use crate::{ConnectionError, Fallback, PlainReason};

/// The reason for which the coders always exist.
const NO_KEYS: &str = "no byte has a number before both keys are known";

/// A connection that is scrambled, or is to be scrambled.
pub(crate) struct Scrambled {
    settings: ScrambleSettings,
    stage: Stage,
}

enum Stage {
    /// Our SYN offers scrambling.
    Offered(Session),
    /// Our SYN/ACK accepts it. The key of the opener is still missing.
    Answered(Session),
    /// Both keys are known.
    Agreed(Session, Coders),
    /// It failed, and there is no replacement.
    Refused,
}

/// The scrambler and the descrambler.
struct Coders {
    outgoing: Scrambler,
    incoming: Descrambler,
    sending: BufferPool,
    receiving: BufferPool,
    degraded: u64,
}

impl Scrambled {
    /// Returns the offer of our SYN.
    pub(super) fn offer(settings: ScrambleSettings, session: Session) -> Self {
        Self { settings, stage: Stage::Offered(Session { scrambled: true, ..session }) }
    }

    /// Returns the acceptance of our SYN/ACK.
    pub(super) fn answer(settings: ScrambleSettings, session: Session) -> Self {
        Self { settings, stage: Stage::Answered(Session { scrambled: true, ..session }) }
    }

    /// Returns a connection that fails before the negotiation.
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

    /// Whether a SYN without the offer could be useful.
    pub(super) fn may_omit_offer(&self) -> bool {
        self.settings.unscrambled == Fallback::Allow
    }

    /// Handles the SYN/ACK. If the peer answers with regular Multipath TCP, and the settings allow that, a plain connection replaces this
    /// one.
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

    /// Handles the keys of the third ACK. Returns `false` if they are not those of the handshake.
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

    /// Bytes in the send buffer are scrambled when they get their numbers, like all others.
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

    /// Returns the plain connection in place of this one. It is possible only before the negotiation is complete, and if the settings allow
    /// it.
    pub(super) fn step_down(&mut self, reason: PlainReason) -> Result<Plain, ConnectionError> {
        match core::mem::replace(&mut self.stage, Stage::Refused) {
            Stage::Offered(session) if self.may_omit_offer() => {
                Ok(Plain::opening(Some(Session { scrambled: false, ..session })))
            }
            Stage::Offered(_) | Stage::Refused => Err(ConnectionError::NotScrambled(Unscrambled::Plain)),
            // Bytes received in order can still be read.
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

    /// Scrambles the next bytes of the application, in place if there is no other holder.
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

    /// Descrambles the next bytes of the peer.
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

    /// Whether an untrusted path may carry bytes from data offset `start` on (the first byte has 1).
    pub(super) fn may_leave_trust(&self, trusted: TrustedPaths, start: u64) -> bool {
        match (trusted, self.settings.without_trusted) {
            (TrustedPaths::Work, _) | (TrustedPaths::Stalled, WithoutTrusted::Degrade) => {
                start > self.settings.trusted_bytes
            }
            // An attacker that can jam the trusted path must not be able to move all bytes to the other one.
            (TrustedPaths::Stalled | TrustedPaths::Gone, WithoutTrusted::Stall) => false,
            (TrustedPaths::Gone, WithoutTrusted::Degrade) => true,
        }
    }

    /// Counts bytes that an untrusted path carries because there is no trusted one.
    pub(super) fn note_degraded(&mut self, bytes: u64) {
        if let Stage::Agreed(_, coders) = &mut self.stage {
            coders.degraded += bytes;
        }
    }

    /// Returns the status for display, once scrambling is negotiated.
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
