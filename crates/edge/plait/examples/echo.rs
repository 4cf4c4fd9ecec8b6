//! Sends each client its own bytes back, or sends lines to such a server and prints what comes back.
//!
//! ```console
//! server# cargo run --example echo -- 7007                       # prints its key
//! client# cargo run --example echo -- 203.0.113.7:7007 SHA256:…  # reads lines from standard input
//! ```

#![allow(clippy::disallowed_methods, reason = "a program has arguments, time and files")]

use plait::{Clients, Host, Identity, Service, Trust};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Without a path said, those of the default routes.
    let host = Host::builder().start()?;
    match &arguments[..] {
        [port] => serve(&host, port.parse()?).await,
        [server, key] => ask(host, server, key).await,
        _ => Err("usage: echo PORT, or echo HOST:PORT FINGERPRINT".into()),
    }
}

async fn serve(host: &Host, port: u16) -> Result<(), Box<dyn std::error::Error>> {
    let identity = Identity::generate()?;
    let listener = host.listen(port, Service::sealed(&identity, Clients::anyone())).await?;
    println!("our key is {}", identity.fingerprint());
    loop {
        let mut stream = listener.accept().await?;
        tokio::spawn(async move {
            println!("{} has come", stream.peer_addr());
            // Chunks are the connection's own memory: nothing is copied.
            while let Some(mut chunk) = stream.read_chunk().await? {
                stream.write_chunk(&mut chunk).await?;
            }
            stream.shutdown().await?;
            stream.closed().await
        });
    }
}

async fn ask(host: Host, server: &str, key: &str) -> Result<(), Box<dyn std::error::Error>> {
    let stream = host.connect(server, Trust::pinned(key.parse()?)).await?;
    let (read, mut write) = tokio::io::split(stream);
    let mut answers = BufReader::new(read).lines();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        write.write_all(format!("{line}\n").as_bytes()).await?;
        match answers.next_line().await? {
            Some(answer) => println!("{answer}"),
            None => break,
        }
    }
    write.shutdown().await?;
    drop((write, answers));
    host.close().await;
    Ok(())
}
