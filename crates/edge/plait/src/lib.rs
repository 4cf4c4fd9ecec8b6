//! Connections over several network paths that no single path can read or break.
//!
//! This is Multipath TCP (RFC 8684) in user space, with tokio streams on top. A [`Host`] has paths, which are network devices of
//! this machine. A [`Stream`] is one connection over all of them: it survives the loss of any path while another works. Its bytes
//! are encrypted and authenticated block by block, so an attacker on a path can only break that path.
//!
//! # Sealed by default
//!
//! To open a connection, name the expected server by a [`Trust`]: one of some keys, a name vouched for by a certificate
//! authority, the key seen the first time, or any key. To accept connections, give an identity and the allowed clients by a
//! [`Service`]. A connection opened with a [`Trust`] is sealed, or it fails. It never becomes plain TCP, whatever happens on the
//! path. Plain connections, as the Linux kernel supports them, are [`Protection::plain`] and [`Service::plain`].
//!
//! ```no_run
//! use plait::{Host, Trust};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::builder().path("eth0".parse()?).path("wlan0=backup".parse()?).start()?;
//!
//! let server = Trust::pinned("SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU".parse()?);
//! let mut stream = host.connect("gw.example.com:7443", server).await?;
//! stream.write_all(b"hello").await?;
//! stream.shutdown().await?;
//! let mut answer = Vec::new();
//! stream.read_to_end(&mut answer).await?;
//!
//! host.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A call without a [`Trust`] does not compile:
//!
//! ```compile_fail
//! # async fn example(host: plait::Host) {
//! let stream = host.connect("gw.example.com:7443").await;
//! # }
//! ```
//!
//! A [`Service`] does not open connections either:
//!
//! ```compile_fail
//! # async fn example(host: plait::Host) {
//! let stream = host.connect("gw.example.com:7443", plait::Service::plain()).await;
//! # }
//! ```
//!
//! # Requirements
//!
//! Linux. Carrying segments over TCP also needs root or CAP_NET_ADMIN: [`HostBuilder::start`] creates a TUN device, routes and
//! address translation, and dropping the [`Host`] removes them. Two hosts of one machine do not reach each other over TCP.
//! Carrying them over UDP ([`Carriers::Udp`]) needs sockets only: any user can do it, and two hosts of one machine reach each
//! other.
//!
//! # Features
//!
//! - `tcp` and `udp`, both on by default: the carriers of a build, which has at least one. A carrier that is not built in and is asked for
//!   by name is an error ([`ErrorKind::Unsupported`]); [`Carriers::Auto`] uses those that the build has.
//! - `tracing`: the log, with warnings of what this machine does to connections, through the crate of that name. On by default.
//! - `serde`: figures of connections and hosts can be serialized.
//! - `dnssec`: keys of unknown servers that their DNS zones publish and DNSSEC proves.
//!
//! # Cancel safety
//!
//! Each future of this crate may be dropped before it is ready, as `tokio::select!` does. No byte is lost or sent twice by that, and no
//! connection is lost; each async method says what becomes of its work.
//!
//! # Examples
//!
//! `examples/` has whole programs: `echo`, `http_get` (plain, to any web server), `sealed_server` (for listed clients),
//! `datagram_echo` (over two paths), `pinned_and_ca`, `path_control`, `hyper_client`, `axum_server` and `send_file` (with its progress).

#![allow(clippy::disallowed_methods, reason = "keys are in files, and names are looked up")]

mod attempt;
mod both;
mod certificate;
mod check;
mod choice;
mod clients;
mod connecting;
mod counters;
mod datagrams;
#[cfg(feature = "dnssec")]
mod dnssec;
#[cfg(not(feature = "dnssec"))]
#[path = "without_dnssec.rs"]
mod dnssec;
mod error;
mod halves;
#[cfg(target_os = "linux")]
mod handover;
mod host;
mod identity;
mod limits;
mod listener;
mod names;
mod networks;
mod path;
mod path_totals;
mod processor;
mod protection;
mod remote;
mod scrambling;
mod sealing;
mod service;
mod status;
mod stream;
mod subflow;
mod trust;

pub use crate::host::{Host, HostBuilder};
pub use ::plait_host::{
    CarrierKind as Carrier, Carriers, CongestionControl, LOOPBACK, PathChoice, PathObstacle, Pulse,
    Scheduler, is_clock_synchronized, mark_sockets, own_mark,
};
pub use attempt::{Attempt, Obstacle};
pub use both::Both;
pub use certificate::SharedCertificate;
pub use check::{Change, Check, Direction, Interference, Measured, Message, Rebinding, Verdict, WayReport};
pub use choice::CarrierChoice;
pub use clients::{Applicant, Clients, Refusal};
pub use connecting::ConnectOptions;
pub use counters::{ConnectionCounters, HostState, HostTotals};
pub use datagrams::{DatagramTotals, Datagrams, DatagramsOnPath, Flow};
#[cfg(feature = "dnssec")]
pub use dnssec::{DnssecAnchors, DnssecAnchorsError};
pub use error::{Error, ErrorKind};
pub use halves::{ReadHalf, WriteHalf};
pub use identity::{Identity, Origin};
pub use limits::Limits;
pub use listener::Listener;
pub use names::Names;
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub use networks::remove_leftovers;
pub use networks::{SharedAddress, SharedNetwork, path_obstacles, shared_networks};
pub use path::{Path, PathControl, PathState, TrustLevel};
pub use path_totals::PathTotals;
pub use plait_handshake::{
    Certificate, Fingerprint, IdentityError, ParseFingerprintError, PemError, PublicKey, Validity,
};
pub use plait_keys::{
    ForeignFile, IdentityFileError, KnownPeer, KnownPeers, KnownPeersError, NameBasis, OpenKeyLogError,
    Pinned, ReadListError, ReadSecretError, Shown, read_secret,
};
pub use protection::{Ecn, Protection};
pub use remote::Remote;
pub use scrambling::{ScrambleStart, Scrambling, WithoutTrusted};
pub use sealing::{CipherSuite, Handshake, KeyLog, Sealing};
pub use service::{SealedService, Service};
pub use status::{Monitor, Negotiated, Peer, PlainReason, ScrambleStatus, SealStatus, Status, TrustedPaths};
pub use stream::Stream;
pub use subflow::{Subflow, SynOptions};
pub use trust::Trust;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_shared<T: Clone + Send + Sync + 'static>() {}
    fn is_sent<T: Send + Sync + 'static>() {}
    fn future_is_sent<T: Send>(_: T) {}

    #[test]
    fn the_types_go_between_threads() {
        is_shared::<Host>();
        is_shared::<HostBuilder>();
        is_shared::<Monitor>();
        is_shared::<PathControl>();
        is_shared::<Identity>();
        is_shared::<Trust>();
        is_shared::<Protection>();
        is_shared::<Service>();
        is_shared::<Status>();
        is_sent::<Stream>();
        is_sent::<ReadHalf>();
        is_sent::<WriteHalf>();
        is_sent::<Listener>();
        is_sent::<Error>();
        let _ = |host: &Host, trust: Trust| future_is_sent(host.connect("gw:7443", trust));
        let _ = |listener: &Listener| future_is_sent(listener.accept());
        let _ = |stream: &mut Stream| future_is_sent(stream.read_chunk());
        let _ = |host: Host| future_is_sent(host.close());
    }
}
