//! Lookup of the connection for a segment or a join.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use plait_base::SubflowId;
use plait_tcp::FourTuple;
use std::collections::BTreeMap;

use crate::ConnectionId;

/// The owner of a four-tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) connection: ConnectionId,
    /// `None`: the local port is claimed, but no subflow has come of it yet.
    pub(crate) subflow: Option<SubflowId>,
}

/// All names by which connections are found: four-tuples for segments, tokens for joins.
///
/// Each name is also listed under its connection. The names of a connection can therefore be removed with it, without a search.
#[derive(Default)]
pub(crate) struct Demux {
    tuples: BTreeMap<FourTuple, Owner>,
    tokens: BTreeMap<u32, ConnectionId>,
    names: BTreeMap<ConnectionId, Names>,
}

#[derive(Default)]
struct Names {
    tuples: Vec<FourTuple>,
    tokens: Vec<u32>,
}

impl Demux {
    /// Returns the owner of `tuple`.
    pub(crate) fn owner(&self, tuple: &FourTuple) -> Option<Owner> {
        self.tuples.get(tuple).copied()
    }

    /// Returns the connection with `token`.
    pub(crate) fn token_owner(&self, token: u32) -> Option<ConnectionId> {
        self.tokens.get(&token).copied()
    }

    /// Reserves `tuple` for a subflow that `connection` is about to open. Returns `false` if it is taken.
    #[must_use]
    pub(crate) fn claim_tuple(&mut self, connection: ConnectionId, tuple: FourTuple) -> bool {
        if self.tuples.contains_key(&tuple) {
            return false;
        }
        self.tuples.insert(tuple, Owner { connection, subflow: None });
        self.names.entry(connection).or_default().tuples.push(tuple);
        true
    }

    /// Binds `tuple` to a subflow of `connection`. Returns `false` if another connection has it.
    #[must_use]
    pub(crate) fn bind(&mut self, connection: ConnectionId, subflow: SubflowId, tuple: FourTuple) -> bool {
        match self.tuples.get_mut(&tuple) {
            Some(owner) if owner.connection == connection => {
                owner.subflow = Some(subflow);
                true
            }
            Some(_) => false,
            None => {
                self.tuples.insert(tuple, Owner { connection, subflow: Some(subflow) });
                self.names.entry(connection).or_default().tuples.push(tuple);
                true
            }
        }
    }

    /// Frees `tuple` of a subflow that is gone, unless a younger subflow of the connection has it already.
    pub(crate) fn unbind(&mut self, connection: ConnectionId, subflow: SubflowId, tuple: &FourTuple) {
        let Some(owner) = self.tuples.get(tuple) else { return };
        if owner.connection != connection || owner.subflow.is_some_and(|bound| bound != subflow) {
            return;
        }
        self.tuples.remove(tuple);
        if let Some(names) = self.names.get_mut(&connection) {
            names.tuples.retain(|held| held != tuple);
        }
    }

    /// Returns all four-tuples.
    pub(crate) fn tuples(&self) -> impl Iterator<Item = &FourTuple> {
        self.tuples.keys()
    }

    /// Returns the four-tuples of `connection`.
    pub(crate) fn tuples_of(&self, connection: ConnectionId) -> &[FourTuple] {
        self.names.get(&connection).map_or(&[], |names| &names.tuples)
    }

    /// Returns the connections with a four-tuple whose local address is `address`, once for each tuple.
    pub(crate) fn connections_at(&self, address: IpAddr) -> impl Iterator<Item = ConnectionId> {
        let lowest = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let first = FourTuple { local: SocketAddr::new(address, 0), remote: lowest };
        let tuples = self.tuples.range(first..);
        tuples.take_while(move |(tuple, _)| tuple.local.ip() == address).map(|(_, owner)| owner.connection)
    }

    /// Reserves `token` for `connection`. Returns `false` if another connection has it.
    #[must_use]
    pub(crate) fn claim_token(&mut self, connection: ConnectionId, token: u32) -> bool {
        match self.tokens.get(&token) {
            Some(owner) => *owner == connection,
            None => {
                self.tokens.insert(token, connection);
                self.names.entry(connection).or_default().tokens.push(token);
                true
            }
        }
    }

    /// Removes all names of a connection that is gone.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        let Some(Names { tuples, tokens }) = self.names.remove(&connection) else { return };
        for tuple in &tuples {
            self.tuples.remove(tuple);
        }
        for token in &tokens {
            self.tokens.remove(token);
        }
    }

    /// Returns the number of four-tuples and tokens. Zero once all connections are gone.
    pub(crate) fn len(&self) -> usize {
        self.tuples.len() + self.tokens.len() + self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_tuple_is_reserved_until_its_connection_goes() {
        let mut demux = Demux::default();
        assert!(demux.claim_tuple(A, tuple(1)));
        assert!(!demux.claim_tuple(B, tuple(1)));
        assert!(!demux.bind(B, SubflowId(0), tuple(1)));
        assert_eq!(demux.owner(&tuple(1)), Some(Owner { connection: A, subflow: None }));
        demux.forget(A);
        assert!(demux.bind(B, SubflowId(0), tuple(1)));
    }

    #[test]
    fn the_end_of_an_old_subflow_does_not_unbind_the_new_one_with_its_addresses() {
        let mut demux = Demux::default();
        assert!(demux.bind(A, SubflowId(1), tuple(1)));
        assert!(demux.bind(A, SubflowId(2), tuple(1)));
        demux.unbind(A, SubflowId(1), &tuple(1));
        assert_eq!(demux.owner(&tuple(1)), Some(Owner { connection: A, subflow: Some(SubflowId(2)) }));
        demux.unbind(A, SubflowId(2), &tuple(1));
        assert_eq!(demux.owner(&tuple(1)), None);
    }

    #[test]
    fn connections_are_found_by_a_local_address_with_any_port_and_peer() {
        let mut demux = Demux::default();
        let at = |last, port, peer: &str| FourTuple {
            local: SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), port)),
            remote: peer.parse().expect("an address"),
        };
        for (connection, tuple) in [
            (A, at(1, u16::MAX, "203.0.113.9:1")),
            (A, at(2, 0, "203.0.113.9:1")),
            (B, at(2, 1, "0.0.0.0:0")),
            (B, at(2, u16::MAX, "255.255.255.255:65535")),
            (A, at(3, 0, "203.0.113.9:1")),
        ] {
            assert!(demux.claim_tuple(connection, tuple));
        }
        let found = |last| demux.connections_at(Ipv4Addr::new(192, 0, 2, last).into()).collect::<Vec<_>>();
        assert_eq!((found(1), found(2), found(4)), (vec![A], vec![A, B, B], vec![]));
    }

    #[test]
    fn a_connection_takes_all_its_names_with_it() {
        let mut demux = Demux::default();
        for port in 1..=9 {
            assert!(demux.claim_tuple(A, tuple(port)));
        }
        assert!(demux.bind(A, SubflowId(3), tuple(3)));
        assert!(demux.claim_token(A, 7));
        assert!(demux.claim_token(A, 7), "its own");
        assert!(!demux.claim_token(B, 7));
        assert_eq!(demux.token_owner(7), Some(A));
        demux.forget(A);
        assert_eq!(demux.len(), 0);
    }

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    fn tuple(port: u16) -> FourTuple {
        let address = |last, port| SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), port));
        FourTuple { local: address(1, port), remote: address(2, 80) }
    }
}
