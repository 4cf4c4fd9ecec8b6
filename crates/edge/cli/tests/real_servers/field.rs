//! The findings of the field, as `docs/notes/field.md` lists them: the named tests are run, three at the same time in
//! namespaces of their own, and each must really have run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// All findings.
fn ids() -> Vec<String> {
    let reports = (1..=15).chain([21, 22, 31]).map(|number| format!("F{number}"));
    reports.chain((1..=23).map(|number| format!("V{number}"))).collect()
}

/// One line for each finding, one for each test that takes minutes, and the scenarios with their figures.
pub(crate) fn show() {
    let page = std::fs::read_to_string(project().join("docs/notes/field.md")).expect("the page");
    let (findings, scenarios) = page.split_once("\n## Scenarios\n").expect("a section");
    let (findings, scenarios) = (rows(findings), rows(scenarios));
    let named: Vec<_> = findings.iter().map(|row| row.id.clone()).collect();
    assert_eq!(named, ids(), "each finding once");
    let tests = || findings.iter().chain(&scenarios).flat_map(|row| &row.tests);
    let mut runner = Runner::build(tests().map(|(file, _)| file.as_str()).collect());
    let mut failed = Vec::new();
    show_rows(&mut runner, &findings, false, &mut failed);
    println!("\n  tests that take minutes");
    let long: Vec<_> = runner.long_tests().into_iter().map(Row::of_long_test).collect();
    show_rows(&mut runner, &long, true, &mut failed);
    println!("\n  scenarios");
    show_rows(&mut runner, &scenarios, true, &mut failed);
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// Runs the tests of these rows, several at the same time, and shows each row once its tests and those of the rows before are over.
fn show_rows(runner: &mut Runner, rows: &[Row], figures: bool, failed: &mut Vec<String>) {
    let tests = rows.iter().flat_map(|row| &row.tests);
    let due: VecDeque<_> = runner.due(tests.map(|test| runner.named(test)).collect());
    let due = Mutex::new(due);
    let next = || due.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, outcomes) = channel();
    thread::scope(|scope| {
        for sender in [sender.clone(), sender.clone(), sender] {
            scope.spawn(move || {
                while let Some(test) = next() {
                    let outcome = test.run();
                    let _ = sender.send((test, outcome));
                }
            });
        }
        for row in rows {
            let tests: Vec<_> = row.tests.iter().map(|test| runner.named(test)).collect();
            while tests.iter().any(|test| !runner.outcomes.contains_key(test)) {
                let (test, outcome) = outcomes.recv().expect("each test has an outcome");
                runner.outcomes.insert(test, outcome);
            }
            let outcomes: Vec<_> = tests.iter().map(|test| &runner.outcomes[test]).collect();
            show_row(row, &outcomes, figures, failed);
        }
    });
}

fn show_row(row: &Row, outcomes: &[&Outcome], figures: bool, failed: &mut Vec<String>) {
    let Row { id, text, tests } = row;
    let id = if text == id { "" } else { id };
    if tests.is_empty() {
        println!("  {id:<4} open        {text}");
        return;
    }
    let took: f64 = outcomes.iter().map(|outcome| outcome.took.as_secs_f64()).sum();
    let is_ok = outcomes.iter().all(|outcome| outcome.is_ok);
    println!("  {id:<4} {:<6} {took:5.1} s  {text}", if is_ok { "ok" } else { "FAILED" });
    for ((_, sentence), outcome) in tests.iter().zip(outcomes) {
        if !outcome.is_ok {
            failed.push(sentence.clone());
        }
        if !outcome.is_ok || figures {
            outcome.output.lines().for_each(|line| println!("         {line}"));
        }
    }
}

/// A row of the page.
struct Row {
    id: String,
    text: String,
    /// Files below `crates/edge`, and sentences that are the names of tests in them.
    tests: Vec<(String, String)>,
}

impl Row {
    fn of_long_test((file, name): (String, String)) -> Self {
        let text = name.replace('_', " ");
        Self { id: "long".to_owned(), tests: vec![(file, text.clone())], text }
    }
}

fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.contains("| Test |"));
    lines.map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    // A scenario has no id apart from its text.
    let [id, text, tests] = match cells[..] {
        [id, text, tests, _] => [id, text, tests],
        [text, tests, _] => [text, text, tests],
        _ => panic!("{line}"),
    };
    let mut file = "";
    let tests = tests.split("; ").filter(|sentence| *sentence != "none").map(|sentence| {
        let named = sentence.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
        let sentence = named.map_or(sentence, |(name, sentence)| {
            file = name;
            sentence
        });
        (file.to_owned(), sentence.to_owned())
    });
    let tests = tests.collect();
    Row { id: id.to_owned(), text: text.to_owned(), tests }
}

/// A test in a program with tests.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    program: PathBuf,
    /// The file of the page.
    file: String,
    /// Its name, with its modules.
    name: String,
}

struct Outcome {
    is_ok: bool,
    took: Duration,
    /// What the test has printed; if it has failed, all that there is.
    output: String,
}

/// The programs with the tests, and what has been run.
struct Runner {
    /// By file of the page: the program, and the names of its tests.
    programs: BTreeMap<String, (PathBuf, Vec<String>)>,
    outcomes: BTreeMap<Test, Outcome>,
}

impl Runner {
    /// Builds what these files belong to.
    fn build(files: BTreeSet<&str>) -> Self {
        let folders: BTreeSet<_> = files.iter().filter_map(|file| Some(file.split_once('/')?.0)).collect();
        let targets: BTreeSet<_> = files.iter().map(|file| target(file)).collect();
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["test", "--quiet", "--no-run", "--message-format=json"]).current_dir(project());
        // In one call, so that what the packages link is built once.
        command.args(folders.iter().map(|folder| format!("--package={}", package(folder)))).args(targets);
        let output = command.output().expect("cargo");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut built = BTreeMap::new();
        for line in output.stdout.split(|byte| *byte == b'\n') {
            let message: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
            let (source, program) = (&message["target"]["src_path"], &message["executable"]);
            if let (Some(source), Some(program), Some(true)) =
                (source.as_str(), program.as_str(), message["profile"]["test"].as_bool())
            {
                built.insert(PathBuf::from(source), PathBuf::from(program));
            }
        }
        let programs = files.into_iter().map(|file| {
            let program = built.get(&source(file)).unwrap_or_else(|| panic!("{file}: nothing was built"));
            let listed = run(program, file, &["--list"]).1;
            let names = listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned);
            (file.to_owned(), (program.clone(), names.collect()))
        });
        Self { programs: programs.collect(), outcomes: BTreeMap::new() }
    }

    /// Tests that scripts/test leaves out, with their files.
    fn long_tests(&self) -> Vec<(String, String)> {
        let tests = self.programs.iter().flat_map(|(file, (_, names))| {
            let long = names.iter().filter(|name| name.contains("long::"));
            long.map(|name| (file.clone(), name.rsplit("::").next().unwrap_or(name).to_owned()))
        });
        tests.collect()
    }

    /// The test with this sentence as its name.
    fn named(&self, (file, sentence): &(String, String)) -> Test {
        let (program, names) = &self.programs[file];
        let name = sentence.replace(' ', "_");
        let mut found = names.iter().filter(|full| full.rsplit("::").next() == Some(&name));
        let (Some(full), None) = (found.next(), found.next()) else {
            panic!("{file}: {name} is not the name of one test");
        };
        Test { program: program.clone(), file: file.clone(), name: full.clone() }
    }

    /// Those that have not been run, each once.
    fn due(&self, tests: Vec<Test>) -> VecDeque<Test> {
        let mut due = VecDeque::new();
        for test in tests {
            if !due.contains(&test) && !self.outcomes.contains_key(&test) {
                due.push_back(test);
            }
        }
        due
    }
}

impl Test {
    fn run(&self) -> Outcome {
        let Self { program, file, name } = self;
        let begin = Instant::now();
        let (ended_well, output) =
            run(program, file, &["--include-ignored", "--exact", name, "--show-output"]);
        let is_ok = ended_well && output.contains(&format!("test {name} ... ok\n"));
        let heading = format!("---- {name} stdout ----\n");
        let printed = output.split_once(&heading).and_then(|(_, rest)| rest.split("\n\n").next());
        let printed = printed.map(str::to_owned).unwrap_or_default();
        Outcome { is_ok, took: begin.elapsed(), output: if is_ok { printed } else { output } }
    }
}

/// Runs a program with tests in the folder of its package, as cargo does: whether it ended well, and what it said.
fn run(program: &Path, file: &str, words: &[&str]) -> (bool, String) {
    let folder = file.split_once('/').expect("a folder").0;
    let folder = project().join("crates/edge").join(folder);
    let mut command = Command::new(program);
    command.args(words).env("CARGO_MANIFEST_DIR", &folder).current_dir(folder);
    let output = command.output().expect("started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), said + &String::from_utf8_lossy(&output.stderr))
}

/// The package in a folder.
fn package(folder: &str) -> String {
    match folder {
        "plait" => folder.to_owned(),
        folder => format!("plait-{folder}"),
    }
}

/// The option that selects the target of a file.
fn target(file: &str) -> String {
    match file.split('/').collect::<Vec<_>>()[..] {
        [_, "tests", name] => {
            format!("--test={}", name.strip_suffix(".rs").expect("a file of Rust"))
        }
        ["cli", "src", ..] => "--bin=plait".to_owned(),
        [_, "src", ..] => "--lib".to_owned(),
        _ => panic!("{file}: neither a test nor a source file"),
    }
}

/// The root of the target of a file.
fn source(file: &str) -> PathBuf {
    let edge = project().join("crates/edge");
    match file.split('/').collect::<Vec<_>>()[..] {
        ["cli", "src", ..] => edge.join("cli/src/main.rs"),
        [folder, "src", ..] => edge.join(folder).join("src/lib.rs"),
        _ => edge.join(file),
    }
}

fn project() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
    folder.expect("crates/edge/cli is in it").to_owned()
}
