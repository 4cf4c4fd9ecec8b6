//! Attacks that drop packets.

use plait_base::{Random, SeededRandom};
use plait_wire::{Dss, Flags, MptcpOption, Segment, TcpOption};

use super::termination::reset_of;
use super::{AttackName, Context, Mark, Outcome, Outgoing, Piece};
use crate::packet::Frame;

/// Of so many, [`AttackName::Lose`] takes some by chance.
const OF: u64 = 10;
const LOST: u64 = 3;

/// Takes a segment away.
pub(super) fn swallow(attack: AttackName, context: &Context<'_>, outcome: &mut Outcome) -> Vec<Piece> {
    outcome.unseen.push(Mark { attack, flow: context.flow.number, what: "swallowed".to_owned() });
    Vec::new()
}

/// Takes some segments away, by chance.
pub(super) fn lose(
    context: &Context<'_>,
    random: &mut SeededRandom,
    outcome: &mut Outcome,
) -> Option<Vec<Piece>> {
    (random.next_u64() % OF < LOST).then(|| swallow(AttackName::Lose, context, outcome))
}

/// Takes away what says that a stream has ended, and for [`AttackName::ResetAtEnd`] resets both ends in its place.
pub(super) fn end(
    attack: AttackName,
    segment: &Segment,
    context: &Context<'_>,
    outcome: &mut Outcome,
) -> Option<Vec<Piece>> {
    if !segment.flags.contains(Flags::FIN) && !has_data_fin(segment) {
        return None;
    }
    if attack == AttackName::DropEnds {
        return Some(swallow(attack, context, outcome));
    }
    let what = || "reset in place of the end".to_owned();
    let mark = Mark { attack, flow: context.flow.number, what: what() };
    let (there, back) = reset_of(segment);
    let back = Outgoing { mark: Some(mark), ..Outgoing::untouched(Frame::from_segment(&back)) };
    outcome.back.push(back);
    Some(vec![Piece::treated(attack, there, what())])
}

pub(super) fn has_data_fin(segment: &Segment) -> bool {
    plait_wire::options(&segment.options)
        .flatten()
        .any(|option| matches!(option, TcpOption::Mptcp(MptcpOption::Dss(Dss { data_fin: true, .. }))))
}
