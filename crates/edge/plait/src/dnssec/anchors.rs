//! The keys that signatures must lead to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hickory_net::proto::dnssec::TrustAnchors;
use hickory_net::proto::serialize::txt::trust_anchor::Parser;

/// The trust anchors of DNSSEC: the keys that the signatures of an answer must lead to. Used by
/// [`HostBuilder::dnssec`](crate::HostBuilder::dnssec).
///
/// ```
/// use plait::DnssecAnchors;
///
/// let internet = DnssecAnchors::root();
/// let own_zone = "corp.example. IN DNSKEY 257 3 15 l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4=\n";
/// let private: DnssecAnchors = own_zone.parse()?;
/// # drop((internet, private));
/// # Ok::<(), plait::DnssecAnchorsError>(())
/// ```
#[derive(Clone)]
pub struct DnssecAnchors(pub(super) Arc<TrustAnchors>);

/// A text without trust anchors, or with a malformed one.
#[derive(Debug, thiserror::Error)]
#[error("not DNSKEY records in the format of zone files: {0}")]
pub struct DnssecAnchorsError(String);

impl DnssecAnchors {
    /// The keys of the root of the public DNS that IANA publishes: KSK-2017 (20326) and KSK-2024 (38696).
    #[must_use]
    pub fn root() -> Self {
        Self(Arc::new(TrustAnchors::default()))
    }
}

impl FromStr for DnssecAnchors {
    type Err = DnssecAnchorsError;

    /// Reads DNSKEY records in the format of zone files, in place of the keys of the root. All DNSKEY records of a private zone must be
    /// among them, or one that signs a chain from the root of that network.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |error: &dyn fmt::Display| DnssecAnchorsError(error.to_string());
        // The parser ends a record at the end of its line.
        let text = format!("{text}\n");
        let found = Parser::new(&text[..]).parse().map_err(|error| wrong(&error))?;
        if found.is_empty() {
            return Err(DnssecAnchorsError("there is none".to_owned()));
        }
        Ok(Self(Arc::new(text.parse().map_err(|error| wrong(&error))?)))
    }
}

impl fmt::Debug for DnssecAnchors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnssecAnchors").finish_non_exhaustive()
    }
}
