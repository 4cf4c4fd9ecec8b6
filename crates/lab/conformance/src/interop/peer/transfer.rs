//! One transfer over a kernel socket, in both directions at once.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};

use super::pattern::{BLOCK, Pattern};
use super::report::{Protocol, Reader, TransferReport, print, wall_clock_ms};

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// `IPPROTO_MPTCP`.
    Mptcp,
    /// `IPPROTO_TCP`.
    Tcp,
}

/// The settings of both ends.
#[derive(Args)]
pub(crate) struct Transfer {
    /// The kind of socket.
    #[arg(long, value_enum, default_value = "mptcp")]
    socket: Kind,
    /// Pseudo-random bytes to send before the write side is closed.
    #[arg(long, default_value_t = 0)]
    send: u64,
    /// Seed of the bytes to send.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Send this file instead.
    #[arg(long)]
    input: Option<PathBuf>,
    /// Count arriving bytes that differ from this pattern.
    #[arg(long)]
    expect_seed: Option<u64>,
    /// Do not hash what arrives.
    #[arg(long)]
    no_hash: bool,
    /// Send nothing, and close with `SO_LINGER` 0 (MP_FASTCLOSE or a reset) once this many bytes have arrived.
    #[arg(long)]
    abort_after: Option<u64>,
    /// Send, and close the write side, only when the other end has closed its own.
    #[arg(long, overrides_with = "close_last")]
    close_last: bool,
    /// Give up when one direction has stood still for so many seconds.
    #[arg(long)]
    timeout: Option<u64>,
}

/// The passive end.
#[derive(Args)]
pub(crate) struct Listen {
    /// The port, on all addresses of both families.
    port: u16,
    /// Connections to serve, each as soon as it comes; one report each.
    #[arg(long, default_value_t = 1)]
    count: u32,
    #[command(flatten)]
    transfer: Transfer,
}

/// The active end.
#[derive(Args)]
pub(crate) struct Connect {
    /// Address and port.
    to: SocketAddr,
    /// The local address.
    #[arg(long)]
    from: Option<IpAddr>,
    /// The congestion control, in place of that of the namespace.
    #[arg(long)]
    congestion: Option<String>,
    #[command(flatten)]
    transfer: Transfer,
}

pub(crate) fn listen(options: &Listen) -> Result<()> {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, options.port));
    let listener = socket(any, options.transfer.socket)?;
    listener.set_only_v6(false)?;
    listener.set_reuse_address(true)?;
    listener.bind(&any.into()).context("bind")?;
    listener.listen(1024).context("listen")?;
    eprintln!("listening on port {}", options.port);
    std::thread::scope(|scope| {
        for _ in 0..options.count {
            let (connection, _) = listener.accept().context("accept")?;
            // A report without a reader is the end of the scenario, not of the other connections.
            scope.spawn(|| run(connection, &options.transfer));
        }
        Ok(())
    })
}

pub(crate) fn connect(options: &Connect) -> Result<()> {
    let connection = socket(options.to, options.transfer.socket)?;
    if let Some(address) = options.from {
        connection.bind(&SocketAddr::new(address, 0).into()).context("bind")?;
    }
    if let Some(name) = &options.congestion {
        connection.set_tcp_congestion(name.as_bytes()).context("set the congestion control")?;
    }
    if let Err(error) = connection.connect(&options.to.into()) {
        return print(&TransferReport {
            error: Some(format!("connect: {error}")),
            ..TransferReport::default()
        });
    }
    run(connection, &options.transfer)
}

pub(crate) fn socket(address: SocketAddr, kind: Kind) -> Result<Socket> {
    let protocol = match kind {
        Kind::Mptcp => SocketProtocol::MPTCP,
        Kind::Tcp => SocketProtocol::TCP,
    };
    Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol)).context("make a socket")
}

/// Sends on one thread, receives on this one, and prints the report.
fn run(connection: Socket, options: &Transfer) -> Result<()> {
    let mut report = TransferReport { connected_at_ms: wall_clock_ms(), ..TransferReport::default() };
    let began = Instant::now();
    let timeout = options.timeout.map(Duration::from_secs);
    connection.set_read_timeout(timeout).context("set a timeout for reading")?;
    connection.set_write_timeout(timeout).context("set a timeout for writing")?;
    eprintln!("connected");
    let watch = Watch { socket: &connection, most_subflows: AtomicU8::new(0) };
    let mut reader = Reader::new(!options.no_hash, options.expect_seed);
    let (sent, received) = std::thread::scope(|scope| {
        let early = options.abort_after.is_none() && !options.close_last;
        let sender = early.then(|| scope.spawn(|| send(&watch, options)));
        let mut reads = 0_u32;
        let received = reader.read(&mut &connection, options.abort_after, || {
            if reads.is_multiple_of(64) {
                watch.look();
            }
            reads += 1;
        });
        let sent = match sender {
            Some(sender) => sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None if options.abort_after.is_some() => connection.set_linger(Some(Duration::ZERO)).map(|()| 0),
            None => send(&watch, options),
        };
        (sent, received)
    });
    report.seconds = began.elapsed().as_secs_f64();
    report.protocol = watch.verdict();
    reader.finish(&mut report);
    match sent {
        Ok(bytes) => report.sent = bytes,
        Err(error) => report.error = Some(format!("send: {}", cause(&error))),
    }
    if let Err(error) = received {
        report.error = Some(format!("receive: {}", cause(&error)));
    }
    drop(connection);
    print(&report)
}

fn cause(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock => "it stood still, and the time was over".to_owned(),
        _ => error.to_string(),
    }
}

fn send(watch: &Watch<'_>, options: &Transfer) -> std::io::Result<u64> {
    let mut socket = watch.socket;
    let mut source: Box<dyn Read> = match &options.input {
        Some(path) => Box::new(File::open(path)?),
        None => Box::new(PatternReader(Pattern::new(options.seed)).take(options.send)),
    };
    let (mut block, mut sent) = (vec![0; BLOCK], 0);
    loop {
        let now = source.read(&mut block)?;
        if now == 0 {
            break;
        }
        socket.write_all(&block[..now])?;
        sent += now as u64;
        watch.look();
    }
    match socket.shutdown(Shutdown::Write) {
        // The other end has closed both ways already.
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(sent),
        other => other.map(|()| sent),
    }
}

struct PatternReader(Pattern);

impl Read for PatternReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.0.fill(out);
        Ok(out.len())
    }
}

/// Looks at the kernel's view of the connection while it runs: afterwards the subflows are gone.
struct Watch<'a> {
    socket: &'a Socket,
    most_subflows: AtomicU8,
}

impl Watch<'_> {
    fn look(&self) {
        if let Ok(Some(info)) = plait_netns::mptcp::info(self.socket) {
            self.most_subflows.fetch_max(info.additional_subflows.saturating_add(1), Ordering::Relaxed);
        }
    }

    fn verdict(&self) -> Protocol {
        self.look();
        match plait_netns::mptcp::info(self.socket) {
            Ok(Some(info)) if !info.is_fallback => Protocol::Mptcp {
                subflows: self.most_subflows.load(Ordering::Relaxed),
                checksum: info.has_checksum,
            },
            Ok(_) => Protocol::Tcp,
            Err(_) => Protocol::Unknown,
        }
    }
}
