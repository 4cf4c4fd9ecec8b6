//! The cases, by what they are about.

pub(crate) mod control;
pub(crate) mod eavesdropper;
pub(crate) mod ends;
pub(crate) mod every_path;
pub(crate) mod first_contact;
pub(crate) mod flood;
pub(crate) mod instances;
pub(crate) mod interference;
pub(crate) mod kernel_tls;
pub(crate) mod liveness;
pub(crate) mod memory;
pub(crate) mod negotiation;
pub(crate) mod one_path;
pub(crate) mod opening;
pub(crate) mod outage;
pub(crate) mod records;
pub(crate) mod shares;

use std::time::Duration;

use anyhow::{Result, bail};
use plait_lab::{Attack, AttackName, Direction, Expected};

use crate::attacks::exchange::{Arrived, Exchange};

/// Longest time in which nothing moves before a program is taken for dead: longer than any of plait's own timeouts.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(150);
/// Injections, about, while a transfer lasts on a path that carries half of it.
const INJECTIONS: u64 = 256;

/// The attacks of which this is expected.
pub(crate) fn expected_to(expected: Expected) -> impl Iterator<Item = AttackName> {
    AttackName::ALL.iter().copied().filter(move |name| name.expected() == expected)
}

/// Bytes of payload on the attacked path before the first attack in a transfer of `size` bytes: the handshake is over, and all paths
/// carry.
pub(crate) fn before(size: u64) -> u64 {
    (size / 32).max(1 << 20)
}

/// An attack again and again during a transfer of `size` bytes each way.
pub(crate) fn repeated(name: AttackName, size: u64) -> Attack {
    let attack = Attack::new(name).after(before(size));
    match name {
        // A middlebox that strips options strips them all.
        AttackName::Strip => attack,
        AttackName::Cut => attack.every(size / 8).lasting(Duration::from_millis(300)),
        AttackName::CutAll => attack.every(size / 4).lasting(Duration::from_millis(500)),
        _ => attack.every(size / INJECTIONS),
    }
}

/// How a transfer of `size` bytes each way ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Every byte at both ends.
    Equal,
    /// An error reported to the side that missed bytes; its text.
    Error(String),
    /// A side got bytes that were never sent there, or an end of the stream before its end.
    Deceived(String),
    /// No end.
    Hung(String),
}

/// Judges what arrived and what the programs said, of a transfer of `size` bytes each way.
pub(crate) fn outcome(exchange: &Exchange, size: u64) -> Outcome {
    outcome_of(exchange, [size; 2])
}

/// The same where so much was sent up and so much down.
pub(crate) fn outcome_of(exchange: &Exchange, sizes: [u64; 2]) -> Outcome {
    let Exchange { up, down, client, server, time: _, ended_at: _, hung } = exchange;
    let ends = [("the server", up, server, sizes[0]), ("the client", down, client, sizes[1])];
    for (end, arrived, _, _) in &ends {
        if let Some(place) = arrived.first_wrong {
            return Outcome::Deceived(format!("wrong bytes: {end} got another byte at place {place}"));
        }
    }
    if *hung {
        return Outcome::Hung(format!("{} and {} bytes arrived, then nothing", up.bytes, down.bytes));
    }
    for (end, arrived, ending, size) in &ends {
        let missing = size - arrived.bytes;
        if missing > 0 && ending.code == Some(0) {
            return Outcome::Deceived(format!("a false end: {missing} bytes missing and {end} was not told"));
        }
    }
    let is_equal = up.is_equal && down.is_equal;
    let failed = ends.iter().find(|(_, arrived, _, size)| arrived.bytes < *size);
    let failed = failed.or_else(|| ends.iter().find(|(_, _, ending, _)| ending.code != Some(0)));
    match failed {
        None if is_equal => Outcome::Equal,
        // The places agree, so the sums do.
        None => Outcome::Deceived("the sums differ".to_owned()),
        Some((end, arrived, ending, size)) => {
            let code = ending.code.map_or_else(|| "a signal".to_owned(), |code| format!("exit {code}"));
            let missing = size - arrived.bytes;
            Outcome::Error(format!("{end} ended with {code}, {missing} bytes missing: {}", ending.said))
        }
    }
}

/// Longest gap each way.
pub(crate) fn gaps(exchange: &Exchange) -> String {
    let millis = |arrived: &Arrived| arrived.longest_gap.as_millis();
    format!("longest gap {}/{} ms", millis(&exchange.up), millis(&exchange.down))
}

/// When the injector of a path injected first and last, and how often, by its own log. An error if never.
pub(crate) struct Injections {
    pub(crate) count: u64,
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

impl Injections {
    pub(crate) fn on(path: &plait_lab::Path, name: AttackName) -> Result<Self> {
        let log = path.injections()?;
        let mine = || log.entries.iter().filter(|entry| entry.attack == name);
        let (Some(first), Some(last)) = (mine().next(), mine().next_back()) else {
            bail!("{name} never reached the wire on path {}", path.name())
        };
        Ok(Self { count: log.total, first: first.at, last: last.at })
    }

    pub(crate) fn words(&self) -> String {
        format!("injected {} times", self.count)
    }
}

/// A subflow that is wholly on a path, both ways, has lived from before the first attack elsewhere to the last one. Others may have been there: an
/// attempt to open the connection that another was faster than.
///
/// Between a client's address on one path and a server's on the other, packets take one path there and the other back: such
/// subflows are on both.
pub(crate) fn lived(path: &plait_lab::Path, injections: &Injections) -> Result<String> {
    /// A subflow may have nothing to carry for a moment.
    const PAUSE: Duration = Duration::from_millis(500);
    let name = path.name();
    let samples = path.series()?.samples;
    let carried = |flow: u32, direction: Direction| {
        let mut mine =
            samples.iter().filter(move |sample| (sample.flow, sample.direction) == (flow, direction));
        Some((mine.next()?.at, mine.next_back()?.at))
    };
    let mut why = format!("no subflow was wholly on path {name}");
    for flow in 1..=path.summary()?.flows {
        let (Some(up), Some(down)) = (carried(flow, Direction::ToServer), carried(flow, Direction::ToClient))
        else {
            continue;
        };
        if up.0.min(down.0) >= injections.first {
            why = format!("no subflow of path {name} was there before the first attack");
        } else if up.1.max(down.1) + PAUSE <= injections.last {
            why = format!(
                "the subflow on path {name} carried nothing after {:?}; the last attack was at {:?}",
                up.1.max(down.1),
                injections.last
            );
        } else {
            return Ok(format!("subflow on {name} lived"));
        }
    }
    bail!(why)
}
