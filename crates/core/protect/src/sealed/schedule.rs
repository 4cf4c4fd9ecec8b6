//! The key schedule: all keys from the master secret.

use core::fmt;

use plait_base::{Dsn, Instant};

use zeroize::Zeroizing;

use super::aead::{BlockKey, NONCE_LEN};
use super::generation::Generation;
use super::hkdf::Hkdf;
use super::identity::ConnectionIdentity;
use super::limits::KeyLimits;
use super::opener::Opener;
use super::option_tag::{OptionKey, SubflowTag};
use super::sealer::Sealer;
use super::secret::{DataSecret, ExporterSecret, MasterSecret, MixSecret, OptionSecret, ResumeSecret};
use super::signals::{SignalSecrets, Signals};
use super::suite::Suite;
use crate::scrub::scrubbed;

/// Which end of the connection a host is (RFC 8547, section 4.3: without simultaneous open the active opener
/// is A).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// The active opener.
    A,
    /// The passive opener.
    B,
}

impl Role {
    /// The other end.
    pub const fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// One value per end.
pub(super) struct PerRole<T> {
    pub(super) a: T,
    pub(super) b: T,
}

impl<T> PerRole<T> {
    pub(super) fn of(&self, role: Role) -> &T {
        match role {
            Role::A => &self.a,
            Role::B => &self.b,
        }
    }
}

/// All values derived from one master secret, before they are assigned to the two ends.
pub struct ConnectionSecrets {
    identity: ConnectionIdentity,
    signals: PerRole<SignalSecrets>,
    from_a: DirectionSecrets,
    from_b: DirectionSecrets,
}

impl ConnectionSecrets {
    /// Derives all of it and wipes the master secret. `tep` is the byte by which host B chose the encryption
    /// protocol, v bit included; it starts the session id (RFC 8547, section 5.1).
    pub fn derive(master: MasterSecret, tep: u8) -> Self {
        let root = Hkdf::from_secret(master.expose());
        let mut session_id = [0; 33];
        session_id[0] = tep;
        root.labelled("sid", b"", &mut session_id[1..]);
        let identity = ConnectionIdentity {
            tokens: PerRole { a: token(&root, "token a"), b: token(&root, "token b") },
            idsns: PerRole { a: idsn(&root, "idsn a"), b: idsn(&root, "idsn b") },
            session_id,
            exporter: ExporterSecret::derive(&root, "exporter"),
            resume: ResumeSecret::derive(&root, "resume"),
        };
        Self {
            identity,
            signals: PerRole {
                a: SignalSecrets::first(&root, Role::A),
                b: SignalSecrets::first(&root, Role::B),
            },
            from_a: DirectionSecrets::first(&root, "data ab", "opt ab"),
            from_b: DirectionSecrets::first(&root, "data ba", "opt ba"),
        }
    }

    /// The secrets of the generation behind the first, of what the host in this role sends.
    #[cfg(test)]
    pub(super) fn next_of(&self, from: Role, mixes: &[MixSecret]) -> ([u8; 32], [u8; 32]) {
        let direction = match from {
            Role::A => &self.from_a,
            Role::B => &self.from_b,
        };
        let next = direction.next(mixes);
        (*next.data.expose(), *next.option.expose())
    }

    /// What is said beside the stream in the generation behind the first, by the names that the published vectors have.
    #[cfg(test)]
    pub(super) fn signals_of(self, mixes: &[MixSecret]) -> Vec<(&'static str, Vec<u8>)> {
        let mut a = Signals::new(Role::A, self.signals.a);
        let mut b = Signals::new(Role::B, self.signals.b);
        a.advance(&self.from_a.next(mixes));
        b.advance(&self.from_b.next(mixes));
        let (from_a, from_b) = (a.of_age(0).1, b.of_age(0).1);
        let joins = a.joins().next().expect("the direction of joins");
        vec![
            ("path_ab", from_a.path().expose().to_vec()),
            ("path_ba", from_b.path().expose().to_vec()),
            ("fclose_a", from_a.fast_close().to_vec()),
            ("fclose_b", from_b.fast_close().to_vec()),
            ("join_a", joins.of(Role::A).expose().to_vec()),
            ("join_b", joins.of(Role::B).expose().to_vec()),
        ]
    }

    /// Returns the tokens and numbers, which can be checked before the connection starts.
    pub fn identity(&self) -> &ConnectionIdentity {
        &self.identity
    }

    /// The three parts that the host in role `role` works with. The first block of each direction has the
    /// data sequence number IDSN + 1.
    pub fn start(
        self,
        role: Role,
        suite: Suite,
        limits: KeyLimits,
        now: Instant,
    ) -> (ConnectionIdentity, Sealer, Opener) {
        let Self { identity, signals, from_a, from_b } = self;
        let from_a = (from_a, Signals::new(Role::A, signals.a));
        let from_b = (from_b, Signals::new(Role::B, signals.b));
        let ((ours, our_signals), (theirs, their_signals)) = match role {
            Role::A => (from_a, from_b),
            Role::B => (from_b, from_a),
        };
        let first: Dsn = identity.idsn(role) + 1;
        let sealer = Sealer::new((Generation::new(ours, suite), our_signals), suite, limits, first, now);
        let opener = Opener::new(Generation::new(theirs, suite), their_signals, suite);
        (identity, sealer, opener)
    }
}

impl fmt::Debug for ConnectionSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionSecrets(..)")
    }
}

/// The two secrets of one direction in one generation.
pub(super) struct DirectionSecrets {
    data: DataSecret,
    option: OptionSecret,
}

impl DirectionSecrets {
    fn first(root: &Hkdf, data: &str, option: &str) -> Self {
        Self { data: DataSecret::derive(root, data), option: OptionSecret::derive(root, option) }
    }

    /// Returns the next generation: `XL(ts, "ku")` and `XL(os, "ku")`, combined with the shares of paths if there are any. It cannot be
    /// reversed.
    pub(super) fn next(&self, mixes: &[MixSecret]) -> Self {
        let (data, option) = (Hkdf::from_secret(self.data.expose()), Hkdf::from_secret(self.option.expose()));
        if mixes.is_empty() {
            let (data, option) = (DataSecret::derive(&data, "ku"), OptionSecret::derive(&option, "ku"));
            return Self { data, option };
        }
        scrubbed(|| Self { data: DataSecret::mix(&data, mixes), option: OptionSecret::mix(&option, mixes) })
    }

    /// Returns the key from which the further secrets are derived.
    pub(super) fn root(&self) -> Hkdf {
        Hkdf::from_secret(self.data.expose())
    }

    pub(super) fn block_key(&self, suite: Suite) -> BlockKey {
        let root = Hkdf::from_secret(self.data.expose());
        let number = suite.number().to_be_bytes();
        BlockKey::filled_by(suite, |key, iv| {
            root.labelled("key", &number, key);
            root.labelled("iv", &number, iv);
        })
    }

    /// The key for datagrams on this subflow: one expansion, of which the start value of the nonces is the end.
    pub(super) fn datagram_key(&self, suite: Suite, subflow: SubflowTag) -> BlockKey {
        let root = Hkdf::from_secret(self.option.expose());
        let mut context = [0; 10];
        context[..8].copy_from_slice(&subflow.0.to_be_bytes());
        context[8..].copy_from_slice(&suite.number().to_be_bytes());
        BlockKey::filled_by(suite, |key, iv| {
            let mut both = Zeroizing::new([0; 32 + NONCE_LEN]);
            let both = &mut both[..key.len() + iv.len()];
            root.labelled("dgram", &context, both);
            let (of_key, of_iv) = both.split_at(key.len());
            key.copy_from_slice(of_key);
            iv.copy_from_slice(of_iv);
        })
    }

    pub(super) fn option_key(&self, subflow: SubflowTag) -> OptionKey {
        let root = Hkdf::from_secret(self.option.expose());
        OptionKey::filled_by(|key| root.labelled("sf", &subflow.0.to_be_bytes(), key))
    }
}

fn token(root: &Hkdf, label: &str) -> u32 {
    let mut bytes = [0; 4];
    root.labelled(label, b"", &mut bytes);
    u32::from_be_bytes(bytes)
}

fn idsn(root: &Hkdf, label: &str) -> Dsn {
    let mut bytes = [0; 8];
    root.labelled(label, b"", &mut bytes);
    Dsn::new(u64::from_be_bytes(bytes))
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
