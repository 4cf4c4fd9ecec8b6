//! Paths and routes: the path of a packet, and the next box on it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use plait_base::Instant;
use std::collections::BTreeMap;

use crate::{Direction, Element, Frame, HostIndex, Outlet};

/// Identifies a path of the world, in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathIndex(pub usize);

/// The address families of the ends of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Families {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both.
    Both,
}

/// The addresses of one end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Addresses {
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
}

impl Addresses {
    /// Returns the addresses of `path` at its end number `end`, 0 or 1.
    pub(crate) fn assign(path: PathIndex, end: u8, families: Families) -> Self {
        let net = path.0 as u8;
        let v4 = Ipv4Addr::new(10, net, 0, end + 1);
        let v6 = Ipv6Addr::new(0xfd00, u16::from(net), 0, 0, 0, 0, 0, u16::from(end) + 1);
        match families {
            Families::V4 => Self { v4: Some(v4), v6: None },
            Families::V6 => Self { v4: None, v6: Some(v6) },
            Families::Both => Self { v4: Some(v4), v6: Some(v6) },
        }
    }
}

/// One path: its ends, and the boxes between them.
pub(crate) struct Line {
    pub(crate) hosts: [HostIndex; 2],
    pub(crate) addresses: [Addresses; 2],
    pub(crate) chain: Vec<Box<dyn Element>>,
}

/// A frame on its way. `gap` counts the gaps between the boxes: 0 is in front of the first one.
pub(crate) struct Transit {
    pub(crate) path: PathIndex,
    pub(crate) direction: Direction,
    pub(crate) gap: usize,
    pub(crate) frame: Frame,
}

/// The result of a step of a frame.
pub(crate) enum Next {
    /// It has crossed the path.
    Arrived(HostIndex, Frame),
    /// A box has taken it.
    Taken(usize, Outlet),
}

/// All paths, and the routes of packets.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) lines: Vec<Line>,
    routes: BTreeMap<(IpAddr, IpAddr), (PathIndex, Direction)>,
}

impl Network {
    /// Adds a path and the routes between its ends.
    pub(crate) fn add(&mut self, line: Line) -> PathIndex {
        let path = PathIndex(self.lines.len());
        let [near, far] = line.addresses;
        let v4 = near.v4.zip(far.v4).map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        let v6 = near.v6.zip(far.v6).map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        for (a, b) in v4.into_iter().chain(v6) {
            self.route(a, b, path, Direction::Forward);
            self.route(b, a, path, Direction::Backward);
        }
        self.lines.push(line);
        path
    }

    pub(crate) fn route(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        path: PathIndex,
        direction: Direction,
    ) {
        self.routes.insert((source, destination), (path, direction));
    }

    /// Returns a frame between these addresses at the start of its path; `None` without a route.
    pub(crate) fn depart(&self, source: IpAddr, destination: IpAddr, frame: Frame) -> Option<Transit> {
        let (path, direction) = *self.routes.get(&(source, destination))?;
        let gap = match direction {
            Direction::Forward => 0,
            Direction::Backward => self.lines[path.0].chain.len(),
        };
        Some(Transit { path, direction, gap, frame })
    }

    /// Moves a frame on by one box.
    pub(crate) fn step(&mut self, now: Instant, transit: Transit) -> Next {
        let Transit { path, direction, gap, frame } = transit;
        let line = &mut self.lines[path.0];
        let element = match direction {
            Direction::Forward if gap >= line.chain.len() => return Next::Arrived(line.hosts[1], frame),
            Direction::Backward if gap == 0 => return Next::Arrived(line.hosts[0], frame),
            Direction::Forward => gap,
            Direction::Backward => gap - 1,
        };
        let mut out = Outlet::default();
        match line.chain.get_mut(element) {
            Some(taker) => taker.pass(now, direction, frame, &mut out),
            // The chain became shorter while the frame was on its way.
            None => out.push(now, direction, frame),
        }
        Next::Taken(element, out)
    }

    /// Wakes a box.
    pub(crate) fn wake(&mut self, now: Instant, path: PathIndex, element: usize) -> Outlet {
        let mut out = Outlet::default();
        if let Some(sleeper) = self.lines[path.0].chain.get_mut(element) {
            sleeper.wake(now, &mut out);
        }
        out
    }
}
