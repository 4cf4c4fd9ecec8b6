//! Compares the counts with the baseline, and judges them.

use core::fmt;

use crate::baseline::Baseline;
use crate::callgrind::Count;

/// Differences from the baseline, in percent.
#[derive(Clone, Copy)]
struct Margin {
    /// A count that differs by more is reported. Different compiler decisions about unchanged code stay within it.
    reported: u64,
    /// A count above the baseline by more is a failure.
    failed: u64,
}

const MARGIN: Margin = Margin { reported: 2, failed: 5 };
/// The same for cryptography, which is none of our code.
const CRYPTOGRAPHY_MARGIN: Margin = Margin { reported: 10, failed: 10 };

/// One count beside another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Same,
    Above,
    FarAbove,
    Below,
}

/// The result of a comparison.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<String>,
    failures: usize,
    /// False if something other than our code has changed: then there is no verdict.
    is_judged: bool,
}

impl Report {
    /// Whether something costs more than it may, or is not written down.
    pub(crate) fn has_failed(&self) -> bool {
        self.is_judged && self.failures > 0
    }

    fn fail(&mut self, line: String) {
        self.failures += 1;
        self.lines.push(line);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        if self.has_failed() {
            writeln!(
                f,
                "fix: find what has become dear (scripts/counts --only CASE --functions 20), or write the baseline anew \
                 (scripts/counts --write) and say in the commit what it is worth"
            )?;
        }
        Ok(())
    }
}

/// Compares what was found with what was kept.
pub(crate) fn compare(kept: &Baseline, found: &Baseline) -> Report {
    let mut report = Report { is_judged: true, ..Report::default() };
    for ((name, then), (_, now)) in kept.surroundings.rows().iter().zip(found.surroundings.rows()) {
        if *then != now {
            report.is_judged = false;
            report.lines.push(format!(
                "NOT JUDGED: the baseline was counted with {name} `{then}`, this is {name} `{now}`"
            ));
        }
    }
    for now in &found.counts {
        match kept.counts.iter().find(|then| then.case == now.case) {
            Some(then) => compare_case(&mut report, then, now),
            None => report.fail(format!(
                "{}: {} instructions, and it is not in the baseline",
                now.case, now.instructions
            )),
        }
    }
    for then in &kept.counts {
        if !found.counts.iter().any(|now| now.case == then.case) {
            report.fail(format!("{}: it is in the baseline, and was not counted", then.case));
        }
    }
    if report.lines.is_empty() {
        report.lines.push(format!(
            "{} cases, each within {} % of its baseline",
            found.counts.len(),
            MARGIN.reported
        ));
    }
    report
}

fn compare_case(report: &mut Report, then: &Count, now: &Count) {
    let kinds = [
        ("instructions", then.instructions, now.instructions, MARGIN),
        ("instructions of cryptography", then.cryptography, now.cryptography, CRYPTOGRAPHY_MARGIN),
    ];
    for (what, then, count, margin) in kinds {
        let change = (count as f64 / then.max(1) as f64 - 1.0) * 100.0;
        let line = format!("{}: {count} {what}, {change:+.1} % beside {then} of the baseline", now.case);
        match judge(then, count, margin) {
            Verdict::Same => {}
            Verdict::FarAbove => report.fail(format!("{line}: too many")),
            Verdict::Above => report.lines.push(format!("{line}: more than before")),
            Verdict::Below => report.lines.push(format!("{line}: lower it (scripts/counts --write)")),
        }
    }
}

fn judge(then: u64, now: u64, margin: Margin) -> Verdict {
    match now * 100 {
        now if now > then * (100 + margin.failed) => Verdict::FarAbove,
        now if now > then * (100 + margin.reported) => Verdict::Above,
        now if now < then * (100 - margin.reported) => Verdict::Below,
        _ => Verdict::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surroundings::Surroundings;

    #[test]
    fn a_case_that_costs_six_percent_more_fails_with_both_numbers_and_the_way_out() {
        let report = compare(&baseline(&[("tcp/ack-in", 1000, 0)]), &baseline(&[("tcp/ack-in", 1060, 0)]));
        assert!(report.has_failed());
        let text = report.to_string();
        for part in ["tcp/ack-in: 1060", "+6.0 %", "1000 of the baseline", "scripts/counts --write"] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }

    #[test]
    fn two_percent_pass_five_are_reported_and_one_instruction_more_fails() {
        let kept = baseline(&[("tcp/ack-in", 1000, 0)]);
        let after = |instructions| compare(&kept, &baseline(&[("tcp/ack-in", instructions, 0)]));
        assert!(!after(1020).to_string().contains("more than before"));
        assert!(after(1021).to_string().contains("more than before") && !after(1050).has_failed());
        assert!(after(1051).has_failed());
    }

    #[test]
    fn a_case_that_costs_less_asks_for_a_lower_baseline_and_fails_nothing() {
        let report = compare(&baseline(&[("tcp/ack-in", 1000, 0)]), &baseline(&[("tcp/ack-in", 960, 0)]));
        assert!(!report.has_failed());
        assert!(report.to_string().contains("-4.0 %") && report.to_string().contains("lower it"));
    }

    #[test]
    fn cryptography_may_differ_by_a_tenth_and_fails_beyond() {
        let kept = baseline(&[("mptcp/sealed-block-out", 1000, 50_000)]);
        assert!(!compare(&kept, &baseline(&[("mptcp/sealed-block-out", 1000, 55_000)])).has_failed());
        assert!(compare(&kept, &baseline(&[("mptcp/sealed-block-out", 1000, 55_001)])).has_failed());
    }

    #[test]
    fn a_case_without_a_baseline_fails_and_so_does_a_baseline_without_its_case() {
        let (one, two) = (baseline(&[("a", 1, 0)]), baseline(&[("a", 1, 0), ("b", 1, 0)]));
        assert!(compare(&one, &two).has_failed());
        assert!(compare(&two, &one).has_failed());
        assert!(!compare(&two, &two).has_failed());
    }

    #[test]
    fn with_another_compiler_nothing_is_judged_and_both_are_named() {
        let kept = baseline(&[("tcp/ack-in", 1000, 0)]);
        let mut found = baseline(&[("tcp/ack-in", 2000, 0)]);
        found.surroundings.rustc = "rustc 1.96.0".to_owned();
        let report = compare(&kept, &found);
        assert!(!report.has_failed());
        for part in ["NOT JUDGED", "`rustc 1.95.0`", "`rustc 1.96.0`", "+100.0 %"] {
            assert!(report.to_string().contains(part), "{part:?} in {report}");
        }
    }

    fn baseline(counts: &[(&str, u64, u64)]) -> Baseline {
        let surroundings = Surroundings {
            rustc: "rustc 1.95.0".to_owned(),
            libc: "glibc 2.36".to_owned(),
            valgrind: "valgrind-3.19.0".to_owned(),
            machine: "x86_64 aes".to_owned(),
        };
        let counts = counts
            .iter()
            .map(|&(case, instructions, cryptography)| Count {
                case: case.to_owned(),
                instructions,
                cryptography,
                functions: Vec::new(),
            })
            .collect();
        Baseline { surroundings, counts }
    }
}
