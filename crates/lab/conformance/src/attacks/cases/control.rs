//! The same checks where nothing is sealed: they find what they look for, so they can fail.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use plait_lab::{Attack, AttackName};

use super::{Injections, Outcome, TIMEOUT, before, gaps, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Load};
use crate::attacks::fixture::{Fixture, Listening};

pub(crate) fn all() -> Vec<Case> {
    vec![
        Case::new(
            "control/baseline",
            "without an attack nothing injections and every byte arrives",
            baseline,
        )
        .quick(),
        Case::new("control/flip", "unsealed, the check for wrong bytes finds them", |context| {
            is_deceived(context, AttackName::Flip, "wrong bytes")
        })
        .quick(),
        Case::new("control/insert", "unsealed, the check for wrong bytes finds them", |context| {
            is_deceived(context, AttackName::Insert, "wrong bytes")
        }),
        Case::new(
            "control/data-fin",
            "unsealed, the check for a false end or a lost connection finds it",
            |context| is_not_equal(context, AttackName::DataFin),
        ),
        Case::new(
            "control/replay-add-addr",
            "unsealed, there is an ADD_ADDR and it is replayed",
            |context| reaches_the_wire(context, AttackName::ReplayAddAddr),
        ),
        Case::new(
            "control/replay-remove-addr",
            "unsealed, there is a REMOVE_ADDR and it is replayed",
            |context| reaches_the_wire(context, AttackName::ReplayRemoveAddr),
        ),
    ]
}

const PLAIN: [&str; 2] = ["--protect", "plain"];
/// A plain connection that is harmed may stand still for good, or go on block by block as its data timer sends them again.
const STANDSTILL: Duration = Duration::from_secs(15);
const LONG_ENOUGH: Duration = Duration::from_secs(60);

fn baseline(context: &Context<'_>) -> Result<Verdict> {
    let size = context.settings.size;
    let fixture = Fixture::up(context, Listening::Closed)?;
    let mut server = fixture.listen(&[])?;
    let mut client = fixture.connect(&Fixture::PATHS, &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let result = outcome(&exchange, size);
    ensure!(result == Outcome::Equal, "{result:?}");
    for path in fixture.lab.paths() {
        ensure!(path.injections()?.total == 0, "something was injected");
        ensure!(Injections::on(path, AttackName::Flip).is_err(), "the check for injections cannot fail");
    }
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Passed(format!("equal in {seconds:.1} s, {}", gaps(&exchange))))
}

/// The result of a plain transfer with an attack on path b.
fn plain(context: &Context<'_>, name: AttackName) -> Result<(Outcome, String)> {
    let size = context.settings.size.min(16 << 20);
    let fixture = Fixture::up(context, Listening::Closed)?;
    let mut server = fixture.listen(&PLAIN)?;
    fixture.path("b")?.attack(Attack::new(name).after(before(size)).every(size / 16))?;
    let mut client = fixture.connect(&Fixture::PATHS, &PLAIN)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    let exchange = running.finish_within(&mut client, &mut server, STANDSTILL, LONG_ENOUGH)?;
    let injections = Injections::on(fixture.path("b")?, name)?;
    Ok((outcome(&exchange, size), injections.words()))
}

fn is_deceived(context: &Context<'_>, name: AttackName, how: &str) -> Result<Verdict> {
    match plain(context, name)? {
        (Outcome::Deceived(text), injections) if text.contains(how) => {
            Ok(Verdict::Passed(format!("found as it should be: {text}; {injections}")))
        }
        (other, injections) => bail!("{how} expected, found {other:?}; {injections}"),
    }
}

fn is_not_equal(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    match plain(context, name)? {
        (Outcome::Equal, injections) => bail!("it had no effect; {injections}"),
        (Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text), injections) => {
            Ok(Verdict::Passed(format!("found as it should be: {text}; {injections}")))
        }
    }
}

/// A plain connection to a server with a second address that goes and comes back.
fn reaches_the_wire(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    let size = context.settings.size.min(16 << 20);
    let fixture = Fixture::up(context, Listening::Closed)?;
    let mut server = fixture.listen(&PLAIN)?;
    for path in fixture.lab.paths() {
        path.attack(Attack::new(name).every(size / 16))?;
    }
    let mut client = fixture.connect(&Fixture::PATHS, &PLAIN)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    running.wait_for(size / 4, TIMEOUT)?;
    fixture.lab.server().namespace().ip("link set dev b down")?;
    running.wait_for(size, TIMEOUT)?;
    fixture.lab.server().namespace().ip("link set dev b up")?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let mut count = 0;
    for path in fixture.lab.paths() {
        count += path.injections()?.total;
    }
    ensure!(count > 0, "{name} never reached the wire: {:?}", outcome(&exchange, size));
    Ok(Verdict::Passed(format!("injected {count} times")))
}
