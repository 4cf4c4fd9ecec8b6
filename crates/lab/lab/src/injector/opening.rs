//! Attacks on the opening of a connection: the three-way handshake, the sealed handshake, the first blocks.

use plait_wire::{Dss, Flags, MptcpOption, OptionBytes, Segment, TcpOption};

use super::dropping::swallow;
use super::option_list::{ENO, MPTCP, join, list};
use super::{Attack, AttackName, Context, Outcome, Piece, payload};
use crate::Direction;

/// A simultaneous open that its victim did not ask for (RFC 9293, section 3.5): the victim's peer seems to speak plain TCP. The real
/// peer is kept out of it.
pub(super) fn cross(
    segment: Segment,
    only: Option<Direction>,
    context: &Context<'_>,
    outcome: &mut Outcome,
) -> Option<Vec<Piece>> {
    let Context { direction, flow, .. } = *context;
    let (is_syn, is_ack) = (segment.flags.contains(Flags::SYN), segment.flags.contains(Flags::ACK));
    let is_reset = segment.flags.contains(Flags::RST);
    match (direction, only) {
        (Direction::ToServer, _) if is_syn && !is_ack => None,
        (Direction::ToServer, Some(Direction::ToServer)) if !is_syn && !is_reset => {
            // A retransmission may be of anything: the SYN lies before the first byte.
            Some(crossing(&segment, flow.sent(direction).start? - 1))
        }
        (Direction::ToClient, _) if is_syn && is_ack => Some(crossing(&segment, segment.seq)),
        (Direction::ToServer | Direction::ToClient, _) => {
            Some(swallow(AttackName::SynCrossing, context, outcome))
        }
    }
}

/// A bare SYN with the sequence number `syn` of the sender of `segment`, and the ACK that follows it.
fn crossing(segment: &Segment, syn: plait_base::SeqNum) -> Vec<Piece> {
    let bare = Segment {
        options: OptionBytes::new(),
        payload: bytes::Bytes::new(),
        segment_size: 1,
        urgent: 0,
        ..segment.clone()
    };
    let crossing = Segment { flags: Flags::SYN, seq: syn, ack: plait_base::SeqNum::new(0), ..bare.clone() };
    let ack = Segment { flags: Flags::ACK, seq: syn + 1, ..bare };
    let piece = |segment, what: &str| Piece::treated(AttackName::SynCrossing, segment, what);
    vec![piece(crossing, "a bare SYN crosses that of the other side"), piece(ack, "a bare ACK behind it")]
}

/// Removes everything about Multipath TCP and encryption from SYN/ACKs, or from the SYNs that go to the server.
pub(super) fn strip_bare(segment: Segment, only: Option<Direction>) -> Option<Vec<Piece>> {
    let is_answer = segment.flags.contains(Flags::ACK);
    if is_answer == (only == Some(Direction::ToServer)) {
        return None;
    }
    let options = list(&segment.options);
    let is_kept = |option: &&Vec<u8>| ![MPTCP, ENO].contains(&option[0]);
    let kept: Vec<_> = options.iter().filter(is_kept).cloned().collect();
    let removed = options.len() - kept.len();
    if removed == 0 {
        return None;
    }
    let bare = Segment { options: join(&kept), ..segment };
    let what = format!("{removed} option(s) of kinds {MPTCP} and {ENO} removed");
    Some(vec![Piece::treated(AttackName::SynAckBare, bare, what)])
}

/// Swallows what comes after the three-way handshake, or after the first mapping that went the attacked way.
pub(super) fn fall_silent(
    attack: &Attack,
    segment: &Segment,
    context: &Context<'_>,
    outcome: &mut Outcome,
) -> Option<Vec<Piece>> {
    let is_silent = match attack.name {
        AttackName::SynAckThenSilence => !segment.flags.contains(Flags::SYN),
        _ => Direction::BOTH
            .into_iter()
            .filter(|way| attack.direction.is_none_or(|only| only == *way))
            .any(|way| context.flow.sent(way).has_mapped()),
    };
    is_silent.then(|| swallow(attack.name, context, outcome))
}

/// The segments that [`AttackName::SwallowAnswers`] has seen on its path.
#[derive(Default)]
pub(super) struct Answers {
    is_swallowed: bool,
}

impl Answers {
    /// Swallows all that goes to the client, of any connection, once the server was sent a payload with a mapping.
    pub(super) fn swallow(&mut self, context: &Context<'_>, outcome: &mut Outcome) -> Option<Vec<Piece>> {
        self.is_swallowed |= context.flow.sent(Direction::ToServer).has_mapped();
        let is_answer = context.direction == Direction::ToClient;
        (self.is_swallowed && is_answer).then(|| swallow(AttackName::SwallowAnswers, context, outcome))
    }
}

/// Changes a byte of what is, or is not, mapped.
pub(super) fn alter(attack: AttackName, segment: Segment) -> Option<Vec<Piece>> {
    if is_mapped(&segment) != (attack == AttackName::BlocksAlteredAlways) {
        return None;
    }
    payload::flip(attack, segment)
}

fn is_mapped(segment: &Segment) -> bool {
    plait_wire::options(&segment.options)
        .flatten()
        .any(|option| matches!(option, TcpOption::Mptcp(MptcpOption::Dss(Dss { mapping: Some(_), .. }))))
}
