//! The place of `udp` in builds without UDP: its opening is an error.

use crate::carriers::{CarrierKind, Opened, Setup};
use crate::error::Error;

/// Fails: only builds with the feature `udp` have sockets of UDP.
pub(crate) fn open(_setup: &Setup<'_>) -> Result<Opened, Error> {
    Err(Error::NotBuilt { carrier: CarrierKind::Udp })
}
