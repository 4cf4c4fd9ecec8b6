//! The same checks where nothing is sealed: they find what they look for, so they can fail.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lab::{Attack, AttackName};

use super::{Outcome, PATIENCE, Strikes, before, gaps, outcome};
use crate::attacks::exchange::{self, Load};
use crate::attacks::stage::{Ears, Stage};
use crate::attacks::trial::{Context, Trial, Verdict};

pub(crate) fn all() -> Vec<Trial> {
    vec![
        Trial::new("control/peace", "without an attack nothing strikes and every byte arrives", peace)
            .quick(),
        Trial::new("control/flip", "unsealed, the check for wrong bytes finds them", |context| {
            is_deceived(context, AttackName::Flip, "wrong bytes")
        })
        .quick(),
        Trial::new("control/insert", "unsealed, the check for wrong bytes finds them", |context| {
            is_deceived(context, AttackName::Insert, "wrong bytes")
        }),
        Trial::new(
            "control/data-fin",
            "unsealed, the check for a false end or a lost connection finds it",
            |context| is_not_equal(context, AttackName::DataFin),
        ),
        Trial::new(
            "control/replay-add-addr",
            "unsealed, there is an ADD_ADDR and it is replayed",
            |context| reaches_the_wire(context, AttackName::ReplayAddAddr),
        ),
        Trial::new(
            "control/replay-remove-addr",
            "unsealed, there is a REMOVE_ADDR and it is replayed",
            |context| reaches_the_wire(context, AttackName::ReplayRemoveAddr),
        ),
    ]
}

const PLAIN: [&str; 2] = ["--protect", "plain"];
/// A plain connection that is harmed may stand still for good.
const STANDSTILL: Duration = Duration::from_secs(15);

fn peace(context: &Context<'_>) -> Result<Verdict> {
    let size = context.settings.size;
    let stage = Stage::up(context, Ears::Closed)?;
    let mut server = stage.listen(&[])?;
    let mut client = stage.connect(&Stage::PATHS, &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    let exchange = running.finish(&mut client, &mut server, PATIENCE)?;
    let result = outcome(&exchange, size);
    ensure!(result == Outcome::Equal, "{result:?}");
    for path in stage.lab.paths() {
        ensure!(path.injections()?.total == 0, "something was injected");
        ensure!(Strikes::on(path, AttackName::Flip).is_err(), "the check for strikes cannot fail");
    }
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Passed(format!("equal in {seconds:.1} s, {}", gaps(&exchange))))
}

/// What a plain transfer with an attack on path b comes to.
fn plain(context: &Context<'_>, name: AttackName) -> Result<(Outcome, String)> {
    let size = context.settings.size.min(16 << 20);
    let stage = Stage::up(context, Ears::Closed)?;
    let mut server = stage.listen(&PLAIN)?;
    stage.path("b")?.attack(Attack::new(name).after(before(size)).every(size / 16))?;
    let mut client = stage.connect(&Stage::PATHS, &PLAIN)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    let exchange = running.finish(&mut client, &mut server, STANDSTILL)?;
    let strikes = Strikes::on(stage.path("b")?, name)?;
    Ok((outcome(&exchange, size), strikes.words()))
}

fn is_deceived(context: &Context<'_>, name: AttackName, how: &str) -> Result<Verdict> {
    match plain(context, name)? {
        (Outcome::Deceived(text), strikes) if text.contains(how) => {
            Ok(Verdict::Passed(format!("found as it should be: {text}; {strikes}")))
        }
        (other, strikes) => bail!("{how} expected, found {other:?}; {strikes}"),
    }
}

fn is_not_equal(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    match plain(context, name)? {
        (Outcome::Equal, strikes) => bail!("it had no effect; {strikes}"),
        (Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text), strikes) => {
            Ok(Verdict::Passed(format!("found as it should be: {text}; {strikes}")))
        }
    }
}

/// A plain connection whose server has a second address that goes and comes back.
fn reaches_the_wire(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    let size = context.settings.size.min(16 << 20);
    let stage = Stage::up(context, Ears::Closed)?;
    let mut server = stage.listen(&PLAIN)?;
    for path in stage.lab.paths() {
        path.attack(Attack::new(name).every(size / 16))?;
    }
    let mut client = stage.connect(&Stage::PATHS, &PLAIN)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    running.wait_for(size / 4, PATIENCE)?;
    stage.lab.server().namespace().ip("link set dev b down")?;
    running.wait_for(size, PATIENCE)?;
    stage.lab.server().namespace().ip("link set dev b up")?;
    let exchange = running.finish(&mut client, &mut server, PATIENCE)?;
    let mut count = 0;
    for path in stage.lab.paths() {
        count += path.injections()?.total;
    }
    ensure!(count > 0, "{name} never reached the wire: {:?}", outcome(&exchange, size));
    Ok(Verdict::Passed(format!("struck {count} times")))
}
