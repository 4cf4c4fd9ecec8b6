//! Paths of this host.

mod path;

pub use path::{Path, PathClass, Paths};
