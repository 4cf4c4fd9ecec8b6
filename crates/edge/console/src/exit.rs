//! The end of a program: exit status for scripts, words for people.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::output;

/// Exit status if a privilege, a program or a feature of the kernel is missing.
pub const MISSING: u8 = 7;

/// SIGPIPE, on every Unix.
const CLOSED_PIPE: i32 = 13;

/// A signal has ended the program.
#[derive(Debug)]
pub struct Interrupted(i32);

impl Interrupted {
    /// Ended by the signal with this number.
    pub fn by(signal: i32) -> Self {
        Self(signal)
    }

    /// The reader of standard output has closed it. That ends other programs by SIGPIPE.
    pub fn by_closed_pipe() -> Self {
        Self(CLOSED_PIPE)
    }

    /// The number of the signal.
    pub fn signal(&self) -> i32 {
        self.0
    }

    /// The signal among the causes of an error.
    pub fn within(error: &anyhow::Error) -> Option<&Self> {
        error.chain().find_map(|cause| {
            let inner = cause.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
            cause.downcast_ref().or_else(|| inner?.downcast_ref())
        })
    }

    /// The exit status in a shell of a program that died of the signal.
    pub fn exit_code(&self) -> ExitCode {
        u8::try_from(128 + self.0).unwrap_or(1).into()
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Prints an error of `program` and its causes on standard error, one line each.
pub fn report(program: &str, error: &anyhow::Error) {
    output::say_lines(&format!("{}\n", message(program, error)));
}

/// Ends `program` with an error: the status of a signal in a shell, or words on standard error and `status`.
pub fn end_with(program: &str, error: &anyhow::Error, status: impl Into<ExitCode>) -> ExitCode {
    if let Some(signal) = Interrupted::within(error) {
        return signal.exit_code();
    }
    report(program, error);
    status.into()
}

/// Ends `program` with the output of the command line parser: an error of usage, or the requested help.
pub fn by_parser(program: &str, error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() {
        return u8::try_from(error.exit_code()).unwrap_or(2).into();
    }
    match output::written(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => end_with(program, &error, ExitCode::FAILURE),
    }
}

fn message(program: &str, error: &anyhow::Error) -> String {
    format!("{program}: error: {}", parts(error).join("\n  cause: "))
}

/// Returns an error and its causes in one line.
pub fn in_a_line(error: &anyhow::Error) -> String {
    parts(error).join(": ")
}

/// Returns an error and its causes, each once: a library error has its source in its own words already.
fn parts(error: &anyhow::Error) -> Vec<String> {
    let mut parts = vec![error.to_string()];
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !last.contains(&cause) {
            parts.push(cause.clone());
        }
        last = cause;
    }
    parts
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    fn failed() -> anyhow::Error {
        let error: Result<(), _> = Err(io::Error::other("timed out"));
        error.context("cannot connect to 192.0.2.1:80").expect_err("an error")
    }

    #[test]
    fn a_signal_is_found_however_it_was_wrapped() {
        assert!(Interrupted::within(&Interrupted(2).into()).is_some());
        let wrapped: Result<(), _> = Err(io::Error::other(Interrupted(15)));
        let wrapped = wrapped.context("the connection has ended early").expect_err("an error");
        assert_eq!(Interrupted::within(&wrapped).map(Interrupted::signal), Some(15));
        assert!(Interrupted::within(&failed()).is_none());
    }

    #[test]
    fn an_error_is_told_with_its_cause_and_only_once() {
        let text = message("plait", &failed());
        assert_eq!(text, "plait: error: cannot connect to 192.0.2.1:80\n  cause: timed out");
        assert_eq!(in_a_line(&failed()), "cannot connect to 192.0.2.1:80: timed out");
        let quoted = failed().context("no way: cannot connect to 192.0.2.1:80");
        assert_eq!(in_a_line(&quoted), "no way: cannot connect to 192.0.2.1:80: timed out");
    }
}
