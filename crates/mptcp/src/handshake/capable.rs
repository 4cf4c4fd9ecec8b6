//! MP_CAPABLE: the first subflow (RFC 8684, section 3.1), and the first forks to plain TCP.

use base::Instant;
use wire::{CapableFlags, Flags, MpCapable, Segment};

use crate::connection::{Mode, Role};
use crate::fallback::Mapped;
use crate::flow::{Kind, Parting, Stage};
use crate::options_in::Signals;
use crate::protection::keys::Key;
use crate::protection::sealed::Answer;
use crate::protection::session::{HIGHER_VERSION, Session, VERSION};
use crate::receive::Arrived;
use crate::{Connection, ConnectionError, Host, PlainReason, Unscrambled};

/// DSS options kept that came before the key of the peer.
const MAX_PREMATURE: usize = 64;

impl Connection {
    /// The opener's offer, if the configuration makes one.
    pub(crate) fn offer(&mut self, host: &mut dyn Host) {
        self.offer_sealed();
        if self.config.multipath {
            let mut session = Session::new(Key::new(host.draw_key()), self.config.checksum);
            session.scrambled = self.scramble_settings().is_some();
            self.session = Some(session);
        }
    }

    /// A SYN opens the connection: with or without Multipath TCP.
    pub(crate) fn answer_syn(&mut self, now: Instant, syn: &Segment, host: &mut dyn Host) {
        let path = self.path_of(syn.destination.ip(), host);
        if path.class == crate::PathClass::Never {
            self.fail(ConnectionError::Unreachable);
            return;
        }
        if !self.may_open_over(&path, &*host) {
            self.fail(ConnectionError::NoTrustedPath);
            return;
        }
        let offer = Signals::read(syn).capable;
        let sealing = self.judge_sealed_syn(syn, offer.as_ref());
        let plain = match offer {
            _ if !self.config.multipath => Some(PlainReason::NotOffered),
            None => Some(PlainReason::PeerPlain),
            Some(offer) if !is_acceptable_offer(&offer) => Some(PlainReason::Unsupported),
            Some(_) => None,
        };
        let index = self.accept_flow(now, &path, syn, (Kind::FirstPassive, Some(0)), host);
        self.addresses.set_initial(syn.destination.ip(), syn.source);
        match sealing {
            Answer::Unsealed => {}
            Answer::Sealed => return,
            Answer::Refused => return self.fail(ConnectionError::NotSealed),
        }
        match (plain, offer) {
            (None, Some(offer)) => {
                let checksum = self.config.checksum || offer.flags.contains(CapableFlags::CHECKSUM);
                let mut session = Session::new(Key::new(host.draw_key()), checksum);
                session.denies_initial_address = offer.flags.contains(CapableFlags::DENY_JOIN_ID0);
                session.scrambled = self.scramble_settings().is_some() && asks_for_scrambling(&offer);
                let is_enough = session.scrambled || !self.must_scramble();
                self.session = Some(session);
                if !is_enough {
                    self.fail(ConnectionError::NotScrambled(Unscrambled::Multipath));
                }
            }
            (Some(reason), _) => self.fall_back(index, reason, Mapped::Never),
            (None, None) => {}
        }
    }

    /// The answer to our SYN on a first subflow.
    pub(crate) fn on_first_syn_ack(&mut self, arrived: &Arrived<'_>) {
        let index = arrived.index;
        self.flows[index].state.stage = Stage::Open;
        self.win_race(index);
        let tuple = self.flows[index].state.tuple;
        self.addresses.set_initial(tuple.local.ip(), tuple.remote);
        match self.judge_sealed_answer(arrived) {
            Answer::Unsealed => {}
            Answer::Sealed | Answer::Refused => return,
        }
        let was_plain = self.flows[index].state.plain_syn;
        let reason = match (&mut self.session, arrived.signals.capable) {
            (None, _) => Some(PlainReason::NotOffered),
            (Some(_), _) if was_plain => Some(PlainReason::SynDropped),
            (Some(_), None) => Some(PlainReason::NotInSynAck),
            (Some(session), Some(answer)) => match answer.sender_key {
                Some(key) if is_acceptable_answer(&answer, session) => {
                    session.scrambled = session.scrambled && asks_for_scrambling(&answer);
                    session.learn_key(key);
                    session.checksum |= answer.flags.contains(CapableFlags::CHECKSUM);
                    session.denies_initial_address = answer.flags.contains(CapableFlags::DENY_JOIN_ID0);
                    None
                }
                Some(_) | None => Some(PlainReason::Unsupported),
            },
        };
        let is_scrambled = self.session.as_ref().is_some_and(|session| session.scrambled);
        match reason {
            Some(reason) => self.fall_back(index, reason, Mapped::Never),
            None if self.must_scramble() && !is_scrambled => {
                self.fail(ConnectionError::NotScrambled(Unscrambled::Multipath));
            }
            None => {
                self.start_scrambling();
                self.mode = Mode::Multipath;
                self.flows[index].state.remote_address = Some(0);
                // The window of a SYN/ACK is not scaled, and TCP has taken that into account.
                self.outgoing.on_data_ack(1, arrived.window);
            }
        }
        if !self.life.is_over() {
            self.notices.connected();
        }
    }

    /// An acceptable segment on the first subflow while we wait for the key of the opener.
    pub(crate) fn on_first_third_ack(&mut self, arrived: &Arrived<'_>) {
        if self.sealed.is_some() {
            return self.on_sealed_third_ack(arrived);
        }
        let index = arrived.index;
        let signals = arrived.signals;
        if arrived.segment.flags.contains(Flags::SYN) || !arrived.segment.flags.contains(Flags::ACK) {
            return;
        }
        let keys = signals
            .capable
            .and_then(|capable| Some((capable.version, capable.sender_key?, capable.receiver_key?)));
        let Some(session) = &mut self.session else { return };
        match keys {
            Some((version, theirs, ours))
                if session.local.as_ref().is_some_and(|local| local.is(&ours))
                    && version == session.version() =>
            {
                session.learn_key(theirs);
                self.start_scrambling();
                self.mode = Mode::Multipath;
                self.flows[index].state.stage = Stage::Open;
                self.outgoing.on_data_ack(1, arrived.window);
                self.notices.connected();
                self.take_premature(index);
            }
            Some(_) => {
                self.counters.bad_keys += 1;
                self.flows[index].reset(Parting::because(wire::ResetReason::Mptcp));
            }
            None if signals.dss.is_some() || arrived.offset > 1 => {
                // The segment with the keys is late or lost; it will be sent again.
                if let Some(dss) = signals.dss
                    && self.premature.len() < MAX_PREMATURE
                {
                    self.premature.push((dss, arrived.offset));
                }
            }
            None => {
                //= https://www.rfc-editor.org/rfc/rfc8684#section-3.7
                //# The
                //# handshake as described in Section 3.1 SHOULD fall back to regular TCP if either of
                //# the SYN messages does not have the MPTCP options
                // The third ACK is no different: without the opener's key there is nothing to map with.
                self.flows[index].state.stage = Stage::Open;
                self.fall_back(index, PlainReason::NotInAck, Mapped::Never);
                if !self.life.is_over() {
                    self.notices.connected();
                }
            }
        }
    }

    /// TCP says that the handshake is complete, and the options did not decide what is spoken.
    pub(crate) fn on_established(&mut self, index: usize) {
        let state = &mut self.flows[index].state;
        if state.stage != Stage::Opening {
            return;
        }
        match (state.kind, self.role, self.mode) {
            // Both sides have opened at the same time: there is no SYN/ACK with a key.
            (Kind::FirstActive, _, Mode::Opening) => {
                state.stage = Stage::Open;
                self.win_race(index);
                self.fall_back(index, PlainReason::NotInSynAck, Mapped::Never);
                if !self.life.is_over() {
                    self.notices.connected();
                }
            }
            (Kind::FirstPassive, Role::Passive, Mode::Plain { .. }) => {
                state.stage = Stage::Open;
                self.notices.connected();
            }
            (Kind::FirstActive | Kind::FirstPassive, _, _) => {}
            (Kind::JoinActive { .. } | Kind::JoinPassive { .. }, _, _) => {
                self.flows[index].reset(Parting::because(wire::ResetReason::Mptcp));
            }
        }
    }
}

/// Whether we can answer a SYN with this option.
fn is_acceptable_offer(offer: &MpCapable) -> bool {
    let MpCapable { version, flags, sender_key, receiver_key: _, data_length: _, checksum: _ } = offer;
    // What the flags of a higher version mean does not matter: it is answered with ours.
    *version >= VERSION && sender_key.is_none() && (*version > VERSION || has_known_flags(*flags))
}

/// Whether the SYN/ACK is an answer to what we have offered.
fn is_acceptable_answer(answer: &MpCapable, offered: &Session) -> bool {
    let is_regular = answer.version == VERSION && has_known_flags(answer.flags);
    answer.receiver_key.is_none() && (is_regular || (offered.scrambled && asks_for_scrambling(answer)))
}

/// Version 2 with flag D, and nothing that is unknown.
fn asks_for_scrambling(option: &MpCapable) -> bool {
    let CapableFlags(flags) = option.flags;
    option.version == HIGHER_VERSION
        && option.flags.contains(CapableFlags::SCRAMBLE)
        && has_known_flags(CapableFlags(flags & !CapableFlags::SCRAMBLE))
}

/// HMAC-SHA256 and no other algorithm, and no extension that would change the option.
fn has_known_flags(flags: CapableFlags) -> bool {
    const ALGORITHMS: u8 = 0x1f;
    flags.0 & ALGORITHMS == CapableFlags::HMAC_SHA256 && !flags.contains(CapableFlags::EXTENSIBILITY)
}
