//! The host of a connection in the tests.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Instant, PathId, Random, SeededRandom, SeqNum};
use plait_mptcp::{Host, Instance, Introduction, OpeningClaim, OpeningName, Paths};
use plait_tcp::{FourTuple, Isn};

pub(crate) struct TestHost {
    pub(crate) paths: Paths,
    pub(crate) secrets: SeededRandom,
    /// Keys of Multipath TCP in the clear that were drawn.
    pub(crate) keys_drawn: u32,
    pub(super) wire: SeededRandom,
    pub(super) next_port: u16,
    /// Number of tokens of other connections.
    pub(crate) taken_tokens: u8,
    /// Paths that drop SYNs with data, as reported to the host.
    pub(crate) syn_data_dropped: Vec<PathId>,
    /// The result of claims to openings.
    pub(crate) claim: OpeningClaim,
    /// Its introduction for its peers.
    pub(crate) introduction: Introduction,
    /// Number of claims.
    pub(crate) claims: u32,
    /// It remembers more than one instance of the server.
    pub(crate) knows_several_instances: bool,
}

impl Host for TestHost {
    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn claim_port(&mut self, _: IpAddr, _: SocketAddr) -> Option<u16> {
        self.next_port += 1;
        Some(self.next_port)
    }

    fn isn(&mut self, _: &FourTuple, _: Instant) -> Isn {
        // A little before the wrap, so that each test goes over it.
        let seq = SeqNum::new(u32::MAX - self.wire.below(40_000) as u32);
        Isn { seq, timestamp_offset: u32::MAX - 500, label_seed: seq.bits().into() }
    }

    fn random(&mut self) -> &mut dyn Random {
        &mut self.wire
    }

    fn draw_key(&mut self) -> [u8; 8] {
        self.keys_drawn += 1;
        let mut key = [0; 8];
        self.secrets.fill(&mut key);
        key
    }

    fn secrets(&mut self) -> &mut dyn Random {
        &mut self.secrets
    }

    fn claim_token(&mut self, _: u32) -> bool {
        let is_free = self.taken_tokens == 0;
        self.taken_tokens = self.taken_tokens.saturating_sub(1);
        is_free
    }

    fn claim_opening(&mut self, _: Instant, _: OpeningName, _: IpAddr, _: u32) -> OpeningClaim {
        self.claims += 1;
        self.claim
    }

    fn has_failed_lately(&self, _: Instant, _: PathId, _: IpAddr) -> bool {
        false
    }

    fn note_opening(&mut self, _: Instant, _: PathId, _: IpAddr, _: bool) {}

    fn note_instance(&mut self, _: Instant, _: SocketAddr, _: Instance) {}

    fn knows_several_instances(&self, _: Instant, _: &[SocketAddr]) -> bool {
        self.knows_several_instances
    }

    fn drops_syn_data(&self, _: Instant, path: PathId, _: IpAddr) -> bool {
        self.syn_data_dropped.contains(&path)
    }

    fn note_syn_data_dropped(&mut self, _: Instant, path: PathId, _: IpAddr) {
        self.syn_data_dropped.push(path);
    }

    fn claim_join(&mut self, _: Instant, _: IpAddr, _: SocketAddr) -> Result<(), Instant> {
        Ok(())
    }

    fn return_join(&mut self, _: Instant, _: IpAddr, _: SocketAddr) {}

    fn unix_time(&self, _: Instant) -> u64 {
        1_800_000_000
    }

    fn introduction(&self) -> Introduction {
        self.introduction
    }
}
