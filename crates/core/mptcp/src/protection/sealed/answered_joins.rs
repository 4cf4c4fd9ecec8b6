//! Joins with data in the SYN that were answered with data. Each join gets such an answer once.
//!
//! A recorded SYN verifies as long as its keys are kept, from every address from which it is replayed. Its answer would give an attacker on
//! one path the ciphertext of blocks that crossed only other paths.

use std::collections::BTreeMap;

/// Number of remembered joins, 16 bytes each. It suffices for a connection that changes its only path every second for a quarter of an hour
/// under the same keys. Beyond it answers have no data, which costs the peer a round trip and nothing else.
const MOST: usize = 1024;

/// Generations whose blocks open in addition to the newest one: the previous and the next.
const NEIGHBOURS: u64 = 1;

/// The nonces of their SYNs, each with the newest generation of the peer's keys at the time of the answer.
#[derive(Default)]
pub(super) struct AnsweredJoins(BTreeMap<u32, u64>);

impl AnsweredJoins {
    /// Whether the SYN with this nonce, which has just been verified, may be answered with data. It may if it was not answered before and
    /// there is room to remember it. `generation` is the newest of the peer's keys.
    pub(super) fn admit(&mut self, nonce: u32, generation: u64) -> bool {
        if self.0.len() >= MOST {
            // A SYN that was sealed with older keys no longer verifies.
            self.0.retain(|_, answered| *answered + NEIGHBOURS >= generation);
        }
        if self.0.len() >= MOST || self.0.contains_key(&nonce) {
            return false;
        }
        self.0.insert(nonce, generation);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nonce_is_admitted_once_and_beyond_the_limit_none_is() {
        let mut joins = AnsweredJoins::default();
        assert!(joins.admit(7, 0) && !joins.admit(7, 0) && joins.admit(8, 0));
        let admitted = (100..5000).filter(|nonce| joins.admit(*nonce, 1)).count();
        assert_eq!(admitted, MOST - 2);
        assert!(!joins.admit(7, 1) && !joins.admit(1, 1));
    }

    #[test]
    fn nonces_of_generations_that_are_over_make_room() {
        let mut joins = AnsweredJoins::default();
        assert_eq!((0..5000).filter(|nonce| joins.admit(*nonce, 3)).count(), MOST);
        assert!(!joins.admit(9000, 4), "the one before still verifies");
        assert!(joins.admit(9000, 5) && !joins.admit(9000, 5));
        assert_eq!(joins.0.len(), 1);
    }
}
