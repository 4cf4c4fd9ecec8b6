//! Openings that were claimed: of several attempts to open one connection an application is shown one.

use plait_base::{Duration, Instant};
use plait_mptcp::{OpeningClaim, OpeningName};
use std::collections::{BTreeMap, VecDeque};

/// How long a claim is remembered. An attempt lives for twenty seconds at most before it is claimed, and an opener begins
/// no further one a minute after its first.
const REMEMBERED: Duration = Duration::from_secs(120);

/// Who has claimed which opening, by the tokens that follow from the secrets of the claimers.
pub(crate) struct Claims {
    most: usize,
    claimed: BTreeMap<OpeningName, u32>,
    /// In the order in which they are forgotten.
    order: VecDeque<(Instant, OpeningName)>,
}

impl Claims {
    /// Remembers at most `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, claimed: BTreeMap::new(), order: VecDeque::new() }
    }

    /// The connection with `token` claims an opening. None is forgotten before its time to make room for another.
    pub(crate) fn claim(&mut self, now: Instant, name: OpeningName, token: u32) -> OpeningClaim {
        while let Some((at, old)) = self.order.front().copied()
            && at <= now
        {
            self.order.pop_front();
            self.claimed.remove(&old);
        }
        if let Some(&token) = self.claimed.get(&name) {
            return OpeningClaim::Taken(token);
        }
        if self.claimed.len() >= self.most {
            return OpeningClaim::Full;
        }
        self.claimed.insert(name, token);
        self.order.push_back((now + REMEMBERED, name));
        OpeningClaim::Granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1000);

    fn name(id: u8, client: Option<[u8; 32]>) -> OpeningName {
        OpeningName { id: [id; 16], client }
    }

    #[test]
    fn an_opening_is_granted_once_in_two_minutes_and_to_each_client_by_itself() {
        let mut claims = Claims::new(8);
        assert_eq!(claims.claim(NOW, name(1, None), 7), OpeningClaim::Granted);
        assert_eq!(claims.claim(NOW, name(1, None), 8), OpeningClaim::Taken(7));
        assert_eq!(claims.claim(NOW, name(1, Some([5; 32])), 8), OpeningClaim::Granted);
        let late = NOW + REMEMBERED;
        assert_eq!(claims.claim(late - Duration::from_millis(1), name(1, None), 9), OpeningClaim::Taken(7));
        assert_eq!(claims.claim(late, name(1, None), 9), OpeningClaim::Granted);
    }

    #[test]
    fn a_new_one_is_refused_rather_than_an_old_one_forgotten() {
        let mut claims = Claims::new(2);
        for id in 1..=2 {
            assert_eq!(claims.claim(NOW, name(id, None), id.into()), OpeningClaim::Granted);
        }
        assert_eq!(claims.claim(NOW, name(3, None), 3), OpeningClaim::Full);
        assert_eq!(claims.claim(NOW, name(1, None), 3), OpeningClaim::Taken(1));
        assert_eq!(claims.claim(NOW + REMEMBERED, name(3, None), 3), OpeningClaim::Granted);
        assert_eq!((claims.claimed.len(), claims.order.len()), (1, 1));
    }
}
