//! Limits of the process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Allows as many open files as the administrator does: each connection to a program takes one.
pub(crate) fn raise_open_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!(%error, "the limit of open files stays");
    }
}
