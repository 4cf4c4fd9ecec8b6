//! The UDP carrier: sockets instead of a TUN device, which need no privilege.
//!
//! A path over UDP has an address of the stack that is on no network ([`crate::stack_address`]). Segments from it leave through a socket
//! bound to the path's device and to its address there. A listening port has one socket for each path and family, for every local address
//! on that device. A subflow that we open has a socket of its own, at a port that the kernel chooses and connected to the peer. The port
//! is a new one for each NAT on the path and cannot be predicted, and the kernel drops packets from other addresses.

mod asked;
mod credit;
mod handing;
mod over_udp;
mod plain_network;
mod receiving;
mod sending;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plait_base::{Duration, Instant, PathId};
use plait_tcp::FourTuple;

use self::asked::Asked;
use self::credit::Credits;
use self::over_udp::OverUdp;
use self::plain_network::PlainNetwork;
use self::socket::Socket;
use crate::carriers::{self, Setup};
use crate::error::Error;
use crate::handover::HandedSocket;
use crate::log::debug;
use crate::stack_address;
use crate::sys::{Signal, Sockets};

/// The header is as long as TCP's, so that segments are as long, too. With the header of each datagram, the longest train is less than
/// the 65,507 bytes of the kernel's limit. A longer super-segment becomes two trains, and the second costs as much as the first.
const LONGEST_SUPER_SEGMENT: u16 = 60_000;

/// Interval of the search for sockets that are unused, or that have been silent.
const SWEEP: Duration = Duration::from_secs(1);

/// Most sockets kept for subflows in TIME-WAIT. Beyond, those silent for the longest time are closed: a client of many short connections
/// would run out of descriptors within the minute. The answer to a repeated FIN of the peer is then lost.
const MOST_WAITING: usize = 128;

/// Opens the carrier.
pub(crate) fn open(setup: &Setup<'_>) -> Result<carriers::Opened, Error> {
    let udp = Arc::new(Udp::new(setup.keep_alive, setup.wake.signal())?);
    let carrier = Box::new(OverUdp::new(udp.clone()));
    Ok(carriers::Opened { carrier, paths: Box::new(PlainNetwork::new(udp)) })
}

/// The use of a socket of a subflow that we opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Full,
    /// TIME-WAIT.
    Waits,
    /// Unused.
    None,
}

/// All sockets of a host.
pub(crate) struct Udp {
    watched: Sockets,
    table: Mutex<Table>,
    /// How long a socket of ours may be silent before a keep-alive.
    keep_alive: Duration,
}

/// The state behind the lock, which is held to find a socket and never while one is used.
#[derive(Default)]
struct Table {
    places: Vec<Place>,
    sockets: BTreeMap<u64, Arc<Socket>>,
    /// Sockets of listening ports, by the stack's address.
    listening: BTreeMap<SocketAddr, u64>,
    /// Sockets of subflows that we have opened.
    opened: BTreeMap<FourTuple, Opened>,
    /// Listening ports. A socket at another port serves accepted connections.
    ports: BTreeSet<u16>,
    last: u64,
    credits: Credits,
    asked: Asked,
    /// Sockets of another process that are not in use yet.
    given: Vec<HandedSocket>,
    /// Another process reads the sockets of listening ports, and opens those of new paths.
    is_handed_over: bool,
    /// The sockets of listening ports that were opened since the other process, which keeps connections of theirs, was told.
    untold: Option<Vec<HandedSocket>>,
}

#[derive(Clone, Copy)]
struct Opened {
    number: u64,
    /// The time of the last datagram sent.
    sent: Instant,
}

/// The location of the sockets of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathId,
    pub(crate) device: String,
    /// The kernel's number of the device. A socket stays as long as its own is this one.
    pub(crate) index: u32,
    /// The addresses of the device for new sockets, by family.
    pub(crate) own: [Option<IpAddr>; 2],
    /// All its addresses: a socket stays as long as its own is one of them.
    pub(crate) valid: BTreeSet<IpAddr>,
}

impl Place {
    fn own_for(&self, address: IpAddr) -> Option<IpAddr> {
        self.own.into_iter().flatten().find(|own| own.is_ipv4() == address.is_ipv4())
    }

    fn stack(&self) -> [IpAddr; 2] {
        [stack_address::v4(self.path).into(), stack_address::v6(self.path).into()]
    }
}

impl Udp {
    /// Returns a carrier without a socket; its sockets wake the thread that `signal` wakes.
    pub(crate) fn new(keep_alive: Duration, signal: &Signal) -> Result<Self, Error> {
        let watched = Sockets::new(signal).map_err(|source| Error::system("wait for sockets", source))?;
        Ok(Self { watched, table: Mutex::default(), keep_alive })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the addresses of a path. Sockets at other addresses are closed.
    pub(crate) fn set_place(&self, place: Place) {
        let mut table = self.lock();
        table.places.retain(|known| known.path != place.path);
        table.places.push(place);
        let ports = table.ports.clone();
        table.drop_misplaced();
        for port in ports {
            if let Err(error) = self.listen_everywhere(&mut table, port) {
                debug!(%error, port, "a path over UDP is not listened on");
            }
        }
    }

    /// Listens on `port` of all paths, including later ones.
    pub(crate) fn open_port(&self, port: u16) -> Result<(), Error> {
        let mut table = self.lock();
        if table.ports.contains(&port) {
            return Err(Error::PortInUse { port, holder: "this host listens on it already" });
        }
        let opened = self.listen_everywhere(&mut table, port);
        match opened {
            Ok(()) => {
                table.ports.insert(port);
                Ok(())
            }
            Err(error) => {
                table.drop_listening(|at| at.port() == port);
                Err(match error.kind() {
                    ErrorKind::AddrInUse => {
                        Error::PortInUse { port, holder: "a program of this host has this port of UDP" }
                    }
                    ErrorKind::PermissionDenied => {
                        Error::system("use a port below 1024 (run as root)", error)
                    }
                    _ => Error::system("open a socket of UDP", error),
                })
            }
        }
    }

    /// Stops listening on `port`. Its sockets stay for the connections that were accepted there.
    pub(crate) fn close_port(&self, port: u16) {
        self.lock().ports.remove(&port);
    }

    /// Opens a socket for `port` on each path and family with an address.
    fn listen_everywhere(&self, table: &mut Table, port: u16) -> io::Result<()> {
        for place in table.places.clone() {
            for stack in place.stack() {
                let at = SocketAddr::new(stack, port);
                let Some(own) = place.own_for(stack).filter(|_| !table.listening.contains_key(&at)) else {
                    continue;
                };
                let socket = match table.given_for(&place, at) {
                    Some(io) => Socket::given(&place, at, own, io)?,
                    None if table.is_handed_over => continue,
                    None => Socket::listen(&place, at, own)?,
                };
                table.tell(&socket);
                let number = self.add(table, socket)?;
                table.listening.insert(at, number);
            }
        }
        Ok(())
    }

    fn add(&self, table: &mut Table, socket: Socket) -> io::Result<u64> {
        table.last += 1;
        let number = table.last;
        if socket.remote.is_some() || !table.is_handed_over {
            socket.watch(&self.watched, number)?;
        }
        table.sockets.insert(number, Arc::new(socket));
        Ok(number)
    }

    /// Closes the sockets of ended subflows, and sends keep-alives on silent ones. `use_of` looks up a four-tuple, and `has_port` whether a
    /// port is in use; both are called while the endpoint is locked.
    fn sweep(&self, now: Instant, use_of: impl Fn(&FourTuple) -> Use, has_port: impl Fn(u16) -> bool) {
        let mut table = self.lock();
        table.asked.sweep(|tuple| use_of(tuple) != Use::None);
        let (mut unused, mut waiting) = (Vec::new(), Vec::new());
        for (tuple, opened) in &table.opened {
            match use_of(tuple) {
                Use::Full => {}
                Use::Waits => waiting.push((opened.sent, *tuple)),
                Use::None => unused.push(*tuple),
            }
        }
        waiting.sort_unstable();
        let too_many = waiting.len().saturating_sub(MOST_WAITING);
        unused.extend(waiting.drain(..too_many).map(|(_, tuple)| tuple));
        for tuple in unused {
            table.drop_opened(&tuple);
        }
        let closed: Vec<u16> = table.listening.keys().map(SocketAddr::port).collect();
        let closed: BTreeSet<u16> = closed.into_iter().filter(|port| !table.ports.contains(port)).collect();
        if !closed.is_empty() {
            table.drop_listening(|at| closed.contains(&at.port()) && !has_port(at.port()));
        }
        let Table { sockets, opened, .. } = &mut *table;
        for opened in opened.values_mut().filter(|opened| opened.sent + self.keep_alive <= now) {
            opened.sent = now;
            if let Some(socket) = sockets.get(&opened.number) {
                socket.say_nothing();
            }
        }
    }

    /// Separates peers that the endpoint knows from unknown addresses, once there are many. Must be called after each turn.
    fn sort_strangers(&self, has_tuple: impl Fn(&FourTuple) -> bool) {
        let mut table = self.lock();
        if table.asked.has_many_strangers() {
            table.asked.sort(has_tuple);
        }
    }

    /// The time of the next sweep; `None` while there is no socket.
    fn next_sweep(&self, now: Instant) -> Option<Instant> {
        let table = self.lock();
        let is_idle = table.opened.is_empty()
            && table.asked.is_empty()
            && table.listening.keys().all(|listening| table.ports.contains(&listening.port()));
        (!is_idle).then(|| now + SWEEP)
    }
}

impl Table {
    fn drop_opened(&mut self, tuple: &FourTuple) {
        if let Some(opened) = self.opened.remove(tuple) {
            self.sockets.remove(&opened.number);
        }
    }

    fn drop_listening(&mut self, is_over: impl Fn(&SocketAddr) -> bool) {
        let over: Vec<_> = self.listening.keys().filter(|at| is_over(at)).copied().collect();
        for at in over {
            if let Some(number) = self.listening.remove(&at) {
                self.sockets.remove(&number);
            }
        }
    }

    /// Closes the sockets at addresses that their path no longer has.
    fn drop_misplaced(&mut self) {
        let Self { places, sockets, .. } = &*self;
        let is_at_home = |number: &u64| {
            let Some(socket) = sockets.get(number) else { return false };
            let is_its = |place: &Place| (place.path, place.index) == (socket.path, socket.device_index);
            places.iter().any(|place| is_its(place) && place.valid.contains(&socket.own))
        };
        let listening: Vec<_> =
            self.listening.iter().filter(|(_, number)| !is_at_home(number)).map(|(at, _)| *at).collect();
        let opened: Vec<_> = self
            .opened
            .iter()
            .filter(|(_, opened)| !is_at_home(&opened.number))
            .map(|(tuple, _)| *tuple)
            .collect();
        self.drop_listening(|at| listening.contains(at));
        for tuple in opened {
            self.drop_opened(&tuple);
        }
    }
}

#[cfg(test)]
mod tests;
