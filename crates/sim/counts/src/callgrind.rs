//! Callgrind runs the cases, and writes down each as a file of its own: what its functions have executed themselves.

use anyhow::{Context, bail, ensure};
use core::fmt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::gauge;

/// The instructions of one call of a case, on average.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Count {
    pub(crate) case: String,
    /// Instructions but those of cryptography.
    pub(crate) instructions: u64,
    /// Instructions of cryptography: there the way depends on the processor.
    pub(crate) cryptography: u64,
    /// By function, the most first.
    pub(crate) functions: Vec<(String, u64)>,
}

impl Count {
    /// Of a case that has counted `calls` calls.
    fn new(case: &str, calls: u64, executed: &BTreeMap<String, u64>) -> anyhow::Result<Self> {
        ensure!(calls > 0, "{case} has counted nothing");
        let sum = |wanted: bool| -> u64 {
            let of_kind = executed.iter().filter(|(name, _)| is_cryptography(name) == wanted);
            (of_kind.map(|(_, cost)| cost).sum::<u64>() + calls / 2) / calls
        };
        let mut functions: Vec<_> =
            executed.iter().map(|(name, cost)| (name.clone(), cost / calls)).collect();
        functions.sort_by_key(|&(_, cost)| core::cmp::Reverse(cost));
        let (instructions, cryptography) = (sum(false), sum(true));
        ensure!(instructions > 0, "nothing of {case} was counted: {} is no longer found", gauge::TOGGLE);
        Ok(Self { case: case.to_owned(), instructions, cryptography, functions })
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, instructions, cryptography, functions: _ } = self;
        write!(f, "{case:<38} {instructions:>9} {cryptography:>9}")
    }
}

/// Code that seals, opens and tags: AWS-LC and BLAKE3. Functions of AWS-LC have its version in front of their names, except for
/// some in assembly.
fn is_cryptography(function: &str) -> bool {
    ["aws_lc", "blake3", "aesni", "gcm_", "ghash"].iter().any(|part| function.contains(part))
}

/// Runs the cases, or those with `only` in their names, and returns what they have executed, and on what machine.
pub(crate) fn count(only: Option<&str>) -> anyhow::Result<(Vec<Count>, String)> {
    let folder = Folder::new()?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        "--quiet",
        "--compress-strings=no",
        "--compress-pos=no",
        "--dump-line=no",
    ]);
    valgrind.arg(format!("--callgrind-out-file={}", folder.0.join("case").display()));
    valgrind.args([format!("--toggle-collect={}", gauge::TOGGLE), format!("--dump-after={}", gauge::DUMP)]);
    valgrind.arg(std::env::current_exe()?).arg("--inside");
    if let Some(part) = only {
        valgrind.args(["--only", part]);
    }
    let output = valgrind
        .stderr(Stdio::inherit())
        .output()
        .context("valgrind cannot be started\nfix: scripts/setup --with-valgrind")?;
    ensure!(output.status.success(), "a case has failed: {}", output.status);
    let said = String::from_utf8(output.stdout)?;
    let mut lines = said.lines();
    let machine = lines.next().context("it says on what machine it runs")?;
    let mut counts = Vec::new();
    for (line, number) in lines.zip(1..) {
        let (case, calls) = line.split_once(' ').context("a case and its calls")?;
        counts.push(Count::new(case, calls.parse()?, &folder.read(number)?)?);
    }
    Ok((counts, machine.to_owned()))
}

/// The directory of callgrind's output; removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("plait-counts-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    /// Reads the instructions of the functions of case number `number`.
    fn read(&self, number: usize) -> anyhow::Result<BTreeMap<String, u64>> {
        let path: &Path = &self.0.join(format!("case.{number}"));
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        executed(&text).with_context(|| path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Files left behind can be found in the directory of temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What each function has executed itself, from a profile in the format of callgrind (valgrind's manual, "Callgrind Format
/// Specification"): behind the name of a function come lines of a position and a cost; the one behind `calls=` is the cost
/// of a function that it has called, which tells of it itself.
fn executed(profile: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut costs = BTreeMap::new();
    let (mut function, mut is_of_callee, mut totals) = ("", false, None);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            is_of_callee = true;
        } else if let Some(total) = line.strip_prefix("totals: ") {
            totals = Some(total.trim().parse::<u64>()?);
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost: u64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
            if !core::mem::take(&mut is_of_callee) {
                *costs.entry(function.to_owned()).or_insert(0) += cost;
            }
        }
    }
    let (sum, Some(totals)) = (costs.values().sum::<u64>(), totals) else { bail!("it has no totals") };
    ensure!(sum == totals, "its functions have executed {sum} instructions, and it {totals}");
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
positions: line
events: Ir

ob=/counts
fl=a.rs
fn=send
0 70
cfn=malloc
calls=3 0
0 2000
0 30
fn=malloc
0 2000
fn=aws_lc_0_32_0_EVP_AEAD_CTX_seal
0 900

totals: 3000
";

    #[test]
    fn what_a_function_has_called_is_not_counted_twice() {
        let costs = executed(PROFILE).expect("a profile");
        assert_eq!((costs["send"], costs["malloc"]), (100, 2000));
    }

    #[test]
    fn a_profile_whose_parts_are_not_its_whole_is_refused() {
        assert!(executed(&PROFILE.replace("totals: 3000", "totals: 3001")).is_err());
        assert!(executed(&PROFILE.replace("totals: 3000", "")).is_err());
    }

    #[test]
    fn cryptography_is_counted_apart_and_each_count_is_of_one_call() {
        let costs = executed(PROFILE).expect("a profile");
        let count = Count::new("tcp/segment-out", 10, &costs).expect("a case");
        assert_eq!((count.instructions, count.cryptography), (210, 90));
        assert_eq!(count.functions[0], ("malloc".to_owned(), 200));
    }

    #[test]
    fn a_case_that_has_counted_nothing_is_an_error_and_no_gain() {
        assert!(Count::new("tcp/segment-out", 0, &BTreeMap::new()).is_err());
        assert!(Count::new("tcp/segment-out", 64, &BTreeMap::new()).is_err());
    }
}
