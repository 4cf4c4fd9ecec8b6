//! Recorded rates of one direction of a path.

use std::num::NonZeroU64;
use std::time::Duration;

use plait_base::Instant;
use plait_bench::Recording;

/// A recording, from a moment on, again and again.
pub(super) struct Replay {
    recording: Recording,
    began: Instant,
    /// Number of the current step.
    step: u64,
}

impl Replay {
    pub(super) fn new(now: Instant, recording: Recording) -> Self {
        Self { recording, began: now, step: 0 }
    }

    pub(super) fn is_of(&self, recording: &Recording) -> bool {
        self.recording == *recording
    }

    /// The current rate, in bits per second.
    pub(super) fn rate(&self) -> NonZeroU64 {
        self.recording.rate(self.step)
    }

    /// Returns the new rate, if a step has begun since the last call.
    pub(super) fn advance(&mut self, now: Instant) -> Option<NonZeroU64> {
        let step = nanos(now.saturating_since(self.began)) / self.length();
        let is_news = step > self.step;
        self.step = self.step.max(step);
        is_news.then(|| self.rate())
    }

    /// Returns the start of the next step.
    pub(super) fn next(&self) -> Instant {
        self.began + Duration::from_nanos(self.length().saturating_mul(self.step + 1))
    }

    /// Length of a step in nanoseconds.
    fn length(&self) -> u64 {
        nanos(self.recording.step()).max(1)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rate_holds_for_its_step_and_the_first_follows_the_last() {
        let directory = std::env::temp_dir().join(format!("plait-replay-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("drive.mbps");
        std::fs::write(&file, "10\n2\n").expect("written");
        let recording = Recording::read(&file).expect("rates");
        std::fs::remove_dir_all(directory).expect("removed");

        let at = |millis: u64| Instant::from_millis(500 + millis);
        let mut replay = Replay::new(at(0), recording);
        assert_eq!((replay.rate().get(), replay.next()), (10_000_000, at(1000)));
        assert_eq!(replay.advance(at(999)), None);
        assert_eq!(replay.advance(at(1001)).map(NonZeroU64::get), Some(2_000_000));
        assert_eq!(replay.advance(at(1900)), None);
        assert_eq!(replay.next(), at(2000));
        // An idle path is looked at later.
        assert_eq!(replay.advance(at(4100)).map(NonZeroU64::get), Some(10_000_000));
        assert_eq!(replay.next(), at(5000));
    }
}
