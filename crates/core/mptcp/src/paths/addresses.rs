//! Addresses and their ids: our announced addresses, and those that the peer has announced (RFC 8684, section 3.4).

use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant};

use crate::paths::{Path, PathClass, Paths};

/// First interval of repeating an announcement that was not echoed; doubles.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Repetitions before the announcement is given up.
const REPEATS: u8 = 4;
/// First interval of repeating a withdrawal; doubles. A REMOVE_ADDR has no echo, and a host that has just lost a path fills the queue of
/// another path.
const WITHDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Repetitions of a withdrawal.
const WITHDRAW_REPEATS: u8 = 3;
/// Largest number of our own addresses that are announced.
const MAX_ANNOUNCED: usize = 16;

/// Addresses of both sides.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Our addresses with their ids. The address of the first subflow has id 0.
    local: Vec<(IpAddr, u8)>,
    announced: Vec<Announced>,
    withdrawn: Vec<Withdrawn>,
    remote: Vec<Remote>,
}

/// An address of ours that was announced to the peer.
#[derive(Clone, Copy, Debug)]
struct Announced {
    id: u8,
    /// The announced address. It differs from our own address behind a NAT.
    address: IpAddr,
    /// When to repeat it; `None` once it was echoed or given up.
    again: Option<Instant>,
    repeats: u8,
}

/// An address of ours whose withdrawal the peer must learn.
#[derive(Clone, Copy, Debug)]
struct Withdrawn {
    id: u8,
    /// When to send it, for the first time or again.
    again: Instant,
    repeats: u8,
}

/// An address of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remote {
    /// Its id, if the peer has named one.
    pub(crate) id: Option<u8>,
    pub(crate) address: SocketAddr,
    /// When an ADD_ADDR announced it, if one did.
    pub(crate) announced: Option<Instant>,
    /// The peer has withdrawn it, although the connection began there. It is joined only if there is nothing else.
    pub(crate) is_withdrawn: bool,
}

impl Remote {
    fn new(id: Option<u8>, address: SocketAddr, announced: Option<Instant>) -> Self {
        Self { id, address, announced, is_withdrawn: false }
    }
}

/// An announcement of an address of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Announcement {
    pub(crate) id: u8,
    pub(crate) address: IpAddr,
}

/// The result of an announcement by the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Learned {
    /// The address is known now.
    Kept,
    /// Its id is in use for another address, which must be removed first (section 3.4.1).
    IdInUse,
    /// Too many addresses are known.
    TooMany,
}

impl Addresses {
    /// Sets the addresses of the peer that the opener knows beforehand.
    pub(super) fn set_remotes(&mut self, remotes: &[SocketAddr]) {
        self.remote = remotes.iter().map(|&address| Remote::new(None, address, None)).collect();
    }

    /// Sets the addresses of the first subflow: id 0 on both sides.
    pub(super) fn set_initial(&mut self, local: IpAddr, remote: SocketAddr) {
        self.local = vec![(local, 0)];
        match self.remote.iter_mut().find(|known| known.address == remote) {
            Some(known) => known.id = Some(0),
            None => self.remote.insert(0, Remote::new(Some(0), remote, None)),
        }
    }

    /// The peer's addresses, best first.
    pub(super) fn remotes(&self) -> &[Remote] {
        &self.remote
    }

    /// The peer's address of the first subflow.
    pub(super) fn initial_remote(&self) -> Option<SocketAddr> {
        self.remote.iter().find(|remote| remote.id == Some(0)).map(|remote| remote.address)
    }

    /// Whether an address of ours has an id.
    pub(super) fn is_named(&self, address: IpAddr) -> bool {
        self.local.iter().any(|(known, _)| *known == address)
    }

    /// The id of an address of ours; counts up from 1.
    pub(super) fn local_id(&mut self, address: IpAddr) -> u8 {
        if let Some(&(_, id)) = self.local.iter().find(|(known, _)| *known == address) {
            // The address is back.
            self.withdrawn.retain(|withdrawn| withdrawn.id != id);
            return id;
        }
        // More than 255 addresses share the last id. A REMOVE_ADDR for it closes more subflows than necessary, which is harmless.
        let id = self.local.last().map_or(0, |&(_, last)| last.saturating_add(1));
        self.local.push((address, id));
        id
    }

    /// Queues the announcement of our address `own` as `public`, unless it was announced or is the first address.
    pub(super) fn announce(&mut self, own: IpAddr, public: IpAddr) {
        let id = self.local_id(own);
        let is_known = id == 0 || self.announced.iter().any(|announced| announced.id == id);
        if is_known || self.announced.len() >= MAX_ANNOUNCED {
            return;
        }
        // The time of the repetition is set when the announcement could first have been sent.
        self.announced.push(Announced { id, address: public, again: Some(Instant::ZERO), repeats: 0 });
    }

    /// Takes the announcement that is due. Announcements go one after the other: a peer that has not sent its echo for one has no room for
    /// the next (Linux drops it). After its repetitions, an announcement without an echo no longer delays the others. Sealed announcements
    /// are records, which arrive without repetition, so none has to wait for another.
    pub(super) fn take_due(&mut self, now: Instant, in_records: bool) -> Option<Announcement> {
        let (_, next) = self.next_to_tell(in_records).filter(|&(due, _)| due <= now)?;
        let announced = &mut self.announced[next];
        let wait = REPEAT_INTERVAL * 2u32.pow(u32::from(announced.repeats));
        announced.again = (!in_records && announced.repeats < REPEATS).then(|| now + wait);
        announced.repeats += 1;
        Some(Announcement { id: announced.id, address: announced.address })
    }

    /// When the next announcement or withdrawal is due.
    pub(super) fn deadline(&self, in_records: bool) -> Option<Instant> {
        let told = self.next_to_tell(in_records).map(|(due, _)| due);
        told.into_iter().chain(self.withdrawn.iter().map(|one| one.again)).min()
    }

    fn next_to_tell(&self, in_records: bool) -> Option<(Instant, usize)> {
        let is_waited_for = |one: &Announced| one.again.is_some() && one.repeats == 1;
        let waits = !in_records && self.announced.iter().any(is_waited_for);
        let may_go = |one: &Announced| !waits || one.repeats > 0;
        let each = self.announced.iter().enumerate().filter(|(_, one)| may_go(one));
        each.filter_map(|(index, one)| Some((one.again?, index))).min()
    }

    /// Handles the peer's echo of an announcement.
    pub(super) fn on_echo(&mut self, echo: Announcement) {
        let echoed = |one: &&mut Announced| one.id == echo.id && one.address == echo.address;
        if let Some(announced) = self.announced.iter_mut().find(echoed) {
            announced.again = None;
        }
    }

    /// Removes our address. Returns its id, if the peer may know it.
    pub(super) fn forget_own(&mut self, own: IpAddr) -> Option<u8> {
        let &(_, id) = self.local.iter().find(|(known, _)| *known == own)?;
        self.announced.retain(|announced| announced.id != id);
        Some(id)
    }

    /// Whether the peer was told this address of ours, and not yet that it is gone.
    pub(super) fn is_announced(&self, own: IpAddr) -> bool {
        self.local.iter().any(|&(known, id)| known == own && self.announced.iter().any(|one| one.id == id))
    }

    /// Returns the announced addresses of ours that no path has any more.
    pub(super) fn lost(&self, paths: &Paths) -> Vec<IpAddr> {
        let is_there = |path: &Path| path.up && path.class != PathClass::Never;
        let is_lost = |own: IpAddr| !paths.with_address(own).is_some_and(is_there);
        let own = self.local.iter().map(|&(own, _)| own);
        own.filter(|&own| self.is_announced(own) && is_lost(own)).collect()
    }

    /// Queues the withdrawal of the address with this id. It is sent as soon as there is a subflow.
    pub(super) fn withdraw(&mut self, id: u8) {
        self.withdrawn.retain(|withdrawn| withdrawn.id != id);
        self.withdrawn.push(Withdrawn { id, again: Instant::ZERO, repeats: 0 });
    }

    /// Takes the address ids of the withdrawals that are due.
    pub(super) fn take_withdrawals(&mut self, now: Instant, mut take: impl FnMut(u8)) {
        for withdrawn in self.withdrawn.iter_mut().filter(|one| one.again <= now) {
            withdrawn.again = now + WITHDRAW_INTERVAL * 2u32.pow(u32::from(withdrawn.repeats));
            withdrawn.repeats += 1;
            take(withdrawn.id);
        }
        self.withdrawn.retain(|withdrawn| withdrawn.repeats <= WITHDRAW_REPEATS);
    }

    /// Stores an address that the peer has announced; at most `most` are kept.
    pub(super) fn learn(&mut self, now: Instant, id: u8, address: SocketAddr, most: usize) -> Learned {
        let has_room = self.remote.len() < most;
        let known = |remote: &&mut Remote| remote.id == Some(id) || remote.address == address;
        match self.remote.iter_mut().find(known) {
            Some(remote) if remote.address == address => {
                remote.id = remote.id.or(Some(id));
                remote.announced = remote.announced.or(Some(now));
                remote.is_withdrawn = false;
                Learned::Kept
            }
            Some(_) => Learned::IdInUse,
            None if has_room => {
                self.remote.push(Remote::new(Some(id), address, Some(now)));
                Learned::Kept
            }
            None => Learned::TooMany,
        }
    }

    /// Handles a withdrawal by the peer, which need not be authenticated. The address of the first subflow is kept for the case that there
    /// is nothing else.
    pub(super) fn forget_remote(&mut self, id: u8) {
        self.remote.retain(|remote| remote.id != Some(id) || id == 0);
        for remote in self.remote.iter_mut().filter(|remote| remote.id == Some(id)) {
            remote.is_withdrawn = true;
        }
    }
}
