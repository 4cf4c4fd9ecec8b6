//! False acknowledgments of data: acknowledgments of TCP cannot be authenticated.

use std::collections::BTreeMap;

use plait_base::{Instant, SeqNum};
use plait_wire::{Flags, OptionBytes, Segment};

use super::dropping::swallow;
use super::option_list::{SACK, TIMESTAMPS, join, list};
use super::termination::bare;
use super::{Attack, AttackName, Context, Mark, Outcome, Outgoing, Piece};
use crate::Direction;
use crate::packet::Frame;

/// Bytes acknowledged by a segment that acknowledges one segment more.
const ONE_MORE: u32 = 1400;
/// The window in forged acknowledgments while none of the receiver's has gone by, unscaled.
const WINDOW: u16 = 1024;

/// The forged acknowledgments, for each flow and direction of payload.
#[derive(Default)]
pub(super) struct Claims {
    of: BTreeMap<(u32, Direction), Claim>,
}

struct Claim {
    /// Everything before it has arrived, so the sender hears.
    next: SeqNum,
    /// Behind what the sender has sent.
    sent: SeqNum,
    /// The receiver's window as it is in its segments.
    window: Option<u16>,
    /// The receiver's latest segment, to be let go little by little.
    slow: Option<Slow>,
}

struct Slow {
    attack: Attack,
    latest: Segment,
    due: Instant,
}

impl Claims {
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }

    /// When the next acknowledgment is due that goes out by itself.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.of.values().filter_map(Claim::due).min()
    }

    /// The next acknowledgment that is due by `now`, and where it goes.
    pub(super) fn release(&mut self, now: Instant) -> Option<(Direction, Outgoing)> {
        let due = |claim: &Claim| claim.due().is_some_and(|due| due <= now);
        let ((flow, direction), claim) = self.of.iter_mut().find(|(_, claim)| due(claim))?;
        let slow = claim.slow.as_mut()?;
        let left = slow.latest.ack.distance(claim.next).cast_unsigned();
        claim.next += left.min(ONE_MORE);
        slow.due = now + slow.attack.time();
        let what = format!("up to {} of {} in flight", claim.next.bits(), left);
        let mark = Mark { attack: slow.attack.name, flow: *flow, what };
        let segment = Segment { ack: claim.next, ..without_sack(bare_of(&slow.latest)) };
        let packet = Outgoing { mark: Some(mark), ..Outgoing::untouched(Frame::from_segment(&segment)) };
        Some((direction.opposite(), packet))
    }

    /// Treats a segment both as payload and as the acknowledgment of what goes the other way.
    pub(super) fn treat(
        &mut self,
        attack: &Attack,
        context: &Context<'_>,
        segment: Segment,
        outcome: &mut Outcome,
    ) -> Option<Vec<Piece>> {
        let is_attacked = |way| attack.direction.is_none_or(|only| only == way);
        let mut changed = None;
        let mut segment = segment;
        if is_attacked(context.direction.opposite()) {
            match self.as_acknowledgment(attack, context, &segment) {
                Seen::Swallowed => return Some(swallow(attack.name, context, outcome)),
                Seen::Rewritten(other) => {
                    changed = Some(format!("acknowledges {}", other.ack.bits()));
                    segment = other;
                }
                Seen::Nothing => {}
            }
        }
        if is_attacked(context.direction) && !segment.payload.is_empty() {
            match self.as_payload(attack, context, &segment, outcome) {
                Seen::Swallowed => return Some(swallow(attack.name, context, outcome)),
                Seen::Rewritten(_) | Seen::Nothing => {}
            }
        }
        Some(vec![Piece::treated(attack.name, segment, changed?)])
    }

    fn claim(&mut self, flow: u32, payload: Direction, next: SeqNum) -> &mut Claim {
        let new = Claim { next, sent: next, window: None, slow: None };
        self.of.entry((flow, payload)).or_insert(new)
    }

    /// Payload of the attacked direction.
    fn as_payload(
        &mut self,
        attack: &Attack,
        context: &Context<'_>,
        segment: &Segment,
        outcome: &mut Outcome,
    ) -> Seen {
        let end = segment.seq + segment.payload.len() as u32;
        let claim = self.claim(context.flow.number, context.direction, segment.seq);
        claim.sent = later(claim.sent, end);
        let forged = match attack.name {
            AttackName::SwallowAndAck | AttackName::AckEarly => {
                claim.next = later(claim.next, end);
                forged(segment, claim, None)
            }
            AttackName::LieInSack => forged(segment, claim, hole_behind(claim, segment)),
            _ => return Seen::Nothing,
        };
        let what = format!("acknowledges {} in the receiver's name", forged.ack.bits());
        let mark = Mark { attack: attack.name, flow: context.flow.number, what };
        let packet = Outgoing { mark: Some(mark), ..Outgoing::untouched(Frame::from_segment(&forged)) };
        outcome.back.push(packet);
        if attack.name == AttackName::AckEarly { Seen::Nothing } else { Seen::Swallowed }
    }

    /// Forges the acknowledgment of the receiver in the attacked direction.
    fn as_acknowledgment(&mut self, attack: &Attack, context: &Context<'_>, segment: &Segment) -> Seen {
        let claim = self.claim(context.flow.number, context.direction.opposite(), segment.ack);
        claim.window = Some(segment.window);
        let is_bare =
            segment.payload.is_empty() && !segment.flags.contains(Flags::FIN) && claim.next != segment.ack;
        match attack.name {
            AttackName::AckSlowly => {
                let due = claim.slow.as_ref().map_or(context.now + attack.time(), |slow| slow.due);
                claim.slow = Some(Slow { attack: attack.clone(), latest: segment.clone(), due });
                if is_bare {
                    return Seen::Swallowed;
                }
            }
            AttackName::FreezeAcks if is_bare => return Seen::Swallowed,
            _ => {}
        }
        if !matches!(attack.name, AttackName::AckSlowly | AttackName::FreezeAcks) {
            claim.next = later(claim.next, segment.ack);
        }
        if claim.next == segment.ack {
            return Seen::Nothing;
        }
        Seen::Rewritten(Segment { ack: claim.next, ..without_sack(segment.clone()) })
    }
}

/// The result for a segment.
enum Seen {
    Nothing,
    Swallowed,
    Rewritten(Segment),
}

impl Claim {
    /// When the next step of a slow acknowledgment is due, if there is more to acknowledge.
    fn due(&self) -> Option<Instant> {
        let slow = self.slow.as_ref()?;
        self.next.is_before(slow.latest.ack).then_some(slow.due)
    }
}

fn later(one: SeqNum, other: SeqNum) -> SeqNum {
    if one.is_before(other) { other } else { one }
}

/// All that the sender has sent but for its first segment: the blocks of a SACK option.
fn hole_behind(claim: &Claim, segment: &Segment) -> Option<[SeqNum; 2]> {
    let behind = claim.next + u32::from(segment.segment_size.max(1));
    behind.is_before(claim.sent).then_some([behind, claim.sent])
}

/// An acknowledgment from the receiver of `segment`.
fn forged(segment: &Segment, claim: &Claim, sack: Option<[SeqNum; 2]>) -> Segment {
    let mut options = Vec::new();
    for option in list(&segment.options).into_iter().filter(|option| option[0] == TIMESTAMPS) {
        // What it echoes is the receiver's latest.
        if let [kind, length, value @ ..] = &option[..]
            && let Some((value, echo)) = value.split_at_checked(4)
        {
            options.push([&[*kind, *length], echo, value].concat());
        }
    }
    if let Some([from, to]) = sack {
        options.push([&[SACK, 10][..], &from.bits().to_be_bytes(), &to.bits().to_be_bytes()].concat());
    }
    Segment {
        source: segment.destination,
        destination: segment.source,
        seq: segment.ack,
        ack: claim.next,
        window: claim.window.unwrap_or(WINDOW),
        options: join(&options),
        ..bare(segment)
    }
}

/// The same without payload and flags of an end.
fn bare_of(segment: &Segment) -> Segment {
    let seq = segment.seq + segment.payload.len() as u32;
    Segment { seq, options: segment.options.clone(), ..bare(segment) }
}

fn without_sack(segment: Segment) -> Segment {
    let mut options = list(&segment.options);
    options.retain(|option| option.first() != Some(&SACK));
    let options: OptionBytes = join(&options);
    Segment { options, ..segment }
}
