//! Options that a subflow sends beside data: those that wait for a segment, and those of its reset.

use plait_wire::{AddAddr, MpReset, ResetReason};

/// An option that waits for a segment without payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    AddAddr(AddAddr),
    RemoveAddr(u8),
    Prio { backup: bool },
    Fail { dsn: u64 },
}

/// The options of a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ResetInfo {
    /// MP_FASTCLOSE: the connection is over, not just this subflow.
    pub(crate) fast_close: bool,
    /// MP_FAIL: a checksum failed here.
    pub(crate) fail: Option<u64>,
    /// MP_TCPRST.
    pub(crate) reason: Option<MpReset>,
}

impl ResetInfo {
    /// Returns the options of a reset for this reason.
    pub(crate) fn because(reason: ResetReason) -> Self {
        Self { reason: Some(MpReset { transient: false, reserved: 0, reason }), ..Self::default() }
    }

    /// The same, with permission to try again.
    pub(crate) fn for_now(reason: ResetReason) -> Self {
        Self { reason: Some(MpReset { transient: true, reserved: 0, reason }), ..Self::default() }
    }
}
