//! Unmodified programs in, protected connections out.
