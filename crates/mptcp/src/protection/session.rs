//! What the two hosts agreed on: keys, numbers, checksums.

use plait_base::Dsn;
use plait_wire::{CapableFlags, DataAck, MpCapable};

use super::keys::Key;
use crate::data_space::DataSpace;

/// The protocol version spoken (RFC 8684).
pub(crate) const VERSION: u8 = 1;
/// The one that goes with scrambling and sealing.
pub(crate) const HIGHER_VERSION: u8 = 2;

/// Data sequence numbers of both directions, and what the options about them have shown so far.
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

    /// The Data-ACK for everything below `next`, as long as the peer wants it.
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
    /// Scrambling is offered, or agreed on: version 2 with flag D.
    pub(crate) scrambled: bool,
    /// DSS checksums are in use.
    pub(crate) checksum: bool,
    /// The peer wants no further subflows to its initial address (flag C).
    pub(crate) denies_initial_address: bool,
    /// Those of the peer exist with its key.
    pub(crate) numbers: Numbers,
}

impl Session {
    pub(crate) fn new(local: Key, checksum: bool) -> Self {
        let numbers = Numbers::new(DataSpace::new(local.initial_dsn()), DataSpace::new(Dsn::new(0)));
        Self { local, remote: None, scrambled: false, checksum, denies_initial_address: false, numbers }
    }

    /// The session that answers this offer.
    pub(super) fn answering(offer: &MpCapable, local: Key, checksum: bool) -> Self {
        let mut session = Self::new(local, checksum || offer.flags.contains(CapableFlags::CHECKSUM));
        session.denies_initial_address = offer.flags.contains(CapableFlags::DENY_JOIN_ID0);
        session
    }

    /// The version that is spoken.
    pub(crate) fn version(&self) -> u8 {
        if self.scrambled { HIGHER_VERSION } else { VERSION }
    }

    /// What the SYN/ACK says; `false` if it is no answer to what we have offered.
    pub(super) fn take_answer(&mut self, answer: &MpCapable) -> bool {
        let Some(key) = answer.sender_key.filter(|_| self.is_answered_by(answer)) else { return false };
        self.scrambled = self.scrambled && asks_for_scrambling(answer);
        self.learn_key(key);
        self.checksum |= answer.flags.contains(CapableFlags::CHECKSUM);
        self.denies_initial_address = answer.flags.contains(CapableFlags::DENY_JOIN_ID0);
        true
    }

    /// What the third ACK says; `false` if our key in it is not ours.
    pub(super) fn take_keys(&mut self, keys: &OpenerKeys) -> bool {
        let is_ours = keys.version == self.version() && self.local.is(&keys.listener);
        if is_ours {
            self.learn_key(keys.opener);
        }
        is_ours
    }

    /// Whether the third ACK repeats our key, and asks for another version or algorithm than was agreed on, or for an
    /// extension: what it wants is not Multipath TCP as we know it (RFC 8684, section 3.1).
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
    // What the flags of a higher version mean does not matter: it is answered with ours.
    *version >= VERSION && sender_key.is_none() && (*version > VERSION || has_known_flags(*flags))
}

/// Version 2 with flag D, and nothing that is unknown.
pub(super) fn asks_for_scrambling(option: &MpCapable) -> bool {
    let CapableFlags(flags) = option.flags;
    option.version == HIGHER_VERSION
        && option.flags.contains(CapableFlags::SCRAMBLE)
        && has_known_flags(CapableFlags(flags & !CapableFlags::SCRAMBLE))
}

/// HMAC-SHA256 and no other algorithm, and no extension that would change the option.
fn has_known_flags(flags: CapableFlags) -> bool {
    const ALGORITHMS: u8 = 0x1f;
    flags.0 & ALGORITHMS == CapableFlags::HMAC_SHA256 && !flags.contains(CapableFlags::EXTENSIBILITY)
}
