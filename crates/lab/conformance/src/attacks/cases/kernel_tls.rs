//! The same attacks on TLS 1.3 (OpenSSL) over the kernel's Multipath TCP: recorded as they happen, without a verdict.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use plait_lab::{AttackName, Expected};

use super::{Injections, Outcome, expected_to, gaps, outcome, repeated};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Load};
use crate::attacks::fixture::{Fixture, Listening, Side};
use crate::attacks::peer::{self, Layer};

/// Longest time in which nothing moves before the connection is taken for dead: the kernel's own timeout is many minutes.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Case> {
    let about = "what becomes of TLS 1.3 over the kernel's Multipath TCP";
    let names = [Expected::Survives, Expected::NothingToCapture, Expected::SurvivesEarlier]
        .into_iter()
        .flat_map(expected_to);
    let mut cases = vec![Case::new("kernel-tls/baseline", "it works without an attack", baseline)];
    cases.extend(names.map(|name| {
        let run = move |context: &Context<'_>| attack(context, name);
        Case::new(format!("kernel-tls/{name}"), about, run)
    }));
    cases.into_iter().map(|case| case.with_kernel_if(true)).collect()
}

fn baseline(context: &Context<'_>) -> Result<Verdict> {
    let size = context.settings.size;
    let fixture = Fixture::up(context, Listening::Closed)?;
    fixture.lab.enable_kernel_mptcp()?;
    let mut server = peer::start(&fixture, Side::Server, Layer::Tls, size)?;
    let mut client = peer::start(&fixture, Side::Client, Layer::Tls, size)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let result = outcome(&exchange, size);
    ensure!(result == Outcome::Equal, "{result:?}");
    for path in fixture.lab.paths() {
        let heard = path.summary()?.to_server.payload;
        ensure!(heard > size / 20, "path {} carried {heard} bytes only", path.name());
    }
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Passed(format!("equal in {seconds:.1} s over both paths, {}", gaps(&exchange))))
}

fn attack(context: &Context<'_>, name: AttackName) -> Result<Verdict> {
    let size = context.settings.size;
    let fixture = Fixture::up(context, Listening::Closed)?;
    fixture.lab.enable_kernel_mptcp()?;
    match name {
        AttackName::ReplayDataFin => earlier(&fixture, false)?,
        AttackName::ReplayFastclose => earlier(&fixture, true)?,
        AttackName::ReplayAddAddr | AttackName::ReplayRemoveAddr => {
            let address = fixture.path("b")?.server().v4;
            fixture.lab.server().namespace().ip(&format!("mptcp endpoint add {address} id 9 signal"))?;
        }
        _ => {}
    }
    let mut server = peer::start(&fixture, Side::Server, Layer::Tls, size)?;
    for path in fixture.lab.paths() {
        // An address is announced and taken away wherever the kernel likes.
        if path.name() == "b" || name.expected() == Expected::NothingToCapture {
            path.attack(repeated(name, size))?;
        }
    }
    let mut client = peer::start(&fixture, Side::Client, Layer::Tls, size)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    if name.expected() == Expected::NothingToCapture && running.wait_for(size / 4, TIMEOUT).is_ok() {
        signal(&fixture, name)?;
    }
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let missing = 2 * size - (exchange.up.bytes + exchange.down.bytes).min(2 * size);
    let what = match outcome(&exchange, size) {
        Outcome::Equal => "survived".to_owned(),
        Outcome::Error(text) => format!("DIED, {missing} bytes lost: {text}"),
        Outcome::Deceived(text) => format!("DECEIVED, {missing} bytes lost: {text}"),
        Outcome::Hung(text) => format!("HUNG, {missing} bytes lost: {text}"),
    };
    let injected = fixture.lab.paths().iter().filter_map(|path| Injections::on(path, name).ok());
    let count: u64 = injected.map(|injections| injections.count).sum();
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Recorded(format!("{what}; {seconds:.1} s, {}, injected {count} times", gaps(&exchange))))
}

/// A connection before the attacked one, which ends in order or by the death of the client.
fn earlier(fixture: &Fixture<'_>, is_killed: bool) -> Result<()> {
    let size = if is_killed { 64 << 20 } else { 100_000 };
    let mut server = peer::start(fixture, Side::Server, Layer::Nothing, size)?;
    let mut client = peer::start(fixture, Side::Client, Layer::Nothing, size)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(size))?;
    if is_killed {
        running.wait_for(1 << 20, TIMEOUT)?;
        client.signal(Signal::SIGKILL);
    }
    running.finish(&mut client, &mut server, TIMEOUT).map(drop)
}

/// Makes the kernel send the signal to capture in the middle of a transfer.
fn signal(fixture: &Fixture<'_>, name: AttackName) -> Result<()> {
    let server = fixture.lab.server().namespace();
    match name {
        AttackName::ReplayRemoveAddr => server.ip("mptcp endpoint delete id 9").map(drop)?,
        AttackName::ReplayPrio => {
            let address = fixture.path("b")?.client().v4;
            let client = fixture.lab.client().namespace();
            client.ip(&format!("mptcp endpoint change {address} backup"))?;
        }
        _ => {}
    }
    Ok(())
}
