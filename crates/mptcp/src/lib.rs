//! A Multipath TCP connection (RFC 8684, version 1) above its subflows.
//!
//! A [`Connection`] owns its subflows and the two streams of data sequence numbers. Like everything in the
//! core it takes segments and moments in and hands segments, deadlines and events out. What it needs from
//! the host it lives on (paths, ports, randomness) comes in as a [`Host`].
//!
//! The application's bytes are cut into *blocks* at the moment a subflow can take them; one block is one DSS
//! mapping is one record of a subflow. Blocks are reference counted: retransmission is the subflow's,
//! reinjection on another subflow is ours, and neither copies.

mod config;
mod connection;
mod event;
mod path;
mod status;

pub use config::{Config, Fallback, Scheduler};
pub use connection::{Connection, Host, Refused};
pub use event::{ConnectionError, Event, ReadError};
pub use path::{Path, PathClass, Paths};
pub use status::{Negotiated, PlainReason, Status, SubflowStatus};
