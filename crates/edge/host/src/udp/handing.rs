//! Listening sockets that another process takes over.
//!
//! Both processes have a descriptor of each socket and send by it. One of them reads: the one that took them over. It opens the sockets of
//! paths that come later, and the other one gets a descriptor of each.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use super::socket::Socket;
use super::{Place, Table, Udp};
use crate::handover::HandedSocket;
use crate::log::{debug, warn};

impl Udp {
    /// Reads the sockets of listening ports no longer, and returns another descriptor of each.
    pub(super) fn hand_over(&self) -> io::Result<Vec<HandedSocket>> {
        let mut table = self.lock();
        let listening: Vec<_> =
            table.listening.values().filter_map(|number| table.sockets.get(number)).collect();
        let handed = listening.iter().map(|socket| handed(socket)).collect::<io::Result<_>>()?;
        listening.iter().for_each(|socket| socket.leave());
        table.is_handed_over = true;
        Ok(handed)
    }

    /// Reads the sockets again.
    pub(super) fn take_back(&self) {
        let mut table = self.lock();
        table.is_handed_over = false;
        table.given.clear();
        for (at, number) in &table.listening {
            let watched = table.sockets.get(number).map(|socket| socket.watch(&self.watched, *number));
            if let Some(Err(error)) = watched {
                warn!(%error, %at, "a socket is not read again");
            }
        }
        // Sockets of paths that have come meanwhile.
        for port in table.ports.clone() {
            if let Err(error) = self.listen_everywhere(&mut table, port) {
                debug!(%error, port, "a path over UDP is not listened on");
            }
        }
    }

    /// Uses these sockets in place of new ones, and notes new ones for the other process from now on.
    pub(super) fn take_over(&self, sockets: Vec<HandedSocket>) {
        let mut table = self.lock();
        table.given = sockets;
        table.untold = Some(Vec::new());
    }

    /// Uses a socket of the other process for sending.
    pub(super) fn adopt(&self, socket: HandedSocket) {
        let mut table = self.lock();
        if !table.is_handed_over || table.given.len() >= MOST_GIVEN {
            return;
        }
        let port = socket.port;
        table.given.push(socket);
        if let Err(error) = self.listen_everywhere(&mut table, port) {
            debug!(%error, port, "a socket of the other process is not used");
        }
    }

    /// The sockets that were opened since the last call.
    pub(super) fn take_untold(&self) -> Vec<HandedSocket> {
        self.lock().untold.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The other process has ended.
    pub(super) fn end_telling(&self) {
        let mut table = self.lock();
        table.untold = None;
        table.given.clear();
    }
}

/// Most sockets of another process that wait for their path: one for each path and family.
const MOST_GIVEN: usize = 128;

impl Table {
    /// The socket of another process for this place.
    pub(super) fn given_for(&mut self, place: &Place, at: SocketAddr) -> Option<UdpSocket> {
        let fits = |given: &HandedSocket| {
            (given.is_v4, given.port, given.device_index) == (at.is_ipv4(), at.port(), place.index)
        };
        // The last one: an earlier one may be that of an earlier address.
        let position = self.given.iter().rposition(fits)?;
        Some(self.given.swap_remove(position).io)
    }

    /// Notes a socket for the other process.
    pub(super) fn tell(&mut self, socket: &Socket) {
        if let Some(untold) = &mut self.untold {
            untold.extend(handed(socket).ok());
        }
    }
}

fn handed(socket: &Socket) -> io::Result<HandedSocket> {
    let (is_v4, port, device_index) = (socket.local.is_ipv4(), socket.local.port(), socket.device_index);
    Ok(HandedSocket { is_v4, port, device_index, io: socket.duplicate()? })
}
