//! Both paths are attacked at once, each packet that fits, for a time: then there may be an error, but never other bytes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use plait_lab::{Attack, AttackName, Run};

use super::{Injections, Outcome, TIMEOUT, before, gaps, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Load};
use crate::attacks::fixture::{Fixture, Listening};

/// How long the attack goes on. A connection may wait for its end: what is lost on the way looks the same.
const UNDER_ATTACK: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Case> {
    let about = "both paths, every packet, 20 s: every byte in the end or an error, never other bytes";
    let case = |name: AttackName| {
        Case::new(format!("every-path/{name}"), about, move |context: &Context<'_>| attack(context, name))
    };
    AttackName::ALL.iter().copied().filter(|name| name.runs(Run::EveryPath)).map(case).collect()
}

fn attack(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    let size = context.settings.size;
    let fixture = Fixture::up(context, Listening::Closed)?;
    let mut server = fixture.listen(&[])?;
    for path in fixture.lab.paths() {
        // A cut outlasts every timeout.
        path.attack(Attack::new(name).after(before(size)).every(0).lasting(2 * TIMEOUT))?;
    }
    let mut client = fixture.connect(&Fixture::PATHS, &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    let until = Instant::now() + UNDER_ATTACK;
    while Instant::now() < until && !(client.has_ended()? && server.has_ended()?) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let moved = running.moved();
    let mut count = 0;
    for path in fixture.lab.paths() {
        count += Injections::on(path, name)?.count;
        path.call_off()?;
    }
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let seconds = exchange.time.as_secs_f64();
    let words = match outcome(&exchange, size) {
        Outcome::Equal if moved == 2 * size => "equal all the same".to_owned(),
        Outcome::Equal => format!("{moved} bytes meanwhile, equal in the end"),
        Outcome::Error(text) => format!("{moved} bytes meanwhile, then an error: {text}"),
        Outcome::Deceived(text) | Outcome::Hung(text) => bail!("{text}; injected {count} times"),
    };
    Ok(Verdict::Passed(format!("injected {count} times, {seconds:.1} s, {}; {words}", gaps(&exchange))))
}
