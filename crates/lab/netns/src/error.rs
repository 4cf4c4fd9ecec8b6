//! Errors of network namespaces, and their fixes.

use std::io;
use std::process::ExitStatus;

/// Why an operation on a namespace failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed; the text says which and on what.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action, as the end of the sentence "cannot ...".
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A program ran and reported a failure.
    #[error("`{command}` failed ({status}): {message}")]
    Program {
        /// The command line.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error.
        message: String,
    },
    /// A program is not installed, or may not be executed.
    #[error("cannot start `{program}`: {source}; install the package that has it (iproute2 or nftables)")]
    MissingProgram {
        /// The program's name.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A name does not fit the kernel's limits (15 bytes for a device, no slash or white space anywhere).
    #[error("`{name}` cannot be used as a name: {reason}")]
    Name {
        /// The name as given.
        name: String,
        /// The reason.
        reason: &'static str,
    },
}

impl Error {
    pub(crate) fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { action: action.into(), source: source.into() }
    }
}
