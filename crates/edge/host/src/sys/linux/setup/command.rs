//! Runs programs.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use crate::error::Error;
use crate::log::debug;

/// Runs `program` with `words` split at white space and returns its standard output.
pub(super) fn run(program: &'static str, words: &str) -> Result<String, Error> {
    let mut command = command(program, words);
    command.stdin(Stdio::null());
    checked(program, words, command.output())
}

/// In a process group of its own: Ctrl-C at a terminal is for plait, which still needs the program to clean
/// up.
pub(super) fn command(program: &str, words: &str) -> Command {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).process_group(0);
    command
}

/// Returns the standard output of a program that has succeeded.
pub(super) fn checked(
    program: &'static str,
    words: &str,
    output: std::io::Result<Output>,
) -> Result<String, Error> {
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
