//! The report of a program: one line of JSON on its standard output.

use std::io::Read;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::pattern::{BLOCK, Pattern, hexadecimal};

/// One end of one transfer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TransferReport {
    /// Bytes handed to the network.
    pub(crate) sent: u64,
    /// Bytes that arrived.
    pub(crate) received: u64,
    /// Of what arrived, in hexadecimal; empty when it was not asked for.
    pub(crate) sha256: String,
    /// Bytes that differ from the pattern expected; `None` when none was named.
    pub(crate) differing: Option<u64>,
    /// From the first byte received to the last, in seconds.
    pub(crate) receive_seconds: f64,
    /// The longest time between two reads that brought bytes, or to the end of the stream, in milliseconds.
    pub(crate) longest_gap_ms: u64,
    /// From the connection to the end of both directions, in seconds.
    pub(crate) seconds: f64,
    /// When the connection was there, in milliseconds of the wall clock (the same clock in all namespaces).
    pub(crate) connected_at_ms: u64,
    /// The kernel's information about the connection.
    pub(crate) protocol: Protocol,
    /// The reason of an early end.
    pub(crate) error: Option<String>,
}

impl TransferReport {
    /// Megabits per second of what arrived.
    pub(crate) fn goodput_mbit(&self) -> f64 {
        self.received as f64 * 8e-6 / self.receive_seconds.max(1e-6)
    }
}

/// The protocol of a connection, according to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Protocol {
    /// Not known: the end is not a kernel socket, or it never connected.
    #[default]
    Unknown,
    /// Plain TCP, or Multipath TCP that fell back.
    Tcp,
    /// Multipath TCP.
    Mptcp {
        /// The most subflows seen at a time, the first included.
        subflows: u8,
        /// DSS checksums were on.
        checksum: bool,
    },
}

/// Many connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CrowdReport {
    /// Connections that did all they should.
    pub(crate) completed: u64,
    /// Connections that failed.
    pub(crate) failed: u64,
    /// The first failure.
    pub(crate) error: Option<String>,
    /// In seconds.
    pub(crate) seconds: f64,
    /// The time that each connection took to open, in ascending order, in seconds; empty if not measured.
    #[serde(default)]
    pub(crate) openings: Vec<f64>,
}

/// Milliseconds of the wall clock.
pub(crate) fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a stream to its end into a report.
pub(crate) struct Reader {
    hash: Option<Sha256>,
    expected: Option<(Pattern, Vec<u8>)>,
    differing: u64,
    received: u64,
    times: Option<(Instant, Instant)>,
    longest_gap: Duration,
}

impl Reader {
    pub(crate) fn new(hash: bool, expected_seed: Option<u64>) -> Self {
        Self {
            hash: hash.then(Sha256::new),
            expected: expected_seed.map(|seed| (Pattern::new(seed), vec![0; BLOCK])),
            differing: 0,
            received: 0,
            times: None,
            longest_gap: Duration::ZERO,
        }
    }

    /// Reads until the end, `limit` bytes, or an error; calls `between` after each read.
    pub(crate) fn read(
        &mut self,
        source: &mut impl Read,
        limit: Option<u64>,
        mut between: impl FnMut(),
    ) -> std::io::Result<()> {
        let mut block = vec![0; BLOCK];
        while limit.is_none_or(|limit| self.received < limit) {
            let read = match source.read(&mut block) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            self.note_time();
            if read == 0 {
                break;
            }
            self.take(&block[..read]);
            between();
        }
        Ok(())
    }

    fn note_time(&mut self) {
        let now = Instant::now();
        let (first, last) = self.times.unwrap_or((now, now));
        self.longest_gap = self.longest_gap.max(now - last);
        self.times = Some((first, now));
    }

    fn take(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        if let Some((pattern, room)) = &mut self.expected {
            let wanted = &mut room[..bytes.len()];
            pattern.fill(wanted);
            if wanted != bytes {
                self.differing += wanted.iter().zip(bytes).filter(|(want, got)| want != got).count() as u64;
            }
        }
    }

    /// Writes what was read into `report`.
    pub(crate) fn finish(self, report: &mut TransferReport) {
        let Self { hash, expected, differing, received, times, longest_gap } = self;
        report.received = received;
        report.sha256 = hash.map_or_else(String::new, |hash| hexadecimal(&hash.finalize()));
        report.differing = expected.map(|_| differing);
        report.receive_seconds = times.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        report.longest_gap_ms = u64::try_from(longest_gap.as_millis()).unwrap_or(u64::MAX);
    }
}

/// Prints a report for the scenario that started this program.
pub(crate) fn print(report: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}
