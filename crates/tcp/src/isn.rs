//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323, section 5.4).

use core::net::{IpAddr, SocketAddr};
use plait_base::{Instant, SeqNum};
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

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
        let mut hash = Sha256::new();
        hash.update(self.secret);
        for address in [tuple.local, tuple.remote] {
            update_address(&mut hash, address);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        let clock = (now.as_micros() / CLOCK_MICROS) as u32;
        Isn {
            seq: SeqNum::new(clock.wrapping_add(u32::from_be_bytes([a, b, c, d]))),
            timestamp_offset: u32::from_be_bytes([e, f, g, h]),
        }
    }
}

/// Tick of the clock of RFC 6528 (RFC 9293, section 3.4.1).
const CLOCK_MICROS: u64 = 4;

/// Adds an address in a form of fixed length, so that no two tuples give the same bytes.
fn update_address(hash: &mut Sha256, address: SocketAddr) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    hash.update(ip.octets());
    hash.update(address.port().to_be_bytes());
}

impl Drop for IsnGenerator {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        let at = |text: &str| text.parse().expect("an address");
        FourTuple {
            local: SocketAddr::new(at("10.0.0.1"), port),
            remote: SocketAddr::new(at("10.0.0.2"), 80),
        }
    }

    #[test]
    fn the_same_addresses_move_on_with_the_clock() {
        let generator = IsnGenerator::new([7; 32]);
        let first = generator.isn(&tuple(1), Instant::ZERO);
        let later = generator.isn(&tuple(1), Instant::from_millis(1000));
        assert_eq!(later.seq.distance(first.seq), 250_000);
        assert_eq!(later.timestamp_offset, first.timestamp_offset, "timestamps go on where they were");
    }

    #[test]
    fn other_addresses_or_another_secret_start_elsewhere() {
        let generator = IsnGenerator::new([7; 32]);
        let isn = generator.isn(&tuple(1), Instant::ZERO);
        assert_ne!(isn, generator.isn(&tuple(2), Instant::ZERO));
        let swapped = FourTuple { local: tuple(1).remote, remote: tuple(1).local };
        assert_ne!(isn, generator.isn(&swapped, Instant::ZERO));
        assert_ne!(isn, IsnGenerator::new([8; 32]).isn(&tuple(1), Instant::ZERO));
    }
}
