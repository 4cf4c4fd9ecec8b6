//! `plait-lab` at a terminal: manual pages, completions, outputs that cannot be written.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

use std::fs::{self, OpenOptions};
use std::process::{Command, Output, Stdio};

const PLAIT_LAB: &str = env!("CARGO_BIN_EXE_plait-lab");

fn full_disk() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it").into()
}

fn lab(words: &[&str], output: Stdio, errors: Stdio) -> Output {
    let mut command = Command::new(PLAIT_LAB);
    let scratch = std::env::temp_dir().join("plait-lab-none");
    command.args(words).env("PLAIT_LAB_RUNTIME", scratch).stdin(Stdio::null()).stdout(output).stderr(errors);
    command.spawn().expect("started").wait_with_output().expect("it ends")
}

#[test]
fn pages_and_completions_are_those_of_this_program() {
    let scratch = tempfile::tempdir().expect("a directory");
    let pages = scratch.path().to_str().expect("text");
    assert!(lab(&["man", pages], Stdio::null(), Stdio::null()).status.success());
    for command in ["up", "path", "attack", "demo", "figures", "scramble"] {
        let page = fs::read_to_string(scratch.path().join(format!("plait-lab-{command}.1"))).expect(command);
        for section in ["EXAMPLES", "FILES", "ENVIRONMENT", "\"EXIT STATUS\""] {
            assert!(page.contains(&format!(".SH {section}\n")), "{section} of {command}: {page}");
        }
    }
    let script = r#"source <("$0" completions bash); COMP_WORDS=(plait-lab scr); COMP_CWORD=1; _plait__lab plait-lab scr plait-lab; echo "${COMPREPLY[*]}""#;
    let output = Command::new("bash").args(["-c", script, PLAIT_LAB]).output().expect("bash is installed");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "scramble", "{output:?}");
}

#[test]
fn errors_name_the_program_and_keep_their_exit_code_where_they_cannot_be_written() {
    for (words, code) in
        [(&["scramble", "/nowhere"][..], 1), (&["status"], 1), (&["demo", "--plait"], 2), (&["lab"], 2)]
    {
        let told = lab(words, Stdio::null(), Stdio::piped());
        assert_eq!(told.status.code(), Some(code), "{told:?}");
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(code == 2 || said.starts_with("plait-lab: error: "), "{said}");
        assert_eq!(lab(words, Stdio::null(), full_disk()).status.code(), Some(code), "{words:?}");
    }
    let full = lab(&["man"], full_disk(), Stdio::piped());
    assert_eq!(full.status.code(), Some(1), "{full:?}");
}
