//! The end of a connection whose client may not have it any more.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use plait::Fingerprint;
use plait_proxy::clients::Standing;
use plait_proxy::reached::Reached;
use tokio::sync::Notify;

use crate::linux::door::Door;

/// A connection and the key that it has proved.
pub(super) struct Bound {
    door: Arc<Door>,
    key: Fingerprint,
    reached: OnceLock<Reached>,
    is_joined: Notify,
}

/// The reason that a connection ends before its client or its destination has ended it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Revoked,
    Expired,
    NotAllowed,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revoked => "the client is not authorized any more",
            Self::Expired => "the access of the client has expired",
            Self::NotAllowed => "the client may not use this destination any more",
        })
    }
}

impl Bound {
    pub(super) fn new(door: Arc<Door>, key: Fingerprint) -> Self {
        Self { door, key, reached: OnceLock::new(), is_joined: Notify::new() }
    }

    /// Notes the destination that the connection was joined to.
    pub(super) fn reaches(&self, reached: Reached) {
        // A connection is joined once.
        let _ = self.reached.set(reached);
        self.is_joined.notify_one();
    }

    /// Completes when the connection has to end.
    pub(super) async fn over(&self) -> Over {
        let mut changes = self.door.changes();
        loop {
            changes.mark_unchanged();
            if let Some(over) = self.verdict() {
                return over;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { pending().await },
                () = self.is_joined.notified() => {}
            }
        }
    }

    fn verdict(&self) -> Option<Over> {
        match self.door.standing(self.key) {
            Standing::Gone => Some(Over::Revoked),
            Standing::Allowed(client) if client.has_expired(Timestamp::now()) => Some(Over::Expired),
            Standing::Allowed(client) => {
                let may_stay = |reached: &Reached| reached.is_allowed(client.allow.as_deref());
                self.reached.get().is_some_and(|reached| !may_stay(reached)).then_some(Over::NotAllowed)
            }
            Standing::Unknown => None,
        }
    }
}
