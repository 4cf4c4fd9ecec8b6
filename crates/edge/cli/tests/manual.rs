//! Manual pages and completions as a person installs them beside the program, and what the documents promise of both.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

use std::fs;
use std::path::Path;
use std::process::Command;

const PLAIT: &str = env!("CARGO_BIN_EXE_plait");

#[test]
fn pages_tell_how_a_command_is_used_its_files_its_variables_and_its_exit_status() {
    let scratch = tempfile::tempdir().expect("a directory");
    let pages = scratch.path().join("man1");
    assert!(Command::new(PLAIT).arg("man").arg(&pages).status().expect("started").success());
    for command in [
        "run", "up", "gateway", "serve", "proxy", "forward", "connect", "listen", "check", "doctor", "key",
        "status",
    ] {
        let page = fs::read_to_string(pages.join(format!("plait-{command}.1"))).expect(command);
        for section in ["EXAMPLES", "FILES", "ENVIRONMENT", "\"EXIT STATUS\""] {
            assert!(page.contains(&format!(".SH {section}\n")), "{section} of {command}: {page}");
        }
        // The formats of what people write by hand, and where it is.
        for part in ["authorized_clients", "allow=", "known_peers", "XDG_CONFIG_HOME", "PLAIT_KEYS"] {
            assert!(page.contains(part), "{part} in {command}: {page}");
        }
    }
    let page = fs::read_to_string(pages.join("plait-connect.1")).expect("there");
    let status = page.split_once(".SH \"EXIT STATUS\"\n").expect("there").1;
    let status = status.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "0; 1 for",
        "2 for",
        "4 if",
        "5 if",
        "6 if",
        "7 if",
        "8 if what was sent first may have been delivered",
    ] {
        assert!(status.contains(told), "{told}: {status}");
    }
}

#[test]
fn a_shell_completes_what_there_is() {
    let script = r#"source <("$0" completions bash); COMP_WORDS=(plait ser); COMP_CWORD=1; _plait plait ser plait; echo "${COMPREPLY[*]}""#;
    let output = Command::new("bash").args(["-c", script, PLAIT]).output().expect("bash is installed");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "serve", "{output:?}");
}

/// A file of the project.
fn of_the_project(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn what_the_readme_installs_has_no_symbols() {
    let readme = of_the_project("README.md");
    assert!(readme.contains("$ cargo install --locked --profile dist --path crates/edge/cli "), "{readme}");
    let manifest = of_the_project("Cargo.toml");
    let profile = manifest.split_once("\n[profile.dist]\n").expect("there is one").1;
    let lines: Vec<_> = profile.lines().take_while(|line| !line.starts_with('[')).collect();
    for line in ["inherits = \"release\"", "debug = false", "strip = \"symbols\""] {
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
}

#[test]
fn what_the_readme_says_puts_pages_and_completions_where_they_are_found_in_an_empty_home() {
    let home = tempfile::tempdir().expect("a directory");
    let programs = home.path().join(".cargo/bin");
    fs::create_dir_all(&programs).expect("a directory");
    std::os::unix::fs::symlink(PLAIT, programs.join("plait")).expect("a link");
    let readme = of_the_project("README.md");
    let install = readme.split_once("\n## Install\n").expect("a section").1;
    let commands = install.split("```").nth(1).expect("a block").lines();
    let commands: Vec<_> = commands.filter_map(|line| line.strip_prefix("$ ")).collect();
    // The program is there already, and what the machine lacks is none of this.
    let [cargo, rest @ .., doctor] = &commands[..] else { panic!("{commands:?}") };
    assert!(cargo.starts_with("cargo install") && doctor.starts_with("plait doctor"), "{commands:?}");
    for command in rest {
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("there is one"));
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("HOME", home.path()).env("PATH", path);
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // `man` looks beside the directories that programs are in (manpath(5)), and bash-completion where XDG says.
    for file in [".cargo/share/man/man1/plait-run.1", ".local/share/bash-completion/completions/plait"] {
        assert!(fs::metadata(home.path().join(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
}

/// The rows of a page that begin with one of these letters and a number.
fn rows<'a>(page: &'a str, letters: &[char]) -> Vec<Vec<&'a str>> {
    let is_row = |line: &&str| line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(letters));
    let cells = |line: &'a str| line.trim_matches('|').split('|').map(str::trim).collect();
    page.lines().filter(is_row).map(cells).collect()
}

/// All tests in a cell are there: sentences, behind the name of their file below `crates/edge`.
fn assert_there(cell: &str) {
    let mut tests = String::new();
    for sentence in cell.split("; ") {
        let sentence = match sentence.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
            Some((file, sentence)) => {
                tests = of_the_project(&format!("crates/edge/{file}"));
                sentence
            }
            None => sentence,
        };
        assert!(tests.contains(&format!("fn {}() {{\n", sentence.replace(' ', "_"))), "{sentence}");
    }
}

#[test]
fn every_test_that_the_page_on_use_names_is_there() {
    let page = of_the_project("docs/notes/use.md");
    let rows = rows(&page, &['U']);
    let ids: Vec<_> = rows.iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(ids, (1..=27).map(|number| format!("U{number}")).collect::<Vec<_>>());
    rows.iter().for_each(|row| assert_there(row[2]));
}

#[test]
fn every_test_that_the_page_on_the_field_names_is_there() {
    let page = of_the_project("docs/notes/field.md");
    let (findings, scenarios) = page.split_once("\n## Scenarios\n").expect("a section");
    let findings = rows(findings, &['F', 'V']);
    let ids: Vec<_> = findings.iter().map(|row| row[0].to_owned()).collect();
    let reports = (1..=15).chain([21, 22, 31]).map(|number| format!("F{number}"));
    let all: Vec<_> = reports.chain((1..=23).map(|number| format!("V{number}"))).collect();
    assert_eq!(ids, all);
    let cells = findings.iter().map(|row| row[2]).filter(|cell| *cell != "none");
    cells.for_each(assert_there);
    let scenarios = scenarios.lines().filter(|line| line.contains(".rs`: "));
    let cells: Vec<_> = scenarios.filter_map(|line| line.split('|').nth(2)).map(str::trim).collect();
    assert_eq!(cells.len(), 7);
    cells.into_iter().for_each(assert_there);
}

/// What `plait` prints for these words.
fn help(words: &[&str]) -> String {
    let output = Command::new(PLAIT).args(words).output().expect("started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_short_help_fits_on_a_screen_and_the_long_one_has_every_option_under_a_fitting_heading() {
    for command in [
        "run", "up", "gateway", "serve", "proxy", "forward", "connect", "listen", "check", "doctor", "key",
        "status",
    ] {
        let short = help(&[command, "-h"]);
        assert!(short.lines().count() <= 50, "{command}: {} lines: {short}", short.lines().count());
        assert!(!short.contains("EXIT STATUS"), "{short}");
        let long = help(&[command, "--help"]);
        assert!(long.matches("Exit status: ").count() <= 1, "{command}: {long}");
    }
    for command in ["run", "up", "gateway", "serve", "proxy", "forward", "connect", "listen"] {
        let short = help(&[command, "-h"]);
        for part in ["--path", "--carrier", "--protect", &format!("plait {command} --help")] {
            assert!(short.contains(part), "{part} of {command}: {short}");
        }
        let long = help(&[command, "--help"]);
        let under = |heading: &str| {
            let (_, rest) =
                long.split_once(&format!("\n{heading}:\n")).unwrap_or_else(|| panic!("{heading}: {long}"));
            let end = rest.find("\n\n").map_or(rest.len(), |_| {
                // A section ends at the next line that begins with a letter.
                rest.match_indices('\n')
                    .find(|(at, _)| rest[at + 1..].starts_with(char::is_alphabetic))
                    .map_or(rest.len(), |(at, _)| at)
            });
            rest[..end].to_owned()
        };
        assert!(under("Paths and carriers").contains("--open-firewall"), "{long}");
        assert!(under("Protection and identity").contains("--require-pq"), "{long}");
        assert!(under("Log, status and captures").contains("--pcap"), "{long}");
        assert!(long.contains("\nExit status: "), "{long}");
    }
    let long = help(&["serve", "--help"]);
    let (_, limits) = long.split_once("\nLimits against strangers:\n").expect("a heading");
    let limits: Vec<_> = limits.lines().take_while(|line| line.is_empty() || line.starts_with(' ')).collect();
    let options = limits.iter().filter(|line| line.trim_start().starts_with("--"));
    let foreign: Vec<_> = options.filter(|line| !line.trim_start().starts_with("--max-")).collect();
    assert_eq!(foreign, [] as [&&str; 0], "{long}");
}

#[test]
fn a_page_tells_the_exit_status_once() {
    let scratch = tempfile::tempdir().expect("a directory");
    assert!(Command::new(PLAIT).arg("man").arg(scratch.path()).status().expect("started").success());
    for command in ["run", "serve", "connect", "check", "doctor"] {
        let page = fs::read_to_string(scratch.path().join(format!("plait-{command}.1"))).expect(command);
        assert_eq!(page.matches("if signal N").count(), 1, "{command}: {page}");
        assert!(!page.contains(".SH EXTRA"), "{command}: {page}");
    }
}
