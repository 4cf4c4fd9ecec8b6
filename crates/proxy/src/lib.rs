//! Unmodified programs in, protected connections out.
//!
//! [`convert`] is what client and server say to each other in front of a program's bytes, [`socks`] what a
//! browser says, [`rules`] where clients may go.

pub mod convert;
pub mod rules;
pub mod socks;
