//! One TCP connection (RFC 9293) as a value that answers questions.
//!
//! A [`Subflow`] takes segments and moments in and hands segments, deadlines and events out; it never
//! waits. It does not know what it is a part of: whoever owns it gives it *records* (payload with opaque
//! option bytes that go with each segment of it) and is given back the bytes in order and the options of
//! every acceptable segment.
//!
//! Positions in the stream are 64-bit offsets relative to the initial sequence number: the SYN is 0, the
//! first byte of data is 1, as in the subflow sequence numbers of RFC 8684.

mod ack_policy;
mod acknowledgment;
mod arrival;
mod challenge;
mod closing;
mod compose;
mod config;
mod event;
mod expiry;
mod flight;
mod handshake;
mod header_options;
mod isn;
mod network;
mod pace;
mod path_mtu;
mod prr;
mod rack;
mod receive_queue;
mod receive_window;
mod recovery;
mod room;
mod rtt;
mod send_queue;
mod send_window;
mod subflow;
mod tail_probe;
mod timers;
mod timestamps;
mod transmit;
mod tuple;

pub mod congestion;

pub use config::{Config, KeepAlive};
pub use event::{Arrival, Closed, Deadline, DropReason, Event, Timer};
pub use isn::{Isn, IsnGenerator};
pub use subflow::{Chunk, Record, SegmentKind, SegmentOptions, State, Stats, Subflow};
pub use tuple::FourTuple;
