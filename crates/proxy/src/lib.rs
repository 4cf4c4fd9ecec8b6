//! Unmodified programs in, protected connections out.
//!
//! A client asks in the first flight of a protected stream where it wants to go ([`request`], in the messages
//! of [`convert`]); the server looks at its [`rules`] and joins the stream with a connection of its own
//! ([`serve`](serve::serve), [`destination`], [`relay`]). Programs come in by SOCKS5 ([`socks`]) or from a private network namespace. Who is
//! who is in the files of [`keys`], and who may come in, [`clients`]; a server is named by a [`url::ServerUrl`].

// The operating-system side: time, threads and sockets are its business.
#![allow(clippy::disallowed_methods)]

pub mod client;
pub mod clients;
pub mod convert;
mod copying;
pub mod destination;
pub mod dns;
mod dns_cache;
pub mod keys;
pub mod relay;
pub mod request;
pub mod rules;
#[cfg(target_os = "linux")]
pub mod run;
pub mod serve;
pub mod socks;
pub mod socks_server;
pub mod url;
