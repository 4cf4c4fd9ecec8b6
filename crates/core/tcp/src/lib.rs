//! One TCP connection (RFC 9293) without I/O, clock or randomness of its own.
//!
//! A [`Connection`] takes segments and moments as input and returns segments, deadlines and events; it never waits. It does not know its
//! owner. The owner passes in *records*: payload with opaque option bytes that go with each segment of it. The connection returns the bytes
//! in order, and the options of every acceptable segment.
//!
//! Positions in the stream are 64-bit offsets relative to the initial sequence number: the SYN is 0 and the first byte of data is 1, as in
//! the subflow sequence numbers of RFC 8684. All code inside uses these offsets. The wrap of the 32-bit numbers is handled in two places
//! only: where a segment arrives and where one leaves.
//!
//! Where to look:
//!
//! - in: `handshake`, then `arrival` (the steps of RFC 9293, section 3.10.7.4), `acknowledgment` for what it says
//!   about our side, `receive_queue` for its data, `closing` for FINs, `network` for ICMP, `ecn` for marks;
//! - out: `transmit` decides what leaves, `compose` writes it, `ack_policy` and `receive_window` say what it tells
//!   the peer;
//! - what is outstanding: `send_queue` holds the bytes, `flight` when each range was sent and what became of it;
//!   `rack`, `tail_probe`, `recovery` and `prr` judge that, `rtt` and `expiry` keep the time, `delivery_rate` measures the
//!   path by it;
//! - how much: `congestion`, `send_window`, `pace`, summed up in `room`.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod ack_policy;
mod acknowledgment;
mod arrival;
mod beside;
mod challenge;
mod closing;
mod compose;
mod config;
mod connection;
mod delivery_rate;
mod earlier_acks;
mod ecn;
mod event;
mod expiry;
mod flight;
mod flow_label;
mod forward;
mod handshake;
mod header_options;
mod isn;
mod log;
mod mtu_probe;
mod network;
mod pace;
mod path_mtu;
mod prr;
mod rack;
mod receive_queue;
mod receive_window;
mod receiver;
mod recovery;
mod room;
mod rtt;
mod send_queue;
mod send_window;
mod sender;
mod stats;
mod tail_probe;
mod timers;
mod timestamps;
mod transmit;
mod tuple;

pub mod congestion;

pub use challenge::{Challenge, ChallengeLimit};
pub use config::{Config, Ecn, KeepAlive};
pub use connection::{Chunk, Connection, Record, SegmentKind, SegmentOptions, State};
pub use event::{Arrival, Closed, Deadline, DropReason, Event, Timer};
pub use handshake::PeerSyn;
pub use isn::{Isn, IsnGenerator};
pub use stats::Stats;
pub use tuple::FourTuple;
