//! `cargo xtask bench traces`: pairs of recorded networks. A bulk transfer over both paths is compared with one over each alone, with small
//! requests of another connection beside it. Time is simulated.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_bench::{Recording, Table, concurrently};
use plait_endpoint::ConnectionId;
use plait_mptcp::Config;
use plait_sim::{Application, CloseMode, Families, HostIndex, Pair, Workload};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use crate::paths::course::{Course, Leg};
use crate::paths::measure::{Congestion, Protection, lay, rate};

/// Goals: parts of the sum of both paths alone, of the better one alone, and of the kernel's recorded rate.
const OF_SUM: f64 = 0.9;
const OF_BETTER: f64 = 1.0;
const OF_KERNEL: f64 = 1.0;
/// Bytes of a request, and of its answer.
const REQUEST: usize = 1024;
/// Time from one request to the next.
const INTERVAL: Duration = Duration::from_millis(100);
/// Step of the clock, and the resolution of the figures.
const STEP: Duration = Duration::from_millis(1);
/// No connection opens later.
const OPENING: Duration = Duration::from_secs(60);

/// The selection of measurements.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Pairs of recordings, FILE@MS+FILE@MS: with the round trips of both paths without a queue, and optionally @PERCENT of loss. =FILE behind
    /// a pair has the rates that the kernel's Multipath TCP reached there. A file has a rate in Mbit/s for each second (.mbps), or is a trace of
    /// Mahimahi.
    #[arg(required = true, value_name = "PAIR")]
    pairs: Vec<String>,
    /// Seconds that are replayed, from the start of each recording.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Protection of the connections.
    #[arg(long, value_enum, default_value = "sealed")]
    protection: Protection,
    /// Congestion control.
    #[arg(long, value_enum, default_value = "adaptive")]
    congestion: Congestion,
    /// Seed of all chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs at the same time; without, as many as there are processors.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// End with 1 if a pair misses a goal.
    #[arg(long)]
    strict: bool,
}

/// A pair of recordings.
struct Drive {
    course: Course,
    /// The kernel's mean rate there, Mbit/s.
    kernel: Option<f64>,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
struct Figure {
    /// Of the bulk transfer, Mbit/s.
    goodput: f64,
    /// Milliseconds from each request to its answer, sorted.
    waits: Vec<f64>,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let drives = options.pairs.iter().map(|text| Drive::read(text, options.seconds));
    let drives: Vec<Drive> = drives.collect::<anyhow::Result<_>>()?;
    let runs: Vec<&[Leg]> = drives.iter().flat_map(|drive| ways(&drive.course.legs)).collect();
    let jobs = options.jobs.unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    let figures: Vec<Figure> = concurrently(jobs, &runs, |legs| options.measure(legs));
    println!(
        "bulk in Mbit/s over {} s; beside it, milliseconds from a request of {REQUEST} bytes to its answer (median, 99 of 100)",
        options.seconds
    );
    let columns = [("bulk", 6), ("of the sum", 10), ("of the better", 13), ("kernel", 6), ("request", 11)];
    let table = Table::new(44, columns);
    println!("{}", table.head(""));
    let mut is_good = true;
    for (drive, figures) in drives.iter().zip(figures.chunks(3)) {
        let [both, alone @ ..] = figures else { continue };
        let misses = drive.misses(both, alone);
        is_good &= misses.is_empty();
        println!("{}", table.row(&drive.course.name, drive.words(both, alone), &misses.join("; ")));
        for (name, figure) in drive.course.name.split('+').zip(alone) {
            let words =
                [figure.goodput_words(), String::new(), String::new(), String::new(), figure.wait_words()];
            println!("{}", table.row(&format!("  {name} alone"), words, ""));
        }
    }
    Ok(if options.strict && !is_good { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Both paths, and each alone.
fn ways(legs: &[Leg; 2]) -> [&[Leg]; 3] {
    [&legs[..], &legs[..1], &legs[1..]]
}

impl Drive {
    fn read(text: &str, seconds: u64) -> anyhow::Result<Self> {
        let (pair, kernel) = text.split_once('=').map_or((text, None), |(pair, file)| (pair, Some(file)));
        let course = Course::recorded(pair, seconds)?;
        let read =
            |file| Recording::read(Path::new(file)).map(|recording| recording.shortened(seconds).mean());
        let kernel = kernel.map(read).transpose().context("what the kernel reached")?;
        Ok(Self { course, kernel })
    }

    /// The goals that are missed.
    fn misses(&self, both: &Figure, alone: &[Figure]) -> Vec<&'static str> {
        let is_below = |part: f64, whole: f64| both.goodput < part * whole;
        let mut misses = Vec::new();
        if is_below(OF_SUM, sum(alone)) {
            misses.push("below 0.9 of the sum");
        }
        if is_below(OF_BETTER, better(alone)) {
            misses.push("below the better path alone");
        }
        if self.kernel.is_some_and(|kernel| is_below(OF_KERNEL, kernel)) {
            misses.push("below the kernel");
        }
        misses
    }

    fn words(&self, both: &Figure, alone: &[Figure]) -> [String; 5] {
        let part = |whole: f64| format!("{:.2}", both.goodput / whole.max(1e-9));
        let kernel = self.kernel.map_or_else(String::new, |kernel| format!("{kernel:.1}"));
        [both.goodput_words(), part(sum(alone)), part(better(alone)), kernel, both.wait_words()]
    }
}

fn sum(alone: &[Figure]) -> f64 {
    alone.iter().map(|figure| figure.goodput).sum()
}

fn better(alone: &[Figure]) -> f64 {
    alone.iter().map(|figure| figure.goodput).fold(0.0, f64::max)
}

impl Figure {
    fn goodput_words(&self) -> String {
        format!("{:.1}", self.goodput)
    }

    fn wait_words(&self) -> String {
        let at = |part: f64| {
            let place = (self.waits.len().saturating_sub(1) as f64 * part).round() as usize;
            self.waits.get(place).map_or_else(|| "-".to_owned(), |wait| format!("{wait:.0}"))
        };
        format!("{} / {}", at(0.5), at(0.99))
    }
}

impl Options {
    fn measure(&self, legs: &[Leg]) -> Figure {
        let mut pair = Pair::new(self.seed, legs.len(), Families::V4);
        lay(&mut pair, self.seed, legs);
        let mut config = Config { protect: self.protection.settings(), ..Config::default() };
        config.tcp.congestion = self.congestion.algorithm();
        let silent = Workload::of(0).leaving(CloseMode::Waiting);
        pair.serve(&config, silent.counting_wrong_bytes());
        let Ok(mut asker) = Asker::open(&mut pair, &config, silent.counting_wrong_bytes()) else {
            return Figure { goodput: 0.0, waits: vec![f64::INFINITY] };
        };
        pair.open(&config, Workload::of(u64::MAX));
        let begin = pair.world.now();
        let end = begin + Duration::from_secs(self.seconds);
        while pair.world.now() < end {
            pair.world.run_for(STEP);
            asker.look(&mut pair);
        }
        let heard =
            pair.world.accepted(pair.server).map(Application::heard).sum::<u64>() - asker.heard(&pair);
        Figure { goodput: rate(heard, begin, end), waits: asker.finish(end) }
    }
}

/// A connection that sends a request at intervals, the next one after the answer to the last.
struct Asker {
    /// The connection at the client and at the server.
    ends: [ConnectionId; 2],
    /// Requests so far.
    asked: u64,
    answered: u64,
    /// When the last one was sent, if its answer has not come whole.
    waits_since: Option<Instant>,
    next: Instant,
    waits: Vec<f64>,
}

impl Asker {
    /// Opens the connection, with a request and an answer over it.
    fn open(pair: &mut Pair, config: &Config, workload: Workload) -> anyhow::Result<Self> {
        let client = pair.open(config, workload);
        say(pair, pair.client, client);
        let server = pair.server;
        let has_asked = pair.world.run_until(OPENING, |world| {
            world.accepted(server).any(|application| application.heard() >= REQUEST as u64)
        });
        ensure!(has_asked, "the first request does not arrive");
        let end = pair.world.applications(server).next().context("it was accepted")?.0;
        let now = pair.world.now();
        let mut asker = Self {
            ends: [client, end],
            asked: 1,
            answered: 0,
            waits_since: Some(now),
            next: now,
            waits: Vec::new(),
        };
        while asker.waits_since.is_some() {
            ensure!(pair.world.now() < now + OPENING, "the first answer does not arrive");
            asker.look(pair);
            pair.world.run_for(STEP);
        }
        asker.waits.clear();
        Ok(asker)
    }

    /// Bytes that the server has heard of it.
    fn heard(&self, pair: &Pair) -> u64 {
        pair.world.application(pair.server, self.ends[1]).heard()
    }

    /// Answers what has arrived, and asks if it is time.
    fn look(&mut self, pair: &mut Pair) {
        let [client, server] = self.ends;
        let now = pair.world.now();
        if self.answered < self.asked && self.heard(pair) >= self.asked * REQUEST as u64 {
            self.answered += 1;
            say(pair, pair.server, server);
        }
        let is_answered = pair.world.application(pair.client, client).heard() >= self.asked * REQUEST as u64;
        if is_answered && let Some(since) = self.waits_since.take() {
            self.waits.push(millis(now.saturating_since(since)));
        }
        if self.waits_since.is_none() && self.next <= now {
            self.asked += 1;
            self.waits_since = Some(now);
            self.next = now + INTERVAL;
            say(pair, pair.client, client);
        }
    }

    /// The times of all requests, sorted. One without an answer has waited until the end.
    fn finish(mut self, end: Instant) -> Vec<f64> {
        self.waits.extend(self.waits_since.map(|since| millis(end.saturating_since(since))));
        self.waits.sort_by(f64::total_cmp);
        self.waits
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Writes a request or an answer.
fn say(pair: &mut Pair, host: HostIndex, id: ConnectionId) {
    pair.world.with_endpoint(host, |now, endpoint| {
        endpoint.write(now, id, Bytes::from_static(&[0; REQUEST]));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(goodput: f64) -> Figure {
        Figure { goodput, waits: vec![] }
    }

    /// Two recordings in a directory that goes with it.
    struct Files(std::path::PathBuf);

    impl Files {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("plait-traces-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory");
            std::fs::write(directory.join("a.mbps"), "10\n4\n10\n").expect("written");
            // 6 Mbit/s: five packets in each ten milliseconds.
            let times: String = (0..1500).map(|packet| format!("{}\n", packet * 2)).collect();
            std::fs::write(directory.join("b.down"), times).expect("written");
            Self(directory)
        }

        fn pair(&self) -> String {
            let file = |name: &str| self.0.join(name).display().to_string();
            format!("{}@20+{}@40={}", file("a.mbps"), file("b.down"), file("a.mbps"))
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn two_recorded_paths_carry_more_than_each_alone_and_requests_are_answered_beside_it() {
        let files = Files::new("run");
        let drive = Drive::read(&files.pair(), 3).expect("a pair");
        assert_eq!(drive.kernel, Some(8.0));
        let options = Options {
            pairs: Vec::new(),
            seconds: 3,
            protection: Protection::Sealed,
            congestion: Congestion::Adaptive,
            seed: 1,
            jobs: None,
            strict: false,
        };
        let [both, a, b] = ways(&drive.course.legs).map(|legs| options.measure(legs));
        assert!(both.goodput > 1.3 * a.goodput.max(b.goodput), "{both:?} {a:?} {b:?}");
        assert!((4.0..8.0).contains(&a.goodput) && (3.0..6.0).contains(&b.goodput), "{a:?} {b:?}");
        for figure in [&both, &a, &b] {
            assert!(figure.waits.len() > 10 && figure.waits[0] >= 20.0, "{figure:?}");
        }
    }

    #[test]
    fn a_pair_is_judged_by_the_sum_the_better_path_and_the_kernel() {
        let files = Files::new("goals");
        let drive = Drive::read(&files.pair(), 3).expect("a pair");
        let alone = [figure(6.0), figure(5.0)];
        assert!(drive.misses(&figure(10.0), &alone).is_empty());
        assert_eq!(drive.misses(&figure(9.0), &alone), ["below 0.9 of the sum"]);
        assert_eq!(drive.misses(&figure(5.0), &alone).len(), 3);
        assert!(Drive::read("/nowhere@1+/nowhere@2", 1).is_err());
    }
}
