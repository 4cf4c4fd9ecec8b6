//! An attacker on one path that reads and writes any packet on it, keeps the state of its TCP connections, and knows no
//! key.

use plait_base::{Duration, Instant, Random, SeededRandom, SeqNum};
use plait_sim::{Direction, Element, Frame, Outlet};
use plait_tcp::FourTuple;
use plait_wire::{Flags, OptionBytes, Segment, TcpOption, option_bytes, options};
use std::collections::BTreeMap;

/// What becomes of data segments in the attacked direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Data {
    /// They pass.
    Pass,
    /// They are swallowed, with the acknowledgment in them.
    Swallow,
    /// They are swallowed; their header goes on without payload.
    Empty,
    /// Each so manieth is swallowed.
    DropEach(u64),
    /// Each so manieth has a byte changed, and the checksum mended.
    FlipEach(u64),
    /// They pass without MPTCP options.
    Strip,
    /// Each arrives so often.
    Repeat(u8),
    /// They pass through a rate of so many bytes a second, with room for a quarter of a second.
    Throttle(u64),
}

/// What becomes of the receiver's pure acknowledgments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Acks {
    /// They pass.
    Pass,
    /// They are swallowed.
    Swallow,
    /// They pass without MPTCP options, the Data-ACK among them.
    Strip,
    /// They offer no window.
    CloseWindow,
}

/// What is said in the receiver's name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Forged {
    /// Nothing.
    Nothing,
    /// All data is acknowledged when it is seen.
    All,
    /// One more segment is acknowledged in each period.
    Dribble(Duration),
}

/// What is held back, and how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Delay {
    /// Nothing.
    None,
    /// All by so much.
    Jump(Duration),
    /// All by more and more, up to so much after so long.
    Ramp(Duration, Duration),
    /// Each by a time of its own.
    Random(Duration),
    /// All until the end of a period, of which only the last part is open.
    Bursts(Duration),
}

/// The attack of one box.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Attack {
    pub(crate) data: Data,
    pub(crate) acks: Acks,
    pub(crate) forged: Forged,
    /// Of data.
    pub(crate) data_delay: Delay,
    /// Of pure acknowledgments.
    pub(crate) ack_delay: Delay,
}

impl Attack {
    pub(crate) const NONE: Self = Self {
        data: Data::Pass,
        acks: Acks::Pass,
        forged: Forged::Nothing,
        data_delay: Delay::None,
        ack_delay: Delay::None,
    };
}

/// What is known of one TCP connection.
#[derive(Clone, Debug)]
struct Seen {
    /// A segment of the receiver, to be imitated.
    reply: Option<Segment>,
    /// All data up to here was seen.
    data_end: Option<SeqNum>,
    /// Acknowledged in the receiver's name.
    forged: Option<SeqNum>,
    next_forged: Instant,
    /// Timestamp of the data seen last.
    stamp: u32,
}

/// The box. It stands beside the sender of the data that it attacks.
pub(crate) struct Attacker {
    attack: Attack,
    /// The direction of the data.
    direction: Direction,
    from: Instant,
    seen: BTreeMap<FourTuple, Seen>,
    count: u64,
    free_at: Instant,
    latest: [Instant; 2],
    random: SeededRandom,
    wakes_at: Option<Instant>,
}

const SEGMENT: u32 = 1400;

impl Attacker {
    pub(crate) fn new(attack: Attack, direction: Direction, from: Instant) -> Self {
        Self {
            attack,
            direction,
            from,
            seen: BTreeMap::new(),
            count: 0,
            free_at: from,
            latest: [from; 2],
            random: SeededRandom::from_number(7),
            wakes_at: None,
        }
    }

    fn take_data(&mut self, now: Instant, segment: Segment, out: &mut Outlet) {
        self.note_data(now, &segment);
        self.count += 1;
        let is_due = |each: u64| self.count.is_multiple_of(each);
        let kept = match self.attack.data {
            Data::Pass | Data::Repeat(_) | Data::Throttle(_) => Some(segment),
            Data::Swallow => None,
            Data::Empty => {
                let end = segment.seq;
                Some(Segment {
                    payload: bytes::Bytes::new(),
                    seq: end,
                    options: stripped(&segment),
                    ..segment
                })
            }
            Data::DropEach(each) if is_due(each) => None,
            Data::FlipEach(each) if is_due(each) => {
                let mut payload = segment.payload.to_vec();
                let middle = payload.len() / 2;
                payload[middle] ^= 0x20;
                Some(Segment { payload: payload.into(), ..segment })
            }
            Data::DropEach(_) | Data::FlipEach(_) => Some(segment),
            Data::Strip => Some(Segment { options: stripped(&segment), ..segment }),
        };
        let Some(segment) = kept else { return };
        let mut at = self.delayed(now, self.attack.data_delay, 0);
        if let Data::Throttle(rate) = self.attack.data {
            let starts = self.free_at.max(now);
            if starts > now + Duration::from_millis(250) {
                return;
            }
            self.free_at = starts + Duration::from_micros(segment.payload.len() as u64 * 1_000_000 / rate);
            at = self.free_at;
        }
        let copies = if let Data::Repeat(copies) = self.attack.data { copies } else { 1 };
        for _ in 0..copies {
            out.push(at, self.direction, Frame::of_segment(&segment));
        }
    }

    fn note_data(&mut self, now: Instant, segment: &Segment) {
        let tuple = FourTuple { local: segment.source, remote: segment.destination };
        let seen = self.seen.entry(tuple).or_insert_with(|| Seen::new(now));
        let end = segment.seq + segment.len_seq();
        if seen.data_end.is_none_or(|known| known.is_before(end)) {
            seen.data_end = Some(end);
        }
        seen.forged = seen.forged.or(Some(segment.seq));
        seen.stamp = stamp_of(segment).unwrap_or(seen.stamp);
    }

    /// Says what is to be said in the receiver's name.
    fn forge(&mut self, now: Instant, out: &mut Outlet) {
        let forged = self.attack.forged;
        let mut next: Option<Instant> = None;
        for seen in self.seen.values_mut() {
            let (Some(end), Some(told), Some(reply)) = (seen.data_end, seen.forged, &seen.reply) else {
                continue;
            };
            if !told.is_before(end) {
                continue;
            }
            let to = match forged {
                Forged::Nothing => continue,
                Forged::All => end,
                Forged::Dribble(_) if seen.next_forged > now => {
                    next = Some(next.map_or(seen.next_forged, |at| at.min(seen.next_forged)));
                    continue;
                }
                Forged::Dribble(period) => {
                    seen.next_forged = now + period;
                    next = Some(next.map_or(seen.next_forged, |at| at.min(seen.next_forged)));
                    let one_more = told + SEGMENT;
                    if one_more.is_before(end) { one_more } else { end }
                }
            };
            seen.forged = Some(to);
            let ack = acknowledging(reply, to, seen.stamp);
            out.push(now, self.direction.reversed(), Frame::of_segment(&ack));
        }
        if let Some(at) = next
            && self.wakes_at.is_none_or(|set| set <= now || set > at)
        {
            self.wakes_at = Some(at);
            out.wake_at(at);
        }
    }

    fn take_ack(&mut self, now: Instant, segment: Segment, out: &mut Outlet) {
        let segment = match self.attack.acks {
            Acks::Swallow => return,
            Acks::Pass => segment,
            Acks::Strip => Segment { options: stripped(&segment), ..segment },
            Acks::CloseWindow => Segment { window: 0, ..segment },
        };
        let at = self.delayed(now, self.attack.ack_delay, 1);
        out.push(at, self.direction.reversed(), Frame::of_segment(&segment));
    }

    fn delayed(&mut self, now: Instant, delay: Delay, lane: usize) -> Instant {
        let since = now.saturating_since(self.from);
        let at = match delay {
            Delay::None => return now,
            Delay::Random(most) => {
                return now + most.mul_f64(self.random.below(1000) as f64 / 1000.0);
            }
            Delay::Jump(by) => now + by,
            Delay::Ramp(most, over) => {
                now + most.mul_f64((since.as_secs_f64() / over.as_secs_f64()).min(1.0))
            }
            Delay::Bursts(period) => {
                let into = Duration::from_micros((since.as_micros() % period.as_micros()) as u64);
                if into > period * 9 / 10 { now } else { now + (period * 9 / 10 - into) }
            }
        };
        self.latest[lane] = self.latest[lane].max(at);
        self.latest[lane]
    }
}

impl Seen {
    fn new(now: Instant) -> Self {
        Self { reply: None, data_end: None, forged: None, next_forged: now, stamp: 0 }
    }
}

impl Element for Attacker {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let Some(segment) = frame.segment() else { return out.push(now, direction, frame) };
        if direction != self.direction && !segment.flags.contains(Flags::SYN) {
            let tuple = FourTuple { local: segment.destination, remote: segment.source };
            let seen = self.seen.entry(tuple).or_insert_with(|| Seen::new(now));
            seen.reply = Some(Segment {
                payload: bytes::Bytes::new(),
                seq: segment.seq + segment.len_seq(),
                ..segment.clone()
            });
        }
        let is_pure_ack = segment.payload.is_empty() && segment.flags == Flags::ACK;
        if now < self.from {
            if direction == self.direction && !segment.payload.is_empty() {
                self.note_data(now, &segment);
                let tuple = FourTuple { local: segment.source, remote: segment.destination };
                if let Some(seen) = self.seen.get_mut(&tuple) {
                    // What the receiver is about to acknowledge itself.
                    seen.forged = seen.data_end;
                }
            }
            out.push(now, direction, frame);
        } else if direction == self.direction && !segment.payload.is_empty() {
            self.take_data(now, segment, out);
            self.forge(now, out);
        } else if direction != self.direction && is_pure_ack {
            self.take_ack(now, segment, out);
        } else {
            out.push(now, direction, frame);
        }
    }

    fn wake(&mut self, now: Instant, out: &mut Outlet) {
        self.forge(now, out);
    }
}

/// A pure acknowledgment like those that the receiver sends, without any option of MPTCP.
fn acknowledging(reply: &Segment, ack: SeqNum, echo: u32) -> Segment {
    let stamp = options(&reply.options).flatten().find_map(|option| match option {
        TcpOption::Timestamps { value, echo: _ } => Some(value),
        _ => None,
    });
    let stamps = stamp.map(|value| TcpOption::Timestamps { value, echo });
    let options = option_bytes(stamps).unwrap_or_default();
    Segment { ack, flags: Flags::ACK, options, ..reply.clone() }
}

fn stamp_of(segment: &Segment) -> Option<u32> {
    options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Timestamps { value, echo: _ } => Some(value),
        _ => None,
    })
}

/// The options without MPTCP's.
fn stripped(segment: &Segment) -> OptionBytes {
    let kept = options(&segment.options).flatten().filter(|option| !matches!(option, TcpOption::Mptcp(_)));
    option_bytes(kept).unwrap_or_default()
}
