//! The devices behind a gateway: the connections of each, and the bytes that it has sent and received.
//!
//! A device is told by its link-layer address, because it may have any number of addresses of IPv6. Without a known one, it is an address of
//! IPv4, or a network of 64 bits of IPv6.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Most devices with counters of their own. Beyond it, the one that has been idle for longest is forgotten; if none is idle, new ones share counters.
const MAX_DEVICES: usize = 256;
/// Most addresses that are kept of a device: the last ones.
const MAX_ADDRESSES: usize = 8;
/// Most neighbours that are known, several for each device.
const MAX_NEIGHBOURS: usize = 4096;

/// A link-layer address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Mac([u8; 6]);

/// All devices since the start.
#[derive(Debug, Default)]
pub(crate) struct Devices(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    most: Most,
    by_key: BTreeMap<Key, Arc<Device>>,
    neighbours: BTreeMap<IpAddr, Mac>,
    /// Counts the visits, as a clock.
    time: u64,
    /// Whether a visitor had no known link-layer address.
    has_unknown: bool,
}

/// What one device may have at a time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Most {
    pub(crate) connections: usize,
    /// Questions of DNS that wait for an answer, and connections for such questions.
    pub(crate) questions: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Mac(Mac),
    Address(IpAddr),
    /// All devices that have no counters of their own.
    Rest,
}

/// One device.
#[derive(Debug, Default)]
pub(crate) struct Device {
    addresses: Mutex<VecDeque<IpAddr>>,
    /// The time of its last visit.
    seen: AtomicU64,
    connections: Places,
    questions: Places,
    sent: AtomicU64,
    received: AtomicU64,
}

/// Visits of one kind.
#[derive(Debug, Default)]
struct Places {
    now: AtomicUsize,
    all: AtomicU64,
    refused: AtomicU64,
}

/// A connection, or a question, that counts as open until this is dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    device: Arc<Device>,
    is_question: bool,
}

/// A device, as it is reported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct DeviceReport {
    /// The last ones; none if the device has no counters of its own.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) mac: Option<String>,
    pub(crate) connections_open: usize,
    pub(crate) connections_opened: u64,
    /// Those above the limit of a device.
    pub(crate) connections_refused: u64,
    pub(crate) questions: u64,
    pub(crate) questions_refused: u64,
    /// Bytes from the device, and to it.
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
}

impl Devices {
    /// Sets what one device may have at a time.
    pub(crate) fn limit(&self, most: Most) {
        self.kept().most = most;
    }

    /// Takes the neighbours of this host, in place of those that were known.
    pub(crate) fn learn(&self, neighbours: impl IntoIterator<Item = (IpAddr, Mac)>) {
        let mut kept = self.kept();
        kept.neighbours = neighbours.into_iter().take(MAX_NEIGHBOURS).collect();
        kept.has_unknown = false;
        kept.join_known();
    }

    /// Whether the link-layer address of this neighbour is known.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        self.kept().neighbours.contains_key(&address.to_canonical())
    }

    /// Whether there was a visitor without a known link-layer address since the neighbours were read.
    pub(crate) fn has_unknown(&self) -> bool {
        self.kept().has_unknown
    }

    /// Counts a connection of the device with this address, unless it has as many as it may have.
    pub(crate) fn connects(&self, from: IpAddr) -> Option<Visit> {
        let (device, most) = self.kept().device(from);
        device.connections.take(most.connections).then(|| Visit { device, is_question: false })
    }

    /// Counts a question of DNS in the same way.
    pub(crate) fn asks(&self, from: IpAddr) -> Option<Visit> {
        let (device, most) = self.kept().device(from);
        device.questions.take(most.questions).then(|| Visit { device, is_question: true })
    }

    /// The devices: those with connections first, then by the bytes that they have sent and received.
    pub(crate) fn reports(&self) -> Vec<DeviceReport> {
        let mut reports: Vec<_> =
            self.kept().by_key.iter().map(|(key, device)| device.report(*key)).collect();
        let rank = |report: &DeviceReport| {
            (report.connections_open > 0, report.bytes_up.saturating_add(report.bytes_down))
        };
        reports.sort_by_key(|report| std::cmp::Reverse(rank(report)));
        reports
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn device(&mut self, from: IpAddr) -> (Arc<Device>, Most) {
        let from = from.to_canonical();
        let mac = self.neighbours.get(&from).copied();
        self.has_unknown |= mac.is_none();
        let key = mac.map_or_else(|| Key::of(from), Key::Mac);
        let key = if self.by_key.contains_key(&key) || self.make_room() { key } else { Key::Rest };
        self.time += 1;
        let device = Arc::clone(self.by_key.entry(key).or_default());
        device.seen.store(self.time, Ordering::Relaxed);
        if key != Key::Rest {
            device.has(from);
        }
        (device, self.most)
    }

    /// Adds what idle devices have done before their link-layer address was known to the device with that address.
    fn join_known(&mut self) {
        let known = |key: &Key| match key {
            Key::Address(address) => self.neighbours.get(address).map(|mac| (*key, Key::Mac(*mac))),
            Key::Mac(_) | Key::Rest => None,
        };
        let known: Vec<_> = self.by_key.keys().filter_map(known).collect();
        for (before, now) in known {
            let Some(device) = self.by_key.get(&before).filter(|device| device.is_idle()).cloned() else {
                continue;
            };
            self.by_key.remove(&before);
            match self.by_key.get(&now) {
                Some(own) => own.adds(&device),
                None => drop(self.by_key.insert(now, device)),
            }
        }
    }

    /// Whether there is room for another device.
    fn make_room(&mut self) -> bool {
        if self.by_key.len() < MAX_DEVICES {
            return true;
        }
        let idle = self.by_key.iter().filter(|(key, device)| **key != Key::Rest && device.is_idle());
        let oldest = idle.min_by_key(|(_, device)| device.seen.load(Ordering::Relaxed)).map(|(key, _)| *key);
        oldest.is_some_and(|key| self.by_key.remove(&key).is_some())
    }
}

impl Key {
    fn of(address: IpAddr) -> Self {
        Self::Address(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        })
    }
}

impl Device {
    fn is_idle(&self) -> bool {
        [&self.connections, &self.questions].iter().all(|places| places.now.load(Ordering::Relaxed) == 0)
    }

    fn has(&self, address: IpAddr) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if !addresses.contains(&address) {
            addresses.push_back(address);
            if addresses.len() > MAX_ADDRESSES {
                addresses.pop_front();
            }
        }
    }

    /// Adds the counters of another device that is the same one.
    fn adds(&self, other: &Self) {
        for (own, its) in [(&self.connections, &other.connections), (&self.questions, &other.questions)] {
            own.all.fetch_add(its.all.load(Ordering::Relaxed), Ordering::Relaxed);
            own.refused.fetch_add(its.refused.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (own, its) in [(&self.sent, &other.sent), (&self.received, &other.received)] {
            own.fetch_add(its.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn report(&self, key: Key) -> DeviceReport {
        let mac = match key {
            Key::Mac(mac) => Some(mac.to_string()),
            Key::Address(_) | Key::Rest => None,
        };
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        DeviceReport {
            addresses: addresses.iter().copied().collect(),
            mac,
            connections_open: self.connections.now.load(Ordering::Relaxed),
            connections_opened: self.connections.all.load(Ordering::Relaxed),
            connections_refused: self.connections.refused.load(Ordering::Relaxed),
            questions: self.questions.all.load(Ordering::Relaxed),
            questions_refused: self.questions.refused.load(Ordering::Relaxed),
            bytes_up: self.sent.load(Ordering::Relaxed),
            bytes_down: self.received.load(Ordering::Relaxed),
        }
    }
}

impl Places {
    /// Takes a place; returns whether there was one.
    fn take(&self, most: usize) -> bool {
        let more = |now: usize| (now < most).then_some(now + 1);
        let has_room = self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if has_room { &self.all } else { &self.refused }.fetch_add(1, Ordering::Relaxed);
        has_room
    }
}

impl Visit {
    /// Counts bytes from the device.
    pub(crate) fn sends(&self, bytes: usize) {
        self.device.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes to the device.
    pub(crate) fn receives(&self, bytes: usize) {
        self.device.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let places = if self.is_question { &self.device.questions } else { &self.device.connections };
        places.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FromStr for Mac {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let byte = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2);
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("not a link-layer address, as in 02:00:00:00:00:01")
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn devices() -> Devices {
        let devices = Devices::default();
        devices.limit(Most { connections: 2, questions: 1 });
        devices
    }

    #[test]
    fn a_device_with_many_addresses_has_the_connections_of_one() {
        let devices = devices();
        let mac: Mac = "02:00:00:00:00:0A".parse().expect("one");
        assert!(!devices.knows(ip("10.1.0.2")) && !devices.has_unknown());
        let addresses = ["10.1.0.2", "fd00::1", "fd00::2"].map(ip);
        devices.learn(addresses.map(|address| (address, mac)));
        let visits = addresses.map(|address| devices.connects(address));
        assert_eq!(visits.each_ref().map(Option::is_some), [true, true, false]);
        assert!(devices.asks(addresses[0]).is_some() && devices.connects(ip("10.1.0.3")).is_some());
        visits[0].as_ref().expect("one").sends(7);
        let reports = devices.reports();
        assert_eq!(reports.len(), 2);
        assert_eq!(reports[0].mac.as_deref(), Some("02:00:00:00:00:0a"));
        assert_eq!((reports[0].connections_open, reports[0].connections_refused), (2, 1));
        assert_eq!((reports[0].bytes_up, &reports[0].addresses[..]), (7, &addresses[..]));
        drop(visits);
        assert!(devices.connects(addresses[2]).is_some(), "they have ended");
        assert!(devices.has_unknown(), "10.1.0.3");
    }

    #[test]
    fn what_a_device_did_before_it_was_known_is_its_own() {
        let devices = devices();
        drop(devices.asks(ip("10.1.0.2")).expect("a place"));
        let mac: Mac = "02:00:00:00:00:01".parse().expect("one");
        devices.learn([(ip("10.1.0.2"), mac)]);
        drop(devices.connects(ip("10.1.0.2")).expect("a place"));
        let reports = devices.reports();
        assert_eq!(reports.len(), 1);
        assert_eq!((reports[0].questions, reports[0].connections_opened), (1, 1));
        assert_eq!(reports[0].addresses, [ip("10.1.0.2")]);
    }

    #[test]
    fn unknown_addresses_of_one_network_of_ipv6_share_their_places() {
        let devices = devices();
        let visits =
            ["fd00::1", "fd00::2", "fd00::3", "fd00:0:0:1::3"].map(|text| devices.connects(ip(text)));
        assert_eq!(visits.each_ref().map(Option::is_some), [true, true, false, true]);
    }

    #[test]
    fn the_number_of_devices_is_bounded_and_those_with_connections_stay() {
        let devices = devices();
        let address = |number: usize| IpAddr::from(u32::try_from(number).expect("fits").to_be_bytes());
        let first = devices.connects(address(0)).expect("a place");
        for number in 1..2 * MAX_DEVICES {
            drop(devices.connects(address(number)).expect("a place"));
        }
        assert_eq!(devices.reports().len(), MAX_DEVICES);
        assert_eq!(devices.reports()[0].addresses, [address(0)]);
        let kept: Vec<_> =
            (1..MAX_DEVICES + 1).map(|number| devices.connects(address(1000 + number))).collect();
        assert!(kept.iter().all(Option::is_some) && devices.connects(address(5000)).is_some());
        assert!(devices.reports().len() <= MAX_DEVICES + 1);
        let rest =
            devices.reports().into_iter().find(|report| report.addresses.is_empty()).expect("the rest");
        assert_eq!((rest.connections_open, rest.connections_opened), (1, 2));
        drop(first);
    }

    #[test]
    fn a_link_layer_address_has_six_bytes() {
        assert_eq!("Aa:0:1:2:3:4".parse::<Mac>().ok(), None);
        assert!("02:00:00:00:00".parse::<Mac>().is_err() && "fd00::1".parse::<Mac>().is_err());
    }
}
