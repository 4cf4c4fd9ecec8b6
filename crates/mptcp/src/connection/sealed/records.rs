//! What the peer's control records call for outside of the protection.

use plait_base::Instant;

use crate::protection::sealed::{Established, ForConnection};
use crate::subflows::subflow::Subflow;
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
                    let is_meant = |subflow: &&mut Subflow| subflow.state.sealed.tag == Some(tag);
                    for subflow in self.subflows.iter_mut().filter(is_meant) {
                        subflow.state.backup_theirs = backup;
                    }
                }
                ForConnection::Opening(id, paths) => self.claim_opening(now, (id, paths), host),
                ForConnection::Require(paths) => {
                    let why =
                        format!("the peer requires {paths} paths in the keys, which was not asked for here");
                    self.fail_sealing(why, ConnectionError::PathsMissing);
                }
            }
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
