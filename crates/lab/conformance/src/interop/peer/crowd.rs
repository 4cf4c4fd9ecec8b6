//! Many connections at a time.

use std::io::{Read, Write, stdin};
use std::net::{Shutdown, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::Socket;

use super::report::{CrowdReport, print};
use super::transfer::{Kind, socket};

/// How long one step of one connection may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Many short connections.
#[derive(Args)]
pub(crate) struct Churn {
    /// Address and port.
    to: SocketAddr,
    /// The kind of socket.
    #[arg(long, value_enum, default_value = "mptcp")]
    socket: Kind,
    /// Connections in all.
    #[arg(long)]
    count: u64,
    /// Connections at a time.
    #[arg(long, default_value_t = 8)]
    parallel: u64,
    /// Bytes sent over each.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// The same bytes must come back.
    #[arg(long)]
    echo: bool,
}

/// Many idle connections.
#[derive(Args)]
pub(crate) struct Hold {
    /// Address and port.
    to: SocketAddr,
    /// The kind of socket.
    #[arg(long, value_enum, default_value = "mptcp")]
    socket: Kind,
    /// Connections to hold.
    #[arg(long)]
    count: u64,
}

pub(crate) fn churn(options: &Churn) -> Result<()> {
    let (next, completed, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (first_error, openings) = (Mutex::new(None), Mutex::new(Vec::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..options.parallel {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < options.count {
                    match one_short(options) {
                        Ok(opened) => {
                            completed.fetch_add(1, Ordering::Relaxed);
                            openings.lock().expect("no panic while it is held").push(opened.as_secs_f64());
                        }
                        Err(error) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            first_error
                                .lock()
                                .expect("no panic while it is held")
                                .get_or_insert(format!("{error:#}"));
                        }
                    }
                }
            });
        }
    });
    let mut openings: Vec<f64> = openings.into_inner().expect("no panic while it is held");
    openings.sort_by(f64::total_cmp);
    print(&CrowdReport {
        completed: completed.into_inner(),
        failed: failed.into_inner(),
        error: first_error.into_inner().expect("no panic while it is held"),
        seconds: began.elapsed().as_secs_f64(),
        openings,
    })
}

/// Connects, sends, closes its side, reads to the other's end, closes; how long it took to open.
fn one_short(options: &Churn) -> Result<Duration> {
    let began = Instant::now();
    let connection = connected(options.to, options.socket)?;
    let opened = began.elapsed();
    (&connection).write_all(&vec![0x5a; options.bytes])?;
    connection.shutdown(Shutdown::Write)?;
    let mut back = Vec::new();
    (&connection).read_to_end(&mut back)?;
    ensure!(
        !options.echo || back.len() == options.bytes,
        "{} of {} bytes came back",
        back.len(),
        options.bytes
    );
    Ok(opened)
}

pub(crate) fn hold(options: &Hold) -> Result<()> {
    let wanted = options.count + 64;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted))?;
    }
    let mut held = Vec::new();
    let began = Instant::now();
    let mut error = None;
    while (held.len() as u64) < options.count {
        match connected(options.to, options.socket) {
            Ok(connection) => held.push(connection),
            Err(reason) => {
                error = Some(format!("{reason:#}"));
                break;
            }
        }
    }
    let completed = held.len() as u64;
    print(&CrowdReport {
        completed,
        failed: options.count - completed,
        error,
        seconds: began.elapsed().as_secs_f64(),
        ..CrowdReport::default()
    })?;
    eprintln!("holding");
    std::io::copy(&mut stdin().lock(), &mut std::io::sink())?;
    Ok(())
}

fn connected(to: SocketAddr, kind: Kind) -> Result<Socket> {
    let connection = socket(to, kind)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    if let Err(error) = connection.connect_timeout(&to.into(), TIMEOUT) {
        bail!("connect: {error}");
    }
    ensure!(connection.take_error()?.is_none(), "connect failed late");
    Ok(connection)
}
