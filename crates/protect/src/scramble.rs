//! Data scrambling: each byte on the wire is the byte of the stream XORed with the 64 plain bytes before it.
//!
//! ```text
//! B[i] = b[i] ^ b[i-1] ^ b[i-2] ^ ... ^ b[i-64]
//! ```
//!
//! One [`Scrambler`] per direction takes the stream in order, in writes of any size, and never changes its
//! length; the peer's [`Descrambler`] is fed the reassembled stream in order. What stands before the first
//! byte is a [`Window`] made from the sender's key by a [`Variant`].
//!
//! **This is obfuscation.** There is no secret in it that lasts: 64 bytes of plain text, known or guessed,
//! open everything behind them that was seen on the same path without a gap, and a byte can be changed at
//! will by touching 65. Source: Kato et al. 2017 (section III-B), 2018 (Figure 14), 2019 (section IV).
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
