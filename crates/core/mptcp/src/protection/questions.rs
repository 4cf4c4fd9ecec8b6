//! The questions that the connection asks about its protection. Each names one consequence of the protection for the code that asks.

use super::Protection;

/// Lower limit of TCP's window on a sealed connection.
const MIN_SEALED_WINDOW: u32 = 64 << 10;
/// Upper limit of that window before the handshake is complete: the memory that a peer can occupy without finishing the handshake.
const HANDSHAKE_WINDOW: u32 = 64 << 10;

impl Protection {
    /// Whether both sides have the keys of a sealed connection.
    pub(crate) fn has_sealing_keys(&self) -> bool {
        self.established().is_some()
    }

    /// Whether bytes leave as sealed blocks and control records, and no longer with mappings in the clear.
    pub(crate) fn sends_blocks(&self) -> bool {
        self.has_sealing_keys()
    }

    /// Whether bytes and options count as they arrive. If not, only handshake messages, blocks and authenticated options count.
    pub(crate) fn takes_clear_bytes(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => true,
            Self::Sealed(_) => false,
        }
    }

    /// Whether a FIN of TCP shows that the peer has ended a subflow. Any host on the path can forge one, which a connection that must be
    /// sealed does not accept.
    pub(crate) fn believes_fin(&self) -> bool {
        self.takes_clear_bytes()
    }

    /// Whether Data-ACKs are authenticated. They then show the deliveries of a subflow, and TCP's acknowledgments, which an attacker on the
    /// path can forge, do not.
    pub(crate) fn authenticates_data_acks(&self) -> bool {
        self.has_sealing_keys()
    }

    /// Whether a complete join shows that a subflow works. If not, an attacker that cuts all paths may have let the join pass, and the
    /// subflow has to last.
    pub(crate) fn believes_join(&self) -> bool {
        !self.has_sealing_keys()
    }

    /// Whether announcements and withdrawals travel in records, which the stream repeats, and not in options, which may be lost.
    pub(crate) fn sends_signals_in_records(&self) -> bool {
        self.has_sealing_keys()
    }

    /// Whether the peer has shown that options get through in both directions: by a Data-ACK, or by the end of the handshake.
    pub(crate) fn has_shown_options(&self) -> bool {
        self.is_confirmed() || self.has_sealing_keys()
    }

    /// Returns TCP's window for this room in the receive buffer.
    pub(crate) fn tcp_window(&self, room: u32) -> u32 {
        match self {
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => room,
            // MAX_DATA limits the data. This window must let control blocks through as well.
            Self::Sealed(_) if self.has_sealing_keys() => room.max(MIN_SEALED_WINDOW),
            // The peer is not authenticated yet, and a handshake is not longer than this.
            Self::Sealed(_) => room.min(HANDSHAKE_WINDOW),
        }
    }
}
