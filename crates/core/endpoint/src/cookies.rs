//! SYN cookies (RFC 4987, section 3.6): state of a stateless SYN/ACK, as a keyed hash of the addresses, the peer's initial sequence number
//! and the time.

use core::net::IpAddr;
use plait_base::{Duration, Instant, SeqNum};
use plait_tcp::FourTuple;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::offer::Offer;
use crate::prefix::Prefix;

/// A cookie is valid in the time slot in which it was sent, and in the next.
const SLOT: Duration = Duration::from_secs(30);
/// Purposes of the hashes, which keep them distinct.
const OPENING: u8 = 1;
const TAG: u8 = 2;
const JOIN: u8 = 3;
const SOURCE: u8 = 4;

/// The key, drawn once per start of the host.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Cookies {
    key: [u8; 32],
    /// When a cookie was last sent.
    #[zeroize(skip)]
    given: Option<Instant>,
}

/// The values with which a stateless SYN/ACK begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cookie {
    pub(crate) seq: SeqNum,
    /// Our key for Multipath TCP in the clear. The third segment repeats it (RFC 8684, section 3.1).
    pub(crate) key: [u8; 8],
}

/// The initial sequence numbers of both sides, by the third segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Numbers {
    pub(crate) ours: SeqNum,
    pub(crate) theirs: SeqNum,
}

impl Cookies {
    /// Derives the key from the secret of the initial sequence numbers, which none of them reveals.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self { key: blake3::derive_key("plait 2026-11-22 stateless answers to SYNs", secret), given: None }
    }

    /// Returns the cookie for the SYN/ACK to a SYN that carries `offer`.
    pub(crate) fn give(&mut self, now: Instant, tuple: &FourTuple, theirs: SeqNum, offer: Offer) -> Cookie {
        self.given = Some(now);
        self.cookie(slot(now), tuple, theirs, offer)
    }

    /// Whether answers to stateless SYN/ACKs may still arrive. Without a recent flood no segment is taken for such an answer.
    pub(crate) fn may_come_back(&self, now: Instant) -> bool {
        self.given.is_some_and(|given| now.saturating_since(given) < SLOT * 2)
    }

    /// Returns the offer of the peer whose segment acknowledges our number, if that is a cookie.
    pub(crate) fn take(
        &self,
        now: Instant,
        tuple: &FourTuple,
        numbers: Numbers,
        stamp_bits: Option<u8>,
    ) -> Option<(Cookie, Offer)> {
        let Numbers { ours, theirs } = numbers;
        let [first, ..] = ours.bits().to_be_bytes();
        [slot(now), slot(now).wrapping_sub(1)].into_iter().find_map(|slot| {
            let [mask, ..] = self.hash(OPENING, slot, tuple, theirs.bits());
            let offer = Offer::from_bits(first ^ mask, stamp_bits)?;
            let cookie = self.cookie(slot, tuple, theirs, offer);
            (cookie.seq == ours).then_some((cookie, offer))
        })
    }

    /// Returns eight hidden bits of the offer, and 24 bits that an attacker cannot compute.
    fn cookie(&self, slot: u64, tuple: &FourTuple, theirs: SeqNum, offer: Offer) -> Cookie {
        let hash = self.hash(OPENING, slot, tuple, theirs.bits());
        let (key, _) = hash[8..].split_first_chunk().expect("24 bytes hold 8");
        let mut input = blake3::Hasher::new_keyed(&self.key);
        input.update(&[TAG, offer.bits, offer.stamp_bits.unwrap_or(u8::MAX)]);
        input.update(&hash);
        let [a, b, c, ..] = *input.finalize().as_bytes();
        Cookie { seq: SeqNum::new(u32::from_be_bytes([hash[0] ^ offer.bits, a, b, c])), key: *key }
    }

    /// Returns the nonce of a SYN/ACK to a join.
    pub(crate) fn join_nonce(&self, then: Instant, tuple: &FourTuple, theirs: u32) -> u32 {
        let [a, b, c, d, ..] = self.hash(JOIN, then.as_nanos(), tuple, theirs);
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns a number for a source. An attacker can neither compute it nor choose sources for a given number.
    pub(crate) fn number_of_source(&self, prefix: Prefix) -> u64 {
        let mut input = blake3::Hasher::new_keyed(&self.key);
        input.update(&[SOURCE]);
        input.update(&prefix.bytes());
        let [a, b, c, d, e, f, g, h, ..] = *input.finalize().as_bytes();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    fn hash(&self, purpose: u8, slot: u64, tuple: &FourTuple, number: u32) -> [u8; 32] {
        let mut input = [0; 49];
        input[0] = purpose;
        input[1..9].copy_from_slice(&slot.to_be_bytes());
        for (at, address) in [(9, tuple.local), (27, tuple.remote)] {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            input[at..at + 16].copy_from_slice(&ip.octets());
            input[at + 16..at + 18].copy_from_slice(&address.port().to_be_bytes());
        }
        input[45..].copy_from_slice(&number.to_be_bytes());
        *blake3::keyed_hash(&self.key, &input).as_bytes()
    }
}

fn slot(now: Instant) -> u64 {
    now.as_millis() / SLOT.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, SocketAddr};

    const NOW: Instant = Instant::from_millis(1_000_000);
    const THEIRS: SeqNum = SeqNum::new(77);

    fn tuple(port: u16) -> FourTuple {
        let at = |last, port| SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), port));
        FourTuple { local: at(1, 80), remote: at(2, port) }
    }

    fn offer() -> Offer {
        Offer::from_bits(0x4f, Some(0x17)).expect("a SYN can carry it")
    }

    #[test]
    fn a_cookie_brings_back_what_was_offered_for_half_a_minute_at_least_and_a_minute_at_most() {
        let mut cookies = Cookies::new(&[7; 32]);
        assert!(!cookies.may_come_back(NOW), "none was given");
        let cookie = cookies.give(NOW, &tuple(9), THEIRS, offer());
        let take = |later| {
            cookies.take(NOW + later, &tuple(9), Numbers { ours: cookie.seq, theirs: THEIRS }, Some(0x17))
        };
        assert_eq!(take(Duration::ZERO), Some((cookie, offer())));
        assert_eq!(take(SLOT), Some((cookie, offer())));
        assert_eq!(take(SLOT * 2), None);
        assert!(cookies.may_come_back(NOW + SLOT) && !cookies.may_come_back(NOW + SLOT * 2));
    }

    #[test]
    fn a_cookie_is_good_for_what_it_was_given_for_and_nothing_else() {
        let mut cookies = Cookies::new(&[7; 32]);
        let Cookie { seq, key } = cookies.give(NOW, &tuple(9), THEIRS, offer());
        assert_eq!(
            cookies.take(NOW, &tuple(8), Numbers { ours: seq, theirs: THEIRS }, Some(0x17)),
            None,
            "other addresses"
        );
        assert_eq!(
            cookies.take(NOW, &tuple(9), Numbers { ours: seq, theirs: THEIRS + 1 }, Some(0x17)),
            None,
            "another SYN"
        );
        assert_eq!(
            cookies.take(NOW, &tuple(9), Numbers { ours: seq, theirs: THEIRS }, Some(0x16)),
            None,
            "another scale"
        );
        assert_eq!(
            cookies.take(NOW, &tuple(9), Numbers { ours: seq, theirs: THEIRS }, None),
            None,
            "the timestamp is gone"
        );
        let forged = (0..32).filter(|bit| {
            let seq = SeqNum::new(seq.bits() ^ 1 << bit);
            cookies.take(NOW, &tuple(9), Numbers { ours: seq, theirs: THEIRS }, Some(0x17)).is_some()
        });
        assert_eq!(forged.count(), 0);
        let other = Cookies::new(&[8; 32]).give(NOW, &tuple(9), THEIRS, offer());
        assert!(other.seq != seq && other.key != key, "another host");
    }
}
