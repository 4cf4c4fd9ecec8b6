//! TCP options (RFC 9293, 7323, 2018, 8547) as typed values, and the walk over them.

use arrayvec::ArrayVec;
use plait_base::SeqNum;

use crate::fields::Fields;
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

/// The kinds (IANA, TCP Option Kind Numbers).
mod kind {
    pub(super) const EOL: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const MPTCP: u8 = 30;
    pub(super) const ENO: u8 = 69;
}

/// Kind and length.
const PREFIX: usize = 2;

/// Walks over the options of a segment. NOPs are skipped, EOL ends the walk. An option with an impossible
/// length ends it with an error; a known kind with a wrong length or value is an error for that option
/// alone and the walk goes on (RFC 9293, section 3.1).
pub fn options(bytes: &[u8]) -> impl Iterator<Item = Result<TcpOption<'_>, Malformed>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        while let Some((&kind::NOP, behind)) = rest.split_first() {
            rest = behind;
        }
        let (&kind, behind) = rest.split_first()?;
        if kind == kind::EOL {
            rest = &[];
            return None;
        }
        let Some((data, next)) = split_option(behind) else {
            rest = &[];
            return Some(Err(Malformed::OptionLength));
        };
        rest = next;
        Some(TcpOption::parse(kind, data))
    })
}

/// From behind the kind: the data of this option, and the options behind it.
fn split_option(behind_kind: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, behind) = behind_kind.split_first()?;
    behind.split_at_checked(usize::from(length).checked_sub(PREFIX)?)
}

/// Appends NOPs up to a multiple of four bytes, as the data offset of the header counts.
pub fn pad_options(options: &mut OptionBytes) {
    while !options.len().is_multiple_of(4) {
        // 40 is a multiple of four: below it there is room.
        options.push(kind::NOP);
    }
}

/// The bytes of all of `list`, in this order, padded with NOPs behind the last; `None` if they do not fit.
pub fn option_bytes<'a>(list: impl IntoIterator<Item = TcpOption<'a>>) -> Option<OptionBytes> {
    let mut bytes = OptionBytes::new();
    for option in list {
        if !option.emit(&mut bytes) {
            return None;
        }
    }
    pad_options(&mut bytes);
    Some(bytes)
}

impl<'a> TcpOption<'a> {
    /// The option of this kind with `data` behind kind and length.
    fn parse(kind: u8, data: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(data);
        let option = match kind {
            kind::MSS => Self::Mss(fields.u16()?),
            kind::WINDOW_SCALE => Self::WindowScale(fields.u8()?),
            kind::SACK_PERMITTED => Self::SackPermitted,
            kind::SACK => return parse_sack(fields),
            kind::TIMESTAMPS => Self::Timestamps { value: fields.u32()?, echo: fields.u32()? },
            kind::MPTCP => return MptcpOption::parse(data).map(Self::Mptcp),
            kind::ENO => return Ok(Self::Eno(Eno { contents: data })),
            kind => return Ok(Self::Unknown { kind, data }),
        };
        fields.end()?;
        Ok(option)
    }
}

fn parse_sack<'a>(mut fields: Fields<'a>) -> Result<TcpOption<'a>, Malformed> {
    let mut blocks = SackBlocks::new();
    while fields.len() > 0 {
        let block = (SeqNum::new(fields.u32()?), SeqNum::new(fields.u32()?));
        blocks.try_push(block).map_err(|_| Malformed::OptionLength)?;
    }
    if blocks.is_empty() { Err(Malformed::OptionLength) } else { Ok(TcpOption::Sack(blocks)) }
}

impl TcpOption<'_> {
    /// Bytes it takes on the wire, without padding.
    #[expect(clippy::len_without_is_empty, reason = "no option is empty")]
    pub fn len(&self) -> usize {
        PREFIX
            + match self {
                Self::Mss(_) => 2,
                Self::WindowScale(_) => 1,
                Self::SackPermitted => 0,
                Self::Sack(blocks) => 8 * blocks.len(),
                Self::Timestamps { .. } => 8,
                Self::Mptcp(option) => option.data_len(),
                Self::Eno(eno) => eno.contents.len(),
                Self::Unknown { kind: _, data } => data.len(),
            }
    }

    /// Appends it to `out`, without padding. `false`, and `out` unchanged, if there is no room (or for an
    /// unknown option of kind 0 or 1, which have no length).
    #[must_use]
    pub fn emit(&self, out: &mut OptionBytes) -> bool {
        let start = out.len();
        let complete = self.try_emit(out).is_some();
        if !complete {
            out.truncate(start);
        }
        complete
    }

    /// Its kind.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Mss(_) => kind::MSS,
            Self::WindowScale(_) => kind::WINDOW_SCALE,
            Self::SackPermitted => kind::SACK_PERMITTED,
            Self::Sack(_) => kind::SACK,
            Self::Timestamps { .. } => kind::TIMESTAMPS,
            Self::Mptcp(_) => kind::MPTCP,
            Self::Eno(_) => kind::ENO,
            Self::Unknown { kind, data: _ } => *kind,
        }
    }

    /// Appends as much as there is room for; `None` if that is not all.
    fn try_emit(&self, out: &mut OptionBytes) -> Option<()> {
        let kind = self.kind();
        if kind == kind::EOL || kind == kind::NOP {
            return None;
        }
        let length = u8::try_from(self.len()).ok()?;
        put(out, &[kind, length])?;
        match self {
            Self::Mss(size) => put(out, &size.to_be_bytes()),
            Self::WindowScale(shift) => put(out, &[*shift]),
            Self::SackPermitted => Some(()),
            Self::Sack(blocks) => blocks.iter().try_for_each(|(left, right)| {
                put(out, &left.bits().to_be_bytes())?;
                put(out, &right.bits().to_be_bytes())
            }),
            Self::Timestamps { value, echo } => {
                put(out, &value.to_be_bytes())?;
                put(out, &echo.to_be_bytes())
            }
            Self::Mptcp(option) => option.try_emit_data(out),
            Self::Eno(eno) => put(out, eno.contents),
            Self::Unknown { kind: _, data } => put(out, data),
        }
    }
}

/// Appends `bytes`; `None` if there is no room for all of them.
pub(crate) fn put(out: &mut OptionBytes, bytes: &[u8]) -> Option<()> {
    out.try_extend_from_slice(bytes).ok()
}
