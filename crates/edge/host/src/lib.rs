//! The driver: TUN device, sockets of UDP, event loop, and tokio sockets on top of the core.
//!
//! A [`Host`] is the stack on this machine. TCP or UDP carries its segments ([`Carriers`]). For TCP it has a TUN device and, for each path,
//! a private address that the kernel routes to the path's device and translates there. [`HostBuilder::start`] sets that up, which needs
//! privileges, and dropping the host removes it. For UDP it has sockets, which need no privilege. [`Host::connect`] and [`Host::listen`]
//! give [`Stream`]s, which are read and written like any tokio socket.
//!
//! ```no_run
//! use plait_host::{Host, PathRule};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::builder().path(PathRule::new("eth0")?).path("wlan0=backup".parse()?).start()?;
//!
//! let mut stream = host.connect(&["203.0.113.7:80".parse()?]).await?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
//! stream.shutdown().await?;
//! let mut answer = Vec::new();
//! stream.read_to_end(&mut answer).await?;
//! println!("{:?}", stream.status().map(|status| status.negotiated));
//!
//! drop(stream);
//! host.drained().await;
//! # Ok(())
//! # }
//! ```
//!
//! The features `tcp` and `udp` are the carriers that a build has, at least one. With `tracing` the host writes its log.
//!
//! A host has three threads: the driver, which moves packets; the network monitor, which follows links, addresses and routes; and, while a
//! capture is written, its writer. [`HostBuilder::crypto_threads`] adds others that seal and open blocks. Connections are in the endpoint
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
mod control;
mod driver;
mod error;
mod failure;
mod host;
mod listener;
mod log;
mod network_monitor;
mod networks;
mod os_random;
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod over_tun;
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
#[path = "without_tcp.rs"]
mod over_tun;
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
mod stream;
mod sys;
#[cfg(feature = "udp")]
mod udp;
#[cfg(not(feature = "udp"))]
#[path = "without_udp.rs"]
mod udp;
mod wake;
mod workers;

pub use carriers::{CarrierKind, Carriers, PathCarriers};
pub use control::PathControl;
pub use error::Error;
pub use failure::{FailedAttempt, Failure};
pub use host::{Host, HostBuilder};
pub use listener::Listener;
pub use os_random::OsRandom;
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
pub use plait_tcp::congestion::Algorithm as CongestionControl;
pub use plait_tcp::{Closed, Ecn, PeerSyn};
pub use pool::{Buffer, Pool};
pub use pulse::Pulse;
pub use ranges::Ranges;
pub use shared_networks::{CommonPoint, Junction, SharedNetwork};
pub use stack_address::device_address;
pub use stream::{AbortOnDrop, Monitor, ReadHalf, Stream, WriteHalf};
pub use sys::{
    LOOPBACK, default_devices, device_with, is_clock_synchronized, path_obstacles, present, shared_networks,
};
