//! Fetches a page from any web server, over all paths if it supports Multipath TCP. The connection is plain, as `http:` is:
//! each host on the path can read it.
//!
//! ```console
//! # cargo run --example http_get -- www.example.com /index.html eth0 wlan0
//! ```

#![allow(clippy::disallowed_methods, reason = "a program has arguments, time and files")]

use plait::{Host, Protection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, page, devices @ ..] = &arguments[..] else {
        return Err("usage: http_get HOST PAGE [DEVICE]…".into());
    };
    let mut builder = Host::builder();
    for device in devices {
        builder = builder.path(device.parse()?);
    }
    let host = builder.start()?;

    // Whatever is weaker than sealed has to be called by its name.
    let mut stream = host.connect((&server[..], 80), Protection::plain()).await?;
    let request = format!("GET {page} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    tokio::io::stdout().write_all(&answer).await?;

    let status = stream.monitor().status().ok_or("the host is gone")?;
    let kind = if status.is_multipath() { "Multipath TCP" } else { "plain TCP" };
    eprintln!("{} bytes by {kind} in {:?}", answer.len(), status.age());
    for subflow in status.subflows() {
        eprintln!(
            "{:>12} bytes over {} to {}",
            subflow.bytes_received(),
            subflow.device(),
            subflow.peer_addr()
        );
    }
    drop(stream);
    host.close().await;
    Ok(())
}
