//! How a handshake fails.

use core::fmt;

use crate::fingerprint::Fingerprint;

/// Why there is no sealed connection. Whatever it is, the connection ends before a byte of data.
#[derive(Clone, PartialEq, Debug)]
pub enum HandshakeError {
    /// The peer sent more than [`MAX_PEER_BYTES`](crate::MAX_PEER_BYTES), or one message longer than any can be.
    TooLong,
    /// Bytes that no peer sends who follows the rules.
    Malformed(&'static str),
    /// Unmapped bytes behind the peer's last handshake message.
    BytesBehindTheEnd,
    /// The peer's public key leads to a secret that anybody can compute, or lies on no curve.
    WeakKey,
    /// No cipher suite that both hosts have, or one that was not offered.
    NoCommonSuite,
    /// The server's key is none of the pinned ones. Either it was replaced, or somebody is in between.
    WrongServerKey {
        /// The key it showed.
        shown: Fingerprint,
    },
    /// The client's key is not among the authorised ones.
    UnknownClientKey {
        /// The key it showed.
        shown: Fingerprint,
    },
    /// A raw public key that is not of Ed25519.
    KeyType,
    /// The peer has, or wants, another kind of identity than we: a certificate, a raw key, or none at all.
    IdentityKind,
    /// The peer speaks another protocol than `mptcpsec/2` inside TLS.
    Protocol,
    /// The peer gave up and told us why in a TLS alert; the number is of RFC 8446, section 6.
    PeerGaveUp(u8),
    /// Any other complaint of TLS, most of all about certificates.
    Tls(rustls::Error),
    /// Our own settings make no handshake possible.
    Settings(&'static str),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the peer's handshake is longer than any handshake is"),
            Self::Malformed(what) => write!(f, "malformed handshake: {what}"),
            Self::BytesBehindTheEnd => {
                f.write_str("the peer sent unmapped bytes behind the end of the handshake")
            }
            Self::WeakKey => f.write_str("the peer's public key is invalid"),
            Self::NoCommonSuite => f.write_str("no cipher suite that both hosts have"),
            Self::WrongServerKey { shown } => {
                write!(f, "the server shows the key {shown}, which is not trusted")
            }
            Self::UnknownClientKey { shown } => write!(f, "the client's key {shown} is not authorised"),
            Self::KeyType => f.write_str("the peer's raw public key is not an Ed25519 key"),
            Self::IdentityKind => f.write_str("the two hosts want different kinds of identity"),
            Self::Protocol => f.write_str("the peer does not speak mptcpsec/2"),
            Self::PeerGaveUp(alert) => write!(f, "the peer gave up: TLS alert {alert}"),
            Self::Tls(error) => write!(f, "TLS: {error}"),
            Self::Settings(what) => write!(f, "settings: {what}"),
        }
    }
}

impl core::error::Error for HandshakeError {}

/// What a verifier of ours found, on its way through rustls.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Found(pub(crate) HandshakeError);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl core::error::Error for Found {}

impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::Other(ref other) => match other.0.downcast_ref::<Found>() {
                Some(Found(found)) => found.clone(),
                None => Self::Tls(error),
            },
            rustls::Error::AlertReceived(alert) => Self::PeerGaveUp(u8::from(alert)),
            rustls::Error::NoApplicationProtocol => Self::Protocol,
            rustls::Error::PeerSentOversizedRecord => Self::TooLong,
            rustls::Error::NoCertificatesPresented
            | rustls::Error::PeerIncompatible(
                rustls::PeerIncompatible::IncorrectCertificateTypeExtension
                | rustls::PeerIncompatible::UnsolicitedCertificateTypeExtension,
            ) => Self::IdentityKind,
            rustls::Error::PeerIncompatible(rustls::PeerIncompatible::NoCipherSuitesInCommon) => {
                Self::NoCommonSuite
            }
            // The enum is another crate's and open-ended; all else goes through as it is.
            other => Self::Tls(other),
        }
    }
}
