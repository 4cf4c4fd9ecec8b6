//! The text form of paths and their conditions, as users type them.
//!
//! ```text
//! lte=30mbit,40ms,1%,10ms,128kB,untrusted        rate, delay one way, loss, jitter, queue, in this order
//! sat=rate=20mbit,delay=250ms,loss=2%,burst=5    or by name, in any order
//! ```

use std::path::Path;
use std::time::Duration;

use plait_bench::Recording;

use crate::{Conditions, Error, PathClass, PathConfig, Result};

/// The name of a condition, its syntax, and its meaning: for errors and help.
pub const CONDITIONS: [(&str, &str); 12] = [
    ("rate", "bits per second as 50mbit, 300kbit, 1gbit or off"),
    ("delay", "one way, as 20ms, 1.5s or 500us"),
    ("loss", "of each packet, as 2% or 0.02"),
    ("jitter", "further delay that wanders between 0 and this, without reordering, as 5ms"),
    ("queue", "bytes before the bottleneck as 64kB, 1MB, off; else one round trip at the rate"),
    ("burst", "mean number of packets lost in a row, as 5"),
    ("reorder", "packets held back, as 1%"),
    ("reorder-delay", "for how long, as 2ms"),
    ("duplicate", "packets that arrive twice, as 1%"),
    ("corrupt", "packets with one bit flipped, as 0.1%"),
    (
        "trace",
        "a file of recorded rates, replayed again and again in place of the rate: Mbit/s per second (.mbps), or of Mahimahi",
    ),
    ("mtu", "longest packet in bytes, 1280 to 65521; only when the lab comes up"),
];

/// Number of [`CONDITIONS`] that may be given by their place alone.
const BY_PLACE: usize = 5;
/// Longest delay: a longer one is a typing error, and would fill the memory.
const LONGEST: Duration = Duration::from_secs(60);

impl PathConfig {
    /// A path in words, `NAME=RATE,DELAY[,LOSS,JITTER,QUEUE][,CONDITION=VALUE...][,trusted|untrusted]`; conditions without a word
    /// are perfect.
    ///
    /// # Errors
    /// The invalid word, and the valid ones.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, words) = text.split_once('=').ok_or_else(|| {
            Error::Config(format!(
                "`{text}` is no path: it is written NAME=RATE,DELAY, for instance lte=30mbit,40ms"
            ))
        })?;
        let mut class = None;
        let mut rest = Vec::new();
        for word in words.split(',').map(str::trim) {
            match word {
                "trusted" => class = Some(PathClass::Trusted),
                "untrusted" => class = Some(PathClass::Untrusted),
                word => rest.push(word),
            }
        }
        let mut conditions = Conditions::default();
        let said = conditions.read(&rest).map_err(|error| Error::Config(format!("path {name}: {error}")))?;
        if !said.contains(&"queue") {
            conditions.queue = conditions.usual_queue();
        }
        Ok(Self::new(name.trim(), class.unwrap_or(PathClass::Untrusted), conditions))
    }

    /// Paths in a file: one per line as [`PathConfig::parse`] reads it; `#` starts a comment.
    ///
    /// # Errors
    /// The line, and its error.
    pub fn parse_file(text: &str) -> Result<Vec<Self>> {
        let lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.split_once('#').map_or(line, |(line, _)| line).trim()));
        lines
            .filter(|(_, line)| !line.is_empty())
            .map(|(at, line)| Self::parse(line).map_err(|error| Error::Config(format!("line {at}: {error}"))))
            .collect()
    }
}

impl Conditions {
    /// Changes the named conditions, and leaves the others: `loss=2%`, `delay=80ms`; the queue stays in bytes.
    ///
    /// # Errors
    /// The invalid word, and the valid ones; then nothing is changed.
    pub fn change<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let words: Vec<&str> = words.into_iter().flat_map(|word| word.split(',')).collect();
        let mut changed = self.clone();
        for word in &words {
            if !word.contains('=') {
                return Err(Error::Config(format!("`{word}`: say what it is, as in loss=2%; {}", known())));
            }
            if word.starts_with("mtu=") {
                return Err(Error::Config(
                    "the MTU is that of the devices: it is given when the lab comes up".to_owned(),
                ));
            }
        }
        changed.read(&words)?;
        *self = changed;
        Ok(())
    }

    /// Parses words; returns the conditions that they name.
    fn read(&mut self, words: &[&str]) -> Result<Vec<&'static str>> {
        let mut said = Vec::new();
        for (place, word) in words.iter().enumerate() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => {
                    let found = CONDITIONS.iter().find(|known| known.0 == name.trim());
                    let found = found.ok_or_else(|| {
                        Error::Config(format!("there is no condition `{name}`; {}", known()))
                    })?;
                    (found.0, value.trim())
                }
                None => {
                    let by_place = CONDITIONS[..BY_PLACE].get(place).ok_or_else(|| {
                        Error::Config(format!("`{word}`: say what it is, as in burst=5; {}", known()))
                    })?;
                    (by_place.0, *word)
                }
            };
            if said.contains(&name) {
                return Err(Error::Config(format!("{name} is said twice")));
            }
            if name == "trace" {
                let trace = Recording::read(Path::new(value));
                self.trace = Some(trace.map_err(|error| Error::Config(format!("trace: {error:#}")))?);
                said.push(name);
                continue;
            }
            self.set_by_name(name, value).ok_or_else(|| {
                let about = CONDITIONS.iter().find(|known| known.0 == name).map_or("", |known| known.1);
                Error::Config(format!("`{value}` is no {name}: {about}"))
            })?;
            said.push(name);
        }
        Ok(said)
    }

    fn set_by_name(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "rate" => (self.rate, self.trace) = (or_off(value, rate)?, None),
            "delay" => self.delay = time(value)?,
            "loss" => self.loss = share(value)?,
            "jitter" => self.jitter = time(value)?,
            "queue" => self.queue = or_off(value, bytes)?,
            "burst" => {
                let burst: f64 = value.parse().ok()?;
                (1.0..=1e6).contains(&burst).then(|| self.loss_burst = burst)?;
            }
            "reorder" => self.reordering = share(value)?,
            "reorder-delay" => self.reordering_delay = time(value)?,
            "duplicate" => self.duplication = share(value)?,
            "corrupt" => self.corruption = share(value)?,
            "mtu" => self.mtu = value.parse().ok().filter(|mtu| (1280..=65_521).contains(mtu))?,
            _ => return None,
        }
        Some(())
    }

    /// One bandwidth-delay product of the round trip, at least 64 KiB; no limit without a rate.
    fn usual_queue(&self) -> Option<u64> {
        let round_trip = 2.0 * (self.delay + self.jitter).as_secs_f64();
        let rate = match &self.trace {
            Some(trace) => Some(trace.mean() * 1e6),
            None => self.rate.map(|rate| rate as f64),
        };
        rate.map(|rate| ((rate / 8.0 * round_trip) as u64).max(65_536))
    }

    /// The imperfect conditions in words, as [`PathConfig::parse`] reads them.
    pub fn words(&self) -> String {
        let rate = match self.rate {
            Some(rate) if rate % 1_000_000 == 0 => format!("{}mbit", rate / 1_000_000),
            Some(rate) => format!("{}kbit", rate as f64 / 1000.0),
            None => "off".to_owned(),
        };
        let milliseconds = |time: Duration| format!("{}ms", time.as_micros() as f64 / 1000.0);
        let rate = match &self.trace {
            Some(trace) => format!("trace={}", trace.name()),
            None => format!("rate={rate}"),
        };
        let mut words = vec![rate, format!("delay={}", milliseconds(self.delay))];
        let mut chance = |name: &str, share: f64| {
            if share > 0.0 {
                words.push(format!("{name}={}%", (share * 1e6).round() / 1e4));
            }
        };
        chance("loss", self.loss);
        chance("reorder", self.reordering);
        chance("duplicate", self.duplication);
        chance("corrupt", self.corruption);
        if self.loss_burst > 1.0 {
            words.push(format!("burst={}", self.loss_burst));
        }
        if !self.jitter.is_zero() {
            words.push(format!("jitter={}", milliseconds(self.jitter)));
        }
        if let Some(queue) = self.queue {
            words.push(format!("queue={queue}B"));
        }
        words.join(",")
    }
}

fn known() -> String {
    let names: Vec<&str> = CONDITIONS.iter().map(|known| known.0).collect();
    format!("there are: {}", names.join(", "))
}

fn or_off<T>(value: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if value == "off" { Some(None) } else { read(value).map(Some) }
}

/// A number with one of these units, the longest name first; `None` if it is invalid or negative.
fn with_unit(value: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (unit, factor) = units.iter().find(|(unit, _)| value.ends_with(unit))?;
    let number: f64 = value[..value.len() - unit.len()].trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

fn rate(value: &str) -> Option<u64> {
    let rate = with_unit(
        value,
        &[
            ("kbit", 1e3),
            ("mbit", 1e6),
            ("gbit", 1e9),
            ("Kbit", 1e3),
            ("Mbit", 1e6),
            ("Gbit", 1e9),
            ("bit", 1.0),
        ],
    )?;
    // Less than a packet per minute, or more than the resolution of nanoseconds per bit, is a typing error.
    (1000.0..=1e12).contains(&rate).then_some(rate as u64)
}

fn time(value: &str) -> Option<Duration> {
    let seconds = with_unit(value, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])?;
    (seconds <= LONGEST.as_secs_f64()).then(|| Duration::from_secs_f64(seconds))
}

fn bytes(value: &str) -> Option<u64> {
    let bytes = with_unit(
        value,
        &[
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("kB", 1e3),
            ("KB", 1e3),
            ("MB", 1e6),
            ("k", 1e3),
            ("M", 1e6),
            ("B", 1.0),
        ],
    )?;
    (bytes <= 1e12).then_some(bytes as u64)
}

/// `2%` or `0.02`.
fn share(value: &str) -> Option<f64> {
    let share = match value.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => value.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(text: &str) -> Conditions {
        PathConfig::parse(text).expect(text).to_server
    }

    fn error(text: &str) -> String {
        PathConfig::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn a_path_is_said_by_place_or_by_name() {
        let path = PathConfig::parse("lte=30mbit,40ms,1%,10ms,128kB,trusted").expect("a path");
        let expected = Conditions {
            rate: Some(30_000_000),
            delay: Duration::from_millis(40),
            loss: 0.01,
            jitter: Duration::from_millis(10),
            queue: Some(128_000),
            ..Conditions::default()
        };
        assert_eq!((path.name.as_str(), path.class), ("lte", PathClass::Trusted));
        assert_eq!((&path.to_server, &path.to_client), (&expected, &expected));
        let by_name = "lte=queue=128kB,jitter=10ms,loss=0.01,delay=0.04s,rate=30000kbit";
        assert_eq!(conditions(by_name), expected);
        assert_eq!(PathConfig::parse(by_name).expect("a path").class, PathClass::Untrusted);
    }

    #[test]
    fn a_default_queue_holds_one_round_trip_and_no_rate_needs_none() {
        assert_eq!(conditions("a=80mbit,50ms").queue, Some(1_000_000));
        assert_eq!(conditions("a=1mbit,1ms").queue, Some(65_536));
        assert_eq!(conditions("a=off,50ms").queue, None);
        assert_eq!(conditions("a=80mbit,50ms,queue=off").queue, None);
    }

    #[test]
    fn what_is_not_understood_is_named_with_what_may_stand_there() {
        for (text, said) in [
            ("lte", "NAME=RATE,DELAY"),
            ("a=fast,20ms", "`fast` is no rate: bits per second as 50mbit"),
            ("a=50,20ms", "`50` is no rate"),
            ("a=50mbit,20", "`20` is no delay: one way, as 20ms"),
            ("a=50mbit,2h", "no delay"),
            ("a=50mbit,20ms,120%", "`120%` is no loss"),
            ("a=50mbit,20ms,1%,2%", "`2%` is no jitter"),
            ("a=50mbit,20ms,lost=1%", "there is no condition `lost`; there are: rate, delay, loss"),
            ("a=50mbit,20ms,delay=30ms", "delay is said twice"),
            ("a=50mbit,20ms,0,0ms,1MB,7", "`7`: say what it is"),
            ("a=50mbit,-20ms", "`-20ms` is no delay"),
            ("a=50mbit,NaNms", "no delay"),
            ("a=50mbit,20ms,mtu=600", "`600` is no mtu"),
        ] {
            assert!(error(text).contains(said), "{text}: {} does not say {said}", error(text));
        }
        assert!(error("a=fast,1ms").starts_with("path a: "));
    }

    #[test]
    fn a_file_has_a_path_per_line_and_an_error_names_the_line() {
        let file = "# two ways home\n\ndsl = 50mbit,10ms,trusted\nlte=30mbit,40ms,1% # in the evening\n";
        let error = PathConfig::parse_file(file).map(|paths| paths.len());
        // The start of the lab refuses a name with a blank, with the rule for names.
        assert_eq!(error.expect("two paths"), 2);
        let wrong = PathConfig::parse_file("a=50mbit,1ms\n\nb=50mbit,1ms,5ms\n").expect_err("no loss");
        assert!(wrong.to_string().starts_with("line 3: path b: `5ms` is no loss"), "{wrong}");
    }

    #[test]
    fn a_change_leaves_the_rest_as_it_is_and_a_wrong_one_everything() {
        let mut now = conditions("b=50mbit,10ms,1%");
        let before = now.clone();
        now.change(["loss=2%", "delay=80ms"]).expect("understood");
        assert_eq!(now, Conditions { loss: 0.02, delay: Duration::from_millis(80), ..before });
        let before = now.clone();
        for wrong in ["20ms", "mtu=1400", "delay=x", "nothing=1"] {
            now.change(["loss=5%", wrong]).expect_err(wrong);
            assert_eq!(now, before);
        }
    }

    #[test]
    fn a_trace_takes_the_place_of_the_rate_until_a_rate_is_said() {
        let directory = std::env::temp_dir().join(format!("plait-words-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("drive.mbps");
        std::fs::write(&file, "80\n40\n").expect("written");
        let mut path = conditions(&format!("a=trace={},delay=50ms", file.display()));
        assert_eq!(path.words(), "trace=drive,delay=50ms,queue=750000B");
        assert_eq!(path.link().rate.map(std::num::NonZeroU64::get), Some(80_000_000));
        let wrong = path.change(["trace=/nowhere.mbps"]).expect_err("no file").to_string();
        assert!(wrong.contains("/nowhere.mbps"), "{wrong}");
        path.change(["rate=5mbit"]).expect("understood");
        assert_eq!(path.words(), "rate=5mbit,delay=50ms,queue=750000B");
        std::fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["a=50mbit,10ms", "a=off,0ms", "a=1.5mbit,0.5ms,2.5%,3ms,70kB,burst=4,duplicate=1%"] {
            let conditions = conditions(text);
            let mut again = Conditions::default();
            again.change([conditions.words().as_str()]).expect("its own words");
            assert_eq!(again, conditions, "{}", conditions.words());
        }
    }
}
