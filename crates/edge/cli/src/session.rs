//! One connection between the network and standard input and output.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use plait::{Host, HostBuilder, LOOPBACK, Listener, Path, PathState, ReadHalf, Status, Stream, WriteHalf};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::exit;
use crate::options::Options;
use crate::output::{self, say};
use crate::pipe;
use crate::scrambling;
use crate::system::{self, firewall::Opening};

/// How long subflows may take to close after their connections have ended in order. All data is delivered by then; the rest is reset.
const FAREWELL: Duration = Duration::from_secs(1);

/// Standard input and output, for a series of connections.
pub(crate) struct Terminal {
    input: Receiver<io::Result<Bytes>>,
    output: Sender<Bytes>,
    written: oneshot::Receiver<io::Result<()>>,
}

/// Returns a host with the options, on the paths that they name or the default ones.
pub(crate) fn host_for(options: &Options, towards: Option<IpAddr>) -> anyhow::Result<HostBuilder> {
    scrambling::announce(options);
    let paths = system::within_caps(options, paths_for(options, towards)?)?;
    Ok(paths.into_iter().fold(options.host(), HostBuilder::path))
}

/// Returns the paths in the options; otherwise the devices of the default routes, or the device that leads to the peer.
pub(crate) fn paths_for(options: &Options, towards: Option<IpAddr>) -> anyhow::Result<Vec<Path>> {
    if options.paths.is_empty() {
        Ok(Path::defaults(towards, options.carrier)?)
    } else {
        Ok(options.paths.clone())
    }
}

/// Returns addresses to announce: of each family, the first one of the paths.
pub(crate) fn public_addresses(paths: &[PathState]) -> Vec<IpAddr> {
    let v4 = paths.iter().find_map(|path| path.ipv4().map(IpAddr::V4));
    let v6 = paths.iter().find_map(|path| path.ipv6().map(IpAddr::V6));
    v4.into_iter().chain(v6).collect()
}

/// Reports the obstacles of a started host: paths that cannot be used yet, most often because of a wrong name, a missing default route, and a
/// firewall that drops forwarded packets. If the options ask for it, the firewall is opened while the returned value lives.
pub(crate) fn clear_the_way(options: &Options, host: &Host) -> anyhow::Result<Option<Opening>> {
    let paths = host.paths();
    let is_up = |device: &str| paths.iter().any(|path| path.device() == device && path.is_up());
    for path in paths.iter().filter(|path| is_told(path, &paths) && !is_up(path.device())) {
        let device = path.device();
        say(&format!("the path {device} cannot be used yet: {}", system::why_not(device)));
    }
    if !paths.iter().any(|path| path.device() != LOOPBACK) {
        let given: Vec<String> = options.paths.iter().map(Path::devices).collect();
        let why = match &given[..] {
            [] => "there is no default route".to_owned(),
            given => format!("there is no device for {}", given.join(", ")),
        };
        say(&format!(
            "warning: no other host can be reached: {why}\n  plait waits for one, or name a device with --path"
        ));
    }
    system::clear_the_way(options)
}

/// Whether to report a path: a device is reported once for all its carriers.
pub(crate) fn is_told(path: &PathState, paths: &[PathState]) -> bool {
    let is_first = |first: &PathState| first == path;
    paths.iter().find(|other| other.device() == path.device()).is_some_and(is_first)
}

impl Terminal {
    pub(crate) fn open() -> io::Result<Self> {
        let (input, output) = system::standard_streams()?;
        let input = pipe::read_from(input);
        let (output, written) = pipe::write_to(output);
        Ok(Self { input, output, written })
    }

    /// Prints bytes that have come before a connection is attached.
    pub(crate) async fn print(&self, bytes: Vec<u8>) {
        // A reader that has gone is noticed when the connection is attached.
        if !bytes.is_empty() {
            let _ = self.output.send(bytes.into()).await;
        }
    }

    /// Runs a connection until both directions have ended and the peer knows; returns its last status.
    pub(crate) async fn attach(&mut self, stream: Stream) -> (io::Result<()>, Option<Status>) {
        let monitor = stream.monitor();
        let (mut read, mut write) = stream.into_split();
        let conversation = transfer(&mut read, &mut write, &mut self.input, &self.output);
        let mut result = tokio::select! {
            result = scrambling::watched(monitor.clone(), conversation) => result,
            signal = exit::interrupted() => {
                // A dropped stream would look like an orderly end of data that was cut off.
                monitor.abort();
                Err(io::Error::other(signal))
            }
        };
        if result.is_ok() {
            // Reading to the end does not prove that the peer has all of our data. The wait has no limit, for slow paths: the connection
            // itself gives up without hope.
            result = read.closed().await;
        }
        let status = read.status();
        (result, status)
    }

    /// Whether the reader of standard output has gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.output.is_closed()
    }

    /// Waits until everything is written to standard output.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        let Self { input: _, output, written } = self;
        drop(output);
        // Without an answer the thread has panicked, which is already reported.
        let result = written.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        output::written(result)
    }
}

async fn transfer(
    read: &mut ReadHalf,
    write: &mut WriteHalf,
    input: &mut Receiver<io::Result<Bytes>>,
    output: &Sender<Bytes>,
) -> io::Result<()> {
    let mut receiving = std::pin::pin!(receive(read, output));
    let mut sending = std::pin::pin!(send(write, input));
    tokio::select! {
        sent = &mut sending => {
            // Reading from the connection returns the reason of the failed write.
            receiving.await?;
            sent
        }
        received = &mut receiving => {
            received?;
            sending.await
        }
    }
}

async fn send(write: &mut WriteHalf, input: &mut Receiver<io::Result<Bytes>>) -> io::Result<()> {
    loop {
        let block = tokio::select! {
            block = input.recv() => block,
            end = write.closed() => return end.and(Err(io::ErrorKind::BrokenPipe.into())),
        };
        match block {
            Some(block) => write.write_chunk(&mut block?).await?,
            None => return write.shutdown().await,
        }
    }
}

async fn receive(read: &mut ReadHalf, output: &Sender<Bytes>) -> io::Result<()> {
    while let Some(block) = read.read_chunk().await? {
        if output.send(block).await.is_err() {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "standard output is closed"));
        }
    }
    Ok(())
}

/// Waits for the subflows of ended connections to close, then ends the host.
pub(crate) async fn end(host: Host, listener: Option<Listener>) {
    drop(listener);
    let _ = timeout(FAREWELL, host.drained()).await;
}
