//! Why the option tag is a hash: the scheme of the paper, and how it breaks.
//!
//! Jadin et al. (section III-C) authenticate options by a second AEAD call under one key, with the nonce `11 || a ||
//! Data-ACK` for acknowledgments and `01 || subflow id || DSN` for blocks. Two pure acknowledgments with the same Data-ACK and
//! other options are ordinary traffic (a window update, a SACK), and so is a block that goes over path 1, path 2, and
//! path 1 again with another Data-ACK. Then two messages have tags under one nonce, and with GCM:
//!
//! ```text
//! T1 xor T2 = GHASH(H, M1) xor GHASH(H, M2)      a polynomial in H without the only other secret
//! ```
//!
//! whose root is the authentication key. This test finds it and has a forged acknowledgment accepted; then it does the
//! same to ours, in vain.

mod sealed_support;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use plait_base::Dsn;
use plait_protect::sealed::{AckContext, AckTag, ProtectedOptions, SubflowTag, Suite};
use sealed_support::connect;

/// The paper's option protection, as far as an AEAD with nonces of 96 bits can have it.
struct PaperScheme(LessSafeKey);

impl PaperScheme {
    fn new() -> Self {
        Self(LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[0x42; 16]).expect("16 bytes")))
    }

    /// 11 || a || Data-ACK: nothing in it tells two acknowledgments of the same data apart.
    fn nonce(data_ack: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[0] = 0b1110_0000;
        nonce[4..].copy_from_slice(&data_ack.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn tag(&self, data_ack: u64, options: &[u8]) -> [u8; 16] {
        let tag = self.0.seal_in_place_separate_tag(Self::nonce(data_ack), Aad::from(options), &mut []);
        tag.expect("short").as_ref().try_into().expect("16 bytes")
    }

    fn accepts(&self, data_ack: u64, options: &[u8], tag: [u8; 16]) -> bool {
        self.0.open_in_place(Self::nonce(data_ack), Aad::from(options), &mut tag.clone()).is_ok()
    }
}

/// An element of GF(2^128) in GCM's order: the first bit of the first byte is the coefficient of x^0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Element(u128);

impl Element {
    const ONE: Self = Self(1 << 127);

    fn read(block: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes[..block.len()].copy_from_slice(block);
        Self(u128::from_be_bytes(bytes))
    }

    fn plus(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    fn times(self, other: Self) -> Self {
        let (mut product, mut shifted) = (0, other.0);
        for bit in (0..128).rev() {
            if self.0 >> bit & 1 == 1 {
                product ^= shifted;
            }
            let carry = shifted & 1;
            shifted >>= 1;
            if carry == 1 {
                shifted ^= 0xe1 << 120;
            }
        }
        Self(product)
    }

    /// x^(2^n): squaring n times.
    fn squared(self, n: u32) -> Self {
        (0..n).fold(self, |value, _| value.times(value))
    }

    /// x^(2^128 - 2).
    fn inverse(self) -> Self {
        (1..128).fold(Self::ONE, |product, n| product.times(self.squared(n)))
    }

    /// The only square root: x^(2^127).
    fn root(self) -> Self {
        self.squared(127)
    }
}

/// GHASH over associated data alone.
fn ghash(key: Element, associated: &[u8]) -> Element {
    let blocks = associated.chunks(16).map(Element::read);
    let lengths = Element((associated.len() as u128 * 8) << 64);
    blocks.chain([lengths]).fold(Element(0), |sum, block| sum.plus(block).times(key))
}

#[test]
fn the_field_is_a_field_and_ghash_is_ghash() {
    let (a, b) = (Element(0x1234_5678_9abc_def0 << 40 | 7), Element(u128::MAX / 3));
    assert_eq!(a.times(b), b.times(a));
    assert_eq!(a.times(Element::ONE), a);
    assert_eq!(a.times(a.inverse()), Element::ONE);
    assert_eq!(a.root().squared(1), a);
    // NIST GCM test case 1: the key is E(0), the tag of nothing is E(nonce || 1), so GHASH adds nothing to it.
    assert_eq!(ghash(a, &[]), Element(0));
}

#[test]
fn two_acknowledgments_under_one_nonce_give_the_papers_key_away() {
    let scheme = PaperScheme::new();
    let data_ack = 0x1122_3344_5566_7788;
    // Two pure acknowledgments of the same data, eight options bytes different: what every receiver sends.
    let (first, second) = (*b"ack win=1000 ...", *b"ack win=2000 ...");
    let (tag_1, tag_2) = (scheme.tag(data_ack, &first), scheme.tag(data_ack, &second));

    // One block of options and the lengths: T = A H^2 + L H + E(nonce). The sum is (A1 + A2) H^2.
    let difference = Element::read(&first).plus(Element::read(&second));
    let tags = Element::read(&tag_1).plus(Element::read(&tag_2));
    let key = tags.times(difference.inverse()).root();
    let mask = Element::read(&tag_1).plus(ghash(key, &first));

    // Any options under the same Data-ACK, of any length, are now ours to sign.
    for forged in [&b"REMOVE_ADDR id 1"[..], b"MP_PRIO backup for the path that the attacker is not on"] {
        let tag = ghash(key, forged).plus(mask).0.to_be_bytes();
        assert!(scheme.accepts(data_ack, forged, tag), "accepted");
        assert!(!scheme.accepts(data_ack + 1, forged, tag), "the receiver does check");
    }
    // And the key stays: one true tag of any other acknowledgment is enough for the next forgery.
    let seen = scheme.tag(data_ack + 5000, &first);
    let mask = Element::read(&seen).plus(ghash(key, &first));
    let tag = ghash(key, b"FASTCLOSE").plus(mask).0.to_be_bytes();
    assert!(scheme.accepts(data_ack + 5000, b"FASTCLOSE", tag));
}

#[test]
fn the_same_attack_on_our_tags_finds_nothing() {
    let (mut a, mut b) = connect(Suite::Aes128Gcm);
    let context = |options| AckContext {
        subflow: SubflowTag::FIRST,
        data_ack: Some(Dsn::new(0x1122_3344_5566_7788)),
        data_fin: None,
        options: ProtectedOptions::new(options).expect("short"),
    };
    let (first, second, third) = (*b"ack win=1000 ...", *b"ack win=2000 ...", *b"REMOVE_ADDR id 1");
    let tags = [&first, &second].map(|options| a.sealer.tag_ack(&context(options)).to_option());
    assert_ne!(tags[0], tags[1]);
    let read = |option: &[u8; 12]| Element::read(&option[4..]);
    let difference = Element::read(&first).plus(Element::read(&second));
    let key = read(&tags[0]).plus(read(&tags[1])).times(difference.inverse()).root();
    let mask = read(&tags[0]).plus(ghash(key, &first));
    let forged = ghash(key, &third).plus(mask).0.to_be_bytes();
    let mut option = tags[0];
    option[4..].copy_from_slice(&forged[..8]);
    let forged = AckTag::parse(&option[3..]).expect("well-formed");
    assert!(b.opener.check_ack(&context(&third), &forged).is_err());
    let honest = AckTag::parse(&tags[1][3..]).expect("well-formed");
    assert_eq!(b.opener.check_ack(&context(&second), &honest), Ok(()));
}
