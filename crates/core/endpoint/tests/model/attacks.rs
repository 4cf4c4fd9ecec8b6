//! The attacker's actions on segments.

use plait_base::Duration;
use plait_wire::{Flags, Segment};

use crate::attacker::{Action, Flow, FlowName, Lane, Life, Slot};
use crate::segments::{Kind, Side};
use crate::world::{CLIENT, DELAY, World, arrow};

/// Forged acknowledgments of one subflow are at least so far apart, so that two hosts that answer each other do not stop time.
const FORGING_PAUSE: Duration = Duration::from_millis(100);
/// Subflows over the attacked path that a trace shows.
const TOLD: usize = 3;

impl World<'_> {
    /// A segment comes to the attacker on its way to the host `to`.
    pub(crate) fn meet(&mut self, from: Side, to: usize, segment: Segment) {
        let kind = Kind::of(&segment);
        let name = self.name_of(from, &segment);
        let now = self.now;
        let has_stopped = self.attacker.has_stopped;
        let flow = self.attacker.flow(name);
        let is_first = flow.see(now, from, kind, &segment);
        let (lane, life) = (flow.lanes[from.index()], flow.life);
        let slot = Slot { turn: flow.turn(), from, kind };
        match (life, lane) {
            (Life::Over, _) | (Life::Open, Lane::Silent) if !has_stopped => {}
            (Life::Kept(alive), _) => self.answer(name, alive, from, to, &segment),
            (Life::Open, Lane::HeldUntil(until)) if until > now => self.fly(until + DELAY, to, segment),
            (Life::Open | Life::Over, Lane::Open | Lane::Silent | Lane::HeldUntil(_)) => {
                let options =
                    if has_stopped || !is_first { &[Action::Pass][..] } else { (self.setup.alphabet)(slot) };
                let action = self.decide_once(slot, options);
                self.note(name, from, &segment, action);
                self.act(name, from, to, segment, action);
            }
        }
    }

    /// What was decided for this point, or is now. `options` has one where there is nothing to decide.
    fn decide_once(&mut self, slot: Slot, options: &[Action]) -> Action {
        if options.len() <= 1 {
            return Action::Pass;
        }
        if let Some(&action) = self.attacker.decided.get(&slot) {
            return action;
        }
        let action = self.decide(options, &slot.to_string());
        self.attacker.decided.insert(slot, action);
        action
    }

    fn act(&mut self, name: FlowName, from: Side, to: usize, segment: Segment, action: Action) {
        let now = self.now;
        match action {
            Action::Pass => {
                let flow = self.attacker.flow(name);
                flow.let_through(now, from, &segment);
                if segment.flags.contains(Flags::RST) {
                    flow.life = Life::Over;
                }
                self.fly(now + DELAY, to, segment);
            }
            Action::Drop => {}
            Action::Silence => self.attacker.flow(name).lanes[from.index()] = Lane::Silent,
            Action::Hold(time) => {
                self.attacker.flow(name).lanes[from.index()] = Lane::HeldUntil(now + time);
                self.fly(now + time + DELAY, to, segment);
            }
            Action::KeepAndCut(side) => {
                self.attacker.flow(name).kept.push((from, segment));
                self.cut(name, side, Life::Kept(side.other()));
            }
            Action::Cut(side) => self.cut(name, side, Life::Kept(side.other())),
            Action::CutBoth => {
                self.cut(name, from, Life::Over);
                self.cut(name, from.other(), Life::Over);
            }
        }
    }

    /// Resets a side of a subflow.
    fn cut(&mut self, name: FlowName, side: Side, life: Life) {
        let flow = self.attacker.flow(name);
        flow.life = life;
        let Some((voice, other)) = flow.both(side.other()) else { return };
        let reset = voice.reset(other);
        let to = self.receiver(&reset);
        self.fly(self.now + DELAY, to, reset);
        // The side that is kept alive hears from the other one at once.
        if let Life::Kept(alive) = life {
            self.forge(name, alive);
        }
    }

    /// A subflow of which one side lives only: what that one says is acknowledged, nothing arrives.
    fn answer(&mut self, name: FlowName, alive: Side, from: Side, to: usize, segment: &Segment) {
        if from != alive || to != self.receiver(segment) {
            return;
        }
        if segment.flags.contains(Flags::RST) {
            let path = self.setup.attacked;
            self.tell(|| {
                format!(
                    "path {path}  {} RST for a subflow that the attacker has kept alive",
                    arrow(alive, name.1)
                )
            });
            self.attacker.flow(name).life = Life::Over;
            return;
        }
        let now = self.now;
        let flow = self.attacker.flow(name);
        if flow.forged_at.is_none_or(|at| at + FORGING_PAUSE <= now) {
            self.forge(name, alive);
        }
    }

    /// Acknowledges the segments of the side that lives.
    fn forge(&mut self, name: FlowName, alive: Side) {
        let now = self.now;
        let flow = self.attacker.flow(name);
        let Some((voice, other)) = flow.both(alive.other()) else { return };
        let ack = voice.acknowledgment(now, other);
        (flow.forged_at, flow.forged) = (Some(now), flow.forged + 1);
        let (number, forged) = (flow.number, flow.forged);
        let to = self.receiver(&ack);
        if number < TOLD && forged <= 2 {
            let path = self.setup.attacked;
            self.tell(|| format!("path {path}  subflow {number}: forged ACK to the {alive:?}"));
        }
        self.fly(now + DELAY, to, ack);
    }

    /// Lets the kept segments arrive.
    pub(crate) fn release(&mut self) {
        let now = self.now;
        let mut flights = Vec::new();
        for flow in self.attacker.flows.values_mut() {
            for (from, mut segment) in core::mem::take(&mut flow.kept) {
                let Some((voice, other)) = flow.both(from) else { continue };
                voice.freshen(now, &mut segment, other);
                flights.push((flow.number, from, segment));
            }
        }
        for (number, from, segment) in flights {
            self.tell(|| {
                format!(
                    "the attacker lets go of what it has kept: {} of subflow {number}",
                    Kind::of(&segment)
                )
            });
            let to = self.receiver(&segment);
            debug_assert_eq!(to == CLIENT, from == Side::Server);
            self.fly(now + DELAY, to, segment);
        }
    }

    /// The first recorded segment of this kind arrives again, with timestamps and an acknowledgment of now, which nothing protects.
    pub(crate) fn replay(&mut self, from: Side, kind: Kind) {
        let now = self.now;
        let recorded = |flow: &Flow| {
            let mut segment = flow.recorded.get(&(from, kind)).cloned()?;
            if let (Some((voice, other)), false) = (flow.both(from), segment.flags.contains(Flags::SYN)) {
                voice.freshen(now, &mut segment, other);
            }
            Some(segment)
        };
        let mut flows: Vec<_> = self.attacker.flows.values().collect();
        flows.sort_by_key(|flow| flow.number);
        let Some(segment) = flows.into_iter().find_map(recorded) else { return };
        self.tell(|| format!("the attacker plays again: {kind} of the {from:?}"));
        let to = self.receiver(&segment);
        self.fly(now + DELAY, to, segment);
    }

    /// Whether anything of this kind was recorded.
    pub(crate) fn has_recorded(&self, from: Side, kind: Kind) -> bool {
        self.attacker.flows.values().any(|flow| flow.recorded.contains_key(&(from, kind)))
    }

    fn note(&mut self, name: FlowName, from: Side, segment: &Segment, action: Action) {
        let kind = Kind::of(segment);
        let flow = self.attacker.flow(name);
        let number = flow.number;
        let is_new = flow.shown.insert((from, segment.seq.bits(), kind));
        if !is_new && action == Action::Pass
            || number >= TOLD
            || matches!(kind, Kind::Ack | Kind::Tagged) && action == Action::Pass
        {
            return;
        }
        let (length, path) = (segment.payload.len(), self.setup.attacked);
        let server = name.1;
        self.tell(|| {
            let arrow = arrow(from, server);
            format!("path {path}  subflow {number}: {arrow} {kind}, {length} bytes: {action}")
        });
    }

    /// The subflow of a segment.
    fn name_of(&self, from: Side, segment: &Segment) -> FlowName {
        match from {
            Side::Client => (segment.source.port(), self.receiver(segment)),
            Side::Server => (segment.destination.port(), self.sender(segment)),
        }
    }
}
