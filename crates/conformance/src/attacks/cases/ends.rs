//! The end of a connection is attacked on every path: once both sides have said that it is the end, nothing more is needed.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName, Expected};

use super::{Outcome, expected_to, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Load};
use crate::attacks::fixture::{Fixture, Listening};

/// How long both programs may take after the last byte of both streams was read.
const SOON: Duration = Duration::from_secs(3);
/// Longest time in which nothing moves before a program is taken for one that never ends.
const NEVER: Duration = Duration::from_secs(20);
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
    cases
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
