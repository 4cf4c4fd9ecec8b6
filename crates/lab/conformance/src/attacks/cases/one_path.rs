//! One path is attacked again and again during a sealed transfer both ways.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use nix::sys::signal::Signal;
use plait_lab::{Attack, AttackName, Expected, Run};

use super::{Injections, Outcome, TIMEOUT, expected_to, gaps, lived, outcome, repeated};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Exchange, Load};
use crate::attacks::fixture::{Fixture, Listening, Side};
use crate::attacks::wiretap::Tally;

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let paths = [
        ("one-path", "b", "a sealed transfer goes on: every byte arrives, the subflow on path a lives"),
        ("first-path", "a", "the same on the path of the first subflow: the one on path b lives"),
    ];
    for (group, attacked, about) in paths {
        for name in expected_to(Expected::Survives) {
            let is_quick = attacked == "b" && name.runs(Run::Quick);
            let run = move |context: &Context<'_>| attack(context, name, attacked, None);
            cases.push(Case::new(format!("{group}/{name}"), about, run).quick_if(is_quick));
        }
    }
    let about = "the last option of an earlier connection, replayed on another one";
    for name in expected_to(Expected::SurvivesEarlier) {
        let earlier = if name == AttackName::ReplayFastclose { Earlier::Aborted } else { Earlier::Ended };
        let run = move |context: &Context<'_>| attack(context, name, "b", Some(earlier));
        cases.push(Case::new(format!("one-path/{name}"), about, run));
    }
    let about = "there is no option to replay: it is said inside the sealed stream, which records/ replays";
    for name in expected_to(Expected::NothingToCapture) {
        let run = move |context: &Context<'_>| nothing_to_capture(context, name);
        cases.push(Case::new(format!("one-path/{name}"), about, run));
    }
    cases
}

/// The end of the connection before the attacked one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Earlier {
    Ended,
    Aborted,
}

fn attack(
    context: &Context<'_>,
    name: AttackName,
    attacked: &str,
    earlier: Option<Earlier>,
) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Closed)?;
    if let Some(earlier) = earlier {
        prelude(&fixture, attacked, earlier)?;
    }
    let size = context.settings.size;
    let exchange = under(&fixture, attacked, repeated(name, size), size)?;
    let injections = Injections::on(fixture.path(attacked)?, name)?;
    let other = if attacked == "a" { "b" } else { "a" };
    let result = outcome(&exchange, size);
    let words = injections.words();
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
        None => format!(", {}", lived(fixture.path(other)?, &injections)?),
    };
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Passed(format!(
        "equal in {seconds:.1} s, {}, {words}{lived}{}",
        gaps(&exchange),
        costs(&fixture)?
    )))
}

/// A sealed transfer of `size` bytes each way with an attack on one path.
fn under(fixture: &Fixture<'_>, attacked: &str, attack: Attack, size: u64) -> Result<Exchange> {
    let mut server = fixture.listen(&[])?;
    fixture.path(attacked)?.attack(attack)?;
    let mut client = fixture.connect(&Fixture::PATHS, &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    running.finish(&mut client, &mut server, TIMEOUT)
}

/// A connection over the attacked path alone that ends in order, or at a signal.
fn prelude(fixture: &Fixture<'_>, attacked: &str, earlier: Earlier) -> Result<()> {
    let only = format!("{attacked}=untrusted");
    let mut server = fixture.listen(&[])?;
    let mut client = fixture.connect(&["--path", &only], &[])?;
    let size = if earlier == Earlier::Ended { 100_000 } else { 64 << 20 };
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    if earlier == Earlier::Aborted {
        running.wait_for(1 << 20, Duration::from_secs(30))?;
        client.signal(Signal::SIGINT);
    }
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let is_as_wanted = match (earlier, outcome(&exchange, size)) {
        (Earlier::Ended, Outcome::Equal) | (Earlier::Aborted, Outcome::Error(_)) => true,
        (Earlier::Ended | Earlier::Aborted, _) => false,
    };
    ensure!(is_as_wanted, "the earlier connection ended otherwise: {}", exchange.client.said);
    Ok(())
}

/// The counters of both sides about the attack.
fn costs(fixture: &Fixture<'_>) -> Result<String> {
    let mut sums = [("blocks_failed", 0), ("blocks_repaired", 0), ("attacked_closed", 0)];
    for side in Side::BOTH {
        let status = fixture.status(side)?.unwrap_or_default();
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
    let fixture = Fixture::up(context, Listening::Capture)?;
    let mut server = fixture.listen(&[])?;
    for path in fixture.lab.paths() {
        path.attack(Attack::new(name).every(0))?;
    }
    let mut client = fixture.connect(&Fixture::PATHS, &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    running.wait_for(size / 4, TIMEOUT)?;
    fixture.lab.server().namespace().ip("link set dev b down")?;
    running.wait_for(size, TIMEOUT)?;
    fixture.lab.server().namespace().ip("link set dev b up")?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    match outcome(&exchange, size) {
        Outcome::Equal => {}
        Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => bail!("{text}"),
    }
    for path in fixture.lab.paths() {
        ensure!(path.injections()?.total == 0, "it was replayed: then it was there to be captured");
        path.flush()?;
    }
    let mut tally = Tally::default();
    for path in ["a", "b"] {
        tally.add(&fixture.file(&format!("{path}.pcapng")))?;
    }
    ensure!(tally.joins > 0 && tally.dss > 0, "the captures do not show the connection");
    ensure!(
        tally.add_addr + tally.remove_addr + tally.prio == 0,
        "on the wire in clear: {} ADD_ADDR, {} REMOVE_ADDR, {} MP_PRIO",
        tally.add_addr,
        tally.remove_addr,
        tally.prio
    );
    let second = fixture.server_address("b")?.to_string();
    let status = fixture.status(Side::Client)?.unwrap_or_default();
    Ok(Verdict::Passed(format!(
        "no option to replay (for what is said instead see records/): no ADD_ADDR, REMOVE_ADDR, MP_PRIO in {} segments with \
         {} DSS and {} MP_JOIN; {second} {}",
        tally.segments,
        tally.dss,
        tally.joins,
        if status.to_string().contains(&second) { "used all the same" } else { "announced" },
    )))
}
