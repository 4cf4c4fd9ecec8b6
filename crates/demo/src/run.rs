//! One fetch by one system, without an attack or under one, in a lab of its own.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Context;
use plait_lab::{Arrival, Attack, AttackName, Conditions, Direction, Lab, LabConfig, PathClass, PathConfig};
use serde::{Deserialize, Serialize};

use crate::system::{Fixture, Running, System};

/// How a fetch ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every byte arrived, and the program ended well.
    Survived,
    /// The program reported an error; what it had received until then was right.
    Died(String),
    /// The program was given bytes that the server did not send, and was not told.
    WrongBytes,
    /// The program took a part for the whole.
    Truncated,
}

/// What one path's eavesdropper got.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Overheard {
    /// The path.
    pub path: String,
    /// Whether the client trusts it.
    pub is_trusted: bool,
    /// Bytes of payload that went by towards the client.
    pub payload: u64,
    /// Places at which eight bytes in a row of the page went by in clear.
    pub matches: u64,
    /// The beginning of what can be read as it is.
    pub verbatim: String,
    /// What was recovered from scrambled bytes, and which share of it is right.
    pub recovered: Option<(String, f64)>,
}

/// What happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// By which system.
    pub system: System,
    /// The attack, by its name; `None` baseline.
    pub attack: Option<String>,
    /// How it ended.
    pub verdict: Verdict,
    /// Bytes of the page.
    pub size: u64,
    /// Bytes of the page that did not arrive, or not right.
    pub lost: u64,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Longest time without an arrival at the client, seconds.
    pub longest_gap: f64,
    /// Packets that the injector changed, dropped or made, as its own capture proves; cuts by its log.
    pub injected: u64,
    /// When it first did so, in seconds since the beginning.
    pub struck: Option<f64>,
    /// Per path.
    pub overheard: Vec<Overheard>,
    /// Arrivals by data sequence number, thinned.
    pub arrivals: Vec<Arrival>,
    /// Mbit/s towards the client per path, in steps of [`STEP`].
    pub rates: Vec<Vec<f64>>,
}

impl Run {
    /// Mbit/s of the page, from the program's start to its end.
    pub fn goodput(&self) -> f64 {
        (self.size - self.lost.min(self.size)) as f64 * 8e-6 / self.seconds.max(1e-3)
    }
}

/// Length of a step of [`Run::rates`].
pub const STEP: Duration = Duration::from_millis(50);
/// Bytes kept of each packet in the captures: all headers.
const HEADERS: u32 = 128;
/// Points of a picture; more cannot be told apart.
const MAX_ARRIVALS: usize = 1500;
/// Most of what an eavesdropper read that is shown.
const EXCERPT: usize = 700;
/// Longest a run may take, with all that can go wrong.
const TIMEOUT: Duration = Duration::from_secs(40);

/// What is to happen.
pub(crate) struct Plan<'a> {
    pub(crate) system: System,
    pub(crate) attack: Option<AttackName>,
    pub(crate) document: &'a str,
    pub(crate) page: &'a [u8],
}

/// Carries one run out.
pub(crate) fn execute(plan: &Plan<'_>, fixture: &Fixture) -> anyhow::Result<Run> {
    let captures = fixture.scratch.join("captures");
    let lab = Lab::up(config(&captures)).context("bringing the lab up")?;
    let running = Running::start(plan.system, &lab, fixture)?;
    for path in lab.paths() {
        path.watch(plan.page)?;
    }
    let target = lab.path("b")?;
    if let Some(name) = plan.attack {
        // The paper's attacker strikes when half of the page is through (section V); a quarter of that is on its path at
        // least, which joins later than the other.
        let share = plan.page.len() as u64 / 8;
        let attack = Attack::new(name).towards(Direction::ToClient).after(share).times(1);
        target.attack(attack.lasting(Duration::from_secs(60)))?;
    }
    let file = fixture.scratch.join("fetched");
    let _ = fs::remove_file(&file);
    let began = lab.elapsed();
    let child = running.fetch(&lab, plan.document, &file)?.spawn().context("starting curl")?;
    let (code, said) = wait(child)?;
    let seconds = (lab.elapsed() - began).as_secs_f64();
    let got = fs::read(&file).unwrap_or_default();
    let right = got.iter().zip(plan.page).filter(|(got, page)| got == page).count();
    let verdict = match (code, right == plan.page.len(), right == got.len()) {
        (0, true, true) => Verdict::Survived,
        (0, false, true) => Verdict::Truncated,
        (_, _, false) => Verdict::WrongBytes,
        (_, _, true) => Verdict::Died(said),
    };
    let overheard = lab.paths().iter().map(|path| overhear(path, plan)).collect::<anyhow::Result<_>>()?;
    let series = lab.paths().iter().map(plait_lab::Path::series).collect::<Result<Vec<_>, _>>()?;
    let log = target.injections()?;
    target.flush()?;
    let mut injected = plait_lab::injected_packets(&captures.join("b.pcapng"))?.len() as u64;
    if plan.attack == Some(AttackName::Cut) {
        // What is taken away leaves no packet: the link counts it.
        let carried = target.summary()?;
        injected = log.total.min(carried.carried_to_client.cut + carried.carried_to_server.cut);
    }
    drop(running);
    Ok(Run {
        system: plan.system,
        attack: plan.attack.map(|name| name.as_str().to_owned()),
        verdict,
        size: plan.page.len() as u64,
        lost: (plan.page.len() - right) as u64,
        seconds,
        longest_gap: longest_gap(&series),
        injected,
        struck: log.entries.first().map(|tampering| tampering.at.saturating_sub(began).as_secs_f64()),
        overheard,
        arrivals: thinned(plait_lab::arrivals(&series, Direction::ToClient, began)),
        rates: series.iter().map(|series| rates(series, began)).collect(),
    })
}

/// Two paths of 50 Mbit/s: one that is trusted, one that is not.
fn config(captures: &Path) -> LabConfig {
    let conditions = Conditions::megabits(50, 10);
    LabConfig {
        paths: vec![
            PathConfig::new("a", PathClass::Trusted, conditions.clone()),
            PathConfig::new("b", PathClass::Untrusted, conditions),
        ],
        captures: Some(captures.to_owned()),
        snap_length: HEADERS,
        ..LabConfig::default()
    }
}

/// Exit code and last words of a program that must end.
fn wait(mut child: Child) -> anyhow::Result<(i32, String)> {
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok((-1, format!("no end after {} s", TIMEOUT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no word").trim().to_owned();
    Ok((output.status.code().unwrap_or(-1), last))
}

fn overhear(path: &plait_lab::Path, plan: &Plan<'_>) -> anyhow::Result<Overheard> {
    let heard = path.summary()?.to_client;
    let recovered = match plan.system {
        System::Scrambled if plan.attack.is_none() => recover(path, plan.page)?,
        System::TlsOverKernel | System::Plain | System::Scrambled | System::Sealed => None,
    };
    Ok(Overheard {
        path: path.name().to_owned(),
        is_trusted: path.class() == PathClass::Trusted,
        payload: heard.payload,
        matches: heard.matches,
        verbatim: path.text(Direction::ToClient, EXCERPT)?,
        recovered,
    })
}

/// Attacks what a path carried, without any knowledge of the page but its language; the page only says how well.
fn recover(path: &plait_lab::Path, page: &[u8]) -> anyhow::Result<Option<(String, f64)>> {
    let reading = plait_cryptanalysis::read_pieces(path.payload(Direction::ToClient)?, page);
    Ok(reading.map(|mut reading| {
        reading.longest.truncate(EXCERPT);
        (String::from_utf8_lossy(&reading.longest).into_owned(), reading.right)
    }))
}

fn longest_gap(series: &[plait_lab::Series]) -> f64 {
    let mut times: Vec<Duration> = series
        .iter()
        .flat_map(|series| &series.samples)
        .filter(|sample| sample.direction == Direction::ToClient)
        .map(|sample| sample.at)
        .collect();
    times.sort_unstable();
    times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).fold(0.0, f64::max)
}

/// As many as can be told apart.
fn thinned(all: Vec<Arrival>) -> Vec<Arrival> {
    let step = all.len().div_ceil(MAX_ARRIVALS).max(1);
    all.into_iter().step_by(step).collect()
}

fn rates(series: &plait_lab::Series, began: Duration) -> Vec<f64> {
    let per_step = (STEP.as_millis() / plait_lab::INTERVAL.as_millis()) as usize;
    let skipped = (began.as_millis() / plait_lab::INTERVAL.as_millis()) as usize;
    let bytes = series.bytes(Direction::ToClient);
    let seconds = STEP.as_secs_f64();
    bytes
        .get(skipped..)
        .unwrap_or_default()
        .chunks(per_step)
        .map(|chunk| chunk.iter().sum::<u64>() as f64 * 8.0 / 1e6 / seconds)
        .collect()
}
