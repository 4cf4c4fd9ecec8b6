//! What each process holds, once a second.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Between two rows of a process.
const INTERVAL: Duration = Duration::from_secs(1);

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Seconds since the start.
    pub(crate) at: f64,
    /// Resident memory in kibibytes.
    pub(crate) resident: f64,
    pub(crate) descriptors: f64,
    pub(crate) threads: f64,
    /// Connections with a request, and without one.
    pub(crate) open: f64,
    pub(crate) ready: f64,
}

impl Sample {
    /// `None` if the process has ended, or does not answer.
    pub(crate) fn of(pid: u32, at: f64) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<f64>().ok()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as f64;
        let (resident, threads) = (number("VmRSS:")?, number("Threads:")?);
        let state = State::of(pid)?;
        let [open, ready] = [state.open, state.ready].map(|count| count as f64);
        Some(Self { at, resident, descriptors, threads, open, ready })
    }
}

/// What a process says of itself.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) open: u64,
    pub(crate) ready: u64,
    /// Everything.
    pub(crate) whole: Value,
}

impl State {
    /// `None` if there is no such process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let mut socket = UnixStream::connect(format!("/run/plait/{pid}.sock")).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        socket.write_all(b"\"status\"\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        let whole: Value = serde_json::from_str(&answer).ok()?;
        let number = |name: &str| whole[name].as_u64();
        let (open, ready) = (number("connections_open")?, number("connections_ready")?);
        Some(Self { open, ready, whole })
    }
}

/// The table: the samples of each process, by its name.
pub(crate) struct Samples {
    start: Instant,
    processes: Mutex<BTreeMap<String, (u32, Vec<Sample>)>>,
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), processes: Mutex::default() }
    }

    /// From now on this process has rows.
    pub(crate) fn watch(&self, name: &str, pid: u32) {
        self.processes().insert(name.to_owned(), (pid, Vec::new()));
    }

    /// Seconds since the start.
    pub(crate) fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Adds a row for each process that runs, and waits for the next second. Returns the time that this took too long.
    pub(crate) fn take(&self) -> Duration {
        let began = Instant::now();
        let watched: Vec<_> = self.processes().iter().map(|(name, (pid, _))| (name.clone(), *pid)).collect();
        for (name, pid) in watched {
            if let (Some(sample), Some((_, rows))) =
                (Sample::of(pid, self.now()), self.processes().get_mut(&name))
            {
                rows.push(sample);
            }
        }
        sleep(INTERVAL.saturating_sub(began.elapsed()));
        began.elapsed().saturating_sub(INTERVAL)
    }

    /// A copy of all rows until now.
    pub(crate) fn rows(&self) -> BTreeMap<String, Vec<Sample>> {
        self.processes().iter().map(|(name, (_, rows))| (name.clone(), rows.clone())).collect()
    }

    /// The table as CSV.
    pub(crate) fn csv(&self) -> String {
        let mut text = "seconds,process,pid,resident_kib,descriptors,threads,open,ready\n".to_owned();
        for (name, (pid, rows)) in self.processes().iter() {
            for Sample { at, resident, descriptors, threads, open, ready } in rows {
                // Writing to a string does not fail.
                let _ =
                    writeln!(text, "{at:.1},{name},{pid},{resident},{descriptors},{threads},{open},{ready}");
            }
        }
        text
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, (u32, Vec<Sample>)>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
