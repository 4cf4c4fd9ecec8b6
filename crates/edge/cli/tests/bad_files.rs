//! Files in a bad state in the place of each file that plait reads. Each command ends at once, with an error that names the file.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::unistd::{Uid, geteuid};
use rcgen::{CertificateParams, KeyPair};
use support::PLAIT;

/// A file, and a command that reads it: `FILE` is its name. The flag says that an empty file is valid.
const FILES: [(&str, &[&str], bool); 7] = [
    ("gw.toml", &["config", "check", "FILE"], true),
    ("keys/identity", &["key", "show"], false),
    ("keys/authorized_clients", &["key", "check"], true),
    ("keys/known_peers", &["key", "list"], true),
    (
        "gw.pem",
        &["serve", "--forward", "127.0.0.1:1", "--certificate", "FILE", "--certificate-key", "other.key"],
        false,
    ),
    (
        "gw.key",
        &["serve", "--forward", "127.0.0.1:1", "--certificate", "other.pem", "--certificate-key", "FILE"],
        false,
    ),
    ("root.pem", &["connect", "127.0.0.1", "9", "--ca", "FILE"], false),
];

/// Makes a file bad.
type Make = fn(&Path);

/// The states of a file. The flag says that the file is one of an empty text.
const STATES: [(&str, Make); 9] = [
    ("empty", |file| fs::write(file, "").expect("written")),
    ("cut", |file| fs::write(file, "[plait-ed25519 AAA").expect("written")),
    ("no text", |file| fs::write(file, [0xff; 99]).expect("written")),
    ("huge", |file| File::create(file).and_then(|file| file.set_len(1 << 40)).expect("sparse")),
    ("a directory", |file| fs::create_dir(file).expect("made")),
    ("a pipe", |file| nix::unistd::mkfifo(file, nix::sys::stat::Mode::S_IRWXU).expect("made")),
    ("a device", |file| symlink("/dev/zero", file).expect("made")),
    ("a link to itself", |file| symlink(file, file).expect("made")),
    ("unreadable", |file| {
        fs::write(file, "").expect("written");
        fs::set_permissions(file, Permissions::from_mode(0o000)).expect("ours");
    }),
];

fn plait(directory: &Path, file: &str, words: &[&str]) -> Output {
    // More than any of these commands takes, and the end of one that waits for a pipe.
    let mut command = Command::new("timeout");
    command.args(["60", PLAIT]).args(words.iter().map(|word| if *word == "FILE" { file } else { word }));
    if !["key", "config"].contains(&words[0]) {
        command.args(["--carrier", "udp", "--path", "lo"]);
    }
    command.current_dir(directory).env("PLAIT_KEYS", directory.join("keys")).env("PLAIT_CONFIG", "");
    command.env_remove("RUST_LOG").env_remove("SUDO_UID").stdin(Stdio::null());
    command.output().expect("timeout is installed")
}

/// A directory with a good certificate and its key.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let keys = directory.path().join("keys");
    fs::create_dir(&keys).expect("made");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(["gw.example".to_owned()]).expect("a name");
    let certificate = certificate.self_signed(&key).expect("signed");
    fs::write(directory.path().join("other.pem"), certificate.pem()).expect("written");
    support::write_secret(&directory.path().join("other.key"), &key.serialize_pem());
    directory
}

/// The command ends by itself, without a panic, with an error that names the file.
fn expect_error(output: &Output, file: &str, what: &str) {
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let code = output.status.code();
    assert!(matches!(code, Some(1 | 2 | 5)), "{file}, {what}: {code:?}: {said}");
    assert!(said.contains(file) && !said.contains("panicked"), "{file}, {what}: {said}");
}

#[test]
fn no_file_in_a_bad_state_is_believed_waited_for_or_read_without_an_end() {
    for (file, words, may_be_empty) in FILES {
        for (what, make) in STATES {
            if what == "unreadable" && geteuid().is_root() {
                continue;
            }
            let directory = directory();
            let place = directory.path().join(file);
            make(&place);
            let is_file = fs::symlink_metadata(&place).expect("there").is_file();
            // So that a secret is refused for what it has.
            if is_file && what != "unreadable" {
                fs::set_permissions(&place, Permissions::from_mode(0o600)).expect("ours");
            }
            let output = plait(directory.path(), file, words);
            if what == "empty" && may_be_empty {
                assert!(output.status.success(), "{file}, {what}: {output:?}");
            } else {
                expect_error(&output, file, what);
            }
        }
    }
}

#[test]
#[ignore = "needs root"]
fn no_file_of_another_user_is_believed() {
    for (file, words, _) in FILES.into_iter().filter(|(file, ..)| !file.ends_with(".pem")) {
        let directory = directory();
        let place = directory.path().join(file);
        support::write_secret(&place, "");
        nix::unistd::chown(&place, Some(Uid::from_raw(65534)), None).expect("root");
        let output = plait(directory.path(), file, words);
        expect_error(&output, file, "of another user");
        assert!(String::from_utf8_lossy(&output.stderr).contains("belongs to user 65534"), "{output:?}");
    }
}
