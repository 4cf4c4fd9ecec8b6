//! Figures of both ends of a connection.

/// A figure of our end, or of the direction that we send, and that of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Both<T> {
    /// Ours.
    pub ours: T,
    /// The peer's.
    pub peers: T,
}

impl<T: Ord> Both<T> {
    /// Returns the smaller one.
    pub fn min(self) -> T {
        self.ours.min(self.peers)
    }
}

impl<T> From<[T; 2]> for Both<T> {
    fn from([ours, peers]: [T; 2]) -> Self {
        Self { ours, peers }
    }
}
