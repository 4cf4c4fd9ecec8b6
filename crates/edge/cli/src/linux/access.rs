//! The access log of `serve`: one line of JSON for each connection, at its end.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use plait::{Monitor, Status, Stream};
use plait_console::log_file::LogFile;
use serde::Serialize;
use tokio::time::Instant;

use crate::output;
use crate::server_identity::shown_by;

/// The version of this format. An added key keeps the version; a removed key, or a changed meaning, changes it.
const SCHEMA: u32 = 1;

/// The place of the lines.
#[derive(Clone, Debug)]
pub(crate) enum AccessLog {
    Off,
    StandardError,
    File(Arc<LogFile>),
}

/// A connection that is written to the log when this is dropped.
pub(crate) struct Access {
    log: AccessLog,
    monitor: Monitor,
    since: Instant,
    entry: Entry,
    /// The destination, once the client has named it.
    heard: OnceLock<String>,
    /// Bytes from and to the client that were counted at the destination.
    counted: Option<(u64, u64)>,
}

/// One line.
#[derive(Debug, Serialize)]
struct Entry {
    schema: u32,
    /// Time of the request, as RFC 3339 writes it.
    started: String,
    /// Duration.
    seconds: f64,
    /// Address and port that the connection was opened from.
    from: SocketAddr,
    /// Name of the client in `authorized_clients`.
    client: Option<String>,
    /// Fingerprint of the key of the client.
    key: Option<String>,
    /// `HOST:PORT`, or `resolver`, if the client has named it.
    destination: Option<String>,
    /// Bytes from the client.
    received: u64,
    /// Bytes to the client.
    sent: u64,
    /// The paths with a subflow.
    paths: Vec<PathUse>,
    end: End,
    /// The reason of an end that is not `complete`, for people.
    reason: Option<String>,
}

/// The use of a path.
#[derive(Debug, Serialize)]
struct PathUse {
    name: String,
    /// `tcp` or `udp`.
    carrier: String,
    /// Bytes on the path, repeated ones included.
    received: u64,
    sent: u64,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// Both directions have ended in order.
    Complete,
    /// The server has not connected the client.
    Refused,
    /// A side has reset it, or is gone.
    Broken,
    /// The server has stopped before its end.
    Stopped,
    /// The client, or its rules, do not allow it any more.
    Revoked,
}

impl AccessLog {
    /// Opens the log.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(file: Option<&Path>) -> anyhow::Result<Self> {
        Ok(match file {
            None => Self::Off,
            Some(file) if file == Path::new("-") => Self::StandardError,
            Some(file) => Self::File(LogFile::open(file)?),
        })
    }

    /// Begins the line of a connection.
    pub(crate) fn begin(&self, stream: &Stream) -> Access {
        let entry = Entry {
            schema: SCHEMA,
            started: now(),
            seconds: 0.0,
            from: stream.peer_addr(),
            client: None,
            key: shown_by(stream.peer_identity()).map(|key| key.to_string()),
            destination: None,
            received: 0,
            sent: 0,
            paths: Vec::new(),
            end: End::Stopped,
            reason: None,
        };
        let (log, monitor, since) = (self.clone(), stream.monitor(), Instant::now());
        Access { log, monitor, since, entry, heard: OnceLock::new(), counted: None }
    }

    /// A line that cannot be written is dropped.
    fn write(&self, entry: &Entry) {
        let Ok(mut line) = serde_json::to_string(entry) else { return };
        line.push('\n');
        match self {
            Self::Off => {}
            Self::StandardError => output::say_lines(&line),
            Self::File(file) => file.append(line.as_bytes()),
        }
    }
}

impl Access {
    /// Counts the time from now on: the request has come.
    pub(crate) fn begins_now(&mut self) {
        self.entry.started = now();
        self.since = Instant::now();
    }

    /// Sets the name of the client.
    pub(crate) fn comes_from(&mut self, name: &str) {
        self.entry.client = Some(name.to_owned());
    }

    /// Notes the destination.
    pub(crate) fn hears(&self, destination: &str) {
        // A client names one.
        let _ = self.heard.set(destination.to_owned());
    }

    /// Notes the end in order, with the bytes from and to the client.
    pub(crate) fn is_complete(&mut self, counted: (u64, u64)) {
        self.entry.end = End::Complete;
        self.counted = Some(counted);
    }

    /// Notes another end.
    pub(crate) fn ends(&mut self, end: End, reason: impl Display) {
        self.entry.end = end;
        self.entry.reason = Some(reason.to_string());
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if matches!(self.log, AccessLog::Off) {
            return;
        }
        let status = self.monitor.status();
        self.entry.destination = self.heard.take();
        let of_stream = || status.as_ref().map(|status| (status.bytes_read(), status.bytes_delivered()));
        (self.entry.received, self.entry.sent) = self.counted.or_else(of_stream).unwrap_or_default();
        self.entry.seconds = self.since.elapsed().as_secs_f64();
        self.entry.paths = status.as_ref().map(paths).unwrap_or_default();
        self.log.write(&self.entry);
    }
}

/// The current time as RFC 3339 writes it, with milliseconds.
fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

fn paths(status: &Status) -> Vec<PathUse> {
    let used = |path: plait::PathTotals| PathUse {
        carrier: path.carrier.to_string(),
        received: path.bytes_received,
        sent: path.bytes_sent,
        name: path.device,
    };
    status.path_totals().into_iter().map(used).collect()
}
