//! Base64 without padding (RFC 4648), in the two alphabets of fingerprints and keys.

/// The 64 characters.
#[derive(Clone, Copy)]
pub(crate) enum Alphabet {
    /// Section 4: `+` and `/`.
    Standard,
    /// Section 5: `-` and `_`, suitable for addresses.
    Url,
}

impl Alphabet {
    const fn last_two(self) -> [u8; 2] {
        match self {
            Self::Standard => *b"+/",
            Self::Url => *b"-_",
        }
    }

    fn character(self, six_bits: u8) -> char {
        let byte = match six_bits & 0x3f {
            letter @ 0..=25 => b'A' + letter,
            letter @ 26..=51 => b'a' + (letter - 26),
            digit @ 52..=61 => b'0' + (digit - 52),
            last => self.last_two()[usize::from(last - 62)],
        };
        char::from(byte)
    }

    fn six_bits(self, character: u8) -> Option<u8> {
        match character {
            b'A'..=b'Z' => Some(character - b'A'),
            b'a'..=b'z' => Some(character - b'a' + 26),
            b'0'..=b'9' => Some(character - b'0' + 52),
            _ => self.last_two().iter().position(|last| *last == character).map(|at| 62 + at as u8),
        }
    }
}

/// `bytes` as text, without padding.
pub(crate) fn encode(alphabet: Alphabet, bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let [a, b, c] = core::array::from_fn(|at| group.get(at).copied().unwrap_or(0));
        let sextets = [a >> 2, a << 4 | b >> 4, b << 2 | c >> 6, c];
        text.extend(sextets.iter().take(group.len() + 1).map(|bits| alphabet.character(*bits)));
    }
    text
}

/// Returns the bytes of `text`, which has no padding. `None` for a character outside the alphabet, and for remaining bits that are not
/// zero: one value has one spelling.
pub(crate) fn decode(alphabet: Alphabet, text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for character in group {
            bits = bits << 6 | u32::from(alphabet.six_bits(*character)?);
        }
        let (whole, left_over) = match group.len() {
            2 => (1, 4),
            3 => (2, 2),
            4 => (3, 0),
            _ => return None,
        };
        if bits & ((1 << left_over) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice(&(bits >> left_over).to_be_bytes()[4 - whole..]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_rfc_4648_hold() {
        let examples =
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")];
        for (plain, text) in examples {
            assert_eq!(encode(Alphabet::Standard, plain.as_bytes()), text);
            assert_eq!(decode(Alphabet::Url, text).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(encode(Alphabet::Standard, &[0xfb, 0xff]), "+/8");
        assert_eq!(encode(Alphabet::Url, &[0xfb, 0xff]), "-_8");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else_means_the_same(
            bytes in prop::collection::vec(any::<u8>(), 0..50),
            at in any::<prop::sample::Index>(),
            other in any::<u8>(),
        ) {
            for alphabet in [Alphabet::Standard, Alphabet::Url] {
                let text = encode(alphabet, &bytes);
                let read = decode(alphabet, &text);
                prop_assert_eq!(read.as_deref(), Some(&bytes[..]));
                if text.is_empty() {
                    continue;
                }
                let mut altered = text.clone().into_bytes();
                let at = at.index(altered.len());
                altered[at] = other & 0x7f;
                let altered = String::from_utf8(altered).expect("ASCII");
                let read = decode(alphabet, &altered);
                prop_assert!(altered == text || read.as_deref() != Some(&bytes[..]));
            }
        }
    }
}
