//! Nobody can ask a running plait what it does.

use anyhow::bail;
use plait::Host;

use crate::options::Options;
use crate::running::Running;

/// That nobody asks.
#[must_use]
pub(crate) struct Control;

/// # Errors
/// The options ask for a socket.
pub(crate) fn open(options: &Options, _host: &Host, _running: &Running) -> anyhow::Result<Control> {
    if options.control.is_some() {
        bail!("a control socket is only there for Linux\n  fix: leave --control out");
    }
    Ok(Control)
}
