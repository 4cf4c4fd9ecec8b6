//! Segments as an attacker on the path reads and forges them: without any key.

use bytes::Bytes;
use core::fmt;
use plait_base::{Duration, Instant, SeqNum};
use plait_wire::{Flags, MpJoin, MptcpOption, OptionBytes, Segment, TcpOption, option_bytes, options};

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }
}

/// The kind of a segment as the attacker sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// The SYN of a first subflow.
    Syn,
    SynAck,
    /// The SYN of a join.
    JoinSyn,
    JoinSynAck,
    /// The third segment of a join, with the HMAC.
    JoinAck,
    /// Bytes of the handshake.
    Handshake,
    /// PATHKEY: bytes that no mapping covers, announced by an option.
    PathKey,
    /// A block of control records alone.
    ControlBlock,
    /// A block with bytes of the application.
    DataBlock,
    /// An option with a tag, without payload: a pure Data-ACK.
    Tagged,
    /// An acknowledgment of TCP.
    Ack,
    Fin,
    Reset,
}

impl Kind {
    /// Reads a segment.
    pub(crate) fn of(segment: &Segment) -> Self {
        let has = |wanted: fn(&MptcpOption<'_>) -> bool| {
            options(&segment.options)
                .flatten()
                .any(|option| matches!(option, TcpOption::Mptcp(option) if wanted(&option)))
        };
        let is_join = has(|option| matches!(option, MptcpOption::Join(_)));
        match (segment.flags.contains(Flags::SYN), segment.flags.contains(Flags::ACK)) {
            (true, false) if is_join => return Self::JoinSyn,
            (true, false) => return Self::Syn,
            (true, true) if is_join => return Self::JoinSynAck,
            (true, true) => return Self::SynAck,
            (false, _) if segment.flags.contains(Flags::RST) => return Self::Reset,
            (false, _) => {}
        }
        if has(|option| matches!(option, MptcpOption::Join(MpJoin::Ack { .. }))) {
            return Self::JoinAck;
        }
        let is_mapped = has(|option| matches!(option, MptcpOption::Dss(dss) if dss.mapping.is_some()));
        match segment.payload.first() {
            Some(_) if has(is_path_key) => Self::PathKey,
            // The first two bits of a block say whether it has control records alone (docs/protocol.md, section 4).
            Some(first) if is_mapped && first >> 6 == 0b10 => Self::ControlBlock,
            Some(_) if is_mapped => Self::DataBlock,
            Some(_) => Self::Handshake,
            None if segment.flags.contains(Flags::FIN) => Self::Fin,
            None if has(is_tagged) => Self::Tagged,
            None => Self::Ack,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syn => "SYN",
            Self::SynAck => "SYN/ACK",
            Self::JoinSyn => "SYN of a join",
            Self::JoinSynAck => "SYN/ACK of a join",
            Self::JoinAck => "third segment of a join",
            Self::Handshake => "handshake bytes",
            Self::PathKey => "PATHKEY",
            Self::ControlBlock => "control block",
            Self::DataBlock => "data block",
            Self::Tagged => "tagged option",
            Self::Ack => "ACK",
            Self::Fin => "FIN",
            Self::Reset => "RST",
        })
    }
}

fn is_path_key(option: &MptcpOption<'_>) -> bool {
    matches!(option, MptcpOption::Unknown { subtype: 0xf, low_bits: 1, .. })
}

fn is_tagged(option: &MptcpOption<'_>) -> bool {
    matches!(option, MptcpOption::Unknown { subtype: 0xf, low_bits, .. } if *low_bits != 1)
}

/// The state of one side of a subflow that the attacker needs to forge its segments.
#[derive(Clone)]
pub(crate) struct Voice {
    /// The last segment that the attacker let through, or the first of all.
    model: Segment,
    /// When it was sent.
    at: Instant,
    /// The sequence number behind all that the attacker let through.
    passed: SeqNum,
    /// The sequence number behind all that the side has said.
    said: SeqNum,
    /// The last timestamp of the side.
    stamp: u32,
}

impl Voice {
    pub(crate) fn new(now: Instant, first: &Segment) -> Self {
        let mut new = Self { model: first.clone(), at: now, passed: first.seq, said: first.seq, stamp: 0 };
        new.hear(first);
        new
    }

    /// Notes a segment of the side.
    pub(crate) fn hear(&mut self, segment: &Segment) {
        self.said = later(self.said, segment.seq + space(segment));
        self.stamp = stamps(segment).map_or(self.stamp, |(value, _)| value);
    }

    /// The attacker has let it through.
    pub(crate) fn let_through(&mut self, now: Instant, segment: &Segment) {
        self.passed = later(self.passed, segment.seq + space(segment));
        (self.model, self.at) = (segment.clone(), now);
    }

    /// Returns a forged reset from this side, at the sequence number that the other side expects.
    pub(crate) fn reset(&self, other: &Self) -> Segment {
        Segment {
            seq: self.passed,
            ack: other.said,
            flags: Flags::RST.with(Flags::ACK),
            options: OptionBytes::new(),
            payload: Bytes::new(),
            ..self.model.clone()
        }
    }

    /// An acknowledgment in the name of this side for all that the other one has said. The window is shut, so that the other
    /// side gives the subflow nothing to carry.
    pub(crate) fn acknowledgment(&self, now: Instant, other: &Self) -> Segment {
        let mut ack = Segment {
            seq: self.passed,
            flags: Flags::ACK,
            window: 0,
            payload: Bytes::new(),
            ..self.model.clone()
        };
        let kept = options(&self.model.options).flatten();
        let kept = kept.filter(|option| matches!(option, TcpOption::Timestamps { .. }));
        ack.options = option_bytes(kept).expect("one option fits");
        self.freshen(now, &mut ack, other);
        ack
    }

    /// Brings an old segment of this side up to date: its timestamps and what it acknowledges.
    pub(crate) fn freshen(&self, now: Instant, segment: &mut Segment, other: &Self) {
        let Some((value, _)) = stamps(&self.model) else { return };
        // Timestamps of plait count milliseconds.
        let passed = now.saturating_since(self.at).max(Duration::ZERO).as_millis() as u32;
        restamp(segment, value.wrapping_add(passed), other.stamp);
        segment.ack = other.said;
    }
}

/// The sequence space of a segment. What the SYN of a join carries takes none (docs/protocol.md, section 4).
fn space(segment: &Segment) -> u32 {
    if segment.flags.contains(Flags::SYN) { 1 } else { segment.len_seq() }
}

fn later(one: SeqNum, other: SeqNum) -> SeqNum {
    if (other.bits().wrapping_sub(one.bits()) as i32) > 0 { other } else { one }
}

fn stamps(segment: &Segment) -> Option<(u32, u32)> {
    options(&segment.options).flatten().find_map(|option| {
        if let TcpOption::Timestamps { value, echo } = option { Some((value, echo)) } else { None }
    })
}

fn restamp(segment: &mut Segment, value: u32, echo: u32) {
    let all = options(&segment.options).flatten().map(|option| match option {
        TcpOption::Timestamps { .. } => TcpOption::Timestamps { value, echo },
        other => other,
    });
    segment.options = option_bytes(all).expect("as long as before");
}
