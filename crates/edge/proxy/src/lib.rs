//! Connections of unmodified programs, carried over protected streams.
//!
//! A client sends its destination in the first flight of a protected stream ([`request`], in the messages of [`convert`]). The server
//! waits for it ([`asked`]), checks its [`rules`] and joins the stream with a connection of its own ([`serve`](serve::serve), [`destination`], [`relay`]). Programs
//! connect by SOCKS5 ([`socks`]), by HTTP ([`http`]), or from a private network namespace. Their datagrams go in [`flows`]. The files of [`keys`] hold the identities, and [`clients`] the
//! allowed clients; a [`url::ServerUrl`] names a server.

// The operating-system side: it uses time, threads and sockets.
#![allow(clippy::disallowed_methods)]

pub mod asked;
pub mod client;
pub mod clients;
pub mod convert;
mod copying;
pub mod destination;
pub mod direct;
pub mod dns;
mod dns_cache;
pub mod flows;
pub mod http;
pub mod http_server;
pub mod introduction;
pub mod keys;
mod look_up;
pub mod names;
pub mod nameservers;
mod outlet;
#[cfg(target_os = "linux")]
pub mod passed;
pub mod prefix;
pub mod reached;
pub mod relay;
pub mod remote;
pub mod request;
pub mod rules;
#[cfg(target_os = "linux")]
pub mod run;
pub mod serve;
pub mod services;
mod shared;
pub mod silence;
pub mod socket;
pub mod socks;
pub mod socks_server;
pub mod target;
pub mod url;
