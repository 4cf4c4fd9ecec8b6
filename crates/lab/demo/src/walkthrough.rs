//! All runs: systems take turns, round after round.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use plait_bench::{Spread, digits};
use plait_lab::documents::{diary, noise};
use plait_lab::{AttackName, Strain, Watch};
use serde::{Deserialize, Serialize};

use crate::goals::{Goal, goals};
use crate::overheard::{Excerpt, Overheard};
use crate::provenance::Provenance;
use crate::run::{Fetch, Page, Run, Stage, Verdict};
use crate::system::{Fixture, System};
use crate::trial::Trial;

/// The settings of the walkthrough.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `plait` program.
    pub plait: PathBuf,
    /// A directory for certificates, keys and what is fetched; removed at the end.
    pub scratch: PathBuf,
    /// Bytes of the page that is fetched under attack.
    pub size: usize,
    /// How often each system fetches it in peace and under each attack.
    pub runs: usize,
    /// Of all chance in the lab.
    pub seed: u64,
}

/// The eavesdroppers' data of one system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// The system.
    pub system: System,
    /// How the fetch went.
    pub run: Run,
    /// Per path.
    pub overheard: Vec<Overheard>,
    /// The same 64 bytes at the client and on the paths.
    pub excerpt: Option<Excerpt>,
}

/// Everything that happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Walkthrough {
    /// Its origin.
    pub provenance: Provenance,
    /// How busy the machine was.
    pub strain: Strain,
    /// A diary in peace, for the eavesdroppers.
    pub readings: Vec<Reading>,
    /// Noise, in peace and under attack.
    pub trials: Vec<Trial>,
}

/// Bytes of the diary: enough for some of it to cross each path, few enough to attack all that was scrambled.
const DIARY: usize = 200_000;

/// The attacks of the table. The paper's is the first.
pub(crate) const ATTACKS: [AttackName; 6] = [
    AttackName::Flip,
    AttackName::Insert,
    AttackName::Rst,
    AttackName::ForgeDss,
    AttackName::Fastclose,
    AttackName::Cut,
];

/// Fetches until an attack has reached the wire.
const ATTEMPTS: usize = 6;

/// The order in which the systems take turns, and whether the program of another may still be ending meanwhile. Systems with compared
/// rates do not overlap with it.
const TURNS: [(System, bool); 4] = [
    (System::TlsOverKernel, false),
    (System::Sealed, false),
    (System::Plain, true),
    (System::Scrambled, true),
];

impl Walkthrough {
    /// The trial of a system in peace (`None`) or under an attack.
    pub fn trial(&self, system: System, attack: Option<&str>) -> Option<&Trial> {
        self.trials.iter().find(|trial| trial.system == system && trial.attack.as_deref() == attack)
    }

    /// The attacks that were made, in order.
    pub fn attacks(&self) -> Vec<&str> {
        let was_made = |name: &&str| self.trials.iter().any(|trial| trial.attack.as_deref() == Some(*name));
        ATTACKS.iter().map(|attack| attack.as_str()).filter(was_made).collect()
    }

    /// How many attacks a system came through with every byte of every run.
    pub fn intact(&self, system: System) -> usize {
        let mine = self.trials.iter().filter(|trial| trial.system == system && trial.attack.is_some());
        mine.filter(|trial| trial.is_intact()).count()
    }

    /// The systems that survived, in a line: `6 attacks, 4 systems: sealed 6/6 intact; ...`.
    pub fn headline(&self) -> String {
        let all = self.attacks().len();
        let each = |system| format!("{} {}/{all} intact", System::short_name(system), self.intact(system));
        let mut order = System::ALL;
        order.reverse();
        format!("{all} attacks, {} systems: {}", order.len(), order.map(each).join("; "))
    }

    /// The goals of sealed, and its results.
    pub fn goals(&self) -> Vec<Goal> {
        goals(self)
    }

    /// Returns what contradicts the walkthrough: a sealed connection that an attack on one path has broken, or with a page that was
    /// overheard; an attack that never reached the wire; a page that does not arrive undisturbed.
    pub fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for reading in &self.readings {
            let matches = reading.overheard.iter().map(|path| path.matches).sum();
            judge(reading.system, "diary", &reading.run, matches, &mut wrong);
        }
        for trial in &self.trials {
            let what = trial.attack.as_deref().unwrap_or("peace");
            for run in &trial.runs {
                judge(trial.system, what, run, run.matches, &mut wrong);
                let is_broken = trial.system == System::Sealed && run.verdict != Verdict::Survived;
                if trial.attack.is_some() && is_broken {
                    wrong.push(format!("{}, {what}: {:?}", trial.system.name(), run.verdict));
                }
                if trial.attack.is_some() && run.injected == 0 {
                    wrong.push(format!("{}, {what}: the attack never reached the wire", trial.system.name()));
                }
                if trial.attack.is_none() && run.verdict != Verdict::Survived {
                    wrong.push(format!("{}, {what}: {:?}", trial.system.name(), run.verdict));
                }
            }
        }
        wrong
    }
}

/// Checks the eavesdropper's data of a run.
fn judge(system: System, what: &str, run: &Run, read: u64, wrong: &mut Vec<String>) {
    let name = system.name();
    match system {
        System::Sealed | System::TlsOverKernel | System::Scrambled if read > 0 => {
            wrong.push(format!("{name}, {what}: the page was on the wire in clear at {read} places"));
        }
        System::Plain if read == 0 && run.unread == 0 && run.verdict == Verdict::Survived => {
            wrong.push(format!("{name}, {what}: the eavesdropper does not see a page in clear"));
        }
        System::TlsOverKernel | System::Plain | System::Scrambled | System::Sealed => {}
    }
}

/// A directory that goes with its owner, also where a run fails.
struct Scratch<'a>(&'a std::path::Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

/// Carries all runs out, showing how far it is.
///
/// # Errors
/// The lab cannot be built here, or a program cannot be started.
pub fn run_all(options: &Options) -> anyhow::Result<Walkthrough> {
    let Options { plait, scratch, size, runs, seed } = options;
    let runs = (*runs).max(1);
    let provenance = Provenance::look(*seed, runs, *size);
    let fixture = Fixture {
        plait: plait.clone(),
        documents: scratch.join("documents"),
        scratch: scratch.clone(),
        bundle: scratch.join("tls.pem"),
    };
    let _scratch = Scratch(scratch);
    fixture.prepare()?;
    let pages = [Page::new("diary.txt", diary(DIARY)), Page::new("noise.bin", noise(*size))];
    for page in &pages {
        fs::write(fixture.documents.join(page.name), &page.bytes)?;
    }
    let watch = Watch::start();
    let situations: Vec<Option<AttackName>> =
        std::iter::once(None).chain(ATTACKS.into_iter().map(Some)).collect();
    let bar = ProgressBar::new((System::ALL.len() * (1 + runs * situations.len())) as u64);
    bar.set_style(ProgressStyle::with_template("{elapsed:>4} [{bar:28}] {pos:>3}/{len} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let began = Instant::now();
    let (readings, trials) = play(&fixture, &pages, &situations, (runs, *seed), &bar)?;
    bar.finish_and_clear();
    show(&format!("all runs took {:.0} s", began.elapsed().as_secs_f64()));
    Ok(Walkthrough { provenance, strain: watch.end(), readings, trials })
}

/// A line of progress. One that cannot be written is dropped: the caller writes the results, and reports that.
fn show(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// All systems side by side, of which one at a time fetches.
fn play(
    fixture: &Fixture,
    [diary, noise]: &[Page; 2],
    situations: &[Option<AttackName>],
    (runs, seed): (usize, u64),
    bar: &ProgressBar,
) -> anyhow::Result<(Vec<Reading>, Vec<Trial>)> {
    let mut stages = Vec::new();
    for system in System::ALL {
        bar.set_message(format!("{}: starting", system.name()));
        let stage = Stage::build(system, fixture, seed).with_context(|| system.name())?;
        stages.push(stage);
    }
    let tell = |text: String| if bar.is_hidden() { show(&text) } else { bar.println(text) };
    let mut readings = Vec::new();
    for stage in &mut stages {
        let system = stage.system;
        let (run, overheard) = stage.read(diary).with_context(|| system.name())?;
        let reading = Reading { system, run, overheard, excerpt: stage.excerpt(diary)? };
        tell(told(&reading));
        readings.push(reading);
        bar.inc(1);
    }
    let trials = situations.iter().flat_map(|attack| {
        let attack = attack.map(|name| name.as_str().to_owned());
        System::ALL.map(|system| Trial { system, attack: attack.clone(), runs: Vec::new() })
    });
    let mut rounds = Rounds { stages, trials: trials.collect(), noise, ending: None };
    for round in 1..=runs {
        for (number, attack) in situations.iter().enumerate() {
            for (system, beside) in TURNS {
                let turn = (system, *attack);
                bar.set_message(format!("{}, {round} of {runs}", name(turn)));
                rounds.take(turn, beside)?;
                bar.inc(1);
            }
            if round == runs {
                rounds.end_last()?;
                let trials = &rounds.trials[number * System::ALL.len()..][..System::ALL.len()];
                trials.iter().for_each(|trial| tell(line(trial)));
            }
        }
    }
    rounds.end_last()?;
    Ok((readings, rounds.trials))
}

/// A system and a situation of its fetch.
type Turn = (System, Option<AttackName>);

/// The systems take turns. The end of a program after its page has arrived does not count in a figure; it overlaps with the next fetch.
struct Rounds<'a> {
    stages: Vec<Stage>,
    trials: Vec<Trial>,
    noise: &'a Page,
    /// The last fetch, which is to be judged.
    ending: Option<(Turn, Fetch<'a>)>,
}

impl Rounds<'_> {
    /// One fetch; the one before is judged behind it, or before it unless it may end `beside` this one.
    fn take(&mut self, turn: Turn, beside: bool) -> anyhow::Result<()> {
        if !beside {
            self.end_last()?;
        }
        let fetch = stage(&mut self.stages, turn.0)?.fetch(self.noise, turn.1, 0);
        let fetch = fetch.with_context(|| name(turn))?;
        let last = self.ending.replace((turn, fetch));
        self.end(last)
    }

    fn end_last(&mut self) -> anyhow::Result<()> {
        let last = self.ending.take();
        self.end(last)
    }

    fn end(&mut self, last: Option<(Turn, Fetch<'_>)>) -> anyhow::Result<()> {
        last.map_or(Ok(()), |(turn, fetch)| self.judge(turn, fetch).with_context(|| name(turn)))
    }

    fn judge(&mut self, (system, attack): Turn, fetch: Fetch<'_>) -> anyhow::Result<()> {
        let stage = stage(&mut self.stages, system)?;
        let mut run = stage.judge(fetch)?;
        // The path may have carried too little of the page: then nothing was attacked.
        for attempt in 1..ATTEMPTS {
            if attack.is_none() || run.injected > 0 {
                break;
            }
            let fetch = stage.fetch(self.noise, attack, attempt)?;
            run = stage.judge(fetch)?;
        }
        let attack = attack.map(AttackName::as_str);
        let mut trials = self.trials.iter_mut();
        let trial = trials.find(|trial| trial.system == system && trial.attack.as_deref() == attack);
        trial.context("there is one for each turn")?.runs.push(run);
        Ok(())
    }
}

/// For people.
fn name((system, attack): Turn) -> String {
    format!("{}, {}", attack.map_or("peace", |name| name.as_str()), system.name())
}

fn stage(stages: &mut [Stage], system: System) -> anyhow::Result<&mut Stage> {
    stages.iter_mut().find(|stage| stage.system == system).context("each system has a stage")
}

/// A reading in a line for each path.
fn told(reading: &Reading) -> String {
    let mut text =
        format!("{:<26} a diary of {DIARY} bytes in {:.1} s", reading.system.name(), reading.run.seconds);
    for path in &reading.overheard {
        let read = match (&path.recovered, path.matches) {
            (Some((_, share)), _) => format!("{:.1} % recovered", share * 100.0),
            (None, 0) => "nothing readable".to_owned(),
            (None, _) => "reads it in clear".to_owned(),
        };
        text.push_str(&format!("\n{:>27}path {}: {} bytes, {read}", "", path.path, path.payload));
    }
    text
}

/// A trial in a line: medians.
fn line(trial: &Trial) -> String {
    let (outcome, times) = trial.outcome();
    let what = trial.attack.as_deref().unwrap_or("peace");
    let shown = |spread: Option<Spread>, unit: &str| {
        spread.map_or(String::new(), |spread| format!("{} {unit}", digits(spread.median)))
    };
    let often = if times == trial.runs.len() {
        String::new()
    } else {
        format!(" in {times} of {}", trial.runs.len())
    };
    let figures = [
        shown(trial.goodput(), "Mbit/s"),
        shown(trial.gap(), "ms longest gap"),
        shown(trial.repair(), "ms to repair"),
    ];
    let figures: Vec<String> = figures.into_iter().filter(|text| !text.is_empty()).collect();
    let figures = if figures.is_empty() { String::new() } else { format!("; {}", figures.join(", ")) };
    format!("{:<26} {what:<10} {}{often}{figures}", trial.system.name(), outcome.words())
}
