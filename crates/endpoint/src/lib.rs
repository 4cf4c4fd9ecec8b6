//! Many connections on one host.
//!
//! The endpoint knows which connection a packet belongs to, who listens, who may open how much, and which of
//! its connections have something to send. It is the whole of the core as a driver sees it: packets and
//! moments in, packets, deadlines and events out.
//!
//! A connection lives through stages: *half open* while somebody opens it to us, *waiting* until it is
//! accepted, *held* by an application, and *orphan* when the application has let go of it and it still has
//! to deliver what was written. Strangers can only make the first two, and both are limited ([`EndpointConfig`]);
//! beyond the limits SYNs are answered without keeping anything.

mod claims;
mod cookies;
mod counters;
mod demux;
mod dispatch;
mod endpoint;
mod entry;
mod half_open;
mod join_budget;
mod lifecycle;
mod limits;
mod listener;
mod log;
mod memory;
mod notices;
mod offer;
mod pending_joins;
mod places;
mod ports;
mod prefix;
mod ready;
mod reset;
mod stateless;
mod surroundings;
mod time_wait;
mod transmit;
mod waiting_room;
mod way_memory;

pub use counters::Counters;
pub use endpoint::{Arrival, ConnectError, ConnectionId, Endpoint, ListenError, ListenerId, Transmit};
pub use limits::EndpointConfig;
pub use notices::{Event, Unsealed};
