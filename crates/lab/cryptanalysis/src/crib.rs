//! Known answers: where in a run does a text that must be there lie?

use crate::columns::{Columns, PERIOD};

/// The places in the covered bytes (counted from 64 before the run) where `crib` can lie. A crib of `n` bytes is
/// checked in `n - 65` places, so 70 bytes are found almost without error; of 65 or fewer, nothing can be
/// checked, and the answer is empty.
#[must_use]
pub fn locate_crib(columns: &Columns, crib: &[u8]) -> Vec<usize> {
    let Some(checked) = crib.len().checked_sub(PERIOD).filter(|&checked| checked > 0) else {
        return Vec::new();
    };
    let differs_by = |place: usize| {
        let earlier = columns.difference((place - PERIOD) / PERIOD, (place - PERIOD) % PERIOD)?;
        Some(earlier ^ columns.difference(place / PERIOD, place % PERIOD)?)
    };
    let fits = |start: &usize| {
        (0..checked).all(|at| {
            let expected = crib[at] ^ crib[at + PERIOD];
            differs_by(start + at + PERIOD) == Some(expected)
        })
    };
    (0..(columns.len() + 1).saturating_sub(crib.len())).filter(fits).collect()
}

/// First bytes of the columns that plain bytes at `place` (counted from 64 before the run) settle.
pub(crate) fn settle(columns: &Columns, place: usize, plain: &[u8], known: &mut [Option<u8>; PERIOD]) {
    for (place, byte) in (place..).zip(plain) {
        if let Some(difference) = columns.difference(place / PERIOD, place % PERIOD) {
            known[place % PERIOD] = Some(byte ^ difference);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{locate_crib, settle};
    use crate::columns::tests::scramble;
    use crate::columns::{Columns, PERIOD, Run};

    #[test]
    fn a_crib_of_80_bytes_is_found_and_opens_the_whole_run() {
        let secret: Vec<u8> = (0..3000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let crib = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nContent-Type: text/html\r\nConnection: keep-alive\r\n";
        let plain = [&secret[..1700], &crib[..], &secret[1700..]].concat();
        let run = Run { start: 1000, scrambled: scramble(&plain)[1000..].to_vec() };
        let columns = Columns::new(&run);

        let places = locate_crib(&columns, crib);
        assert_eq!(places, [1700 - 1000 + 64]);
        let mut known = [None; PERIOD];
        settle(&columns, places[0], crib, &mut known);
        let first = known.map(|byte| byte.expect("65 neighbours settle all columns"));
        assert_eq!(columns.plain(&first), plain[1000 - 64..]);
    }

    #[test]
    fn a_text_that_is_not_there_is_not_found() {
        let plain = b"What is on the wire has nothing to do with it at all. ".repeat(9);
        let columns = Columns::new(&Run { start: 0, scrambled: scramble(&plain)[64..].to_vec() });
        assert_eq!(locate_crib(&columns, &[b'x'; 70]), [0_usize; 0]);
        assert_eq!(locate_crib(&columns, &plain[..65]), [0_usize; 0]);
        assert_eq!(locate_crib(&columns, &[b'x'; 5000]), [0_usize; 0]);
    }
}
