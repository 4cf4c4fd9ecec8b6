//! Floods of SYNs. The SYNs join invented subflows, since each join has the token of a connection in clear in its SYN, or come from
//! invented clients.

use plait_base::{Duration, Instant, Random, SeededRandom, SeqNum};
use plait_wire::{Flags, Segment};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::dropping::swallow;
use super::option_list::{join, list, subtype};
use super::{AttackName, Context, Mark, Outcome, Outgoing, Piece};
use crate::Direction;
use crate::packet::Frame;

/// Invented ports: below those that hosts give.
const PORTS: std::ops::Range<u16> = 1024..32_768;
/// The networks of invented clients, which belong to no host: for tests of devices (RFC 2544, a /15), and for documentation (RFC 3849, a
/// /32).
const CLIENTS_V4: u32 = 0xc612_0000;
const CLIENTS_V4_BITS: u32 = 17;
const CLIENTS_V6: u128 = 0x2001_0db8 << 96;
const CLIENTS_V6_BITS: u32 = 96;
/// The range of the nonce of MP_JOIN in its SYN (RFC 8684, section 3.2).
const NONCE: std::ops::Range<usize> = 8..12;
/// The subtype of MP_JOIN.
const JOIN: u8 = 1;

/// A flood that goes on by itself.
struct Flood {
    kind: Kind,
    example: Segment,
    flow: u32,
    /// Time between two inventions.
    every: Duration,
    due: Instant,
}

/// The sender of the invented SYNs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Further subflows of the connection that the example joins.
    Joins,
    /// Clients all over the world, each with a connection of its own.
    Clients,
}

impl Kind {
    const fn attack(self) -> AttackName {
        match self {
            Self::Joins => AttackName::JoinFlood,
            Self::Clients => AttackName::SynFlood,
        }
    }

    fn is_example(self, syn: &Segment) -> bool {
        let is_join = || list(&syn.options).iter().any(|option| subtype(option) == Some(JOIN));
        match self {
            Self::Joins => is_join(),
            Self::Clients => !is_join(),
        }
    }

    /// Whether this is where an invention said it was.
    fn is_invented(self, address: SocketAddr) -> bool {
        match (self, address.ip()) {
            (Self::Joins, _) => PORTS.contains(&address.port()),
            (Self::Clients, IpAddr::V4(ip)) => {
                ip.to_bits() >> CLIENTS_V4_BITS == CLIENTS_V4 >> CLIENTS_V4_BITS
            }
            (Self::Clients, IpAddr::V6(ip)) => {
                ip.to_bits() >> CLIENTS_V6_BITS == CLIENTS_V6 >> CLIENTS_V6_BITS
            }
        }
    }
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
        flood.due += flood.every;
        let (segment, what) = match flood.kind {
            Kind::Joins => {
                let segment = invented_join(&flood.example, random)?;
                let what = format!("an invented MP_JOIN from port {}", segment.source.port());
                (segment, what)
            }
            Kind::Clients => {
                let segment = invented_client(&flood.example, random);
                let what = format!("a SYN of an invented client, {}", segment.source);
                (segment, what)
            }
        };
        let mark = Mark { attack: flood.kind.attack(), flow: flood.flow, what };
        let packet = Outgoing { mark: Some(mark), ..Outgoing::untouched(Frame::from_segment(&segment)) };
        Some((Direction::ToServer, packet))
    }

    /// Learns from the first matching SYN, and drops it if it is a client's: the flood, a SYN in each `every`, is there before the client
    /// repeats it. Answers to invented SYNs must reach no host.
    pub(super) fn watch(
        &mut self,
        kind: Kind,
        every: Duration,
        segment: &Segment,
        context: &Context<'_>,
        outcome: &mut Outcome,
    ) -> Option<Vec<Piece>> {
        match context.direction {
            Direction::ToServer => {
                let is_first = segment.flags.contains(Flags::SYN) && self.0.is_none();
                if !is_first || !kind.is_example(segment) {
                    return None;
                }
                let (example, flow) = (segment.clone(), context.flow.number);
                self.0 = Some(Flood { kind, example, flow, every, due: context.now });
                (kind == Kind::Clients).then(|| swallow(kind.attack(), context, outcome))
            }
            Direction::ToClient => {
                let is_answer = self.0.is_some() && kind.is_invented(segment.destination);
                is_answer.then(|| swallow(kind.attack(), context, outcome))
            }
        }
    }
}

/// The SYN of an unsolicited join.
fn invented_join(example: &Segment, random: &mut SeededRandom) -> Option<Segment> {
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

/// The first SYN of a client that does not exist, from any address in unused networks.
fn invented_client(example: &Segment, random: &mut SeededRandom) -> Segment {
    let number = random.next_u64();
    let address = match example.source.ip() {
        IpAddr::V4(_) => {
            let host = random.next_u64() as u32 & ((1 << CLIENTS_V4_BITS) - 1);
            Ipv4Addr::from_bits(CLIENTS_V4 | host).into()
        }
        IpAddr::V6(_) => {
            let host = u128::from(random.next_u64()) << 32 | u128::from(number as u32);
            Ipv6Addr::from_bits(CLIENTS_V6 | host).into()
        }
    };
    let port = PORTS.start + (number % u64::from(PORTS.end - PORTS.start)) as u16;
    Segment {
        source: SocketAddr::new(address, port),
        seq: SeqNum::new((number >> 32) as u32),
        ..example.clone()
    }
}
