//! Repeated measurements of a time in one lab: a row of a table.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use plait_lab::{Conditions, Program};

use super::case::{Context, Settings};
use super::fixture::{Fixture, Listening};

/// Rate of each path and direction, and the one-way delay: a round trip of 20 ms.
const MEGABITS: u64 = 25;
pub(super) const DELAY_MS: u64 = 10;

/// Prints the title and the round trip of the paths, and the head of the table.
pub(super) fn begin(count: usize, what: &str) -> Result<()> {
    ensure!(count > 0, "no connection, no time");
    println!("{count} {what}; paths of {} ms round trip", 2 * DELAY_MS);
    println!("{:<40} {:>8} {:>8} {:>8}", "", "median", "95 %", "longest");
    Ok(())
}

/// Prints the row of `name` and returns its median: of the times that `once` takes in a lab that is ready after `prepare`.
pub(super) fn row(
    settings: &Settings,
    root: &Path,
    (name, count): (&str, usize),
    prepare: impl Fn(&Fixture<'_>) -> Result<()>,
    once: impl Fn(&Fixture<'_>) -> Result<Duration>,
) -> Result<Duration> {
    let directory = root.join("times");
    std::fs::create_dir_all(&directory)?;
    let context = Context { settings, directory: &directory };
    let fixture = Fixture::up_with(&context, Listening::Closed, &Conditions::megabits(MEGABITS, DELAY_MS))?;
    prepare(&fixture)?;
    let mut times = Vec::new();
    for number in 1..=count {
        times.push(once(&fixture).with_context(|| format!("{name}, connection {number}"))?);
    }
    drop(fixture);
    std::fs::remove_dir_all(&directory)?;
    times.sort_unstable();
    let millis = |percent| format!("{:.1} ms", percentile(&times, percent).as_secs_f64() * 1e3);
    println!("{name:<40} {:>8} {:>8} {:>8}", millis(50), millis(95), millis(100));
    Ok(percentile(&times, 50))
}

/// Ends programs that would continue.
pub(super) fn kill(programs: [&mut Program; 2]) -> Result<()> {
    for program in programs {
        program.signal(Signal::SIGKILL);
        program.wait(Duration::from_secs(5))?;
    }
    Ok(())
}

/// Of sorted values: the smallest that `percent` of them do not exceed.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() {
        let millis: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&millis, 50), Duration::from_millis(50));
        assert_eq!(percentile(&millis, 95), Duration::from_millis(95));
        assert_eq!(percentile(&millis, 100), Duration::from_millis(100));
        assert_eq!(percentile(&millis[..1], 50), Duration::from_millis(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
