//! Both paths are attacked at once, each packet that fits, for a time: then there may be an error, but never other bytes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lab::{Attack, AttackName, Run};

use super::{Outcome, PATIENCE, Strikes, before, gaps, outcome};
use crate::attacks::exchange::{self, Load};
use crate::attacks::stage::{Ears, Stage};
use crate::attacks::trial::{Context, Trial, Verdict};

/// How long the attack goes on. A connection may wait for its end: what is lost on the way looks the same.
const SIEGE: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Trial> {
    let about = "both paths, every packet, 20 s: every byte in the end or an error, never other bytes";
    let trial = |name: AttackName| {
        Trial::new(format!("every-path/{name}"), about, move |context: &Context<'_>| strike(context, name))
    };
    AttackName::ALL.iter().copied().filter(|name| name.runs(Run::EveryPath)).map(trial).collect()
}

fn strike(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    let size = context.settings.size;
    let stage = Stage::up(context, Ears::Closed)?;
    let mut server = stage.listen(&[])?;
    for path in stage.lab.paths() {
        // A cut outlasts everybody's patience.
        path.attack(Attack::new(name).after(before(size)).every(0).lasting(2 * PATIENCE))?;
    }
    let mut client = stage.connect(&Stage::PATHS, &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    let until = Instant::now() + SIEGE;
    while Instant::now() < until && !(client.has_ended()? && server.has_ended()?) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let moved = running.moved();
    let mut count = 0;
    for path in stage.lab.paths() {
        count += Strikes::on(path, name)?.count;
        path.call_off()?;
    }
    let exchange = running.finish(&mut client, &mut server, PATIENCE)?;
    let seconds = exchange.time.as_secs_f64();
    let words = match outcome(&exchange, size) {
        Outcome::Equal if moved == 2 * size => "equal all the same".to_owned(),
        Outcome::Equal => format!("{moved} bytes meanwhile, equal in the end"),
        Outcome::Error(text) => format!("{moved} bytes meanwhile, then an error: {text}"),
        Outcome::Deceived(text) | Outcome::Hung(text) => bail!("{text}; struck {count} times"),
    };
    Ok(Verdict::Passed(format!("struck {count} times, {seconds:.1} s, {}; {words}", gaps(&exchange))))
}
