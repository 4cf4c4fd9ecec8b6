//! What protects the streams of `run`, `serve` and `proxy`: never less than was asked for, and asked for is
//! the most there is.

use std::fmt;

use crate::arguments::{Options, Protect};

/// A protection that is asked for and not to be had. Nothing weaker takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotToBeHad;

/// Whether each side proves to the other who it is, and nobody else can read or change anything.
pub(crate) fn is_sealed(options: &Options) -> bool {
    match options.protect {
        None => true,
        Some(Protect::Plain) => false,
    }
}

/// The settings of the connections.
pub(crate) fn config(options: &Options) -> Result<host::Config, NotToBeHad> {
    if is_sealed(options) { Err(NotToBeHad) } else { Ok(options.config()) }
}

impl fmt::Display for NotToBeHad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this build cannot seal connections, and takes nothing weaker unasked\n  fix: a build that can, or \
             --protect plain where everybody on the way may read and change what is sent",
        )
    }
}

impl std::error::Error for NotToBeHad {}
