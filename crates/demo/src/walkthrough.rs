//! All runs, one after the other.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use plait_lab::AttackName;
use plait_lab::documents::{diary, noise};
use serde::{Deserialize, Serialize};

use crate::run::{Plan, Run, Verdict, execute};
use crate::system::{Fixture, System};

/// What the walkthrough needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `plait` program.
    pub plait: PathBuf,
    /// A directory for certificates, keys and what is fetched; removed at the end.
    pub scratch: PathBuf,
    /// Bytes of the page that is fetched under attack.
    pub size: usize,
}

/// Everything that happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Walkthrough {
    /// In the order in which they were played.
    pub runs: Vec<Run>,
}

/// Bytes of the diary: enough for some of it to cross each path, few enough to attack all that was scrambled.
const DIARY: usize = 200_000;

/// The attacks of the table. The paper's is the first.
const ATTACKS: [AttackName; 6] = [
    AttackName::Flip,
    AttackName::Insert,
    AttackName::Rst,
    AttackName::ForgeDss,
    AttackName::Fastclose,
    AttackName::Cut,
];

impl Walkthrough {
    /// The run of a system baseline.
    pub fn baseline(&self, system: System) -> Option<&Run> {
        self.runs.iter().find(|run| run.system == system && run.attack.is_none())
    }

    /// The run of a system under an attack.
    pub fn under(&self, system: System, attack: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.system == system && run.attack.as_deref() == Some(attack))
    }

    /// The attacks that were made, in order.
    pub fn attacks(&self) -> Vec<&str> {
        ATTACKS
            .iter()
            .map(|attack| attack.as_str())
            .filter(|name| self.runs.iter().any(|run| run.attack.as_deref() == Some(*name)))
            .collect()
    }

    /// When the last system was through with an attack, in seconds: one scale for all pictures of it.
    pub(crate) fn attacks_end(&self, attack: &str) -> f64 {
        let of_attack = self.runs.iter().filter(|run| run.attack.as_deref() == Some(attack));
        of_attack.map(|run| run.seconds.min(10.0)).fold(0.5, f64::max)
    }

    /// What contradicts the walkthrough: a sealed connection that an attack on one path has broken or whose page was
    /// overheard, an attack that never reached the wire, a page that does not arrive baseline.
    pub fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for run in &self.runs {
            let name = run.system.name();
            let what = run.attack.as_deref().unwrap_or("baseline");
            let is_whole = run.verdict == Verdict::Survived;
            if !is_whole && (run.attack.is_none() || run.system == System::Sealed) {
                wrong.push(format!("{name}, {what}: {:?}", run.verdict));
            }
            if run.attack.is_some() && run.injected == 0 {
                wrong.push(format!("{name}, {what}: the attack never reached the wire"));
            }
            let read: u64 = run.overheard.iter().map(|path| path.matches).sum();
            match run.system {
                System::Sealed | System::TlsOverKernel | System::Scrambled if read > 0 => {
                    wrong.push(format!("{name}, {what}: the page was on the wire in clear at {read} places"));
                }
                System::Plain if read == 0 && is_whole => {
                    wrong.push(format!("{name}, {what}: the eavesdropper does not see a page in clear"));
                }
                System::TlsOverKernel | System::Plain | System::Scrambled | System::Sealed => {}
            }
        }
        wrong
    }
}

/// Carries all runs out, showing how far it is.
///
/// # Errors
/// The lab cannot be built here, or a program cannot be started.
pub fn run_all(options: &Options) -> anyhow::Result<Walkthrough> {
    let fixture = Fixture {
        plait: options.plait.clone(),
        documents: options.scratch.join("documents"),
        scratch: options.scratch.clone(),
    };
    fixture.prepare()?;
    let (diary, noise) = (diary(DIARY), noise(options.size));
    fs::write(fixture.documents.join("diary.txt"), &diary)?;
    fs::write(fixture.documents.join("noise.bin"), &noise)?;

    let plans: Vec<Plan<'_>> = System::ALL
        .into_iter()
        .flat_map(|system| {
            let baseline = Plan { system, attack: None, document: "diary.txt", page: &diary };
            let attacked = ATTACKS.into_iter().map(move |attack| (system, attack));
            let page = &noise;
            std::iter::once(baseline).chain(attacked.map(move |(system, attack)| Plan {
                system,
                attack: Some(attack),
                document: "noise.bin",
                page,
            }))
        })
        .collect();
    let bar = ProgressBar::new(plans.len() as u64);
    bar.set_style(ProgressStyle::with_template("{elapsed:>4} [{bar:28}] {pos:>2}/{len} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut runs = Vec::new();
    for plan in &plans {
        let attack = plan.attack.map_or("baseline", |attack| attack.as_str());
        bar.set_message(format!("{}: {attack}", plan.system.name()));
        let run =
            execute(plan, &fixture).with_context(|| format!("run {} / {attack}", plan.system.name()))?;
        if bar.is_hidden() {
            println!("{}", line(&run));
        } else {
            bar.println(line(&run));
        }
        runs.push(run);
        bar.inc(1);
    }
    bar.finish_and_clear();
    fs::remove_dir_all(&options.scratch).context("removing the scratch directory")?;
    Ok(Walkthrough { runs })
}

/// One run in a line.
fn line(run: &Run) -> String {
    let attack = run.attack.as_deref().unwrap_or("baseline");
    let verdict = match &run.verdict {
        Verdict::Survived => "every byte arrived".to_owned(),
        Verdict::Died(said) => format!("DIED, {} bytes lost ({said})", run.lost),
        Verdict::WrongBytes => "WRONG BYTES were taken for the page".to_owned(),
        Verdict::Truncated => format!("TRUNCATED: {} bytes missing and nobody told", run.lost),
    };
    let name = run.system.name();
    let (seconds, gap) = (run.seconds, run.longest_gap * 1000.0);
    let mut text = format!(
        "{name:<26} {attack:<10} {verdict}; {seconds:.1} s, {:.0} Mbit/s, longest gap {gap:.0} ms",
        run.goodput()
    );
    if run.attack.is_none() {
        for path in &run.overheard {
            let read = match (&path.recovered, path.matches) {
                (Some((_, share)), _) => format!("{:.1} % recovered", share * 100.0),
                (None, 0) => "nothing readable".to_owned(),
                (None, _) => "reads it in clear".to_owned(),
            };
            text.push_str(&format!("\n{:>37} path {}: {} bytes, {read}", "", path.path, path.payload));
        }
    }
    text
}
