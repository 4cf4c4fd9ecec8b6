//! The end of a connection is attacked on every path: once both sides have said that it is the end, nothing more is needed.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName, Expected, Path};

use super::{Outcome, expected_to, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Ending, Load};
use crate::attacks::fixture::{Fixture, Listening};

/// How long both programs may take after the last byte of both streams was read.
const SOON: Duration = Duration::from_secs(3);
/// Longest time in which nothing moves before a program is taken for one that never ends.
const NEVER: Duration = Duration::from_secs(20);
/// How long both may take where every path answers by resets, or only the last acknowledgment is missing; and on a machine that does
/// other work.
const IN_TIME: Duration = Duration::from_secs(5);
const IN_TIME_QUICK: Duration = Duration::from_secs(8);
/// How long an end may take whose last bytes are not acknowledged while every path is silent: an outage may look like that, and end.
const OUTAGE: Duration = Duration::from_secs(130);
/// Bytes each way.
const SIZE: u64 = 2 << 20;

pub(crate) fn all() -> Vec<Case> {
    let about = "on every path at once: both programs end within 3 s of the authenticated end";
    let mut cases = Vec::new();
    for name in expected_to(Expected::EndsSoon) {
        for handshake in ["tls", "tcpcrypt"] {
            let run = move |context: &Context<'_>| ends(context, name, handshake);
            cases
                .push(Case::new(format!("ends/{name}-{handshake}"), about, run).quick_if(handshake == "tls"));
        }
    }
    let about = "all paths end once both ends have gone by: both programs end, and say what they do not know";
    for name in expected_to(Expected::EndsInTime) {
        for handshake in ["tls", "tcpcrypt"] {
            let run = move |context: &Context<'_>| ends_in_time(context, name, handshake);
            // In silence both wait as long as in an outage.
            let is_quick = name == AttackName::ResetBothAtEnd;
            cases.push(Case::new(format!("{name}/{handshake}"), about, run).quick_if(is_quick));
        }
    }
    cases
}

/// All that the attacker leaves is what both ends have: every byte.
fn ends_in_time(context: &Context<'_>, name: AttackName, handshake: &str) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Closed)?;
    let options = ["--handshake", handshake];
    let mut server = fixture.listen(&options)?;
    for path in fixture.lab.paths() {
        path.attack(Attack::new(name))?;
    }
    let mut client = fixture.connect(&Fixture::PATHS, &options)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(SIZE))?;
    let is_outage = name == AttackName::CutBothAtEnd;
    let exchange = running.finish(&mut client, &mut server, if is_outage { OUTAGE } else { NEVER })?;
    let logs = fixture.lab.paths().iter().map(Path::injections).collect::<Result<Vec<_>, _>>()?;
    let struck = logs.iter().filter_map(|log| log.entries.first()).map(|entry| entry.at).min();
    let struck = struck.with_context(|| format!("no end on any path: {:?}", outcome(&exchange, SIZE)))?;
    // The log counts from the beginning of the lab.
    let since = fixture.lab.elapsed().saturating_sub(struck);
    let took = since.saturating_sub(exchange.ended_at.elapsed());
    let said = |ending: &Ending| match ending.code {
        Some(0) => "a clean end".to_owned(),
        Some(code) => format!("exit {code}: {}", ending.said),
        None => "none, it was killed".to_owned(),
    };
    let (client, server) = (said(&exchange.client), said(&exchange.server));
    let words =
        format!("{:.1} s after the end was attacked: client: {client}; server: {server}", took.as_secs_f64());
    ensure!(!exchange.hung, "no end: {words}");
    for arrived in [&exchange.up, &exchange.down] {
        ensure!(arrived.is_equal, "bytes are missing that had crossed the paths before: {words}");
    }
    let limit = match is_outage {
        true => OUTAGE,
        false if context.settings.judges_times => IN_TIME,
        false => IN_TIME_QUICK,
    };
    ensure!(took <= limit, "{words}");
    Ok(Verdict::Passed(words))
}

fn ends(context: &Context<'_>, name: AttackName, handshake: &str) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Closed)?;
    let options = ["--handshake", handshake];
    let mut server = fixture.listen(&options)?;
    for path in fixture.lab.paths() {
        path.attack(Attack::new(name))?;
    }
    let mut client = fixture.connect(&Fixture::PATHS, &options)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(SIZE))?;
    let exchange = running.finish(&mut client, &mut server, NEVER)?;
    let mut count = 0;
    for path in fixture.lab.paths() {
        count += path.injections()?.total;
    }
    ensure!(count > 0, "{name} never reached the wire: {:?}", outcome(&exchange, SIZE));
    // Each side says that it has ended right behind its last byte.
    let last = exchange.up.last_at.max(exchange.down.last_at).context("nothing arrived")?;
    let took = exchange.ended_at.saturating_duration_since(last);
    let words = format!("both ended {} ms after the last byte, injected {count} times", took.as_millis());
    match outcome(&exchange, SIZE) {
        Outcome::Equal => {}
        Outcome::Error(text) | Outcome::Deceived(text) => bail!("{text}; {words}"),
        Outcome::Hung(text) => bail!("never an end: {text}; {words}"),
    }
    ensure!(took <= SOON || !context.settings.judges_times, "{words}");
    Ok(Verdict::Passed(words))
}
