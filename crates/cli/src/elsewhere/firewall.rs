//! There is no firewall to be opened.

/// What nobody has.
#[derive(Debug)]
pub(crate) enum Opening {}
