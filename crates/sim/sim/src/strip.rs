//! Boxes that strip options or drop segments with them.

use plait_base::Instant;
use plait_wire::{Flags, MptcpOption, OptionBytes, Segment, TcpOption, options, pad_options};

use crate::{Direction, Element, Frame, Outlet};

/// The segments that a box acts on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// SYN.
    Syn,
    /// SYN/ACK.
    SynAck,
    /// Everything that is neither.
    Later,
    /// Segments with payload.
    Data,
    /// All.
    Always,
}

impl Moment {
    /// Whether `segment` is one of them.
    pub fn includes(self, segment: &Segment) -> bool {
        let (syn, ack) = (segment.flags.contains(Flags::SYN), segment.flags.contains(Flags::ACK));
        match self {
            Self::Syn => syn && !ack,
            Self::SynAck => syn && ack,
            Self::Later => !syn,
            Self::Data => !syn && !segment.payload.is_empty(),
            Self::Always => true,
        }
    }
}

/// A box that removes options from segments: MPTCP's, or those of another kind.
pub struct Stripper {
    direction: Option<Direction>,
    moment: Moment,
    kind: u8,
    /// `None`: all of that kind.
    subtype: Option<u8>,
    since: Instant,
}

/// Kind of MPTCP options.
const MPTCP: u8 = 30;

impl Stripper {
    /// Removes all options of kind 30.
    pub fn all(moment: Moment) -> Self {
        Self::kind(moment, MPTCP)
    }

    /// Removes all options of this kind.
    pub fn kind(moment: Moment, kind: u8) -> Self {
        Self { direction: None, moment, kind, subtype: None, since: Instant::ZERO }
    }

    /// Removes options of kind 30 with this subtype.
    pub fn subtype(moment: Moment, subtype: u8) -> Self {
        Self { subtype: Some(subtype), ..Self::all(moment) }
    }

    /// Only in this direction.
    #[must_use]
    pub fn only(self, direction: Direction) -> Self {
        Self { direction: Some(direction), ..self }
    }

    /// Only from this moment on.
    #[must_use]
    pub fn since(self, since: Instant) -> Self {
        Self { since, ..self }
    }

    fn takes(&self, option: &TcpOption<'_>) -> bool {
        let of_subtype = match option {
            TcpOption::Mptcp(option) => self.subtype.is_none_or(|subtype| subtype == subtype_of(option)),
            TcpOption::Mss(_)
            | TcpOption::WindowScale(_)
            | TcpOption::SackPermitted
            | TcpOption::Sack(_)
            | TcpOption::Timestamps { .. }
            | TcpOption::Eno(_)
            | TcpOption::Unknown { .. } => true,
        };
        option.kind() == self.kind && of_subtype
    }
}

impl Element for Stripper {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let applies = now >= self.since && self.direction.is_none_or(|only| only == direction);
        let frame = match frame.segment() {
            Some(segment) if applies && self.moment.includes(&segment) => {
                let options = keep_options(&segment, |option| !self.takes(option));
                Frame::of_segment(&Segment { options, ..segment })
            }
            Some(_) | None => frame,
        };
        out.push(now, direction, frame);
    }
}

/// A box that silently drops segments with an MPTCP option.
pub struct Firewall {
    /// The segments that it acts on.
    pub moment: Moment,
}

impl Element for Firewall {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let is_mptcp = |segment: &Segment| {
            options(&segment.options).flatten().any(|option| matches!(option, TcpOption::Mptcp(_)))
        };
        if !frame.segment().is_some_and(|segment| self.moment.includes(&segment) && is_mptcp(&segment)) {
            out.push(now, direction, frame);
        }
    }
}

/// The options of `segment` that `keep` accepts.
fn keep_options(segment: &Segment, keep: impl Fn(&TcpOption<'_>) -> bool) -> OptionBytes {
    let mut kept = OptionBytes::new();
    for option in options(&segment.options).flatten().filter(keep) {
        let fits = option.emit(&mut kept);
        assert!(fits, "what was in the header fits there again");
    }
    pad_options(&mut kept);
    kept
}

/// The subtype number (RFC 8684, table 2).
fn subtype_of(option: &MptcpOption<'_>) -> u8 {
    match option {
        MptcpOption::Capable(_) => 0,
        MptcpOption::Join(_) => 1,
        MptcpOption::Dss(_) => 2,
        MptcpOption::AddAddr(_) => 3,
        MptcpOption::RemoveAddr(_) => 4,
        MptcpOption::Prio(_) => 5,
        MptcpOption::Fail(_) => 6,
        MptcpOption::FastClose(_) => 7,
        MptcpOption::Reset(_) => 8,
        MptcpOption::Unknown { subtype, .. } => *subtype,
    }
}
