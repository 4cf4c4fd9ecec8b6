//! The alternatives to byte-wise scrambling in the papers, as plain functions. None of them is a mode of a connection.
//!
//! | approach | source | why the papers did not take it |
//! |---|---|---|
//! | [`secret_sharing`] | Kato 2017, Figure 4 | every path carries as much as the whole |
//! | [`network_coding`] | Kato 2017, Figure 5 | packets of unequal length need padding |
//! | [`block_chaining`] | Kato 2017, Figure 6 | the last block needs padding |
//! | [`ciphers`] | Kato 2017, section IV | time per byte, on their machine |
//! | [`methods`] | Kato 2017, Table II | all of that table, for a caller with a clock to time |
//!
//! Only the first hides anything from an attacker that knows the method: fewer than `k` shares reveal nothing.

pub mod block_chaining;
pub mod ciphers;
pub mod methods;
pub mod network_coding;
pub mod secret_sharing;
