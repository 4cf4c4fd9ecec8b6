//! One fetch by one system, in peace or under an attack.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use plait_lab::{
    Arrival, Attack, AttackName, Conditions, Direction, Lab, LabConfig, Needles, PathClass, PathConfig,
    Series,
};
use serde::{Deserialize, Serialize};

use crate::overheard::{Overheard, overhear};
use crate::system::{Fixture, Running, System};

/// The end of a fetch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every byte arrived, and the program ended without an error.
    Survived,
    /// The program reported an error; what it had received until then was right.
    Died(String),
    /// The program got bytes that the server did not send, without an error.
    WrongBytes,
    /// The program accepted a part as the whole.
    Truncated,
}

/// The result of a fetch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// How it ended.
    pub verdict: Verdict,
    /// Bytes of the page.
    pub size: u64,
    /// Bytes of the page that did not arrive, or not right.
    pub lost: u64,
    /// Seconds from the start of the program to its end.
    pub seconds: f64,
    /// Mbit/s of the page, from the moment when its first byte was at the client to the last.
    pub goodput: f64,
    /// Longest time without bytes of the page at the client, between its first and its last byte, in seconds.
    pub longest_gap: f64,
    /// Seconds from the strike to the end of the longest pause that ended after it.
    pub repair: Option<f64>,
    /// Packets that the injector changed, dropped or made, as its own capture proves; cuts by its log.
    pub injected: u64,
    /// When it first did so, in seconds since the beginning.
    pub struck: Option<f64>,
    /// Places at which eight bytes in a row of the page crossed a path in clear.
    pub matches: u64,
    /// Bytes that passed the eavesdroppers unread, because they were too slow.
    pub unread: u64,
    /// Arrivals by data sequence number, thinned.
    pub arrivals: Vec<Arrival>,
    /// Mbit/s towards the client per path: averages over [`AVERAGED`], one each [`STEP`].
    pub rates: Vec<Vec<f64>>,
}

/// Mbit/s of each path.
pub const RATE: u64 = 50;
/// The share of payload in full packets: 1500 bytes with 20 of IP, 32 of TCP and 20 of Multipath TCP.
pub(crate) const PAYLOAD_SHARE: f64 = 1428.0 / 1500.0;
/// The averaging interval of a rate.
pub const AVERAGED: Duration = Duration::from_millis(200);
/// Time between two rates.
pub const STEP: Duration = Duration::from_millis(20);
/// Bytes kept of each packet in the captures: all headers.
const HEADERS: u32 = 128;
/// Most points of a picture; more cannot be distinguished.
const MAX_ARRIVALS: usize = 1200;
/// Time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(40);
/// Interval of the reads of the client's file.
const LOOK: Duration = Duration::from_millis(2);
/// An earlier fetch has no data in flight any more after this time without a move.
const SILENCE: Duration = Duration::from_millis(30);
/// And at the latest this long after its program has ended.
const LONGEST_SILENCE: Duration = Duration::from_millis(400);

/// A page of the server.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    needles: Arc<Needles>,
}

impl Page {
    pub(crate) fn new(name: &'static str, bytes: Vec<u8>) -> Self {
        let needles = Arc::new(Needles::of(&bytes));
        Self { name, bytes, needles }
    }
}

/// A lab with a system in it, which fetches page after page.
pub(crate) struct Stage {
    // Its programs end before the lab does.
    running: Running,
    pub(crate) system: System,
    lab: Lab,
    fixture: Fixture,
    /// Packets in the injector's capture so far.
    injected: usize,
    /// When the last fetch was over.
    rests: Instant,
}

/// A fetch after its page has reached the client, or after its program has given up. The program itself may still be ending.
pub(crate) struct Fetch<'a> {
    page: &'a Page,
    attack: Option<AttackName>,
    file: PathBuf,
    /// When it began, by the lab's clock.
    began: Duration,
    /// Packets that the dead path had dropped before.
    cut_before: u64,
    program: JoinHandle<anyhow::Result<Ended>>,
}

/// A program that has ended.
struct Ended {
    code: i32,
    /// Its last words.
    said: String,
    progress: Progress,
    /// From its start.
    seconds: f64,
    at: Instant,
}

impl Stage {
    pub(crate) fn build(system: System, fixture: &Fixture, seed: u64) -> anyhow::Result<Self> {
        let fixture = fixture.of(system)?;
        let lab = Lab::up(config(&fixture.captures(), seed)).context("bringing the lab up")?;
        let running = Running::start(system, &lab, &fixture)?;
        Ok(Self { running, system, lab, fixture, injected: 0, rests: Instant::now() })
    }

    /// Fetches a page in peace, for what the eavesdroppers make of it.
    pub(crate) fn read(&mut self, page: &Page) -> anyhow::Result<(Run, Vec<Overheard>)> {
        let fetch = self.fetch(page, None, 0)?;
        let run = self.judge(fetch)?;
        let paths = self.lab.paths().iter();
        let heard =
            paths.map(|path| overhear(path, self.system, &page.bytes)).collect::<anyhow::Result<_>>()?;
        Ok((run, heard))
    }

    /// The bytes of the paths for the last page, 64 bytes of it.
    pub(crate) fn excerpt(&self, page: &Page) -> anyhow::Result<Option<crate::overheard::Excerpt>> {
        crate::overheard::excerpt(self.lab.paths(), &page.bytes)
    }

    /// Fetches a page, in peace or under an attack on path b, until it is there. Each further `attempt` strikes a little later.
    pub(crate) fn fetch<'a>(
        &mut self,
        page: &'a Page,
        attack: Option<AttackName>,
        attempt: usize,
    ) -> anyhow::Result<Fetch<'a>> {
        self.settle()?;
        for path in self.lab.paths() {
            path.forget()?;
            path.watch_for(Arc::clone(&page.needles))?;
        }
        let target = self.lab.path("b")?;
        if let Some(name) = attack {
            // The paper's attacker strikes when half of the page is through (section V); a quarter of that is on its path at
            // least, which joins later than the other.
            let share = page.bytes.len() as u64 * (5 + attempt as u64) / 40;
            let attack = Attack::new(name).towards(Direction::ToClient).after(share).times(1);
            target.attack(attack.lasting(Duration::from_secs(60)))?;
        }
        let cut_before = cut(target)?;
        let file = self.fixture.scratch.join("fetched");
        let _ = fs::remove_file(&file);
        let (began, start) = (self.lab.elapsed(), Instant::now());
        let child = self.running.fetch(&self.lab, page.name, &file).context("starting curl")?;
        let (whole, is_there) = channel();
        let (watched, size) = (file.clone(), page.bytes.len() as u64);
        let program = std::thread::spawn(move || wait(child, start, (&watched, size), whole));
        // Nothing is sent: the sender is gone.
        let _ = is_there.recv();
        Ok(Fetch { page, attack, file, began, cut_before, program })
    }

    /// Waits until the program of a fetch has ended, and says what happened.
    pub(crate) fn judge(&mut self, fetch: Fetch<'_>) -> anyhow::Result<Run> {
        let Fetch { page, attack, file, began, cut_before, program } = fetch;
        let ended =
            program.join().map_err(|_| anyhow!("the thread that watched the program has panicked"))??;
        let Ended { code, said, progress, seconds, at } = ended;
        self.rests = at;
        let target = self.lab.path("b")?;
        let got = fs::read(&file).unwrap_or_default();
        let right = got.iter().zip(&page.bytes).filter(|(got, page)| got == page).count();
        let verdict = match (code, right == page.bytes.len(), right == got.len()) {
            (0, true, true) => Verdict::Survived,
            (0, false, true) => Verdict::Truncated,
            (_, _, false) => Verdict::WrongBytes,
            (_, _, true) => Verdict::Died(said),
        };
        let series = self.lab.paths().iter().map(plait_lab::Path::series).collect::<Result<Vec<_>, _>>()?;
        let summaries =
            self.lab.paths().iter().map(plait_lab::Path::summary).collect::<Result<Vec<_>, _>>()?;
        let log = target.injections()?;
        let cut = cut(target)? - cut_before;
        let in_capture = self.proved()?;
        // What is taken away leaves no packet: the link counts it.
        let injected = if attack == Some(AttackName::Cut) { log.total.min(cut) } else { in_capture };
        let struck = log.entries.first().map(|entry| entry.at.saturating_sub(began).as_secs_f64());
        Ok(Run {
            verdict,
            size: page.bytes.len() as u64,
            lost: (page.bytes.len() - right) as u64,
            seconds,
            goodput: goodput(&progress),
            longest_gap: pauses(&progress).map(|(from, to)| to - from).fold(0.0, f64::max),
            repair: struck.and_then(|at| repair(&progress, at)),
            injected,
            struck,
            matches: summaries.iter().map(|path| path.to_client.matches).sum(),
            unread: summaries.iter().map(|path| path.to_client.unread).sum(),
            arrivals: thinned(plait_lab::arrivals(&series, Direction::ToClient, began)),
            rates: series.iter().map(|series| rates(series, began, seconds)).collect(),
        })
    }

    /// Ends what an earlier fetch has begun: its attack, and what is still on its way.
    fn settle(&self) -> anyhow::Result<()> {
        for path in self.lab.paths() {
            path.call_off()?;
            path.restore()?;
        }
        let moved = || -> anyhow::Result<u64> {
            let mut all = 0;
            for path in self.lab.paths() {
                for direction in Direction::BOTH {
                    all += path.carried(direction)?.delivered;
                }
            }
            Ok(all)
        };
        let mut known = moved()?;
        while self.rests.elapsed() < LONGEST_SILENCE {
            std::thread::sleep(SILENCE);
            let now = moved()?;
            if now == known {
                break;
            }
            known = now;
        }
        Ok(())
    }

    /// Packets that the injector's capture has more than at the last call.
    fn proved(&mut self) -> anyhow::Result<u64> {
        self.lab.path("b")?.flush()?;
        let all = plait_lab::injected_packets(&self.fixture.captures().join("b.pcapng"))?.len();
        let before = std::mem::replace(&mut self.injected, all);
        Ok((all - before) as u64)
    }
}

/// Packets that a dead path has swallowed.
fn cut(path: &plait_lab::Path) -> anyhow::Result<u64> {
    Ok(path.carried(Direction::ToServer)?.cut + path.carried(Direction::ToClient)?.cut)
}

/// Two paths alike: one that is trusted, one that is not.
fn config(captures: &Path, seed: u64) -> LabConfig {
    let conditions = Conditions::megabits(RATE, 10);
    LabConfig {
        paths: vec![
            PathConfig::new("a", PathClass::Trusted, conditions.clone()),
            PathConfig::new("b", PathClass::Untrusted, conditions),
        ],
        seed,
        captures: Some(captures.to_owned()),
        snap_length: HEADERS,
        ..LabConfig::default()
    }
}

/// Seconds since the beginning, and bytes that the client had then.
type Progress = Vec<(f64, u64)>;

/// Waits for a program that must end, and sees how the file grows that it writes. `whole` is dropped as soon as all of it is there.
fn wait(
    mut child: Child,
    began: Instant,
    (file, size): (&Path, u64),
    whole: Sender<()>,
) -> anyhow::Result<Ended> {
    let mut whole = Some(whole);
    let mut progress = Progress::new();
    let ended = |code, said, progress| {
        let at = Instant::now();
        Ended { code, said, progress, seconds: (at - began).as_secs_f64(), at }
    };
    loop {
        let has_ended = child.try_wait()?.is_some();
        let length = fs::metadata(file).map_or(0, |file| file.len());
        if length > progress.last().map_or(0, |last| last.1) {
            progress.push((began.elapsed().as_secs_f64(), length));
        }
        if length >= size {
            whole = None;
        }
        if has_ended {
            break;
        }
        if began.elapsed() > TIMEOUT {
            child.kill()?;
            child.wait()?;
            return Ok(ended(-1, format!("no end after {} s", TIMEOUT.as_secs()), progress));
        }
        std::thread::sleep(LOOK);
    }
    drop(whole);
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no word").trim().to_owned();
    Ok(ended(output.status.code().unwrap_or(-1), last, progress))
}

fn goodput(progress: &[(f64, u64)]) -> f64 {
    let (Some(first), Some(last)) = (progress.first(), progress.last()) else { return 0.0 };
    (last.1 - first.1) as f64 * 8e-6 / (last.0 - first.0).max(1e-3)
}

/// From each growth of the file to the next.
fn pauses(progress: &[(f64, u64)]) -> impl Iterator<Item = (f64, f64)> {
    progress.windows(2).map(|pair| (pair[0].0, pair[1].0))
}

/// From the strike to the end of the longest pause that ended behind it.
fn repair(progress: &[(f64, u64)], struck: f64) -> Option<f64> {
    let behind = pauses(progress).filter(|(_, to)| *to > struck);
    let longest = behind.max_by(|one, other| (one.1 - one.0).total_cmp(&(other.1 - other.0)));
    longest.map(|(_, to)| to - struck)
}

/// As many as can be told apart.
fn thinned(all: Vec<Arrival>) -> Vec<Arrival> {
    let step = all.len().div_ceil(MAX_ARRIVALS).max(1);
    all.into_iter().step_by(step).collect()
}

/// Averages over [`AVERAGED`], each of the time before it.
fn rates(series: &Series, began: Duration, seconds: f64) -> Vec<f64> {
    let interval = plait_lab::INTERVAL.as_millis();
    let [window, step, first] = [AVERAGED, STEP, began].map(|time| (time.as_millis() / interval) as usize);
    let steps = (seconds / STEP.as_secs_f64()).ceil() as usize;
    let bytes = series.bytes(Direction::ToClient);
    let average = |end: usize| {
        let from = end.saturating_sub(window).max(first);
        let sum: u64 =
            bytes.get(from.min(bytes.len())..end.min(bytes.len())).unwrap_or_default().iter().sum();
        sum as f64 * 8e-6 / AVERAGED.as_secs_f64()
    };
    (0..=steps).map(|number| average(first + number * step)).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn the_page_goes_on_when_the_longest_pause_behind_the_strike_is_over() {
        let progress = [(0.1, 10), (0.5, 20), (0.6, 30), (0.9, 40), (1.0, 50)];
        let after = repair(&progress, 0.65).expect("it went on");
        assert!((after - 0.25).abs() < 1e-9, "{after}");
        assert_eq!(repair(&progress, 1.5), None, "nothing came behind it");
        let gap = pauses(&progress).map(|(from, to)| to - from).fold(0.0, f64::max);
        assert!((gap - 0.4).abs() < 1e-9, "{gap}");
        let goodput = goodput(&progress);
        assert!((goodput - 40.0 * 8e-6 / 0.9).abs() < 1e-9, "from the first byte to the last: {goodput}");
    }

    #[test]
    fn a_page_is_there_before_its_program_has_ended() {
        let place = std::env::temp_dir().join(format!("plait-page-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        let file = place.join("page");
        let script =
            format!("printf 12345 > {0}; sleep 0.05; printf 678 >> {0}; read go; exit 3", file.display());
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let input = child.stdin.take();
        let (whole, is_there) = channel();
        let start = Instant::now();
        let program = std::thread::spawn(move || wait(child, start, (&file, 8), whole));
        assert!(is_there.recv().is_err(), "that is how it is told");
        assert!(!program.is_finished());
        drop(input);
        let ended = program.join().expect("no panic").expect("an end");
        assert_eq!((ended.code, ended.progress.last().map(|last| last.1)), (3, Some(8)));
        fs::remove_dir_all(&place).expect("removed");
    }

    #[test]
    fn a_path_that_is_full_has_its_rate_as_soon_as_the_average_is_full() {
        let full = 50_000_000 / 8 / 100;
        let series = Series { to_client: [vec![0; 100], vec![full; 100]].concat(), ..Series::default() };
        let rates = rates(&series, Duration::from_secs(1), 1.0);
        assert_eq!(rates.len(), 51);
        assert_eq!(rates[0], 0.0);
        assert!((rates[5] - 25.0).abs() < 1e-9, "half of the time has passed: {}", rates[5]);
        assert!(rates[10..=50].iter().all(|rate| (rate - 50.0).abs() < 1e-9), "{rates:?}");
    }
}
