//! The output of the program: results to standard output, notes for people to standard error.

use crate::exit::NAME;
pub(crate) use plait_console::output::{Log, result, say_lines, written};

/// Prints a message for people on standard error.
pub(crate) fn say(words: &str) {
    plait_console::output::say(NAME, words);
}
