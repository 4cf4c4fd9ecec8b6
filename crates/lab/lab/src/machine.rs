//! The measuring machine, and its other load meanwhile.

use std::fmt;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Length of the idle pause that shows the load of other programs.
const PAUSE: Duration = Duration::from_millis(400);
/// The share of all processors that other programs may use in the pauses before and after.
const OTHERS: f64 = 0.10;
/// The share of all time that the hypervisor may keep.
const STEAL: f64 = 0.03;

/// The machine of the measurements.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's name of it.
    pub processor: String,
    /// Number of available processors.
    pub processors: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Output of `openssl version`.
    pub openssl: String,
    /// Output of `python3 --version`.
    pub python: String,
}

impl Machine {
    /// Reads the properties of this machine.
    pub fn look() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let name = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let said = |program: &str, word: &str| {
            let output = Command::new(program).arg(word).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
        };
        Self {
            processor: name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            openssl: said("openssl", "version"),
            python: said("python3", "--version"),
        }
    }
}

/// The load of the machine while a figure was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Strain {
    /// `/proc/loadavg` before: over one, five and fifteen minutes. It includes earlier measurements.
    pub load_before: [f64; 3],
    /// The same after.
    pub load_after: [f64; 3],
    /// The share of all processors' time that the hypervisor gave to others, 0 to 1 (`steal` of `/proc/stat`).
    pub steal: f64,
    /// The share of all processors that other programs used in the pause before or after: the larger one, 0 to 1.
    pub others: f64,
    /// Duration of the measurement, in seconds.
    pub seconds: f64,
    /// Whether the machine was so busy that the figure should be measured again.
    pub was_busy: bool,
}

impl fmt::Display for Strain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load_before, load_after, steal, others, seconds, was_busy: _ } = self;
        let load = |load: &[f64; 3]| load.map(|value| format!("{value:.2}")).join(" ");
        write!(
            out,
            "{seconds:.0} s; load {} before and {} after; steal {:.1} %; others used {:.0} % of the processors in the pauses before and after.",
            load(load_before),
            load(load_after),
            100.0 * steal,
            100.0 * others
        )
    }
}

/// The watch over one measurement.
#[derive(Debug)]
pub struct Watch {
    load: [f64; 3],
    others: f64,
    start: Times,
    began: Instant,
}

impl Watch {
    /// Begins to watch, which takes a moment: the load of other programs is measured while we are idle.
    pub fn start() -> Self {
        let others = others();
        Self { load: load(), others, start: Times::now(), began: Instant::now() }
    }

    /// Ends it; this takes a moment too.
    pub fn end(self) -> Strain {
        let Self { load: load_before, others: before, start, began } = self;
        let (steal, seconds) = (Times::now().since(start).steal(), began.elapsed().as_secs_f64());
        let load_after = load();
        let others = others().max(before);
        let was_busy = others > OTHERS || steal > STEAL;
        Strain { load_before, load_after, steal, others, seconds, was_busy }
    }
}

/// The load of the processors while we are idle.
fn others() -> f64 {
    let start = Times::now();
    sleep(PAUSE);
    Times::now().since(start).busy()
}

fn load() -> [f64; 3] {
    parse_load(&fs::read_to_string("/proc/loadavg").unwrap_or_default())
}

fn parse_load(text: &str) -> [f64; 3] {
    let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
    [(); 3].map(|()| words.next().unwrap_or(0.0))
}

/// Time of all processors together, in the ticks of `/proc/stat` (proc(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Times {
    all: u64,
    idle: u64,
    steal: u64,
}

impl Times {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        // user nice system idle iowait irq softirq steal; the time of guests behind them is in user and nice already.
        let ticks: Vec<u64> = line.split_whitespace().take(8).map(|word| word.parse().unwrap_or(0)).collect();
        let tick = |place: usize| ticks.get(place).copied().unwrap_or(0);
        Self { all: ticks.iter().sum(), idle: tick(3) + tick(4), steal: tick(7) }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            all: self.all.saturating_sub(earlier.all),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    fn busy(self) -> f64 {
        self.all.saturating_sub(self.idle) as f64 / self.all.max(1) as f64
    }

    fn steal(self) -> f64 {
        self.steal as f64 / self.all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hypervisor_kept_is_its_share_of_the_time_between() {
        let before = Times::parse("cpu  100 0 50 800 50 0 0 10 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        let after = Times::parse("cpu  130 0 60 840 60 0 0 20 7 7\n");
        let passed = after.since(before);
        assert_eq!(passed, Times { all: 100, idle: 50, steal: 10 });
        assert_eq!((passed.steal(), passed.busy()), (0.1, 0.5));
    }

    #[test]
    fn a_system_that_does_not_tell_was_idle() {
        assert_eq!(Times::parse("").since(Times::default()).busy(), 0.0);
        assert_eq!(parse_load(""), [0.0; 3]);
        assert_eq!(parse_load("0.52 1.58 2.00 1/97 1234"), [0.52, 1.58, 2.0]);
    }
}
