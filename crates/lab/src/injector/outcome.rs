//! The result of the injector for a packet.

use plait_base::Duration;

use super::AttackName;
use crate::packet::Frame;

/// What the injector did to a packet, to be logged when it leaves the path.
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

/// What comes of a packet.
#[derive(Default)]
pub(crate) struct Outcome {
    /// In this order; all in the direction of the packet.
    pub(crate) packets: Vec<Outgoing>,
    /// What goes the other way.
    pub(crate) back: Vec<Outgoing>,
    /// What was done that no packet shows: some go no further, some later.
    pub(crate) unseen: Vec<Mark>,
    pub(crate) cut: Option<Cut>,
}

/// The path, or all of them, goes dead.
pub(crate) struct Cut {
    pub(crate) mark: Mark,
    pub(crate) lasting: Duration,
    pub(crate) all_paths: bool,
}
