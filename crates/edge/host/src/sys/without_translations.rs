//! The place of address translation where there is none: in builds without TCP, and on other systems than Linux.

use std::io;

use plait_tcp::FourTuple;

/// Address translation.
#[derive(Debug)]
pub(crate) enum Translations {}

impl Translations {
    pub(crate) fn open() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn of(&self, _inside: &FourTuple) -> Option<FourTuple> {
        match *self {}
    }
}
