//! Invented subflows: the token of a connection is in clear in the SYN of each join.

use plait_base::{Duration, Instant, Random, SeededRandom, SeqNum};
use plait_wire::{Flags, Segment};
use std::net::SocketAddr;

use super::dropping::swallow;
use super::option_list::{join, list, subtype};
use super::{AttackName, Context, Mark, Outcome, Outgoing, Piece};
use crate::Direction;
use crate::packet::Frame;

/// Invented ports: below those that hosts give.
const PORTS: std::ops::Range<u16> = 1024..32_768;
/// Time between two inventions.
const EVERY: Duration = Duration::from_micros(2500);
/// Where the nonce of MP_JOIN lies in its SYN (RFC 8684, section 3.2).
const NONCE: std::ops::Range<usize> = 8..12;
/// The subtype of MP_JOIN.
const JOIN: u8 = 1;

/// A flood that goes on by itself.
struct Flood {
    example: Segment,
    flow: u32,
    due: Instant,
}

/// The flood of one path, once there is an example to follow.
#[derive(Default)]
pub(super) struct Floods(Option<Flood>);

impl Floods {
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.as_ref().map(|flood| flood.due)
    }

    /// The next invention that is due by `now`.
    pub(super) fn release(
        &mut self,
        now: Instant,
        random: &mut SeededRandom,
    ) -> Option<(Direction, Outgoing)> {
        let flood = self.0.as_mut().filter(|flood| flood.due <= now)?;
        flood.due += EVERY;
        let segment = invented(&flood.example, random)?;
        let what = format!("an invented MP_JOIN from port {}", segment.source.port());
        let mark = Mark { attack: AttackName::JoinFlood, flow: flood.flow, what };
        let packet = Outgoing { mark: Some(mark), ..Outgoing::untouched(Frame::from_segment(&segment)) };
        Some((Direction::ToServer, packet))
    }

    /// Learns from the first join; nobody is to hear of the answers to inventions.
    pub(super) fn watch(
        &mut self,
        segment: &Segment,
        context: &Context<'_>,
        outcome: &mut Outcome,
    ) -> Option<Vec<Piece>> {
        match context.direction {
            Direction::ToServer => {
                let is_join = list(&segment.options).iter().any(|option| subtype(option) == Some(JOIN));
                let is_first = segment.flags.contains(Flags::SYN) && self.0.is_none();
                if is_first && is_join {
                    let (example, flow) = (segment.clone(), context.flow.number);
                    self.0 = Some(Flood { example, flow, due: context.now });
                }
                None
            }
            Direction::ToClient => {
                let is_answer = self.0.is_some() && PORTS.contains(&segment.destination.port());
                is_answer.then(|| swallow(AttackName::JoinFlood, context, outcome))
            }
        }
    }
}

/// The SYN of a join that nobody has asked for.
fn invented(example: &Segment, random: &mut SeededRandom) -> Option<Segment> {
    let number = random.next_u64();
    let port = PORTS.start + (number % u64::from(PORTS.end - PORTS.start)) as u16;
    let mut options = list(&example.options);
    let mine = options.iter_mut().find(|option| subtype(option) == Some(JOIN))?;
    mine.get_mut(NONCE)?.copy_from_slice(&(number as u32).to_be_bytes());
    Some(Segment {
        source: SocketAddr::new(example.source.ip(), port),
        seq: SeqNum::new((number >> 32) as u32),
        options: join(&options),
        ..example.clone()
    })
}
