//! What the programs of plait share at a terminal: log, output, exit status, manual, prerequisites of the machine.
//!
//! The crate knows nothing of connections. Its users are the programs `plait` and `plait-lab`.

#![allow(
    clippy::disallowed_methods,
    reason = "standard output and error, files of manual pages, programs that are tried"
)]
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where the output cannot be written")]

pub mod exit;
pub mod log_file;
pub mod logging;
#[cfg(target_os = "linux")]
pub mod manual;
pub mod output;
#[cfg(target_os = "linux")]
pub mod prerequisite;
