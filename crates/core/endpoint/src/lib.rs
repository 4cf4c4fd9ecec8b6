//! Many connections on one host.
//!
//! The endpoint finds the connection of a packet, keeps the listeners, limits the openings of each source, and selects the connection that
//! sends next. A driver sees the core through it: packets and moments as input; packets, deadlines and events as output.
//!
//! A connection passes through stages: *half open* while a peer opens it, *waiting* until it is accepted, *held* by an application, and
//! *orphan* after the application has released it while written bytes still have to be delivered. Unknown peers can only create the first
//! two, and both are limited ([`EndpointConfig`]). Beyond the limits SYNs are answered without state.

mod absence;
mod claims;
mod cookies;
mod counters;
mod datagrams;
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
