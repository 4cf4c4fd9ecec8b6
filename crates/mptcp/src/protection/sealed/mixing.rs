//! A share of the keys from every path: exchanges that cross one path only, and what they have come to.
//!
//! On a subflow that has joined its responder speaks first ([`PathOffer`]), on one that is in use the opener of the
//! connection. The end that has offered says AGREED when it has the answer. The end that has answered then says MIX, or VOID if it
//! has forgotten the exchange in the meantime: an attacker on the path may have held the answer back. MIX is answered by MIX. So each
//! MIX finds a peer that has the secret, too, and no end has to keep what the other may never come back to. A generation of keys
//! follows from what was said in the one before it.
//!
//! Which shares are of different paths is for the opener to say, in its message of each exchange: it has the devices. What a
//! listener could go by instead, the addresses of the opener, would take one path with an address of each family for two, and two
//! paths behind one NAT for one. An opener that lies has the keys of the connection anyway.

use core::net::IpAddr;
use plait_base::{Duration, Instant, PathId, Random};
use plait_protect::sealed::{
    ANSWER_LEN, Exchange, MixSecret, OFFER_LEN, PathKeys, PathNumber, PathOffer, Record, Role as End, Share,
    ShareLog, Speaker, exchange_of,
};
use std::collections::BTreeMap;

use super::claim::Claim;
use super::established::Established;
use super::records::Broken;
use crate::subflows::sealed::SealedSubflow;
use crate::{PeerIdentity, Ratchet};

/// Exchanges that are kept at once, of which each takes some 300 bytes. Beyond that the oldest answer whose subflow is gone is forgotten:
/// an attacker on one path may let us answer and swallow what we say, again and again.
const MAX_EXCHANGES: usize = 64;
/// A join that was refused ends the wait for required paths after so long: another one may be under way.
const AFTER_REFUSAL: Duration = Duration::from_secs(3);

/// The path of the handshake, and whatever counts as no other one.
const HANDSHAKE: PathNumber = PathNumber(0);

/// Where a subflow goes: our path, and the peer's address.
pub(crate) type Way = (PathId, IpAddr);

/// What is known about shares of the keys.
pub(super) struct Mixing {
    /// Disjoint paths that have to be in the keys before a byte of the application is sent or taken.
    required: u8,
    /// Whether bytes of the application wait for that.
    is_held: bool,
    /// The application was told that they do not any more.
    is_told: bool,
    /// From which generation of the peer's keys on they are taken.
    taken_from: Option<u64>,
    /// Where the peer answered the handshake.
    first_remote: IpAddr,
    /// The opener's paths, by their numbers; that of the handshake is the first.
    paths: Vec<PathId>,
    exchanges: Vec<Pending>,
    /// Paths beside that of the handshake which have given something to the keys of what we send, and from which generation on.
    sent: BTreeMap<PathNumber, u64>,
    /// The same of what the peer sends.
    received: BTreeMap<PathNumber, u64>,
    ratchet: RatchetState,
    /// Why a path is not in the keys: the first reason.
    refusal: Option<(PathId, Instant, &'static str)>,
}

/// An exchange that is not over.
struct Pending {
    exchange: Exchange,
    stage: Stage,
    /// Its subflow is.
    is_gone: bool,
}

enum Stage {
    /// We have spoken.
    Offered(PathOffer),
    /// We have answered. The other side may never hear it.
    Answered(Share),
    /// Both have the secret, and know it. It goes into the keys of one direction, then into those of the other.
    Agreed { path: PathNumber, ours: Option<MixSecret>, theirs: Option<MixSecret> },
}

impl Stage {
    fn agreed(Share { path, secret }: Share) -> Self {
        Self::Agreed { path, theirs: Some(secret.duplicate()), ours: Some(secret) }
    }

    /// Whether the other side is sure that we have the secret: then we have to.
    fn is_promised(&self) -> bool {
        match self {
            Self::Agreed { .. } => true,
            Self::Offered(_) | Self::Answered(_) => false,
        }
    }
}

impl Pending {
    fn new(exchange: Exchange, stage: Stage) -> Self {
        Self { exchange, stage, is_gone: false }
    }
}

#[derive(Default)]
struct RatchetState {
    /// When keys were mixed last, or the first byte was seen, and how many bytes both had sent by then.
    since: Option<(Instant, u64)>,
    /// Serves the subflows in turn.
    turns: u64,
}

impl Mixing {
    /// `required`: so many paths have to be in the keys. The handshake has gone the way `first`.
    pub(super) fn new(required: u8, (path, first_remote): Way) -> Self {
        let mut new = Self {
            required: 0,
            is_held: false,
            is_told: false,
            taken_from: Some(0),
            first_remote,
            paths: vec![path],
            exchanges: Vec::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            ratchet: RatchetState::default(),
            refusal: None,
        };
        new.require(required);
        new
    }

    fn require(&mut self, paths: u8) {
        if paths > self.required.max(1) {
            (self.required, self.is_held, self.taken_from) = (paths, true, None);
        }
    }

    /// Whether there is room for another exchange, or can be made.
    fn make_room(&mut self) -> bool {
        let may_go = |pending: &Pending| pending.is_gone && !pending.stage.is_promised();
        let oldest = self.exchanges.iter().position(may_go);
        if self.exchanges.len() >= MAX_EXCHANGES
            && let Some(oldest) = oldest
        {
            self.exchanges.remove(oldest);
        }
        self.exchanges.len() < MAX_EXCHANGES
    }

    fn find(&mut self, exchange: Exchange) -> Option<&mut Pending> {
        self.exchanges.iter_mut().find(|pending| pending.exchange == exchange)
    }

    /// Drops what has served both directions.
    fn tidy(&mut self) {
        self.exchanges
            .retain(|pending| !matches!(pending.stage, Stage::Agreed { ours: None, theirs: None, .. }));
    }

    /// The opener's number for one of its paths.
    fn number(&mut self, path: PathId) -> PathNumber {
        let known = self.paths.iter().position(|known| *known == path);
        let number = known.unwrap_or_else(|| {
            self.paths.push(path);
            self.paths.len() - 1
        });
        // There are no more paths than a byte can name.
        PathNumber(u8::try_from(number).unwrap_or_default())
    }

    fn note(list: &mut BTreeMap<PathNumber, u64>, path: PathNumber, generation: u64) {
        if path != HANDSHAKE {
            list.entry(path).or_insert(generation);
        }
    }

    /// Paths that are in the keys of a generation, that of the handshake included.
    fn count(list: &BTreeMap<PathNumber, u64>, generation: u64) -> usize {
        1 + list.values().filter(|&&since| since <= generation).count()
    }
}

/// What a message over one path has come to.
pub(crate) enum PathKey {
    /// This goes back over the same subflow.
    Answer(Vec<u8>),
    /// Both have the secret.
    Agreed,
    /// Nobody asked for it, or there is no room.
    Ignored,
    /// It is not the peer's, or not for now.
    Wrong,
}

impl Established {
    /// Who we are in an exchange over a subflow that goes this way. While nothing says who the listener is, an address that it has announced
    /// may be that of somebody between it and us: a share from there is not that of another path.
    fn speaker(&mut self, (path, remote): Way) -> Speaker {
        match self.role {
            End::A if self.knows_peer() || remote == self.mixing.first_remote => {
                Speaker::Opener(self.mixing.number(path))
            }
            End::A => Speaker::Opener(HANDSHAKE),
            End::B => Speaker::Listener,
        }
    }

    /// Begins an exchange over a subflow: the message to be sent there. One at a time: whoever answers has at most one to keep.
    pub(crate) fn offer_path(
        &mut self,
        subflow: &mut SealedSubflow,
        way: Way,
        random: &mut dyn Random,
    ) -> Option<Vec<u8>> {
        let is_under_way = |pending: &Pending| {
            Some(pending.exchange.subflow) == subflow.tag && matches!(pending.stage, Stage::Offered(_))
        };
        if self.mixing.exchanges.iter().any(is_under_way) || !self.mixing.make_room() {
            return None;
        }
        let exchange = Exchange { subflow: subflow.tag?, number: subflow.next_exchange };
        subflow.next_exchange = subflow.next_exchange.checked_add(1)?;
        let us = self.speaker(way);
        let (offer, message) = self.identity.offer_path(self.path_keys(), us, exchange, random).ok()?;
        self.mixing.exchanges.push(Pending::new(exchange, Stage::Offered(offer)));
        Some(message)
    }

    /// Takes a message of an exchange.
    pub(crate) fn take_path_key(
        &mut self,
        subflow: &mut SealedSubflow,
        way: Way,
        message: &[u8],
        with: (&mut dyn Random, ShareLog<'_>),
    ) -> PathKey {
        let Some(exchange) = subflow.tag.and_then(|tag| exchange_of(tag, message)) else {
            return PathKey::Wrong;
        };
        match message.len() {
            OFFER_LEN => self.answer_path(subflow, (exchange, way), message, with),
            ANSWER_LEN => self.finish_path(subflow, exchange, message, with.1),
            _ => PathKey::Wrong,
        }
    }

    fn answer_path(
        &mut self,
        subflow: &mut SealedSubflow,
        (exchange, way): (Exchange, Way),
        message: &[u8],
        with: (&mut dyn Random, ShareLog<'_>),
    ) -> PathKey {
        // Each is answered once: two answers would share a key and a nonce.
        let Some(next) = exchange.number.checked_add(1).filter(|_| exchange.number >= subflow.next_exchange)
        else {
            return PathKey::Wrong;
        };
        if !self.mixing.make_room() {
            return PathKey::Ignored;
        }
        let us = self.speaker(way);
        let Ok((answer, share)) = self.identity.answer_path(self.path_keys(), (us, exchange), message, with)
        else {
            return PathKey::Wrong;
        };
        subflow.next_exchange = next;
        subflow.path_number = Some(share.path);
        self.mixing.exchanges.push(Pending::new(exchange, Stage::Answered(share)));
        PathKey::Answer(answer)
    }

    fn finish_path(
        &mut self,
        subflow: &mut SealedSubflow,
        exchange: Exchange,
        message: &[u8],
        log: ShareLog<'_>,
    ) -> PathKey {
        let is_awaited =
            |pending: &Pending| pending.exchange == exchange && matches!(pending.stage, Stage::Offered(_));
        let Some(index) = self.mixing.exchanges.iter().position(is_awaited) else { return PathKey::Wrong };
        let Pending { stage: Stage::Offered(offer), .. } = self.mixing.exchanges.remove(index) else {
            return PathKey::Wrong;
        };
        let Ok(share) = self.identity.finish_path(self.path_keys(), offer, message, log) else {
            return PathKey::Wrong;
        };
        subflow.path_number = Some(share.path);
        self.mixing.exchanges.push(Pending::new(exchange, Stage::agreed(share)));
        self.say(Record::Agreed(exchange));
        PathKey::Agreed
    }

    fn path_keys(&self) -> PathKeys<'_> {
        PathKeys::new(&self.sealer, &self.opener)
    }

    /// The peer has our answer. An exchange that was forgotten is no fault of the peer's: it is told so, and nothing comes of it.
    pub(super) fn confirm_exchange(&mut self, exchange: Exchange) -> Result<(), Broken> {
        let index = self.mixing.exchanges.iter().position(|pending| pending.exchange == exchange);
        let Some(index) = index else {
            self.say(Record::Void(exchange));
            return Ok(());
        };
        let Pending { stage, is_gone, .. } = self.mixing.exchanges.remove(index);
        // Only an end that has offered has an answer.
        let Stage::Answered(share) = stage else { return Err(Broken) };
        self.mixing.exchanges.push(Pending { exchange, stage: Stage::agreed(share), is_gone });
        self.say(Record::Mix(exchange));
        Ok(())
    }

    /// The peer has forgotten an exchange that we have the answer of: neither end has said MIX.
    pub(super) fn void_exchange(&mut self, exchange: Exchange) {
        self.mixing.exchanges.retain(|pending| {
            let is_untouched = matches!(pending.stage, Stage::Agreed { ours: Some(_), theirs: Some(_), .. });
            pending.exchange != exchange || !is_untouched
        });
    }

    /// The subflow is gone: who has spoken there hears no answer any more.
    pub(super) fn forget_offers(&mut self, subflow: &SealedSubflow) {
        let is_of_it = |pending: &Pending| Some(pending.exchange.subflow) == subflow.tag;
        self.mixing
            .exchanges
            .retain(|pending| !is_of_it(pending) || !matches!(pending.stage, Stage::Offered(_)));
        for pending in self.mixing.exchanges.iter_mut().filter(|pending| is_of_it(pending)) {
            pending.is_gone = true;
        }
    }

    /// A MIX record of ours is about to be sealed: what goes into the next generation with it.
    pub(super) fn mix_ours(&mut self, exchange: Exchange) -> Option<MixSecret> {
        let generation = self.sealer.generation();
        let pending = self.mixing.find(exchange)?;
        let Stage::Agreed { path, ours, .. } = &mut pending.stage else { return None };
        let (mix, path) = (ours.take()?, *path);
        Mixing::note(&mut self.mixing.sent, path, generation + 1);
        self.mixing.tidy();
        Some(mix)
    }

    /// The peer's MIX has come in a block of this generation.
    pub(super) fn mix_theirs(&mut self, exchange: Exchange, generation: u64) -> Result<(), Broken> {
        let pending = self.mixing.find(exchange).ok_or(Broken)?;
        let Stage::Agreed { path, ours, theirs } = &mut pending.stage else { return Err(Broken) };
        let (mix, path) = (theirs.take().ok_or(Broken)?, *path);
        // Who has answered hears here that the other side knows; the other side has said its own.
        let is_ours_to_say = ours.is_some();
        self.opener.handle_mix(generation, mix).map_err(|_| Broken)?;
        Mixing::note(&mut self.mixing.received, path, generation + 1);
        self.mixing.tidy();
        self.review();
        if is_ours_to_say {
            self.say(Record::Mix(exchange));
        }
        Ok(())
    }

    /// What the other side requires as well.
    pub(super) fn require(&mut self, paths: u8) {
        self.mixing.require(paths);
        self.review();
    }

    /// Looks again whether enough paths are in the keys: they have changed, or what is required.
    pub(super) fn review(&mut self) {
        let required = usize::from(self.mixing.required);
        if self.mixing.is_held {
            self.mixing.is_held = Mixing::count(&self.mixing.sent, self.sealer.generation()) < required;
        }
        if self.mixing.taken_from.is_none() {
            let received = &self.mixing.received;
            let enough = received.values().filter(|&&since| Mixing::count(received, since) >= required);
            self.mixing.taken_from = enough.min().copied();
        }
    }

    /// Disjoint paths that have to be in the keys.
    pub(crate) fn required(&self) -> u8 {
        self.mixing.required
    }

    /// Whether the handshake has proved that the peer is who it should be.
    pub(crate) fn knows_peer(&self) -> bool {
        match self.peer_identity() {
            PeerIdentity::Key { is_known, .. } => is_known,
            PeerIdentity::Certificate => true,
            PeerIdentity::Anonymous => false,
        }
    }

    /// Paths in the keys: of what we send, and of what the peer does.
    pub(crate) fn mixed_paths(&self) -> [usize; 2] {
        [
            Mixing::count(&self.mixing.sent, self.sealer.generation()),
            Mixing::count(&self.mixing.received, self.opener.generation()),
        ]
    }

    /// Whether either direction lacks paths that are required.
    pub(super) fn waits_for_paths(&self) -> bool {
        let required = usize::from(self.mixing.required);
        required > 1 && self.mixed_paths().into_iter().any(|paths| paths < required)
    }

    /// Tells once that none lacks them any more, where some are required.
    pub(crate) fn poll_paths_mixed(&mut self) -> bool {
        let is_news = self.mixing.required > 1 && !self.mixing.is_told && !self.waits_for_paths();
        self.mixing.is_told |= is_news;
        is_news
    }

    /// Whether bytes of the application wait for paths.
    pub(crate) fn holds_data(&self) -> bool {
        self.mixing.is_held
    }

    /// Whether bytes of the application may come in this generation.
    pub(super) fn takes_data(&self, generation: u64) -> bool {
        self.mixing.taken_from.is_some_and(|from| from <= generation)
    }

    /// A join over this path came to nothing.
    pub(crate) fn note_refusal(&mut self, now: Instant, path: PathId, why: &'static str) {
        if self.mixing.required > 1 && self.mixing.refusal.is_none() {
            self.mixing.refusal = Some((path, now, why));
        }
    }

    /// The first path whose join came to nothing while paths are missing, and why.
    pub(crate) fn refusal(&self) -> Option<(PathId, &'static str)> {
        self.mixing.refusal.map(|(path, _, why)| (path, why))
    }

    /// When the wait for paths ends, if an opening may take `timeout`.
    pub(super) fn mixing_deadline(&self, timeout: Duration) -> Option<Instant> {
        if self.claim == Claim::TurnedAway || !self.holds_data() {
            return None;
        }
        let whole = self.began + timeout;
        Some(self.mixing.refusal.map_or(whole, |(_, since, _)| whole.min(since + AFTER_REFUSAL)))
    }

    /// Whether it is time for another exchange, given how many bytes both sides have sent; if so, its number. Nothing is
    /// exchanged where nothing is sent.
    pub(crate) fn poll_ratchet(&mut self, now: Instant, bytes: u64, limits: Ratchet) -> Option<u64> {
        let (then, before) = *self.mixing.ratchet.since.get_or_insert((now, bytes));
        let moved = bytes.saturating_sub(before);
        let is_due = moved >= limits.bytes || (moved > 0 && now.saturating_since(then) >= limits.age);
        if self.role != End::A || self.claim.is_open() || !is_due {
            return None;
        }
        self.mixing.ratchet.since = Some((now, bytes));
        self.mixing.ratchet.turns += 1;
        Some(self.mixing.ratchet.turns)
    }
}
