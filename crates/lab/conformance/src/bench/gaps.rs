//! The cost of a single strike for the reader: the longest time without a byte around it, over many connections, and the same for the
//! kernel's Multipath TCP.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plait_bench::{PathModel, Spread};
use plait_lab::{Attack, AttackName, Direction, Program};

use super::{PATH, Place, times, times_table};
use crate::attacks::cases::{Outcome, TIMEOUT, outcome};
use crate::attacks::exchange::{self, Arrived, Load};
use crate::attacks::fixture::{Fixture, Side};
use crate::attacks::peer::{self, Layer};

/// Bytes each way, and payload on the attacked path before the strike.
const SIZE: u64 = 5_000_000;
const BEFORE: u64 = 2_000_000;
/// A gap that begins later than this after the strike has another cause.
const AROUND: Duration = Duration::from_secs(1);
/// Time without a byte after which a connection of the kernel's counts as stalled for good.
const PATIENCE: Duration = Duration::from_secs(15);
/// Goals, in milliseconds.
const MEDIAN: f64 = 200.0;
const HIGH: f64 = 400.0;

/// The target of a strike.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    /// A sealed connection: one byte of one block is changed.
    Plait,
    /// The kernel's Multipath TCP: one subflow is reset, because it would accept the changed byte.
    Kernel,
}

impl System {
    const fn strike(self) -> AttackName {
        match self {
            Self::Plait => AttackName::Flip,
            Self::Kernel => AttackName::Rst,
        }
    }
}

/// The gaps of one strike.
struct Gaps {
    /// The longest around the strike; `None`: the connection stood still for good.
    around: Option<Duration>,
    /// The longest before it.
    before: Duration,
}

impl super::System for System {
    type Figure = Gaps;
    const ALL: &[Self] = &[Self::Plait, Self::Kernel];

    fn name(self) -> &'static str {
        match self {
            Self::Plait => "plait, sealed, a byte flipped",
            Self::Kernel => "the kernel's MPTCP, a subflow reset",
        }
    }

    fn prepare(self, fixture: &Fixture<'_>) -> Result<()> {
        match self {
            Self::Plait => Ok(()),
            Self::Kernel => Ok(fixture.lab.enable_kernel_mptcp()?),
        }
    }

    fn measure(self, fixture: &Fixture<'_>) -> Result<Gaps> {
        strike(fixture, self)
    }
}

/// Strikes this many connections of both systems; returns false if the sealed ones miss a goal.
pub(super) fn run(place: &Place<'_>, strikes: NonZeroU32) -> Result<bool> {
    let PathModel { rate, round_trip, .. } = PATH;
    println!("{strikes} strikes each on one of two paths of {rate} Mbit/s and {round_trip} ms");
    let table = times_table();
    println!("{}", table.head(""));
    let mut is_met = true;
    for (system, gaps) in super::take_turns::<System>(place, strikes)? {
        let around = Spread::of_times(gaps.iter().map(|gaps| gaps.around)).context("no strikes")?;
        let before = Spread::of_times(gaps.iter().map(|gaps| Some(gaps.before))).context("no strikes")?;
        let stalled = gaps.iter().filter(|gaps| gaps.around.is_none()).count();
        let stalled = if stalled > 0 { format!(", {stalled} stood still for good") } else { String::new() };
        let remark = format!("{:.1} ms before the strike{stalled}", before.median);
        println!("{}", table.row(super::System::name(system), times(&around), &remark));
        if system == System::Plait {
            is_met = around.median < MEDIAN && around.percentile(95) < HIGH;
        }
    }
    let verdict = if is_met { "met" } else { "MISSED" };
    println!("goal of the sealed: median under {MEDIAN} ms, 95 % under {HIGH} ms: {verdict}");
    Ok(is_met)
}

fn programs(fixture: &Fixture<'_>, system: System) -> Result<[Program; 2]> {
    match system {
        System::Plait => {
            let server = fixture.listen(&[])?;
            Ok([fixture.connect(&Fixture::PATHS, &[])?, server])
        }
        System::Kernel => {
            let server = peer::start(fixture, Side::Server, Layer::Nothing, SIZE)?;
            Ok([peer::start(fixture, Side::Client, Layer::Nothing, SIZE)?, server])
        }
    }
}

/// One connection and one strike.
fn strike(fixture: &Fixture<'_>, system: System) -> Result<Gaps> {
    let path = fixture.path("b")?;
    let [mut client, mut server] = programs(fixture, system)?;
    let log = path.injections()?.total;
    path.attack(Attack::new(system.strike()).towards(Direction::ToServer).after(BEFORE))?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(SIZE))?;
    let patience = if system == System::Plait { TIMEOUT } else { PATIENCE };
    let exchange = running.finish(&mut client, &mut server, patience)?;
    path.call_off()?;
    match outcome(&exchange, SIZE) {
        Outcome::Equal => {}
        Outcome::Error(_) | Outcome::Hung(_) if system == System::Kernel => {
            return Ok(Gaps { around: None, before: Duration::ZERO });
        }
        Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => bail!("{text}"),
    }
    let injections = path.injections()?;
    ensure!(injections.total == log + 1, "{} strikes in place of one", injections.total - log);
    let struck = injections.entries.last().context("the log is full")?.at;
    // The log counts from the start of the lab.
    let ago = fixture.lab.elapsed().saturating_sub(struck);
    let at = Instant::now().checked_sub(ago).context("before the clock began")?;
    Ok(longest(&exchange.up, at))
}

/// The longest gap that was open at the strike or began soon after it, and the longest one that was over before.
fn longest(arrived: &Arrived, strike: Instant) -> Gaps {
    let longest = |gaps: &mut dyn Iterator<Item = Duration>| gaps.max().unwrap_or_default();
    let is_around = |end: Instant, gap: Duration| {
        end >= strike && end.checked_sub(gap).is_none_or(|begin| begin <= strike + AROUND)
    };
    let gaps = &arrived.gaps;
    let around = longest(&mut gaps.iter().filter(|(end, gap)| is_around(*end, *gap)).map(|(_, gap)| *gap));
    let before = longest(&mut gaps.iter().filter(|(end, _)| *end < strike).map(|(_, gap)| *gap));
    Gaps { around: Some(around), before }
}
