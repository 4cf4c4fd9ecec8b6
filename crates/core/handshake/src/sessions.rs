//! Sessions of a server that clients may resume.
//!
//! A ticket is a random name of 32 bytes, and the state of its session is kept here. Therefore there is no key that would reveal the
//! content of all tickets. A ticket says nothing about its client, and it counts once.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use rustls::pki_types::UnixTime;
use zeroize::Zeroizing;

use crate::settings::{ClientPolicy, KeyExchanges, ListenerSettings};
use crate::tickets::{is_over, is_recent};

/// Sessions that a server keeps in memory for returning clients. Clones share the sessions; each session is resumed once.
#[derive(Clone, Default)]
pub struct Sessions(Arc<Mutex<Kept>>);

/// Largest number of sessions. Beyond it the oldest is dropped, and its client makes a full handshake. Any accepted client can cause that.
const MAX_SESSIONS: usize = 4096;
/// Largest size of a session as rustls encodes it: some 80 bytes, a name of up to 255, and a raw key of the client of 44.
pub(crate) const MAX_SESSION: usize = 512;

#[derive(Default)]
struct Kept {
    by_name: BTreeMap<Vec<u8>, (u64, Session)>,
    /// Names of the sessions in the order of arrival.
    by_age: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

/// One session, for rustls.
pub(crate) struct Session {
    /// The settings under which it was made.
    pub(crate) terms: Terms,
    /// When the two sides were authenticated.
    pub(crate) proved_at: UnixTime,
    pub(crate) secrets: Zeroizing<Vec<u8>>,
}

/// SHA-256 of all settings of a listener. A session is resumed only under the terms under which it began. A client that is no longer
/// listed, a replaced key of ours, or a suite that is no longer allowed requires a full handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms([u8; 32]);

impl Sessions {
    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.with(|kept| kept.by_name.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the session with this name. Returns when its two sides were authenticated, and its secrets.
    pub(crate) fn take(
        &self,
        name: &[u8],
        terms: Terms,
        now: UnixTime,
    ) -> Option<(UnixTime, Zeroizing<Vec<u8>>)> {
        let Session { terms: made_under, proved_at, secrets } = self.with(|kept| {
            kept.forget_old(now);
            let (number, session) = kept.by_name.remove(name)?;
            kept.by_age.remove(&number);
            Some(session)
        })?;
        (made_under == terms && is_recent(proved_at, now)).then_some((proved_at, secrets))
    }

    /// Stores a session.
    pub(crate) fn put(&self, name: Vec<u8>, session: Session, now: UnixTime) {
        self.with(|kept| {
            kept.forget_old(now);
            kept.next += 1;
            if let Some((number, _)) = kept.by_name.insert(name.clone(), (kept.next, session)) {
                kept.by_age.remove(&number);
            }
            kept.by_age.insert(kept.next, name);
            if kept.by_name.len() > MAX_SESSIONS {
                kept.forget_first();
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    /// Drops sessions that are no longer useful. One that resumes another may wait behind younger ones, for a day at most.
    fn forget_old(&mut self, now: UnixTime) {
        while let Some((_, first)) = self.by_age.first_key_value()
            && let Some((_, session)) = self.by_name.get(first)
            && is_over(session.proved_at, now)
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, oldest)) = self.by_age.pop_first() {
            self.by_name.remove(&oldest);
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sessions({})", self.len())
    }
}

impl Terms {
    pub(crate) fn of(settings: &ListenerSettings) -> Self {
        let ListenerSettings {
            suites,
            key_exchanges,
            identity,
            certificate,
            clients,
            sessions: _,
            key_log: _,
        } = settings;
        let mut terms = Summary(digest::Context::new(&digest::SHA256));
        terms.list(suites.iter().map(|suite| suite.name().as_bytes()));
        terms.field(match key_exchanges {
            KeyExchanges::All => b"all",
            KeyExchanges::PostQuantum => b"post-quantum",
        });
        terms.list(identity.iter().map(|identity| *identity.public_key().fingerprint().as_bytes()));
        terms.list(certificate.iter().flat_map(|certificate| &certificate.chain));
        match clients {
            ClientPolicy::Anonymous => terms.field(b"anonymous"),
            ClientPolicy::AskForKey => terms.field(b"ask"),
            ClientPolicy::Authorised(keys) => {
                terms.field(b"authorised");
                terms.list(keys.iter().map(|key| *key.as_bytes()));
            }
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(terms.0.finish().as_ref());
        Self(hash)
    }
}

/// A hash of fields with their lengths before them, so that distinct lists have distinct hashes.
struct Summary(digest::Context);

impl Summary {
    fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    fn list(&mut self, fields: impl Iterator<Item = impl AsRef<[u8]>>) {
        let mut count = 0;
        for field in fields {
            self.field(field.as_ref());
            count += 1;
        }
        self.number(count);
    }

    fn number(&mut self, number: usize) {
        self.0.update(&(number as u64).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(secs: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(secs))
    }

    fn session(proved_at: u64) -> Session {
        Session { terms: Terms([1; 32]), proved_at: at(proved_at), secrets: Zeroizing::new(vec![9]) }
    }

    #[test]
    fn a_session_is_found_once_and_for_a_day_under_its_own_terms() {
        const DAY: u64 = 24 * 60 * 60;
        let found = |terms, now| {
            let sessions = Sessions::default();
            sessions.put(vec![7], session(1000), at(1000));
            let found = sessions.take(&[7], Terms([terms; 32]), at(now)).is_some();
            assert!(sessions.take(&[7], Terms([1; 32]), at(1000)).is_none() && sessions.is_empty(), "once");
            found
        };
        assert!(found(1, 1000) && found(1, 1000 + DAY - 1));
        assert!(!found(1, 1000 + DAY), "too old");
        assert!(!found(1, 999), "the clock was put back");
        assert!(!found(2, 1000), "other terms");
    }

    #[test]
    fn sessions_that_are_over_are_wiped_when_another_comes() {
        let sessions = Sessions::default();
        sessions.put(vec![1], session(1000), at(1000));
        sessions.put(vec![2], session(2000), at(2000));
        sessions.put(vec![3], session(90_000), at(90_000));
        assert_eq!(sessions.len(), 1, "a day later");
    }

    #[test]
    fn whatever_comes_there_is_room_for_so_many_sessions_and_the_oldest_goes() {
        let sessions = Sessions::default();
        for number in 0..MAX_SESSIONS as u64 + 10 {
            sessions.put(number.to_be_bytes().to_vec(), session(1000), at(1000));
        }
        assert_eq!(sessions.len(), MAX_SESSIONS);
        let take = |number: u64| sessions.take(&number.to_be_bytes(), Terms([1; 32]), at(1000)).is_some();
        assert!(!take(9) && take(10));
    }
}
