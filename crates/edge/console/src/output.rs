//! The output of a program: results to standard output, its log and notes for people to standard error.
//!
//! A result that cannot be written is an error of the command. A line of the log that cannot be written is dropped. A full disk, a closed
//! terminal or a reader that has ended must not end a server, and must not cause a panic.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

use crate::exit::Interrupted;

/// Writes a result to standard output.
///
/// # Errors
/// The reader has closed the pipe ([`Interrupted`] by SIGPIPE), or standard output cannot be written.
pub fn result(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    written(output.write_all(text.as_ref()).and_then(|()| output.flush()))
}

/// Converts the result of a write to standard output to an error of the command.
///
/// # Errors
/// As [`result`].
pub fn written(outcome: io::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Interrupted::by_closed_pipe().into()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

/// Prints a message for people on standard error, after the name of the program.
pub fn say(program: &str, words: &str) {
    write_dropping_errors(format!("{program}: {words}\n").as_bytes());
}

/// Writes text unchanged to standard error.
pub fn say_lines(text: &str) {
    write_dropping_errors(text.as_bytes());
}

/// Standard error for the log.
#[derive(Clone, Copy, Debug)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_dropping_errors(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_dropping_errors(bytes: &[u8]) {
    // In one piece, so that lines of several threads do not mix.
    let _ = io::stderr().lock().write_all(bytes);
}
