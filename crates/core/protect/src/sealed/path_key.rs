//! PATHKEY: a share of the keys that crosses one path only.
//!
//! Both hosts send 32 random bytes and one half of a fresh key exchange (X25519 and ML-KEM-768) as unmapped bytes of a single subflow.
//! These are never repeated elsewhere. The result goes into the next generation of both directions.
//!
//! An attacker that has recorded every other path, and later breaks everything else, still lacks the random bytes. An attacker that has
//! recorded all paths, and knew all secrets of the connection, lacks the agreed secret of the shares. The idea of a secret from every path
//! is that of SMKEX (Costea et al., CCS 2018); its paths are the paths of Multipath TCP.

use core::fmt;
use core::ops::Range;

use aws_lc_rs::agreement::{self, UnparsedPublicKey, X25519};
use libcrux_ml_kem::mlkem768::{
    self, MlKem768Ciphertext, MlKem768KeyPair, MlKem768PublicKey, validate_public_key,
};
use plait_base::Random;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::aead::BlockKey;
use super::hkdf::Hkdf;
use super::identity::ConnectionIdentity;
use super::opener::Opener;
use super::option_tag::SubflowTag;
use super::sealer::Sealer;
use super::secret::{MixSecret, PathSecret};
use super::suite::Suite;
use crate::scrub::scrubbed;

/// Identifies one exchange, uniquely within a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Exchange {
    /// The subflow that both messages cross.
    pub subflow: SubflowTag,
    /// The number of the exchange on its subflow. At one exchange per GiB the numbers do not run out.
    pub number: u32,
}

/// The opener's number for one of its paths. Only the opener knows which of its subflows cross the same device. Its message of an exchange
/// therefore carries the number of the path, hidden from all but the listener, so that both ends count the same paths. 0 is the path of the
/// handshake, and every share that does not count as one of another path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathNumber(pub u8);

impl PathNumber {
    /// The path of the handshake, and every path that does not count as another one.
    pub const HANDSHAKE: Self = Self(0);
}

/// The role in an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Speaker {
    /// The opener of the connection, over this path of its own.
    Opener(PathNumber),
    /// The listener, which learns the path from the opener.
    Listener,
}

impl Speaker {
    /// Returns the path number for its message.
    fn says(self) -> u8 {
        match self {
            Self::Opener(PathNumber(path)) => path,
            Self::Listener => 0,
        }
    }

    /// Returns the path of the share if the other side's message has the number `heard`.
    fn path(self, heard: u8) -> Result<PathNumber, PathKeyError> {
        match self {
            Self::Opener(path) if heard == 0 => Ok(path),
            Self::Opener(_) => Err(PathKeyError::NumberedByListener),
            Self::Listener => Ok(PathNumber(heard)),
        }
    }
}

/// The result of an exchange, which is the same at both ends.
pub struct Share {
    /// The path of the share.
    pub path: PathNumber,
    /// The secret for the keys.
    pub secret: MixSecret,
}

/// Length of the first message, in bytes: kind, generation and number of the exchange, fresh bytes, number of the path, random bytes, an X25519 key, an ML-KEM-768 key, tag.
pub const OFFER_LEN: usize = HEADER_LEN + OFFER_TEXT + TAG_LEN;
/// Length of the second, in bytes: kind, generation and number of the exchange, fresh bytes, number of the path, random bytes, an X25519 key, an ML-KEM-768 ciphertext, tag.
pub const ANSWER_LEN: usize = HEADER_LEN + ANSWER_TEXT + TAG_LEN;

/// Kind, generation and number of the exchange, in clear.
const NAME_LEN: usize = 6;
/// Random bytes in clear: no two messages have the same key, even if a nonce of a join, which has 32 bits, came twice.
const FRESH_LEN: usize = 16;
const HEADER_LEN: usize = NAME_LEN + FRESH_LEN;
const TAG_LEN: usize = 16;
const NONCE_LEN: usize = 12;
/// Where the X25519 key is: behind the number of the path and random bytes.
const X25519_KEY: Range<usize> = 33..65;
/// All that comes before what is ML-KEM's.
const COMMON: usize = X25519_KEY.end;
const OFFER_TEXT: usize = COMMON + 1184;
const ANSWER_TEXT: usize = COMMON + 1088;

const OFFER: u8 = 1;
const ANSWER: u8 = 2;

/// Keeps what this derives apart from everything else.
const LABEL: &[u8] = b"mptcpsec v2 path mix";

/// The half of an exchange that the offering end keeps: the private keys. Taking the answer consumes it.
pub struct PathOffer {
    exchange: Exchange,
    us: Speaker,
    fresh: [u8; FRESH_LEN],
    random: Box<Zeroizing<OfferSeed>>,
}

/// Random bytes to send, an X25519 private key, the seed of an ML-KEM key pair.
type OfferSeed = [u8; 32 + 32 + 64];

impl PathOffer {
    /// Returns its exchange.
    pub fn exchange(&self) -> Exchange {
        self.exchange
    }

    fn sent(&self) -> &[u8; 32] {
        self.random.first_chunk().expect("the seed is longer")
    }

    fn x25519(&self) -> Result<agreement::PrivateKey, PathKeyError> {
        private_key(&self.random[32..64])
    }

    /// Generated again when it is needed, so that its 2,400 bytes do not stay in memory for a round trip.
    fn ml_kem(&self) -> MlKem768KeyPair {
        mlkem768::generate_key_pair(*self.random.last_chunk().expect("the seed is longer"))
    }

    fn text(&self) -> Result<Vec<u8>, PathKeyError> {
        Ok([&[self.us.says()][..], &self.sent()[..], &public_key(&self.x25519()?)?, self.ml_kem().pk()]
            .concat())
    }
}

impl fmt::Debug for PathOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathOffer({:?})", self.exchange)
    }
}

/// The reason for which a message of an exchange is refused. It counts against the subflow like a wrong block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathKeyError {
    /// It was not sealed by the peer for this exchange.
    Forged,
    /// The peer sealed it without a usable key: an all-zero agreement (RFC 7748, section 6.1), or an invalid ML-KEM key (FIPS 203, section
    /// 7.2).
    Weak,
    /// The listener has numbered a path, which only the opener does.
    NumberedByListener,
}

/// A log for the analysis of connections. It gets the session id of the connection ([`ConnectionIdentity::session_id`]), and subflow,
/// number and both agreements of the exchange. With the messages of the exchange, which cross one path only, its secret can be computed.
pub type ShareLog<'a> = &'a dyn Fn(&[u8; 33], &[u8]);

/// The secrets of both directions that hide messages over single paths.
#[derive(Clone, Copy)]
pub struct PathKeys<'a> {
    ours: &'a Sealer,
    theirs: &'a Opener,
}

impl<'a> PathKeys<'a> {
    /// Those of a connection: what it seals with, and what it opens with.
    pub fn new(ours: &'a Sealer, theirs: &'a Opener) -> Self {
        Self { ours, theirs }
    }

    /// Seals a message of ours. Its key depends on its name and on `fresh`: its own fresh bytes, preceded in an answer by those of the
    /// offer.
    fn seal(self, kind: u8, exchange: Exchange, fresh: &Fresh<'_>, text: &[u8]) -> Vec<u8> {
        let (wire, secret) = self.ours.path_secret();
        let (key, nonce) = path_key(secret, kind, exchange, fresh);
        let mut message = Vec::with_capacity(HEADER_LEN + text.len() + TAG_LEN);
        message.extend_from_slice(&name(kind, wire, exchange));
        message.extend_from_slice(fresh.own);
        let header: [u8; HEADER_LEN] = message.as_slice().try_into().expect("name and fresh bytes");
        message.extend_from_slice(text);
        let tag = key.seal_with(nonce, &header, &mut message[HEADER_LEN..]);
        message.extend_from_slice(&tag);
        message
    }

    /// Opens a message of the peer. `offered` are the fresh bytes of our offer, if this is the answer to it.
    fn open<const TEXT: usize>(
        self,
        kind: u8,
        exchange: Exchange,
        offered: &[u8],
        message: &[u8],
    ) -> Result<Box<Zeroizing<[u8; TEXT]>>, PathKeyError> {
        let (header, sealed) = message.split_first_chunk::<HEADER_LEN>().ok_or(PathKeyError::Forged)?;
        let (said, own) = header.split_at(NAME_LEN);
        let wire = said[1];
        if *said != name(kind, wire, exchange) {
            return Err(PathKeyError::Forged);
        }
        let secret = self.theirs.path_secret(wire).ok_or(PathKeyError::Forged)?;
        let (key, nonce) = path_key(secret, kind, exchange, &Fresh { offered, own });
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let length = key.open_with(nonce, header, &mut sealed);
        let text = length.ok().and_then(|length| sealed.get(..length)).ok_or(PathKeyError::Forged)?;
        Ok(Box::new(Zeroizing::new(text.try_into().map_err(|_| PathKeyError::Forged)?)))
    }
}

/// The fresh bytes on which the key of a message depends.
struct Fresh<'a> {
    /// In an answer, those of the offer.
    offered: &'a [u8],
    /// Those of the message.
    own: &'a [u8],
}

impl ConnectionIdentity {
    /// Begins an exchange in which `us` sends the first message. Returns the message and the state to keep.
    ///
    /// # Errors
    /// [`PathKeyError::Weak`] if the source of randomness is broken.
    pub fn offer_path(
        &self,
        keys: PathKeys<'_>,
        us: Speaker,
        exchange: Exchange,
        random: &mut dyn Random,
    ) -> Result<(PathOffer, Vec<u8>), PathKeyError> {
        scrubbed(|| {
            let mut offer =
                PathOffer { exchange, us, fresh: [0; FRESH_LEN], random: Box::new(Zeroizing::new([0; 128])) };
            random.fill(&mut offer.fresh);
            random.fill(offer.random.as_mut_slice());
            let fresh = Fresh { offered: &[], own: &offer.fresh };
            let message = keys.seal(OFFER, exchange, &fresh, &offer.text()?);
            Ok((offer, message))
        })
    }

    /// Answers the message of the other side: returns our message and the result.
    ///
    /// # Errors
    /// [`PathKeyError`] tells the fault in the message.
    pub fn answer_path(
        &self,
        keys: PathKeys<'_>,
        (us, exchange): (Speaker, Exchange),
        message: &[u8],
        (random, log): (&mut dyn Random, ShareLog<'_>),
    ) -> Result<(Vec<u8>, Share), PathKeyError> {
        scrubbed(|| {
            let offered = keys.open::<OFFER_TEXT>(OFFER, exchange, &[], message)?;
            let path = us.path(offered[0])?;
            let (their_x25519, their_ml_kem) = (&offered[X25519_KEY], &offered[COMMON..]);
            let key = MlKem768PublicKey::try_from(their_ml_kem).map_err(|_| PathKeyError::Weak)?;
            if !validate_public_key(&key) {
                return Err(PathKeyError::Weak);
            }
            let mut fresh = [0; FRESH_LEN];
            random.fill(&mut fresh);
            let mut seed = Zeroizing::new([0; 32 + 32 + 32]);
            random.fill(seed.as_mut_slice());
            let x25519 = private_key(&seed[32..64])?;
            let (ciphertext, encapsulated) =
                mlkem768::encapsulate(&key, *seed.last_chunk().expect("the seed is longer"));
            let encapsulated = Zeroizing::new(encapsulated);
            let ours = [&[us.says()][..], &seed[..32], &public_key(&x25519)?, ciphertext.as_slice()];
            let text = Zeroizing::new(ours.concat());
            let agreed = agree(&x25519, their_x25519)?;
            let secret = self.mix(exchange, offered.as_slice(), &text, [&encapsulated, &agreed], log);
            let fresh = Fresh { offered: &message[NAME_LEN..HEADER_LEN], own: &fresh };
            Ok((keys.seal(ANSWER, exchange, &fresh, &text), Share { path, secret }))
        })
    }

    /// Takes the answer to our message.
    ///
    /// # Errors
    /// [`PathKeyError`] tells the fault in it; the exchange is over.
    pub fn finish_path(
        &self,
        keys: PathKeys<'_>,
        offer: PathOffer,
        message: &[u8],
        log: ShareLog<'_>,
    ) -> Result<Share, PathKeyError> {
        scrubbed(|| {
            let (exchange, us) = (offer.exchange, offer.us);
            let answered = keys.open::<ANSWER_TEXT>(ANSWER, exchange, &offer.fresh, message)?;
            let path = us.path(answered[0])?;
            let ciphertext =
                MlKem768Ciphertext::try_from(&answered[COMMON..]).map_err(|_| PathKeyError::Weak)?;
            let encapsulated =
                Zeroizing::new(mlkem768::decapsulate(offer.ml_kem().private_key(), &ciphertext));
            let agreed = agree(&offer.x25519()?, &answered[X25519_KEY])?;
            let text = Zeroizing::new(offer.text()?);
            let secret = self.mix(exchange, &text, answered.as_slice(), [&encapsulated, &agreed], log);
            Ok(Share { path, secret })
        })
    }

    fn mix(
        &self,
        exchange: Exchange,
        offered: &[u8],
        answered: &[u8],
        agreed: [&[u8; 32]; 2],
        log: ShareLog<'_>,
    ) -> MixSecret {
        let mut shown = Zeroizing::new([0; 12 + 64]);
        shown[..8].copy_from_slice(&exchange.subflow.0.to_be_bytes());
        shown[8..12].copy_from_slice(&exchange.number.to_be_bytes());
        shown[12..44].copy_from_slice(agreed[0]);
        shown[44..].copy_from_slice(agreed[1]);
        log(&self.session_id, shown.as_slice());
        mix(exchange, offered, answered, agreed)
    }
}

/// XL(path_d[g], "path", u64 subflow || u8 kind || u32 number || fresh bytes, 44): a key and a nonce for one message.
fn path_key(
    secret: &PathSecret,
    kind: u8,
    exchange: Exchange,
    fresh: &Fresh<'_>,
) -> (BlockKey, [u8; NONCE_LEN]) {
    let subflow = exchange.subflow.0.to_be_bytes();
    let context = [&subflow[..], &[kind], &exchange.number.to_be_bytes(), fresh.offered, fresh.own].concat();
    let mut bytes = Zeroizing::new([0; 32 + NONCE_LEN]);
    Hkdf::from_secret(secret.expose()).labelled("path", &context, bytes.as_mut_slice());
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&bytes[32..]);
    (BlockKey::filled_by(Suite::Aes256Gcm, |key, _| key.copy_from_slice(&bytes[..32])), nonce)
}

/// Returns the clear start of a message, before its fresh bytes.
fn name(kind: u8, generation: u8, exchange: Exchange) -> [u8; NAME_LEN] {
    let [a, b, c, d] = exchange.number.to_be_bytes();
    [kind, generation, a, b, c, d]
}

/// Returns the exchange of a message that crossed this subflow; `None` if it is too short.
pub fn exchange_of(subflow: SubflowTag, message: &[u8]) -> Option<Exchange> {
    let &[_, _, a, b, c, d] = message.first_chunk::<NAME_LEN>()?;
    Some(Exchange { subflow, number: u32::from_be_bytes([a, b, c, d]) })
}

/// Returns the secret from both messages and from the agreements of their shares.
fn mix(exchange: Exchange, offered: &[u8], answered: &[u8], agreed: [&[u8; 32]; 2]) -> MixSecret {
    MixSecret::extract(&[
        LABEL,
        &exchange.subflow.0.to_be_bytes(),
        &exchange.number.to_be_bytes(),
        agreed[0],
        agreed[1],
        offered,
        answered,
    ])
}

fn private_key(bytes: &[u8]) -> Result<agreement::PrivateKey, PathKeyError> {
    agreement::PrivateKey::from_private_key(&X25519, bytes).map_err(|_| PathKeyError::Weak)
}

fn public_key(key: &agreement::PrivateKey) -> Result<[u8; 32], PathKeyError> {
    let public = key.compute_public_key().map_err(|_| PathKeyError::Weak)?;
    public.as_ref().try_into().map_err(|_| PathKeyError::Weak)
}

fn agree(key: &agreement::PrivateKey, public: &[u8]) -> Result<Zeroizing<[u8; 32]>, PathKeyError> {
    let mut agreed = Zeroizing::new([0; 32]);
    let public = UnparsedPublicKey::new(&X25519, public);
    agreement::agree(key, public, PathKeyError::Weak, |secret| {
        agreed.copy_from_slice(secret);
        Ok(())
    })?;
    if agreed.as_slice().ct_eq(&[0; 32]).into() { Err(PathKeyError::Weak) } else { Ok(agreed) }
}

#[cfg(test)]
#[path = "path_key_tests.rs"]
mod tests;
