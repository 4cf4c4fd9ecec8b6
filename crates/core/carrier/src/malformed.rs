//! Packets that were dropped because they are none of ours, by what is wrong with them.

use plait_wire::Malformed;
use std::collections::BTreeMap;

/// How many packets were malformed, by reason.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MalformedCounts(BTreeMap<Malformed, u64>);

impl MalformedCounts {
    /// Counts one.
    pub fn count(&mut self, reason: Malformed) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// How many were malformed for this reason.
    pub fn of(&self, reason: Malformed) -> u64 {
        self.0.get(&reason).copied().unwrap_or(0)
    }

    /// How many were malformed for any reason.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The reasons that there have been, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Malformed, u64)> {
        self.0.iter().map(|(reason, count)| (*reason, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use plait_base::SeqNum;
    use plait_wire::{Flags, OptionBytes, Packet, Segment, Trust};

    #[test]
    fn malformed_packets_are_counted_by_what_is_wrong() {
        let segment = Segment {
            source: "192.0.2.2:9".parse().expect("an address"),
            destination: "192.0.2.1:80".parse().expect("an address"),
            seq: SeqNum::new(1),
            ack: SeqNum::new(77),
            flags: Flags::ACK,
            window: 100,
            urgent: 0,
            options: OptionBytes::new(),
            payload: Bytes::new(),
            segment_size: 1,
            ecn: 0,
            flow_label: 0,
        };
        let mut wrong = segment.to_bytes(0);
        *wrong.last_mut().expect("a header") ^= 1;
        let mut counts = MalformedCounts::default();
        for bytes in [vec![], vec![0x45; 10], wrong.clone(), wrong, segment.to_bytes(0)] {
            if let Err(reason) = Packet::parse(&Bytes::from(bytes), 0, Trust::Verify) {
                counts.count(reason);
            }
        }
        assert_eq!((counts.of(Malformed::Truncated), counts.of(Malformed::Checksum)), (2, 2));
        assert_eq!(counts.total(), 4);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 4);
    }
}
