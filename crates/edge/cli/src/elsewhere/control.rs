//! A running plait cannot be queried on this system.

use anyhow::bail;
use plait::Host;

use crate::options::Options;
use crate::running::Running;

/// A control socket without queries.
#[must_use]
pub(crate) struct Control;

/// # Errors
/// The options ask for a socket or for metrics.
pub(crate) fn open(options: &Options, _host: &Host, _running: &Running) -> anyhow::Result<Control> {
    if options.control.is_some() {
        bail!("a control socket is only there for Linux\n  fix: leave --control out");
    }
    if options.metrics.is_some() {
        bail!("metrics are only there for Linux\n  fix: leave --metrics out");
    }
    Ok(Control)
}
