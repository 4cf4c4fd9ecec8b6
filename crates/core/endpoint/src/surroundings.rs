//! The host of a connection: paths, ports, names, randomness.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Instant, PathId, Random, WallClock};
use plait_mptcp::{Capabilities, Host, Instance, Introduction, OpeningClaim, OpeningName, Paths};
use plait_tcp::{FourTuple, Isn, IsnGenerator};
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use crate::claims::Claims;
use crate::cookies::Cookies;
use crate::demux::Demux;
use crate::join_budget::JoinBudget;
use crate::memory::MemoryPool;
use crate::ports::draw_port;
use crate::time_wait::TimeWaits;
use crate::way_memory::{InstanceMemory, WayMemory};
use crate::{ConnectionId, EndpointConfig};

/// The endpoint without its connections, so that a connection can borrow it while it is being changed.
pub(crate) struct Surroundings {
    pub(crate) paths: Paths,
    pub(crate) demux: Demux,
    pub(crate) time_waits: TimeWaits,
    /// Ways over which no connection could be opened.
    pub(crate) closed_ways: WayMemory,
    /// Ways that drop SYNs with data.
    pub(crate) syn_data_ways: WayMemory,
    /// Instances of servers that were found.
    instances: InstanceMemory,
    join_budget: JoinBudget,
    pub(crate) claims: Claims,
    isns: IsnGenerator,
    pub(crate) cookies: Cookies,
    /// Source of values that are visible on the wire.
    wire: Box<dyn Random + Send>,
    /// Source of keys, and of nothing else.
    secret: Box<dyn Random + Send>,
    /// Read for the date at each handshake.
    pub(crate) wall_clock: Box<dyn WallClock + Send>,
    /// The introduction of this host for its peers.
    introduction: Introduction,
    /// Memory of all connections.
    pub(crate) memory: MemoryPool,
}

impl Surroundings {
    pub(crate) fn new(
        limits: &EndpointConfig,
        wire: Box<dyn Random + Send>,
        mut secret: Box<dyn Random + Send>,
    ) -> Self {
        let mut isn_secret = [0; 32];
        secret.fill(&mut isn_secret);
        let isns = IsnGenerator::new(isn_secret);
        let cookies = Cookies::new(&isn_secret);
        isn_secret.zeroize();
        let instance = Instance::draw(&mut *secret);
        let introduction = Introduction { capabilities: Capabilities::SUPPORTED, instance };
        Self {
            paths: Paths::default(),
            demux: Demux::default(),
            time_waits: TimeWaits::new(limits.max_time_wait),
            closed_ways: WayMemory::of_openings(),
            syn_data_ways: WayMemory::of_syn_data(),
            instances: InstanceMemory::default(),
            join_budget: JoinBudget::default(),
            claims: Claims::new(limits.max_openings),
            isns,
            cookies,
            wire,
            secret,
            wall_clock: Box::new(SinceZero),
            introduction,
            memory: MemoryPool::new(limits.memory),
        }
    }

    /// Returns the initial sequence number of a connection between these addresses that begins `now`.
    pub(crate) fn start_of(&self, tuple: &FourTuple, now: Instant) -> Isn {
        self.isns.isn(tuple, now)
    }

    /// Returns the host as `connection` sees it.
    pub(crate) fn lend_to(&mut self, connection: ConnectionId) -> HostView<'_> {
        HostView { surroundings: self, connection }
    }

    /// Whether `address` is ours on `path`.
    pub(crate) fn is_of_path(&self, address: IpAddr, path: PathId) -> bool {
        self.paths.with_address(address).is_some_and(|found| found.id == path)
    }

    /// Whether `address` is one of ours, on a path that is up or not.
    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        self.paths.with_address(address).is_some()
    }

    /// Returns the name of the path with `address`.
    #[cfg(feature = "tracing")]
    pub(crate) fn path_name(&self, address: IpAddr) -> Option<&str> {
        self.paths.with_address(address).map(|path| path.name.as_str())
    }
}

/// A date that starts in 1970 with the clock of the core.
struct SinceZero;

impl WallClock for SinceZero {
    fn unix_time(&self, now: Instant) -> u64 {
        now.as_nanos() / 1_000_000_000
    }
}

/// The host as one connection sees it.
pub(crate) struct HostView<'a> {
    surroundings: &'a mut Surroundings,
    connection: ConnectionId,
}

impl Host for HostView<'_> {
    fn paths(&self) -> &Paths {
        &self.surroundings.paths
    }

    fn claim_port(&mut self, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        let Surroundings { demux, time_waits, wire, .. } = &mut *self.surroundings;
        draw_port(&mut **wire, |port| {
            let tuple = FourTuple { local: SocketAddr::new(local, port), remote };
            !time_waits.contains(&tuple) && demux.claim_tuple(self.connection, tuple)
        })
    }

    fn isn(&mut self, tuple: &FourTuple, now: Instant) -> Isn {
        self.surroundings.isns.isn(tuple, now)
    }

    fn random(&mut self) -> &mut dyn Random {
        &mut *self.surroundings.wire
    }

    fn draw_key(&mut self) -> [u8; 8] {
        let Surroundings { demux, secret, .. } = &mut *self.surroundings;
        loop {
            let mut key = [0; 8];
            secret.fill(&mut key);
            if demux.claim_token(self.connection, token_of(&key)) {
                return key;
            }
        }
    }

    fn secrets(&mut self) -> &mut dyn Random {
        &mut *self.surroundings.secret
    }

    fn claim_token(&mut self, token: u32) -> bool {
        self.surroundings.demux.claim_token(self.connection, token)
    }

    fn claim_opening(&mut self, now: Instant, name: OpeningName, from: IpAddr, token: u32) -> OpeningClaim {
        self.surroundings.claims.claim(now, name, from, token)
    }

    fn has_failed_lately(&self, now: Instant, path: PathId, remote: IpAddr) -> bool {
        self.surroundings.closed_ways.has_failed(now, path, remote)
    }

    fn note_opening(&mut self, now: Instant, path: PathId, remote: IpAddr, got_through: bool) {
        self.surroundings.closed_ways.note(now, path, remote, got_through);
    }

    fn note_instance(&mut self, now: Instant, remote: SocketAddr, instance: Instance) {
        self.surroundings.instances.note(now, remote, instance);
    }

    fn knows_several_instances(&self, now: Instant, remotes: &[SocketAddr]) -> bool {
        self.surroundings.instances.has_several(now, remotes)
    }

    fn drops_syn_data(&self, now: Instant, path: PathId, remote: IpAddr) -> bool {
        self.surroundings.syn_data_ways.has_failed(now, path, remote)
    }

    fn note_syn_data_dropped(&mut self, now: Instant, path: PathId, remote: IpAddr) {
        self.surroundings.syn_data_ways.note(now, path, remote, false);
    }

    fn memory_share(&self) -> u64 {
        self.surroundings.memory.share()
    }

    fn claim_join(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr) -> Result<(), Instant> {
        self.surroundings.join_budget.claim(now, peer, remote)
    }

    fn return_join(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr) {
        self.surroundings.join_budget.give_back(now, peer, remote);
    }

    fn unix_time(&self, now: Instant) -> u64 {
        self.surroundings.wall_clock.unix_time(now)
    }

    fn introduction(&self) -> Introduction {
        self.surroundings.introduction
    }
}

/// Returns the token of a key: the most significant 32 bits of its SHA-256 (RFC 8684, section 3.2).
pub(crate) fn token_of(key: &[u8; 8]) -> u32 {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(key));
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use plait_base::{SecretRandom, SeededRandom};

    const FEW: EndpointConfig =
        EndpointConfig { max_time_wait: 0, max_openings: 8, ..EndpointConfig::DEFAULT };

    fn seeded(wire: u8) -> Surroundings {
        let wire = Box::new(SeededRandom::new([wire; 32]));
        Surroundings::new(&FEW, wire, Box::new(SecretRandom::new([2; 32])))
    }

    /// The randomness of a virtual machine that is started twice from one snapshot: all memory is equal, the system's randomness is not.
    struct System(u64);

    impl Random for System {
        fn fill(&mut self, out: &mut [u8]) {
            self.0 += 1;
            SeededRandom::from_number(self.0).fill(out);
        }
    }

    //= rfc8684 3.1-03
    #[test]
    fn two_copies_of_an_endpoint_draw_different_keys_and_nonces() {
        let copy = |number: u64| {
            let mut copy = Surroundings::new(&FEW, Box::new(System(1)), Box::new(System(2)));
            (copy.wire, copy.secret) = (Box::new(System(number)), Box::new(System(number + 1000)));
            let mut host = copy.lend_to(ConnectionId(1));
            let mut ephemeral = [0; 32];
            host.secrets().fill(&mut ephemeral);
            (ephemeral, host.draw_key(), host.random().next_u32())
        };
        let (one, other) = (copy(10), copy(20));
        assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2, "nothing is drawn ahead");
    }

    #[test]
    fn the_token_is_the_front_of_the_hash_of_the_key() {
        // SHA-256 of 00 01 02 03 04 05 06 07 is 8a851ff8 2ee7048a ...
        assert_eq!(token_of(&[0, 1, 2, 3, 4, 5, 6, 7]), 0x8a85_1ff8);
    }

    //= rfc8684 3.2-12
    #[test]
    fn keys_have_tokens_that_find_their_connection() {
        let mut surroundings = seeded(1);
        let key = surroundings.lend_to(ConnectionId(5)).draw_key();
        assert_eq!(surroundings.demux.token_owner(token_of(&key)), Some(ConnectionId(5)));
    }

    //= rfc8684 3.1-03
    //= rfc8684 3.1-04
    #[test]
    fn a_key_whose_token_is_taken_is_not_used() {
        let taken = token_of(&seeded(1).lend_to(ConnectionId(5)).draw_key());
        let mut surroundings = seeded(1);
        assert!(surroundings.demux.claim_token(ConnectionId(4), taken));
        let key = surroundings.lend_to(ConnectionId(5)).draw_key();
        assert_ne!(token_of(&key), taken);
        assert_eq!(surroundings.demux.token_owner(token_of(&key)), Some(ConnectionId(5)));
    }

    #[test]
    fn what_shows_on_the_wire_does_not_depend_on_the_keys_drawn() {
        let mut seen = [0, 3].map(|keys| {
            let mut surroundings = seeded(1);
            let mut host = surroundings.lend_to(ConnectionId(1));
            for _ in 0..keys {
                host.draw_key();
            }
            host.random().next_u64()
        });
        assert_eq!(seen[0], seen[1]);
        seen[1] = seeded(3).lend_to(ConnectionId(1)).random().next_u64();
        assert_ne!(seen[0], seen[1]);
    }

    #[test]
    fn a_port_is_claimed_per_four_tuple() {
        let mut surroundings = seeded(1);
        let local = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
        let remote = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), 80));
        let port = surroundings.lend_to(ConnectionId(1)).claim_port(local, remote).expect("free");
        let tuple = FourTuple { local: SocketAddr::new(local, port), remote };
        assert_eq!(surroundings.demux.owner(&tuple).expect("claimed").connection, ConnectionId(1));
    }
}
