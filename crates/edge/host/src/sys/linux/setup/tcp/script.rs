//! Runs `ip` and `nft`: with input, for JSON, or for an effect that may be there already.

use std::io::Write;
use std::process::Stdio;

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::log::{debug, trace};
use crate::sys::linux::setup::command::{checked, command, run};

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
    let not_json =
        |source: serde_json::Error| Error::Output { command: format!("ip {words}"), source: source.into() };
    serde_json::from_str(&output).map_err(not_json)
}
