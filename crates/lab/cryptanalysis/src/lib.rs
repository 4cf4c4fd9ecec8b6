//! What an eavesdropper on one path reads of a scrambled connection: all of it, as a rule.
//!
//! Scrambling sends `B[i] = b[i] ^ (b[i-1] ^ ... ^ b[i-64])`. Two neighbours on the wire share 64 of their 65
//! summands, so
//!
//! ```text
//! B[i] ^ B[i-1] = b[i] ^ b[i-65]
//! ```
//!
//! and everything seen without a gap falls into 65 [`Columns`] of known differences. One byte of a column,
//! known or guessed, gives the column; 65 neighbouring bytes give the rest of the run ([`locate_crib`]). Nothing
//! known at all, the right byte of a column is the one that makes text of all its rows: [`solve`] looks for it
//! with a byte [`Model`] of English, HTML and HTTP. The start value and the key do not matter.
//!
//! [`Capture`] reads a pcapng or pcap file, [`Flow`]s put the bytes of one direction in their place (by data
//! sequence number where there are DSS mappings, else by TCP sequence number), [`read_runs`] attacks them run by
//! run, and [`Truth`] says how much of it is right.

mod capture;
mod columns;
mod constant;
mod crib;
mod flow;
mod language;
mod link_layer;
mod pieces;
mod recovery;
mod solve;
mod truth;

pub use capture::{Capture, MAX_KEPT};
pub use columns::{Columns, PERIOD, Run};
pub use constant::{ConstantKey, constant_key};
pub use crib::locate_crib;
pub use flow::{Flow, FlowId};
pub use language::{Model, shared_run, train};
pub use pieces::{Reading, read_pieces};
pub use recovery::{Recovered, read_runs};
pub use solve::{Effort, Solution, solve};
pub use truth::{Score, Truth, Visits, fraction_by_visit};
