//! Programs of plait on this machine, each with keys of its own below one directory.

use std::path::Path;
use std::process::{Command, Stdio};

use plait_lab::{End, Program};

use super::PLAIT;

/// `plait` in this directory, with the keys in the directory `keys` there.
pub(crate) fn plait(directory: &Path, keys: &str, words: &[&str]) -> Command {
    let mut command = Command::new(PLAIT);
    command.args(words).current_dir(directory).env("PLAIT_KEYS", directory.join(keys));
    command.env_remove("RUST_LOG").env_remove("SUDO_UID").stdin(Stdio::null());
    command
}

pub(crate) fn start(directory: &Path, name: &str, command: Command) -> Program {
    Program::start_here(directory, name, command, End::Given(Stdio::null()), End::Own).expect("started")
}

/// What `plait key` prints.
pub(crate) fn key(directory: &Path, keys: &str, words: &[&str]) -> String {
    let output = plait(directory, keys, &[&["key"], words].concat()).output().expect("started");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The public key of a client, which is made.
pub(crate) fn public(directory: &Path, keys: &str) -> String {
    key(directory, keys, &["gen"]).lines().nth(1).expect("its second line").to_owned()
}
