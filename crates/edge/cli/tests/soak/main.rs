//! A soak: crowds of short connections, long transfers, slow readers, paths that flap, an attacker on one path, reloads, upgrades of the
//! server and killed clients, all at once. Every byte is compared; memory and descriptors must not grow; nothing may be left at the end.
//!
//! `scripts/programs --only soak` runs the long one. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod growth;
mod picture;
mod samples;
mod scene;
#[path = "../support/mod.rs"]
mod support;
mod trouble;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::scope;
use std::time::{Duration, Instant};

use growth::{Growth, Tolerance};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::{Program, wait_until};
use samples::{Sample, Samples, State};
use scene::Scene;

/// Time limit for the load to end: its last transfers, and the slow readers.
const LAST_LOAD: Duration = seconds(120);
/// Time limit for the server to have no connection: those of killed clients end by silence.
const LAST_CONNECTION: Duration = seconds(180);
/// Delay of a sample after which the machine is too busy for a judgement.
const STARVED: Duration = seconds(4);
/// Descriptors that may be more at the end: those of warm connections.
const SPARE: f64 = 20.0;
/// What may grow, and how much: the heap of a process has holes, and bursts widen it.
const MEMORY: Tolerance = Tolerance { share: 0.15, units: 3.0 * 1024.0 };
const DESCRIPTORS: Tolerance = Tolerance { share: 0.2, units: 15.0 };
const THREADS: Tolerance = Tolerance { share: 0.0, units: 2.0 };

/// `scripts/test` leaves these out.
mod long {
    use super::{seconds, soak};

    /// The variable with the number of minutes.
    const MINUTES: &str = "PLAIT_SOAK_MINUTES";

    #[test]
    #[ignore = "needs root"]
    fn many_minutes_of_everything_at_once_leave_nothing_behind() {
        let minutes = std::env::var(MINUTES).map_or(20, |text| text.parse().expect("a number of minutes"));
        soak("soak", seconds(60 * minutes));
    }

    /// Too short for a judgement of growth.
    #[test]
    #[ignore = "needs root"]
    fn ninety_seconds_of_everything_at_once_leave_nothing_behind() {
        soak("soak_short", seconds(90));
    }
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What the threads of a soak share.
pub(crate) struct Soak {
    pub(crate) samples: Samples,
    is_over: AtomicBool,
    /// Whether the programs got so little of the processors that their times mean nothing.
    is_starved: AtomicBool,
    notes: Mutex<Vec<String>>,
    problems: Mutex<Vec<String>>,
    /// The server.
    server: Mutex<u32>,
}

impl Soak {
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Prints what happens.
    pub(crate) fn note(&self, what: &str) {
        let line = format!("{:7.1} s  {what}", self.samples.now());
        println!("{line}");
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Something is wrong; the soak goes on.
    pub(crate) fn problem(&self, what: &str) {
        self.note(&format!("PROBLEM: {what}"));
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(what.to_owned());
    }

    /// Adds a row for each process.
    fn sample(&self) {
        let late = self.samples.take();
        if late > STARVED {
            self.note(&format!(
                "the machine is too busy: a look at the processes took {late:?} longer than a second"
            ));
            self.is_starved.store(true, Ordering::Relaxed);
        }
    }

    /// This process is the server now.
    pub(crate) fn upgraded(&self, name: &str, pid: u32) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = pid;
        self.samples.watch(name, pid);
    }

    /// The process that is the server.
    pub(crate) fn server(&self) -> u32 {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs for `time`, with up to four upgrades.
fn soak(label: &str, time: Duration) {
    let scene = Scene::new(label);
    let soak = Soak {
        samples: Samples::new(),
        is_over: AtomicBool::new(false),
        is_starved: AtomicBool::new(false),
        notes: Mutex::default(),
        problems: Mutex::default(),
        server: Mutex::new(scene.world.serve_id()),
    };
    for (name, pid) in
        [("serve 1", scene.world.serve_id()), ("proxy", scene.proxy.pid()), ("forward", scene.forward.pid())]
    {
        soak.samples.watch(name, pid);
    }
    soak.sample();
    let mut load = scene.start_load();
    soak.samples.watch("run", load[2].pid());
    let rows = scope(|scope| {
        scope.spawn(|| trouble::trouble_paths(&soak, &scene));
        scope.spawn(|| trouble::trouble_server(&soak, &scene, time / 5));
        scope.spawn(|| trouble::kill_clients(&soak, &scene));
        let until = Instant::now() + time;
        while Instant::now() < until {
            soak.sample();
        }
        soak.is_over.store(true, Ordering::Relaxed);
        soak.samples.rows()
    });
    fs::write(scene.world.file("stop"), "").expect("written");
    for program in &mut load {
        end_of_load(&soak, program);
    }
    judge_growth(&soak, &rows);
    nothing_is_left(&soak, &scene);
    let soaked = stop(&soak, scene, label);
    keep(&soak, &soaked, label);
    let problems = soak.problems.into_inner().unwrap_or_else(PoisonError::into_inner);
    let busy = if soak.is_starved.into_inner() {
        "the machine was too busy, so this may mean nothing:\n"
    } else {
        ""
    };
    assert!(problems.is_empty(), "{busy}{}", problems.join("\n"));
}

/// Each program with load must end well.
fn end_of_load(soak: &Soak, program: &mut Program) {
    let until = Instant::now() + LAST_LOAD;
    while !program.has_ended().expect("a process") && Instant::now() < until {
        soak.sample();
    }
    let counts = fs::read_to_string(program.output()).unwrap_or_default();
    match program.status() {
        Some(status) if status.success() => soak.note(&format!("{}: {}", program.name(), counts.trim())),
        status => {
            let name = program.name();
            soak.problem(&format!("{name}: {status:?}: {}\n{}", counts.trim(), program.errors()));
        }
    }
}

/// The series of the time with load.
fn judge_growth(soak: &Soak, rows: &std::collections::BTreeMap<String, Vec<Sample>>) {
    type Number = fn(&Sample) -> f64;
    let judged: [(&str, Tolerance, Number); 3] = [
        ("resident KiB", MEMORY, |sample| sample.resident),
        ("descriptors", DESCRIPTORS, |sample| sample.descriptors),
        ("threads", THREADS, |sample| sample.threads),
    ];
    for (name, rows) in rows {
        for (what, tolerance, number) in judged {
            let series: Vec<f64> = rows.iter().map(number).collect();
            let Some(growth) = Growth::of(&series) else { continue };
            let words =
                format!("{name}: {what}: {} after the warm-up, {} at the end", growth.from, growth.to);
            if growth.is_within(tolerance) {
                soak.note(&words);
            } else {
                soak.problem(&words);
            }
        }
    }
}

/// In the end no process has a connection with a request, and the descriptors are as many as in the beginning.
fn nothing_is_left(soak: &Soak, scene: &Scene) {
    let began = Instant::now();
    let processes = [soak.server(), scene.proxy.pid(), scene.forward.pid()];
    let rows = soak.samples.rows();
    let before = ["serve 1", "proxy", "forward"].map(|name| rows[name][0].descriptors + SPARE);
    let is_clean = |sample: &Option<Sample>, before: f64| {
        sample.as_ref().is_some_and(|now| now.open == 0.0 && now.descriptors <= before)
    };
    loop {
        soak.sample();
        let now = processes.map(|pid| Sample::of(pid, soak.samples.now()));
        let is_over = now.iter().zip(before).all(|(now, before)| is_clean(now, before));
        if is_over {
            return soak.note(&format!("nothing is left after {:?}", began.elapsed()));
        }
        if began.elapsed() > LAST_CONNECTION {
            soak.problem(&format!("left: {now:?}, and at most {before:?} descriptors are expected"));
            return processes
                .iter()
                .filter_map(|pid| State::of(*pid))
                .for_each(|state| soak.problem(&state.whole.to_string()));
        }
    }
}

/// Ends the programs in order, and judges their logs. Returns the directory with them.
fn stop(soak: &Soak, scene: Scene, label: &str) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(label);
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).expect("a directory");
    let Scene { mut proxy, mut forward, networks, world, lab, .. } = scene;
    for program in [&mut proxy, &mut forward] {
        let status = program.stop(support::TIMEOUT).expect("an end");
        if status.code() != Some(0) {
            soak.problem(&format!("{} ends with {status}: {}", program.name(), program.last_words()));
        }
    }
    let server = soak.server();
    kill(Pid::from_raw(server.cast_signed()), Signal::SIGTERM).expect("it runs");
    support::until("the end of the server", || State::of(server).is_none());
    let hosts = [&world.client, &world.server];
    let is_clean = || hosts.map(support::World::network) == networks;
    if wait_until("a network without plait", seconds(10), || Ok::<_, plait_lab::Error>(is_clean())).is_err() {
        soak.problem(&format!(
            "the networks were {networks:#?} and are {:#?}",
            hosts.map(support::World::network)
        ));
    }
    for entry in fs::read_dir(&world.directory).expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if [".err", ".log", ".out"].iter().any(|end| name.ends_with(end)) {
            let text = fs::read_to_string(entry.path()).expect("text");
            let is_wrong = |line: &&str| line.contains("panicked") || line.contains("ERROR");
            for line in text.lines().filter(is_wrong) {
                soak.problem(&format!("{name}: {line}"));
            }
            fs::write(out.join(name), text).expect("written");
        }
    }
    drop(world);
    drop(lab);
    out
}

/// The table and the page with the curves.
fn keep(soak: &Soak, out: &Path, label: &str) {
    let notes = soak.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    fs::write(out.join("soak.csv"), soak.samples.csv()).expect("written");
    fs::write(out.join("soak.html"), picture::draw(&soak.samples.rows(), &notes)).expect("written");
    println!("{label}: {}", out.join("soak.html").display());
}
