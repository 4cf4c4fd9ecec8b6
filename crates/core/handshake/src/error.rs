//! Errors of a handshake.

use core::fmt;

use rustls::CertificateError;

use crate::fingerprint::Fingerprint;

/// The reason for which there is no sealed connection. In each case the connection ends before a byte of data.
#[derive(Clone, PartialEq, Debug)]
pub enum HandshakeError {
    /// The peer sent more than [`MAX_PEER_BYTES`](crate::MAX_PEER_BYTES), or a message beyond the largest length.
    TooLong,
    /// The peer sent bytes that violate the protocol.
    Malformed(&'static str),
    /// The server's confirmation does not match the client's keys: the negotiation, or a prologue, was changed on the path.
    Unconfirmed,
    /// Unmapped bytes after the peer's last handshake message.
    BytesBehindTheEnd,
    /// The peer's public key leads to a secret that any host can compute, or lies on no curve.
    WeakKey,
    /// No cipher suite that both hosts have, or one that was not offered.
    NoCommonSuite,
    /// The server's key is not a pinned one: it was replaced, or there is a man in the middle.
    WrongServerKey {
        /// The key that the server has shown.
        shown: Fingerprint,
    },
    /// The client's key is not among the authorised ones.
    UnknownClientKey {
        /// The key that the client has shown.
        shown: Fingerprint,
    },
    /// A raw public key other than Ed25519.
    KeyType,
    /// The peer has, or requires, a different kind of identity: a certificate, a raw key, or none.
    IdentityKind,
    /// The peer uses a protocol other than `mptcpsec/2` inside TLS.
    Protocol,
    /// The peer gave up and sent a TLS alert. The number is from RFC 8446, section 6.
    PeerGaveUp(u8),
    /// Any other error of TLS, mostly about certificates.
    Tls(rustls::Error),
    /// The local settings make every handshake impossible.
    Settings(&'static str),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the peer's handshake is too long"),
            Self::Malformed(what) => write!(f, "malformed handshake: {what}"),
            Self::Unconfirmed => f.write_str(
                "the server does not confirm the keys: the negotiation, or a prologue, was changed on the path",
            ),
            Self::BytesBehindTheEnd => {
                f.write_str("the peer sent unmapped bytes after the end of the handshake")
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
            Self::PeerGaveUp(alert) => write!(f, "the peer gave up: {}", alert_words(*alert)),
            Self::Tls(rustls::Error::InvalidCertificate(error)) => write_certificate_error(error, f),
            Self::Tls(error) => write!(f, "TLS: {error}"),
            Self::Settings(what) => write!(f, "settings: {what}"),
        }
    }
}

impl core::error::Error for HandshakeError {}

/// Returns the meaning of a TLS alert here (RFC 8446, section 6.2).
fn alert_words(alert: u8) -> String {
    match alert {
        42 | 45 | 46 | 48 => "it does not trust our certificate or key".to_owned(),
        UNSUPPORTED_CERTIFICATE => "it has no identity of the kind that we require".to_owned(),
        49 => "it denies us access".to_owned(),
        116 => "it accepts only clients with a key".to_owned(),
        other => format!("TLS alert {other}"),
    }
}

/// The alert of a host with an identity of a kind that the peer does not accept (RFC 7250, section 4.2).
pub(crate) const UNSUPPORTED_CERTIFICATE: u8 = 43;

const EXPIRED: &str = "the server's certificate has expired";
const NOT_YET_VALID: &str = "the server's certificate is not valid yet";

/// Whether this text of a [`HandshakeError`] is about a certificate that has expired or is not valid yet. A failed connection keeps the text
/// alone.
#[must_use]
pub fn is_about_dates(why: &str) -> bool {
    [EXPIRED, NOT_YET_VALID].contains(&why)
}

/// Only a server is identified by a certificate.
fn write_certificate_error(error: &CertificateError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => f.write_str(EXPIRED),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            f.write_str(NOT_YET_VALID)
        }
        CertificateError::UnknownIssuer => {
            f.write_str("the server's certificate leads to none of the roots that are trusted")
        }
        CertificateError::BadSignature => {
            f.write_str("the server's certificate is not signed by the root that it names")
        }
        CertificateError::NotValidForName => f.write_str("the server's certificate is for another name"),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let (expected, presented) = (expected.to_str(), presented.join(", "));
            write!(f, "the server's certificate is not for {expected} but for {presented}")
        }
        // The enum is another crate's and open-ended.
        other => write!(f, "the server's certificate: {other}"),
    }
}

/// An error of our verifiers, passed through rustls.
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
            rustls::Error::InvalidCertificate(CertificateError::Other(ref other)) => {
                match other.0.downcast_ref::<Found>() {
                    Some(Found(found)) => found.clone(),
                    None => Self::Tls(error),
                }
            }
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
