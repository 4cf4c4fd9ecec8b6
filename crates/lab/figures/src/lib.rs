//! The measured results of the papers that plait goes back to, measured again on this machine.
//!
//! Each [`Figure`] says what a paper has measured, what was measured here in its place and how, and what follows: its [`Claim`]s
//! hold here, or differ and why. All that is said to be measured has been: numbers of a paper are constants that stand with their
//! source, and where a paper's text has none, that is said.
//!
//! Systems take turns within a run and runs follow each other, so that a machine with a varying speed slows all of them alike. The
//! reported value is the median of the runs, with the least and the most. While a figure is measured the machine is watched
//! ([`Strain`]): the figure says if the machine was busy with other work.
//!
//! The programs in the hosts are `plait`, the kernel's Multipath TCP, OpenSSL, and one small application in Python (`application.py`)
//! that writes and reads in the same blocks whatever carries them.

// The operating-system side: time and programs are its business.
#![allow(clippy::disallowed_methods)]

pub mod alternatives;
mod attack;
mod captures;
mod claim;
mod conversation;
mod figure;
mod hand_over;
mod measure;
mod page;
mod place;
mod published;
mod request_response;
mod scrambled_throughput;
mod sealed_throughput;
mod system;
mod table_two;
mod throughput;

pub use claim::{Claim, Conclusion};
pub use figure::{Exhibit, Figure, Id, Picture, Row};
pub use measure::{Figures, Options, measure, write};
// Watched and told with the lab's own words.
pub use plait_bench::Spread;
pub use plait_lab::{Machine, Strain};
