//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323, section 5.4).

use core::net::{IpAddr, SocketAddr};
use plait_base::{Instant, SeqNum};
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use crate::FourTuple;

/// The initial numbers of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Isn {
    /// Initial sequence number.
    pub seq: SeqNum,
    /// Added to the millisecond clock to give TSval.
    pub timestamp_offset: u32,
    /// The seed of the connection's flow labels (RFC 6437), over IPv6.
    pub label_seed: u128,
}

/// A secret and a clock that together give every four-tuple its own sequence space (RFC 6528, section 3).
pub struct IsnGenerator {
    secret: [u8; 32],
    /// The secret of flow labels. They are short and visible on every packet, and must reveal nothing about sequence numbers.
    label_secret: [u8; 32],
}

impl IsnGenerator {
    /// With a secret that is drawn once per start of the host.
    pub fn new(secret: [u8; 32]) -> Self {
        let mut hash = Sha256::new();
        hash.update(LABEL_SECRET);
        hash.update(secret);
        Self { secret, label_secret: hash.finalize().into() }
    }

    /// The start for a connection between these addresses, opened `now`: a 4 µs clock plus a keyed hash.
    pub fn isn(&self, tuple: &FourTuple, now: Instant) -> Isn {
        let [a, b, c, d, e, f, g, h, ..] = keyed_hash(&self.secret, tuple);
        let clock = (now.as_micros() / CLOCK_MICROS) as u32;
        Isn {
            seq: SeqNum::new(clock.wrapping_add(u32::from_be_bytes([a, b, c, d]))),
            timestamp_offset: u32::from_be_bytes([e, f, g, h]),
            label_seed: match tuple.remote.ip() {
                IpAddr::V4(_) => 0,
                IpAddr::V6(_) => self.label_seed(tuple),
            },
        }
    }

    /// Without the clock: an answer that is given without state has the label that the connection will have.
    fn label_seed(&self, tuple: &FourTuple) -> u128 {
        let [low @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            keyed_hash(&self.label_secret, tuple);
        u128::from_be_bytes(low)
    }
}

/// Sets the secret of the flow labels apart from that of the sequence numbers.
const LABEL_SECRET: &[u8] = b"plait flow labels";

fn keyed_hash(secret: &[u8; 32], tuple: &FourTuple) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(secret);
    for address in [tuple.local, tuple.remote] {
        update_address(&mut hash, address);
    }
    hash.finalize().into()
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
        self.label_secret.zeroize();
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

    //= rfc8684 3-03
    #[test]
    fn the_same_addresses_move_on_with_the_clock() {
        let generator = IsnGenerator::new([7; 32]);
        let first = generator.isn(&tuple(1), Instant::ZERO);
        let later = generator.isn(&tuple(1), Instant::from_millis(1000));
        assert_eq!(later.seq.distance(first.seq), 250_000);
        assert_eq!(later.timestamp_offset, first.timestamp_offset, "timestamps go on where they were");
    }

    #[test]
    fn the_flow_labels_of_a_tuple_do_not_depend_on_the_moment_and_differ_between_tuples() {
        let generator = IsnGenerator::new([7; 32]);
        let tuple = |port| FourTuple {
            local: SocketAddr::new("2001:db8::1".parse().expect("an address"), port),
            remote: "[2001:db8::2]:80".parse().expect("an address"),
        };
        let seed = |port, millis| generator.isn(&tuple(port), Instant::from_millis(millis)).label_seed;
        assert_eq!(seed(1, 0), seed(1, 5000));
        assert_ne!(seed(1, 0), seed(2, 0));
        assert_ne!(seed(1, 0), IsnGenerator::new([8; 32]).isn(&tuple(1), Instant::ZERO).label_seed);
    }

    //= rfc8684 3-03
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
