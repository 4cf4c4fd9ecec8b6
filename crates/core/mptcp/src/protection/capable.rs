//! MP_CAPABLE: the start of a protection, and the effect of the three segments of the first handshake (RFC 8684, section 3.1; Jadin et al.,
//! section III-A).

use plait_base::SubflowId;
use plait_protect::handshake::Policy;
use plait_wire::{MpCapable, Segment};

use super::keys::Key;
use super::plain::Plain;
use super::preferred::Preferred;
use super::scrambled::Scrambled;
use super::sealed::{Sealed, Unsealed};
use super::session::{OpenerKeys, Session, asks_for_scrambling, is_acceptable_offer};
use super::{Mode, Protection};
use crate::config::Protect;
use crate::{Config, ConnectionError, Fallback, PlainReason, ScrambleSettings, SealedSettings, Unscrambled};

/// A SYN/ACK. It is empty if both sides have opened at the same time.
pub(crate) struct SynAck<'a> {
    pub(crate) subflow: SubflowId,
    /// All its options, as they are on the wire.
    pub(crate) options: &'a [u8],
    pub(crate) capable: Option<&'a MpCapable>,
    /// Whether the SYN that it answers had no offer.
    pub(crate) was_plain: bool,
}

/// The decision of the SYN/ACK, or of the third ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opened {
    /// Multipath TCP is used.
    Multipath,
    /// The handshake of a sealed connection begins.
    Sealing,
    /// Plain TCP, for this reason, if the configuration allows it.
    FallBack(PlainReason),
    /// The connection fails.
    Fail(ConnectionError),
    /// Nothing yet: the segment with the keys is late, or is lost and will be sent again.
    NotYet,
    /// The keys are not those of the handshake.
    WrongKeys,
}

/// A protection for a SYN, and what to do about it.
pub(crate) struct Answered {
    pub(crate) protection: Protection,
    /// `None` to wait for the third segment.
    pub(crate) decided: Option<Opened>,
}

impl Protection {
    /// Returns the offer of the opener's SYN. `draw_key` is for Multipath TCP in the clear; an opening that must be sealed draws no such
    /// key.
    ///
    /// # Errors
    /// The requested protection is not possible.
    pub(crate) fn offer(
        config: &Config,
        draw_key: impl FnOnce() -> [u8; 8],
    ) -> (Self, Result<(), ConnectionError>) {
        let clear = || config.multipath.then(|| Session::new(Key::new(draw_key()), config.checksum));
        match &config.protect {
            Protect::Plain => (Self::Plain(Plain::opening(clear())), Ok(())),
            Protect::Scramble(settings) => offer_scrambled(*settings, clear()),
            Protect::Sealed(settings) => {
                let sealed = Sealed::offer(settings, config.checksum);
                match settings.policy {
                    Policy::Require => require_sealed(settings, sealed),
                    Policy::Prefer | Policy::Off => (prefer_sealed(sealed, clear()), Ok(())),
                }
            }
        }
    }

    /// Returns the protection of a connection that fails before its SYN was examined.
    pub(crate) fn unanswered(config: &Config) -> Self {
        match &config.protect {
            Protect::Plain => Self::Plain(Plain::opening(None)),
            Protect::Scramble(settings) => Self::Scrambled(Box::new(Scrambled::refused(*settings))),
            Protect::Sealed(settings) => Self::Sealed(Box::new(Sealed::unanswered(settings))),
        }
    }

    /// Returns the listener's answer to a SYN. `draw_key` is for Multipath TCP in the clear.
    pub(crate) fn answer(
        config: &Config,
        syn: &Segment,
        offer: Option<&MpCapable>,
        draw_key: impl FnOnce() -> [u8; 8],
    ) -> Answered {
        match &config.protect {
            Protect::Plain => answer_plain(config, offer, draw_key),
            Protect::Scramble(settings) => answer_scrambled(config, settings, offer, draw_key),
            Protect::Sealed(settings) => match Sealed::answer(settings, syn, offer) {
                Ok(sealed) => Answered { protection: Self::Sealed(Box::new(sealed)), decided: None },
                Err(Unsealed::StepDown) => answer_plain(config, offer, draw_key),
                Err(Unsealed::Refused(refusal)) => Answered {
                    protection: Self::Sealed(Box::new(Sealed::refused(settings, refusal.to_string()))),
                    decided: Some(Opened::Fail(ConnectionError::NotSealed)),
                },
            },
        }
    }

    /// Handles the SYN/ACK at the opener.
    pub(crate) fn take_answer(&mut self, answer: &SynAck<'_>) -> Opened {
        let (next, opened) = match self {
            Self::Plain(plain) => return plain.take_answer(answer.capable, answer.was_plain),
            Self::Sealed(sealed) => return sealed.take_answer(answer),
            Self::Scrambled(scrambled) => {
                let (plain, opened) = scrambled.take_answer(answer.capable, answer.was_plain);
                (plain.map(Self::Plain), opened)
            }
            Self::Preferred(preferred) => {
                let (next, opened) = preferred.take_answer(answer);
                (Some(next), opened)
            }
        };
        if let Some(next) = next {
            *self = next;
        }
        opened
    }

    /// Handles the opener's first segment after the SYN at the listener. `has_mapping` tells whether it has a DSS, or data was sent before
    /// it: then the keys were sent, too.
    pub(crate) fn take_third_ack(
        &mut self,
        subflow: SubflowId,
        options: &[u8],
        capable: Option<&MpCapable>,
        has_mapping: bool,
    ) -> Opened {
        if let Self::Sealed(sealed) = self {
            return sealed.take_third_ack(subflow, options, capable);
        }
        if self.mode() != Mode::Opening || self.session().is_none() {
            return Opened::NotYet;
        }
        let Some(keys) = capable.and_then(OpenerKeys::of) else {
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.7
            //# The
            //# handshake as described in Section 3.1 SHOULD fall back to regular TCP if either of
            //# the SYN messages does not have the MPTCP options
            // The rule holds for the third ACK as well: without the opener's key no mapping is possible.
            return if has_mapping { Opened::NotYet } else { Opened::FallBack(PlainReason::NotInAck) };
        };
        let is_right = match self {
            Self::Plain(plain)
                if plain.session().is_some_and(|session| session.is_contradicted_by(&keys)) =>
            {
                return Opened::FallBack(PlainReason::Unsupported);
            }
            Self::Plain(plain) => plain.take_keys(&keys),
            Self::Scrambled(scrambled) => scrambled.take_keys(&keys),
            Self::Preferred(_) | Self::Sealed(_) => false,
        };
        if is_right { Opened::Multipath } else { Opened::WrongKeys }
    }
}

fn offer_scrambled(
    settings: ScrambleSettings,
    session: Option<Session>,
) -> (Protection, Result<(), ConnectionError>) {
    match session {
        Some(session) => (Protection::Scrambled(Box::new(Scrambled::offer(settings, session))), Ok(())),
        None if settings.unscrambled == Fallback::Allow => (Protection::Plain(Plain::opening(None)), Ok(())),
        None => {
            let error = ConnectionError::NotScrambled(Unscrambled::Plain);
            (Protection::Scrambled(Box::new(Scrambled::refused(settings))), Err(error))
        }
    }
}

/// Returns the sealed protection of an active open, or its failure. No plain protection is passed in or returned.
fn require_sealed(
    settings: &SealedSettings,
    offered: Option<Sealed>,
) -> (Protection, Result<(), ConnectionError>) {
    let Some(sealed) = offered else {
        let why = "there are no settings for connections that we open, or no handshake that they allow";
        let sealed = Sealed::refused(settings, why.to_owned());
        return (Protection::Sealed(Box::new(sealed)), Err(ConnectionError::NotSealed));
    };
    (Protection::Sealed(Box::new(sealed)), Ok(()))
}

fn prefer_sealed(offered: Option<Sealed>, session: Option<Session>) -> Protection {
    match offered {
        Some(sealed) => Protection::Preferred(Box::new(Preferred::new(sealed, session))),
        None => Protection::Plain(Plain::opening(session)),
    }
}

/// Returns why no answer to a SYN is possible.
fn lacks(config: &Config, offer: Option<&MpCapable>) -> Option<PlainReason> {
    match offer {
        _ if !config.multipath => Some(PlainReason::NotOffered),
        None => Some(PlainReason::PeerPlain),
        Some(offer) if !is_acceptable_offer(offer) => Some(PlainReason::Unsupported),
        Some(_) => None,
    }
}

fn answer_plain(config: &Config, offer: Option<&MpCapable>, draw_key: impl FnOnce() -> [u8; 8]) -> Answered {
    let (session, decided) = match (lacks(config, offer), offer) {
        (None, Some(offer)) => (Some(Session::answering(offer, Key::new(draw_key()), config.checksum)), None),
        (reason, _) => (None, reason.map(Opened::FallBack)),
    };
    Answered { protection: Protection::Plain(Plain::opening(session)), decided }
}

fn answer_scrambled(
    config: &Config,
    settings: &ScrambleSettings,
    offer: Option<&MpCapable>,
    draw_key: impl FnOnce() -> [u8; 8],
) -> Answered {
    let fits = offer.filter(|offer| lacks(config, Some(offer)).is_none() && asks_for_scrambling(offer));
    if let Some(offer) = fits {
        let session = Session::answering(offer, Key::new(draw_key()), config.checksum);
        let scrambled = Scrambled::answer(*settings, session);
        return Answered { protection: Protection::Scrambled(Box::new(scrambled)), decided: None };
    }
    match settings.unscrambled {
        Fallback::Allow => answer_plain(config, offer, draw_key),
        Fallback::Refuse => {
            let instead =
                if lacks(config, offer).is_some() { Unscrambled::Plain } else { Unscrambled::Multipath };
            Answered {
                protection: Protection::Scrambled(Box::new(Scrambled::refused(*settings))),
                decided: Some(Opened::Fail(ConnectionError::NotScrambled(instead))),
            }
        }
    }
}
