//! The result of the negotiation: keys, numbers, checksums.

use plait_base::Dsn;
use plait_wire::{CapableFlags, DataAck, MpCapable};

use super::keys::Key;
use crate::data_space::DataSpace;

/// The protocol version in use (RFC 8684).
pub(crate) const VERSION: u8 = 1;
/// The protocol version for scrambling and sealing.
pub(crate) const HIGHER_VERSION: u8 = 2;

/// Data sequence numbers of both directions, and the results of their options so far.
pub(crate) struct Numbers {
    pub(crate) outgoing: DataSpace,
    pub(crate) incoming: DataSpace,
    /// The peer uses 8-byte data sequence numbers and is answered with 8-byte Data-ACKs.
    pub(crate) long_acks: bool,
    /// A Data-ACK arrived: DSS options pass in both directions, further subflows may be opened.
    pub(crate) is_confirmed: bool,
    /// A mapping arrived: options pass with data, towards us.
    pub(crate) is_mapped: bool,
}

impl Numbers {
    pub(crate) fn new(outgoing: DataSpace, incoming: DataSpace) -> Self {
        Self { outgoing, incoming, long_acks: true, is_confirmed: false, is_mapped: false }
    }

    /// Returns the Data-ACK for everything below `next`, in the length that the peer wants.
    pub(crate) fn data_ack(&self, next: u64) -> DataAck {
        let dsn = self.incoming.dsn(next);
        if self.long_acks { DataAck::Long(dsn.bits()) } else { DataAck::Short(dsn.low32()) }
    }
}

/// One Multipath TCP session whose keys are exchanged in the clear (RFC 8684, section 3.1).
pub(crate) struct Session {
    pub(crate) local: Key,
    /// Unknown until the peer has sent it (on the SYN/ACK, or on the third ACK).
    pub(crate) remote: Option<Key>,
    /// Whether scrambling is offered or negotiated: version 2 with flag D.
    pub(crate) scrambled: bool,
    /// Whether DSS checksums are in use.
    pub(crate) checksum: bool,
    /// Whether the peer wants no further subflows to its initial address (flag C).
    pub(crate) denies_initial_address: bool,
    /// The numbers of the peer exist once its key is known.
    pub(crate) numbers: Numbers,
}

impl Session {
    pub(crate) fn new(local: Key, checksum: bool) -> Self {
        let numbers = Numbers::new(DataSpace::new(local.initial_dsn()), DataSpace::new(Dsn::new(0)));
        Self { local, remote: None, scrambled: false, checksum, denies_initial_address: false, numbers }
    }

    /// Returns the session that answers this offer.
    pub(super) fn answering(offer: &MpCapable, local: Key, checksum: bool) -> Self {
        let mut session = Self::new(local, checksum || offer.flags.contains(CapableFlags::CHECKSUM));
        session.denies_initial_address = offer.flags.contains(CapableFlags::DENY_JOIN_ID0);
        session
    }

    /// Returns the protocol version in use.
    pub(crate) fn version(&self) -> u8 {
        if self.scrambled { HIGHER_VERSION } else { VERSION }
    }

    /// Handles the SYN/ACK. Returns `false` if it does not match our offer.
    pub(super) fn take_answer(&mut self, answer: &MpCapable) -> bool {
        let Some(key) = answer.sender_key.filter(|_| self.is_answered_by(answer)) else { return false };
        self.scrambled = self.scrambled && asks_for_scrambling(answer);
        self.learn_key(key);
        self.checksum |= answer.flags.contains(CapableFlags::CHECKSUM);
        self.denies_initial_address = answer.flags.contains(CapableFlags::DENY_JOIN_ID0);
        true
    }

    /// Handles the third ACK. Returns `false` if it does not repeat our key.
    pub(super) fn take_keys(&mut self, keys: &OpenerKeys) -> bool {
        let is_ours = keys.version == self.version() && self.local.is(&keys.listener);
        if is_ours {
            self.learn_key(keys.opener);
        }
        is_ours
    }

    /// Whether the third ACK repeats our key but asks for another version, algorithm or extension than was negotiated: it is not a
    /// Multipath TCP that we know (RFC 8684, section 3.1).
    pub(super) fn is_contradicted_by(&self, keys: &OpenerKeys) -> bool {
        self.local.is(&keys.listener) && (keys.version != self.version() || !has_known_flags(keys.flags))
    }

    fn learn_key(&mut self, key: [u8; 8]) {
        let key = Key::new(key);
        self.numbers.incoming = DataSpace::new(key.initial_dsn());
        self.remote = Some(key);
    }

    fn is_answered_by(&self, answer: &MpCapable) -> bool {
        let is_regular = answer.version == VERSION && has_known_flags(answer.flags);
        answer.receiver_key.is_none() && (is_regular || (self.scrambled && asks_for_scrambling(answer)))
    }
}

/// The keys of a third ACK.
pub(crate) struct OpenerKeys {
    version: u8,
    flags: CapableFlags,
    opener: [u8; 8],
    listener: [u8; 8],
}

impl OpenerKeys {
    pub(crate) fn of(capable: &MpCapable) -> Option<Self> {
        let (opener, listener) = (capable.sender_key?, capable.receiver_key?);
        Some(Self { version: capable.version, flags: capable.flags, opener, listener })
    }
}

/// Whether we can answer a SYN with this option.
pub(super) fn is_acceptable_offer(offer: &MpCapable) -> bool {
    let MpCapable { version, flags, sender_key, receiver_key: _, data_length: _, checksum: _ } = offer;
    // The flags of a higher version do not matter: the answer has our version.
    *version >= VERSION && sender_key.is_none() && (*version > VERSION || has_known_flags(*flags))
}

/// Whether the option asks for scrambling: version 2 with flag D, and no unknown flag.
pub(super) fn asks_for_scrambling(option: &MpCapable) -> bool {
    let CapableFlags(flags) = option.flags;
    option.version == HIGHER_VERSION
        && option.flags.contains(CapableFlags::SCRAMBLE)
        && has_known_flags(CapableFlags(flags & !CapableFlags::SCRAMBLE))
}

/// Whether the flags select HMAC-SHA256, no other algorithm, and no extension that would change the option.
fn has_known_flags(flags: CapableFlags) -> bool {
    const ALGORITHMS: u8 = 0x1f;
    flags.0 & ALGORITHMS == CapableFlags::HMAC_SHA256 && !flags.contains(CapableFlags::EXTENSIBILITY)
}
