//! TCP options (RFC 9293, 7323, 2018, 8547) as typed values, and the walk over them.

use arrayvec::ArrayVec;
use base::SeqNum;

use crate::{Eno, Malformed, MptcpOption};

/// Longest option field a TCP header can hold, in bytes.
pub const MAX_OPTIONS: usize = 40;

/// The options of one segment, inline.
pub type OptionBytes = ArrayVec<u8, MAX_OPTIONS>;

/// SACK blocks of one segment, left edge included and right edge excluded, in wire order; not validated
/// against each other (a D-SACK block lies below the acknowledgment number on purpose).
pub type SackBlocks = ArrayVec<(SeqNum, SeqNum), 4>;

/// One TCP option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TcpOption<'a> {
    /// Kind 2: largest segment the sender of the option takes.
    Mss(u16),
    /// Kind 3: shift count, as on the wire (above 14 is the receiver's to cap, RFC 7323 section 2.3).
    WindowScale(u8),
    /// Kind 4.
    SackPermitted,
    /// Kind 5.
    Sack(SackBlocks),
    /// Kind 8.
    Timestamps {
        /// TSval.
        value: u32,
        /// TSecr.
        echo: u32,
    },
    /// Kind 30.
    Mptcp(MptcpOption<'a>),
    /// Kind 69.
    Eno(Eno<'a>),
    /// Anything else, kept.
    Unknown {
        /// Its kind.
        kind: u8,
        /// Its bytes behind kind and length.
        data: &'a [u8],
    },
}

/// Walks over the options of a segment. NOPs are skipped, EOL ends the walk. An option with an impossible
/// length ends it with an error; a known kind with a wrong length or value is an error for that option
/// alone and the walk goes on (RFC 9293, section 3.1).
pub fn options(bytes: &[u8]) -> impl Iterator<Item = Result<TcpOption<'_>, Malformed>> {
    let _ = bytes;
    core::iter::empty()
}

impl TcpOption<'_> {
    /// Bytes it takes on the wire, without padding.
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Appends it to `out`, without padding. `false`, and `out` unchanged, if there is no room.
    #[must_use]
    pub fn emit(&self, out: &mut OptionBytes) -> bool {
        let _ = out;
        unimplemented!()
    }
}
