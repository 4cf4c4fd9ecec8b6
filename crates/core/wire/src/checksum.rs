//! The Internet checksum (RFC 1071).

/// A running one's-complement sum, so that pieces can be summed where they lie.
///
/// Holds the sum of big-endian 16-bit words, folded to 16 bits; zero only if every byte so far was zero.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Checksum(u16);

/// The checksum over `bytes` alone, as it goes into a header.
pub fn checksum_of(bytes: &[u8]) -> u16 {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.finish()
}

/// The checksum of a DSS mapping (RFC 8684, section 3.3.1, figure 10): pseudo-header of the 64-bit data
/// sequence number, relative subflow sequence number and length, and the payload.
pub fn data_checksum(dsn: u64, ssn: u32, length: u16, payload: Checksum) -> u16 {
    let mut sum = payload;
    sum.add_number(dsn);
    sum.add_number(u64::from(ssn));
    sum.add_number(u64::from(length));
    sum.finish()
}

impl Checksum {
    /// Adds `bytes`; every piece but the last must have an even length.
    pub fn add(&mut self, bytes: &[u8]) {
        self.add_folded(fold(native_sum(bytes)).to_be());
    }

    /// Adds the sum of a piece that was summed on its own and lies `offset` bytes behind the start, even
    /// or odd: RFC 1071, section 2(B), a piece at an odd offset has its bytes swapped.
    pub fn append(&mut self, piece: Self, offset: usize) {
        self.add_folded(if offset.is_multiple_of(2) { piece.0 } else { piece.0.swap_bytes() });
    }

    /// The one's complement of the sum: what goes into a checksum field.
    pub const fn finish(self) -> u16 {
        !self.0
    }

    /// Whether the sum, taken over data with its checksum in place, says that the two fit.
    pub const fn fits(self) -> bool {
        self.0 == u16::MAX
    }

    /// The sum itself, not complemented: what a card that finishes the checksum wants to find.
    pub(crate) const fn partial(self) -> u16 {
        self.0
    }

    /// Adds the 16-bit words that `number` consists of.
    pub(crate) fn add_number(&mut self, number: u64) {
        self.add_folded(fold(number));
    }

    fn add_folded(&mut self, sum: u16) {
        let (sum, carry) = self.0.overflowing_add(sum);
        self.0 = sum + u16::from(carry);
    }
}

/// Sum of `bytes` as 32-bit words in the byte order of the machine. One's-complement sums do not care
/// about byte order (RFC 1071, section 2(B)), so the words are swapped once at the end and not one by one.
///
/// The lanes are independent so that the compiler can keep them in vector registers; a lane overflows
/// after 2^32 words, far beyond any buffer of ours.
fn native_sum(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; LANES];
    let (blocks, rest) = bytes.as_chunks::<{ 4 * LANES }>();
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let (words, tail) = rest.as_chunks::<4>();
    let mut sum: u64 = lanes.iter().sum();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    sum + u64::from(u32::from_ne_bytes(last))
}

/// Words summed side by side: two 512-bit or four 256-bit registers of 64-bit lanes.
const LANES: usize = 16;

/// The same sum modulo 2^16 - 1 in 16 bits, with end-around carry: never zero unless `sum` is.
const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Word by word, as RFC 1071 defines it.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 251 + i / 7) as u8).collect()
    }

    #[test]
    fn the_example_of_rfc_1071_gives_its_sum() {
        let mut sum = Checksum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.partial(), 0xddf2);
        assert_eq!(sum.finish(), 0x220d);
    }

    #[test]
    fn the_fast_sum_equals_the_slow_one_at_every_length() {
        let bytes = pattern(300);
        for len in 0..bytes.len() {
            assert_eq!(checksum_of(&bytes[..len]), slow(&bytes[..len]), "{len} bytes");
        }
        let ones = vec![0xff; 65_535];
        assert_eq!(checksum_of(&ones), slow(&ones), "as many carries as fit in a packet");
    }

    #[test]
    fn zero_is_told_from_minus_zero() {
        assert_eq!(checksum_of(&[0; 40]), 0xffff);
        assert_eq!(checksum_of(&[0xff; 40]), 0x0000);
    }

    #[test]
    fn pieces_summed_apart_give_the_sum_of_the_whole_wherever_they_are_cut() {
        let bytes = pattern(130);
        for cut in 0..=bytes.len() {
            let (mut head, mut tail) = (Checksum::default(), Checksum::default());
            head.add(&bytes[..cut]);
            tail.add(&bytes[cut..]);
            head.append(tail, cut);
            assert_eq!(head.finish(), slow(&bytes), "cut at {cut}");
        }
    }

    #[test]
    fn the_checksum_of_a_mapping_is_that_of_its_pseudo_header_and_payload() {
        for len in [0, 1, 2, 1399, 1400] {
            let payload = pattern(len);
            let (dsn, ssn, length) = (0xfedc_ba98_7654_3210u64, 0x8000_0001u32, 1400u16);
            let mut oracle = payload.clone();
            oracle.resize(len.next_multiple_of(2), 0);
            oracle.extend(dsn.to_be_bytes());
            oracle.extend(ssn.to_be_bytes());
            oracle.extend(length.to_be_bytes());
            oracle.extend([0, 0]);
            let mut sum = Checksum::default();
            sum.add(&payload);
            assert_eq!(data_checksum(dsn, ssn, length, sum), slow(&oracle), "{len} bytes of payload");
        }
    }
}
