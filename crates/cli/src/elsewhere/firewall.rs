//! There is no firewall to be opened.

/// A type without a value.
#[derive(Debug)]
pub(crate) enum Opening {}
