//! Selects the subflows that together increase as one TCP connection.
//!
//! Subflows over the same local path are taken to share a bottleneck, and so are those whose delays change together
//! ([`crate::subflows::shared`]). They increase together as one TCP connection would, for every algorithm. Others are independent, unless
//! the algorithm couples them (RFC 6356, OLIA). BBR is not coupled.

use arrayvec::ArrayVec;
use plait_tcp::congestion::{Coupled, Coupling, Member};

use crate::Connection;
use crate::subflows::{MAX_COUPLED, Subflow};

/// The part of one TCP's increase for subflows over different paths that share one queue. A full queue mostly drops packets of one of them
/// at a time, so that together they yield less than one TCP does. Measured in `sim/tests/fairness.rs`: with all of the increase they take
/// 1.2 times as much.
const PART_OF_SHARED_QUEUE: f64 = 0.7;

impl Connection {
    /// Gives the congestion control of a subflow the values of the other subflows before it handles an acknowledgment. The others are not
    /// updated here. Their own changes count when data of theirs is acknowledged.
    pub(crate) fn couple(&mut self, index: usize) {
        let algorithm = self.config.tcp.congestion;
        let own = &self.subflows[index];
        let is_sibling = |subflow: &&Subflow| {
            let is_of_group = match algorithm.coupled() {
                Coupled::Connection => true,
                Coupled::Bottleneck => subflow.state.path() == own.state.path() || own.shares_queue(subflow),
                Coupled::Alone => false,
            };
            is_of_group && subflow.state.id() != own.state.id() && subflow.is_good()
        };
        let is_shared_queue =
            self.subflows.iter().filter(is_sibling).any(|sibling| sibling.state.path() != own.state.path());
        let mut siblings = self.subflows.iter().filter(is_sibling).peekable();
        let coupling = siblings.peek().is_some().then(|| {
            let member = |subflow: &Subflow| subflow.figures().member;
            let members: ArrayVec<Member, MAX_COUPLED> =
                core::iter::once(own).chain(siblings).map(member).take(MAX_COUPLED).collect();
            let coupling = Coupling::of(&members, 0);
            let part = if is_shared_queue { PART_OF_SHARED_QUEUE } else { 1.0 };
            Coupling { share: coupling.share * part, ..coupling }
        });
        self.subflows.touch(index).tcp.set_coupling(coupling);
    }
}
