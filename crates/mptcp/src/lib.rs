//! A Multipath TCP connection (RFC 8684, version 1) above its subflows.
//!
//! A [`Connection`] owns its subflows and the two streams of data sequence numbers. Like everything in the
//! core it takes segments and moments in and hands segments, deadlines and events out. What it needs from
//! the host it lives on (paths, ports, randomness) comes in as a [`Host`].
//!
//! The application's bytes are cut into *blocks* at the moment a subflow can take them; one block is one DSS
//! mapping is one record of a subflow. Blocks are reference counted: retransmission is the subflow's,
//! reinjection on another subflow is ours, and neither copies.

mod buffer_pool;
mod closing;
mod config;
mod connection;
mod data_space;
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

pub use config::{
    Config, Fallback, Protect, Ratchet, Scheduler, ScrambleSettings, SealedSettings, WithoutTrusted,
};
pub use connection::Connection;
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
pub use status::{
    AttemptOutcome, AttemptStage, AttemptStatus, Counters, Negotiated, PeerIdentity, PlainReason,
};
pub use status::{PathReport, PathReports, ScrambleStatus, SealedStatus, Status, SubflowStatus};
