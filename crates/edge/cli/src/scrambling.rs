//! Messages about scrambling in use: its limits, and a missing trusted path.

use std::future::Future;
use std::time::Duration;

use plait::{Monitor, ScrambleStatus, TrustedPaths};
use tokio::time::interval;

use crate::options::{Options, Protect};
use crate::output::say;

/// Interval between looks at the paths.
const INTERVAL: Duration = Duration::from_millis(250);
/// Looks in a row without a trusted path before the stall is reported: many gaps are shorter.
const LOOKS_BEFORE_TOLD: u32 = 4;

/// Reports the limits of scrambling, if it is requested.
pub(crate) fn announce(options: &Options) {
    match options.protect {
        Protect::Sealed | Protect::Plain => {}
        Protect::Scramble => say(
            "scrambling is obfuscation, not encryption: an eavesdropper that captures a few hundred bytes in a row on one path \
             can read them (plait-lab scramble), and an attacker on a path can change them unnoticed",
        ),
    }
}

/// Runs the conversation and warns while its trusted paths are gone.
pub(crate) async fn watched<T>(monitor: Monitor, conversation: impl Future<Output = T>) -> T {
    let mut conversation = std::pin::pin!(conversation);
    let mut clock = interval(INTERVAL);
    let mut warned = Warned::default();
    loop {
        tokio::select! {
            result = &mut conversation => return result,
            _ = clock.tick() => {
                let Some(scrambling) = monitor.status().and_then(|status| status.scrambled()) else { continue };
                if let Some(warning) = warned.next(&scrambling.into()) {
                    say(warning);
                }
            }
        }
    }
}

/// The observed state.
#[derive(Clone, Copy)]
struct Look {
    trusted: TrustedPaths,
    is_stalled: bool,
    degraded: u64,
}

impl From<ScrambleStatus> for Look {
    fn from(status: ScrambleStatus) -> Self {
        let (trusted, degraded) = (status.trusted_paths(), status.bytes_degraded());
        Self { trusted, is_stalled: status.is_stalled(), degraded }
    }
}

/// The state that was already reported.
#[derive(Default)]
struct Warned {
    looks: u32,
    stalled: bool,
    degraded: u64,
    is_degraded: bool,
}

impl Warned {
    fn next(&mut self, status: &Look) -> Option<&'static str> {
        let carried = status.degraded > self.degraded;
        self.degraded = status.degraded;
        if status.trusted == TrustedPaths::Work {
            self.looks = 0;
            let was = std::mem::take(&mut self.stalled) | std::mem::take(&mut self.is_degraded);
            return was.then_some("a trusted path works again");
        }
        if carried && !std::mem::replace(&mut self.is_degraded, true) {
            return Some(
                "WARNING: no trusted path is left, and UNTRUSTED PATHS CARRY EVERYTHING \
                 (--untrusted-only degrade): an eavesdropper there sees the whole stream",
            );
        }
        self.looks = if status.is_stalled { self.looks + 1 } else { 0 };
        if self.looks < LOOKS_BEFORE_TOLD || std::mem::replace(&mut self.stalled, true) {
            return None;
        }
        Some("no trusted path works: nothing is sent until one does (--untrusted-only stall)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKS: Look = Look { trusted: TrustedPaths::Work, is_stalled: false, degraded: 0 };

    #[test]
    fn a_short_gap_is_not_worth_a_word_and_a_long_one_is_told_once() {
        let gone = Look { trusted: TrustedPaths::Gone, is_stalled: true, ..WORKS };
        let mut warned = Warned::default();
        let said: Vec<_> = (0..10).filter_map(|_| warned.next(&gone)).collect();
        assert_eq!(said.len(), 1);
        assert!(warned.next(&WORKS).is_some());
        assert!((0..3).all(|_| warned.next(&gone).is_none()));
        assert!(warned.next(&WORKS).is_none(), "nothing was said that has to be taken back");
    }

    #[test]
    fn bytes_on_untrusted_paths_alone_are_told_at_once_and_once() {
        let mut warned = Warned::default();
        let gone = |degraded| Look { trusted: TrustedPaths::Gone, degraded, ..WORKS };
        assert!(warned.next(&gone(0)).is_none(), "nothing was sent there");
        assert!(warned.next(&gone(10)).is_some_and(|words| words.contains("WARNING")));
        assert!(warned.next(&gone(20)).is_none());
        assert!(warned.next(&Look { degraded: 20, ..WORKS }).is_some());
        assert!(warned.next(&gone(30)).is_some());
    }
}
