//! The Internet checksum (RFC 1071).

/// A running one's-complement sum, so that pieces can be summed where they lie.
#[derive(Clone, Copy, Default, Debug)]
pub struct Checksum(u64);

/// The checksum over `bytes` alone, as it goes into a header.
pub fn checksum_of(bytes: &[u8]) -> u16 {
    let _ = bytes;
    unimplemented!()
}

/// The checksum of a DSS mapping (RFC 8684, section 3.3.1, figure 10): pseudo-header of the 64-bit data
/// sequence number, relative subflow sequence number and length, and the payload.
pub fn data_checksum(dsn: u64, ssn: u32, length: u16, payload: Checksum) -> u16 {
    let _ = (dsn, ssn, length, payload);
    unimplemented!()
}

impl Checksum {
    /// Adds `bytes`; every piece but the last must have an even length.
    pub fn add(&mut self, bytes: &[u8]) {
        let _ = bytes;
        unimplemented!()
    }
}
