//! The driver: TUN device, sockets of UDP, and event loop around the core.
//!
//! A [`Host`] is the stack on this machine. TCP or UDP carries its segments ([`Carriers`]). For TCP it has a TUN device and, for each path,
//! a private address that the kernel routes to the path's device and translates there. [`Host::start`] sets that up, which needs
//! privileges, and dropping the host removes it. For UDP it has sockets, which need no privilege. [`Host::connect`] and [`Listener::accept`]
//! return [`Connection`]s: buffers that the driver and an application share. An application polls them; the driver wakes its tasks. This
//! crate knows no runtime. The crate `plait` makes streams of them.
//!
//! ```no_run
//! use std::future::poll_fn;
//!
//! use plait_host::{Config, Host, HostSettings, PathRule};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let paths = vec![PathRule::new("eth0")?, "wlan0=backup".parse()?];
//! let host = Host::start(HostSettings { paths, ..HostSettings::default() })?;
//!
//! let connection = host.connect(Config::default(), &["203.0.113.7:80".parse()?])?;
//! connection.opened().await?;
//! let question = bytes::Bytes::from_static(b"GET / HTTP/1.0\r\n\r\n");
//! let taken = poll_fn(|context| connection.poll_write(context, |room| question.slice(..room.min(question.len())))).await?;
//! assert_eq!(taken, question.len());
//! connection.finish();
//! println!("{:?}", poll_fn(|context| connection.poll_read(context)).await?);
//!
//! drop(connection);
//! host.drained().await;
//! # Ok(())
//! # }
//! ```
//!
//! The features `tcp` and `udp` are the carriers that a build has, at least one. With `tracing` the host writes its log.
//!
//! A host has three threads: the driver, which moves packets; the network monitor, which follows links, addresses and routes; and, while a
//! capture is written, its writer. [`HostSettings::crypto_threads`] adds others that seal and open blocks. Connections are in the endpoint
//! behind one lock, which is held for the protocol's work alone.

#![allow(clippy::disallowed_methods, reason = "this crate is where time, threads and randomness come from")]
// The build with everything is checked for both.
#![cfg_attr(
    not(all(feature = "tcp", feature = "udp", target_os = "linux")),
    allow(dead_code, reason = "some functions have one carrier as their only user")
)]
#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "some values are only logged"))]

#[cfg(not(any(feature = "tcp", feature = "udp")))]
compile_error!(
    "plait carries segments over TCP or UDP: turn on the feature `tcp`, the feature `udp`, or both"
);

mod attendance;
mod batch;
mod capture;
mod carrier;
mod carriers;
mod clock;
mod connection;
mod control;
mod driver;
mod error;
mod failure;
mod flow;
mod handover;
mod host;
mod listener;
mod log;
#[cfg(all(test, feature = "models"))]
mod models;
mod network_monitor;
mod networks;
mod os_random;
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod over_tun;
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
#[path = "without_tcp.rs"]
mod over_tun;
mod own_mark;
mod path;
mod path_obstacle;
mod path_rule;
mod pool;
mod pulse;
mod ranges;
mod refusals;
mod segmentation;
mod selection;
mod shared;
mod shared_networks;
mod stack_address;
mod sync;
mod sys;
#[cfg(feature = "udp")]
mod udp;
#[cfg(not(feature = "udp"))]
#[path = "without_udp.rs"]
mod udp;
mod wake;
mod workers;

pub use carriers::{CarrierKind, Carriers, PathCarriers};
pub use connection::Connection;
pub use control::PathControl;
pub use error::Error;
pub use failure::{FailedAttempt, Failure};
pub use flow::Flow;
pub use host::{Host, HostSettings};
pub use listener::Listener;
pub use os_random::OsRandom;
#[cfg(target_os = "linux")]
pub use own_mark::put_mark;
pub use own_mark::{mark_sockets, own_mark};
pub use path_obstacle::PathObstacle;
pub use path_rule::PathRule;
pub use plait_base::{NetworkId, PathId};
pub use plait_carrier::MalformedCounts;
pub use plait_endpoint::{Counters, EndpointConfig};
pub use plait_mptcp::Counters as StatusCounters;
pub use plait_mptcp::{
    AttemptOutcome, AttemptStage, AttemptStatus, Config, ConnectionError, Fallback, Joins, Negotiated, Path,
    PathClass, PathReport, PeerIdentity, PlainReason, Protect, Refusal, RefusalReason, Scheduler,
    ScrambleSettings, ScrambleStart, ScrambleStatus, SealedSettings, SealedStatus, Seen, Status,
    SubflowStatus, TrustedPaths, Unscrambled, WithoutTrusted,
};
pub use plait_mptcp::{Capability, Datagram, DatagramRefused, DatagramStatus, FlowError, PathChoice};
pub use plait_tcp::congestion::Algorithm as CongestionControl;
pub use plait_tcp::{Closed, Ecn, PeerSyn};
pub use pool::{Buffer, Pool};
pub use pulse::Pulse;
pub use ranges::Ranges;
pub use shared_networks::{CommonPoint, Junction, SharedNetwork};
pub use stack_address::device_address;
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub use sys::remove_leftovers;
pub use sys::{
    LOOPBACK, default_devices, device_with, is_clock_synchronized, path_obstacles, present, shared_networks,
};
