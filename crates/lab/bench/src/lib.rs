//! The common parts of all measurements.
//!
//! * [`Rounds`]: the loop. In each round every subject has its turn.
//! * [`Spread`]: the figures of one subject over all rounds.
//! * [`PathPair`]: two paths, by their name; [`pairs`] has the tables of them.
//! * [`Recording`]: recorded rates of a path, from a file.
//! * [`Table`]: the report, a line for each subject; [`write_json`] writes the figures for other programs.
//!
//! A measurement adds its subjects, what happens in a turn, and its goals.

// A tool with threads and files: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod concurrent;
mod path;
mod recording;
mod rounds;
mod spread;
mod table;

pub mod pairs;

pub use concurrent::concurrently;
pub use path::{PathModel, PathPair};
pub use recording::Recording;
pub use rounds::Rounds;
pub use spread::{Spread, digits};
pub use table::{Table, millis, write_json};
