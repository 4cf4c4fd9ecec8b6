//! Subflows that live at one end only: the attacker resets one end of each join, and answers for that end at the other one.
//!
//! The attacker uses only the TCP that it has seen: sequence numbers, windows, timestamps. The end that is reset joins again after a while,
//! and the other end has one more subflow each time.

use std::collections::BTreeMap;

use plait_base::{Duration, Instant, SeqNum};
use plait_wire::{Flags, MpJoin, MptcpOption, Segment, TcpOption, options};

use super::option_list::{MPTCP, TIMESTAMPS, join, list};
use super::termination::{bare, reset_of};
use super::{Attack, AttackName, Context, Mark, Outcome, Outgoing, Piece};
use crate::Direction;
use crate::packet::Frame;

/// Between two repetitions of a tagged option.
const REPETITION: Duration = Duration::from_secs(1);
/// How long a tagged option is waited for on a subflow before it is attacked without one.
const NO_TAG: Duration = Duration::from_secs(3);
/// Further answers that are taken away before the one that is held goes on: one more than the exchanges that an end keeps (64).
const ANSWERS_TAKEN: u32 = 65;
/// Room for a share of the keys, 1268 bytes and a nonce perhaps, and for no block behind it, 33 bytes at least (docs/protocol.md, sections 4
/// and 7).
const ROOM_FOR_SHARE: u16 = 1300;
/// The subtype of MP_EXPERIMENTAL, and its low bits where a share of the keys begins. All others are tagged.
const EXPERIMENTAL: u8 = 0xf;
const SHARE: u8 = 1;
/// The largest shift of a window (RFC 7323, section 2.3).
const MAX_SHIFT: u8 = 14;

/// The joins that one path has seen.
#[derive(Default)]
pub(super) struct OneSided {
    joins: BTreeMap<u32, Join>,
    held: Option<Held>,
}

/// One join, as it crosses the path.
struct Join {
    stage: Stage,
    /// The last segment of each end, by [`Direction::index`].
    said: [Option<Said>; 2],
    /// Since its first SYN.
    since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The third segment has not gone by.
    Begun,
    /// It has; the fourth has not.
    Proved,
    /// Both ends have it.
    Complete,
    /// The end that these segments come from was reset, and what it would say is forged.
    OneSided(Direction),
    /// Both ends have ended it.
    Over,
}

/// The state in the last segment of an end.
struct Said {
    /// Behind all that was let through.
    next: SeqNum,
    /// The latest of it that was let through, without payload and with its timestamps alone.
    latest: Segment,
    at: Instant,
    /// Window scale of its SYN.
    shift: u8,
    /// The options of its latest tagged segment without payload.
    tagged: Option<Vec<Vec<u8>>>,
    /// When that is repeated.
    repeated_at: Option<Instant>,
}

/// An answer to an offer of keys that is held back.
struct Held {
    flow: u32,
    answer: Segment,
    taken: u32,
    /// It goes on then, or once enough others were taken away.
    until: Instant,
    is_released: bool,
}

/// The low bits of an experimental option, if there is one.
fn experimental(segment: &Segment) -> Option<u8> {
    options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Unknown { subtype: EXPERIMENTAL, low_bits, .. }) => Some(low_bits),
        _ => None,
    })
}

fn join_option(segment: &Segment) -> Option<MpJoin> {
    options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Join(join)) => Some(join),
        _ => None,
    })
}

impl OneSided {
    pub(super) fn clear(&mut self) {
        self.joins.clear();
        self.held = None;
    }

    /// When something goes out by itself.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held.as_ref().filter(|held| !held.is_released).map(|held| held.until);
        let repeated = self.joins.values().filter_map(Join::repetition).map(|(_, at)| at);
        repeated.chain(held).min()
    }

    /// Returns a segment that is due by `now`, and its direction.
    pub(super) fn release(&mut self, now: Instant) -> Option<(Direction, Outgoing)> {
        if self.held.as_ref().is_some_and(|held| !held.is_released && held.until <= now) {
            return self.let_go(now);
        }
        let due = |join: &Join| join.repetition().is_some_and(|(_, at)| at <= now);
        let (&flow, join) = self.joins.iter_mut().find(|(_, join)| due(join))?;
        let (voice, _) = join.repetition()?;
        let example = join.said[voice.index()].as_mut()?;
        example.repeated_at = Some(now + REPETITION);
        let forged = join.forged(voice, now)?;
        let what = "the last tagged option again".to_owned();
        Some((voice, outgoing(&forged, AttackName::CheckReplay, flow, what)))
    }

    /// The held answer goes on, with the timestamps of the moment.
    fn let_go(&mut self, now: Instant) -> Option<(Direction, Outgoing)> {
        let held = self.held.as_mut()?;
        held.is_released = true;
        let (flow, voice) = (held.flow, Direction::ToServer);
        let of = self.joins.get_mut(&flow)?;
        let model = of.forged(voice, now)?;
        let mut kept = list(&held.answer.options);
        kept.retain(|option| option.first() != Some(&TIMESTAMPS));
        let stamps = list(&model.options).into_iter().filter(|option| option.first() == Some(&TIMESTAMPS));
        let options = join(&stamps.chain(kept).collect::<Vec<_>>());
        let answer = Segment { ack: model.ack, options, ..held.answer.clone() };
        of.pass(voice, &answer, now);
        let what = format!("the held answer goes on; {} others were taken away", held.taken);
        Some((voice, outgoing(&answer, AttackName::HeldExchange, flow, what)))
    }

    /// Treats a segment of a join; others pass.
    pub(super) fn treat(
        &mut self,
        attack: &Attack,
        context: &Context<'_>,
        segment: Segment,
        outcome: &mut Outcome,
    ) -> Option<Vec<Piece>> {
        let Context { direction, flow, now, .. } = *context;
        let is_first_syn = direction == Direction::ToServer && segment.flags.contains(Flags::SYN);
        if is_first_syn && matches!(join_option(&segment), Some(MpJoin::Syn { .. })) {
            self.joins.entry(flow.number).or_insert_with(|| Join::new(now));
        }
        let join = self.joins.get_mut(&flow.number)?;
        let mut segment = segment;
        if attack.victim() != direction {
            join.narrow(direction, &mut segment);
        }
        match join.stage {
            Stage::Begun | Stage::Proved | Stage::Complete => {}
            Stage::OneSided(voice) if voice == direction => return Some(Vec::new()),
            Stage::OneSided(voice) => {
                join.answer((attack.name, flow.number), (voice, &segment), now, outcome);
                return Some(Vec::new());
            }
            Stage::Over => return Some(Vec::new()),
        }
        if attack.name == AttackName::HeldExchange {
            if direction == Direction::ToServer && is_share(&segment) && join.stage == Stage::Complete {
                return Some(self.take_answer(attack, context, &segment, outcome));
            }
        } else if let Some(pieces) = join.strike(attack, context, &segment, outcome) {
            return Some(pieces);
        }
        join.progress(direction, &segment);
        join.pass(direction, &segment, now);
        Some(vec![Piece::untouched(segment)])
    }

    /// The first answer is held and its sender reset; those of later joins are taken away, and both ends reset.
    fn take_answer(
        &mut self,
        attack: &Attack,
        context: &Context<'_>,
        answer: &Segment,
        outcome: &mut Outcome,
    ) -> Vec<Piece> {
        let Context { flow, now, .. } = *context;
        let Some(join) = self.joins.get_mut(&flow.number) else { return Vec::new() };
        let (there, back) = reset_of(answer);
        let back = Segment { seq: join.next(Direction::ToClient).unwrap_or(back.seq), ..back };
        let Some(held) = &mut self.held else {
            let (held, until) = (answer.clone(), now + attack.time());
            self.held = Some(Held { flow: flow.number, answer: held, taken: 0, until, is_released: false });
            join.stage = Stage::OneSided(Direction::ToServer);
            join.shut(Direction::ToServer);
            let what = "reset of the sender of an answer that is held".to_owned();
            outcome.back.push(outgoing(&back, attack.name, flow.number, what));
            return join.in_place(attack.name, Direction::ToServer, now);
        };
        held.taken += 1;
        if held.taken >= ANSWERS_TAKEN {
            held.until = held.until.min(now);
        }
        join.stage = Stage::Over;
        let what = || "reset of both ends in place of an answer".to_owned();
        outcome.back.push(outgoing(&back, attack.name, flow.number, what()));
        vec![Piece::treated(attack.name, there, what())]
    }
}

impl Join {
    fn new(now: Instant) -> Self {
        Self { stage: Stage::Begun, said: [None, None], since: now }
    }

    fn next(&self, direction: Direction) -> Option<SeqNum> {
        self.said[direction.index()].as_ref().map(|said| said.next)
    }

    /// When the tagged option of the reset end is repeated, and in which direction.
    fn repetition(&self) -> Option<(Direction, Instant)> {
        let Stage::OneSided(voice) = self.stage else { return None };
        Some((voice, self.said[voice.index()].as_ref()?.repeated_at?))
    }

    /// How far the join has come.
    fn progress(&mut self, direction: Direction, segment: &Segment) {
        let is_third = matches!(join_option(segment), Some(MpJoin::Ack { .. }));
        let is_syn = segment.flags.contains(Flags::SYN);
        self.stage = match (self.stage, direction) {
            (Stage::Begun, Direction::ToServer) if is_third => Stage::Proved,
            (Stage::Proved, Direction::ToClient) if !is_syn => Stage::Complete,
            (stage, _) => stage,
        };
    }

    /// A segment is let through.
    fn pass(&mut self, direction: Direction, segment: &Segment, now: Instant) {
        let end = segment.seq + segment.len_seq();
        let place = &mut self.said[direction.index()];
        let said = place.get_or_insert_with(|| Said {
            next: end,
            latest: bare(segment),
            at: now,
            shift: window_scale(segment),
            tagged: None,
            repeated_at: None,
        });
        said.next = if said.next.is_before(end) { end } else { said.next };
        (said.latest, said.at) = (bare(segment), now);
        if segment.payload.is_empty() && experimental(segment).is_some_and(|what| what != SHARE) {
            let mut tagged = list(&segment.options);
            tagged.retain(|option| option.first() == Some(&MPTCP));
            said.tagged = Some(tagged);
        }
    }

    /// Leaves the end that goes on room for a share of the keys, and for no block: it is to miss nothing.
    fn narrow(&self, direction: Direction, segment: &mut Segment) {
        let is_syn = segment.flags.contains(Flags::SYN);
        let shift = self.said[direction.index()].as_ref().map_or(0, |said| said.shift);
        let room = if is_syn { ROOM_FOR_SHARE } else { (ROOM_FOR_SHARE >> shift) + 1 };
        segment.window = segment.window.min(room);
    }

    /// What the end that was reset says from now on has no room for anything.
    fn shut(&mut self, voice: Direction) {
        if let Some(said) = &mut self.said[voice.index()] {
            said.latest.window = 0;
        }
    }

    /// Resets one end once the join is complete at both, or not at all.
    fn strike(
        &mut self,
        attack: &Attack,
        context: &Context<'_>,
        segment: &Segment,
        outcome: &mut Outcome,
    ) -> Option<Vec<Piece>> {
        let Context { direction, flow, now, .. } = *context;
        let victim = attack.victim();
        let voice = victim.opposite();
        let is_half_seen = self.next(Direction::ToClient).is_none() && self.stage == Stage::Proved;
        let is_struck = match attack.name {
            // One end's segments take another path: that end can be reset, and the attacker cannot answer for it.
            _ if is_half_seen => direction == Direction::ToServer,
            _ if self.stage != Stage::Complete || direction != Direction::ToServer => false,
            AttackName::CheckReplay => {
                let has_tag = self.said[voice.index()].as_ref().is_some_and(|said| said.tagged.is_some());
                has_tag || now.saturating_since(self.since) >= NO_TAG
            }
            _ => true,
        };
        if !is_struck || segment.flags.contains(Flags::RST) {
            return None;
        }
        // The segment goes no further: its receiver expects what it begins with.
        let (there, back) = reset_of(segment);
        let (flow, name) = (flow.number, attack.name);
        let back = Segment { seq: self.next(Direction::ToClient).unwrap_or(back.seq), ..back };
        let there = Segment { seq: self.next(Direction::ToServer).unwrap_or(there.seq), ..there };
        if is_half_seen {
            self.stage = Stage::Over;
            let what = "reset: the other half takes another path".to_owned();
            outcome.back.push(outgoing(&back, name, flow, what));
            return Some(Vec::new());
        }
        self.stage = Stage::OneSided(voice);
        self.shut(voice);
        if name == AttackName::CheckReplay
            && let Some(said) = self.said[voice.index()].as_mut().filter(|said| said.tagged.is_some())
        {
            said.repeated_at = Some(now + REPETITION);
        }
        let what = format!("reset of one end of a join, the {}", victim_name(victim));
        if victim == Direction::ToClient {
            outcome.back.push(outgoing(&back, name, flow, what));
            return Some(self.in_place(name, voice, now));
        }
        // The client goes on, and hears that this segment has arrived.
        self.answer((name, flow), (voice, segment), now, outcome);
        Some(vec![Piece::treated(name, there, what)])
    }

    /// What goes on in place of the segment that the end was reset for: the end that goes on waits for nothing.
    fn in_place(&self, name: AttackName, voice: Direction, now: Instant) -> Vec<Piece> {
        let what = "a forged acknowledgment in its place";
        self.forged(voice, now).map(|forged| Piece::treated(name, forged, what)).into_iter().collect()
    }

    /// Acknowledges a segment of the end that goes on, in the name of the one that was reset.
    fn answer(
        &mut self,
        (name, flow): (AttackName, u32),
        (voice, segment): (Direction, &Segment),
        now: Instant,
        outcome: &mut Outcome,
    ) {
        let kept = voice.opposite();
        if segment.flags.contains(Flags::RST) {
            self.stage = Stage::Over;
            return;
        }
        let is_probe = self.next(kept).is_some_and(|next| segment.seq.is_before(next));
        self.pass(kept, segment, now);
        if segment.len_seq() == 0 && !is_probe {
            return;
        }
        let Some(forged) = self.forged(voice, now) else { return };
        let what = format!("acknowledges {} in the name of the end that was reset", forged.ack.bits());
        outcome.back.push(outgoing(&forged, name, flow, what));
    }

    /// What the end that was reset would say now: that all has arrived.
    fn forged(&self, voice: Direction, now: Instant) -> Option<Segment> {
        let (own, other) =
            (self.said[voice.index()].as_ref()?, self.said[voice.opposite().index()].as_ref()?);
        let mut options = Vec::new();
        if let (Some((value, _)), Some((echo, _))) = (stamps(&own.latest), stamps(&other.latest)) {
            let passed = now.saturating_since(own.at).as_millis() as u32;
            options.push(timestamps(value.wrapping_add(passed), echo));
        }
        if own.repeated_at.is_some() {
            options.extend(own.tagged.iter().flatten().cloned());
        }
        Some(Segment { seq: own.next, ack: other.next, options: join(&options), ..own.latest.clone() })
    }
}

/// Whether the payload of a segment is a share of the keys.
fn is_share(segment: &Segment) -> bool {
    !segment.payload.is_empty() && experimental(segment) == Some(SHARE)
}

fn window_scale(segment: &Segment) -> u8 {
    let scale = |option| match option {
        TcpOption::WindowScale(shift) => Some(shift),
        _ => None,
    };
    options(&segment.options).flatten().find_map(scale).unwrap_or_default().min(MAX_SHIFT)
}

fn stamps(segment: &Segment) -> Option<(u32, u32)> {
    options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Timestamps { value, echo } => Some((value, echo)),
        _ => None,
    })
}

fn timestamps(value: u32, echo: u32) -> Vec<u8> {
    [&[TIMESTAMPS, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

impl Attack {
    /// Leads to the end that is reset.
    fn victim(&self) -> Direction {
        let is_about_client = self.name == AttackName::HeldExchange;
        self.direction.filter(|_| !is_about_client).unwrap_or(Direction::ToClient)
    }
}

fn victim_name(victim: Direction) -> &'static str {
    match victim {
        Direction::ToClient => "client",
        Direction::ToServer => "server",
    }
}

fn outgoing(segment: &Segment, attack: AttackName, flow: u32, what: String) -> Outgoing {
    let mark = Mark { attack, flow, what };
    Outgoing { mark: Some(mark), ..Outgoing::untouched(Frame::from_segment(segment)) }
}

#[cfg(test)]
mod tests;
