//! The interface of a connection to its host, and the reasons for which it refuses a SYN.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Instant, PathId, Random};
use plait_protect::handshake::{Instance, Introduction};
use plait_protect::sealed::OPENING_LEN;
use plait_tcp::{FourTuple, Isn};

use crate::Paths;

/// Minimum memory of a connection: 64 KiB in each direction, so that a block can have its full length.
pub const SMALLEST_SHARE: u64 = 128 << 10;

/// The services that a connection needs from its host.
pub trait Host {
    /// The paths of the host.
    fn paths(&self) -> &Paths;

    /// Reserves and returns a free local port for a new subflow from `local` to `remote`.
    fn claim_port(&mut self, local: IpAddr, remote: SocketAddr) -> Option<u16>;

    /// Returns the initial sequence number for these addresses.
    fn isn(&mut self, tuple: &FourTuple, now: Instant) -> Isn;

    /// Returns the source of randomness that is visible on the wire (nonces of joins).
    fn random(&mut self) -> &mut dyn Random;

    /// Draws a secret key with a token that no other connection of this host uses.
    fn draw_key(&mut self) -> [u8; 8];

    /// Returns the source of randomness for other secrets.
    fn secrets(&mut self) -> &mut dyn Random;

    /// Assigns `token` to this connection. Returns `false` if another connection of this host has it.
    fn claim_token(&mut self, token: u32) -> bool;

    /// Claims the opening `name` for the connection with `token`, which was opened from the address `from`. A listener calls this after it
    /// has verified that the connection is an attempt of that opening. The first claim of an opening gets it. Claims are remembered for two
    /// minutes.
    fn claim_opening(&mut self, now: Instant, name: OpeningName, from: IpAddr, token: u32) -> OpeningClaim;

    /// Whether opening a connection over `path` to `remote` has failed within the last minutes while another path succeeded. Such a path is
    /// tried last.
    fn has_failed_lately(&self, now: Instant, path: PathId, remote: IpAddr) -> bool;

    /// Notes whether opening a connection over `path` to `remote` succeeded this time.
    fn note_opening(&mut self, now: Instant, path: PathId, remote: IpAddr, got_through: bool);

    /// Notes that an attempt to open a connection to `remote` has found this instance of a server there.
    fn note_instance(&mut self, now: Instant, remote: SocketAddr, instance: Instance);

    /// Whether more than one instance of a server was found at these addresses recently.
    fn knows_several_instances(&self, now: Instant, remotes: &[SocketAddr]) -> bool;

    /// Whether SYNs with data over `path` to `remote` failed within the last hour while SYNs without data succeeded.
    fn drops_syn_data(&self, now: Instant, path: PathId, remote: IpAddr) -> bool;

    /// Notes that a SYN with data over `path` to `remote` failed while a SYN without data succeeded.
    fn note_syn_data_dropped(&mut self, now: Instant, path: PathId, remote: IpAddr);

    /// Returns the bytes of memory that the connection may use in all, at least [`SMALLEST_SHARE`]. They include the bytes that its peer
    /// may send by the windows offered.
    fn memory_share(&self) -> u64 {
        u64::MAX
    }

    /// Takes the SYN of a join to `remote` out of the budget of this host, and out of its budget for `peer`. `peer` is the address of the
    /// peer when the connection began. The peer names `remote`, where there may be no host, or another one.
    ///
    /// # Errors
    /// The budget is used up until the returned moment.
    fn claim_join(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr) -> Result<(), Instant>;

    /// Returns a join to the budget: a host at `remote` that holds the keys of the connection with `peer` has answered.
    fn return_join(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr);

    /// Returns the seconds since 1970-01-01 UTC at `now`, for the dates in certificates and tickets. Called for each handshake.
    fn unix_time(&self, now: Instant) -> u64;

    /// Returns what this host tells its peers about itself: its capabilities, and an instance number that is constant while the host runs.
    fn introduction(&self) -> Introduction;
}

/// The name of an opening at its listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpeningName {
    /// Drawn by the opener; the same on all attempts.
    pub id: [u8; OPENING_LEN],
    /// Fingerprint of the opener's key, if it has shown one. Only that key can claim its openings.
    pub client: Option<[u8; 32]>,
}

/// The result of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpeningClaim {
    /// The opening was not claimed before. This connection now has it.
    Granted,
    /// The attempt with this token has already claimed it.
    Taken(u32),
    /// Too many openings of this peer are remembered (by key, address or network), and none may be forgotten yet.
    Full,
}

/// The reason for which a SYN does not become a subflow. The endpoint answers with a RST (with MP_TCPRST if the variant says so).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Too many subflows: MP_TCPRST "lack of resources".
    TooMany,
    /// Too many joins wait for their third segment, so another one cannot be a subflow yet.
    /// [`Connection::answer_join`](crate::Connection::answer_join) answers without state.
    Crowded,
    /// The path class forbids the address, or the connection no longer accepts joins: MP_TCPRST "prohibited".
    Prohibited,
    /// Not a join, or an inconsistent one: MP_TCPRST "MPTCP-specific error".
    Malformed,
}
