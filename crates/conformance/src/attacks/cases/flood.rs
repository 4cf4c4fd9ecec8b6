//! SYNs from everywhere while a connection opens: it opens, and the server keeps little of them.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName};

use super::{Injections, Outcome, TIMEOUT, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Load};
use crate::attacks::fixture::{Fixture, Listening, Side};

/// Bytes each way.
const SIZE: u64 = 1 << 20;
/// From the start of the client to its first byte: its SYN is lost once and comes again after a second, then there is a handshake of
/// two round trips, for which a flood is to be no reason to take longer.
const IN_TIME: Duration = Duration::from_secs(2);
/// Invented clients that were answered without keeping anything, at least: some 8000 on a machine that does nothing else.
const LEAST: u64 = 1000;
/// What the server may take for them: half-open connections to their limit, 4096 of 6 KiB, and as much again.
const MOST_MEMORY: u64 = 48 << 20;

pub(crate) fn all() -> Vec<Case> {
    let about = "10,000 SYNs a second from invented addresses: a client opens a second after its lost SYN";
    let case = |handshake: &'static str| {
        let run = move |context: &Context<'_>| opens(context, handshake);
        Case::new(format!("flood/syns-{handshake}"), about, run).quick_if(handshake == "tls")
    };
    ["tls", "tcpcrypt"].map(case).into()
}

fn opens(context: &Context<'_>, handshake: &str) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Closed)?;
    let options = ["--handshake", handshake];
    let mut server = fixture.listen(&options)?;
    let before = server.resident_bytes()?;
    let path = fixture.path("a")?;
    path.attack(Attack::new(AttackName::SynFlood))?;
    let began = SystemTime::now();
    let mut client = fixture.connect(&["--path", "a=trusted"], &options)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(SIZE))?;
    running.wait_for(SIZE, TIMEOUT)?;
    let memory = server.resident_bytes()?.saturating_sub(before);
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let flood = Injections::on(path, AttackName::SynFlood)?;
    match outcome(&exchange, SIZE) {
        Outcome::Equal => {}
        Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => {
            bail!("{text}; {}", flood.words())
        }
    }
    let heard = exchange.up.first_at.context("nothing arrived")?;
    let opened = heard.duration_since(began).unwrap_or_default();
    let status = fixture.status(Side::Server)?.context("the server gives no status")?;
    let cookies = status["host"]["strangers"]["syn_cookies_sent"].as_u64().context("no count of cookies")?;
    let words = format!(
        "equal, first byte after {} ms, {} cookies sent, {} KiB of memory, {}",
        opened.as_millis(),
        cookies,
        memory >> 10,
        flood.words()
    );
    ensure!(cookies >= LEAST, "no flood: {words}");
    ensure!(memory <= MOST_MEMORY, "{words}");
    ensure!(opened <= IN_TIME || !context.settings.judges_times, "{words}");
    Ok(Verdict::Passed(words))
}
