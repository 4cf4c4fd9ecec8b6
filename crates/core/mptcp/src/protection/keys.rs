//! Keys of a connection and what RFC 8684 derives from them: token, initial data sequence number, HMACs.

use core::net::IpAddr;
use hmac::{Hmac, Mac};
use plait_base::Dsn;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Returns the token by which joins name the connection with this key: the leftmost 32 bits of its SHA-256 (RFC 8684, section 3.2). For
/// hosts that draw keys: no two connections may share a token.
pub fn token_of(key: &[u8; 8]) -> u32 {
    Key::new(*key).token()
}

/// The 64-bit key of one host, wiped on drop and never printed, with its public values. The token and the initial data sequence number are
/// needed for every packet and are hashed once.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Key {
    bytes: [u8; 8],
    token: u32,
    #[zeroize(skip)]
    initial_dsn: Dsn,
}

impl Key {
    pub(crate) fn new(bytes: [u8; 8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let (_, last) = digest.split_last_chunk::<8>().expect("32 bytes hold 8");
        let token = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Self { bytes, token, initial_dsn: Dsn::new(u64::from_be_bytes(*last)) }
    }

    /// Returns the bytes for an option.
    pub(crate) fn bytes(&self) -> [u8; 8] {
        self.bytes
    }

    /// See [`token_of`].
    pub(crate) fn token(&self) -> u32 {
        self.token
    }

    /// Returns the initial data sequence number: the rightmost 64 bits of the key's SHA-256 (section 3.1).
    pub(crate) fn initial_dsn(&self) -> Dsn {
        self.initial_dsn
    }

    /// Compares in constant time: the key authenticates FASTCLOSE.
    pub(crate) fn is(&self, other: &[u8; 8]) -> bool {
        self.bytes.ct_eq(other).into()
    }
}

/// Returns the HMAC that the owner of `own` sends in a join (section 3.2). It is keyed with both keys, own first, and covers both nonces,
/// own first.
pub(crate) fn join_hmac(own: &Key, other: &Key, own_nonce: u32, other_nonce: u32) -> [u8; 32] {
    let mut mac = keyed(own, other);
    mac.update(&own_nonce.to_be_bytes());
    mac.update(&other_nonce.to_be_bytes());
    mac.finalize().into_bytes().into()
}

/// Returns the HMAC for ADD_ADDR (section 3.4.1): the rightmost 64 bits of the HMAC over id, address and port.
pub(crate) fn address_hmac(
    announcer: &Key,
    other: &Key,
    id: u8,
    address: IpAddr,
    port: Option<u16>,
) -> [u8; 8] {
    let mut mac = keyed(announcer, other);
    mac.update(&[id]);
    match address {
        IpAddr::V4(v4) => mac.update(&v4.octets()),
        IpAddr::V6(v6) => mac.update(&v6.octets()),
    }
    mac.update(&port.unwrap_or(0).to_be_bytes());
    let full: [u8; 32] = mac.finalize().into_bytes().into();
    *full.last_chunk::<8>().expect("32 bytes hold 8")
}

/// Whether two MACs (the shorter one is a truncation) are equal, in constant time.
pub(crate) fn same(computed: &[u8], received: &[u8]) -> bool {
    computed.get(..received.len()).is_some_and(|start| start.ct_eq(received).into())
}

fn keyed(first: &Key, second: &Key) -> Hmac<Sha256> {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&first.bytes);
    both[8..].copy_from_slice(&second.bytes);
    let mac = Hmac::new_from_slice(&both).expect("HMAC takes keys of any length");
    both.zeroize();
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with an independent implementation; see `tests/vectors/rfc8684_crypto.json`.
    struct Vector {
        key_a: u64,
        key_b: u64,
        tokens: [u32; 2],
        idsns: [u64; 2],
        hmac_a: &'static str,
        hmac_b: u64,
        v4_from_a: u64,
        v6_from_b: u64,
    }

    const VECTORS: [Vector; 2] = [
        Vector {
            key_a: 0x0102_0304_0506_0708,
            key_b: 0x1112_1314_1516_1718,
            tokens: [0x6684_0dda, 0xccad_45ac],
            idsns: [0xf5a1_01d3_d29d_6f72, 0x535b_eea3_8e08_7c8e],
            hmac_a: "babaea6982ee18be2f9f12ef385f17b37375578c",
            hmac_b: 0x93bb_e948_b124_d5a3,
            v4_from_a: 0x2240_5bc9_f152_e4b7,
            v6_from_b: 0x6853_1fdd_f655_1527,
        },
        Vector {
            key_a: u64::MAX,
            key_b: 0,
            tokens: [0x12a3_ae44, 0xaf55_70f5],
            idsns: [0x57fb_595b_bbac_f0ca, 0xe5b2_328d_e0e8_3dfc],
            hmac_a: "8a1cc63a357be7c7849d74447c1a4a04170777e0",
            hmac_b: 0x97e9_8d6b_df62_d79a,
            v4_from_a: 0xc068_3000_942c_75dc,
            v6_from_b: 0x1a91_bf04_9964_ec56,
        },
    ];

    const NONCE_A: u32 = 0xdead_beef;
    const NONCE_B: u32 = 0x0bad_cafe;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    //= rfc8684 3.1-16
    //= rfc8684 3.1-17
    //= rfc8684 3.1-18
    //= rfc8684 3.1-19
    //= rfc8684 3.1-28
    #[test]
    fn tokens_and_initial_numbers_are_the_known_ones() {
        for vector in VECTORS {
            let keys = [vector.key_a, vector.key_b].map(|key| Key::new(key.to_be_bytes()));
            for (index, key) in keys.iter().enumerate() {
                assert_eq!(key.token(), vector.tokens[index]);
                assert_eq!(key.initial_dsn(), Dsn::new(vector.idsns[index]));
            }
        }
    }

    #[test]
    fn hmacs_of_joins_are_the_known_ones() {
        for vector in VECTORS {
            let (a, b) = (Key::new(vector.key_a.to_be_bytes()), Key::new(vector.key_b.to_be_bytes()));
            assert_eq!(hex(&join_hmac(&a, &b, NONCE_A, NONCE_B)[..20]), vector.hmac_a);
            assert_eq!(join_hmac(&b, &a, NONCE_B, NONCE_A)[..8], vector.hmac_b.to_be_bytes());
        }
    }

    #[test]
    fn hmacs_of_announced_addresses_are_the_known_ones() {
        for vector in VECTORS {
            let (a, b) = (Key::new(vector.key_a.to_be_bytes()), Key::new(vector.key_b.to_be_bytes()));
            let v4 = "192.0.2.33".parse().expect("an address");
            assert_eq!(address_hmac(&a, &b, 2, v4, None), vector.v4_from_a.to_be_bytes());
            let v6 = "2001:db8::1".parse().expect("an address");
            assert_eq!(address_hmac(&b, &a, 3, v6, Some(8443)), vector.v6_from_b.to_be_bytes());
        }
    }

    #[test]
    fn a_mac_is_compared_as_far_as_it_was_sent() {
        assert!(same(&[1, 2, 3, 4], &[1, 2]));
        assert!(!same(&[1, 2, 3, 4], &[1, 3]));
        assert!(!same(&[1, 2], &[1, 2, 3]));
    }
}
