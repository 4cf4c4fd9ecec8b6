//! Data sequence numbers as offsets from where they start.
//!
//! Inside a connection, positions in the data stream are 64-bit *offsets* from the initial data sequence number. The number itself is 0 and
//! the first byte of data is 1. Offsets neither wrap nor need modular comparison. Only numbers on the wire are a [`Dsn`].

use plait_base::Dsn;
use plait_wire::{DataAck, DataSequence};

/// How far both streams have got, as data offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offsets {
    /// The peer acknowledges ours below this one.
    pub(crate) acked: u64,
    /// Those of the peer below this one have arrived in order.
    pub(crate) next: u64,
}

/// The numbers of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataSpace {
    initial: Dsn,
}

impl DataSpace {
    /// The space that starts with this initial data sequence number.
    pub(crate) fn new(initial: Dsn) -> Self {
        Self { initial }
    }

    /// The number on the wire for an offset.
    pub(crate) fn dsn(self, offset: u64) -> Dsn {
        self.initial + offset
    }

    /// Returns the offset of a number; `None` for a number before the start.
    pub(crate) fn offset(self, dsn: Dsn) -> Option<u64> {
        u64::try_from(dsn.distance(self.initial)).ok()
    }

    /// The full number of a mapping, near the offset expected.
    pub(crate) fn sequence(self, sequence: DataSequence, near: u64) -> Dsn {
        match sequence {
            DataSequence::Short(low) => self.dsn(near).expand(low),
            DataSequence::Long(bits) => Dsn::new(bits),
        }
    }

    /// The full number of a Data-ACK, near the offset expected.
    pub(crate) fn ack_number(self, ack: DataAck, near: u64) -> Dsn {
        match ack {
            DataAck::Short(low) => self.dsn(near).expand(low),
            DataAck::Long(bits) => Dsn::new(bits),
        }
    }

    /// The offset that a Data-ACK acknowledges up to.
    pub(crate) fn ack(self, ack: DataAck, near: u64) -> Option<u64> {
        let dsn = match ack {
            DataAck::Short(low) => self.dsn(near).expand(low),
            DataAck::Long(bits) => Dsn::new(bits),
        };
        self.offset(dsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_do_not_notice_that_the_numbers_wrap() {
        let space = DataSpace::new(Dsn::new(u64::MAX - 1));
        assert_eq!(space.dsn(5), Dsn::new(3));
        assert_eq!(space.offset(Dsn::new(3)), Some(5));
        assert_eq!(space.offset(Dsn::new(u64::MAX - 2)), None, "before the start");
    }

    #[test]
    fn short_forms_are_read_near_what_is_expected() {
        let space = DataSpace::new(Dsn::new(0x1_ffff_fff0));
        assert_eq!(space.ack(DataAck::Short(4), 0x10), Some(0x14), "over the wrap of the lower half");
        assert_eq!(space.sequence(DataSequence::Short(0xffff_fff1), 0x14), Dsn::new(0x1_ffff_fff1));
    }
}
