//! Block chaining without encryption: each block is XORed with the plain block before it (Kato 2017, Figure 6).
//!
//! From two neighbouring blocks on the wire and one plain block the next plain block follows. It is as weak as scrambling, and longer by
//! the padding.

/// The bytes are not what [`chain`] writes: not a whole number of blocks, or the padding is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotChained;

/// Pads `plain` to whole blocks of `N` bytes (with 1 to `N` bytes, each of which is their number) and chains them, starting with `vector`.
/// `N` is between 1 and 255.
#[must_use]
pub fn chain<const N: usize>(vector: [u8; N], plain: &[u8]) -> Vec<u8> {
    const { assert!(N >= 1 && N <= 255, "a padding byte says how many there are") };
    let padding = N - plain.len() % N;
    let mut wire = Vec::with_capacity(plain.len() + padding);
    wire.extend_from_slice(plain);
    wire.resize(plain.len() + padding, padding as u8);
    let mut before = vector;
    for block in wire.as_chunks_mut::<N>().0 {
        let plain = *block;
        add(block, &before);
        before = plain;
    }
    wire
}

/// Undoes [`chain`].
pub fn unchain<const N: usize>(vector: [u8; N], wire: &[u8]) -> Result<Vec<u8>, NotChained> {
    let mut plain = wire.to_vec();
    let (blocks, rest) = plain.as_chunks_mut::<N>();
    if !rest.is_empty() {
        return Err(NotChained);
    }
    let mut before = vector;
    for block in blocks {
        add(block, &before);
        before = *block;
    }
    let padding = usize::from(*plain.last().ok_or(NotChained)?);
    let length = plain.len().checked_sub(padding).filter(|_| (1..=N).contains(&padding)).ok_or(NotChained)?;
    if plain[length..].iter().any(|&byte| usize::from(byte) != padding) {
        return Err(NotChained);
    }
    plain.truncate(length);
    Ok(plain)
}

fn add<const N: usize>(block: &mut [u8; N], other: &[u8; N]) {
    for (byte, other) in block.iter_mut().zip(other) {
        *byte ^= other;
    }
}

#[cfg(test)]
mod tests {
    use super::{NotChained, chain, unchain};

    #[test]
    fn figure_6_sends_b_xor_c_and_c_xor_d() {
        let wire = chain::<1>([b'I'], b"ABCD");
        assert_eq!(wire[..4], [b'I' ^ b'A', b'A' ^ b'B', b'B' ^ b'C', b'C' ^ b'D']);
        assert_eq!(unchain::<1>([b'I'], &wire), Ok(b"ABCD".to_vec()));
    }

    #[test]
    fn every_length_comes_back_and_grows_by_the_padding() {
        for length in 0..70_usize {
            let plain: Vec<u8> = (0..length as u8).map(|byte| byte.wrapping_mul(37)).collect();
            let wire = chain::<16>([7; 16], &plain);
            assert_eq!(wire.len(), (length / 16 + 1) * 16);
            assert_eq!(unchain::<16>([7; 16], &wire), Ok(plain));
        }
    }

    #[test]
    fn broken_bytes_are_refused() {
        assert_eq!(unchain::<16>([0; 16], &[0; 17]), Err(NotChained));
        assert_eq!(unchain::<16>([0; 16], &[]), Err(NotChained));
        assert_eq!(unchain::<16>([0; 16], &[0; 16]), Err(NotChained));
        let mut wire = chain::<16>([0; 16], b"text");
        wire[8] ^= 1;
        assert_eq!(unchain::<16>([0; 16], &wire), Err(NotChained));
    }
}
