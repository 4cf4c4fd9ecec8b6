//! Addresses and their ids: which of ours are announced, and which the peer has announced (RFC 8684,
//! section 3.4).

use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant};

/// First interval of repeating an announcement that was not echoed; doubles.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Repetitions before it is given up.
const REPEATS: u8 = 4;
/// First interval of repeating a withdrawal; doubles. Nothing echoes a REMOVE_ADDR, and whoever has just lost a path
/// fills the queue of another.
const WITHDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Repetitions of a withdrawal.
const WITHDRAW_REPEATS: u8 = 3;
/// Most of our own addresses that are announced.
const MAX_ANNOUNCED: usize = 16;

/// Addresses of both sides.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Ours with their ids; the first subflow's has id 0.
    local: Vec<(IpAddr, u8)>,
    announced: Vec<Announced>,
    withdrawn: Vec<Withdrawn>,
    remote: Vec<Remote>,
}

/// An address of ours that the peer was told.
#[derive(Clone, Copy, Debug)]
struct Announced {
    id: u8,
    /// What was told: differs from ours behind a NAT.
    address: IpAddr,
    /// When to tell it again; `None` once it was echoed or given up.
    again: Option<Instant>,
    repeats: u8,
}

/// An address of ours that the peer is told to forget.
#[derive(Clone, Copy, Debug)]
struct Withdrawn {
    id: u8,
    /// When to say it, for the first time or once more.
    again: Instant,
    repeats: u8,
}

/// An address of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remote {
    /// Its id, if the peer has named it.
    pub(crate) id: Option<u8>,
    pub(crate) address: SocketAddr,
    /// It came by ADD_ADDR; known since then.
    pub(crate) announced: Option<Instant>,
    /// The peer has withdrawn it, although the connection began there: joined only when there is nothing else.
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

/// What became of an address that the peer has announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Learned {
    /// Known now.
    Kept,
    /// Its id is in use for another address, which has to be removed first (section 3.4.1).
    IdInUse,
    /// There are too many.
    TooMany,
}

impl Addresses {
    /// What the opener knows about the peer beforehand.
    pub(super) fn set_remotes(&mut self, remotes: &[SocketAddr]) {
        self.remote = remotes.iter().map(|&address| Remote::new(None, address, None)).collect();
    }

    /// The addresses of the first subflow: id 0 on both sides.
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
            // It is back.
            self.withdrawn.retain(|withdrawn| withdrawn.id != id);
            return id;
        }
        // More than 255 addresses share the last id: REMOVE_ADDR for it closes too much, no harm is done.
        let id = self.local.last().map_or(0, |&(_, last)| last.saturating_add(1));
        self.local.push((address, id));
        id
    }

    /// Our address `own` is to be announced as `public`, unless it was, or is the first.
    pub(super) fn announce(&mut self, own: IpAddr, public: IpAddr) {
        let id = self.local_id(own);
        let is_known = id == 0 || self.announced.iter().any(|announced| announced.id == id);
        if is_known || self.announced.len() >= MAX_ANNOUNCED {
            return;
        }
        // The moment of repeating is set when it first could have gone out.
        self.announced.push(Announced { id, address: public, again: Some(Instant::ZERO), repeats: 0 });
    }

    /// Takes the announcement that is due: one after the other, because a peer that has not sent its echo for one has nowhere
    /// to note the next (Linux drops it). One without an echo does not hold up the others when it has been repeated. Sealed ones are
    /// records, which arrive without being repeated: none has to wait for another.
    pub(super) fn take_due(&mut self, now: Instant, is_sealed: bool) -> Option<Announcement> {
        let (_, next) = self.next_to_tell(is_sealed).filter(|&(due, _)| due <= now)?;
        let announced = &mut self.announced[next];
        let wait = REPEAT_INTERVAL * 2u32.pow(u32::from(announced.repeats));
        announced.again = (!is_sealed && announced.repeats < REPEATS).then(|| now + wait);
        announced.repeats += 1;
        Some(Announcement { id: announced.id, address: announced.address })
    }

    /// When the next announcement or withdrawal is due.
    pub(super) fn deadline(&self, is_sealed: bool) -> Option<Instant> {
        let told = self.next_to_tell(is_sealed).map(|(due, _)| due);
        told.into_iter().chain(self.withdrawn.iter().map(|one| one.again)).min()
    }

    fn next_to_tell(&self, is_sealed: bool) -> Option<(Instant, usize)> {
        let is_waited_for = |one: &Announced| one.again.is_some() && one.repeats == 1;
        let waits = !is_sealed && self.announced.iter().any(is_waited_for);
        let may_go = |one: &Announced| !waits || one.repeats > 0;
        let each = self.announced.iter().enumerate().filter(|(_, one)| may_go(one));
        each.filter_map(|(index, one)| Some((one.again?, index))).min()
    }

    /// The peer has echoed an announcement.
    pub(super) fn on_echo(&mut self, echo: Announcement) {
        let echoed = |one: &&mut Announced| one.id == echo.id && one.address == echo.address;
        if let Some(announced) = self.announced.iter_mut().find(echoed) {
            announced.again = None;
        }
    }

    /// Our address is no more; its id, if the peer may know it.
    pub(super) fn forget_own(&mut self, own: IpAddr) -> Option<u8> {
        let &(_, id) = self.local.iter().find(|(known, _)| *known == own)?;
        self.announced.retain(|announced| announced.id != id);
        Some(id)
    }

    /// The peer is to be told that the address with this id is no more, as soon as there is a subflow to say it on.
    pub(super) fn withdraw(&mut self, id: u8) {
        self.withdrawn.retain(|withdrawn| withdrawn.id != id);
        self.withdrawn.push(Withdrawn { id, again: Instant::ZERO, repeats: 0 });
    }

    /// Takes the withdrawals that are due: address ids.
    pub(super) fn take_withdrawals(&mut self, now: Instant, mut take: impl FnMut(u8)) {
        for withdrawn in self.withdrawn.iter_mut().filter(|one| one.again <= now) {
            withdrawn.again = now + WITHDRAW_INTERVAL * 2u32.pow(u32::from(withdrawn.repeats));
            withdrawn.repeats += 1;
            take(withdrawn.id);
        }
        self.withdrawn.retain(|withdrawn| withdrawn.repeats <= WITHDRAW_REPEATS);
    }

    /// The peer has announced an address, of which at most `most` are kept.
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

    /// The peer has lost an address. That of the first subflow is kept for when there is nothing else: nobody has to have signed
    /// a withdrawal.
    pub(super) fn forget_remote(&mut self, id: u8) {
        self.remote.retain(|remote| remote.id != Some(id) || id == 0);
        for remote in self.remote.iter_mut().filter(|remote| remote.id == Some(id)) {
            remote.is_withdrawn = true;
        }
    }
}
