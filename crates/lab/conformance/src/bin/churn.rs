//! Many short connections one after the other from one host, in two halves: what is kept after each shows a leak.
//!
//! `churn ADDRESS:PORT DEVICE COUNT [FINGERPRINT]`: plain over TCP, or sealed over UDP to the server with this key. Each connection sends
//! 100 bytes and reads as many, then both sides close. After each half it prints a line of JSON with this process's memory and descriptors.
//! `scripts/interop` runs it against the kernel.

#![allow(clippy::disallowed_methods, reason = "it measures itself with the clock of the machine")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plait::{Carriers, Fingerprint, Host, Path, Protection, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

const USAGE: &str = "usage: churn ADDRESS:PORT DEVICE COUNT [FINGERPRINT]";
/// Connections at a time.
const PARALLEL: u64 = 8;
/// Bytes in each direction.
const BYTES: usize = 100;
/// How long one connection may take.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [server, device, count, key @ ..] = words.as_slice() else { return Err(USAGE.into()) };
    let key = key.first().map(|key| key.parse::<Fingerprint>()).transpose()?;
    let carriers = if key.is_some() { Carriers::Udp } else { Carriers::Tcp };
    let protection = || key.map_or_else(Protection::plain, |key| Trust::pinned(key).into());
    let (server, count): (SocketAddr, u64) = (server.parse()?, count.parse()?);
    let path: Path = device.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let host = Host::builder().carriers(carriers).path(path).start()?;
        eprintln!("ready");
        for _ in 0..2 {
            println!("{}", half(&host, server, protection, count / 2).await?);
        }
        Ok(())
    })
}

/// Half of the connections; what is kept when the last is over.
async fn half(
    host: &Host,
    server: SocketAddr,
    protection: impl Fn() -> Protection,
    count: u64,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let (began, mut running) = (Instant::now(), JoinSet::new());
    let (mut completed, mut first_error) = (0_u64, None);
    for started in 0..count + PARALLEL {
        if started >= PARALLEL
            && let Some(ended) = running.join_next().await
        {
            match ended? {
                Ok(()) => completed += 1,
                Err(error) => first_error = first_error.or(Some(io::Error::to_string(&error))),
            }
        }
        if started < count {
            running.spawn(one(host.clone(), server, protection()));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    host.drained().await;
    let now = host.state();
    Ok(serde_json::json!({
        "completed": completed,
        "failed": count - completed,
        "error": first_error,
        "seconds": seconds,
        "resident": resident_bytes()?,
        "descriptors": std::fs::read_dir("/proc/self/fd")?.count(),
        "kept": now.connections,
        "time_wait": now.time_wait,
    }))
}

async fn one(host: Host, server: SocketAddr, protection: Protection) -> io::Result<()> {
    let conversation = async {
        let mut stream = host.connect(server, protection).await?;
        stream.write_all(&[0x5a; BYTES]).await?;
        stream.shutdown().await?;
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await?;
        if back.len() != BYTES {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} bytes came back", back.len()),
            ));
        }
        stream.closed().await
    };
    timeout(TIMEOUT, conversation).await?
}

/// Memory in use that is the process's own or touched (`VmRSS`).
fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}
