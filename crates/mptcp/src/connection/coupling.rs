//! Which subflows share in one TCP's part of a path.
//!
//! Those over the same path of ours are taken to share a bottleneck, and increase together as one TCP connection would, whatever the
//! algorithm. Across paths they are independent, unless the algorithm couples them (RFC 6356, OLIA).

use arrayvec::ArrayVec;
use plait_tcp::Stats;
use plait_tcp::congestion::{Algorithm, Coupling, Member};

use crate::Connection;
use crate::subflows::flow::{Flow, UNKNOWN_RTT};

/// Subflows whose congestion control is coupled; further ones are on their own.
const MAX_COUPLED: usize = 32;

impl Connection {
    /// Figures of coupled controllers follow each other.
    pub(crate) fn couple(&mut self) {
        match self.config.tcp.congestion {
            Algorithm::Lia | Algorithm::Olia => self.couple_those(|_| true),
            Algorithm::NewReno | Algorithm::Cubic => self.couple_by_path(),
        }
    }

    fn couple_by_path(&mut self) {
        let shares = self.flows.share_a_path();
        if !shares && !self.flows.is_coupled {
            return;
        }
        // One more time when they no longer do: each is on its own then.
        self.flows.is_coupled = shares;
        for index in 0..self.flows.len() {
            let path = self.flows[index].state.path;
            if self.flows.iter().position(|flow| flow.state.path == path) == Some(index) {
                self.couple_those(|flow| flow.state.path == path);
            }
        }
    }

    fn couple_those(&mut self, is_one: impl Fn(&Flow) -> bool) {
        let is_coupled = |flow: &&Flow| flow.is_good() && is_one(flow);
        let coupled = self.flows.iter().filter(is_coupled).take(MAX_COUPLED);
        let members: ArrayVec<_, MAX_COUPLED> = coupled.map(member).collect();
        let coupled = self.flows.iter_mut().filter(|flow| flow.is_good() && is_one(flow)).take(MAX_COUPLED);
        for (index, flow) in coupled.enumerate() {
            flow.tcp.set_coupling(Coupling::of(&members, index));
        }
    }
}

fn member(flow: &Flow) -> Member {
    let Stats { srtt, .. } = flow.tcp.stats();
    let congestion = flow.tcp.congestion();
    Member {
        window: congestion.window(),
        srtt: srtt.unwrap_or(UNKNOWN_RTT),
        bytes_between_losses: congestion.bytes_between_losses(),
    }
}
