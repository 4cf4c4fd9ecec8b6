//! The slides of 2017: hand-over from one network to another.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use plait_bench::{Spread, digits};
use plait_lab::{Conditions, Direction, Lab};
use plait_report::{Bar, Scale, bars};

use crate::claim::Claim;
use crate::conversation::{Conversation, JOIN, Talk};
use crate::figure::{Finding, Picture, Row};
use crate::measure::Runs;
use crate::place::{place_of, two_paths};
use crate::system::Instructions::Used;
use crate::system::System;

const SYSTEMS: [System; 4] =
    [System::Mptcp, System::Tls { instructions: Used }, System::Plain, System::Sealed { instructions: Used }];
/// Mbit/s of each path.
const RATE: u64 = 10;
/// One way.
const DELAY: u64 = 10;
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a transfer may take to carry something on both paths.
const START: Duration = Duration::from_secs(5);
/// Bytes of payload on a path that more than a handshake has.
const CARRYING: u64 = 20_000;
/// When the first path goes, from the moment on when both carry data.
const GONE: Duration = Duration::from_millis(300);

struct HandOver {
    /// From the first packet on the first path to the last of those by which the second joins, in ms.
    ready: f64,
    /// Longest time without a read at the application, in ms.
    gap: f64,
    commands: Vec<String>,
}

pub(crate) fn measure(runs: &Runs<'_>) -> anyhow::Result<Finding> {
    let all = runs.in_turn(&SYSTEMS, once)?;
    let (mut rows, mut gaps, mut joins) = (Vec::new(), Vec::new(), Vec::new());
    for (system, all) in SYSTEMS.iter().zip(&all) {
        let gap = Spread::of(all.iter().map(|it| it.gap)).context("no runs")?;
        let ready = Spread::of(all.iter().map(|it| it.ready)).context("no runs")?;
        gaps.push(gap.clone());
        joins.push(ready.clone());
        for (name, measured) in [
            ("longest gap at the reader, when the first path is cut", gap),
            ("until the second path has joined, from the first packet of the connection", ready),
        ] {
            let (group, name) = (system.name().to_owned(), name.to_owned());
            rows.push(Row { group, name, unit: "ms".to_owned(), paper: None, measured });
        }
    }
    let each = |of: &[Spread]| {
        let one =
            |(system, spread): (&System, &Spread)| format!("{} {} ms", system.name(), digits(spread.median));
        SYSTEMS.iter().zip(of).map(one).collect::<Vec<_>>().join(", ")
    };
    let claims = vec![
        Claim::unstated(
            "\"Faster handovers between WiFi and LTE\": this is the main reason why smartphones use Multipath TCP.",
            format!("gap when the first path goes: {}", each(&gaps)),
        ),
        Claim::unstated(
            "The four-way handshake of a further subflow is \"far too long for fast handovers on smartphones\".",
            format!(
                "from the first packet of the connection until the second path has joined, at a round trip of {} ms: {}",
                2 * DELAY,
                each(&joins)
            ),
        ),
    ];
    let pictures = vec![
        picture("Longest gap at the reader when the first path is cut", &gaps),
        picture("Until the second path has joined", &joins),
    ];
    Ok(Finding {
        title: "Hand-over from one path to another",
        source: "Slides of 2017, \"Improving handovers on smartphones\" and \"Faster handovers\"",
        published: "Pictures and an argument, without numbers in the text: Multipath TCP is used for faster hand-over between WiFi and LTE, and the four-way handshake by which a \
                    subflow joins is far too long for it; data in SYN with MP_JOIN is proposed.",
        made: format!(
            "Two paths of {RATE} Mbit/s and {} ms. The client downloads; 300 ms after both paths carry data the first is cut, silently, for good. What counts is the longest time \
             without a byte at the client's application, which is that of the hand-over, and how long after the first packet of the connection the second path has joined: \
             the last of the four packets of its handshake, with whatever comes before it.",
            2 * DELAY
        ),
        commands: all.iter().flat_map(|all| all[0].commands.clone()).collect(),
        departures: vec!["Hosts in namespaces in place of a smartphone: the second path is known from the start, and there is no radio to wake up.".to_owned()],
        rows,
        claims,
        pictures,
        exhibits: Vec::new(),
    })
}

fn once(runs: &Runs<'_>, system: System) -> anyhow::Result<HandOver> {
    let lab = two_paths(Conditions::megabits(RATE, DELAY))?;
    // About 1.5 s with both paths: the cut is in the middle.
    let bytes = 3_000_000;
    let direction = Direction::ToClient;
    let talk = Talk::Transfer {
        direction,
        bytes,
        block: 4096,
        pause: JOIN,
        marks: Vec::new(),
        document: None,
        keep: None,
    };
    let conversation = Conversation::start(system, &place_of(&lab)?, &talk, runs.fixture)?;
    let ready = ready(&lab)?;
    let is_carrying = || -> plait_lab::Result<bool> {
        let summaries = lab.paths().iter().map(plait_lab::Path::summary).collect::<Result<Vec<_>, _>>()?;
        Ok(summaries.iter().all(|summary| summary.to_client.payload > CARRYING))
    };
    plait_lab::wait_until("data on both paths", START, is_carrying)?;
    std::thread::sleep(GONE);
    lab.path("a")?.cut()?;
    let outcome = conversation.finish(TIMEOUT)?;
    let commands = outcome.commands.clone();
    let gap = outcome.whole(bytes)?.longest_gap * 1e3;
    Ok(HandOver { ready: ready.as_secs_f64() * 1e3, gap, commands })
}

/// How long after the first packet on the first path the second has joined: the server's second packet there is the last of the
/// four by which a subflow joins.
fn ready(lab: &Lab) -> anyhow::Result<Duration> {
    let (first, second) = (lab.path("a")?, lab.path("b")?);
    let packets =
        |path: &plait_lab::Path, direction| path.summary().map(|summary| summary.heard(direction).packets);
    let until = Instant::now() + START;
    let mut began = None;
    loop {
        if began.is_none() && packets(first, Direction::ToServer)? > 0 {
            began = Some(Instant::now());
        }
        if let Some(began) = began
            && packets(second, Direction::ToClient)? > 1
        {
            return Ok(began.elapsed());
        }
        ensure!(Instant::now() < until, "the second path has not joined in {} s", START.as_secs());
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn picture(what: &str, spreads: &[Spread]) -> Picture {
    let bar = |(colour, (system, spread)): (usize, (&System, &Spread))| Bar {
        name: system.name().to_owned(),
        value: spread.median,
        text: format!("{} ms", digits(spread.median)),
        spread: Some((spread.least, spread.most)),
        reference: None,
        colour,
    };
    let all: Vec<Bar> = SYSTEMS.iter().zip(spreads).enumerate().map(bar).collect();
    Picture { svg: bars(&all, Scale::Linear), caption: format!("<b>{what}</b>") }
}
