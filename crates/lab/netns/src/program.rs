//! Running `ip`, `tc` and `nft` and turning their failures into errors.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::{Error, Result};

/// Runs `program` with `words` split at white space, in the calling thread's namespace, and returns its standard output.
///
/// # Errors
/// The program is missing, or ended with a failure.
pub(crate) fn run(program: &str, words: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words.split_whitespace());
    checked(program, words, command.stdin(Stdio::null()).output())
}

/// As [`run`], with `input` on the program's standard input.
///
/// # Errors
/// As [`run`]; also when the program does not take its input.
pub(crate) fn run_with_input(program: &str, words: &str, input: &str) -> Result<String> {
    let mut command = Command::new(program);
    command
        .args(words.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    });
    checked(program, words, output)
}

fn checked(program: &str, words: &str, output: std::io::Result<Output>) -> Result<String> {
    let output = output.map_err(|source| Error::MissingProgram { program: program.to_owned(), source })?;
    tracing::trace!(program, words, status = %output.status, "ran");
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Program {
        command: format!("{program} {words}"),
        status: output.status,
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
