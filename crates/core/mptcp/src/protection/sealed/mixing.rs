//! A share of the keys from every path: exchanges that cross one path only, and their results.
//!
//! On a subflow that has joined, the responder sends the first message ([`PathOffer`]). On a subflow in use, the opener of the connection
//! does. The end that has offered says AGREED when it has the answer. The end that has answered then says MIX. If it has forgotten the
//! exchange in the meantime, because an attacker on the path has delayed the answer, it says VOID. MIX is answered by MIX. Therefore each
//! MIX finds a peer that has the secret, too. No end has to keep state to which the other may never return. A generation of keys follows
//! from the messages of the previous generation.
//!
//! The opener decides which shares are of different paths, in its message of each exchange, because it knows the devices and their networks.
//! A listener could only use the addresses of the opener. It would take one path with an address of each family for two. A dishonest opener
//! has the keys of the connection anyway.

use core::net::IpAddr;
use plait_base::{Duration, Instant, PathId, Random};
use plait_protect::sealed::{
    ANSWER_LEN, Exchange, MixSecret, OFFER_LEN, PathKeys, PathNumber, PathOffer, Record, Role as End, Share,
    ShareLog, Speaker, exchange_of,
};
use std::collections::BTreeMap;

use super::claim::Claim;
use super::established::Established;
use super::path_numbers::PathNumbers;
use super::records::Broken;
use crate::paths::Way;
use crate::subflows::sealed::SealedSubflow;
use crate::{Paths, PeerIdentity, Ratchet};

/// Largest number of exchanges at a time, some 300 bytes each. Beyond it the oldest answer of a subflow that is gone is dropped. An
/// attacker on one path may let us answer and drop our answers, again and again.
const MAX_EXCHANGES: usize = 64;
/// Time after a refused join at which the wait for required paths ends: another join may be in progress.
const AFTER_REFUSAL: Duration = Duration::from_secs(3);

/// State of the shares of the keys.
pub(super) struct Mixing {
    /// Disjoint paths that must be in the keys before a byte of the application is sent or delivered.
    required: u8,
    /// Whether bytes of the application wait for that.
    is_held: bool,
    /// The application has learned that its bytes no longer wait.
    is_told: bool,
    /// The generation of the peer's keys from which on bytes of the application are accepted.
    taken_from: Option<u64>,
    /// The address at which the peer answered the handshake.
    first_remote: IpAddr,
    numbers: PathNumbers,
    exchanges: Vec<Pending>,
    /// Paths other than that of the handshake with a share in the keys of our direction, each with its first generation.
    sent: BTreeMap<PathNumber, u64>,
    /// The same for the peer's direction.
    received: BTreeMap<PathNumber, u64>,
    ratchet: RatchetState,
    /// The first reason for which a path is not in the keys.
    refusal: Option<(PathId, Instant, &'static str)>,
}

/// An exchange in progress.
struct Pending {
    exchange: Exchange,
    stage: Stage,
    /// Whether its subflow is gone.
    is_gone: bool,
}

enum Stage {
    /// We have sent the offer.
    Offered(PathOffer),
    /// We have sent the answer. The other side may never receive it.
    Answered(Share),
    /// Both ends have the secret, and know it. It goes into the keys of one direction, then into those of the other.
    Agreed { path: PathNumber, ours: Option<MixSecret>, theirs: Option<MixSecret> },
}

impl Stage {
    fn agreed(Share { path, secret }: Share) -> Self {
        Self::Agreed { path, theirs: Some(secret.duplicate()), ours: Some(secret) }
    }

    /// Whether the other side relies on our having the secret.
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
    /// When keys were mixed last, or the first byte was seen, with the number of bytes that both ends had sent by then.
    since: Option<(Instant, u64)>,
    /// Serves the subflows in turn.
    turns: u64,
}

impl Mixing {
    /// Returns the state if `required` paths must be in the keys. The handshake went over the way `first`.
    pub(super) fn new(required: u8, first: Way) -> Self {
        let mut new = Self {
            required: 0,
            is_held: false,
            is_told: false,
            taken_from: Some(0),
            first_remote: first.remote,
            numbers: PathNumbers::new(first.path),
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

    /// Whether there is room for another exchange, or room can be made.
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

    /// Drops exchanges that have served both directions.
    fn tidy(&mut self) {
        self.exchanges
            .retain(|pending| !matches!(pending.stage, Stage::Agreed { ours: None, theirs: None, .. }));
    }

    fn note(list: &mut BTreeMap<PathNumber, u64>, path: PathNumber, generation: u64) {
        if path != PathNumber::HANDSHAKE {
            list.entry(path).or_insert(generation);
        }
    }

    /// Returns the number of paths in the keys of a generation, including that of the handshake.
    fn count(list: &BTreeMap<PathNumber, u64>, generation: u64) -> usize {
        1 + list.values().filter(|&&since| since <= generation).count()
    }
}

/// The result of a message over one path.
pub(crate) enum PathKey {
    /// An answer, to be sent over the same subflow.
    Answer(Vec<u8>),
    /// Both ends have the secret.
    Agreed,
    /// This end did not ask for it, or there is no room.
    Ignored,
    /// It is not from the peer, or not valid now.
    Wrong,
}

impl Established {
    /// Returns our role in an exchange over a subflow that goes this way. If the listener is not authenticated, an address that it has
    /// announced may be that of an attacker on the path. A share from there does not count as that of another path.
    pub(crate) fn speaker(&mut self, way: Way, paths: &Paths) -> Speaker {
        match self.role {
            End::A if self.knows_peer() || way.remote == self.mixing.first_remote => {
                Speaker::Opener(self.mixing.numbers.number(way.path, paths))
            }
            End::A => Speaker::Opener(PathNumber::HANDSHAKE),
            End::B => Speaker::Listener,
        }
    }

    /// Begins an exchange over a subflow and returns its message. One at a time: the answering end keeps at most one.
    pub(crate) fn offer_path(
        &mut self,
        subflow: &mut SealedSubflow,
        us: Speaker,
        random: &mut dyn Random,
    ) -> Option<Vec<u8>> {
        let is_under_way = |pending: &Pending| {
            Some(pending.exchange.subflow) == subflow.tag() && matches!(pending.stage, Stage::Offered(_))
        };
        if self.mixing.exchanges.iter().any(is_under_way) || !self.mixing.make_room() {
            return None;
        }
        let exchange = Exchange { subflow: subflow.tag()?, number: subflow.next_exchange() };
        subflow.on_exchange(exchange.number.checked_add(1)?);
        let (offer, message) = self.identity.offer_path(self.path_keys(), us, exchange, random).ok()?;
        self.mixing.exchanges.push(Pending::new(exchange, Stage::Offered(offer)));
        Some(message)
    }

    /// Handles a message of an exchange.
    pub(crate) fn take_path_key(
        &mut self,
        subflow: &mut SealedSubflow,
        us: Speaker,
        message: &[u8],
        with: (&mut dyn Random, ShareLog<'_>),
    ) -> PathKey {
        let Some(exchange) = subflow.tag().and_then(|tag| exchange_of(tag, message)) else {
            return PathKey::Wrong;
        };
        match message.len() {
            OFFER_LEN => self.answer_path(subflow, us, exchange, message, with),
            ANSWER_LEN => self.finish_path(subflow, exchange, message, with.1),
            _ => PathKey::Wrong,
        }
    }

    fn answer_path(
        &mut self,
        subflow: &mut SealedSubflow,
        us: Speaker,
        exchange: Exchange,
        message: &[u8],
        with: (&mut dyn Random, ShareLog<'_>),
    ) -> PathKey {
        // Each message is answered once: two answers would share a key and a nonce.
        let Some(next) =
            exchange.number.checked_add(1).filter(|_| exchange.number >= subflow.next_exchange())
        else {
            return PathKey::Wrong;
        };
        if !self.mixing.make_room() {
            return PathKey::Ignored;
        }
        let Ok((answer, share)) = self.identity.answer_path(self.path_keys(), (us, exchange), message, with)
        else {
            return PathKey::Wrong;
        };
        subflow.on_exchange(next);
        subflow.on_path_number(share.path);
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
        subflow.on_path_number(share.path);
        self.mixing.exchanges.push(Pending::new(exchange, Stage::agreed(share)));
        self.say(Record::Agreed(exchange));
        PathKey::Agreed
    }

    fn path_keys(&self) -> PathKeys<'_> {
        PathKeys::new(&self.sealer, &self.opener)
    }

    /// Handles AGREED: the peer has our answer. A forgotten exchange is not the peer's fault: this end sends VOID, and the exchange has no
    /// effect.
    pub(super) fn confirm_exchange(&mut self, exchange: Exchange) -> Result<(), Broken> {
        let index = self.mixing.exchanges.iter().position(|pending| pending.exchange == exchange);
        let Some(index) = index else {
            self.say(Record::Void(exchange));
            return Ok(());
        };
        let Pending { stage, is_gone, .. } = self.mixing.exchanges.remove(index);
        // Only the end that has offered gets an answer.
        let Stage::Answered(share) = stage else { return Err(Broken) };
        self.mixing.exchanges.push(Pending { exchange, stage: Stage::agreed(share), is_gone });
        self.say(Record::Mix(exchange));
        Ok(())
    }

    /// Handles VOID: the peer has forgotten an exchange whose answer we have. Neither end has said MIX.
    pub(super) fn void_exchange(&mut self, exchange: Exchange) {
        self.mixing.exchanges.retain(|pending| {
            let is_untouched = matches!(pending.stage, Stage::Agreed { ours: Some(_), theirs: Some(_), .. });
            pending.exchange != exchange || !is_untouched
        });
    }

    /// Drops the offers on a subflow that is gone: no answer can arrive there.
    pub(super) fn forget_offers(&mut self, subflow: &SealedSubflow) {
        let is_of_it = |pending: &Pending| Some(pending.exchange.subflow) == subflow.tag();
        self.mixing
            .exchanges
            .retain(|pending| !is_of_it(pending) || !matches!(pending.stage, Stage::Offered(_)));
        for pending in self.mixing.exchanges.iter_mut().filter(|pending| is_of_it(pending)) {
            pending.is_gone = true;
        }
    }

    /// Returns the secret for the next generation when our MIX record is about to be sealed.
    pub(super) fn mix_ours(&mut self, exchange: Exchange) -> Option<MixSecret> {
        let generation = self.sealer.generation();
        let pending = self.mixing.find(exchange)?;
        let Stage::Agreed { path, ours, .. } = &mut pending.stage else { return None };
        let (mix, path) = (ours.take()?, *path);
        Mixing::note(&mut self.mixing.sent, path, generation + 1);
        self.mixing.tidy();
        Some(mix)
    }

    /// Handles the peer's MIX in a block of this generation.
    pub(super) fn mix_theirs(&mut self, exchange: Exchange, generation: u64) -> Result<(), Broken> {
        let pending = self.mixing.find(exchange).ok_or(Broken)?;
        let Stage::Agreed { path, ours, theirs } = &mut pending.stage else { return Err(Broken) };
        let (mix, path) = (theirs.take().ok_or(Broken)?, *path);
        // The end that has answered learns here that the other side knows. The other side has already sent its own MIX.
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

    /// Adds the requirement of the other side.
    pub(super) fn require(&mut self, paths: u8) {
        self.mixing.require(paths);
        self.review();
    }

    /// Checks again whether enough paths are in the keys, after a change of the keys or of the requirement.
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

    /// Returns the number of disjoint paths that must be in the keys.
    pub(crate) fn required(&self) -> u8 {
        self.mixing.required
    }

    /// Whether the handshake has authenticated the peer.
    pub(crate) fn knows_peer(&self) -> bool {
        match self.peer_identity() {
            PeerIdentity::Key { is_known, .. } => is_known,
            PeerIdentity::Certificate => true,
            PeerIdentity::Anonymous => false,
        }
    }

    /// Returns the number of paths in the keys: of our direction, and of the peer's.
    pub(crate) fn mixed_paths(&self) -> [usize; 2] {
        [
            Mixing::count(&self.mixing.sent, self.sealer.generation()),
            Mixing::count(&self.mixing.received, self.opener.generation()),
        ]
    }

    /// Whether either direction lacks required paths.
    pub(super) fn waits_for_paths(&self) -> bool {
        let required = usize::from(self.mixing.required);
        required > 1 && self.mixed_paths().into_iter().any(|paths| paths < required)
    }

    /// Reports once that neither direction lacks required paths any more, if some are required.
    pub(crate) fn poll_paths_mixed(&mut self) -> bool {
        let is_news = self.mixing.required > 1 && !self.mixing.is_told && !self.waits_for_paths();
        self.mixing.is_told |= is_news;
        is_news
    }

    /// Whether bytes of the application wait for paths.
    pub(crate) fn holds_data(&self) -> bool {
        self.mixing.is_held
    }

    /// Whether bytes of the application may arrive in this generation.
    pub(super) fn takes_data(&self, generation: u64) -> bool {
        self.mixing.taken_from.is_some_and(|from| from <= generation)
    }

    /// Notes that a join over this path failed.
    pub(crate) fn note_refusal(&mut self, now: Instant, path: PathId, why: &'static str) {
        if self.mixing.required > 1 && self.mixing.refusal.is_none() {
            self.mixing.refusal = Some((path, now, why));
        }
    }

    /// Returns the first path with a failed join while paths are missing, and the reason.
    pub(crate) fn refusal(&self) -> Option<(PathId, &'static str)> {
        self.mixing.refusal.map(|(path, _, why)| (path, why))
    }

    /// Returns when the wait for paths ends, if an opening may take `timeout`.
    pub(super) fn mixing_deadline(&self, timeout: Duration) -> Option<Instant> {
        if self.claim == Claim::TurnedAway || !self.holds_data() {
            return None;
        }
        let whole = self.began + timeout;
        Some(self.mixing.refusal.map_or(whole, |(_, since, _)| whole.min(since + AFTER_REFUSAL)))
    }

    /// Returns the number of another exchange if it is due, given how many bytes both sides have sent. Nothing is exchanged if nothing is
    /// sent.
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
