//! Secrets of one direction that authenticate signals outside the stream: joins, shares over single paths, MP_FASTCLOSE.
//!
//! They follow the generations of the direction, so that a copy of a host's memory is useless to an attacker after a few more shares of
//! paths. Signals travel over other paths than the KEY_UPDATE that ends a generation, and may be older or younger than it. A host sends
//! them under a generation that its peer has, and accepts those of the last [`KEPT`].

use arrayvec::ArrayVec;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::hkdf::Hkdf;
use super::schedule::{DirectionSecrets, PerRole, Role};
use super::secret::{JoinSecret, PathSecret};

/// Generations whose signals are accepted. The wire format requires two, the current one and the previous one. If several paths join at
/// once, more key updates than that may overtake a share on a slow path. Each generation costs 72 bytes.
const KEPT: usize = 4;

/// The secrets of one generation.
pub(super) struct SignalSecrets {
    path: PathSecret,
    fast_close: Zeroizing<[u8; 8]>,
    /// Joins follow the direction from A to B, whichever host begins them.
    joins: Option<PerRole<JoinSecret>>,
}

impl SignalSecrets {
    /// Those of generation 0, from the master secret.
    pub(super) fn first(root: &Hkdf, from: Role) -> Self {
        match from {
            Role::A => Self::derive(root, ["path ab", "fclose a"], Some(["join a", "join b"])),
            Role::B => Self::derive(root, ["path ba", "fclose b"], None),
        }
    }

    /// Those of a later one, from its data secret.
    fn of(generation: &DirectionSecrets, from: Role) -> Self {
        let joins = match from {
            Role::A => Some(["join a", "join b"]),
            Role::B => None,
        };
        Self::derive(&generation.root(), ["path", "fclose"], joins)
    }

    fn derive(root: &Hkdf, [path, fast_close]: [&str; 2], joins: Option<[&str; 2]>) -> Self {
        let mut key = Zeroizing::new([0; 8]);
        root.labelled(fast_close, b"", key.as_mut_slice());
        let join = |label| JoinSecret::derive(root, label);
        Self {
            path: PathSecret::derive(root, path),
            fast_close: key,
            joins: joins.map(|[a, b]| PerRole { a: join(a), b: join(b) }),
        }
    }

    pub(super) fn path(&self) -> &PathSecret {
        &self.path
    }

    pub(super) fn fast_close(&self) -> &[u8; 8] {
        &self.fast_close
    }
}

/// The last generations of one direction, the newest first.
pub(super) struct Signals {
    from: Role,
    newest: u64,
    kept: ArrayVec<SignalSecrets, KEPT>,
}

impl Signals {
    pub(super) fn new(from: Role, first: SignalSecrets) -> Self {
        let mut kept = ArrayVec::new();
        kept.push(first);
        Self { from, newest: 0, kept }
    }

    /// Begins the next generation. The oldest is wiped if too many are kept.
    pub(super) fn advance(&mut self, next: &DirectionSecrets) {
        self.kept.truncate(KEPT - 1);
        self.kept.insert(0, SignalSecrets::of(next, self.from));
        self.newest += 1;
    }

    /// The secrets of the newest generation but `behind`, and six bits of its number.
    pub(super) fn of_age(&self, behind: usize) -> (u8, &SignalSecrets) {
        let behind = behind.min(self.kept.len() - 1);
        (((self.newest - behind as u64) & 0x3f) as u8, &self.kept[behind])
    }

    /// The secrets of the kept generation with these six bits.
    pub(super) fn of_wire(&self, wire: u8) -> Option<&SignalSecrets> {
        (0..self.kept.len())
            .map(|behind| self.of_age(behind))
            .find(|(bits, _)| *bits == wire)
            .map(|(_, it)| it)
    }

    /// Keys of joins, the newest generation first; none in the direction from B to A.
    pub(super) fn joins(&self) -> impl Iterator<Item = JoinKeys<'_>> {
        self.kept.iter().filter_map(|secrets| secrets.joins.as_ref()).map(JoinKeys)
    }

    /// Whether MP_FASTCLOSE of a kept generation carries this key. In constant time.
    pub(super) fn is_fast_close(&self, key: &[u8; 8]) -> bool {
        let equal = |secrets: &SignalSecrets| secrets.fast_close.as_slice().ct_eq(key.as_slice());
        self.kept.iter().fold(subtle::Choice::from(0), |any, secrets| any | equal(secrets)).into()
    }
}

/// The secrets by which both hosts prove a join, of one generation.
#[derive(Clone, Copy)]
pub struct JoinKeys<'a>(&'a PerRole<JoinSecret>);

impl JoinKeys<'_> {
    pub(super) fn of(&self, role: Role) -> &JoinSecret {
        self.0.of(role)
    }
}

#[cfg(test)]
mod tests {
    use plait_base::Instant;

    use super::super::{
        ConnectionIdentity, ConnectionSecrets, JoinTranscript, MasterSecret, Opener, Sealer, Suite,
    };
    use super::*;

    fn end(role: Role) -> (ConnectionIdentity, Sealer, Opener) {
        let master = MasterSecret::filled_by::<()>(|bytes| {
            bytes.fill(3);
            Ok(())
        });
        let secrets = ConnectionSecrets::derive(master.expect("it was filled"), 0x23);
        secrets.start(role, Suite::Aes128Gcm, Suite::Aes128Gcm.limits(), Instant::ZERO)
    }

    const TRANSCRIPT: JoinTranscript = JoinTranscript {
        initiator_nonce: 1,
        responder_nonce: 2,
        initiator_flags: 0,
        responder_flags: 0,
        initiator_address: 1,
        responder_address: 0,
    };

    /// A key update by A. B learns of it only if it `arrives`.
    fn update((_, sealer, _): &mut (ConnectionIdentity, Sealer, Opener), b: Option<&mut Opener>) {
        let closed = sealer.generation();
        sealer.update_keys(Instant::ZERO).expect("the one before is acknowledged");
        if let Some(opener) = b {
            opener.handle_key_update(closed).expect("in order");
            sealer.handle_data_ack(sealer.next_dsn());
        }
    }

    #[test]
    fn each_generation_has_joins_and_fast_closes_of_its_own() {
        let (mut a, mut b) = (end(Role::A), end(Role::B));
        let mut seen = Vec::new();
        for _ in 0..6 {
            let keys = a.1.join_keys().expect("A sends in the direction of joins");
            let hmacs = a.0.join(keys, Role::A, &TRANSCRIPT);
            let fast_close = *a.1.fast_close();
            let new = (hmacs.ack(), fast_close);
            assert!(!seen.contains(&new));
            seen.push(new);
            assert!(b.2.joins().any(|keys| b.0.join(keys, Role::A, &TRANSCRIPT).is_ack(&hmacs.ack())));
            assert!(b.2.is_fast_close(&fast_close));
            update(&mut a, Some(&mut b.2));
        }
        let (oldest, newest) = (seen[0].1, seen[5].1);
        assert!(!b.2.is_fast_close(&oldest), "it is wiped");
        assert!(b.2.is_fast_close(&newest), "it may be on its way");
    }

    #[test]
    fn what_is_said_around_a_key_update_that_is_not_acknowledged_is_understood() {
        for arrives in [false, true] {
            let (mut a, mut b) = (end(Role::A), end(Role::B));
            update(&mut a, Some(&mut b.2));
            // Its KEY_UPDATE may have arrived or not: A cannot know.
            let closed = a.1.generation();
            update(&mut a, None);
            if arrives {
                b.2.handle_key_update(closed).expect("in order");
            }
            let hmacs = a.0.join(a.1.join_keys().expect("A's"), Role::A, &TRANSCRIPT);
            assert!(b.2.joins().any(|keys| b.0.join(keys, Role::A, &TRANSCRIPT).is_ack(&hmacs.ack())));
            assert!(b.2.is_fast_close(a.1.fast_close()));
            let answer = b.0.join(b.2.join_keys().expect("A's direction"), Role::A, &TRANSCRIPT);
            assert!(
                a.1.joins().any(|keys| a.0.join(keys, Role::A, &TRANSCRIPT).is_syn_ack(&answer.syn_ack()))
            );
        }
    }
}
