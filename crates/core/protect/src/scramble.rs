//! Data scrambling: each byte on the wire is the byte of the stream XORed with the 64 plain bytes before it.
//!
//! ```text
//! B[i] = b[i] ^ b[i-1] ^ b[i-2] ^ ... ^ b[i-64]
//! ```
//!
//! One [`Scrambler`] per direction takes the stream in order, in writes of any size, and never changes its length. The peer's
//! [`Descrambler`] takes the reassembled stream in order. A [`Window`], made from the sender's key by a [`Variant`], precedes the first
//! byte.
//!
//! **This is obfuscation.** It has no lasting secret: 64 bytes of plaintext, known or guessed, reveal all bytes after them that the
//! attacker saw on the same path without a gap. An attacker can change a byte at will by changing 65. Source: Kato et al. 2017 (section
//! III-B), 2018 (Figure 14), 2019 (section IV).
//!
//! Three implementations give the same bytes: [`Straightforward`] and [`Revised`] are the two published ones
//! (the first is the oracle of the tests, both are the yardstick of the bench), and the product's, which works on
//! blocks of 64 bytes: see [`Engine`].

mod engine;
mod places;
mod portable;
mod published;
mod stream;
mod window;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use engine::Engine;
pub use published::{Revised, Straightforward};
pub use stream::{Descrambler, Scrambler};
pub use window::{Variant, WINDOW, Window};
