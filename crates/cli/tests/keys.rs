//! `plait key`, by many at the same time.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Starts `plait key trust` for this server, with a fingerprint of equal letters.
fn trust(keys: &Path, host: &str, letter: char) -> Child {
    let key = letter.to_string().repeat(42) + "A";
    let mut command = Command::new(env!("CARGO_BIN_EXE_plait"));
    command.arg("key").arg("--keys").arg(keys).args(["trust", &format!("plait://{host}:7443#{key}")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_hundred_programs_that_trust_servers_at_the_same_time_lose_none_and_replace_none() {
    let scratch = tempfile::tempdir().expect("a directory");
    let keys = scratch.path().join("keys");
    // 50 servers of their own, and one that 50 programs have different keys for.
    let own: Vec<Child> = (0..50).map(|number| trust(&keys, &format!("host-{number}"), 'B')).collect();
    let letters = ('A'..='Z').chain('a'..='x');
    let rivals: Vec<Child> = letters.map(|letter| trust(&keys, "gw", letter)).collect();
    for child in own {
        let output = child.wait_with_output().expect("an end");
        assert!(output.status.success(), "{}", said(&output));
    }
    let mut winners = 0;
    for child in rivals {
        let output = child.wait_with_output().expect("an end");
        winners += usize::from(output.status.success());
        assert!(
            output.status.success() || said(&output).contains("shows a different key"),
            "{}",
            said(&output)
        );
    }
    assert_eq!(winners, 1);
    let text = fs::read_to_string(keys.join("known_peers")).expect("written");
    assert_eq!(text.lines().count(), 51, "{text}");
    let mode = fs::metadata(keys.join("known_peers")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
