//! The cost of a single strike for the reader: the longest time without a byte around it, over many connections, and the same for the
//! kernel's Multipath TCP.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName, Conditions, Direction, Program};

use super::case::{Context, Settings};
use super::cases::{Outcome, TIMEOUT, outcome};
use super::exchange::{self, Arrived, Load};
use super::fixture::{Fixture, Listening, Side};
use super::peer::{self, Layer};
use super::times::percentile;

/// Rate of each path and direction, and the one-way delay: a round trip of 20 ms.
const MEGABITS: u64 = 25;
const DELAY_MS: u64 = 10;
/// Bytes each way, and payload on the attacked path before the strike.
const SIZE: u64 = 5_000_000;
const BEFORE: u64 = 2_000_000;
/// A gap that begins later than this after the strike has another cause.
const AROUND: Duration = Duration::from_secs(1);
/// Time without a byte after which a connection of the kernel's counts as stalled for good, and the length of its gap.
const PATIENCE: Duration = Duration::from_secs(15);
const NEVER: Duration = Duration::MAX;
/// Goals.
const MEDIAN: Duration = Duration::from_millis(200);
const HIGH: Duration = Duration::from_millis(400);

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

    const fn name(self) -> &'static str {
        match self {
            Self::Plait => "plait, sealed, a byte flipped",
            Self::Kernel => "the kernel's MPTCP, a subflow reset",
        }
    }
}

/// Strikes this many connections of both systems; returns false if the sealed ones miss a goal.
pub(crate) fn run(settings: &Settings, root: &Path, count: usize) -> Result<bool> {
    ensure!(count > 0, "no strike, no gap");
    println!("{count} strikes each on one of two paths of {MEGABITS} Mbit/s and {} ms", 2 * DELAY_MS);
    println!("{:<40} {:>8} {:>8} {:>8}   before the strike", "", "median", "95 %", "longest");
    let mut is_met = true;
    for system in [System::Plait, System::Kernel] {
        let (gaps, before) = strikes(settings, root, system, count)?;
        let (median, high) = (percentile(&gaps, 50), percentile(&gaps, 95));
        let millis =
            |time: Duration| if time == NEVER { "never".into() } else { format!("{} ms", time.as_millis()) };
        let stalled = gaps.iter().filter(|gap| **gap == NEVER).count();
        println!(
            "{:<40} {:>8} {:>8} {:>8}   {}{}",
            system.name(),
            millis(median),
            millis(high),
            millis(percentile(&gaps, 100)),
            millis(percentile(&before, 50)),
            if stalled > 0 { format!(", {stalled} stood still for good") } else { String::new() },
        );
        if system == System::Plait {
            is_met = median < MEDIAN && high < HIGH;
        }
    }
    let verdict = if is_met { "met" } else { "MISSED" };
    println!("goal of the sealed: median under {MEDIAN:?}, 95 % under {HIGH:?}: {verdict}");
    Ok(is_met)
}

/// The longest gaps around each strike, and before it.
fn strikes(
    settings: &Settings,
    root: &Path,
    system: System,
    count: usize,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let directory = root.join("gaps");
    std::fs::create_dir_all(&directory)?;
    let context = Context { settings, directory: &directory };
    let fixture = Fixture::up_with(&context, Listening::Closed, &Conditions::megabits(MEGABITS, DELAY_MS))?;
    if system == System::Kernel {
        fixture.lab.enable_kernel_mptcp()?;
    }
    let (mut around, mut before) = (Vec::new(), Vec::new());
    for number in 1..=count {
        let (gap, usual) = strike(&fixture, system).with_context(|| format!("strike {number}"))?;
        around.push(gap);
        before.push(usual);
    }
    drop(fixture);
    std::fs::remove_dir_all(&directory)?;
    around.sort_unstable();
    before.sort_unstable();
    Ok((around, before))
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
fn strike(fixture: &Fixture<'_>, system: System) -> Result<(Duration, Duration)> {
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
            return Ok((NEVER, Duration::ZERO));
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
fn longest(arrived: &Arrived, strike: Instant) -> (Duration, Duration) {
    let longest = |gaps: &mut dyn Iterator<Item = Duration>| gaps.max().unwrap_or_default();
    let is_around = |end: Instant, gap: Duration| {
        end >= strike && end.checked_sub(gap).is_none_or(|begin| begin <= strike + AROUND)
    };
    let gaps = &arrived.gaps;
    let around = longest(&mut gaps.iter().filter(|(end, gap)| is_around(*end, *gap)).map(|(_, gap)| *gap));
    let before = longest(&mut gaps.iter().filter(|(end, _)| *end < strike).map(|(_, gap)| *gap));
    (around, before)
}
