//! The result of the injector for a packet.

use plait_base::Duration;

use super::AttackName;
use crate::packet::Frame;

/// The injector's action on a packet, to be logged when it leaves the path.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) attack: AttackName,
    pub(crate) flow: u32,
    pub(crate) what: String,
}

/// A packet that goes on.
pub(crate) struct Outgoing {
    pub(crate) frame: Frame,
    pub(crate) mark: Option<Mark>,
    /// How long it waits behind the link.
    pub(crate) delay: Duration,
}

impl Outgoing {
    pub(crate) const fn untouched(frame: Frame) -> Self {
        Self { frame, mark: None, delay: Duration::ZERO }
    }
}

/// The result for a packet.
#[derive(Default)]
pub(crate) struct Outcome {
    /// In this order; all in the direction of the packet.
    pub(crate) packets: Vec<Outgoing>,
    /// Packets in the other direction.
    pub(crate) back: Vec<Outgoing>,
    /// Actions that no packet shows: dropped or delayed packets.
    pub(crate) unseen: Vec<Mark>,
    pub(crate) cut: Option<Cut>,
}

/// The path, or all of them, goes dead.
pub(crate) struct Cut {
    pub(crate) mark: Mark,
    pub(crate) lasting: Duration,
    pub(crate) all_paths: bool,
}
