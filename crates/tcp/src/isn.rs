//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323, section 5.4).

use base::{Instant, SeqNum};

use crate::FourTuple;

/// Where a connection starts counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Isn {
    /// Initial sequence number.
    pub seq: SeqNum,
    /// Added to the millisecond clock to give TSval.
    pub timestamp_offset: u32,
}

/// A secret and a clock that together give every four-tuple its own sequence space (RFC 6528, section 3).
pub struct IsnGenerator {
    secret: [u8; 32],
}

impl IsnGenerator {
    /// With a secret that is drawn once per start of the host.
    pub fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// The start for a connection between these addresses, opened `now`: a 4 µs clock plus a keyed hash.
    pub fn isn(&self, tuple: &FourTuple, now: Instant) -> Isn {
        let _ = (tuple, now, self.secret);
        unimplemented!()
    }
}
