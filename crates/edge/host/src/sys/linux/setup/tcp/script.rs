//! Runs `ip` and `nft`: with input, in batches, or for an effect that may be there already.

use std::io::Write;
use std::process::Stdio;

use crate::error::Error;
use crate::log::{debug, trace};
use crate::sys::linux::setup::command::{checked, command, run};
use crate::sys::linux::setup::snapshot::Family;

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

/// Runs the lines of `script` as commands of `ip` for a family, up to the first one that fails. The error names that one.
pub(super) fn run_batch(family: Family, script: &str) -> Result<(), Error> {
    let option = family.option();
    match run_with_input("ip", &format!("{option} -batch -"), script) {
        Err(Error::Program { command, status, message }) => {
            let line = failed_line(&message, script).map(|line| format!("ip {option} {line}"));
            Err(Error::Program { command: line.unwrap_or(command), status, message })
        }
        other => other.map(drop),
    }
}

/// The line of a batch that failed: `ip` names it as `Command failed -:2`.
fn failed_line<'a>(message: &str, script: &'a str) -> Option<&'a str> {
    let (_, number) = message.trim_end().rsplit_once("Command failed -:")?;
    script.lines().nth(number.parse::<usize>().ok()?.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_failed_is_the_one_that_ip_names() {
        let script = "link set dev plait0 up\naddress add 198.18.0.1/24 dev plait0\n";
        let message = "RTNETLINK answers: File exists\nCommand failed -:2";
        assert_eq!(failed_line(message, script), Some("address add 198.18.0.1/24 dev plait0"));
        assert_eq!(failed_line("Command failed -:3", script), None);
        assert_eq!(failed_line("ip: out of memory", script), None);
    }
}
