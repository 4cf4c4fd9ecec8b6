//! Many connections on one host.
//!
//! The endpoint knows which connection a packet belongs to, who listens, who may open how much, and which of
//! its connections have something to send. It is the whole of the core as a driver sees it: packets and
//! moments in, packets, deadlines and events out.

mod endpoint;

pub use endpoint::{
    ConnectError, ConnectionId, Counters, Endpoint, EndpointConfig, Event, ListenError, ListenerId, Transmit,
};
