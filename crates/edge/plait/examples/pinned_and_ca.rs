//! Ways to know a server.
//!
//! ```console
//! # cargo run --example pinned_and_ca -- gw.example.com:7443 pinned SHA256:…
//! # cargo run --example pinned_and_ca -- gw.example.com:7443 ca /etc/ssl/certs/ca-certificates.crt
//! # cargo run --example pinned_and_ca -- gw.example.com:7443 known ~/.config/example/known_peers
//! # cargo run --example pinned_and_ca -- gw.example.com:7443 known-by-one-path ~/.config/example/known_peers
//! # cargo run --example pinned_and_ca -- gw.example.com:7443 anonymous
//! ```

#![allow(clippy::disallowed_methods, reason = "a program has arguments, time and files")]

use plait::{ErrorKind, Host, KnownPeers, Trust};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (server, trust) = match arguments[..] {
        // Its key came to us over a channel that no attacker could change: a mail, a phone call, a QR code.
        [server, "pinned", key] => (server, Trust::pinned(key.parse()?)),
        // A certificate authority vouches for its name.
        [server, "ca", roots] => (server, Trust::authorities(&std::fs::read(roots)?)?),
        // The key holder of the first contact, if two of our paths led to it.
        [server, "known", file] => (server, Trust::known_peers(KnownPeers::in_file(file))),
        // The key holder of the first contact: also an attacker on the only path.
        [server, "known-by-one-path", file] => {
            (server, Trust::known_peers_by_one_path(KnownPeers::in_file(file)))
        }
        // Any server: protects against eavesdroppers only.
        [server, "anonymous"] => (server, Trust::anonymous()),
        _ => {
            let ways = "pinned KEY | ca FILE | known FILE | known-by-one-path FILE | anonymous";
            return Err(format!("usage: pinned_and_ca HOST:PORT {ways}").into());
        }
    };
    let host = Host::builder().start()?;
    match host.connect(server, trust).await {
        Ok(stream) => {
            println!("{} at {} is {:?}", server, stream.peer_addr(), stream.peer_identity());
            drop(stream);
        }
        Err(error) if error.kind() == ErrorKind::NotAuthenticated => {
            println!("another host answers for {server}: {error}");
        }
        Err(error) => return Err(error.into()),
    }
    host.close().await;
    Ok(())
}
