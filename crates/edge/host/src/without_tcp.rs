//! The place of `over_tun` in builds without TCP: its opening is an error.

use std::io;

use crate::carriers::{CarrierKind, Opened};
use crate::error::Error;
use crate::ranges::Ranges;
use crate::sys::SourceCheck;

/// Fails: only Linux has TUN devices, and only builds with the feature `tcp` use them.
pub(crate) fn open(_ranges: &Ranges, _source_check: SourceCheck) -> Result<Opened, Error> {
    if CarrierKind::Tcp.is_built() {
        return Err(Error::tun(io::Error::new(io::ErrorKind::Unsupported, "TUN is only there for Linux")));
    }
    Err(Error::NotBuilt { carrier: CarrierKind::Tcp })
}
