//! A server with a key that it keeps, for the clients that it knows.
//!
//! ```console
//! # cargo run --example sealed_server -- 7443 /etc/example/key SHA256:… SHA256:…
//! ```
//!
//! It greets each client by its key and ends on Ctrl-C, when all connections have ended.

#![allow(clippy::disallowed_methods, reason = "a program has arguments, time and files")]

use plait::{Clients, Error, Host, Identity, Peer, Service, Stream};
use tokio::io::AsyncWriteExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, key, clients @ ..] = &arguments[..] else {
        return Err("usage: sealed_server PORT KEYFILE [FINGERPRINT]…".into());
    };
    // Made the first time; from then on clients can pin it.
    let (identity, _) = Identity::load_or_create(key)?;
    let clients = match clients {
        [] => Clients::anyone(),
        keys => Clients::known(keys.iter().map(|key| key.parse()).collect::<Result<Vec<_>, _>>()?),
    };

    let host = Host::builder().start()?;
    let listener = host.listen(port.parse()?, Service::sealed(&identity, clients)).await?;
    println!("our key is {}", identity.fingerprint());
    loop {
        tokio::select! {
            stream = listener.accept() => {
                tokio::spawn(greet(stream?));
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    drop(listener);
    host.close().await;
    Ok(())
}

async fn greet(mut stream: Stream) -> Result<(), Error> {
    let greeting = match stream.peer_identity() {
        Peer::Key(key) => format!("hello, {key}\n"),
        _ => "hello, client without a key\n".to_owned(),
    };
    stream.write_all(greeting.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(stream.closed().await?)
}
