//! The end of the program: exit status for scripts, words for people.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::LazyLock;

use plait::ErrorKind;
pub(crate) use plait_console::exit::Interrupted;

use crate::check::NotUsable;
use crate::protection::WrongPeer;
use crate::runtime;
use crate::system::prerequisite::MissingPrerequisite;
use crate::system::{HANGUP, caught, ignores_hangup};

/// The name of the program in its messages.
pub(crate) const NAME: &str = "plait";

/// The text about exit statuses in `--help` and the manual.
pub(crate) const EXPLANATION: &str = "Exit status: 0; 1 for any other error; 2 for errors of usage; 4 if the peer cannot be reached on any \
    path, or is full; 5 if its identity is not the expected one, or it refuses this client; 6 if the result is not what was asked for \
    (--require-multipath, --protect); 7 if a privilege, a program or a feature of the kernel is missing; 8 if what was sent first may have \
    been delivered, and no answer came; 128+N if signal N ended it, for example 141 after the reader of standard output has gone.";

/// The same for `plait check`.
pub(crate) const EXPLANATION_OF_CHECK: &str = "Exit status: 0 if a path can be used; 1 for any other error; 2 for errors of usage; 4 if \
    the server cannot be reached on any path, or is full; 5 if its identity is not the expected one, or it refuses this client; 6 if it can \
    be reached and options are stripped, altered or dropped on the path; 7 if no path can be tried, because a privilege, a device or a \
    program is missing; 128+N if signal N ended it, for example 141 after the reader of standard output has gone.";

/// The same for `plait doctor`.
pub(crate) const EXPLANATION_OF_DOCTOR: &str = "Exit status: 7 if a prerequisite of connections is missing: for root of those over TCP \
    and UDP, for an ordinary user of those over UDP; otherwise 0, or with --server that of plait check: 0 if a path can be used; 1 for any \
    other error; 4 if the server cannot be reached on any path, or is full; 5 if its identity is not the expected one, or it refuses this \
    client; 6 if it can be reached and options are stripped, altered or dropped on the path; 7 if no path can be tried; 2 for errors of \
    usage; 128+N if signal N ended it, for example 141 after the reader of standard output has gone.";

/// The same for `plait health`.
pub(crate) const EXPLANATION_OF_HEALTH: &str = "Exit status: 0 if the process is healthy; 1 if it is not, does not answer, or cannot be \
    found; 2 for errors of usage; 128+N if signal N ended it, for example 141 after the reader of standard output has gone.";

/// The same for `plait monitor`.
pub(crate) const EXPLANATION_OF_MONITOR: &str = "Exit status: 0 after the process that it watches has ended; 1 for any other error; 2 for \
    errors of usage; 128+N if signal N ended it, for example 141 after the reader of standard output has gone.";

/// The fix if a server does not accept the key of this client.
pub(crate) const NOT_AUTHORIZED: &str = "plait key show, here, says the key; its line belongs into the server's authorized_clients (there: \
    plait key authorize, as the server's log says it)";
/// The fix if a server has no room, or stops.
pub(crate) const BUSY: &str =
    "try again later; on the server, --max-connections, or connections= of this client";

/// Returns the fix if a server has refused this client.
pub(crate) fn remedy_of_refusal(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotAuthorized => Some(NOT_AUTHORIZED),
        ErrorKind::Busy => Some(BUSY),
        _ => None,
    }
}

/// Exit status. Usage errors end with 2, from the parser of the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    Success,
    /// Any other error.
    Failure,
    /// The peer cannot be reached on any path.
    Unreachable,
    /// The peer does not have the expected identity.
    Identity,
    /// The result is not what was asked for (`--require-multipath`, `--protect`).
    Policy,
    /// A privilege, a program or a feature of the kernel is missing.
    Missing,
    /// The first data may have been delivered, and no answer came.
    PerhapsDelivered,
}

impl Exit {
    fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Unreachable => 4,
            Self::Identity => 5,
            Self::Policy => 6,
            Self::Missing => plait_console::exit::MISSING,
            Self::PerhapsDelivered => 8,
        }
    }

    /// Prints the error on standard error.
    pub(crate) fn report(self, error: &anyhow::Error) -> ExitCode {
        plait_console::exit::report(NAME, error);
        self.into()
    }
}

/// Ends the program with the output of the command line parser: an error of usage, or the requested help.
pub(crate) fn by_parser(error: &clap::Error) -> ExitCode {
    plait_console::exit::by_parser(NAME, error)
}

/// Ends the program with an error: the status of a signal in a shell, or words on standard error.
pub(crate) fn end_with(error: &anyhow::Error) -> ExitCode {
    plait_console::exit::end_with(NAME, error, Exit::from(error))
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.number().into()
    }
}

impl From<&anyhow::Error> for Exit {
    fn from(error: &anyhow::Error) -> Self {
        for cause in error.chain() {
            if cause.downcast_ref::<MissingPrerequisite>().is_some() {
                return Self::Missing;
            }
            if let Some(error) = cause.downcast_ref::<plait::Error>() {
                return error.kind().into();
            }
            if let Some(not_usable) = cause.downcast_ref::<NotUsable>() {
                return not_usable.exit();
            }
            if cause.is::<WrongPeer>() {
                return Self::Identity;
            }
            if let Some(error) = cause.downcast_ref::<io::Error>() {
                return of_io(error);
            }
        }
        Self::Failure
    }
}

fn of_io(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut => Exit::Unreachable,
        // A failed system call of ours, not of a connection.
        _ if error.raw_os_error().is_some() => Exit::Failure,
        _ => ErrorKind::of(error).into(),
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Unreachable | ErrorKind::Refused | ErrorKind::TimedOut | ErrorKind::Busy => {
                Self::Unreachable
            }
            ErrorKind::NotAuthenticated | ErrorKind::CertificateDates | ErrorKind::NotAuthorized => {
                Self::Identity
            }
            ErrorKind::NotProtected | ErrorKind::PathsMissing => Self::Policy,
            ErrorKind::Unsupported => Self::Missing,
            ErrorKind::PerhapsDelivered => Self::PerhapsDelivered,
            _ => Self::Failure,
        }
    }
}

/// Whether the program was started at a terminal. It is checked once: a terminal that has gone does not count.
static AT_TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stdin().is_terminal());

/// Notes the terminal and the signal dispositions at the start, before either can change.
pub(crate) fn note_start() {
    let _ = (*AT_TERMINAL, ignores_hangup());
}

/// Waits for SIGINT or SIGTERM, as a service does. SIGHUP ends the program only if it was started at a terminal, which has gone
/// then; otherwise the options are read again ([`crate::reload`]). Never ready if signals cannot be caught.
pub(crate) async fn stopped() -> Interrupted {
    // SIGUSR1 must not end a service, whether it has log files or not.
    tokio::spawn(runtime::reopen_log_files());
    loop {
        let signal = interrupted().await;
        if signal.signal() != HANGUP || *AT_TERMINAL {
            return signal;
        }
    }
}

/// Waits for SIGINT, SIGTERM or SIGHUP, or for Ctrl-C on systems without them; never ready if they cannot be caught.
pub(crate) async fn interrupted() -> Interrupted {
    Interrupted::by(caught().await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn failed(kind: io::ErrorKind) -> anyhow::Error {
        let result: Result<(), _> = Err(plait::Error::from(io::Error::from(kind)));
        result.context("cannot connect to 192.0.2.1:80").expect_err("an error")
    }

    #[test]
    fn scripts_can_tell_the_kinds_of_failure_apart() {
        for (kind, number) in [
            (ErrorKind::TimedOut, 4),
            (ErrorKind::NotAuthenticated, 5),
            (ErrorKind::NotAuthorized, 5),
            (ErrorKind::Busy, 4),
            (ErrorKind::NotProtected, 6),
            (ErrorKind::PathsMissing, 6),
            (ErrorKind::Unsupported, 7),
            (ErrorKind::PerhapsDelivered, 8),
            (ErrorKind::PortInUse, 1),
            (ErrorKind::Corrupted, 1),
        ] {
            assert_eq!(Exit::from(kind).number(), number, "{kind:?}");
        }
        assert_eq!(Exit::from(&failed(io::ErrorKind::ConnectionRefused)).number(), 4);
        assert_eq!(Exit::from(&failed(io::ErrorKind::ConnectionReset)).number(), 1);
        // While a connection is read or written it is an error of input and output.
        let lost = anyhow::Error::from(io::Error::from(io::ErrorKind::TimedOut));
        assert_eq!(Exit::from(&lost.context("the connection has ended early")).number(), 4);
    }

    #[test]
    fn each_number_is_explained_where_people_look_for_it() {
        for exit in [
            Exit::Success,
            Exit::Failure,
            Exit::Unreachable,
            Exit::Identity,
            Exit::Policy,
            Exit::Missing,
            Exit::PerhapsDelivered,
        ] {
            let number = exit.number();
            assert!(
                EXPLANATION.contains(&format!(" {number} ")) || EXPLANATION.contains(&format!(" {number};"))
            );
        }
        let mut command = <crate::system::arguments::Arguments as clap::CommandFactory>::command();
        for name in ["connect", "listen", "serve", "proxy"] {
            let command = command.find_subcommand_mut(name).expect("a command");
            assert!(command.render_long_help().to_string().contains("Exit status: 0; 1 for"), "{name}");
        }
    }
}
