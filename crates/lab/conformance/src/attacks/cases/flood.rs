//! SYNs from everywhere while a connection opens, and SYNs of joins while a path joins: it opens, the path joins, and the server keeps
//! little of them.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use plait_bench::{Spread, millis};
use plait_lab::{Attack, AttackName, Program};

use super::{Injections, Outcome, TIMEOUT, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Load};
use crate::attacks::fixture::{Fixture, Listening, Side};

/// Bytes each way.
const SIZE: u64 = 1 << 20;
/// From the start of the client to its first byte: its SYN is lost once and comes again after a second, then there is a handshake of
/// two round trips, for which a flood is to be no reason to take longer.
const IN_TIME: Duration = Duration::from_secs(2);
/// Time between two invented joins, and how often an honest path joins before and during them.
const JOIN_EVERY: Duration = Duration::from_micros(100);
const JOINS: u32 = 10;
/// The longest that a path may take to join, and between two looks.
const JOINING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// Between two joins: of the subflows of one pair of addresses only a few may be on their way out.
const PAUSE: Duration = Duration::from_millis(400);
/// Most milliseconds that invented joins may add to an honest one, in the median and of the slowest. A read of the status takes some of it.
const MOST_DELAY: f64 = 200.0;
/// Invented clients that were answered without keeping anything, at least: some 8000 on a machine that does nothing else.
const LEAST: u64 = 1000;
/// Fraction of its rate that an injector must reach, which has one of perhaps two processors.
const LEAST_PART: f64 = 0.7;
/// Most memory of the server for them: half-open connections to their limit, 4096 of 6 KiB, and as much again.
const MOST_MEMORY: u64 = 48 << 20;

pub(crate) fn all() -> Vec<Case> {
    let about = "10,000 SYNs a second from invented addresses: a client opens a second after its lost SYN";
    let case = |handshake: &'static str| {
        let run = move |context: &Context<'_>| opens(context, handshake);
        Case::new(format!("flood/syns-{handshake}"), about, run).quick_if(handshake == "tls")
    };
    let mut cases = Vec::from(["tls", "tcpcrypt"].map(case));
    let about =
        "10,000 joins a second with the token of a connection: an honest path joins as fast as without";
    cases.push(Case::new("flood/joins".to_owned(), about, joins));
    cases
}

fn joins(context: &Context<'_>) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Closed)?;
    let mut server = fixture.listen(&[])?;
    let control = fixture.control();
    let control = control.to_str().context("the directory's name is text")?;
    let paths = ["--path", "a=trusted", "--path", "b=untrusted"];
    let mut client = fixture.connect(&paths, &["--control", control])?;
    // Little is said until the paths have joined and left often enough.
    let load = Load { holds_down_at: Some(1), ..Load::noise(SIZE) };
    let running = exchange::start(&mut client, &mut server, &load)?;
    running.wait_for(SIZE + 1, TIMEOUT)?;
    join(&fixture, &client, "b")?;
    let quiet = joinings(&fixture, &client)?;
    let before = server.resident_bytes()?;
    let attacked = fixture.path("b")?;
    attacked.attack(Attack::new(AttackName::JoinFlood).lasting(JOIN_EVERY))?;
    // The attacker has to see one to know the token.
    join(&fixture, &client, "b")?;
    let began = Instant::now();
    let flooded = joinings(&fixture, &client)?;
    let memory = server.resident_bytes()?.saturating_sub(before);
    running.let_go();
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let seconds = began.elapsed().as_secs_f64();
    let flood = Injections::on(attacked, AttackName::JoinFlood)?;
    let status = fixture.status(Side::Server)?.context("the server gives no status")?;
    let answers = status["host"]["strangers"]["join_cookies_sent"].as_u64().context("no count of cookies")?;
    let rate = answers as f64 / seconds;
    if let Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) = outcome(&exchange, SIZE) {
        bail!("{text}; {}", flood.words())
    }
    let words = format!(
        "equal; an honest path joins in {} in the median, {} at most, under {rate:.0} joins a second that are answered in {} and {}; {} KiB of memory",
        millis(quiet.median),
        millis(quiet.most),
        millis(flooded.median),
        millis(flooded.most),
        memory >> 10
    );
    ensure!(memory <= MOST_MEMORY, "{words}");
    ensure!(
        rate >= LEAST_PART / JOIN_EVERY.as_secs_f64() || !context.settings.judges_times,
        "no such flood: {words}"
    );
    let delay = (flooded.median - quiet.median).max(flooded.most - quiet.most);
    ensure!(delay <= MOST_DELAY || !context.settings.judges_times, "{words}");
    Ok(Verdict::Passed(words))
}

/// How long the first path takes to join, again and again.
fn joinings(fixture: &Fixture<'_>, client: &Program) -> Result<Spread> {
    let times = (0..JOINS).map(|_| join(fixture, client, "a").map(Some)).collect::<Result<Vec<_>>>()?;
    Spread::of_times(times).context("no joins")
}

/// Takes a path away and adds it again; how long it takes to join.
fn join(fixture: &Fixture<'_>, client: &Program, path: &str) -> Result<Duration> {
    std::thread::sleep(PAUSE);
    fixture.change_path(&format!("{path}=never"))?;
    let until = Instant::now() + JOINING;
    while fixture.is_joined(client, path)? {
        ensure!(Instant::now() < until, "path {path} is still in use after {JOINING:?}");
        std::thread::sleep(POLL);
    }
    let began = Instant::now();
    fixture.change_path(&format!("{path}=trusted"))?;
    while !fixture.is_joined(client, path)? {
        ensure!(Instant::now() < began + JOINING, "path {path} has not joined within {JOINING:?}");
        std::thread::sleep(POLL);
    }
    Ok(began.elapsed())
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
