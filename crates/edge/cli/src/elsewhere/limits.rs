//! Limits of the process.

/// They stay as they are.
pub(crate) fn raise_open_files() {}
