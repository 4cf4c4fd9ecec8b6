//! Protection of the memory of this process from other users.

/// Nothing keeps it out of swap and core dumps, which is said.
pub(crate) fn shield() {
    tracing::info!("memory with keys in it may be swapped, and may be in core dumps");
}
