//! TCP-ENO, kind 69 (RFC 8547).

use crate::{Malformed, OptionBytes};

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

/// v: this byte is a length, or data follows it.
const V: u8 = 0x80;

/// First TEP identifier; below it global suboptions, or length bytes where v is set.
const FIRST_TEP: u8 = 0x20;

/// Most data a suboption can have that is not the last one: five bits, plus one.
const MAX_MARKED_DATA: usize = 32;

impl<'a> Eno<'a> {
    /// Its suboptions in order; a malformed one ends the walk with an error.
    ///
    /// Section 4.4: with any error in it the option of a SYN counts as absent, so all have to be seen
    /// before one is used. Of several global ones only the first counts (section 4.2).
    pub fn suboptions(&self) -> impl Iterator<Item = Result<EnoSuboption<'a>, Malformed>> + use<'a> {
        let mut rest = self.contents;
        core::iter::from_fn(move || {
            let (&first, behind) = rest.split_first()?;
            let (suboption, next) = match Self::suboption(first, behind) {
                Ok((suboption, next)) => (Ok(suboption), next),
                Err(malformed) => (Err(malformed), &[][..]),
            };
            rest = next;
            Some(suboption)
        })
    }

    /// One suboption that starts with the byte `first`, and what lies behind it.
    fn suboption(first: u8, behind: &'a [u8]) -> Result<(EnoSuboption<'a>, &'a [u8]), Malformed> {
        let (marked, glt) = (first & V != 0, first & !V);
        match (marked, glt < FIRST_TEP) {
            (false, true) => Ok((EnoSuboption::Global(glt), behind)),
            (false, false) => Ok((EnoSuboption::Tep { id: glt, has_data: false, data: &[] }, behind)),
            (true, false) => Ok((EnoSuboption::Tep { id: glt, has_data: true, data: behind }, &[])),
            (true, true) => Self::behind_length_byte(usize::from(glt) + 1, behind),
        }
    }

    /// The suboption behind a length byte: a TEP with v set and exactly `len` bytes of data.
    fn behind_length_byte(len: usize, behind: &'a [u8]) -> Result<(EnoSuboption<'a>, &'a [u8]), Malformed> {
        let (&first, behind) = behind.split_first().ok_or(Malformed::OptionLength)?;
        if first < V | FIRST_TEP {
            return Err(Malformed::OptionValue);
        }
        let (data, behind) = behind.split_at_checked(len).ok_or(Malformed::OptionLength)?;
        Ok((EnoSuboption::Tep { id: first & !V, has_data: true, data }, behind))
    }
}

impl EnoSuboption<'_> {
    /// Appends it to `contents`. `false`, and `contents` unchanged, if there is no room, or if it is none
    /// that can be written: an identifier out of range, data without the v bit, or not the last one and
    /// the data not 1 to 32 bytes long.
    #[must_use]
    pub fn emit(&self, is_last: bool, contents: &mut OptionBytes) -> bool {
        let start = contents.len();
        let complete = match *self {
            Self::Global(bits) => bits < FIRST_TEP && contents.try_push(bits).is_ok(),
            Self::Tep { id, has_data: false, data } => {
                (FIRST_TEP..V).contains(&id) && data.is_empty() && contents.try_push(id).is_ok()
            }
            Self::Tep { id, has_data: true, data } => {
                (FIRST_TEP..V).contains(&id)
                    && (is_last || emit_length_byte(data.len(), contents))
                    && contents.try_push(id | V).is_ok()
                    && contents.try_extend_from_slice(data).is_ok()
            }
        };
        if !complete {
            contents.truncate(start);
        }
        complete
    }
}

fn emit_length_byte(len: usize, contents: &mut OptionBytes) -> bool {
    match u8::try_from(len) {
        Ok(len) if (1..=MAX_MARKED_DATA).contains(&usize::from(len)) => {
            contents.try_push(V | (len - 1)).is_ok()
        }
        Ok(_) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(contents: &[u8]) -> Vec<Result<EnoSuboption<'_>, Malformed>> {
        Eno { contents }.suboptions().collect()
    }

    #[test]
    fn suboptions_without_data_are_one_byte_each() {
        let tep = |id| Ok(EnoSuboption::Tep { id, has_data: false, data: &[] });
        assert_eq!(walk(&[0x01, 0x23, 0x21]), [Ok(EnoSuboption::Global(1)), tep(0x23), tep(0x21)]);
    }

    #[test]
    fn data_without_a_length_byte_reaches_to_the_end() {
        let last = EnoSuboption::Tep { id: 0x20, has_data: true, data: &[0x01, 0x23] };
        assert_eq!(
            walk(&[0x23, 0xa0, 0x01, 0x23]),
            [Ok(EnoSuboption::Tep { id: 0x23, has_data: false, data: &[] }), Ok(last)]
        );
        assert_eq!(walk(&[0xa0]), [Ok(EnoSuboption::Tep { id: 0x20, has_data: true, data: &[] })]);
    }

    #[test]
    fn a_length_byte_counts_from_one() {
        assert_eq!(
            walk(&[0x81, 0xa0, 7, 8, 0x23]),
            [
                Ok(EnoSuboption::Tep { id: 0x20, has_data: true, data: &[7, 8] }),
                Ok(EnoSuboption::Tep { id: 0x23, has_data: false, data: &[] })
            ]
        );
    }

    //= https://www.rfc-editor.org/rfc/rfc8547#section-4.4
    //= type=test
    //# A length byte indicates that suboption data would extend beyond
    //# the end of the TCP ENO option.
    #[test]
    fn a_length_byte_that_promises_too_much_is_an_error() {
        assert_eq!(walk(&[0x82, 0xa0, 7, 8]), [Err(Malformed::OptionLength)]);
        assert_eq!(walk(&[0x23, 0x80]).last(), Some(&Err(Malformed::OptionLength)));
    }

    //= https://www.rfc-editor.org/rfc/rfc8547#section-4.4
    //= type=test
    //# A length byte is followed by an octet in the range 0x00-0x9f
    #[test]
    fn a_length_byte_before_anything_but_a_tep_with_data_is_an_error() {
        for next in 0..=0x9f {
            assert_eq!(walk(&[0x80, next, 0, 0]), [Err(Malformed::OptionValue)], "{next:#x}");
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_what_cannot_be_written_is_refused() {
        let data = [9; 33];
        let with = |len| EnoSuboption::Tep { id: 0x20, has_data: true, data: &data[..len] };
        let mut contents = OptionBytes::new();
        assert!(with(2).emit(false, &mut contents));
        assert!(EnoSuboption::Global(3).emit(false, &mut contents));
        assert!(with(31).emit(true, &mut contents));
        assert_eq!(walk(&contents), [Ok(with(2)), Ok(EnoSuboption::Global(3)), Ok(with(31))]);

        let mut contents = OptionBytes::new();
        assert!(!with(0).emit(false, &mut contents), "a length byte cannot say zero");
        assert!(!with(33).emit(false, &mut contents), "nor 33");
        assert!(!EnoSuboption::Global(0x20).emit(true, &mut contents));
        assert!(!EnoSuboption::Tep { id: 0x80, has_data: false, data: &[] }.emit(true, &mut contents));
        assert!(contents.is_empty(), "a refusal leaves nothing behind");
        contents.extend([0; 39]);
        assert!(!with(1).emit(true, &mut contents));
        assert_eq!(contents.len(), 39);
    }
}
