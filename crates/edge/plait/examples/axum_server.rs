//! A web service over sealed connections, with axum: any framework that accepts connections of tokio works like this.
//!
//! ```console
//! # cargo run --example axum_server -- 7080
//! ```
//!
//! It names its key, and ends on Ctrl-C when the requests under way are answered. `hyper_client` asks it.

#![allow(clippy::disallowed_methods, reason = "a program has arguments and writes")]

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use axum::serve::Listener;
use plait::{Clients, Host, Identity, Service, Stream};

/// A listener of plait, to axum.
struct Incoming(plait::Listener);

impl Listener for Incoming {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        match self.0.accept().await {
            Ok(stream) => {
                let from = stream.peer_addr();
                (stream, from)
            }
            // The host has ended: there is nothing more to accept.
            Err(_) => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addrs().first().copied().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port] = &arguments[..] else {
        return Err("usage: axum_server PORT".into());
    };
    let identity = Identity::generate()?;
    let host = Host::builder().start()?;
    let listener = host.listen(port.parse()?, Service::sealed(&identity, Clients::anyone())).await?;
    println!("our key is {}", identity.fingerprint());

    let greeting = |Path(name): Path<String>| async move { format!("hello, {name}\n") };
    let service = Router::new().route("/hello/{name}", get(greeting));
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(Incoming(listener), service).with_graceful_shutdown(interrupted).await?;
    host.close().await;
    Ok(())
}
