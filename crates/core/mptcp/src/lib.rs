//! A Multipath TCP connection (RFC 8684, version 1) above its subflows.
//!
//! A [`Connection`] owns its subflows and the two streams of data sequence numbers. Like all of the core it takes segments and moments as
//! input, and returns segments, deadlines and events. It gets paths, ports and randomness from its [`Host`].
//!
//! The application's bytes are cut into *blocks* when a subflow can take them. One block is one DSS mapping and one record of a subflow.
//! Blocks are reference counted. The subflow retransmits, the connection reinjects on another subflow, and neither copies.

mod buffer_pool;
mod closing;
mod config;
mod connection;
mod data_space;
mod datagrams;
mod event;
mod host;
mod log;
mod memory;
mod opening;
mod paths;
mod protection;
mod receive;
mod role;
mod scheduler;
mod send;
mod status;
mod subflows;
mod timers;

pub use config::{Config, Fallback, Protect, Ratchet, ScrambleSettings, SealedSettings, WithoutTrusted};
pub use connection::Connection;
pub use datagrams::{Datagram, DatagramRefused, FlowEnded, FlowError, FlowId, FlowNews, PathChoice};
pub use event::{ConnectionError, Event, ReadError, Unscrambled};
pub use host::{Host, OpeningClaim, OpeningName, Refused, SMALLEST_SHARE};
pub use memory::Memory;
pub use opening::{ActiveOpen, Association};
pub use paths::{Joins, Path, PathClass, Paths, TrustedPaths};
pub use plait_protect::handshake::{Capabilities, Capability, Instance, Introduction, Refusal};
pub use plait_protect::scramble::Variant as ScrambleStart;
pub use plait_protect::sealed::{RefusalReason, Seen};
pub use protection::keys::token_of;
pub use protection::sealed::{CryptoJob, CryptoResult};
pub use scheduler::Scheduler;
pub use status::{
    AttemptOutcome, AttemptStage, AttemptStatus, Counters, Negotiated, PeerIdentity, PlainReason,
};
pub use status::{DatagramCounters, DatagramStatus, DatagramsOnSubflow};
pub use status::{PathReport, PathReports, ScrambleStatus, SealedStatus, Status, SubflowStatus};
