//! The attacker: on one path, without any key, with an alphabet of a few actions at a few kinds of segments.
//!
//! A decision is taken when the first segment of a kind of a subflow is seen. It binds that *turn*: the first subflow over the
//! path has its own decisions, and all later ones share theirs. So an attack that takes 66 joins is two decisions, not 66.

use core::fmt;
use plait_base::{Duration, Instant};
use plait_wire::Segment;
use std::collections::{BTreeMap, BTreeSet};

use crate::segments::{Kind, Side, Voice};

/// The attacker's action on a segment, and on later ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Action {
    Pass,
    /// This one is lost. What repeats it passes.
    Drop,
    /// This one and all later ones of its side are lost.
    Silence,
    /// This one and all later ones of its side arrive so much later.
    Hold(Duration),
    /// This one is kept for the end, and a side gets a reset. In the name of this side the attacker acknowledges what the other
    /// one says.
    KeepAndCut(Side),
    /// The same, and the segment is lost.
    Cut(Side),
    /// It is lost, and both sides get a reset.
    CutBoth,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("passes"),
            Self::Drop => f.write_str("dropped once"),
            Self::Silence => f.write_str("swallowed, with all that follows from this side"),
            Self::Hold(time) => {
                write!(f, "held back for {} s, with all that follows from this side", time.as_secs_f64())
            }
            Self::KeepAndCut(side) => {
                write!(f, "kept; RST to the {side:?}, in whose name forged ACKs keep the other end alive")
            }
            Self::Cut(side) => {
                write!(f, "dropped; RST to the {side:?}, in whose name forged ACKs keep the other end alive")
            }
            Self::CutBoth => f.write_str("dropped; RST to both ends"),
        }
    }
}

/// Which subflow over the attacked path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Turn {
    First,
    Later,
}

/// A point of decision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Slot {
    pub(crate) turn: Turn,
    pub(crate) from: Side,
    pub(crate) kind: Kind,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {}", self.turn, self.from, self.kind)
    }
}

/// One direction of a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    Open,
    Silent,
    HeldUntil(Instant),
}

/// The state of a subflow after the attacker's actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Open,
    /// One side has been reset, and the attacker answers the other one.
    Kept(Side),
    Over,
}

/// Names a subflow over the attacked path: the port of the client, and the server.
pub(crate) type FlowName = (u16, usize);

/// A subflow over the attacked path.
pub(crate) struct Flow {
    /// In the order of their SYNs, from 0.
    pub(crate) number: usize,
    pub(crate) lanes: [Lane; 2],
    pub(crate) life: Life,
    pub(crate) voices: [Option<Voice>; 2],
    met: BTreeSet<(Side, Kind)>,
    /// Segments that are kept for the end.
    pub(crate) kept: Vec<(Side, Segment)>,
    /// The first of each kind.
    pub(crate) recorded: BTreeMap<(Side, Kind), Segment>,
    /// Segments that a trace has shown: what repeats one is not shown again.
    pub(crate) shown: BTreeSet<(Side, u32, Kind)>,
    pub(crate) forged_at: Option<Instant>,
    pub(crate) forged: usize,
}

impl Flow {
    fn new(number: usize) -> Self {
        Self {
            number,
            lanes: [Lane::Open; 2],
            life: Life::Open,
            voices: [None, None],
            met: BTreeSet::new(),
            kept: Vec::new(),
            recorded: BTreeMap::new(),
            shown: BTreeSet::new(),
            forged_at: None,
            forged: 0,
        }
    }

    pub(crate) fn turn(&self) -> Turn {
        if self.number == 0 { Turn::First } else { Turn::Later }
    }

    /// Notes what is seen of a segment; whether it is the first of its kind.
    pub(crate) fn see(&mut self, now: Instant, from: Side, kind: Kind, segment: &Segment) -> bool {
        self.voices[from.index()].get_or_insert_with(|| Voice::new(now, segment)).hear(segment);
        self.recorded.entry((from, kind)).or_insert_with(|| segment.clone());
        self.met.insert((from, kind))
    }

    pub(crate) fn let_through(&mut self, now: Instant, from: Side, segment: &Segment) {
        if let Some(voice) = &mut self.voices[from.index()] {
            voice.let_through(now, segment);
        }
    }

    /// Both voices, that of `side` first, if both have been heard.
    pub(crate) fn both(&self, side: Side) -> Option<(&Voice, &Voice)> {
        self.voices[side.index()].as_ref().zip(self.voices[side.other().index()].as_ref())
    }

    /// Describes the state that can affect later events.
    fn describe(&self, now: Instant) -> Option<String> {
        if self.life == Life::Over && self.kept.is_empty() {
            return None;
        }
        let lanes = self.lanes.map(|lane| match lane {
            Lane::Open => "open".to_owned(),
            Lane::Silent => "silent".to_owned(),
            Lane::HeldUntil(until) => format!("held {}", until.saturating_since(now).as_secs()),
        });
        let kept: Vec<_> = self.kept.iter().map(|(side, segment)| (side, Kind::of(segment))).collect();
        Some(format!("{:?} {:?} {lanes:?} {:?} {kept:?}", self.turn(), self.life, self.met))
    }
}

/// The attacker's memory.
#[derive(Default)]
pub(crate) struct Attacker {
    pub(crate) flows: BTreeMap<FlowName, Flow>,
    /// The decisions so far.
    pub(crate) decided: BTreeMap<Slot, Action>,
    /// Lets everything pass from now on, but answers for those that it keeps.
    pub(crate) has_stopped: bool,
}

impl Attacker {
    pub(crate) fn flow(&mut self, name: FlowName) -> &mut Flow {
        let number = self.flows.len();
        self.flows.entry(name).or_insert_with(|| Flow::new(number))
    }

    /// Describes the part of its memory that can affect later events.
    pub(crate) fn describe(&self, now: Instant) -> String {
        let mut flows: Vec<_> = self.flows.values().filter_map(|flow| flow.describe(now)).collect();
        flows.sort();
        let first_is_alive = self.flows.values().any(|flow| flow.number == 0 && flow.life != Life::Over);
        let decided = self.decided.iter().filter(|(slot, _)| first_is_alive || slot.turn == Turn::Later);
        format!("flows {flows:?} decided {:?} later {}", decided.collect::<Vec<_>>(), self.flows.len() > 1)
    }
}
