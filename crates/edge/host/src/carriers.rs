//! The carriers of a host: their names, their selection and their opening. Each carrier has a line in each of these.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use plait_base::{Duration, PathId};

use crate::carrier::{Carrier, CarrierPaths};
use crate::error::Error;
use crate::log::info;
use crate::path_rule::PathRule;
use crate::ranges::{MAX_PATHS, Ranges};
use crate::sys::{LOOPBACK, SourceCheck};
use crate::wake::Wake;
use crate::{over_tun, udp};

/// The name of a carrier. Its text is that of the program's options and of its status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum CarrierKind {
    /// TCP, in IP packets through a TUN device.
    Tcp,
    /// UDP datagrams with the same segments in them, through sockets.
    Udp,
    /// The smallest carrier: a pair of queues between two hosts of one process.
    #[cfg(test)]
    Queues,
}

/// The carriers that a host may use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Carriers {
    /// TCP and, for paths that do not let it pass, UDP. UDP alone if no TUN device is available.
    #[default]
    Auto,
    /// TCP alone: needs root or CAP_NET_ADMIN, and a network that leaves its options alone.
    Tcp,
    /// UDP alone: needs no privilege.
    Udp,
}

/// Most carriers of a host.
pub(crate) const MAX_CARRIERS: usize = 3;

// Each path of each carrier has an id.
const _: () = assert!(MAX_CARRIERS * MAX_PATHS < 1 << u8::BITS);

/// The carriers of the paths of a host, the preferred ones first. Each has an id for each slot of a device, those of a carrier consecutive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathCarriers(ArrayVec<CarrierKind, MAX_CARRIERS>);

/// Typical NATs drop the mapping of a UDP port after 30 s at the earliest; RFC 4787 requires two minutes.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(25);

/// The inputs of the opening of a carrier.
pub(crate) struct Setup<'a> {
    pub(crate) rules: &'a [PathRule],
    pub(crate) ranges: &'a Ranges,
    /// Silence of a subflow before a datagram keeps its mapping in NATs.
    pub(crate) keep_alive: Duration,
    /// Wakes the driver, from any thread. It is a [`std::task::Wake`], too.
    pub(crate) wake: &'a Arc<Wake>,
}

/// The two halves of a carrier.
pub(crate) struct Opened {
    pub(crate) carrier: Box<dyn Carrier>,
    pub(crate) paths: Box<dyn CarrierPaths>,
}

/// The carriers of a host, the preferred ones first.
pub(crate) struct OpenCarriers {
    pub(crate) opened: ArrayVec<Opened, MAX_CARRIERS>,
    /// The reason that a requested, but optional, carrier of TCP is missing.
    pub(crate) tcp_missing: Option<String>,
}

impl CarrierKind {
    /// The carriers that a host can have, the preferred ones first.
    pub const ALL: &'static [Self] = &[Self::Tcp, Self::Udp];

    /// Whether this build has the carrier: a feature of the crate.
    pub(crate) fn is_built(self) -> bool {
        match self {
            Self::Tcp => cfg!(feature = "tcp"),
            Self::Udp => cfg!(feature = "udp"),
            #[cfg(test)]
            Self::Queues => true,
        }
    }

    /// Its addition to the description of a path in a capture.
    pub(crate) fn in_captures(self) -> &'static str {
        match self {
            Self::Tcp => "",
            Self::Udp => ", over UDP, shown as TCP",
            #[cfg(test)]
            Self::Queues => ", over queues",
        }
    }

    /// Its addition to the name of a path, for display.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Tcp => "",
            Self::Udp => " over UDP",
            #[cfg(test)]
            Self::Queues => " over queues",
        }
    }
}

impl Carriers {
    /// The carriers that may be used over a device.
    #[must_use]
    pub fn over(self, device: &str) -> &'static [CarrierKind] {
        match self {
            // The kernel forwards none of its own packets to a TUN device.
            Self::Auto if device == LOOPBACK => &[CarrierKind::Udp],
            Self::Auto => CarrierKind::ALL,
            Self::Tcp => &[CarrierKind::Tcp],
            Self::Udp => &[CarrierKind::Udp],
        }
    }

    /// Whether a carrier may be used over a device.
    pub(crate) fn allow(self, kind: CarrierKind, device: &str) -> bool {
        // The carriers of tests go over every device.
        self.over(device).contains(&kind) || !CarrierKind::ALL.contains(&kind)
    }

    /// Opens the carriers. [`Carriers::Auto`] goes without TCP if a privilege or a feature of the system or of this build is missing, and
    /// without UDP if this build has none. A carrier that was asked for by name is never replaced.
    pub(crate) fn open(self, setup: &Setup<'_>) -> Result<OpenCarriers, Error> {
        let mut open = OpenCarriers::none();
        let over = |rule: &PathRule| self.over(rule.name().unwrap_or_default());
        let has_other = self == Self::Auto && CarrierKind::Udp.is_built();
        if setup.rules.iter().any(|rule| over(rule).contains(&CarrierKind::Tcp)) {
            // UDP alone changes no settings.
            let source_check = if has_other { SourceCheck::Loosened } else { SourceCheck::AsItIs };
            match over_tun::open(setup.ranges, source_check) {
                Err(error) if has_other && error.is_missing_privilege_or_feature() => {
                    info!(%error, "TCP is not available: UDP only");
                    open.tcp_missing = Some(error.to_string());
                }
                opened => open.add(opened?),
            }
        }
        let has_tcp = |rule| self == Self::Auto && over(rule).contains(&CarrierKind::Tcp);
        if setup.rules.iter().any(|rule| over(rule).contains(&CarrierKind::Udp)) {
            match udp::open(setup) {
                // Each path has TCP, which is open.
                Err(Error::NotBuilt { .. }) if setup.rules.iter().all(has_tcp) => {
                    info!("this build has no UDP: TCP only");
                }
                opened => open.add(opened?),
            }
        }
        Ok(open)
    }
}

impl OpenCarriers {
    /// The carriers before the first is added.
    pub(crate) fn none() -> Self {
        Self { opened: ArrayVec::new(), tcp_missing: None }
    }

    /// Adds a carrier behind the others.
    pub(crate) fn add(&mut self, opened: Opened) {
        self.opened.push(opened);
    }

    /// The carriers of all possible paths.
    pub(crate) fn of_paths(&self) -> PathCarriers {
        PathCarriers(self.opened.iter().map(|opened| opened.carrier.kind()).collect())
    }
}

impl PathCarriers {
    /// The carrier of every path.
    #[cfg(test)]
    pub(crate) fn only(kind: CarrierKind) -> Self {
        Self([kind].into_iter().collect())
    }

    /// The carrier of the path with this id.
    #[must_use]
    pub fn of(&self, path: PathId) -> CarrierKind {
        self.0[self.position(path)]
    }

    /// The position of the carrier of a path among those of the host.
    pub(crate) fn position(&self, path: PathId) -> usize {
        (usize::from(path.0) / MAX_PATHS).min(self.0.len().saturating_sub(1))
    }
}

/// The id of the path over the device in this slot, by the carrier at this position.
pub(crate) fn path_id(position: usize, slot: usize) -> PathId {
    PathId(u8::try_from(position * MAX_PATHS + slot).unwrap_or(u8::MAX))
}

/// The slot of the device of a path.
pub(crate) fn slot_of(path: PathId) -> usize {
    usize::from(path.0) % MAX_PATHS
}

impl From<CarrierKind> for Carriers {
    fn from(carrier: CarrierKind) -> Self {
        match carrier {
            CarrierKind::Tcp => Self::Tcp,
            CarrierKind::Udp => Self::Udp,
            #[cfg(test)]
            CarrierKind::Queues => unreachable!("only tests open it"),
        }
    }
}

impl fmt::Display for CarrierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            #[cfg(test)]
            Self::Queues => "queues",
        })
    }
}

/// `auto`, `tcp` or `udp`.
impl FromStr for Carriers {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            _ => Err("not one of auto, tcp, udp"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_carrier_that_its_id_was_given_for() {
        let both = PathCarriers([CarrierKind::Tcp, CarrierKind::Udp].into_iter().collect());
        for (position, kind) in [CarrierKind::Tcp, CarrierKind::Udp].into_iter().enumerate() {
            for slot in [0, 1, MAX_PATHS - 1] {
                let id = path_id(position, slot);
                assert_eq!((both.of(id), slot_of(id)), (kind, slot));
            }
        }
        assert_eq!(PathCarriers::only(CarrierKind::Udp).of(PathId(9)), CarrierKind::Udp);
    }

    #[test]
    fn a_host_reaches_itself_over_udp_only() {
        assert_eq!(Carriers::Auto.over(LOOPBACK), [CarrierKind::Udp]);
        assert_eq!(Carriers::Auto.over("eth0"), [CarrierKind::Tcp, CarrierKind::Udp]);
    }
}
