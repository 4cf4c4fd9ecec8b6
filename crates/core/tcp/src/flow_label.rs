//! The flow label of a connection over IPv6 (RFC 6437). Routers with several equal-cost routes select one by it and the addresses.
//!
//! All segments carry the same label, SYN and reset included, so that they stay in order. A timeout draws another one: if one of the routes
//! drops packets, the connection takes another, which the routers would not do by themselves. The labels follow from a secret of the host,
//! so that an attacker cannot steer a connection to a route by the choice of ports.

use plait_base::{Duration, Instant};
use plait_wire::IpVersion;
use sha2::{Digest, Sha256};

/// A label has 20 bits.
const MASK: u32 = 0x000f_ffff;

/// The present label, and the input for the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowLabel {
    version: IpVersion,
    seed: u128,
    draws: u32,
    label: u32,
    drawn_at: Instant,
    /// The offset of the last segment that repeated acknowledged data.
    repeated: Option<u64>,
}

impl FlowLabel {
    pub(crate) fn new(now: Instant, version: IpVersion, seed: u128) -> Self {
        let label = match version {
            IpVersion::V4 => 0,
            IpVersion::V6 => label_of(seed, 0),
        };
        Self { version, seed, draws: 0, label, drawn_at: now, repeated: None }
    }

    /// The label; 0 over IPv4.
    pub(crate) fn get(&self) -> u32 {
        self.label
    }

    /// Draws a new label, because nothing comes back: the route of this label may be dead.
    pub(crate) fn draw(&mut self, now: Instant) {
        self.drawn_at = now;
        match self.version {
            IpVersion::V4 => return,
            IpVersion::V6 => {}
        }
        let before = self.label;
        self.draws = self.draws.wrapping_add(1);
        self.label = label_of(self.seed, self.draws);
        if self.label == before {
            // All bits turned over, and never zero either.
            self.label = (before ^ MASK).max(1);
        }
    }

    /// Handles a segment at `start` that repeats acknowledged data. If the same comes twice in a row, our acknowledgments do not arrive
    /// (Linux: `tcp_rcv_spurious_retrans`). An attacker that forges such segments causes at most one new label per `rto`.
    pub(crate) fn on_repeated(&mut self, now: Instant, start: u64, rto: Duration) {
        let again = self.repeated.replace(start) == Some(start);
        if again && now.saturating_since(self.drawn_at) >= rto {
            self.draw(now);
        }
    }
}

/// The label number `draw`. Zero would mean that there is none (RFC 6437, section 2).
fn label_of(seed: u128, draw: u32) -> u32 {
    let mut hash = Sha256::new();
    hash.update(seed.to_be_bytes());
    hash.update(draw.to_be_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let [a, b, c, d, ..] = digest;
    (u32::from_be_bytes([a, b, c, d]) & MASK).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_twenty_bits_are_never_zero_and_never_the_one_before() {
        let mut flow = FlowLabel::new(Instant::ZERO, IpVersion::V6, 7);
        let mut high = 0;
        for _ in 0..2000 {
            let before = flow.get();
            flow.draw(Instant::ZERO);
            assert!((1..=MASK).contains(&flow.get()) && flow.get() != before);
            high |= flow.get();
        }
        assert_eq!(high, MASK, "each bit is used");
    }

    #[test]
    fn there_is_none_over_ipv4() {
        let mut flow = FlowLabel::new(Instant::ZERO, IpVersion::V4, 7);
        flow.draw(Instant::ZERO);
        assert_eq!(flow.get(), 0);
    }
}
