//! The driver's part in a handover between two processes.

use plait_base::Instant;
use plait_endpoint::{Arrival, Endpoint};
use plait_tcp::FourTuple;
use plait_wire::Segment;

use super::Driver;
use crate::carrier::LocalAddress;
use crate::carriers::{CarrierKind, PathCarriers};
use crate::handover::{Handed, Left};
use crate::log::{debug, info};
use crate::stack_address::device_address;

impl Driver {
    /// Reads what the other process has sent.
    pub(super) fn receive_passed(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        if !relay.receive(&mut self.received) {
            let was_predecessor = relay.is_successor();
            info!(was_predecessor, "the other process has ended");
            self.relay = None;
            for lane in &mut self.lanes {
                lane.carrier.end_handover();
            }
            if was_predecessor {
                self.shared.lock().endpoint.leave_unknown(false);
            }
        }
        for handed in self.received.handed.drain(..) {
            let kind = match handed {
                Handed::Socket(_) => CarrierKind::Udp,
                Handed::Device(_) => CarrierKind::Tcp,
            };
            if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.carrier.kind() == kind) {
                lane.carrier.adopt(handed);
            }
        }
    }

    /// Gives the segments that the successor has passed to the endpoint.
    pub(super) fn handle_passed(&mut self, now: Instant, endpoint: &mut Endpoint, carriers: &PathCarriers) {
        for Left { carrier, device, local, mut segment } in self.received.passed.drain(..) {
            let is_its = |path: &&plait_mptcp::Path| path.name == device && carriers.of(path.id) == carrier;
            let Some(path) = endpoint.paths().iter().find(is_its) else {
                debug!(device, "a passed segment is for no path of this process");
                continue;
            };
            let Some(own) = path.local_for(segment.source.ip()) else { continue };
            let (id, on_device) = (path.id, device_address(path, own));
            let destination = segment.destination.ip();
            segment.destination.set_ip(own);
            let tuple = FourTuple { local: segment.destination, remote: segment.source };
            let is_known = endpoint.has_tuple(&tuple);
            let lane = &mut self.lanes[carriers.position(id)];
            if let (Some(address), Some(own)) = (local, on_device) {
                lane.carrier.note_arrival(&segment, LocalAddress { address, own }, endpoint);
            }
            lane.carrier.note_passed(&segment, destination, is_known);
            endpoint.handle_segment(Arrival { at: now, path: Some(id) }, &segment);
            if let Some(relay) = self.relay.as_mut().filter(|_| endpoint.has_tuple(&tuple)) {
                relay.note_flow(carrier, &tuple);
            }
        }
    }

    /// Passes the segments that the endpoint has left, and tells the other process what it should know.
    pub(super) fn pass(&mut self) {
        let Some(relay) = &mut self.relay else {
            self.left.clear();
            return;
        };
        let now = self.shared.clock.now();
        self.left.drain(..).for_each(|left| relay.pass(now, &left));
        if relay.is_successor() {
            for lane in &mut self.lanes {
                relay.note_sockets(lane.carrier.take_untold());
            }
        }
        relay.flush();
    }
}

/// A segment that the endpoint has left, as the other process understands it.
pub(super) fn left(
    carrier: CarrierKind,
    local: Option<LocalAddress>,
    segment: Segment,
    endpoint: &Endpoint,
) -> Option<Left> {
    let path = endpoint.paths().with_address(segment.destination.ip())?;
    Some(Left { carrier, device: path.name.clone(), local: local.map(|local| local.address), segment })
}
