//! Keeps an expensive path for bad times: it is a backup until no other path has worked for a moment.
//!
//! ```console
//! # cargo run --example path_control -- gw.example.com:7443 SHA256:… eth0 wwan0
//! ```

#![allow(clippy::disallowed_methods, reason = "a program has arguments, time and files")]

use std::time::Duration;

use plait::{Host, Path, Trust};
use tokio::io::AsyncReadExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, key, cheap, expensive] = &arguments[..] else {
        return Err("usage: path_control HOST:PORT FINGERPRINT DEVICE EXPENSIVE_DEVICE".into());
    };
    let host = Host::builder().path(Path::new(cheap)?).path(Path::new(expensive)?.backup()).start()?;
    let mut stream = host.connect(&server[..], Trust::pinned(key.parse()?)).await?;

    // The control and the monitor work while another task reads and writes.
    let (control, monitor) = (host.path_control(), stream.monitor());
    let (cheap, expensive) = (cheap.clone(), Path::new(expensive)?);
    let watching = tokio::spawn(async move {
        let mut was_up = true;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let is_up = control.paths().iter().any(|path| path.device() == cheap && path.is_up());
            if is_up != was_up {
                let path = if is_up { expensive.clone().backup() } else { expensive.clone() };
                eprintln!("{cheap} is {}: {path}", if is_up { "back" } else { "gone" });
                control.set(path).await?;
                was_up = is_up;
            }
            for subflow in monitor.status().iter().flat_map(plait::Status::subflows) {
                let time = subflow.round_trip_time().unwrap_or_default();
                eprintln!("  {}: {} bytes, {time:?}", subflow.device(), subflow.bytes_received());
            }
        }
        #[allow(unreachable_code, reason = "the type of what a task returns")]
        Ok::<(), plait::Error>(())
    });

    let mut buffer = vec![0; 64 * 1024];
    let mut total = 0;
    while let len @ 1.. = stream.read(&mut buffer).await? {
        total += len;
    }
    println!("{total} bytes");
    watching.abort();
    drop(stream);
    host.close().await;
    Ok(())
}
