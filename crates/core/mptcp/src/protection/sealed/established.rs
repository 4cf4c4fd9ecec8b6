//! A sealed connection in use.

use plait_base::{Dsn, Instant};
use plait_protect::handshake::{Capabilities, Capability, Handshake, Instance, Peer, Tep};
use plait_protect::sealed::{
    ConnectionIdentity, Opener, Record, Role as End, Sealer, Seen, SessionTicket, SubflowTag, Suite,
};
use std::collections::{BTreeMap, VecDeque};

use super::ahead::Ahead;
use super::answered_joins::AnsweredJoins;
use super::claim::Claim;
use super::deliveries::Deliveries;
use super::gone::Names;
use super::handshaking::INITIAL_WINDOW;
use super::jobs::{Jobs, Ticket};
use super::look::Look;
use super::mixing::Mixing;
use super::unsealing::{Early, Opening};
use crate::data_space::DataSpace;
use crate::paths::Way;
use crate::protection::session::Numbers;
use crate::status::{PeerIdentity, SealedStatus};

/// Control records that wait for a block; more are dropped. A connection has a handful of addresses and
/// subflows to speak about.
const MAX_PENDING: usize = 64;

/// Ways that are remembered for what they did to blocks; beyond that the oldest is forgotten.
const MAX_SUSPECTS: usize = 16;

/// The result of the handshake about the peer.
pub(super) struct About {
    pub(super) tep: Tep,
    pub(super) suite: Suite,
    pub(super) key_exchange: &'static str,
    pub(super) peer: Peer,
    pub(super) capabilities: Capabilities,
    pub(super) instance: Option<Instance>,
    pub(super) is_resumed: bool,
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// What the handshake has left.
pub(super) struct Left {
    pub(super) began: Instant,
    pub(super) handshake: Box<dyn Handshake>,
    pub(super) ticket: Option<SessionTicket>,
}

/// Everything that a sealed connection has beyond a plain one.
pub(crate) struct Established {
    pub(super) role: End,
    about: About,
    pub(super) identity: ConnectionIdentity,
    /// Data sequence numbers of both directions.
    pub(super) numbers: Numbers,
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    /// Until the first block is opened: what comes unmapped before may be its alert. The opener keeps it until the first block is in
    /// order, which may have a ticket for it, and no longer: with what it remembers all keys could be made again.
    pub(super) handshake: Option<Box<dyn Handshake>>,
    /// Offset in the first subflow up to which bytes behind the handshake were looked at for its alert.
    pub(super) heard: u64,
    /// For the opener, to be said in our first block.
    pub(super) ticket: Option<SessionTicket>,
    /// Which attempt of an opening this is.
    pub(super) claim: Claim,
    /// When a listener has refused it.
    pub(super) refused_at: Option<Instant>,
    /// When the handshake began.
    pub(super) began: Instant,
    token: u32,
    pub(super) peer_token: u32,
    /// Blocks that no subflow was given yet.
    pub(super) ahead: Ahead,
    /// Blocks to be sealed and opened by jobs.
    pub(super) jobs: Jobs,
    /// Blocks that are being opened.
    pub(super) opening: BTreeMap<Ticket, Opening>,
    /// Names the next of them.
    pub(super) next_ticket: u64,
    /// Verified blocks that wait for those before them, by data offset.
    pub(super) early: BTreeMap<u64, Early>,
    /// The peer was told that it may send what lies below this offset.
    pub(super) announced: u64,
    /// Records of ours that wait for a block.
    pub(super) pending: VecDeque<Record>,
    /// Records about flows, and datagrams, that go into the next block.
    pub(super) beside: VecDeque<Record>,
    /// How subflows look at the other end.
    pub(super) look: Look,
    /// The date that the peer has said last, in seconds since 1970.
    pub(super) peer_date: Option<u64>,
    /// Records of the peer that are to be acted upon.
    pub(super) arrived: VecDeque<Record>,
    /// Subflows that are no more.
    pub(super) names: Names,
    /// What was seen of TCP's deliveries when blocks were last looked at.
    pub(super) deliveries: Option<Deliveries>,
    /// Ways to the peer that were left because they did not deliver what their TCP said.
    suspects: VecDeque<Way>,
    /// The block that tells the peer the end of our stream, once it is sealed.
    pub(super) eof_at: Option<Dsn>,
    /// The peer's has, in order.
    pub(super) eof_received: bool,
    /// Shares of the keys from single paths.
    pub(super) mixing: Mixing,
    /// Joins of the peer that were answered with data.
    answered_joins: AnsweredJoins,
    /// Blocks encrypted, blocks decrypted.
    pub(super) sealed_blocks: u64,
    pub(super) opened_blocks: u64,
    /// Of both, those done by jobs.
    pub(super) blocks_elsewhere: u64,
}

impl Established {
    pub(super) fn new(
        role: End,
        about: About,
        (identity, sealer, opener): (ConnectionIdentity, Sealer, Opener),
        Left { began, handshake, ticket }: Left,
        mixing: Mixing,
    ) -> Self {
        Self {
            role,
            about,
            token: identity.token(role),
            peer_token: identity.token(role.peer()),
            numbers: Numbers {
                // A mapping is authenticated with its block.
                is_mapped: true,
                ..Numbers::new(
                    DataSpace::new(identity.idsn(role)),
                    DataSpace::new(identity.idsn(role.peer())),
                )
            },
            identity,
            sealer,
            opener,
            handshake: Some(handshake),
            heard: 0,
            ticket,
            claim: match role {
                End::A => Claim::Unsaid,
                End::B => Claim::Awaited,
            },
            refused_at: None,
            began,
            ahead: Ahead::default(),
            jobs: Jobs::default(),
            opening: BTreeMap::new(),
            next_ticket: 0,
            early: BTreeMap::new(),
            announced: 1 + INITIAL_WINDOW,
            pending: VecDeque::new(),
            beside: VecDeque::new(),
            look: Look::default(),
            peer_date: None,
            arrived: VecDeque::new(),
            names: Names::default(),
            deliveries: None,
            suspects: VecDeque::new(),
            eof_at: None,
            eof_received: false,
            mixing,
            answered_joins: AnsweredJoins::default(),
            sealed_blocks: 0,
            opened_blocks: 0,
            blocks_elsewhere: 0,
        }
    }

    /// Returns the authenticated peer.
    pub(super) fn peer(&self) -> &Peer {
        &self.about.peer
    }

    /// Returns its identity for display.
    pub(super) fn peer_identity(&self) -> PeerIdentity {
        match &self.about.peer {
            Peer::Anonymous => PeerIdentity::Anonymous,
            Peer::Key { line, fingerprint: _, name, is_known } => {
                PeerIdentity::Key { line: line.clone(), fingerprint: name.clone(), is_known: *is_known }
            }
            Peer::Certificate => PeerIdentity::Certificate,
        }
    }

    /// Whether both ends understand this: what either does not list is not sent.
    pub(crate) fn peer_can(&self, capability: Capability) -> bool {
        self.about.capabilities.has(capability)
    }

    /// Which run of the server this is, if the peer is the server.
    pub(super) fn instance(&self) -> Option<Instance> {
        self.about.instance
    }

    pub(super) fn token(&self) -> u32 {
        self.token
    }

    /// The derived token is another connection's here: the peer is told another.
    pub(super) fn rename(&mut self, token: u32) {
        self.token = token;
        self.say(Record::Token(token));
    }

    /// A subflow over this way was left for what it did to blocks.
    pub(crate) fn suspect(&mut self, way: Way) {
        if self.is_suspect(way) {
            return;
        }
        if self.suspects.len() >= MAX_SUSPECTS {
            self.suspects.pop_front();
        }
        self.suspects.push_back(way);
    }

    /// Whether one was.
    pub(super) fn is_suspect(&self, way: Way) -> bool {
        self.suspects.contains(&way)
    }

    /// Whether the SYN of the peer's join with this nonce, just verified, may be answered with data: each may once.
    pub(crate) fn admits_answer(&mut self, nonce: u32) -> bool {
        self.answered_joins.admit(nonce, self.opener.generation())
    }

    /// Queues a record.
    pub(super) fn say(&mut self, record: Record) {
        if self.pending.len() < MAX_PENDING {
            self.pending.push_back(record);
        }
    }

    /// Asks the peer how our subflows look to it, in a block of so many bytes of plain text. `false` if the peer does not
    /// understand the question.
    pub(crate) fn ask_look(&mut self, bytes: usize) -> bool {
        let can_answer = self.peer_can(Capability::Look);
        if can_answer {
            self.look.ask(bytes);
        }
        can_answer
    }

    /// Answers the peer's question; `unix_time` is the date.
    pub(crate) fn answer_look(&mut self, seen: impl Iterator<Item = (SubflowTag, Seen)>, unix_time: u64) {
        let date = self.peer_can(Capability::Date).then_some(unix_time);
        self.look.answer(seen, date);
    }

    /// Whether the peer was told, or will be, that our stream has ended.
    pub(crate) fn is_eof_sent(&self) -> bool {
        self.eof_at.is_some()
    }

    /// Whether the end of either stream is verified: the peer's has come in order, and its Data-ACK, which is below `acked`,
    /// covers ours.
    pub(super) fn has_both_ends(&self, acked: u64) -> bool {
        let ours = self.eof_at.and_then(|dsn| self.numbers.outgoing.offset(dsn));
        self.eof_received && ours.is_some_and(|ours| ours < acked)
    }

    /// Whether the peer's end has come in order, and its Data-ACK covers every byte of ours but not our end.
    pub(super) fn lacks_last_ack(&self, acked: u64) -> bool {
        let ours = self.eof_at.and_then(|dsn| self.numbers.outgoing.offset(dsn));
        self.eof_received && ours == Some(acked)
    }

    /// Whether the peer's end has come in order, and ours was sent.
    pub(super) fn may_have_both_ends(&self) -> bool {
        self.eof_received && self.is_eof_sent()
    }

    pub(super) fn fast_close(&self) -> [u8; 8] {
        *self.sealer.fast_close()
    }

    pub(super) fn is_fast_close(&self, key: &[u8; 8]) -> bool {
        self.opener.is_fast_close(key)
    }

    pub(super) fn status(&self, rest: SealedStatus) -> SealedStatus {
        let About {
            tep,
            suite,
            key_exchange,
            peer: _,
            capabilities: _,
            instance,
            is_resumed,
            sent,
            received,
        } = &self.about;
        SealedStatus {
            handshake: Some(tep.name()),
            suite: Some(suite.name()),
            key_exchange: Some(key_exchange),
            peer: self.peer_identity(),
            instance: *instance,
            peer_date: self.peer_date,
            is_resumed: *is_resumed,
            mixed_paths: self.mixed_paths(),
            waits_for_paths: self.waits_for_paths(),
            generations: [self.sealer.generation(), self.opener.generation()],
            handshake_bytes: [*sent, *received],
            sealed_blocks: self.sealed_blocks,
            opened_blocks: self.opened_blocks,
            blocks_elsewhere: self.blocks_elsewhere,
            ..rest
        }
    }
}
