//! There is no firewall to open.

/// A type without a value.
#[derive(Debug)]
pub(crate) enum Opening {}
