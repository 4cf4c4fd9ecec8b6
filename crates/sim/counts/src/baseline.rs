//! The baseline: text that a person reads, and that shows in a diff what a change costs.

use anyhow::{Context, ensure};
use core::fmt;
use core::str::FromStr;

use crate::callgrind::Count;
use crate::surroundings::Surroundings;

/// Counts, and what they depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Baseline {
    pub(crate) surroundings: Surroundings,
    pub(crate) counts: Vec<Count>,
}

const ABOUT: &str = "\
# What a segment costs in instructions, those of cryptography apart. Written by `scripts/counts --write`, compared by
# `scripts/counts`; docs/transport.md says what each case is.
";

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{ABOUT}\n{}", self.surroundings)?;
        self.counts.iter().try_for_each(|count| writeln!(f, "{count}"))
    }
}

impl FromStr for Baseline {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut row = |name: &str| {
            let line = lines.next().with_context(|| format!("the baseline has no line `{name}:`"))?;
            let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
            Ok::<_, anyhow::Error>(value.with_context(|| format!("not a line `{name}:`: {line}"))?.to_owned())
        };
        let surroundings = Surroundings {
            rustc: row("rustc")?,
            libc: row("libc")?,
            valgrind: row("valgrind")?,
            machine: row("machine")?,
        };
        let counts = lines.map(parse_count).collect::<Result<_, _>>()?;
        Ok(Self { surroundings, counts })
    }
}

fn parse_count(line: &str) -> anyhow::Result<Count> {
    let mut words = line.split_whitespace();
    let case = words.next().with_context(|| format!("no case: {line}"))?.to_owned();
    let mut number =
        || words.next().and_then(|word| word.parse().ok()).with_context(|| format!("no count: {line}"));
    let (instructions, cryptography) = (number()?, number()?);
    ensure!(words.next().is_none(), "more than two counts: {line}");
    Ok(Count { case, instructions, cryptography, functions: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let baseline = Baseline {
            surroundings: Surroundings {
                rustc: "rustc 1.95.0".to_owned(),
                libc: "glibc 2.36".to_owned(),
                valgrind: "valgrind-3.19.0".to_owned(),
                machine: "x86_64 aes".to_owned(),
            },
            counts: vec![Count {
                case: "mptcp/sealed-block-in".to_owned(),
                instructions: 4000,
                cryptography: 90_000,
                functions: Vec::new(),
            }],
        };
        assert_eq!(baseline.to_string().parse::<Baseline>().expect("a baseline"), baseline);
    }

    #[test]
    fn the_baseline_that_is_kept_has_exactly_the_cases_that_there_are() {
        let kept: Baseline = include_str!("../baseline.txt").parse().expect("a baseline");
        let written: Vec<_> = kept.counts.into_iter().map(|count| count.case).collect();
        assert_eq!(written, crate::cases::names().collect::<Vec<_>>());
    }

    #[test]
    fn a_line_that_is_no_count_is_an_error() {
        for line in ["tcp/ack-in", "tcp/ack-in 1200", "tcp/ack-in 1200 many", "tcp/ack-in 1200 0 7"] {
            assert!(parse_count(line).is_err(), "{line}");
        }
    }
}
