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
            output.status.success() || said(&output).contains("is known by another key"),
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

#[test]
fn clients_are_let_in_by_the_line_that_their_own_plait_shows_and_a_bad_line_is_named() {
    let scratch = tempfile::tempdir().expect("a directory");
    let key = |who: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait"));
        command.arg("key").arg("--keys").arg(scratch.path().join(who)).args(arguments);
        command.output().expect("started")
    };
    let shown = String::from_utf8(key("client", &["gen"]).stdout).expect("text");
    let (fingerprint, line) = shown.trim_end().split_once('\n').expect("two lines");
    let words: Vec<&str> = line.split(' ').collect();
    let authorized =
        key("server", &[&["authorize", "--name", "laptop", "--allow", "*:443"], &words[..]].concat());
    assert_eq!(String::from_utf8_lossy(&authorized.stdout).trim_end(), fingerprint, "{}", said(&authorized));
    let list = String::from_utf8(key("server", &["list"]).stdout).expect("text");
    assert_eq!(list, format!("client laptop {fingerprint} with rules of its own\n"));
    assert!(key("server", &["check"]).status.success());

    let file = scratch.path().join("server/authorized_clients");
    let text = fs::read_to_string(&file).expect("read") + "alow=*:22 plait-ed25519 AAAA\n";
    fs::write(&file, text).expect("written");
    let checked = key("server", &["check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(said(&checked).contains("authorized_clients:2: "), "{}", said(&checked));
    assert!(key("server", &["revoke", "laptop"]).status.success());
    let again = key("server", &["revoke", "laptop"]);
    assert!(!again.status.success() && said(&again).contains("no client is called laptop"));
}

#[test]
fn the_list_of_keys_shows_nothing_that_a_terminal_obeys() {
    let scratch = tempfile::tempdir().expect("a directory");
    let key = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait"));
        command.arg("key").arg("--keys").arg(scratch.path().join("keys")).args(arguments);
        command.output().expect("started")
    };
    let shown = String::from_utf8(key(&["gen"]).stdout).expect("text");
    let line = shown.lines().nth(1).expect("the line for authorized_clients");
    let file = scratch.path().join("keys/authorized_clients");
    fs::write(&file, format!("{line} ada\u{1b}]0;x\u{7}\u{202e}\n")).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
    let output = key(&["list"]);
    let listed = String::from_utf8(output.stdout).expect("text");
    assert!(listed.starts_with("client ada\u{fffd}]0;x\u{fffd}\u{fffd} SHA256:"), "{listed:?}");
}

#[test]
fn the_dns_record_of_a_server_has_its_fingerprint_and_none_is_made_for_an_address() {
    let scratch = tempfile::tempdir().expect("a directory");
    let tlsa = |server: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait"));
        command.arg("key").arg("--keys").arg(scratch.path()).args(["tlsa", server]);
        command.output().expect("started")
    };
    let key = "BAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fIA";
    let output = tlsa(&format!("plait://gw.example:7443#{key}"));
    let text = String::from_utf8(output.stdout).expect("text");
    let (owner, digest) = text.trim_end().split_once(" IN TLSA 3 1 1 ").expect("a record");
    assert_eq!((owner, &digest[..8], digest.len()), ("_7443._tcp.gw.example.", "04080c10", 64));
    assert!(said(&tlsa("gw.example")).contains("fix: plait key gen"), "we have no key yet");
    assert!(said(&tlsa(&format!("plait://192.0.2.1:7443#{key}"))).contains("is an address"));
}

#[test]
fn a_second_key_of_a_server_is_added_by_an_explicit_word_only_and_each_can_be_forgotten() {
    let scratch = tempfile::tempdir().expect("a directory");
    let key = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait"));
        command.arg("key").arg("--keys").arg(scratch.path()).args(arguments);
        command.output().expect("started")
    };
    let [old, new] = ["B", "C"].map(|letter| format!("plait://gw:7443#{}A", letter.repeat(42)));
    let known = || String::from_utf8(key(&["list"]).stdout).expect("text").matches("server gw:7443 ").count();
    assert!(key(&["trust", &old]).status.success());
    let refused = key(&["trust", &new]);
    let text = said(&refused);
    assert_eq!((refused.status.code(), known()), (Some(1), 1), "{text}");
    assert!(
        text.contains(&format!("plait key trust --also {new}")) && !text.contains("intercepts"),
        "{text}"
    );
    assert!(key(&["trust", "--also", &new]).status.success());
    assert_eq!(known(), 2);
    assert!(key(&["forget", &old]).status.success());
    assert!(said(&key(&["forget", &old])).contains("gw:7443 is not known by the key SHA256:BBBB"));
    assert_eq!(known(), 1);
    assert!(key(&["trust", "--also", &old]).status.success() && key(&["forget", "gw:7443"]).status.success());
    assert_eq!(known(), 0);
}
