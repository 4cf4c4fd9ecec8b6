//! The connection itself.

use base::{Duration, Instant};
use bytes::Bytes;
use wire::{IcmpError, OptionBytes, Segment};

use crate::congestion::{Controller, Coupling};
use crate::{Arrival, Config, Deadline, Event, FourTuple, Isn};

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

/// What kind of segment options are asked for.
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

/// Who supplies the opaque options of segments that carry no record.
pub trait SegmentOptions {
    /// Appends at most `room` bytes (a multiple of four) to `out`. Called exactly once for each such segment
    /// that is then really sent.
    fn write(&mut self, kind: SegmentKind, room: usize, out: &mut OptionBytes);
}

/// No options at all: plain TCP.
impl SegmentOptions for () {
    fn write(&mut self, _: SegmentKind, _: usize, _: &mut OptionBytes) {}
}

/// Figures of one connection, for schedulers and for people.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stats {
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Its variation.
    pub rttvar: Duration,
    /// Smallest sample.
    pub min_rtt: Option<Duration>,
    /// Current retransmission timeout, back-off included.
    pub rto: Duration,
    /// Timeouts in a row without progress.
    pub backoff: u8,
    /// Congestion window, bytes.
    pub congestion_window: u32,
    /// Slow start threshold, bytes.
    pub slow_start_threshold: u32,
    /// Bytes in flight (sent, not known to be delivered or lost).
    pub in_flight: u32,
    /// Payload bytes sent for the first time.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retransmitted: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Wire segments sent (a super-segment counts as many).
    pub segments_sent: u64,
    /// Wire segments received.
    pub segments_received: u64,
    /// Wire segments declared lost.
    pub segments_lost: u64,
    /// Reductions that turned out to be mistakes.
    pub spurious_recoveries: u64,
    /// Segments dropped on arrival, all reasons.
    pub segments_dropped: u64,
}

/// One TCP connection.
pub struct Subflow {}

impl Subflow {
    /// Opens actively: the SYN goes out with the next [`Subflow::poll_transmit`].
    pub fn connect(now: Instant, config: Config, tuple: FourTuple, isn: Isn) -> Self {
        let _ = (now, config, tuple, isn);
        unimplemented!()
    }

    /// Opens passively, in answer to `syn` (SYN set, ACK and RST not: the caller has looked).
    pub fn accept(now: Instant, config: Config, syn: &Segment, isn: Isn) -> Self {
        let _ = (now, config, syn, isn);
        unimplemented!()
    }

    /// Takes a segment or super-segment for this four-tuple. `now` is the time of its arrival. In-order data
    /// is then available from [`Subflow::read`]: an owner that needs the segment's options before the data
    /// looks at them in between.
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment) -> Arrival {
        let _ = (now, segment);
        unimplemented!()
    }

    /// Takes an ICMP error that quotes a segment of this connection (RFC 5927: checked against the window).
    pub fn handle_icmp(&mut self, now: Instant, error: &IcmpError) {
        let _ = (now, error);
    }

    /// Runs all timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// The next segment or super-segment to send, if any. Call until `None`.
    pub fn poll_transmit(&mut self, now: Instant, options: &mut impl SegmentOptions) -> Option<Segment> {
        let _ = (now, options);
        unimplemented!()
    }

    /// The earliest deadline.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        unimplemented!()
    }

    /// The next event. Call until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        unimplemented!()
    }

    /// Payload bytes that could leave right now, beyond what [`Subflow::send`] has been given: bounded by
    /// congestion window, the peer's window and pacing; 0 before the handshake is complete, during a timeout
    /// and after [`Subflow::finish`].
    pub fn capacity(&self, now: Instant) -> usize {
        let _ = now;
        unimplemented!()
    }

    /// Queues a record behind the others and returns the stream offset of its first byte. The queue itself
    /// has no limit: the caller asks [`Subflow::capacity`] or keeps its own.
    pub fn send(&mut self, record: Record) -> u64 {
        let _ = record;
        unimplemented!()
    }

    /// Bytes queued and not yet sent for the first time.
    pub fn unsent(&self) -> usize {
        unimplemented!()
    }

    /// Stream offset that the next record will get.
    pub fn next_offset(&self) -> u64 {
        unimplemented!()
    }

    /// Offset of the first byte that the peer has not acknowledged.
    pub fn acked_offset(&self) -> u64 {
        unimplemented!()
    }

    /// No more records: a FIN follows the last.
    pub fn finish(&mut self) {}

    /// Ends the connection at once: a RST goes out (with options of kind [`SegmentKind::Reset`]).
    pub fn abort(&mut self) {}

    /// The next bytes in order, if any.
    pub fn read(&mut self) -> Option<Chunk> {
        unimplemented!()
    }

    /// The window to advertise from now on, in bytes. It need not follow this connection's own bytes (several
    /// connections may share one buffer) and may shrink: what arrives within the largest window ever offered
    /// is still taken. An update is sent when it opens by two segments or half (RFC 9293, section 3.8.6.2.2).
    pub fn set_receive_window(&mut self, bytes: u32) {
        let _ = bytes;
    }

    /// A segment without payload is to go out at the next [`Subflow::poll_transmit`] (to carry options).
    pub fn request_ack(&mut self) {}

    /// State.
    pub fn state(&self) -> State {
        unimplemented!()
    }

    /// The two addresses.
    pub fn tuple(&self) -> FourTuple {
        unimplemented!()
    }

    /// Payload bytes of a full segment that carries `options` bytes of opaque options.
    pub fn segment_payload(&self, options: usize) -> u16 {
        let _ = options;
        unimplemented!()
    }

    /// Where the moment of the last progress (new data acknowledged, or nothing in flight) was.
    pub fn last_progress(&self) -> Instant {
        unimplemented!()
    }

    /// Congestion control.
    pub fn congestion(&self) -> &Controller {
        unimplemented!()
    }

    /// Tells a coupled controller about its siblings.
    pub fn set_coupling(&mut self, coupling: Coupling) {
        let _ = coupling;
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
}
