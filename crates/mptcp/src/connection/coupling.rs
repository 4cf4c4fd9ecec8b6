//! Which subflows share in one TCP's part of a path.
//!
//! Those over the same path of ours are taken to share a bottleneck, and increase together as one TCP connection would, whatever the
//! algorithm. Across paths they are independent, unless the algorithm couples them (RFC 6356, OLIA).

use arrayvec::ArrayVec;
use plait_tcp::congestion::{Algorithm, Coupling, Member};

use crate::Connection;
use crate::subflows::subflow::Subflow;

/// Subflows whose congestion control is coupled; further ones are left out of account.
const MAX_COUPLED: usize = 32;

impl Connection {
    /// Tells the congestion control of a subflow what it has to know of the others, before it hears what was acknowledged. Nobody else
    /// is told: what they have changed since then counts when something is acknowledged to them.
    pub(crate) fn couple(&mut self, index: usize) {
        let algorithm = self.config.tcp.congestion;
        let own = &self.subflows[index];
        let is_sibling = |subflow: &&Subflow| {
            let is_of_group = match algorithm {
                Algorithm::Lia | Algorithm::Olia => true,
                Algorithm::NewReno | Algorithm::Cubic | Algorithm::Adaptive => {
                    subflow.state.path == own.state.path
                }
                Algorithm::Bbr => false,
            };
            is_of_group && subflow.state.id != own.state.id && subflow.is_good()
        };
        let mut siblings = self.subflows.iter().filter(is_sibling).peekable();
        let coupling = siblings.peek().is_some().then(|| {
            let member = |subflow: &Subflow| subflow.figures().member;
            let members: ArrayVec<Member, MAX_COUPLED> =
                core::iter::once(own).chain(siblings).map(member).take(MAX_COUPLED).collect();
            Coupling::of(&members, 0)
        });
        self.subflows[index].tcp.set_coupling(coupling);
    }
}
