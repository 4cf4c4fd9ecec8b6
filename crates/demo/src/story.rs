//! All episodes, one after the other.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lab::AttackName;
use serde::{Deserialize, Serialize};

use crate::episode::{Episode, Plan, Verdict, play};
use crate::page::{diary, noise};
use crate::system::{Stage, System};

/// What the story needs.
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
pub struct Story {
    /// In the order in which they were played.
    pub episodes: Vec<Episode>,
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

impl Story {
    /// The episode of a system in peace.
    pub fn in_peace(&self, system: System) -> Option<&Episode> {
        self.episodes.iter().find(|episode| episode.system == system && episode.attack.is_none())
    }

    /// The episode of a system under an attack.
    pub fn under(&self, system: System, attack: &str) -> Option<&Episode> {
        self.episodes
            .iter()
            .find(|episode| episode.system == system && episode.attack.as_deref() == Some(attack))
    }

    /// The attacks that were made, in order.
    pub fn attacks(&self) -> Vec<&str> {
        ATTACKS
            .iter()
            .map(|attack| attack.as_str())
            .filter(|name| self.episodes.iter().any(|episode| episode.attack.as_deref() == Some(*name)))
            .collect()
    }

    /// When the last system was through with an attack, in seconds: one scale for all pictures of it.
    pub(crate) fn attacks_end(&self, attack: &str) -> f64 {
        let of_attack = self.episodes.iter().filter(|episode| episode.attack.as_deref() == Some(attack));
        of_attack.map(|episode| episode.seconds.min(10.0)).fold(0.5, f64::max)
    }

    /// What contradicts the story: a sealed connection that an attack on one path has broken or whose page was
    /// overheard, an attack that never reached the wire, a page that does not arrive in peace.
    pub fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for episode in &self.episodes {
            let name = episode.system.name();
            let what = episode.attack.as_deref().unwrap_or("in peace");
            let is_whole = episode.verdict == Verdict::Survived;
            if !is_whole && (episode.attack.is_none() || episode.system == System::Sealed) {
                wrong.push(format!("{name}, {what}: {:?}", episode.verdict));
            }
            if episode.attack.is_some() && episode.injected == 0 {
                wrong.push(format!("{name}, {what}: the attack never reached the wire"));
            }
            let read: u64 = episode.overheard.iter().map(|path| path.matches).sum();
            match episode.system {
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

/// Plays all episodes, showing how far it is.
///
/// # Errors
/// The lab cannot be built here, or a program cannot be started.
pub fn tell(options: &Options) -> anyhow::Result<Story> {
    let stage = Stage {
        plait: options.plait.clone(),
        documents: options.scratch.join("documents"),
        scratch: options.scratch.clone(),
    };
    stage.prepare()?;
    let (diary, noise) = (diary(DIARY), noise(options.size));
    fs::write(stage.documents.join("diary.txt"), &diary)?;
    fs::write(stage.documents.join("noise.bin"), &noise)?;

    let plans: Vec<Plan<'_>> = System::ALL
        .into_iter()
        .flat_map(|system| {
            let peace = Plan { system, attack: None, document: "diary.txt", page: &diary };
            let attacked = ATTACKS.into_iter().map(move |attack| (system, attack));
            let page = &noise;
            std::iter::once(peace).chain(attacked.map(move |(system, attack)| Plan {
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
    let mut episodes = Vec::new();
    for plan in &plans {
        let attack = plan.attack.map_or("in peace", |attack| attack.as_str());
        bar.set_message(format!("{}: {attack}", plan.system.name()));
        let episode =
            play(plan, &stage).with_context(|| format!("episode {} / {attack}", plan.system.name()))?;
        if bar.is_hidden() {
            println!("{}", line(&episode));
        } else {
            bar.println(line(&episode));
        }
        episodes.push(episode);
        bar.inc(1);
    }
    bar.finish_and_clear();
    fs::remove_dir_all(&options.scratch).context("removing the scratch directory")?;
    Ok(Story { episodes })
}

/// One episode in a line.
fn line(episode: &Episode) -> String {
    let attack = episode.attack.as_deref().unwrap_or("in peace");
    let verdict = match &episode.verdict {
        Verdict::Survived => "every byte arrived".to_owned(),
        Verdict::Died(said) => format!("DIED, {} bytes lost ({said})", episode.lost),
        Verdict::WrongBytes => "WRONG BYTES were taken for the page".to_owned(),
        Verdict::Truncated => format!("TRUNCATED: {} bytes missing and nobody told", episode.lost),
    };
    let name = episode.system.name();
    let (seconds, gap) = (episode.seconds, episode.longest_gap * 1000.0);
    let mut text = format!(
        "{name:<26} {attack:<10} {verdict}; {seconds:.1} s, {:.0} Mbit/s, longest gap {gap:.0} ms",
        episode.goodput()
    );
    if episode.attack.is_none() {
        for path in &episode.overheard {
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
