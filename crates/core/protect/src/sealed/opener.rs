//! The receiving half of a direction.

use core::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use plait_base::Dsn;

use super::ack::{AckContext, AckTag};
use super::aead::{BlockKey, WrongTag};
use super::block::{BLOCK_OVERHEAD, DATA_TAG_LEN, HEADER_LEN, Header, Kind, data_tag, writable};
use super::check::CheckTag;
use super::datagram::{Claimed, DatagramError, OpenedDatagram};
use super::generation::{Generation, RetiredGeneration};
use super::option_tag::{OPTION_TAG_LEN, OptionContext, OptionKey, SubflowTag};
use super::replay::ReplayWindow;
use super::report::{Report, ReportTag};
use super::secret::{MixSecret, PathSecret};
use super::signals::{JoinKeys, SignalSecrets, Signals};
use super::suite::Suite;

/// Opens the peer's blocks in any order, each on its own.
///
/// It holds the keys of three generations: the current one, the previous one until all its blocks have arrived, and the next one as soon as
/// a block claims it. The first block that opens with the next generation makes it the current one.
pub struct Opener {
    suite: Suite,
    /// The generation before `previous`, or `previous` once all its blocks have arrived: Data-ACKs may be in flight on slower subflows.
    retired: Option<RetiredGeneration>,
    previous: Option<Generation>,
    current: Generation,
    next: Option<Generation>,
    /// The secrets of the peer's signals outside the stream.
    signals: Signals,
    /// The shares of paths for the next generation.
    mixes: Vec<MixSecret>,
    has_opened: bool,
    /// The datagrams that have arrived on each subflow.
    arrived: Vec<(SubflowTag, ReplayWindow)>,
    /// Datagrams with a wrong tag since the last change of keys.
    forged: u64,
}

/// Datagrams with a wrong tag after which no further one of these keys is opened: the limit of integrity of RFC 9147, section 4.5.3.
const MAX_FORGED: u64 = 1 << 36;

impl Opener {
    pub(super) fn new(current: Generation, signals: Signals, suite: Suite) -> Self {
        Self {
            suite,
            signals,
            retired: None,
            previous: None,
            current,
            next: None,
            mixes: Vec::new(),
            has_opened: false,
            arrived: Vec::new(),
            forged: 0,
        }
    }

    /// The number of the newest generation that a block was opened with.
    pub fn generation(&self) -> u64 {
        self.current.number()
    }

    /// Whether any block was ever opened: only then is it certain that both ends have the same keys.
    pub fn has_opened(&self) -> bool {
        self.has_opened
    }

    /// Opens the block that fills the mapping at `dsn`: checks the option tag, then decrypts in place. `payload` is all of the mapping,
    /// without the DATA_FIN. If its bytes have another holder they are copied first, and [`Opened::copied`] reports it.
    ///
    /// # Errors
    /// [`OpenError`] tells which check failed. Nothing of the block may be used then: it counts as not received.
    pub fn open(
        &mut self,
        dsn: Dsn,
        context: &OptionContext<'_>,
        payload: Bytes,
    ) -> Result<Opened, OpenError> {
        let opened = self.begin(dsn, context, payload)?.run()?;
        self.finish(&opened);
        Ok(opened)
    }

    /// The first half of [`Opener::open`]: all except the decryption, which may run in a job and in any order.
    ///
    /// # Errors
    /// As [`Opener::open`], except [`OpenError::DataTag`].
    pub fn begin(
        &mut self,
        dsn: Dsn,
        context: &OptionContext<'_>,
        payload: Bytes,
    ) -> Result<OpenJob, OpenError> {
        if payload.len() < BLOCK_OVERHEAD || payload.len() + usize::from(context.data_fin) > u16::MAX.into() {
            return Err(OpenError::Length);
        }
        let (header, kind) = Header::parse(payload[0]).ok_or(OpenError::Type)?;
        let is_unproven = !self.has_opened;
        let generation =
            self.generation_mut(header.generation()).ok_or(OpenError::Generation(header.generation()))?;
        let message = context.of_block(header, dsn, payload.len());
        let received = &payload[payload.len() - OPTION_TAG_LEN..];
        let once;
        let key = if context.subflow.is_of_syn() {
            once = generation.option_key_once(context.subflow);
            &once
        } else {
            generation.option_key(context.subflow)
        };
        if !key.is_tag::<OPTION_TAG_LEN>(&message, data_tag(&payload), received) {
            return Err(if is_unproven { OpenError::FirstOptionTag } else { OpenError::OptionTag });
        }
        let key = Arc::clone(generation.block_key());
        Ok(OpenJob { key, generation: generation.number(), header, kind, dsn, payload })
    }

    /// The last half of [`Opener::open`]: registers a block that a job has opened.
    pub fn finish(&mut self, opened: &Opened) {
        self.has_opened = true;
        if opened.generation == self.current.number() + 1 {
            self.advance();
        }
    }

    #[cfg(test)]
    pub(super) fn current(&self) -> &Generation {
        &self.current
    }

    /// Handles a KEY_UPDATE record that came, in order, in a block of generation `closed`: all older blocks have arrived. Wipes their keys.
    ///
    /// # Errors
    /// [`OpenError::Generation`] if that generation is not the newest or the one before: a peer that follows
    /// the rules cannot do this.
    pub fn handle_key_update(&mut self, closed: u64) -> Result<(), OpenError> {
        if closed == self.current.number() {
            self.advance();
        }
        if closed + 1 != self.current.number() {
            return Err(OpenError::Generation((closed & 0x3f) as u8));
        }
        self.retired = self.previous.take().map(Generation::retire);
        Ok(())
    }

    /// Handles a MIX record that came, in order, in a block of generation `said_in`: the next generation depends on it as well.
    ///
    /// # Errors
    /// [`OpenError::Generation`] if the next generation has begun: a peer that follows the rules sends MIX before.
    pub fn handle_mix(&mut self, said_in: u64, mix: MixSecret) -> Result<(), OpenError> {
        if said_in != self.current.number() {
            return Err(OpenError::Generation((said_in & 0x3f) as u8));
        }
        self.mixes.push(mix);
        // A forged block may have caused its derivation. It was not this generation.
        self.next = None;
        Ok(())
    }

    /// Keys by which this host proves a join; `None` for host A ([`Sealer::join_keys`](super::Sealer::join_keys)).
    pub fn join_keys(&self) -> Option<JoinKeys<'_>> {
        self.signals.joins().next()
    }

    /// Keys by which the peer may have proved a join, the newest first; none for host A.
    pub fn joins(&self) -> impl Iterator<Item = JoinKeys<'_>> {
        self.signals.joins()
    }

    /// Whether `key` is what an MP_FASTCLOSE of the peer carries. In constant time.
    pub fn is_fast_close(&self, key: &[u8; 8]) -> bool {
        self.signals.is_fast_close(key)
    }

    /// Returns the secret of the peer's messages over single paths in the generation of these six bits, if it is kept.
    pub(super) fn path_secret(&self, wire: u8) -> Option<&PathSecret> {
        self.signals.of_wire(wire).map(SignalSecrets::path)
    }

    /// Checks the tag of a segment without a block.
    ///
    /// # Errors
    /// [`OpenError::Generation`] or [`OpenError::OptionTag`] ([`OpenError::FirstOptionTag`] before the first
    /// block): drop it and count it.
    pub fn check_ack(&mut self, context: &AckContext<'_>, tag: &AckTag) -> Result<(), OpenError> {
        self.check_tag(context.subflow, tag.generation(), |key| tag.is_right(key, context))
    }

    /// Checks the tag of a CHECK on this subflow.
    ///
    /// # Errors
    /// As [`Opener::check_ack`].
    pub fn check_life(&mut self, subflow: SubflowTag, tag: &CheckTag) -> Result<(), OpenError> {
        self.check_tag(subflow, tag.generation(), |key| tag.is_right(key))
    }

    /// Checks a report of the peer about the datagrams below `sent` that this end has sent on the subflow, and returns it.
    ///
    /// # Errors
    /// As [`Opener::check_ack`].
    pub fn check_report(
        &mut self,
        subflow: SubflowTag,
        tag: &ReportTag,
        sent: u64,
    ) -> Result<Report, OpenError> {
        let report = tag.expand(sent);
        self.check_tag(subflow, tag.generation(), |key| tag.is_right(key, &report))?;
        Ok(report)
    }

    /// Opens a datagram that came over this subflow, in place. It changes no generation: only a block does.
    ///
    /// # Errors
    /// [`DatagramError`]: drop it and count it.
    pub fn open_datagram(
        &mut self,
        subflow: SubflowTag,
        bytes: BytesMut,
    ) -> Result<(u64, OpenedDatagram), DatagramError> {
        let claimed = Claimed::parse(&bytes)?;
        let known = self.arrived.iter().position(|(of, _)| *of == subflow);
        let window = known.map_or(const { &ReplayWindow::new() }, |index| &self.arrived[index].1);
        let counter = window.expand(claimed.counter);
        if !window.is_new(counter) {
            return Err(DatagramError::Repeated);
        }
        if self.forged >= MAX_FORGED {
            return Err(DatagramError::UsedUp);
        }
        let (suite, wire) = (self.suite, claimed.generation);
        let opened = match self.generation_mut(wire) {
            Some(generation) => {
                let number = generation.number();
                claimed.open(generation.datagram_key(suite, subflow), counter, bytes).map(|it| (number, it))
            }
            None => {
                let key = self.retired.as_ref().and_then(|retired| retired.datagram_key(wire, subflow));
                let (number, key) = key.ok_or(DatagramError::Generation)?;
                claimed.open(key, counter, bytes).map(|it| (number, it))
            }
        };
        match opened {
            Ok(opened) => {
                let index = known.unwrap_or_else(|| {
                    self.arrived.push((subflow, ReplayWindow::new()));
                    self.arrived.len() - 1
                });
                self.arrived[index].1.accept(counter);
                Ok(opened)
            }
            Err(error) => {
                self.forged += 1;
                Err(error)
            }
        }
    }

    /// Returns the counter after the highest datagram that has arrived on a subflow, and the number of those that have.
    pub fn datagrams_on(&self, subflow: SubflowTag) -> (u64, u64) {
        let known = self.arrived.iter().find(|(of, _)| *of == subflow);
        known.map_or((0, 0), |(_, window)| (window.next(), window.count()))
    }

    fn check_tag(
        &mut self,
        subflow: SubflowTag,
        wire: u8,
        is_right: impl FnOnce(&OptionKey) -> bool,
    ) -> Result<(), OpenError> {
        let is_unproven = !self.has_opened;
        let is_right = match self.generation_mut(wire) {
            Some(generation) => is_right(generation.option_key(subflow)),
            None => {
                let retired = self.retired.as_ref();
                let key = retired.and_then(|retired| retired.option_key(wire, subflow));
                is_right(key.ok_or(OpenError::Generation(wire))?)
            }
        };
        match is_right {
            true => Ok(()),
            false if is_unproven => Err(OpenError::FirstOptionTag),
            false => Err(OpenError::OptionTag),
        }
    }

    /// Wipes the option keys of a subflow that is gone.
    pub fn forget_subflow(&mut self, subflow: SubflowTag) {
        self.arrived.retain(|(of, _)| *of != subflow);
        self.current.forget_subflow(subflow);
        for other in [&mut self.previous, &mut self.next].into_iter().flatten() {
            other.forget_subflow(subflow);
        }
        if let Some(retired) = &mut self.retired {
            retired.forget_subflow(subflow);
        }
    }

    fn advance(&mut self) {
        let next = self.next.take().unwrap_or_else(|| self.current.next(self.suite, &self.mixes));
        self.mixes.clear();
        self.forged = 0;
        self.signals.advance(next.secrets());
        self.previous = Some(core::mem::replace(&mut self.current, next));
    }

    /// Whether these six bits stand for a past generation with wiped keys rather than for a future one.
    pub fn is_past(&self, wire: u8) -> bool {
        let behind = self.current.wire().wrapping_sub(wire) & 0x3f;
        (1..0x20).contains(&behind)
    }

    /// Returns the generation of these six bits. The next one is derived when it is first claimed and then kept, so that an attacker can
    /// cause that work once per generation.
    fn generation_mut(&mut self, wire: u8) -> Option<&mut Generation> {
        if self.current.wire() == wire {
            return Some(&mut self.current);
        }
        if let Some(previous) = self.previous.as_mut().filter(|previous| previous.wire() == wire) {
            return Some(previous);
        }
        if (self.current.number() + 1) & 0x3f == u64::from(wire) {
            let (current, suite, mixes) = (&self.current, self.suite, &self.mixes);
            return Some(self.next.get_or_insert_with(|| current.next(suite, mixes)));
        }
        None
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.generation();
        f.debug_struct("Opener")
            .field("suite", &self.suite)
            .field("generation", &generation)
            .finish_non_exhaustive()
    }
}

/// A block with a valid option tag, before its decryption. Its content is not authenticated yet: an attacker may have changed the
/// ciphertext and kept the tags.
pub struct OpenJob {
    key: Arc<BlockKey>,
    generation: u64,
    header: Header,
    kind: Kind,
    dsn: Dsn,
    payload: Bytes,
}

impl OpenJob {
    /// Decrypts.
    ///
    /// # Errors
    /// [`OpenError::DataTag`].
    pub fn run(self) -> Result<Opened, OpenError> {
        let Self { key, generation, header, kind, dsn, payload } = self;
        let mapped = payload.len();
        let (mut bytes, copied) = writable(payload);
        bytes.truncate(mapped - OPTION_TAG_LEN);
        bytes.advance(HEADER_LEN);
        let text = key.open(header, dsn, &mut bytes).map_err(|WrongTag| OpenError::DataTag)?;
        debug_assert_eq!(text, mapped - BLOCK_OVERHEAD, "tags are {DATA_TAG_LEN} bytes");
        bytes.truncate(text);
        Ok(Opened { kind, generation, dsn, plain: bytes, copied })
    }
}

impl fmt::Debug for OpenJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenJob({:?}, {:?}, {} bytes)", self.kind, self.dsn, self.payload.len())
    }
}

/// A block that was verified and decrypted.
pub struct Opened {
    /// Its kind.
    pub kind: Kind,
    /// The generation of the keys that opened it.
    pub generation: u64,
    /// Its first data sequence number.
    pub dsn: Dsn,
    /// The plain text.
    pub plain: BytesMut,
    /// Bytes that were copied because the payload had another holder: 0 or all of it.
    pub copied: usize,
}

impl Opened {
    /// The data sequence number behind the block (behind its overhead, too).
    pub fn end(&self) -> Dsn {
        self.dsn + (self.plain.len() + BLOCK_OVERHEAD) as u64
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened({:?}, {:?}, {} bytes)", self.kind, self.dsn, self.plain.len())
    }
}

/// The check that a block or a tag failed. An attacker on the path can cause all of them except the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpenError {
    /// The mapping is shorter than an empty block, or longer than a mapping can be.
    Length,
    /// One of the two block types that do not exist.
    Type,
    /// The six bits name a generation that has no keys: neither the current nor a neighbour.
    Generation(u8),
    /// The option tag is wrong: the DSS option, a protected option or the data tag were changed, or the block
    /// was replayed on another subflow or at another place.
    OptionTag,
    /// The option tag is valid, the ciphertext is not.
    DataTag,
    /// As [`OpenError::OptionTag`], and no block was ever opened on this connection. If the peer's retransmissions fail as well, the two
    /// ends have different keys: an attacker has rewritten the negotiation, and the transcripts in the keys differ.
    FirstOptionTag,
}
