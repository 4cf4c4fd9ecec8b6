//! Control records, which sealed connections say inside their blocks: all that crossed a path while they were said, again later.
//!
//! An attacker on a path cannot distinguish them from data. So it records everything, and replays all of it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName, Conditions, Direction, Path};
use serde_json::Value;

use super::{Injections, Outcome, TIMEOUT, gaps, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Load};
use crate::attacks::fixture::{Fixture, Listening, Side};

/// Bytes each way: enough that all that was kept comes again before the end.
const SIZE: u64 = 192 << 20;
/// Rate of the paths: slow enough that not too much crosses them while the records are said.
const MEGABITS: u64 = 60;
const DELAY_MS: u64 = 5;
/// How long a subflow has to be silent until it counts as unused, and the least that one in use carries in that time.
const LULL: Duration = Duration::from_millis(300);
const IN_USE: u64 = 100_000;
/// Longest time until a change of priority shows.
const CHANGE: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Case> {
    let about = "a path becomes a backup and regular again, the other one goes and comes: replayed, none of it counts";
    let case = |attacked: &'static str| {
        let run = move |context: &Context<'_>| replay(context, attacked);
        Case::new(format!("records/replay-on-{attacked}"), about, run)
    };
    ["a", "b"].map(case).into()
}

fn replay(context: &Context<'_>, attacked: &str) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Closed)?;
    for path in fixture.lab.paths() {
        for direction in [Direction::ToServer, Direction::ToClient] {
            path.set(direction, &Conditions::megabits(MEGABITS, DELAY_MS))?;
        }
    }
    let path = fixture.path(attacked)?;
    let mut server = fixture.listen(&[])?;
    let control = fixture.control().display().to_string();
    let mut client = fixture.connect(&Fixture::PATHS, &["--control", &control])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(SIZE))?;
    running.wait_for(SIZE / 16, TIMEOUT)?;
    path.attack(Attack::new(AttackName::ReplayAll).after(u64::MAX))?;
    say_records(&fixture, attacked)?;
    ensure!(path.injections()?.total == 0, "it was replayed before all was said");
    path.call_off()?;
    let before = carried(&fixture, Direction::ToClient)?;
    path.attack(Attack::new(AttackName::ReplayAll).every(0))?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    match outcome(&exchange, SIZE) {
        Outcome::Equal => {}
        Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => bail!("{text}"),
    }
    let injections = Injections::on(path, AttackName::ReplayAll)?;
    let kept = all_came_again(path)?;
    for side in Side::BOTH {
        has_no_backup(&fixture.status(side)?.with_context(|| format!("no status of the {}", side.name()))?)?;
    }
    let after = carried(&fixture, Direction::ToClient)?;
    let [on_a, on_b] = [0, 1].map(|index| after[index].saturating_sub(before[index]));
    ensure!(on_a.min(on_b) > IN_USE, "since the replays path a carried {on_a} bytes to the client, b {on_b}");
    Ok(Verdict::Passed(format!(
        "equal, {}; priority changed twice and path removed and added, all in the {} and {} payloads that came again; {}; \
         path {attacked} stayed regular, {} MB on a and {} MB on b since",
        gaps(&exchange),
        kept[0],
        kept[1],
        injections.words(),
        on_a / 1_000_000,
        on_b / 1_000_000
    )))
}

/// Makes the client say records that have to cross the attacked path, since there is no other at the time; and shows by what the server
/// then sends that it has heard them.
fn say_records(fixture: &Fixture<'_>, attacked: &str) -> Result<()> {
    let (mine, other) = match attacked {
        "a" => ("a=trusted", "b=untrusted"),
        _ => ("b=untrusted", "a=trusted"),
    };
    let (other_name, _) = other.split_once('=').context("a name")?;
    fixture.change_path(&format!("{other_name}=never"))?;
    let index = usize::from(attacked == "b");
    wait_for(fixture, |carried| carried[1 - index] == 0, "the other path is still used")?;
    fixture.change_path(&format!("{mine},backup"))?;
    fixture.change_path(other)?;
    let is_backup = |carried: [u64; 2]| carried[index] == 0 && carried[1 - index] > IN_USE;
    wait_for(fixture, is_backup, "the server does not treat the path as a backup")?;
    fixture.change_path(mine)?;
    let is_regular = |carried: [u64; 2]| carried.iter().all(|bytes| *bytes > IN_USE);
    wait_for(fixture, is_regular, "the server does not treat the path as a regular one again")
}

/// Waits until what the server sends on subflows wholly on path a, and on path b, is as it should be.
fn wait_for(fixture: &Fixture<'_>, is_so: impl Fn([u64; 2]) -> bool, otherwise: &str) -> Result<()> {
    let until = Instant::now() + CHANGE;
    let mut before = carried(fixture, Direction::ToClient)?;
    loop {
        std::thread::sleep(LULL);
        let now = carried(fixture, Direction::ToClient)?;
        let since = [0, 1].map(|index| now[index].saturating_sub(before[index]));
        if is_so(since) {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{otherwise}: {since:?} bytes in {LULL:?}");
        before = now;
    }
}

/// Bytes of payload that arrived this way on subflows that are wholly on path a, and on path b.
fn carried(fixture: &Fixture<'_>, direction: Direction) -> Result<[u64; 2]> {
    let on = |name: &str| -> Result<u64> {
        let samples = fixture.path(name)?.series()?.samples;
        let back: std::collections::BTreeSet<u32> =
            samples.iter().filter(|sample| sample.direction != direction).map(|sample| sample.flow).collect();
        let mine =
            samples.iter().filter(|sample| sample.direction == direction && back.contains(&sample.flow));
        Ok(mine.map(|sample| u64::from(sample.length)).sum())
    };
    Ok([on("a")?, on("b")?])
}

/// How many payloads were kept each way, if each of them has come again.
fn all_came_again(path: &Path) -> Result<[u64; 2]> {
    let log = path.injections()?;
    let mut kept = [0; 2];
    for (kept, direction) in kept.iter_mut().zip([Direction::ToServer, Direction::ToClient]) {
        let numbers = log.entries.iter().filter(|entry| entry.direction == direction).filter_map(|entry| {
            let (number, rest) = entry.what.split_once(" of ")?;
            Some((number.parse::<u64>().ok()?, rest.split_once(',')?.0.parse::<u64>().ok()?))
        });
        let (last, count) = numbers.max().with_context(|| format!("nothing was replayed {direction:?}"))?;
        ensure!(last >= count, "only {last} of {count} payloads were replayed {direction:?}");
        *kept = count;
    }
    Ok(kept)
}

/// No side treats a subflow as a backup.
fn has_no_backup(status: &Value) -> Result<()> {
    let subflows = status["subflows"].as_array().context("no subflows in the status")?;
    let is_backup = |subflow: &&Value| subflow["backup"] != Value::Bool(false);
    if let Some(subflow) = subflows.iter().find(is_backup) {
        bail!("the priority has flipped back: {subflow}");
    }
    Ok(())
}
