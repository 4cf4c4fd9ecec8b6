//! The network around the TUN device: addresses, routes, translation and settings, for as long as a host lives.
//!
//! The stack has one private address per path and family, on the subnet of the TUN device. A packet from one of them is routed by a
//! table of that path alone, forwarded to the path's device and translated to the device's address there. Answers take the same way
//! back. Connections to a port that the stack listens on are redirected to it before the kernel's own TCP sees them.
//!
//! All rules are added beside those of the host, carry our mark, and are removed when the host ends; the next host removes what a
//! killed host left behind.

mod cookie;
mod guard;
mod leftovers;
mod loosening;
mod nat;
mod path_tables;
mod ports;
mod script;
mod subnets;
mod sysctl;
mod translations;
mod tun;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use plait_base::PathId;
use plait_mptcp::{Path, PathClass};

use self::guard::{Closed, Guard};
use self::loosening::Loosened;
use self::nat::{Nat, Translation};
use self::path_tables::{Entrance, PathTable};
use self::ports::PortReservation;
use self::script::{run_batch, try_run};
use self::subnets::Subnets;
use self::sysctl::{Journal, Leave};
use super::links::Link;
use super::snapshot::{Family, Snapshot};
use crate::carrier::path_mtu;
use crate::carriers::slot_of;
use crate::error::Error;
use crate::log::{debug, info, warn};
use crate::path::{NumberedPath, PathSpec};
use crate::ranges::Ranges;
use crate::sys::linux::NAME_PREFIX;
use crate::sys::{MAX_OFFLOADED, SourceCheck};

pub use self::leftovers::remove_leftovers;
pub(crate) use self::translations::Translations;
pub(crate) use self::tun::Tun;

/// Packets that wait for the driver: as many wire segments as two megabytes, for senders with unmerged segments. The kernel's
/// default is a quarter of that, and further packets are lost.
const QUEUE: u32 = 2000;

/// The set-up of one host; dropping it undoes everything.
#[derive(Debug)]
pub(crate) struct Network {
    /// As long as this is open no other program can have a device of that name. `None` after it was closed.
    tun: Option<Arc<Tun>>,
    device: String,
    /// The kernel's number of the device, which no other has while this network namespace exists.
    index: Option<u32>,
    number: u8,
    subnets: Subnets,
    journal: Journal,
    guard: Guard,
    /// Whether all devices forward, by family, because of other programs.
    router: [bool; 2],
    source_check: SourceCheck,
    loosened: Loosened,
    entrance: Option<Entrance>,
    nat: Option<Nat>,
    paths: Vec<ConfiguredPath>,
    /// Whether a path has changed since the last refresh.
    is_changed: bool,
    ports: BTreeMap<u16, PortReservation>,
    /// Open ports that another process may reserve, or has.
    handed: BTreeSet<u16>,
    /// Whether new connections to them are left to that process.
    has_left: bool,
    /// The numbers of the devices of other hosts.
    others: BTreeSet<u8>,
    snapshot: Arc<Snapshot>,
}

#[derive(Debug)]
struct ConfiguredPath {
    spec: PathSpec,
    id: PathId,
    /// Its number among the paths of the TUN device.
    index: u8,
    table: PathTable,
    is_selected: bool,
    current: Option<Path>,
}

impl Network {
    /// Configures the network for a TUN device that is still down, without paths. It is closed with the network.
    pub(crate) fn prepare(tun: Arc<Tun>, ranges: &Ranges, source_check: SourceCheck) -> Result<Self, Error> {
        let device = tun.name().to_owned();
        let number = number_of(&device).ok_or(Error::NoFreeRange)?;
        let journal = Journal::open()?;
        let turn = Journal::turn();
        let snapshot = Snapshot::take()?;
        sweep(&snapshot, Some(number), &journal)?;
        let subnets = Subnets::choose(ranges, number, &snapshot.networks())?;
        // From here on an error drops the network, which removes it; the lock must not be released before that.
        let mut network = Self {
            index: snapshot.link(&device).map(|link| link.index),
            tun: Some(tun),
            device,
            number,
            subnets,
            journal,
            guard: Guard::default(),
            router: [false; 2],
            source_check,
            loosened: Loosened::default(),
            entrance: None,
            nat: None,
            paths: Vec::new(),
            is_changed: false,
            ports: BTreeMap::new(),
            handed: BTreeSet::new(),
            has_left: false,
            others: BTreeSet::new(),
            snapshot: Arc::default(),
        };
        let result = network.install(&snapshot);
        drop(turn);
        result.map(|()| network)
    }

    fn install(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.entrance = Some(self.bring_up()?);
        // With a path over the TUN device itself, on which nothing arrives: a kernel that lacks a part of this is found out here, and a
        // setting below is there only as long as connections are tracked.
        let (v4, v6) = (self.subnets.stack_v4(0), self.subnets.stack_v6(0));
        let nowhere = Translation { device: self.device.clone(), v4, v6, deprecated: None };
        self.nat = Some(Nat::install(self.number, self.subnets, vec![nowhere])?);
        self.router = self.is_router();
        self.forward_v6(snapshot)?;
        self.journal.set(&guard::setting(&self.device, guard::V4), "1")?;
        // Segments that the kernel's connection tracking takes for stray, because it saw less than the two ends or counts
        // differently, are translated all the same; the ends decide.
        self.journal.set("net/netfilter/nf_conntrack_tcp_be_liberal", "1")?;
        Ok(())
    }

    /// Assigns addresses to the TUN device, switches it on, and leads packets to the stack there: one program for each family, because under
    /// load the start of a program takes longer than its work.
    fn bring_up(&self) -> Result<Entrance, Error> {
        let Self { device, subnets, number, .. } = self;
        let entrance = Entrance::of(*number);
        let (v4, v6) = (subnets.kernel_v4(), subnets.kernel_v6());
        let (length_v4, length_v6) = (Subnets::V4_LENGTH, Subnets::V6_LENGTH);
        // No link-local address: neither neighbours nor routers are there to be discovered.
        let mut script = format!(
            "link set dev {device} addrgenmode none\n\
             address add {v4}/{length_v4} dev {device}\n\
             link set dev {device} mtu {MAX_OFFLOADED} txqueuelen {QUEUE} up\n"
        );
        script += &entrance.script(device, subnets.v4());
        run_batch(Family::V4, &script)?;
        // Deprecated from the start: never the source of what the host itself sends elsewhere.
        let mut script = format!("address add {v6}/{length_v6} dev {device} nodad preferred_lft 0\n");
        script += &entrance.script(device, subnets.v6());
        if let Err(error) = run_batch(Family::V6, &script) {
            info!(%error, "no IPv6 on this host");
        }
        Ok(entrance)
    }

    /// Lets IPv6 be forwarded from the TUN device. Before Linux 6.17 that is a switch for the whole host, which also makes it
    /// ignore router advertisements unless configured otherwise.
    fn forward_v6(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        if self.journal.set(&guard::setting(&self.device, guard::V6), "1")? || self.router[1] {
            return Ok(());
        }
        for name in snapshot.names() {
            let setting = format!("net/ipv6/conf/{name}/accept_ra");
            if self.journal.value(&setting).is_some_and(|hears| hears == "1") {
                self.journal.set(&setting, "2")?;
            }
        }
        self.open(&[guard::ALL_V6.to_owned()])
    }

    /// Lets the devices of the paths forward. Packets that arrive on them go to the stack only, unless the devices forwarded
    /// before.
    fn forward_paths(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let router = self.is_router();
        let [has_become_v4, has_become_v6] = [0, 1].map(|family| router[family] && !self.router[family]);
        self.router = router;
        if has_become_v4 {
            // That has set the setting of each device, too.
            self.give_up(guard::V4, Leave::AsItIs);
        }
        if has_become_v6 {
            self.give_up(guard::V6, Leave::AsBefore);
        }
        let mut settings = Vec::new();
        for device in self.selected().map(|path| path.spec.device()) {
            if snapshot.link(device).is_some() {
                settings.push(guard::setting(device, guard::V4));
                settings.extend((!router[1]).then(|| guard::setting(device, guard::V6)));
            }
        }
        self.open(&settings)
    }

    /// Lets answers to datagrams of the paths arrive, if the paths have datagrams.
    fn loosen_source_checks(&mut self, snapshot: &Snapshot) {
        let used = self.paths.iter().filter(|path| path.is_selected && path.spec.class() != PathClass::Never);
        match self.source_check {
            SourceCheck::Loosened => {
                self.loosened.extend(&self.journal, snapshot, used.map(|path| path.spec.device()));
            }
            SourceCheck::AsItIs => {}
        }
    }

    /// Switches these settings on, after the guard has closed what they open.
    fn open(&mut self, settings: &[String]) -> Result<(), Error> {
        let Self { journal, guard, .. } = self;
        journal.open_behind(settings, "1", || guard.close(Closed::noted_in(journal))).map(drop)
    }

    /// Whether other programs have made all devices forward, by family.
    fn is_router(&self) -> [bool; 2] {
        let is_on = |setting: &str| self.journal.value(setting).is_some_and(|value| value != "0");
        let is_ours = self.journal.noted("1").iter().any(|name| name == guard::ALL_V6);
        [is_on("net/ipv4/conf/all/forwarding"), is_on(guard::ALL_V6) && !is_ours]
    }

    /// Leaves the settings of this form for devices to others.
    fn give_up(&self, form: [&str; 2], then: Leave) {
        let is_of_form = |name: &str| name.starts_with(form[0]) && name.ends_with(form[1]);
        info!("this host has become a router: packets that arrive by the devices of paths are forwarded");
        if let Err(error) = self.journal.forget(is_of_form, then) {
            warn!(%error, "packets that arrive by the devices of paths are still not forwarded");
        }
    }

    fn translation(&self, path: &ConfiguredPath, snapshot: &Snapshot) -> Translation {
        let device = path.spec.device().to_owned();
        let (v4, v6) = (self.subnets.stack_v4(path.index), self.subnets.stack_v6(path.index));
        let deprecated = snapshot.link(&device).and_then(Link::deprecated_v6);
        Translation { device, v4, v6, deprecated }
    }

    /// The paths that may be used.
    fn selected(&self) -> impl Iterator<Item = &ConfiguredPath> {
        self.paths.iter().filter(|path| path.is_selected)
    }

    /// The kernel's addresses on the TUN device: errors about what cannot be routed come from there.
    pub(crate) fn kernel_addresses(&self) -> [IpAddr; 2] {
        [self.subnets.kernel_v4().into(), self.subnets.kernel_v6().into()]
    }

    /// Takes the kernel's state and adds the changed paths to `changed`, also those that changed before an error.
    pub(crate) fn refresh(&mut self, snapshot: &Arc<Snapshot>, changed: &mut Vec<Path>) -> Result<(), Error> {
        // Another host may close and open as well: the data for the guard must not be older than the guard that it replaces.
        let turn = Journal::turn();
        if let Err(error) = self.journal.follow_devices() {
            warn!(%error, "kernel settings of a renamed device may not be put back");
        }
        self.loosen_source_checks(snapshot);
        let forwarded = self.forward_paths(snapshot);
        drop(turn);
        if *snapshot == self.snapshot && !self.is_changed {
            return forwarded;
        }
        self.sweep_after(snapshot);
        let has_same_routes = snapshot.has_routes_of(&self.snapshot);
        let translated = self.translate(snapshot);
        for path in &mut self.paths {
            if !has_same_routes || path.table.is_stale() {
                path.table.refresh(snapshot, path.is_selected);
            }
            let device = path.spec.device();
            let state = path_state(path, &self.subnets, snapshot);
            if path.current.as_ref() != Some(&state) {
                debug!(device, up = state.up, v4 = ?state.public_v4, v6 = ?state.public_v6, mtu = state.mtu, "path");
                path.current = Some(state.clone());
                changed.push(state);
            }
        }
        // Otherwise the next look takes the same state again.
        if translated.is_ok() {
            self.snapshot = snapshot.clone();
            self.is_changed = false;
        }
        forwarded.and(translated)
    }

    /// Removes what other hosts have left whose devices are gone: they were killed, or have just removed it themselves.
    fn sweep_after(&mut self, snapshot: &Snapshot) {
        let numbers =
            |snapshot: &Snapshot| -> BTreeSet<u8> { snapshot.names().filter_map(number_of).collect() };
        let before = std::mem::replace(&mut self.others, numbers(snapshot));
        if before.is_subset(&self.others) {
            return;
        }
        let _turn = Journal::turn();
        // Another host may have a device with such a number by now.
        let swept = Snapshot::take().and_then(|now| {
            let alive = numbers(&now);
            let is_stale = |number: u8| before.contains(&number) && !alive.contains(&number);
            path_tables::remove_tables_of(is_stale)?;
            nat::remove_tables_of(is_stale)
        });
        if let Err(error) = swept {
            debug!(%error, "what another host has left stays until the next start");
        }
    }

    /// Translates addresses for the paths that are selected, to the addresses of their devices.
    fn translate(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let wanted = self.selected().map(|path| self.translation(path, snapshot)).collect();
        self.nat.as_mut().map_or(Ok(()), |nat| nat.set_paths(wanted))
    }

    /// Adds a path, or changes the one with this id.
    pub(crate) fn set_path(&mut self, path: NumberedPath) -> Result<(), Error> {
        let NumberedPath { id, spec, is_selected } = path;
        if let Some(known) = self.paths.iter_mut().find(|known| known.id == id) {
            known.table.lead_over(spec.device(), is_selected);
            (known.spec, known.is_selected, known.current) = (spec, is_selected, None);
        } else if is_selected {
            // There are fewer slots than numbers.
            let index = u8::try_from(slot_of(id)).unwrap_or(u8::MAX);
            let stack: [IpAddr; 2] =
                [self.subnets.stack_v4(index).into(), self.subnets.stack_v6(index).into()];
            let table = PathTable::install(spec.device(), self.number, index, stack)?;
            self.paths.push(ConfiguredPath { spec, id, index, table, is_selected, current: None });
        } else {
            return Ok(());
        }
        self.is_changed = true;
        Ok(())
    }

    /// Redirects connections to `port` of the paths' devices to the stack.
    pub(crate) fn open_port(&mut self, port: u16) -> Result<(), Error> {
        let reservation = PortReservation::take(port)?;
        if let Some(nat) = &self.nat {
            nat.open(port)?;
        }
        self.ports.insert(port, reservation);
        Ok(())
    }

    /// Restores our rules if another program has removed or changed them; returns whether that was so. `opened` returns the ports
    /// that connections of the stack were opened from.
    pub(crate) fn mend_rules(&mut self, opened: impl FnOnce() -> BTreeSet<u16>) -> Result<bool, Error> {
        let Self { nat: Some(nat), guard, journal, ports, handed, has_left, .. } = self else {
            return Ok(false);
        };
        let _turn = Journal::turn();
        // Another host may have closed more.
        guard.close(Closed::noted_in(journal))?;
        if nat.is_whole()? && guard.is_whole()? {
            return Ok(false);
        }
        let handed = handed.iter().filter(|_| !*has_left);
        let listening = ports.keys().chain(handed).copied().collect();
        nat.put(&listening, &opened(), &guard.script())?;
        guard.note_listing().map(|()| true)
    }

    /// Whether another program deleted our device and another host now has a device of that name. Then everything with our number
    /// belongs to that host, which has removed what was ours.
    fn is_replaced(&self, snapshot: &Snapshot) -> bool {
        snapshot.link(&self.device).is_some_and(|link| Some(link.index) != self.index)
    }

    /// Lets another process reserve the open ports. Connections come here as before.
    pub(crate) fn hand_over(&mut self) {
        self.handed = std::mem::take(&mut self.ports).into_keys().collect();
        self.has_left = false;
    }

    /// Leaves new connections to the other process, whose rules are behind ours.
    pub(crate) fn leave_ports(&mut self) {
        if let Some(nat) = &self.nat {
            self.handed.iter().for_each(|port| nat.close(*port));
        }
        self.has_left = true;
    }

    /// Undoes [`Network::hand_over`].
    pub(crate) fn take_back(&mut self) {
        for port in std::mem::take(&mut self.handed) {
            if let Err(error) = self.open_port(port) {
                warn!(%error, port, "the port is not listened on again");
            }
        }
    }

    /// Another descriptor of the TUN device, for another process.
    pub(crate) fn share_device(&self) -> Result<Option<OwnedFd>, Error> {
        self.tun.as_ref().map(|tun| tun.duplicate()).transpose().map_err(Error::tun)
    }

    /// Undoes [`Network::open_port`].
    pub(crate) fn close_port(&mut self, port: u16) {
        if let Some(nat) = self.nat.as_ref().filter(|_| self.ports.contains_key(&port)) {
            nat.close(port);
        }
        self.ports.remove(&port);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let turn = Journal::turn();
        let snapshot = Snapshot::take().unwrap_or_default();
        if !self.is_replaced(&snapshot) {
            for path in &self.paths {
                path.table.remove();
            }
            if let Some(entrance) = &self.entrance {
                entrance.remove();
            }
            if let Some(nat) = &self.nat {
                nat.remove();
            }
        }
        // While we hold the device, its name cannot belong to another one. This happens now, not when the last descriptor is closed
        // (a program that is being started has copies of all): the next holder of the lock must not count it.
        if snapshot.link(&self.device).is_some_and(|link| Some(link.index) == self.index) {
            try_run("ip", &format!("link delete dev {}", self.device));
        }
        self.tun = None;
        let is_other = |link: &Link| Some(link.index) != self.index && number_of(&link.name).is_some();
        if !snapshot.links().any(is_other) {
            end_forwarding(&self.journal);
        }
        drop(turn);
    }
}

/// Removes what killed hosts have left in this namespace: everything of devices that no longer exist.
fn sweep(snapshot: &Snapshot, ours: Option<u8>, journal: &Journal) -> Result<(), Error> {
    // Our device is new: everything with its number is a leftover too.
    let alive: Vec<u8> =
        snapshot.names().filter_map(number_of).filter(|number| Some(*number) != ours).collect();
    let is_stale = |number| !alive.contains(&number);
    path_tables::remove_tables_of(is_stale)?;
    nat::remove_tables_of(is_stale)?;
    if alive.is_empty() {
        end_forwarding(journal);
    }
    Ok(())
}

/// Restores all settings, and removes the guard once nothing forwards any more.
fn end_forwarding(journal: &Journal) {
    if !journal.restore() {
        return warn!("kernel settings were not restored: the devices that plait has closed stay closed");
    }
    if guard::is_needed(journal) {
        return warn!(
            "devices that a killed service has made forward stay closed until it has started and ended"
        );
    }
    guard::remove();
}

/// The number of a TUN device of ours.
fn number_of(device: &str) -> Option<u8> {
    device.strip_prefix(NAME_PREFIX)?.parse().ok()
}

fn path_state(path: &ConfiguredPath, subnets: &Subnets, snapshot: &Snapshot) -> Path {
    let ConfiguredPath { spec, id, index, is_selected, .. } = path;
    let link = snapshot.link(spec.device());
    let (public_v4, public_v6) = (link.and_then(Link::v4), link.and_then(Link::v6));
    let is_up = *is_selected && snapshot.takes_tcp(spec.device());
    Path {
        id: *id,
        name: spec.device().to_owned(),
        network: snapshot.shared_networks().of(spec.device()),
        class: spec.class(),
        backup: spec.is_backup(),
        v4: public_v4.map(|_| subnets.stack_v4(*index)),
        v6: public_v6.map(|_| subnets.stack_v6(*index)),
        public_v4,
        public_v6,
        mtu: path_mtu(link.map_or(0, |link| link.mtu)),
        up: is_up && (public_v4.is_some() || public_v6.is_some()),
        datagrams: false,
    }
}
