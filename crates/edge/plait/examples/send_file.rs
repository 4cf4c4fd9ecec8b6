//! Sends a file over all paths, and shows how much of it has arrived.
//!
//! ```console
//! # cargo run --example send_file -- receive 7090 copy.iso
//! # cargo run --example send_file -- send gw.example.com:7090 SHA256:… image.iso
//! ```
//!
//! Both end with an error if the file is not complete: the end of a sealed stream is authenticated.

#![allow(clippy::disallowed_methods, reason = "a program has arguments, time and files")]

use std::time::Duration;

use bytes::Bytes;
use plait::{Clients, Host, Identity, Service, Trust};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", port, file] => receive(port.parse()?, file).await,
        ["send", server, key, file] => send(server, key, file).await,
        _ => Err("usage: send_file receive PORT FILE | send_file send HOST:PORT FINGERPRINT FILE".into()),
    }
}

async fn receive(port: u16, file: &str) -> Result<()> {
    let identity = Identity::generate()?;
    let host = Host::builder().start()?;
    let listener = host.listen(port, Service::sealed(&identity, Clients::anyone())).await?;
    println!("our key is {}", identity.fingerprint());
    let mut stream = listener.accept().await?;
    let mut file = File::create(file).await?;
    // Chunks are the memory of the connection: nothing is copied until the file is written.
    while let Some(chunk) = stream.read_chunk().await? {
        file.write_all(&chunk).await?;
    }
    file.sync_all().await?;
    stream.shutdown().await?;
    stream.closed().await?;
    drop(stream);
    host.close().await;
    Ok(())
}

async fn send(server: &str, key: &str, file: &str) -> Result<()> {
    let mut file = File::open(file).await?;
    let size = file.metadata().await?.len();
    let host = Host::builder().start()?;
    let mut stream = host.connect(server, Trust::pinned(key.parse()?)).await?;
    let monitor = stream.monitor();
    let showing = tokio::spawn(async move {
        while let Some(status) = monitor.status() {
            eprintln!("{} of {size} bytes", status.bytes_delivered());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let mut buffer = vec![0; 256 * 1024];
    while let len @ 1.. = file.read(&mut buffer).await? {
        stream.write_chunk(&mut Bytes::copy_from_slice(&buffer[..len])).await?;
    }
    stream.shutdown().await?;
    // Only this proves that the other side has everything.
    stream.closed().await?;
    showing.abort();
    println!("{size} bytes have arrived");
    drop(stream);
    host.close().await;
    Ok(())
}
