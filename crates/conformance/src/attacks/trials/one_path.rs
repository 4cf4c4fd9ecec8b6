//! One path is attacked again and again during a sealed transfer both ways.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lab::{Attack, AttackName, Expected, Run};
use nix::sys::signal::Signal;

use super::{Outcome, PATIENCE, Strikes, expected_to, gaps, lived, outcome, repeated};
use crate::attacks::exchange::{self, Exchange, Load};
use crate::attacks::stage::{Ears, Side, Stage};
use crate::attacks::trial::{Context, Trial, Verdict};
use crate::attacks::wiretap::Tally;

pub(crate) fn all() -> Vec<Trial> {
    let mut trials = Vec::new();
    let paths = [
        ("one-path", "b", "a sealed transfer goes on: every byte arrives, the subflow on path a lives"),
        ("first-path", "a", "the same on the path of the first subflow: the one on path b lives"),
    ];
    for (group, attacked, about) in paths {
        for name in expected_to(Expected::Survives) {
            let is_quick = attacked == "b" && name.runs(Run::Quick);
            let run = move |context: &Context<'_>| strike(context, name, attacked, None);
            trials.push(Trial::new(format!("{group}/{name}"), about, run).quick_if(is_quick));
        }
    }
    let about = "an option captured on an earlier connection, whose last act it was, on another one";
    for name in expected_to(Expected::SurvivesEarlier) {
        let earlier = if name == AttackName::ReplayFastclose { Earlier::Aborted } else { Earlier::Ended };
        let run = move |context: &Context<'_>| strike(context, name, "b", Some(earlier));
        trials.push(Trial::new(format!("one-path/{name}"), about, run));
    }
    let about = "there is no option to replay: it is said inside the sealed stream, which records/ replays";
    for name in expected_to(Expected::NothingToCapture) {
        let run = move |context: &Context<'_>| nothing_to_capture(context, name);
        trials.push(Trial::new(format!("one-path/{name}"), about, run));
    }
    trials
}

/// What the connection before the attacked one came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Earlier {
    Ended,
    Aborted,
}

fn strike(
    context: &Context<'_>,
    name: AttackName,
    attacked: &str,
    earlier: Option<Earlier>,
) -> Result<Verdict> {
    let stage = Stage::up(context, Ears::Closed)?;
    if let Some(earlier) = earlier {
        prelude(&stage, attacked, earlier)?;
    }
    let size = context.settings.size;
    let exchange = under(&stage, attacked, repeated(name, size), size)?;
    let strikes = Strikes::on(stage.path(attacked)?, name)?;
    let other = if attacked == "a" { "b" } else { "a" };
    let result = outcome(&exchange, size);
    let words = strikes.words();
    match (name, result) {
        (AttackName::CutAll, Outcome::Equal | Outcome::Error(_)) => {}
        (_, Outcome::Equal) => {}
        (_, Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text)) => {
            bail!("{text}; {words}, {}", gaps(&exchange))
        }
    }
    let lived = match earlier {
        // The path had a subflow of the earlier connection as well.
        Some(_) => String::new(),
        None => format!(", {}", lived(stage.path(other)?, &strikes)?),
    };
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Passed(format!(
        "equal in {seconds:.1} s, {}, {words}{lived}{}",
        gaps(&exchange),
        costs(&stage)?
    )))
}

/// A sealed transfer of `size` bytes each way with an attack on one path.
fn under(stage: &Stage<'_>, attacked: &str, attack: Attack, size: u64) -> Result<Exchange> {
    let mut server = stage.listen(&[])?;
    stage.path(attacked)?.attack(attack)?;
    let mut client = stage.connect(&Stage::PATHS, &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    running.finish(&mut client, &mut server, PATIENCE)
}

/// A connection over the attacked path alone that ends in order, or at a signal.
fn prelude(stage: &Stage<'_>, attacked: &str, earlier: Earlier) -> Result<()> {
    let only = format!("{attacked}=untrusted");
    let mut server = stage.listen(&[])?;
    let mut client = stage.connect(&["--path", &only], &[])?;
    let size = if earlier == Earlier::Ended { 100_000 } else { 64 << 20 };
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    if earlier == Earlier::Aborted {
        running.wait_for(1 << 20, Duration::from_secs(30))?;
        client.signal(Signal::SIGINT);
    }
    let exchange = running.finish(&mut client, &mut server, PATIENCE)?;
    let is_as_wanted = match (earlier, outcome(&exchange, size)) {
        (Earlier::Ended, Outcome::Equal) | (Earlier::Aborted, Outcome::Error(_)) => true,
        (Earlier::Ended | Earlier::Aborted, _) => false,
    };
    ensure!(is_as_wanted, "the earlier connection ended otherwise: {}", exchange.client.said);
    Ok(())
}

/// What both sides counted of the attack.
fn costs(stage: &Stage<'_>) -> Result<String> {
    let mut sums = [("blocks_failed", 0), ("blocks_repaired", 0), ("attacked_closed", 0)];
    for side in Side::BOTH {
        let status = stage.status(side)?.unwrap_or_default();
        for (name, sum) in &mut sums {
            *sum += status["counters"][*name].as_u64().unwrap_or(0);
        }
    }
    let told: Vec<String> = sums
        .iter()
        .filter(|(_, sum)| *sum > 0)
        .map(|(name, sum)| format!("{} {sum}", name.replace('_', " ")))
        .collect();
    Ok(if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) })
}

/// Shows that the option that is to be replayed is nowhere in the captures of both paths, though what it says has been said: the
/// server's second address is announced and used, and a path that was up goes down. In `control/` the same injector replays the same
/// options where nothing is sealed.
fn nothing_to_capture(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    let size = context.settings.size.min(16 << 20);
    let stage = Stage::up(context, Ears::Capture)?;
    let mut server = stage.listen(&[])?;
    for path in stage.lab.paths() {
        path.attack(Attack::new(name).every(0))?;
    }
    let mut client = stage.connect(&Stage::PATHS, &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    running.wait_for(size / 4, PATIENCE)?;
    stage.lab.server().namespace().ip("link set dev b down")?;
    running.wait_for(size, PATIENCE)?;
    stage.lab.server().namespace().ip("link set dev b up")?;
    let exchange = running.finish(&mut client, &mut server, PATIENCE)?;
    match outcome(&exchange, size) {
        Outcome::Equal => {}
        Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => bail!("{text}"),
    }
    for path in stage.lab.paths() {
        ensure!(path.injections()?.total == 0, "it was replayed: then it was there to be captured");
        path.flush()?;
    }
    let mut tally = Tally::default();
    for path in ["a", "b"] {
        tally.add(&stage.file(&format!("{path}.pcapng")))?;
    }
    ensure!(tally.joins > 0 && tally.dss > 0, "the captures do not show the connection");
    ensure!(
        tally.add_addr + tally.remove_addr + tally.prio == 0,
        "on the wire in clear: {} ADD_ADDR, {} REMOVE_ADDR, {} MP_PRIO",
        tally.add_addr,
        tally.remove_addr,
        tally.prio
    );
    let second = stage.path("b")?.server().v4.to_string();
    let status = stage.status(Side::Client)?.unwrap_or_default();
    Ok(Verdict::Passed(format!(
        "no option to replay (for what is said instead see records/): no ADD_ADDR, REMOVE_ADDR, MP_PRIO in {} segments with \
         {} DSS and {} MP_JOIN; {second} {}",
        tally.segments,
        tally.dss,
        tally.joins,
        if status.to_string().contains(&second) { "used all the same" } else { "announced" },
    )))
}
