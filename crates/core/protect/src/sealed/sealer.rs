//! The sending half of a direction.
//!
//! A nonce is a data sequence number, and only the [`Sealer`] assigns data sequence numbers. It takes plain bytes, seals them at its next
//! number, and advances by the length of the block. It cannot be cloned or reset, and a sealed block only ever gets another option tag.
//! Therefore no nonce is used twice, whatever the callers do.

use core::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use plait_base::{Dsn, Instant};

use super::ack::{AckContext, AckTag};
use super::aead::BlockKey;
use super::block::{BLOCK_OVERHEAD, BlockBuffer, Header, Kind, Payload, SealedBlock};
use super::check::{Check, CheckTag};
use super::datagram::{self, DatagramHead};
use super::generation::Generation;
use super::limits::KeyLimits;
use super::option_tag::{OPTION_TAG_LEN, OptionContext, SubflowTag};
use super::record::Record;
use super::report::{Report, ReportTag};
use super::secret::{MixSecret, PathSecret};
use super::signals::{JoinKeys, Signals};
use super::suite::Suite;

/// Seals the bytes that this host sends.
pub struct Sealer {
    suite: Suite,
    limits: KeyLimits,
    next: Dsn,
    current: Generation,
    /// The secrets of our signals outside the stream.
    signals: Signals,
    /// Whether the next generation is requested for a reason other than the age of this one.
    is_asked_to_update: bool,
    /// First number sealed under the current generation, and when it came into use.
    began: Dsn,
    since: Instant,
    bytes: u64,
    calls: u64,
    /// Kept until everything sealed under it is acknowledged: its blocks may have to be tagged again.
    previous: Option<Generation>,
    /// The shares of paths for the next generation.
    mixes: Vec<MixSecret>,
    /// First number behind the last MIX record that is not acknowledged.
    announced: Option<Dsn>,
    /// The next counter for datagrams of each subflow. It goes on in the next generation.
    counters: Vec<(SubflowTag, u64)>,
    /// Datagrams sealed in the current generation.
    datagrams: u64,
}

impl Sealer {
    pub(super) fn new(
        (current, signals): (Generation, Signals),
        suite: Suite,
        limits: KeyLimits,
        first: Dsn,
        now: Instant,
    ) -> Self {
        Self {
            suite,
            limits,
            next: first,
            current,
            signals,
            is_asked_to_update: false,
            began: first,
            since: now,
            bytes: 0,
            calls: 0,
            previous: None,
            mixes: Vec::new(),
            announced: None,
            counters: Vec::new(),
            datagrams: 0,
        }
    }

    /// The suite in use.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The number of the current generation of keys.
    pub fn generation(&self) -> u64 {
        self.current.number()
    }

    /// The data sequence number of the next block.
    pub fn next_dsn(&self) -> Dsn {
        self.next
    }

    /// Encrypts `plain` at the next data sequence number, in place.
    ///
    /// # Errors
    /// [`KeyUsedUp`] if the keys are far past their limits, because key updates did not happen.
    pub fn seal(&mut self, kind: Kind, plain: BlockBuffer) -> Result<SealedBlock, KeyUsedUp> {
        self.begin(kind, plain).map(SealJob::run)
    }

    /// Takes the next data sequence number for `plain` and leaves the encryption to the job. Jobs of one sealer may run anywhere and finish
    /// in any order.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn begin(&mut self, kind: Kind, plain: BlockBuffer) -> Result<SealJob, KeyUsedUp> {
        if self.limits.is_used_up(self.bytes, self.calls) {
            return Err(KeyUsedUp);
        }
        let dsn = self.next;
        self.next += (plain.len() + BLOCK_OVERHEAD) as u64;
        self.bytes += plain.len() as u64;
        self.calls += 1;
        Ok(SealJob {
            key: Arc::clone(self.current.block_key()),
            generation: self.current.number(),
            header: Header::new(kind, self.current.wire()),
            kind,
            dsn,
            plain,
        })
    }

    /// Seals a control block whose MIX records name the exchanges of these secrets, in this order. The next generation depends on them as
    /// well. It begins when the peer has acknowledged the block, so that the peer always knows them.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn seal_mixing(
        &mut self,
        plain: BlockBuffer,
        mixes: impl IntoIterator<Item = MixSecret>,
    ) -> Result<SealedBlock, KeyUsedUp> {
        let block = self.seal(Kind::Control, plain)?;
        let before = self.mixes.len();
        self.mixes.extend(mixes);
        if self.mixes.len() > before {
            self.announced = Some(self.next);
        }
        Ok(block)
    }

    /// Returns the payload of one transmission of `block`: the first, or a reinjection with another context. No encryption happens here.
    /// `None` if everything of its generation is acknowledged, so that the block is no longer needed.
    pub fn transmit(&mut self, block: &mut SealedBlock, context: &OptionContext<'_>) -> Option<Payload> {
        let key = self.generation_mut(block.generation())?.option_key(context.subflow);
        Some(block.transmit(key, context))
    }

    /// Returns only the option tag of one transmission of `block`, for a payload in two pieces: after [`SealedBlock::shared`]. `None` as
    /// with [`Sealer::transmit`].
    pub fn tag(&mut self, block: &SealedBlock, context: &OptionContext<'_>) -> Option<[u8; OPTION_TAG_LEN]> {
        let key = self.generation_mut(block.generation())?.option_key(context.subflow);
        Some(block.tag(key, context))
    }

    /// The same for a transmission in the SYN of a join, or in its SYN/ACK: no state is kept for a subflow that may never exist.
    pub fn tag_once(&self, block: &SealedBlock, context: &OptionContext<'_>) -> Option<[u8; OPTION_TAG_LEN]> {
        let key = self.kept(block.generation())?.option_key_once(context.subflow);
        Some(block.tag(&key, context))
    }

    /// The tag of a segment without a block: a pure Data-ACK, or a DATA_FIN alone.
    pub fn tag_ack(&mut self, context: &AckContext<'_>) -> AckTag {
        let generation = self.current.wire();
        AckTag::new(self.current.option_key(context.subflow), generation, context)
    }

    /// A CHECK on this subflow.
    pub fn tag_check(&mut self, subflow: SubflowTag, check: Check) -> CheckTag {
        let generation = self.current.wire();
        CheckTag::new(self.current.option_key(subflow), generation, check)
    }

    /// A report about the datagrams that have arrived on this subflow.
    pub fn tag_report(&mut self, subflow: SubflowTag, report: &Report) -> ReportTag {
        let generation = self.current.wire();
        ReportTag::new(self.current.option_key(subflow), generation, report)
    }

    /// Seals the pieces of `payload` as one datagram on this subflow, at its next counter, into `out`. Returns the counter.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn seal_datagram(
        &mut self,
        subflow: SubflowTag,
        head: &DatagramHead,
        payload: &[&[u8]],
        out: &mut BytesMut,
    ) -> Result<u64, KeyUsedUp> {
        if self.limits.is_used_up(0, self.datagrams) {
            return Err(KeyUsedUp);
        }
        let known = self.counters.iter().position(|(of, _)| *of == subflow);
        let index = known.unwrap_or_else(|| {
            self.counters.push((subflow, 0));
            self.counters.len() - 1
        });
        let next = &mut self.counters[index].1;
        let wire = self.current.wire();
        let key = self.current.datagram_key(self.suite, subflow);
        let counter = datagram::seal(key, (wire, *next), head, payload, out);
        *next = counter + 1;
        self.datagrams += 1;
        Ok(counter)
    }

    /// Asks for the next generation as soon as it may begin.
    pub fn ask_to_update(&mut self) {
        self.is_asked_to_update = true;
    }

    /// Returns the keys with which this host proves a join that it answers, or that it has begun without an answer so far. They are of a
    /// generation that the peer has. `None` for host B, whose joins follow the direction of A
    /// ([`Opener::join_keys`](super::Opener::join_keys)).
    pub fn join_keys(&self) -> Option<JoinKeys<'_>> {
        self.signals.joins().nth(self.unacknowledged())
    }

    /// Keys by which the peer may have proved a join, the newest first; none for host B.
    pub fn joins(&self) -> impl Iterator<Item = JoinKeys<'_>> {
        self.signals.joins()
    }

    /// Returns the value that replaces the key in an MP_FASTCLOSE of this host. Sending it reveals it, as intended.
    pub fn fast_close(&self) -> &[u8; 8] {
        self.signals.of_age(self.unacknowledged()).1.fast_close()
    }

    /// Returns the secret of this host's messages over single paths, with six bits of its generation.
    pub(super) fn path_secret(&self) -> (u8, &PathSecret) {
        let (wire, secrets) = self.signals.of_age(self.unacknowledged());
        (wire, secrets.path())
    }

    /// Returns how many generations the peer may not know: one while the KEY_UPDATE that ended the previous one is not acknowledged.
    fn unacknowledged(&self) -> usize {
        usize::from(self.previous.is_some())
    }

    /// Whether it is time for [`Sealer::update_keys`].
    pub fn is_update_due(&self, now: Instant) -> bool {
        (!self.mixes.is_empty() && self.announced.is_none())
            || self.is_asked_to_update
            || self.bytes >= self.limits.bytes
            || self.calls >= self.limits.calls
            || self.datagrams >= self.limits.calls
            || now.saturating_since(self.since) >= self.limits.age
    }

    /// Seals a KEY_UPDATE record as the last block of the current generation and moves on to the next.
    ///
    /// # Errors
    /// [`UpdateRefused`] while blocks of the previous generation are not acknowledged: the receiver keeps two generations, so no third may
    /// begin. Also while a MIX record is not acknowledged: the receiver has to know the inputs of the next generation before its first
    /// block.
    pub fn update_keys(&mut self, now: Instant) -> Result<SealedBlock, UpdateRefused> {
        if self.previous.is_some() {
            return Err(UpdateRefused::PreviousInUse);
        }
        if self.announced.is_some() {
            return Err(UpdateRefused::MixUnacknowledged);
        }
        let mut record = BlockBuffer::with_capacity(1);
        record.put(&Record::KeyUpdate.to_bytes());
        let block = self.seal(Kind::Control, record).map_err(|KeyUsedUp| UpdateRefused::KeyUsedUp)?;
        let next = self.current.next(self.suite, &self.mixes);
        self.mixes.clear();
        self.signals.advance(next.secrets());
        self.is_asked_to_update = false;
        self.previous = Some(core::mem::replace(&mut self.current, next));
        self.began = self.next;
        self.since = now;
        self.bytes = 0;
        self.calls = 0;
        self.datagrams = 0;
        Ok(block)
    }

    /// Handles a verified Data-ACK for everything before `acked`: wipes the keys that only this needed.
    pub fn handle_data_ack(&mut self, acked: Dsn) {
        if acked.is_at_or_after(self.began) {
            self.previous = None;
        }
        if self.announced.is_some_and(|end| acked.is_at_or_after(end)) {
            self.announced = None;
        }
    }

    /// Wipes the option keys of a subflow that is gone.
    pub fn forget_subflow(&mut self, subflow: SubflowTag) {
        self.counters.retain(|(of, _)| *of != subflow);
        self.current.forget_subflow(subflow);
        if let Some(previous) = &mut self.previous {
            previous.forget_subflow(subflow);
        }
    }

    fn kept(&self, number: u64) -> Option<&Generation> {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(|it| it.number() == number)
    }

    fn generation_mut(&mut self, number: u64) -> Option<&mut Generation> {
        if self.current.number() == number {
            return Some(&mut self.current);
        }
        self.previous.as_mut().filter(|previous| previous.number() == number)
    }

    #[cfg(test)]
    pub(super) fn current(&self) -> &Generation {
        &self.current
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.generation();
        f.debug_struct("Sealer")
            .field("suite", &self.suite)
            .field("generation", &generation)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// One encryption, bound to its data sequence number. Running it uses it up.
#[must_use = "the data sequence numbers of this block are taken; without the block the stream has a hole"]
pub struct SealJob {
    key: Arc<BlockKey>,
    generation: u64,
    header: Header,
    kind: Kind,
    dsn: Dsn,
    plain: BlockBuffer,
}

impl SealJob {
    /// Encrypts.
    pub fn run(self) -> SealedBlock {
        let Self { key, generation, header, kind, dsn, plain } = self;
        let body = plain.seal(header, |text| key.seal(header, dsn, text));
        SealedBlock::new(kind, generation, dsn, body)
    }
}

impl fmt::Debug for SealJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealJob({:?}, {:?}, {:?})", self.kind, self.dsn, self.plain)
    }
}

/// The keys have reached their limit, because the peer never allowed an update. The connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyUsedUp;

/// The reason for which no key update is possible now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateRefused {
    /// Blocks of the previous generation are still unacknowledged; try again later.
    PreviousInUse,
    /// The peer has not acknowledged the inputs of the next generation; try again later.
    MixUnacknowledged,
    /// Too late: see [`KeyUsedUp`].
    KeyUsedUp,
}

#[cfg(test)]
mod tests {
    use super::super::option_tag::ProtectedOptions;
    use super::super::schedule::{ConnectionSecrets, Role};
    use super::super::secret::MasterSecret;
    use super::*;

    #[test]
    fn names_that_come_to_nothing_leave_no_key_on_either_side() {
        let seven = |bytes: &mut [u8; 32]| -> Result<(), ()> {
            bytes.fill(7);
            Ok(())
        };
        let master = || MasterSecret::filled_by(seven).expect("it is filled");
        let secrets = || ConnectionSecrets::derive(master(), 0x21);
        let suite = Suite::Aes128Gcm;
        let (_, mut sealer, _) = secrets().start(Role::A, suite, suite.limits(), Instant::ZERO);
        let (_, _, mut opener) = secrets().start(Role::B, suite, suite.limits(), Instant::ZERO);
        let mut plain = BlockBuffer::with_capacity(4);
        plain.put(b"text");
        let dsn = sealer.next_dsn();
        let mut block = sealer.seal(Kind::Data, plain).expect("it is the first");
        for nonce in 0..100 {
            let subflow = SubflowTag::of_syn(nonce, 0, 2);
            let options = ProtectedOptions::NONE;
            let context = OptionContext { subflow, offset: 0, data_ack: None, data_fin: false, options };
            let tag = sealer.tag_once(&block, &context).expect("there are keys");
            let payload = [&block.shared()[..], &tag].concat();
            assert!(opener.begin(dsn, &context, payload.clone().into()).is_ok());
            // Of another SYN it says nothing.
            let other = OptionContext { subflow: SubflowTag::of_syn(nonce + 1, 0, 2), ..context };
            assert!(opener.begin(dsn, &other, payload.into()).is_err());
        }
        assert_eq!((sealer.current().kept_option_keys(), opener.current().kept_option_keys()), (0, 0));
    }
}
