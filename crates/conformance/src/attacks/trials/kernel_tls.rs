//! The same attacks on TLS 1.3 (OpenSSL) over the kernel's Multipath TCP: recorded as it happens, judged by nobody.

use std::time::Duration;

use anyhow::{Result, ensure};
use lab::{AttackName, Expected};
use nix::sys::signal::Signal;

use super::{Outcome, Strikes, expected_to, gaps, outcome, repeated};
use crate::attacks::exchange::{self, Load};
use crate::attacks::peer::{self, Layer};
use crate::attacks::stage::{Ears, Side, Stage};
use crate::attacks::trial::{Context, Trial, Verdict};

/// Longest time in which nothing moves before the connection is taken for dead: the kernel's own patience is many minutes.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Trial> {
    let about = "what becomes of TLS 1.3 over the kernel's Multipath TCP";
    let names = [Expected::Survives, Expected::NothingToCapture, Expected::SurvivesEarlier]
        .into_iter()
        .flat_map(expected_to);
    let mut trials = vec![Trial::new("kernel-tls/peace", "it works where nobody attacks", peace)];
    trials.extend(names.map(|name| {
        let run = move |context: &Context<'_>| strike(context, name);
        Trial::new(format!("kernel-tls/{name}"), about, run)
    }));
    trials
}

fn peace(context: &Context<'_>) -> Result<Verdict> {
    let size = context.settings.size;
    let stage = Stage::up(context, Ears::Closed)?;
    stage.lab.enable_kernel_mptcp()?;
    let mut server = peer::start(&stage, Side::Server, Layer::Tls, size)?;
    let mut client = peer::start(&stage, Side::Client, Layer::Tls, size)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    let exchange = running.finish(&mut client, &mut server, PATIENCE)?;
    let result = outcome(&exchange, size);
    ensure!(result == Outcome::Equal, "{result:?}");
    for path in stage.lab.paths() {
        let heard = path.summary()?.to_server.payload;
        ensure!(heard > size / 20, "path {} carried {heard} bytes only", path.name());
    }
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Passed(format!("equal in {seconds:.1} s over both paths, {}", gaps(&exchange))))
}

fn strike(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    let size = context.settings.size;
    let stage = Stage::up(context, Ears::Closed)?;
    stage.lab.enable_kernel_mptcp()?;
    match name {
        AttackName::ReplayDataFin => earlier(&stage, false)?,
        AttackName::ReplayFastclose => earlier(&stage, true)?,
        AttackName::ReplayAddAddr | AttackName::ReplayRemoveAddr => {
            let address = stage.path("b")?.server().v4;
            stage.lab.server().namespace().ip(&format!("mptcp endpoint add {address} id 9 signal"))?;
        }
        _ => {}
    }
    let mut server = peer::start(&stage, Side::Server, Layer::Tls, size)?;
    for path in stage.lab.paths() {
        // An address is announced and taken away wherever the kernel likes.
        if path.name() == "b" || name.expected() == Expected::NothingToCapture {
            path.attack(repeated(name, size))?;
        }
    }
    let mut client = peer::start(&stage, Side::Client, Layer::Tls, size)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    if name.expected() == Expected::NothingToCapture && running.wait_for(size / 4, PATIENCE).is_ok() {
        signal(&stage, name)?;
    }
    let exchange = running.finish(&mut client, &mut server, PATIENCE)?;
    let missing = 2 * size - (exchange.up.bytes + exchange.down.bytes).min(2 * size);
    let what = match outcome(&exchange, size) {
        Outcome::Equal => "survived".to_owned(),
        Outcome::Error(text) => format!("DIED, {missing} bytes lost: {text}"),
        Outcome::Deceived(text) => format!("DECEIVED, {missing} bytes lost: {text}"),
        Outcome::Hung(text) => format!("HUNG, {missing} bytes lost: {text}"),
    };
    let struck = stage.lab.paths().iter().filter_map(|path| Strikes::on(path, name).ok());
    let count: u64 = struck.map(|strikes| strikes.count).sum();
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Recorded(format!("{what}; {seconds:.1} s, {}, struck {count} times", gaps(&exchange))))
}

/// A connection before the attacked one, which ends in order or by the death of the client.
fn earlier(stage: &Stage<'_>, is_killed: bool) -> Result<()> {
    let size = if is_killed { 64 << 20 } else { 100_000 };
    let mut server = peer::start(stage, Side::Server, Layer::Nothing, size)?;
    let mut client = peer::start(stage, Side::Client, Layer::Nothing, size)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    if is_killed {
        running.wait_for(1 << 20, PATIENCE)?;
        client.signal(Signal::SIGKILL);
    }
    running.finish(&mut client, &mut server, PATIENCE).map(drop)
}

/// Has the kernel say in the middle of a transfer what is to be captured.
fn signal(stage: &Stage<'_>, name: AttackName) -> Result<()> {
    let server = stage.lab.server().namespace();
    match name {
        AttackName::ReplayRemoveAddr => server.ip("mptcp endpoint delete id 9").map(drop)?,
        AttackName::ReplayPrio => {
            let address = stage.path("b")?.client().v4;
            let client = stage.lab.client().namespace();
            client.ip(&format!("mptcp endpoint change {address} backup"))?;
        }
        _ => {}
    }
    Ok(())
}
