//! The networks behind devices, as the routing table, the neighbour table and the tunnels of this host show them.
//!
//! Two devices lead into one network if they have the same gateway: the same address, and the same link-layer address. An address alone
//! proves nothing, because 192.168.1.1 is the gateway of many networks. If a link-layer address is unknown, the kernel is made to ask for
//! it. Without an answer, devices with the same gateway address count as one if they have addresses in one subnet.
//! Devices with the same address of their own are in different networks, whatever their gateways look like: USB modems of one type share
//! all three. A tunnel leads into the network of the device that carries it.
//!
//! A device that is down, or has no gateway, keeps the way that it had: its return must not look like another path. A device that comes up
//! counts as down until the gateways that decide about it have answered, or have had the time.

mod coming;
mod uplink;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use plait_mptcp::PathClass;

use self::coming::Coming;
use self::uplink::{Gateway, Uplink};
use super::links::Link;
use super::neighbours::Neighbours;
use super::snapshot::Snapshot;
use super::tunnels::Tunnels;
use crate::error::Error;
use crate::log::{debug, warn};
use crate::path::PathSpec;
use crate::path_rule::PathRule;
use crate::shared_networks::SharedNetworks;
use crate::sys::linux::datagrams::connected;

/// Time limit for the answers of gateways to the question for their link-layer addresses, and the time until the first look at them.
const ANSWER: Duration = Duration::from_millis(300);
const FIRST_LOOK: Duration = Duration::from_millis(30);

/// Time after which a gateway that has not answered is asked again. It doubles until it is [`REVIEW`].
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Time after which devices that share a network are looked at again: neighbours change without an announcement.
const REVIEW: Duration = Duration::from_secs(30);

/// Port for discarded datagrams (RFC 863): the kernel asks for the link-layer address of a gateway before it sends one there.
const DISCARD: u16 = 9;

/// The knowledge about the ways of the devices of paths, from look to look. A look never waits.
#[derive(Default, Debug)]
pub(crate) struct Uplinks {
    known: BTreeMap<String, Uplink>,
    /// The questions that are not answered yet, by device and gateway.
    questions: BTreeMap<(String, IpAddr), Question>,
    coming: Coming,
    /// The tunnels that the log has warned of.
    warned: BTreeSet<String>,
    next: NextLook,
}

/// A question for a link-layer address.
#[derive(Clone, Copy, Debug)]
struct Question {
    first: Instant,
    last: Instant,
}

/// The time of the next look that no announcement causes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
enum NextLook {
    /// The answer to a question may have come by then.
    Answer(Duration),
    /// Gateways are asked again, or shared networks looked at again.
    Review(Duration),
    #[default]
    NotNeeded,
}

/// The state of the kernel that a look uses.
struct Seen<'a> {
    snapshot: &'a Snapshot,
    tunnels: &'a Tunnels,
    neighbours: &'a Neighbours,
}

impl Uplinks {
    /// Reads the kernel's state, with the networks that the devices of the paths share which `select` returns. Makes the kernel ask gateways
    /// whose link-layer address decides that. No gateway is asked over a path that must carry nothing. Routes over devices that none of the
    /// rules selects are left out.
    pub(crate) fn look(
        &mut self,
        rules: &[PathRule],
        select: impl FnOnce(&Snapshot) -> Vec<PathSpec>,
    ) -> Result<Snapshot, Error> {
        self.look_at(Snapshot::take_for(rules), select).map(|(snapshot, _)| snapshot)
    }

    /// Adds the networks that these paths share to a state that was read.
    fn look_at(
        &mut self,
        read: Result<Snapshot, Error>,
        select: impl FnOnce(&Snapshot) -> Vec<PathSpec>,
    ) -> Result<(Snapshot, Vec<PathSpec>), Error> {
        // Also after an error: the time of this look has passed.
        self.next = NextLook::NotNeeded;
        let mut snapshot = read?;
        let paths = select(&snapshot);
        self.complete(&mut snapshot, &paths);
        Ok((snapshot, paths))
    }

    /// Sets the networks that these paths share, as the tables of neighbours and tunnels show them now.
    fn complete(&mut self, snapshot: &mut Snapshot, paths: &[PathSpec]) {
        if paths.len() < 2 {
            return;
        }
        let tunnels = snapshot.tunnels_of(paths.iter().map(PathSpec::device));
        self.warn_of(paths.iter().map(PathSpec::device).filter(|device| tunnels.is_unreadable(device)));
        let seen = Seen { snapshot, tunnels: &tunnels, neighbours: &Neighbours::read(snapshot.links()) };
        let (networks, to_ask) = self.take(Instant::now(), &seen, paths);
        to_ask.iter().for_each(|gateway| ask(snapshot, gateway));
        snapshot.set_shared_networks(networks);
        snapshot.set_coming(self.coming.devices());
    }

    /// Looks until the gateways have answered, or have had the time. Takes some hundred milliseconds if one does not answer. Changes of
    /// devices and routes in that time are left to the next look: they are announced. Without rules, the routes over all devices are read.
    pub(crate) fn settle(
        &mut self,
        rules: Option<&[PathRule]>,
        select: impl FnOnce(&Snapshot) -> Vec<PathSpec>,
    ) -> Result<Snapshot, Error> {
        let read = rules.map_or_else(Snapshot::take, Snapshot::take_for);
        let (mut snapshot, paths) = self.look_at(read, select)?;
        while let NextLook::Answer(after) = self.next {
            std::thread::sleep(after);
            self.complete(&mut snapshot, &paths);
        }
        Ok(snapshot)
    }

    /// The time until the next look, if one is needed without an announcement.
    pub(crate) fn look_again(&self) -> Option<Duration> {
        match self.next {
            NextLook::NotNeeded => None,
            NextLook::Answer(after) | NextLook::Review(after) => Some(after),
        }
    }

    /// Takes what a look has shown. Returns the networks that devices share, and the gateways to ask.
    fn take(&mut self, now: Instant, seen: &Seen<'_>, paths: &[PathSpec]) -> (SharedNetworks, Vec<Gateway>) {
        let (mut ways, mut current) = (self.known.clone(), BTreeSet::new());
        for device in paths.iter().map(PathSpec::device) {
            let way = Uplink::of(device, seen.snapshot, seen.tunnels, seen.neighbours);
            if is_up(seen.snapshot, device) && way.is_known() {
                current.insert(device);
            }
            if current.contains(device) || !ways.get(device).is_some_and(Uplink::is_known) {
                ways.insert(device.to_owned(), way);
            }
        }
        let doubtful = doubtful(&ways, seen.snapshot, paths);
        let to_ask = self.note_questions(now, &doubtful);
        for gateway in ways.values_mut().flat_map(|way| &mut way.gateways) {
            let question = self.questions.get(&gateway.key());
            gateway.is_asked = question.is_some_and(|question| question.is_new(now));
        }
        let ways = self.settled(now, seen.snapshot, paths, &current, ways);
        let devices: Vec<String> = paths.iter().map(|path| path.device().to_owned()).collect();
        let networks = SharedNetworks::group(&devices, |one, other| ways.get(one)?.meets(ways.get(other)?));
        let review = if networks.is_empty() { NextLook::NotNeeded } else { NextLook::Review(REVIEW) };
        let answers = self.questions.values().map(|question| question.next_look(now));
        self.next = answers.min().unwrap_or_default().min(review);
        (networks, to_ask)
    }

    /// Notes a question to each of these gateways, unless it was asked lately. Returns those to ask.
    fn note_questions(&mut self, now: Instant, doubtful: &[Gateway]) -> Vec<Gateway> {
        self.questions.retain(|key, _| doubtful.iter().any(|gateway| gateway.key() == *key));
        let is_due = |gateway: &&Gateway| {
            self.questions.get(&gateway.key()).is_none_or(|question| now >= question.again())
        };
        let due: Vec<Gateway> = doubtful.iter().filter(is_due).cloned().collect();
        for gateway in &due {
            self.questions.entry(gateway.key()).or_insert(Question { first: now, last: now }).last = now;
        }
        due
    }

    /// Returns the ways that count. A device about which gateways are being asked counts by the way that it had before, if it had any.
    fn settled(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        paths: &[PathSpec],
        current: &BTreeSet<&str>,
        mut ways: BTreeMap<String, Uplink>,
    ) -> BTreeMap<String, Uplink> {
        let is_asked = |way: &Uplink| ways.values().any(|other| way.is_decided_with(other));
        let asked: BTreeSet<String> =
            ways.values().filter(|way| is_asked(way)).map(|way| way.device.clone()).collect();
        let is_used = |device: &str| {
            paths.iter().any(|path| path.device() == device && path.class() != PathClass::Never)
        };
        for (device, way) in ways.clone() {
            // The gateway of a path that must carry nothing has not been asked: there is no earlier way to count by.
            let link = snapshot.link(&device).filter(|_| is_used(&device));
            if self.coming.take(
                now,
                &device,
                link,
                current.contains(device.as_str()),
                asked.contains(&device),
            ) {
                self.known.insert(device, way);
                continue;
            }
            match self.known.get(&device) {
                Some(before) => ways.insert(device, before.as_settled()),
                None => ways.remove(&device),
            };
        }
        ways
    }

    /// Warns of these tunnels, once of each.
    fn warn_of<'a>(&mut self, unreadable: impl Iterator<Item = &'a str>) {
        for device in unreadable {
            if self.warned.insert(device.to_owned()) {
                warn!(
                    device,
                    "the other end of this tunnel cannot be read: it counts as carried by the device of the default route; \
                     fix: install wg and run plait as root"
                );
            }
        }
    }
}

impl Question {
    /// Whether the time for the answer has not passed yet. Until then, silence proves nothing.
    fn is_new(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.first) < ANSWER
    }

    /// The time of the next question.
    fn again(&self) -> Instant {
        self.last + (self.last - self.first).clamp(ASK_AGAIN, REVIEW)
    }

    /// The next look because of this question. After the first one, each look at the answer is after twice the time of the one before.
    /// After a repeated one there is a single look.
    fn next_look(&self, now: Instant) -> NextLook {
        let since = now.saturating_duration_since(self.last);
        match ANSWER.checked_sub(since).filter(|left| !left.is_zero()) {
            Some(left) if self.is_new(now) => NextLook::Answer(since.max(FIRST_LOOK).min(left)),
            Some(left) => NextLook::Answer(left),
            None => NextLook::Review(self.again().saturating_duration_since(now)),
        }
    }
}

/// The gateways without a known link-layer address that decides whether two paths share a network, each once, as far as they can be
/// asked now.
fn doubtful(known: &BTreeMap<String, Uplink>, snapshot: &Snapshot, paths: &[PathSpec]) -> Vec<Gateway> {
    let used = paths.iter().filter(|path| path.class() != PathClass::Never);
    let ways: Vec<&Uplink> = used.filter_map(|path| known.get(path.device())).collect();
    let mut doubtful: Vec<Gateway> = Vec::new();
    for way in &ways {
        let others = ways.iter().filter(|other| other.device != way.device);
        let others: Vec<&Gateway> = others.flat_map(|other| &other.gateways).collect();
        for gateway in &way.gateways {
            let link = snapshot.link(&gateway.carrier);
            let can_be_asked = gateway.link_address.is_none() && link.is_some_and(Link::can_ask);
            let decides = others.iter().any(|other| gateway.may_be(other));
            if can_be_asked && decides && !doubtful.contains(gateway) {
                doubtful.push(gateway.clone());
            }
        }
    }
    doubtful
}

fn is_up(snapshot: &Snapshot, device: &str) -> bool {
    snapshot.link(device).is_some_and(Link::is_up)
}

/// Makes the kernel ask for the link-layer address of a gateway.
fn ask(snapshot: &Snapshot, gateway: &Gateway) {
    let Some(link) = snapshot.link(&gateway.carrier) else { return };
    let (own, to) = match gateway.address {
        IpAddr::V4(_) => (link.v4().map(IpAddr::V4), SocketAddr::new(gateway.address, DISCARD)),
        IpAddr::V6(v6) => (link.v6().map(IpAddr::V6), SocketAddrV6::new(v6, DISCARD, 0, link.index).into()),
    };
    let Some(own) = own else { return };
    let asked = connected(&gateway.carrier, own, to).and_then(|socket| socket.send(&[]));
    if let Err(error) = asked {
        debug!(%error, device = gateway.carrier, "the gateway is not asked for its link-layer address");
    }
}

#[cfg(test)]
mod tests;
