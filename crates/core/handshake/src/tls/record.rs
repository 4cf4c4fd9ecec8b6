//! Boundaries of TLS records (RFC 8446, section 5.1).

use crate::error::HandshakeError;

/// Follows record boundaries, so that no byte after the last record of the handshake is taken.
#[derive(Default)]
pub(super) struct RecordScanner {
    header: [u8; HEADER_LEN],
    have: usize,
    /// Bytes of the record's body that are still to come.
    rest: usize,
}

/// Type, version, length.
const HEADER_LEN: usize = 5;

/// 2^14 bytes and 256 for what encryption adds (section 5.2).
const MAX_BODY: usize = (1 << 14) + 256;

impl RecordScanner {
    /// Returns how many of `bytes` belong to the current record (at least one, if there are any), and whether it ends with
    /// them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), HandshakeError> {
        let header = bytes.len().min(HEADER_LEN - self.have);
        self.header[self.have..self.have + header].copy_from_slice(&bytes[..header]);
        self.have += header;
        self.check_start()?;
        if self.have < HEADER_LEN {
            return Ok((header, false));
        }
        if header > 0 {
            self.rest = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            if self.rest > MAX_BODY {
                return Err(HandshakeError::TooLong);
            }
        }
        let body = (bytes.len() - header).min(self.rest);
        self.rest -= body;
        let ends = self.rest == 0;
        if ends {
            self.have = 0;
        }
        Ok((header + body, ends))
    }

    /// Detects another protocol before its bytes are taken for a length and waited for.
    fn check_start(&self) -> Result<(), HandshakeError> {
        match self.header[..self.have.min(2)] {
            [] | [20..=23] | [20..=23, 3] => Ok(()),
            _ => Err(HandshakeError::Malformed("not a record of TLS")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_their_length_says_however_they_are_cut() {
        let stream = [&[22, 3, 3, 0, 2, 1, 2][..], &[20, 3, 3, 0, 1, 1], &[23, 3, 3, 0, 0]].concat();
        let ends: [usize; 3] = [7, 13, 18];
        for cut in 1..stream.len() {
            let mut scanner = RecordScanner::default();
            let (mut at, mut seen) = (0, Vec::new());
            while at < stream.len() {
                let limit = if at < cut { cut } else { stream.len() };
                let (taken, whole) = scanner.take(&stream[at..limit]).expect("fine records");
                assert!(taken > 0);
                at += taken;
                if whole {
                    seen.push(at);
                }
            }
            assert_eq!(seen, ends, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_not_a_record_is_refused_at_its_first_bytes() {
        for start in [&b"G"[..], &[22, 2], &[24], &[0]] {
            assert!(matches!(RecordScanner::default().take(start), Err(HandshakeError::Malformed(_))));
        }
    }

    #[test]
    fn a_record_longer_than_any_is_refused_at_its_header() {
        assert_eq!(RecordScanner::default().take(&[22, 3, 3, 0x41, 0x01]), Err(HandshakeError::TooLong));
        assert_eq!(RecordScanner::default().take(&[22, 3, 3, 0x41, 0x00]), Ok((5, false)));
    }
}
