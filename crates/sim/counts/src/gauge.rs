//! Separates the counted work from its preparation.

use core::hint::black_box;
use std::io::Write;

/// The function that starts and ends the count for callgrind: [`count_this`].
pub(crate) const TOGGLE: &str = "*count_this*";
/// Behind which function it writes down a case: [`end_of_case`].
pub(crate) const DUMP: &str = "*end_of_case*";

/// Counts the calls that a case is about.
#[derive(Default)]
pub(crate) struct Gauge {
    calls: u64,
}

impl Gauge {
    /// Does `work`, which is counted.
    pub(crate) fn count<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.calls += 1;
        count_this(work)
    }

    /// Does `work`, which is counted where the case is about it.
    pub(crate) fn count_if<T>(&mut self, is_counted: bool, work: impl FnOnce() -> T) -> T {
        if is_counted { self.count(work) } else { work() }
    }

    /// Closes the case: tells its name, and how often what was counted has been done.
    pub(crate) fn close(self, name: &str) {
        println!("{name} {}", self.calls);
        std::io::stdout().flush().expect("the parent process reads it");
        end_of_case();
    }
}

/// A function of its own, so that callgrind knows it by its name.
#[inline(never)]
fn count_this<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

#[inline(never)]
fn end_of_case() {
    black_box(());
}
