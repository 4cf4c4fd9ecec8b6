//! The carrier's side of the driver.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use plait_base::Instant;
use plait_endpoint::Endpoint;
use plait_tcp::FourTuple;
use plait_wire::{Flags, Segment};

use super::receiving::Receiver;
use super::sending::Sender;
use super::{LONGEST_SUPER_SEGMENT, Udp, Use};
use crate::batch::{Inbox, Outbox};
use crate::carrier::{Arrivals, Carrier, LocalAddress, Sent};
use crate::carriers::CarrierKind;
use crate::handover::{Handed, HandedSocket};
use crate::log::trace;
use crate::sys::Source;

/// The sockets of a host.
pub(crate) struct OverUdp {
    udp: Arc<Udp>,
    receiver: Receiver,
    sender: Sender,
    sweep: Option<Instant>,
}

impl OverUdp {
    pub(crate) fn new(udp: Arc<Udp>) -> Self {
        let (receiver, sender) = (Receiver::new(udp.clone()), Sender::new(udp.clone()));
        Self { udp, receiver, sender, sweep: None }
    }
}

impl Carrier for OverUdp {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Udp
    }

    fn longest_super_segment(&self) -> u16 {
        LONGEST_SUPER_SEGMENT
    }

    fn readiness(&self) -> Option<Source<'_>> {
        Some(self.udp.watched.source())
    }

    fn receive(&mut self, inbox: &mut Inbox<'_>) -> io::Result<Arrivals> {
        self.receiver.receive(inbox).map(|()| Arrivals::Drained)
    }

    fn send(&mut self, outbox: &mut Outbox<'_>) -> io::Result<Sent> {
        while let Some(next) = outbox.next() {
            match self.sender.send(outbox.now(), next.path, &next.segment) {
                Ok(from) => outbox.sent(Some(from)),
                // A full queue counts as a loss, too: no other path must wait for it.
                Err(error) => {
                    trace!(%error, "a datagram was not sent");
                    outbox.lost();
                }
            }
        }
        Ok(Sent::All)
    }

    /// Answers to the peer are sent from the address that it has used.
    fn note_arrival(&mut self, segment: &Segment, local: LocalAddress, endpoint: &Endpoint) {
        if segment.is_datagram() {
            // It is never answered, and the segments of its subflow were noted.
            return;
        }
        let tuple = FourTuple { local: segment.destination, remote: segment.source };
        self.udp.lock().asked.note(tuple, local, |tuple| endpoint.has_tuple(tuple));
    }

    /// A question is answered as if it had arrived here.
    fn note_passed(&mut self, segment: &Segment, _destination: IpAddr, _is_known: bool) {
        if segment.flags.contains(Flags::SYN) {
            self.udp.lock().credits.note(segment);
        }
    }

    fn adopt(&mut self, handed: Handed) {
        match handed {
            Handed::Socket(socket) => self.udp.adopt(socket),
            Handed::Device(_) => {}
        }
    }

    fn take_untold(&mut self) -> Vec<HandedSocket> {
        self.udp.take_untold()
    }

    fn end_handover(&mut self) {
        self.udp.end_telling();
    }

    /// Maintains the sockets when it is time.
    fn maintain(&mut self, now: Instant, endpoint: &Endpoint) -> Option<Instant> {
        if self.sweep.is_none_or(|sweep| sweep <= now) {
            let use_of = |tuple: &FourTuple| match endpoint.has_tuple(tuple) {
                false => Use::None,
                true if endpoint.is_in_time_wait(tuple) => Use::Waits,
                true => Use::Full,
            };
            self.udp.sweep(now, use_of, |port| endpoint.local_ports().contains(&port));
            self.sweep = self.udp.next_sweep(now);
        }
        self.udp.sort_strangers(|tuple| endpoint.has_tuple(tuple));
        self.sweep
    }
}
