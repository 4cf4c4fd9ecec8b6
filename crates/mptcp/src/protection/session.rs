//! What the two hosts agreed on: keys, numbers, checksums.

use base::Dsn;
use wire::DataAck;

use crate::data_space::DataSpace;
use crate::protection::keys::Key;

/// The protocol version spoken (RFC 8684).
pub(crate) const VERSION: u8 = 1;
/// The one that goes with scrambling and sealing.
pub(crate) const HIGHER_VERSION: u8 = 2;

/// One Multipath TCP session.
pub(crate) struct Session {
    /// `None` on a sealed connection, which has other secrets.
    pub(crate) local: Option<Key>,
    /// Unknown until the peer has sent it (on the SYN/ACK, or on the third ACK).
    pub(crate) remote: Option<Key>,
    /// Scrambling is offered, or agreed on: version 2 with flag D.
    pub(crate) scrambled: bool,
    /// DSS checksums are in use.
    pub(crate) checksum: bool,
    pub(crate) outgoing: DataSpace,
    /// Exists with the remote key.
    pub(crate) incoming: DataSpace,
    /// The peer wants no further subflows to its initial address (flag C).
    pub(crate) denies_initial_address: bool,
    /// The peer uses 8-byte data sequence numbers and is answered with 8-byte Data-ACKs.
    pub(crate) long_acks: bool,
    /// A Data-ACK arrived: DSS options pass in both directions, further subflows may be opened.
    pub(crate) is_confirmed: bool,
    /// A mapping arrived: options pass with data, towards us.
    pub(crate) is_mapped: bool,
}

impl Session {
    pub(crate) fn new(local: Key, checksum: bool) -> Self {
        let outgoing = DataSpace::new(local.initial_dsn());
        Self {
            local: Some(local),
            remote: None,
            scrambled: false,
            checksum,
            outgoing,
            incoming: DataSpace::new(Dsn::new(0)),
            denies_initial_address: false,
            long_acks: true,
            is_confirmed: false,
            is_mapped: false,
        }
    }

    /// The session of a sealed connection: numbers only.
    pub(crate) fn sealed(outgoing: DataSpace, incoming: DataSpace) -> Self {
        Self {
            local: None,
            remote: None,
            scrambled: false,
            checksum: false,
            outgoing,
            incoming,
            denies_initial_address: false,
            long_acks: true,
            is_confirmed: false,
            is_mapped: true,
        }
    }

    /// The version that is spoken, unless it is a sealed connection's.
    pub(crate) fn version(&self) -> u8 {
        if self.scrambled { HIGHER_VERSION } else { VERSION }
    }

    pub(crate) fn learn_key(&mut self, key: [u8; 8]) {
        let key = Key::new(key);
        self.incoming = DataSpace::new(key.initial_dsn());
        self.remote = Some(key);
    }

    /// The Data-ACK for everything below `next`, as long as the peer wants it.
    pub(crate) fn data_ack(&self, next: u64) -> DataAck {
        let dsn = self.incoming.dsn(next);
        if self.long_acks { DataAck::Long(dsn.bits()) } else { DataAck::Short(dsn.low32()) }
    }
}
