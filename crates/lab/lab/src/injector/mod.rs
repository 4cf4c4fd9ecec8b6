//! An attacker on the path: may change, delay, drop and forge packets, and knows only what crossed this path.
//!
//! Each armed attack waits for packets of its kind. A treated packet is split, one wire segment of it is treated, and the result goes on
//! over the link in place of the packet, with forged segments before or behind it. Packets without an attack pass untouched, byte by byte.

mod acknowledging;
mod attack;
mod delaying;
mod dropping;
mod editing;
mod flooding;
mod handshake;
mod log;
mod one_sided;
mod opening;
mod option_list;
mod outcome;
mod payload;
mod replay_buffer;
mod signal;
mod termination;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use plait_base::{Duration, Instant, SeededRandom};
use plait_wire::{Flags, Segment};

use crate::Direction;
use crate::flows::{Flow, Flows};
use crate::packet::{Frame, TcpView, part};

pub use attack::{Attack, AttackName, Expected, Run};
pub use log::{Injection, InjectionLog};
pub(crate) use outcome::{Cut, Mark, Outcome, Outgoing};

use acknowledging::Claims;
use attack::Target;
use delaying::Turns;
use flooding::{Floods, Kind};
use one_sided::OneSided;
use opening::Answers;
use replay_buffer::ReplayBuffer;
use termination::End;

/// Segments kept for replays. Old enough to be acknowledged, few enough to be forgotten.
const MAX_OLD: usize = 64;
/// Packets that overtake one that is held back.
const OVERTAKING: u32 = 8;
/// Longest time for which a packet is held back.
const HOLD: Duration = Duration::from_millis(50);

/// A segment on its way through the armed attacks.
struct Piece {
    segment: Segment,
    /// Set once an attack has treated it: others leave it alone.
    what: Option<(AttackName, String)>,
    delay: Duration,
}

/// The attack's view of the packet that it acts on.
struct Context<'a> {
    direction: Direction,
    flow: &'a Flow,
    flows: &'a Flows,
    now: Instant,
    /// When this attack has first acted; `now` if it has not.
    since: Instant,
    /// How often this attack has acted before.
    injections: u64,
}

struct Armed {
    attack: Attack,
    /// Acts once this much payload has passed.
    due: u64,
    injections: u64,
    /// When it first acted.
    since: Option<Instant>,
}

/// A segment held back.
struct Held {
    attack: AttackName,
    direction: Direction,
    flow: u32,
    segment: Segment,
    until: Instant,
    overtaken: u32,
}

/// The injector of one path.
pub(crate) struct Injector {
    armed: Vec<Armed>,
    /// Bytes of payload that have passed, both directions together.
    passed: u64,
    held: Option<Held>,
    old: VecDeque<(u32, Direction, Segment)>,
    replay_buffer: ReplayBuffer,
    claims: Claims,
    turns: Turns,
    floods: Floods,
    one_sided: OneSided,
    answers: Answers,
    end: End,
    random: SeededRandom,
    pub(crate) log: InjectionLog,
}

impl Injector {
    /// The injector of a path; `ends` has the ends that have gone by, and is the same for all paths of a lab.
    pub(crate) fn new(seed: u64, ends: Arc<AtomicU8>) -> Self {
        Self {
            armed: Vec::new(),
            passed: 0,
            held: None,
            old: VecDeque::new(),
            replay_buffer: ReplayBuffer::default(),
            claims: Claims::default(),
            turns: Turns::default(),
            floods: Floods::default(),
            one_sided: OneSided::default(),
            answers: Answers::default(),
            end: End::of(ends),
            random: SeededRandom::from_number(seed),
            log: InjectionLog::default(),
        }
    }

    pub(crate) fn arm(&mut self, attack: Attack) {
        self.armed.retain(|armed| !armed.is_spent());
        let due = self.passed.saturating_add(attack.after);
        self.armed.push(Armed { attack, due, injections: 0, since: None });
    }

    /// Calls off all attacks; what is held back still goes on.
    pub(crate) fn disarm(&mut self) {
        self.armed.clear();
        self.claims.clear();
        self.turns = Turns::default();
        self.floods.clear();
        self.one_sided.clear();
        self.answers = Answers::default();
        self.end.forget();
    }

    /// Attacks that may still act.
    pub(crate) fn armed(&self) -> impl Iterator<Item = &Attack> {
        self.armed.iter().filter(|armed| !armed.is_spent()).map(|armed| &armed.attack)
    }

    /// The queue of the path has dropped what this attack had made of a packet: that was no time of those that it is to act.
    pub(crate) fn on_dropped(&mut self, name: AttackName) {
        if let Some(armed) = self.armed.iter_mut().rfind(|armed| armed.attack.name == name) {
            armed.injections = armed.injections.saturating_sub(1);
        }
    }

    /// Whether packets have to pass through it at all.
    pub(crate) fn is_active(&self) -> bool {
        self.held.is_some() || self.armed.iter().any(|armed| !armed.is_spent())
    }

    /// When a packet held back goes on at the latest, or something forged is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let held = self.held.as_ref().map(|held| held.until);
        let others = [self.claims.deadline(), self.floods.deadline(), self.one_sided.deadline()];
        others.into_iter().chain([held]).flatten().min()
    }

    /// Returns a delayed packet that is due, or one that the injector sends by itself.
    pub(crate) fn release(&mut self, now: Instant) -> Option<(Direction, Outgoing)> {
        if let Some(held) = self.held.take_if(|held| held.until <= now) {
            return Some((held.direction, held.let_go("nothing overtook it in time")));
        }
        let released = self.claims.release(now).or_else(|| self.floods.release(now, &mut self.random));
        released.or_else(|| self.one_sided.release(now))
    }

    /// Treats a TCP packet; `frame` comes back in the outcome, or what became of it.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        direction: Direction,
        (flows, number): (&Flows, u32),
        frame: Frame,
    ) -> Outcome {
        let (Some(tcp), Some(flow)) = (frame.tcp(), flows.flow(number)) else { return untouched(frame) };
        self.passed = self.passed.saturating_add(tcp.payload().len() as u64);
        let is_awaited = self.held.as_ref().is_some_and(|held| held.direction == direction);
        let due = self.is_due(direction, flow, &tcp);
        if !due && !is_awaited {
            self.remember(direction, flow, &frame);
            return untouched(frame);
        }
        let Some(segment) = frame.to_segment() else { return untouched(frame) };
        self.remember(direction, flow, &frame);
        let mut outcome = Outcome::default();
        let mut pieces = vec![Piece::untouched(segment)];
        if due {
            let context = Context { direction, flow, flows, now, since: now, injections: 0 };
            pieces = self.inject(&context, pieces, &mut outcome);
        }
        if is_awaited {
            self.pass_held(direction, flow, &mut pieces, &mut outcome);
        }
        let packets = pieces.into_iter().map(|piece| piece.into_packet(flow.number));
        outcome.packets.extend(packets);
        outcome
    }

    fn is_due(&self, direction: Direction, flow: &Flow, tcp: &TcpView<'_>) -> bool {
        let sight = (tcp.flags(), tcp.payload().len());
        self.armed.iter().any(|armed| armed.is_due(self.passed, direction, flow, sight))
    }

    /// Keeps a copy of the first wire segment of a payload while a replay is armed, and all of it while that of all has not begun.
    fn remember(&mut self, direction: Direction, flow: &Flow, frame: &Frame) {
        let waits = |armed: &Armed| armed.attack.name == AttackName::ReplayAll && armed.injections == 0;
        if self.armed.iter().any(waits)
            && let Some(segment) = frame.to_segment().filter(|segment| !segment.payload.is_empty())
        {
            self.replay_buffer.keep(direction, segment);
        }
        let wanted = self.armed().any(|attack| attack.name == AttackName::Replay);
        if !wanted || frame.tcp().is_none_or(|tcp| tcp.payload().is_empty()) {
            return;
        }
        let Some(first) = frame.to_segment().and_then(|segment| segment.split().next()) else { return };
        if self.old.len() == MAX_OLD {
            self.old.pop_front();
        }
        self.old.push_back((flow.number, direction, first));
    }

    /// Lets every due attack have its turn.
    fn inject(&mut self, context: &Context<'_>, mut pieces: Vec<Piece>, outcome: &mut Outcome) -> Vec<Piece> {
        let Context { direction, flow, .. } = *context;
        let mut armed = std::mem::take(&mut self.armed);
        for one in &mut armed {
            let found = pieces.iter().position(|piece| {
                let sight = (piece.segment.flags, piece.segment.payload.len());
                piece.what.is_none() && one.is_due(self.passed, direction, flow, sight)
            });
            let Some(index) = found else { continue };
            let piece = pieces.remove(index);
            let since = one.since.unwrap_or(context.now);
            let context = Context { injections: one.injections, since, ..*context };
            let original = piece.segment.clone();
            let after = self.treat(&one.attack, &context, piece.segment, outcome);
            match after {
                Some(after) => {
                    one.injections += 1;
                    one.since = Some(since);
                    one.due = self.passed.saturating_add(one.attack.every);
                    pieces.splice(index..index, after);
                }
                // Nothing in it to attack, or not yet.
                None => pieces.insert(index, Piece::untouched(original)),
            }
        }
        self.armed = armed;
        pieces
    }

    /// Applies an attack to a segment; `None` if it finds nothing to do.
    fn treat(
        &mut self,
        attack: &Attack,
        context: &Context<'_>,
        segment: Segment,
        outcome: &mut Outcome,
    ) -> Option<Vec<Piece>> {
        match attack.name {
            AttackName::Flip => payload::flip(attack.name, segment),
            AttackName::Insert => payload::insert(segment),
            AttackName::Truncate => payload::truncate(segment),
            AttackName::Split => payload::split(segment),
            AttackName::Replay => payload::replay(segment, context, &self.old),
            AttackName::ReplayAll => self.replay_buffer.replay(context.direction, segment),
            AttackName::Reorder | AttackName::Merge => self.hold(attack.name, segment, context),
            AttackName::Rst => Some(termination::reset(segment)),
            AttackName::Fin => Some(termination::fin(segment)),
            AttackName::ForgeDss => signal::forge_mapping(segment),
            AttackName::ForgeAck
            | AttackName::AddAddr
            | AttackName::RemoveAddr
            | AttackName::Prio
            | AttackName::Fastclose
            | AttackName::DataFin => signal::forge(attack.name, segment, context, &mut self.random),
            AttackName::ReplayAddAddr
            | AttackName::ReplayRemoveAddr
            | AttackName::ReplayPrio
            | AttackName::ReplayFastclose
            | AttackName::ReplayDataFin
            | AttackName::ReplayAck
            | AttackName::ReplayDss => signal::replay(attack.name, segment, context),
            AttackName::Strip | AttackName::StripCapable | AttackName::StripEno => {
                handshake::strip(attack.name, segment)
            }
            AttackName::Downgrade => handshake::downgrade(segment),
            AttackName::RewriteTep => handshake::rewrite_tep(segment),
            AttackName::AddTep => handshake::add_tep(segment),
            AttackName::SynCrossing => opening::cross(segment, attack.direction, context, outcome),
            AttackName::SynAckBare => opening::strip_bare(segment, attack.direction),
            AttackName::SynAckThenSilence | AttackName::HandshakeThenSilence => {
                opening::fall_silent(attack, &segment, context, outcome)
            }
            AttackName::HandshakeAlteredAlways | AttackName::BlocksAlteredAlways => {
                opening::alter(attack.name, segment)
            }
            AttackName::SwallowAndAck
            | AttackName::AckEarly
            | AttackName::LieInSack
            | AttackName::AckSlowly
            | AttackName::FreezeAcks => self.claims.treat(attack, context, segment, outcome),
            AttackName::StripDataAck | AttackName::CloseWindow | AttackName::AgeEchoes => {
                editing::edit(attack, segment)
            }
            AttackName::DelayRamp
            | AttackName::DelayJump
            | AttackName::DelayByChance
            | AttackName::Throttle => {
                Some(self.turns.delay(attack, context, segment, &mut self.random, outcome))
            }
            AttackName::Silence | AttackName::Drop => Some(dropping::swallow(attack.name, context, outcome)),
            AttackName::Lose => dropping::lose(context, &mut self.random, outcome),
            AttackName::Multiply => Some(payload::multiply(segment)),
            AttackName::JoinFlood => {
                self.floods.watch(Kind::Joins, attack.time(), &segment, context, outcome)
            }
            AttackName::SynFlood => {
                self.floods.watch(Kind::Clients, attack.time(), &segment, context, outcome)
            }
            AttackName::ResetAtEnd | AttackName::DropEnds => {
                dropping::end(attack.name, &segment, context, outcome)
            }
            AttackName::ResetBothAtEnd | AttackName::CutBothAtEnd => {
                self.end.treat(attack, &segment, context, outcome)
            }
            AttackName::HalfReset | AttackName::CheckReplay | AttackName::HeldExchange => {
                self.one_sided.treat(attack, context, segment, outcome)
            }
            AttackName::SwallowAnswers => self.answers.swallow(context, outcome),
            AttackName::Cut | AttackName::CutAll => {
                let all_paths = attack.name == AttackName::CutAll;
                let what = format!("dead for {} ms", attack.time().as_millis());
                let mark = Mark { attack: attack.name, flow: context.flow.number, what };
                outcome.cut = Some(Cut { mark, lasting: attack.time(), all_paths });
                Some(vec![Piece::untouched(segment)])
            }
        }
    }

    /// Holds a wire segment back; the rest goes on.
    fn hold(&mut self, attack: AttackName, segment: Segment, context: &Context<'_>) -> Option<Vec<Piece>> {
        if self.held.is_some() {
            return None;
        }
        let count = segment.wire_segments();
        // To be overtaken by its own train, or joined with the next one.
        let index = if attack == AttackName::Merge { count - 1 } else { 0 };
        let held = part(&segment, index, index + 1)?;
        let before = part(&segment, 0, index);
        let behind = part(&segment, index + 1, count);
        let Context { direction, flow, flows: _, now, since: _, injections: _ } = context;
        self.held = Some(Held {
            attack,
            direction: *direction,
            flow: flow.number,
            segment: held,
            until: *now + HOLD,
            overtaken: (count - 1 - index) as u32,
        });
        Some(before.into_iter().chain(behind).map(Piece::untouched).collect())
    }

    /// Lets packets overtake the one held back, or joins it with the one that follows it.
    fn pass_held(
        &mut self,
        direction: Direction,
        flow: &Flow,
        pieces: &mut Vec<Piece>,
        outcome: &mut Outcome,
    ) {
        let Some(mut held) = self.held.take() else { return };
        if held.direction != direction {
            self.held = Some(held);
            return;
        }
        if held.attack == AttackName::Merge {
            let next = pieces.iter().position(|piece| payload::follows(&held.segment, &piece.segment));
            match next.filter(|_| held.flow == flow.number) {
                Some(index) => {
                    let second = pieces.remove(index).segment;
                    pieces.splice(index..index, payload::merge(held.segment, second));
                }
                // Retransmissions and the like pass; the partner may come yet.
                None => self.held = Some(held),
            }
            return;
        }
        held.overtaken += pieces.iter().map(|piece| piece.segment.wire_segments() as u32).sum::<u32>();
        if held.overtaken < OVERTAKING {
            self.held = Some(held);
            return;
        }
        let packets = pieces.drain(..).map(|piece| piece.into_packet(flow.number));
        outcome.packets.extend(packets);
        let overtaken = held.overtaken;
        outcome.packets.push(held.let_go(&format!("{overtaken} packets overtook it")));
    }
}

impl Armed {
    /// `sight`: flags and length of the payload.
    /// It has acted as often as it is to.
    fn is_spent(&self) -> bool {
        self.attack.count.is_some_and(|count| self.injections >= count)
    }

    fn is_due(&self, passed: u64, direction: Direction, flow: &Flow, sight: (Flags, usize)) -> bool {
        let (flags, payload) = sight;
        let is_syn = flags.contains(Flags::SYN);
        let Attack { name, direction: wanted, after: _, every: _, count: _, port, lasting: _ } = &self.attack;
        let fits = match name.target() {
            Target::Syn => is_syn,
            Target::Payload => !is_syn && payload > 0,
            Target::Established => !is_syn && !flags.contains(Flags::RST),
            Target::Any | Target::AnyBothWays => true,
            Target::BothWays => !is_syn && !flags.contains(Flags::RST),
        };
        let wanted = wanted.filter(|_| !matches!(name.target(), Target::BothWays | Target::AnyBothWays));
        fits && passed >= self.due
            && !self.is_spent()
            && wanted.is_none_or(|wanted| wanted == direction)
            && port.is_none_or(|port| port == flow.server_port)
    }
}

impl Held {
    fn let_go(self, why: &str) -> Outgoing {
        let what = format!("held back, {why}");
        let mark = Mark { attack: self.attack, flow: self.flow, what };
        Outgoing { mark: Some(mark), ..Outgoing::untouched(Frame::from_segment(&self.segment)) }
    }
}

impl Piece {
    fn untouched(segment: Segment) -> Self {
        Self { segment, what: None, delay: Duration::ZERO }
    }

    fn into_packet(self, flow: u32) -> Outgoing {
        let mark = self.what.map(|(attack, what)| Mark { attack, flow, what });
        Outgoing { frame: Frame::from_segment(&self.segment), mark, delay: self.delay }
    }

    fn treated(attack: AttackName, segment: Segment, what: impl Into<String>) -> Self {
        Self { segment, what: Some((attack, what.into())), delay: Duration::ZERO }
    }
}

fn untouched(frame: Frame) -> Outcome {
    Outcome { packets: vec![Outgoing::untouched(frame)], ..Outcome::default() }
}
