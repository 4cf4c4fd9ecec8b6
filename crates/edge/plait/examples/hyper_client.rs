//! Fetches a page over a sealed connection, with hyper.
//!
//! ```console
//! # cargo run --example hyper_client -- gw.example.com:7080 SHA256:… /hello/NAME
//! ```

#![allow(clippy::disallowed_methods, reason = "a program has arguments and writes")]

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::rt::TokioIo;
use plait::{Host, Trust};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, key, path] = &arguments[..] else {
        return Err("usage: hyper_client HOST:PORT FINGERPRINT PATH".into());
    };
    let host = Host::builder().start()?;
    let stream = host.connect(&server[..], Trust::pinned(key.parse()?)).await?;

    // To hyper, a stream is any connection of tokio.
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header("host", server).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    eprintln!("{}", answer.status());
    print!("{}", String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()));
    drop(sender);
    connection.await??;
    host.close().await;
    Ok(())
}
