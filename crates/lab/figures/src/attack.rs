//! Jadin 2017, Figure 9: one changed byte in the middle of a transfer.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use plait_bench::{Spread, digits};
use plait_lab::{Arrival, Attack, AttackName, Conditions, Direction, Lab, arrivals};
use plait_report::{Axis, Chart, Line, Shape, key};

use crate::claim::Claim;
use crate::conversation::{Conversation, JOIN, Talk};
use crate::figure::{Finding, Picture, Row};
use crate::measure::Runs;
use crate::place::{place_of, two_paths};
use crate::published::{figure_8, figure_9 as published};
use crate::system::Instructions::Used;
use crate::system::System;
use crate::throughput::SIZE;

/// The promise of the paper for its sealed connections, and of plait for its own.
pub(crate) const PROMISE: &str = "MPTCPsec continues the transfer after the attack.";

const SYSTEMS: [System; 2] = [System::Tls { instructions: Used }, System::Sealed { instructions: Used }];
/// Mbit/s of each path: slow enough to strike when it is time.
const RATE: u64 = 10;
const TIMEOUT: Duration = Duration::from_secs(20);
/// Transfers until the attacker has come in time.
const ATTEMPTS: usize = 5;
/// How long a transfer may take to come as far as the strike.
const HALF: Duration = Duration::from_secs(10);

/// One transfer under attack.
struct Attacked {
    /// Bytes that arrived as they were sent.
    right: u64,
    /// Bytes of payload that both paths had carried when the attacker struck.
    strike: u64,
    /// Longest time without a read at the application, in milliseconds.
    gap: f64,
    error: Option<String>,
    struck: f64,
    arrivals: Vec<Arrival>,
    commands: Vec<String>,
}

pub(crate) fn measure(runs: &Runs<'_>) -> anyhow::Result<Finding> {
    let all = runs.in_turn(&SYSTEMS, attacked)?;
    let mut rows = Vec::new();
    for (system, all) in SYSTEMS.iter().zip(&all) {
        for (name, unit, of) in [
            (
                "bytes that had gone when the attacker struck",
                "bytes",
                (|it| it.strike as f64) as fn(&Attacked) -> f64,
            ),
            ("bytes that arrived as they were sent, of 1,000,000", "bytes", |it| it.right as f64),
            ("longest gap at the application", "ms", |it| it.gap),
        ] {
            let measured = Spread::of(all.iter().map(of)).context("no runs")?;
            let paper = name.contains("struck").then_some(published::STRIKE as f64);
            let (group, name, unit) = (system.name().to_owned(), name.to_owned(), unit.to_owned());
            rows.push(Row { group, name, unit, paper, measured });
        }
    }
    let pictures =
        SYSTEMS.iter().zip(&all).map(|(system, all)| picture(*system, &all[0])).collect::<Result<_, _>>()?;
    let claims = claims(&all);
    Ok(Finding {
        title: "One byte changed when 500 KB of 1 MB have gone: TLS over MPTCP, MPTCPsec",
        source: "Jadin 2017, Figure 9",
        published: "1 MB in writes of 4096 bytes from client to server, two subflows. A router on the way, once 500 KB have been transferred, modifies one byte of \
                    one segment's payload and updates its checksum. TLS 1.2 over MPTCP closes the connection shortly after 500 KB; MPTCPsec closes the affected \
                    subflow, and the transfer continues.",
        made: format!(
            "Two paths of {RATE} Mbit/s and 20 ms. The injector of path b waits until both paths together have carried 500,000 bytes of payload, changes one byte \
             of the next payload on its path and mends the checksums, once. What arrived is compared with what was sent. The pictures are of the first run: \
             where in the stream the bytes that arrive at the server belong, over time; the dashed line is the attack. The application waits for 0.3 s \
             behind its first write, so that two subflows are there, as in the paper."
        ),
        commands: all.iter().flat_map(|all| all[0].commands.clone()).collect(),
        departures: Vec::new(),
        rows,
        claims,
        pictures,
        exhibits: Vec::new(),
    })
}

/// The first of a few transfers in which the attacker came in time: where the machine is busy, all may have gone by when we look.
fn attacked(runs: &Runs<'_>, system: System) -> anyhow::Result<Attacked> {
    for _ in 0..ATTEMPTS {
        if let Some(attacked) = once(runs, system)? {
            return Ok(attacked);
        }
    }
    bail!("the injector has struck in none of {ATTEMPTS} transfers")
}

/// `None` if the attacker came too late.
fn once(runs: &Runs<'_>, system: System) -> anyhow::Result<Option<Attacked>> {
    let lab = two_paths(Conditions::megabits(RATE, 10))?;
    let sent = plait_lab::documents::noise(usize::try_from(published::SIZE)?);
    let (document, keep) = (runs.fixture.scratch.join("sent"), runs.fixture.scratch.join("received"));
    fs::write(&document, &sent)?;
    let _ = fs::remove_file(&keep);
    let talk = Talk::Transfer {
        direction: Direction::ToServer,
        bytes: published::SIZE,
        block: figure_8::BLOCK,
        pause: JOIN,
        marks: Vec::new(),
        document: Some(document),
        keep: Some(keep.clone()),
    };
    let began = lab.elapsed();
    let conversation = Conversation::start(system, &place_of(&lab)?, &talk, runs.fixture)?;
    let strike = strike(&lab)?;
    let outcome = conversation.finish(TIMEOUT)?;
    let log = lab.path("b")?.injections()?;
    if log.total == 0 {
        return Ok(None);
    }
    ensure!(log.total == 1, "the injector has struck {} times", log.total);
    let struck = log.entries.first().map_or(0.0, |entry| entry.at.saturating_sub(began).as_secs_f64());
    let series = lab.paths().iter().map(plait_lab::Path::series).collect::<Result<Vec<_>, _>>()?;
    let received = fs::read(&keep).unwrap_or_default();
    let right = received.iter().zip(&sent).take_while(|(one, other)| one == other).count() as u64;
    ensure!(right == received.len() as u64, "{} was given other bytes than were sent", system.name());
    Ok(Some(Attacked {
        right,
        strike,
        gap: outcome.report.longest_gap * 1e3,
        error: outcome.report.error,
        struck,
        arrivals: arrivals(&series, Direction::ToServer, began),
        commands: outcome.commands,
    }))
}

/// Waits until half has gone, and arms the injector of path b; how much had gone.
fn strike(lab: &Lab) -> anyhow::Result<u64> {
    let until = Instant::now() + HALF;
    loop {
        let mut gone = 0;
        for path in lab.paths() {
            gone += path.summary()?.to_server.payload;
        }
        if gone >= published::STRIKE {
            lab.path("b")?.attack(Attack::new(AttackName::Flip).towards(Direction::ToServer).times(1))?;
            return Ok(gone);
        }
        ensure!(Instant::now() < until, "only {gone} bytes have gone in {} s", HALF.as_secs());
        sleep(Duration::from_millis(1));
    }
}

fn claims(all: &[Vec<Attacked>]) -> Vec<Claim> {
    let (tls, sealed) = (&all[0], &all[1]);
    let whole = |runs: &[Attacked]| {
        runs.iter().filter(|run| run.right == published::SIZE && run.error.is_none()).count()
    };
    let said = tls.iter().find_map(|run| run.error.as_deref()).unwrap_or("no error");
    let least = tls.iter().map(|run| run.right).min().unwrap_or(0);
    let most = tls.iter().map(|run| run.right).max().unwrap_or(0);
    let gap = sealed.iter().map(|run| run.gap).fold(0.0, f64::max);
    vec![
        Claim::judged(
            "TLS over MPTCP closes the connection and stops the transfer shortly after 500 KB.",
            format!(
                "{} of {} transfers were whole; {least} to {most} bytes arrived ({said})",
                whole(tls),
                tls.len()
            ),
            "no transfer is whole",
            whole(tls) == 0,
            "A transfer went on over the changed byte.",
        ),
        Claim::judged(
            PROMISE,
            format!(
                "{} of {} transfers were whole and right; the longest gap was {} ms",
                whole(sealed),
                sealed.len(),
                digits(gap)
            ),
            "every transfer is whole and right",
            whole(sealed) == sealed.len(),
            "A sealed connection did not survive an attack on one path: this is not what plait promises.",
        ),
    ]
}

fn picture(system: System, run: &Attacked) -> anyhow::Result<Picture> {
    let until = run.arrivals.last().map_or(1.0, |last| last.0).max(run.struck) * 1.1;
    let line = |path: usize| {
        let mine = run.arrivals.iter().filter(|arrival| arrival.1 == path);
        let points = mine.map(|(at, _, place)| (*at, *place as f64 / 1e3)).collect();
        Line { colour: path, shape: Shape::Points, points, spreads: Vec::new() }
    };
    let chart = Chart {
        x: Axis { unit: "seconds", until },
        y: Axis { unit: "KB of the stream", until: published::SIZE as f64 / 1e3 * 1.05 },
        size: SIZE,
        mark: Some(run.struck),
        level: None,
        lines: vec![line(0), line(1)],
    };
    let caption = format!("<b>{}</b> {}", system.name(), key([(0, "path a"), (1, "path b, attacked")]));
    Ok(Picture { svg: chart.draw()?, caption })
}
