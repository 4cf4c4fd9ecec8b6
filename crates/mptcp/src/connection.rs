//! The connection.

use base::{Instant, PathId, Random, SubflowId};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use tcp::{FourTuple, Isn};
use wire::{IcmpError, Segment};

use crate::{Config, Paths, ReadError, Status};

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
}

/// Why a SYN does not become a subflow; the endpoint answers with a RST (MP_TCPRST where it says so).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Too many subflows: MP_TCPRST "lack of resources".
    TooMany,
    /// The address is one that the path class forbids, or the connection no longer takes joins:
    /// MP_TCPRST "prohibited".
    Prohibited,
    /// Not a join at all, or one that contradicts itself: MP_TCPRST "MPTCP-specific error".
    Malformed,
}

/// One Multipath TCP connection, or what is left of it after falling back to TCP.
pub struct Connection {}

impl Connection {
    /// Opens actively towards `remotes` (the same host at several addresses, best first), beginning with
    /// `first` path or, if `None`, the first that can reach one of them.
    pub fn connect(
        now: Instant,
        config: Config,
        remotes: &[SocketAddr],
        first: Option<PathId>,
        host: &mut dyn Host,
    ) -> Self {
        let _ = (now, config, remotes, first, host);
        unimplemented!()
    }

    /// Opens passively, in answer to a SYN without MP_JOIN.
    pub fn accept(now: Instant, config: Config, syn: &Segment, host: &mut dyn Host) -> Self {
        let _ = (now, config, syn, host);
        unimplemented!()
    }

    /// A SYN with MP_JOIN whose token is this connection's.
    pub fn handle_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        host: &mut dyn Host,
    ) -> Result<SubflowId, Refused> {
        let _ = (now, syn, host);
        unimplemented!()
    }

    /// A segment for one of its subflows.
    pub fn handle_segment(&mut self, now: Instant, id: SubflowId, segment: &Segment, host: &mut dyn Host) {
        let _ = (now, id, segment, host);
    }

    /// An ICMP error about one of its subflows.
    pub fn handle_icmp(&mut self, now: Instant, id: SubflowId, error: &IcmpError, host: &mut dyn Host) {
        let _ = (now, id, error, host);
    }

    /// Runs what is due.
    pub fn handle_timeout(&mut self, now: Instant, host: &mut dyn Host) {
        let _ = (now, host);
    }

    /// The paths of the host have changed (up, down, new, gone, class, backup).
    pub fn handle_paths(&mut self, now: Instant, host: &mut dyn Host) {
        let _ = (now, host);
    }

    /// The next segment to send. Call until `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        let _ = now;
        unimplemented!()
    }

    /// The earliest deadline of the connection and all subflows.
    pub fn poll_timeout(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// The next event. Call until `None`.
    pub fn poll_event(&mut self) -> Option<crate::Event> {
        unimplemented!()
    }

    /// Our token, once Multipath TCP is negotiated or offered passively: joins are looked up by it.
    pub fn token(&self) -> Option<u32> {
        unimplemented!()
    }

    /// Room in the send buffer, in bytes; 0 after [`Connection::finish`] or failure.
    pub fn writable(&self) -> usize {
        unimplemented!()
    }

    /// Takes bytes of the application; the caller has looked at [`Connection::writable`] (more is a bug of
    /// the caller and is cut off). Returns how many were taken.
    pub fn write(&mut self, now: Instant, data: Bytes) -> usize {
        let _ = (now, data);
        unimplemented!()
    }

    /// The next bytes of the peer, in order.
    pub fn read(&mut self, now: Instant) -> Result<Bytes, ReadError> {
        let _ = now;
        unimplemented!()
    }

    /// No more writes: DATA_FIN (or FIN) follows the last byte. Reading goes on.
    pub fn finish(&mut self, now: Instant) {
        let _ = now;
    }

    /// Ends at once: MP_FASTCLOSE, or RST on plain TCP.
    pub fn abort(&mut self, now: Instant) {
        let _ = now;
    }

    /// Nobody will read any more: what still arrives is refused (RST / MP_FASTCLOSE once data comes).
    pub fn stop_reading(&mut self, now: Instant) {
        let _ = now;
    }

    /// Whether nothing is left to do, TIME-WAIT included: it can be dropped.
    pub fn is_done(&self) -> bool {
        unimplemented!()
    }

    /// Only TIME-WAIT is left: for each subflow the four-tuple and what is needed to answer for it; the
    /// endpoint may keep those in a smaller form and drop the connection.
    pub fn is_time_wait(&self) -> bool {
        unimplemented!()
    }

    /// What to tell people.
    pub fn status(&self, now: Instant) -> Status {
        let _ = now;
        unimplemented!()
    }
}
