//! Sends the datagrams of each client back, or sends numbered datagrams over two paths and prints how long each took.
//!
//! ```console
//! server# cargo run --example datagram_echo -- 7007                                  # prints its key
//! client# cargo run --example datagram_echo -- 203.0.113.7:7007 SHA256:… eth0 wlan0
//! ```

#![allow(clippy::disallowed_methods, reason = "a program has arguments and time")]

use std::time::{Duration, Instant};

use plait::{
    Carriers, Clients, Flow, Host, HostBuilder, Identity, PathChoice, SealedService, Sealing, Trust,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Datagrams need sockets only.
    let host = Host::builder().carriers(Carriers::Udp);
    match &arguments[..] {
        [port] => serve(&host.start()?, port.parse()?).await,
        [server, key, paths @ ..] => ask(host, server, key, paths).await,
        [] => Err("usage: datagram_echo PORT, or datagram_echo HOST:PORT FINGERPRINT [PATH…]".into()),
    }
}

async fn serve(host: &Host, port: u16) -> Result<(), Box<dyn std::error::Error>> {
    let identity = Identity::generate()?;
    let service = SealedService::new(&identity, Clients::anyone()).datagrams();
    let listener = host.listen(port, service.into()).await?;
    println!("our key is {}", identity.fingerprint());
    loop {
        let mut stream = listener.accept().await?;
        tokio::spawn(async move {
            let datagrams = stream.datagrams();
            loop {
                tokio::select! {
                    offered = datagrams.accept() => match offered {
                        Some((flow, destination)) if destination == "echo" => drop(tokio::spawn(echo(flow))),
                        // A flow to anything else is refused: it is dropped.
                        Some(_) => {}
                        None => break,
                    },
                    // The client writes nothing: its stream ends when it leaves.
                    _ = stream.read_chunk() => break,
                }
            }
        });
    }
}

async fn echo(flow: Flow) {
    while let Some(datagram) = flow.recv().await {
        if flow.send(datagram).is_err() {
            break;
        }
    }
}

async fn ask(
    host: HostBuilder,
    server: &str,
    key: &str,
    paths: &[String],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut host = host;
    for path in paths {
        host = host.path(path.parse()?);
    }
    let host = host.start()?;
    let stream = host.connect(server, Sealing::new(Trust::pinned(key.parse()?)).datagrams()).await?;
    // Each datagram over every path: none is lost where one path loses it.
    let flow = stream.datagrams().open("echo", PathChoice::Duplicate).await?;
    for number in 0..10_u32 {
        let sent = Instant::now();
        flow.send(number.to_be_bytes().to_vec())?;
        match tokio::time::timeout(Duration::from_secs(1), flow.recv()).await {
            Ok(Some(_)) => println!("{number}: {} ms", sent.elapsed().as_millis()),
            Ok(None) => break,
            Err(_) => println!("{number}: lost"),
        }
    }
    drop((flow, stream));
    host.close().await;
    Ok(())
}
