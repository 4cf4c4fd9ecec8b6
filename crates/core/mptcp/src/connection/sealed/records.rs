//! Handling of the peer's control records outside of the protection.

use plait_base::Instant;
use plait_protect::sealed::Seen;

use crate::protection::sealed::{Established, ForConnection};
use crate::subflows::Subflow;
use crate::{Connection, ConnectionError, Host};

impl Connection {
    /// Acts on records that need the host, the paths or the subflows.
    pub(super) fn act_on_records(&mut self, now: Instant, host: &mut dyn Host) {
        while let Some(record) = self.protection.established_mut().and_then(Established::poll_record) {
            match record {
                ForConnection::AddAddr { id, address, port } => {
                    self.learn_address(now, id, address, port, host);
                }
                ForConnection::RemoveAddr { id } => self.on_remove_addr(now, id),
                ForConnection::Prio { subflow: tag, backup } => {
                    let is_meant = |subflow: &&mut Subflow| subflow.state.sealed().tag() == Some(tag);
                    for subflow in self.subflows.touch_all().filter(is_meant) {
                        subflow.state.on_priority(backup);
                    }
                }
                ForConnection::Opening(id, paths) => self.claim_opening(now, id, paths, host),
                ForConnection::Flow(record) => self.take_flow_record(record),
                ForConnection::Look => self.answer_look(host.unix_time(now)),
                ForConnection::Seen { subflow: tag, seen } => {
                    let is_meant = |subflow: &&mut Subflow| subflow.state.sealed().tag() == Some(tag);
                    for subflow in self.subflows.touch_all().filter(is_meant) {
                        subflow.state.sealed_mut().on_seen(seen);
                    }
                }
                ForConnection::Refused(reason) => {
                    self.fail_sealing(reason.to_string(), ConnectionError::RefusedByPeer(reason));
                }
                ForConnection::Require(paths) => {
                    let why =
                        format!("the peer requires {paths} paths in the keys, which was not asked for here");
                    self.fail_sealing(why, ConnectionError::PathsMissing);
                }
            }
        }
    }

    /// Asks the peer how our subflows look to it, in a block that is filled up to so many bytes, 32 KiB at most; the answer, which is as
    /// long, is in the status of each ([`SubflowStatus::seen`](crate::SubflowStatus::seen)). `false` if the connection is not sealed, or
    /// the peer does not list [`Capability::Look`](plait_protect::handshake::Capability::Look).
    pub fn look(&mut self, bytes: usize) -> bool {
        self.timers.set(None);
        self.protection.established_mut().is_some_and(|established| established.ask_look(bytes))
    }

    /// Answers the peer's question for the state of its subflows, and for the date here.
    fn answer_look(&mut self, unix_time: u64) {
        let seen = self.subflows.iter().filter(|subflow| subflow.is_open()).filter_map(|subflow| {
            let syn = subflow.tcp.peer_syn()?;
            let options = [
                (syn.window_scale, Seen::WINDOW_SCALE),
                (syn.sack, Seen::SACK),
                (syn.timestamps, Seen::TIMESTAMPS),
            ];
            let options = options.iter().filter(|(is_there, _)| *is_there).map(|(_, bit)| bit).sum();
            let address = subflow.state.tuple().remote;
            Some((subflow.state.sealed().tag()?, Seen { address, mss: syn.mss.unwrap_or(0), options }))
        });
        let seen: Vec<_> = seen.collect();
        if let Some(established) = self.protection.established_mut() {
            established.answer_look(seen.into_iter(), unix_time);
        }
    }

    /// Tells the peer how much more it may send, once that is worth a block.
    pub(crate) fn update_window(&mut self) {
        let (next, free, size) = (self.incoming.next(), self.incoming.free(), self.incoming.buffer_size());
        if let Some(established) = self.protection.established_mut() {
            established.update_window(next, free, size);
        }
    }
}
