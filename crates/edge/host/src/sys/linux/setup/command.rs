//! Runs `ip` and `nft`.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use serde::de::DeserializeOwned;
use tracing::{debug, trace};

use crate::error::Error;

/// Runs `program` with `words` split at white space and returns its standard output.
pub(super) fn run(program: &'static str, words: &str) -> Result<String, Error> {
    let mut command = command(program, words);
    command.stdin(Stdio::null());
    checked(program, words, command.output())
}

/// The same as [`run`], for a command that may fail because its effect is already there.
pub(super) fn try_run(program: &'static str, words: &str) {
    if let Err(error) = run(program, words) {
        debug!(%error, "not needed");
    }
}

/// The same as [`run`], with `input` on the program's standard input.
pub(super) fn run_with_input(program: &'static str, words: &str, input: &str) -> Result<String, Error> {
    // Applies whole scripts of rules.
    trace!(program, input, "input");
    let mut command = command(program, words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    });
    checked(program, words, output)
}

/// Runs `ip -json` with `words` and parses its output.
pub(super) fn ip_json<T: DeserializeOwned>(words: &str) -> Result<Vec<T>, Error> {
    let words = format!("-json {words}");
    let output = run("ip", &words)?;
    // `ip` prints nothing for an empty list.
    if output.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&output).map_err(|source| Error::Output { command: format!("ip {words}"), source })
}

/// In a process group of its own: Ctrl-C at a terminal is for plait, which still needs the program to clean
/// up.
fn command(program: &str, words: &str) -> Command {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).process_group(0);
    command
}

fn checked(program: &'static str, words: &str, output: std::io::Result<Output>) -> Result<String, Error> {
    let output = output.map_err(|source| Error::MissingProgram { program, source })?;
    debug!(program, words, status = %output.status, "ran");
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Program {
        command: format!("{program} {words}"),
        status: output.status,
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
