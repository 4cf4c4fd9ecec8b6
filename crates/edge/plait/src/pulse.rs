//! Evidence that the event loop turns, for watchdogs.

/// Counts the turns of the event loop of a [`Host`](crate::Host). It may outlive the host, whose loop then turns no more.
#[derive(Clone, Debug)]
pub struct Pulse(pub(crate) ::plait_host::Pulse);

impl Pulse {
    /// Returns the number of turns so far, and asks for another one. A number that is still the same at the next call, some time later,
    /// means that the event loop hangs or has ended.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.0.turns()
    }
}
