//! The connection itself.

use alloc::collections::VecDeque;
use bytes::Bytes;
use plait_base::{Duration, Instant, SeqNum};
use plait_wire::{IcmpError, IpVersion, MAX_OPTIONS, OptionBytes, Segment};

use crate::ack_policy::Urgency;
use crate::challenge::ChallengeLimit;
use crate::congestion::{Controller, Coupling};
use crate::ecn::Marking;
use crate::flow_label::FlowLabel;
use crate::handshake::Opening;
use crate::header_options::{Repeats, SynOptions, TIMESTAMPS_LEN};
use crate::log;
use crate::receiver::Receiver;
use crate::sender::{Finish, Sender};
use crate::stats::Stats;
use crate::timers::Timers;
use crate::timestamps::Timestamps;
use crate::{Arrival, Closed, Config, Deadline, Ecn, Event, FourTuple, Isn, Timer};

/// The states of RFC 9293, section 3.3.2 (LISTEN is the endpoint's).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Bytes to send, with option bytes that every wire segment cut from them carries unchanged, first
/// transmission and retransmission alike. Two records with options never share a segment; records without
/// may.
#[derive(Clone, Debug)]
pub struct Record {
    /// The bytes; not empty.
    pub payload: Bytes,
    /// Opaque options, a multiple of four bytes; may be empty.
    pub options: OptionBytes,
    /// Set PSH on its last segment.
    pub push: bool,
}

/// Bytes that arrived in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Stream offset of the first one (1 is the first byte of the stream).
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// The kind of segment for which options are requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// SYN; how many were sent before.
    Syn {
        /// Zero for the first.
        attempt: u8,
    },
    /// SYN/ACK; how many were sent before.
    SynAck {
        /// Zero for the first.
        attempt: u8,
    },
    /// A segment without payload: acknowledgment, FIN, probe; the third ACK of the handshake too.
    Ack,
    /// A reset.
    Reset,
}

/// Supplies the opaque options of segments that carry no record.
pub trait SegmentOptions {
    /// Appends at most `room` bytes (a multiple of four) to `out`. Called exactly once for each such segment
    /// that is then really sent.
    fn write(&mut self, kind: SegmentKind, room: usize, out: &mut OptionBytes);
}

/// No options at all: plain TCP.
impl SegmentOptions for () {
    fn write(&mut self, _: SegmentKind, _: usize, _: &mut OptionBytes) {}
}

/// How a connection began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Active,
    Passive,
}

/// Whether a segment without payload is due that the peer must acknowledge: a keep-alive or a window probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckProbe {
    /// No.
    Idle,
    /// Yes, with the next segment that leaves.
    Due,
}

/// One TCP connection.
pub struct Connection {
    pub(crate) config: Config,
    pub(crate) tuple: FourTuple,
    pub(crate) state: State,
    pub(crate) opening: Opening,
    pub(crate) sack: bool,
    pub(crate) ecn: Marking,
    pub(crate) flow_label: FlowLabel,
    pub(crate) timestamps: Option<Timestamps>,
    pub(crate) send: Sender,
    pub(crate) receive: Receiver,
    pub(crate) challenge: ChallengeLimit,
    pub(crate) ack_probe: AckProbe,
    /// A RST to be sent: its sequence number, and whether it acknowledges.
    pub(crate) reset: Option<(SeqNum, bool)>,
    /// The owner no longer waits for the rest ([`Connection::orphan`]).
    pub(crate) orphaned: bool,
    pub(crate) timers: Timers,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: Stats,
}

impl Connection {
    /// Opens actively: the SYN goes out with the next [`Connection::poll_transmit`].
    pub fn connect(now: Instant, config: Config, tuple: FourTuple, isn: Isn) -> Self {
        Self::new(now, config, tuple, isn, Role::Active)
    }

    /// Opens passively, in answer to `syn` (SYN set, ACK and RST not: the caller has looked).
    pub fn accept(now: Instant, config: Config, syn: &Segment, isn: Isn) -> Self {
        let tuple = FourTuple { local: syn.destination, remote: syn.source };
        let mut subflow = Self::new(now, config, tuple, isn, Role::Passive);
        subflow.take_syn(now, syn);
        subflow.state = State::SynReceived;
        subflow
    }

    fn new(now: Instant, config: Config, tuple: FourTuple, isn: Isn, role: Role) -> Self {
        let version = IpVersion::of(&tuple.local.ip());
        let send = Sender::new(now, &config, isn.seq, version);
        let receive = Receiver::new(now, &config);
        Self {
            tuple,
            state: State::SynSent,
            opening: Opening {
                role,
                attempts: 0,
                began_at: now,
                sent_at: now,
                was_lost: false,
                repeat_answered_at: None,
                due: true,
                theirs: None,
            },
            sack: config.sack,
            ecn: Marking::new(if config.congestion.answers_marks() { config.ecn } else { Ecn::Off }),
            flow_label: FlowLabel::new(now, version, isn.label_seed),
            timestamps: config.timestamps.then(|| Timestamps::new(isn.timestamp_offset)),
            config,
            send,
            receive,
            challenge: ChallengeLimit::default(),
            ack_probe: AckProbe::Idle,
            reset: None,
            orphaned: false,
            timers: Timers::default(),
            events: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Takes a segment or super-segment for this four-tuple. `now` is the time of its arrival. In-order data
    /// is then available from [`Connection::read`]: an owner that needs the segment's options before the data
    /// reads them in between.
    #[inline]
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment) -> Arrival {
        self.take_segment(now, segment, Repeats::Count)
    }

    /// Like [`Connection::handle_segment`], for a segment with a message to the owner in its options. A peer sends such a segment although it
    /// has nothing else to acknowledge: it is no sign of a loss.
    #[inline]
    pub fn handle_message(&mut self, now: Instant, segment: &Segment) -> Arrival {
        self.take_segment(now, segment, Repeats::Ignore)
    }

    /// Takes an ICMP error that quotes a segment of this connection (RFC 5927: checked against the window).
    pub fn handle_icmp(&mut self, now: Instant, error: &IcmpError) {
        let _span = log::enter(&self.tuple);
        self.icmp_arrives(now, error);
    }

    /// Runs all timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _span = log::enter(&self.tuple);
        self.run_timers(now);
    }

    /// The next segment or super-segment to send, if any. Call until `None`.
    pub fn poll_transmit(&mut self, now: Instant, options: &mut impl SegmentOptions) -> Option<Segment> {
        let _span = log::enter(&self.tuple);
        let segment = self.next_segment(now, options)?;
        log::trace!(
            seq = segment.seq.bits(),
            ack = segment.ack.bits(),
            len = segment.payload.len(),
            flags = ?segment.flags,
            window = segment.window,
            "segment leaves"
        );
        Some(segment)
    }

    /// The earliest deadline.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.earliest()
    }

    /// The next event. Call until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Payload bytes that could leave right now, beyond what [`Connection::send`] has been given: bounded by
    /// congestion window and the peer's window; 0 while it is not its turn by pacing, before the handshake is complete, during a timeout
    /// and after [`Connection::finish`], and where it is less than a segment that is worth sending (RFC 9293, section
    /// 3.8.6.2.1): what waits is in the hands of the owner then.
    pub fn capacity(&self, now: Instant) -> usize {
        if self.is_paced(now) { 0 } else { self.window_capacity() }
    }

    /// Whether what it could send waits for its turn by pacing.
    pub fn is_paced(&self, now: Instant) -> bool {
        self.send.pace.budget(now).is_err()
    }

    /// [`Connection::capacity`] as it is where nothing waits for its turn by pacing.
    pub fn window_capacity(&self) -> usize {
        let open = matches!(self.state, State::Established | State::CloseWait);
        if !open || self.send.finish != Finish::Open || self.send.timeouts > 0 {
            return 0;
        }
        let congestion = match self.send.recovery.doubt().room() {
            // Before what was lost is sent again (RFC 5682, section 2.1, step 2b).
            Some(room) => self.congestion_room().min(room),
            None => self.congestion_room().saturating_sub(self.send.flight.lost()),
        };
        let room = congestion.min(self.window_room());
        let room = room.saturating_sub(self.send.unsent());
        if self.is_worth_a_segment(room) { room as usize } else { 0 }
    }

    /// Returns the payload length for the rate: what leaves in about a millisecond, at least two segments and at most
    /// [`Config::max_super_segment`]. Longer records are sent, in longer bursts.
    pub fn quantum(&self) -> u16 {
        let longest = self.config.max_super_segment;
        self.send.pace.quantum().map_or(longest, |bytes| u16::try_from(bytes).unwrap_or(u16::MAX))
    }

    /// Queues a record behind the others and returns the stream offset of its first byte. The queue itself
    /// has no limit: the caller asks [`Connection::capacity`] or keeps its own. After [`Connection::finish`], and on
    /// a connection that is over, the record is dropped.
    pub fn send(&mut self, record: Record) -> u64 {
        self.queue(record, None)
    }

    /// The same for options that acknowledge something above TCP, and stand for what had arrived when they were made. Segments that
    /// carry them for the first time acknowledge no more than that in TCP, so that the two do not contradict each other: what TCP
    /// acknowledges at once, and the options later, looks like bytes that were delivered and are worth nothing.
    pub fn send_dated(&mut self, record: Record) -> u64 {
        let ack = self.receive.to_acknowledge();
        self.queue(record, Some(ack))
    }

    fn queue(&mut self, record: Record, ack: Option<u64>) -> u64 {
        if self.send.finish != Finish::Open || self.state == State::Closed {
            return self.send.queue.end();
        }
        self.send.queue.push(record, ack)
    }

    /// Bytes queued and not yet sent for the first time.
    pub fn unsent(&self) -> usize {
        self.send.unsent() as usize
    }

    /// Stream offset that the next record will get.
    pub fn next_offset(&self) -> u64 {
        self.send.queue.end()
    }

    /// Offset of the first byte that the peer has not acknowledged.
    pub fn acked_offset(&self) -> u64 {
        self.send.una.clamp(1, self.send.queue.end())
    }

    /// No more records: a FIN follows the last.
    pub fn finish(&mut self) {
        if self.send.finish == Finish::Open {
            self.send.finish = Finish::Wanted;
        }
    }

    /// Ends the connection at once: a RST goes out (with options of kind [`SegmentKind::Reset`]).
    pub fn abort(&mut self) {
        let _span = log::enter(&self.tuple);
        match self.state {
            State::Closed => return,
            State::SynSent | State::TimeWait => {}
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.reset = Some((self.send.seq(self.send.next), true)),
        }
        self.close(Closed::Aborted);
    }

    /// The owner no longer reads or waits, though the peer may not have finished: once our FIN is acknowledged,
    /// the connection lasts no longer than [`Config::time_wait`]. Data that still comes is acknowledged and
    /// can be ignored; an owner that wants to refuse it calls [`Connection::abort`].
    pub fn orphan(&mut self, now: Instant) {
        self.orphaned = true;
        if self.state == State::FinWait2 {
            self.timers.start(Timer::TimeWait, now + self.config.time_wait);
        }
    }

    /// The next bytes in order, if any.
    pub fn read(&mut self) -> Option<Chunk> {
        self.receive.queue.read()
    }

    /// The window to advertise from now on, in bytes. It need not follow this connection's own bytes (several
    /// connections may share one buffer) and may shrink: what arrives within the largest window ever offered
    /// is still taken. An update is sent when it opens by two segments, and by more than the peer has left of
    /// it (RFC 9293, section 3.8.6.2.2). At first it is [`Config::max_receive_window`], which is also the most
    /// it can be. `true` if there is an update to send.
    pub fn set_receive_window(&mut self, bytes: u32) -> bool {
        self.receive.window.resize(bytes);
        let receiving = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        let is_update =
            receiving && self.receive.window.wants_update(self.receive.next(), self.send.path.link_mss());
        if is_update {
            self.receive.acks.want(Urgency::Now);
        }
        is_update
    }

    /// The smoothed round trip from an acknowledgment of ours to the data that it let the peer send, to a millisecond.
    /// Without timestamps, and where no data has come for so long, that from our data to its acknowledgment. It is longer
    /// than the path's by what waits in queues; time in which the peer had nothing to send does not count.
    pub fn receive_round_trip(&self, now: Instant) -> Option<Duration> {
        self.receive.round_trip.current(now).or_else(|| self.send.rtt.smoothed())
    }

    /// A segment without payload is to go out at the next [`Connection::poll_transmit`] (to carry options).
    pub fn request_ack(&mut self) {
        self.receive.acks.want(Urgency::Alone);
    }

    /// Asks for an acknowledgment of the peer, by a segment like that of a keep-alive, which it must answer (RFC 9293,
    /// section 3.8.4).
    pub fn probe(&mut self) {
        self.ack_probe = AckProbe::Due;
    }

    /// The path works again, by evidence that TCP does not have: what waits for a timeout that has grown in an outage is sent at once, at
    /// most once a second.
    pub fn retry(&mut self, now: Instant) {
        const LEAST: Duration = Duration::from_secs(1);
        let waits = self.send.timeouts > 1 && !self.send.flight.is_empty();
        if waits && now.saturating_since(self.send.rto_from) >= LEAST {
            self.timers.set(Timer::Retransmit, now);
        }
    }

    /// What arrived from the stream offset `from` on is not acknowledged before [`Connection::release_ack`], though no longer than
    /// [`Config::delayed_ack`]: there will be more to say. While bytes are missing all is, so that SACK blocks can be understood.
    pub fn hold_ack(&mut self, now: Instant, from: u64) {
        self.receive.held = Some(self.receive.held.map_or(from, |held| held.min(from)));
        self.receive.acks.hold();
        self.timers.start(Timer::DelayedAck, now + self.config.delayed_ack);
    }

    /// There is something to say, about what arrived below `until` or, without it, about all: with data if there is some, or
    /// else alone.
    pub fn release_ack(&mut self, until: Option<u64>) {
        self.receive.held = until.filter(|_| self.receive.held.is_some());
        self.receive.acks.want(Urgency::Now);
    }

    /// Whether bytes are missing before others that have arrived: there is something for SACK to say.
    pub fn has_gaps(&self) -> bool {
        self.receive.queue.has_gaps()
    }

    /// Returns the memory for bytes that wait behind gaps and for the scoreboard of bytes in flight. Sent bytes are not included: the owner
    /// keeps them.
    pub fn memory(&self) -> u64 {
        self.receive.queue.held() + self.send.flight.memory() as u64
    }

    /// Whether no bytes are missing before those of `segment`.
    pub fn is_in_order(&self, segment: &Segment) -> bool {
        !segment.seq.is_after(self.receive.irs + self.receive.next() as u32)
    }

    /// State.
    pub fn state(&self) -> State {
        self.state
    }

    /// The two addresses.
    pub fn tuple(&self) -> FourTuple {
        self.tuple
    }

    /// Payload bytes of a full segment that carries `options` bytes of opaque options.
    pub fn segment_payload(&self, options: usize) -> u16 {
        let options = options.min(MAX_OPTIONS - self.stamp_len()) + self.stamp_len();
        self.send.mss() - options as u16
    }

    /// Returns the time of the last progress (new data acknowledged, or nothing in flight).
    pub fn last_progress(&self) -> Instant {
        self.send.progress_at
    }

    /// The last sample of the round trip.
    pub fn latest_round_trip(&self) -> Option<Duration> {
        self.send.rtt.latest()
    }

    /// Congestion control.
    pub fn congestion(&self) -> &Controller {
        &self.send.congestion
    }

    /// Tells a coupled controller about its siblings.
    pub fn set_coupling(&mut self, coupling: Option<Coupling>) {
        self.send.congestion.set_coupling(coupling);
    }

    /// Whether `syn`, for the same four-tuple, may open a new connection in the place of this one: in
    /// TIME-WAIT, if its timestamp or its sequence number lies beyond all that this one has seen (RFC 6191;
    /// RFC 9293, section 3.6.1).
    pub fn gives_way_to(&self, syn: &Segment) -> bool {
        if self.state != State::TimeWait {
            return false;
        }
        let offered = SynOptions::parse(&syn.options).timestamps;
        match (&self.timestamps, offered) {
            (Some(clock), Some(stamp)) if stamp.value != clock.latest() => clock.precedes(stamp.value),
            (Some(_) | None, _) => syn.seq.is_after(self.receive.irs + self.receive.next() as u32),
        }
    }

    /// Bytes of the timestamps option on every segment after the handshake.
    pub(crate) fn stamp_len(&self) -> usize {
        if self.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 }
    }

    /// Reports `event`; what a later report of the same kind makes pointless is reported once.
    pub(crate) fn report(&mut self, event: Event) {
        let repeats = |old: &&mut Event| match (event, &**old) {
            (Event::Acked { .. }, Event::Acked { .. }) | (Event::Readable, Event::Readable) => true,
            (
                Event::Established
                | Event::Readable
                | Event::Acked { .. }
                | Event::Finished
                | Event::MssChanged { .. }
                | Event::Closed(_),
                _,
            ) => false,
        };
        match self.events.iter_mut().find(repeats) {
            Some(old) => *old = event,
            None => self.events.push_back(event),
        }
    }
}
