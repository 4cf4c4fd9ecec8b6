//! What a connection needs from its host, and what it says to a SYN that it does not take.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Instant, PathId, Random};
use plait_protect::handshake::{Instance, Introduction};
use plait_protect::sealed::OPENING_LEN;
use plait_tcp::{FourTuple, Isn};

use crate::Paths;

/// With less memory no connection gets along: 64 KiB in each direction, so that a block is as long as it can be.
pub const SMALLEST_SHARE: u64 = 128 << 10;

/// What a connection needs from the host that it lives on.
pub trait Host {
    /// The paths of the host.
    fn paths(&self) -> &Paths;

    /// A free local port for a new subflow from `local` to `remote`, reserved for the caller.
    fn claim_port(&mut self, local: IpAddr, remote: SocketAddr) -> Option<u16>;

    /// The initial sequence number for these addresses.
    fn isn(&mut self, tuple: &FourTuple, now: Instant) -> Isn;

    /// Randomness that shows on the wire (nonces of joins).
    fn random(&mut self) -> &mut dyn Random;

    /// Randomness for secrets. Draws a key whose token no other connection of this host uses.
    fn draw_key(&mut self) -> [u8; 8];

    /// Randomness for secrets, as it comes.
    fn secrets(&mut self) -> &mut dyn Random;

    /// Makes `token` this connection's; `false` if another connection of this host has it.
    fn claim_token(&mut self, token: u32) -> bool;

    /// A listener has verified that a connection is an attempt of the opening `name`, with `token` for a token, and opened from
    /// the address `from`. The first that claims an opening gets it; claims are remembered for two minutes.
    fn claim_opening(&mut self, now: Instant, name: OpeningName, from: IpAddr, token: u32) -> OpeningClaim;

    /// Whether opening a connection over `path` to `remote` has failed within the last minutes where another path
    /// got through: such a path is tried last.
    fn has_failed_lately(&self, now: Instant, path: PathId, remote: IpAddr) -> bool;

    /// Whether it got through this time.
    fn note_opening(&mut self, now: Instant, path: PathId, remote: IpAddr, got_through: bool);

    /// An attempt to open a connection to `remote` has found this instance of a server there.
    fn note_instance(&mut self, now: Instant, remote: SocketAddr, instance: Instance);

    /// Whether more than one instance of a server was found at these addresses lately.
    fn knows_several_instances(&self, now: Instant, remotes: &[SocketAddr]) -> bool;

    /// Whether SYNs with data over `path` to `remote` came to nothing within the last hour, where those without got through.
    fn drops_syn_data(&self, now: Instant, path: PathId, remote: IpAddr) -> bool;

    /// One did.
    fn note_syn_data_dropped(&mut self, now: Instant, path: PathId, remote: IpAddr);

    /// Bytes of memory that the connection may have in all, what its peer may send by the windows offered included: at least
    /// [`SMALLEST_SHARE`].
    fn memory_share(&self) -> u64 {
        u64::MAX
    }

    /// Takes the SYN of a join to `remote` on a connection with `peer` (its address when the connection began) out of the budget of this
    /// host, and out of that for this peer: it is where the peer says, and there may be no host, or another one.
    ///
    /// # Errors
    /// There is none left before that moment.
    fn claim_join(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr) -> Result<(), Instant>;

    /// A join on a connection with `peer` was answered at `remote` by a host that holds its keys: it is not counted.
    fn return_join(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr);

    /// Seconds since 1970-01-01 UTC at `now`, for the dates in certificates and tickets. Asked anew for each handshake.
    fn unix_time(&self, now: Instant) -> u64;

    /// What this host tells its peers about itself: its capabilities, and the instance that is the same as long as it runs.
    fn introduction(&self) -> Introduction;
}

/// Names an opening at its listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpeningName {
    /// Drawn by the opener, the same on all attempts.
    pub id: [u8; OPENING_LEN],
    /// Fingerprint of the opener's key, where it has shown one: only it can claim its openings.
    pub client: Option<[u8; 32]>,
}

/// What became of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpeningClaim {
    /// It was not claimed before: now this connection has claimed it.
    Granted,
    /// The attempt with this token has.
    Taken(u32),
    /// Too many openings are remembered of this peer, its key, its address or its network, and none is forgotten before its time.
    Full,
}

/// Why a SYN does not become a subflow; the endpoint answers with a RST (MP_TCPRST where it says so).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Too many subflows: MP_TCPRST "lack of resources".
    TooMany,
    /// Too many joins wait for their third segment for one more to be a subflow already;
    /// [`Connection::answer_join`](crate::Connection::answer_join) keeps nothing.
    Crowded,
    /// The address is one that the path class forbids, or the connection no longer takes joins:
    /// MP_TCPRST "prohibited".
    Prohibited,
    /// Not a join at all, or one that contradicts itself: MP_TCPRST "MPTCP-specific error".
    Malformed,
}
