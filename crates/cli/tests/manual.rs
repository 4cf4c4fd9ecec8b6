//! Manual pages and completions as a person installs them beside the program.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

use std::fs;
use std::process::Command;

const PLAIT: &str = env!("CARGO_BIN_EXE_plait");

#[test]
fn pages_tell_how_a_command_is_used_its_files_its_variables_and_its_exit_status() {
    let scratch = tempfile::tempdir().expect("a directory");
    let pages = scratch.path().join("man1");
    assert!(Command::new(PLAIT).arg("man").arg(&pages).status().expect("started").success());
    for command in
        ["run", "serve", "proxy", "forward", "connect", "listen", "check", "doctor", "key", "status"]
    {
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
    for number in 0..=7 {
        assert!(status.contains(&number.to_string()), "{number}: {status}");
    }
}

#[test]
fn a_shell_completes_what_there_is() {
    let script = r#"source <("$0" completions bash); COMP_WORDS=(plait ser); COMP_CWORD=1; _plait plait ser plait; echo "${COMPREPLY[*]}""#;
    let output = Command::new("bash").args(["-c", script, PLAIT]).output().expect("bash is installed");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "serve", "{output:?}");
}
