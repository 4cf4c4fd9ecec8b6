//! The handshake that opens a subflow, and the progress of the subflow.

use plait_base::{Duration, Instant};

/// First interval of repeating the third ACK; doubles.
const THIRD_ACK_INTERVAL: Duration = Duration::from_millis(250);
/// Tries after which the subflow is given up.
const THIRD_ACK_TRIES: u8 = 6;

/// The handshake that opened a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// MP_CAPABLE, by us.
    FirstActive,
    /// MP_CAPABLE, by the peer.
    FirstPassive,
    /// MP_JOIN, by us.
    JoinActive {
        nonce: u32,
        /// Taken from the SYN/ACK.
        peer_nonce: Option<u32>,
    },
    /// MP_JOIN, by the peer.
    JoinPassive { nonce: u32, peer_nonce: u32 },
}

/// The nonces of a join: ours and the peer's.
#[derive(Clone, Copy)]
pub(crate) struct Nonces {
    pub(crate) own: u32,
    pub(crate) theirs: u32,
}

/// Progress of a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Its handshake is not complete.
    Opening,
    /// Joined by us. The third ACK is repeated until the peer shows that it has received it.
    Unconfirmed {
        /// When to repeat it.
        again: Instant,
        /// How often it was repeated.
        tries: u8,
    },
    /// In use.
    Open,
    /// It is being closed and carries nothing new.
    Leaving,
    /// TCP has ended; TIME-WAIT may be running.
    Over,
}

/// The state of a third ACK that the peer has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThirdAck {
    /// It need not be repeated now.
    NotDue,
    /// It must be repeated.
    Again,
    /// It was repeated often enough.
    Unanswered,
}

impl Stage {
    /// Returns the stage of a subflow whose third ACK is sent now.
    pub(super) fn unconfirmed(now: Instant) -> Self {
        Self::Unconfirmed { again: now + THIRD_ACK_INTERVAL, tries: 0 }
    }

    /// Returns whether the third ACK must be repeated, and counts the repetition.
    pub(super) fn on_third_ack_time(&mut self, now: Instant) -> ThirdAck {
        match self {
            Self::Unconfirmed { again, .. } if *again > now => ThirdAck::NotDue,
            Self::Unconfirmed { again: _, tries } if *tries >= THIRD_ACK_TRIES => ThirdAck::Unanswered,
            Self::Unconfirmed { again, tries } => {
                *again = now + THIRD_ACK_INTERVAL * 2u32.pow(u32::from(*tries) + 1);
                *tries += 1;
                ThirdAck::Again
            }
            Self::Opening | Self::Open | Self::Leaving | Self::Over => ThirdAck::NotDue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_ack_is_repeated_six_times_at_doubling_intervals() {
        let mut stage = Stage::unconfirmed(Instant::ZERO);
        let mut sent = Vec::new();
        while let Stage::Unconfirmed { again, .. } = stage {
            assert_eq!(stage.on_third_ack_time(again - Duration::from_millis(1)), ThirdAck::NotDue);
            if stage.on_third_ack_time(again) == ThirdAck::Unanswered {
                break;
            }
            sent.push(again.as_nanos() / 1_000_000);
        }
        assert_eq!(sent, [250, 750, 1750, 3750, 7750, 15_750]);
        assert_eq!(Stage::Open.on_third_ack_time(Instant::ZERO), ThirdAck::NotDue);
    }
}
