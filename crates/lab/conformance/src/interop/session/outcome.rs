//! The result of a transfer, and the evidence for it.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use plait_netns::Counters;
use serde::Deserialize;

use super::plan::Plan;
use super::watch::Seen;
use super::{SEED_DOWN, SEED_UP};
use crate::interop::peer::{Protocol, TransferReport, sha256_of_pattern};
use crate::interop::scenario::Role;

/// Time limit for an end after the end of the other in an undisturbed transfer: some round trips and retransmissions.
const LINGER: Duration = Duration::from_secs(3);
/// The result of a transfer.
pub(crate) struct Outcome {
    pub(super) plan: Plan,
    pub(crate) client: TransferReport,
    pub(crate) server: TransferReport,
    pub(super) role: Role,
    /// The peer's kernel counters over the transfer.
    pub(crate) counters: Counters,
    /// The observations of the peer's kernel during the transfer.
    pub(super) seen: Seen,
    /// Bytes per path towards the (client, server).
    pub(crate) carried: Vec<(u64, u64)>,
    /// How `plait` ended: `None` in a baseline.
    pub(crate) plait: Option<PlaitEnd>,
    /// From the start of the client's program until the kernel's end had its connection.
    pub(crate) connect_ms: u64,
    pub(super) judges_time: bool,
    /// From the end of one program to the end of the other.
    pub(super) lingered: Duration,
}

/// How `plait` ended.
#[derive(Debug)]
pub(crate) struct PlaitEnd {
    pub(crate) succeeded: bool,
    pub(crate) last_words: String,
    /// The final status, if it was written.
    pub(crate) status: Option<Status>,
}

/// The parsed part of the final status of `plait`.
#[derive(Debug, Deserialize)]
pub(crate) struct Status {
    /// `multipath` or `plain`.
    negotiated: String,
    /// The reason of plain TCP.
    reason: Option<String>,
    paths: Vec<PathStatus>,
}

#[derive(Debug, Deserialize)]
struct PathStatus {
    name: String,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_reinjected: u64,
    rtt_ms: Option<f64>,
    loss: f64,
}

impl Outcome {
    /// Both directions complete, with the right SHA-256, and every program content.
    pub(crate) fn verify(&self) -> Result<()> {
        for (name, report, bytes, seed) in [
            ("the server", &self.server, self.plan.up, SEED_UP),
            ("the client", &self.client, self.plan.down, SEED_DOWN),
        ] {
            ensure!(
                report.received == bytes,
                "{name} received {} of {bytes} bytes; {}",
                report.received,
                self.troubles()
            );
            ensure!(
                report.sha256 == sha256_of_pattern(seed, bytes),
                "SHA-256 differs: {name} received {} other bytes than were sent; {}",
                report.differing.unwrap_or(0),
                self.evidence()
            );
        }
        let troubles = self.troubles();
        ensure!(troubles.is_empty(), "{troubles}");
        ensure!(
            self.lingered < LINGER || !self.judges_time,
            "all bytes are there, but one end went on for {:.1} s after the other; {}",
            self.lingered.as_secs_f64(),
            self.evidence()
        );
        Ok(())
    }

    /// The complaints of all programs.
    pub(crate) fn troubles(&self) -> String {
        let mut troubles = String::new();
        for (name, report) in [("client", &self.client), ("server", &self.server)] {
            if let Some(error) = &report.error {
                let _ = write!(troubles, "{name}: {error}; ");
            }
        }
        if let Some(end) = self.plait.as_ref().filter(|end| !end.succeeded) {
            let _ = write!(troubles, "plait failed: {}; ", end.last_words);
        }
        if !troubles.is_empty() {
            let _ = write!(troubles, "kernel: {}", self.kernel_evidence());
        }
        troubles
    }

    /// The kernel's end of the connection.
    pub(crate) fn peer(&self) -> &TransferReport {
        match self.role {
            Role::Client => &self.server,
            Role::Server => &self.client,
        }
    }

    /// The subject's end of the connection.
    pub(crate) fn subject(&self) -> &TransferReport {
        match self.role {
            Role::Client => &self.client,
            Role::Server => &self.server,
        }
    }

    /// The peer's kernel counted at least this.
    pub(crate) fn expect(&self, counter: &str, at_least: u64) -> Result<()> {
        let count = self.count(counter);
        ensure!(count >= at_least, "{counter} is {count}, not {at_least}: {}", self.kernel_evidence());
        Ok(())
    }

    /// One of the peer's `MPTcpExt` counters.
    pub(crate) fn count(&self, counter: &str) -> u64 {
        self.counters.count(&format!("MPTcpExt{counter}"))
    }

    /// The peer's kernel reported this event.
    pub(crate) fn expect_event(&self, event: &str) -> Result<()> {
        ensure!(self.seen.count(event) > 0, "`ip mptcp monitor` saw no {event}: {}", self.kernel_evidence());
        Ok(())
    }

    /// The peer's kernel took the connection for Multipath TCP.
    pub(crate) fn expect_mptcp(&self) -> Result<()> {
        match &self.peer().protocol {
            Protocol::Mptcp { .. } => {
                self.expect_event("ESTABLISHED")?;
                self.expect_told("multipath")
            }
            other => bail!("the kernel's socket is {other:?}: {}", self.kernel_evidence()),
        }
    }

    /// The status of `plait` says the same as the kernel.
    fn expect_told(&self, negotiated: &str) -> Result<()> {
        let Some(end) = &self.plait else { return Ok(()) };
        let Some(status) = &end.status else { bail!("plait wrote no final status: {}", end.last_words) };
        ensure!(
            status.negotiated == negotiated,
            "plait says `{}`, the kernel {:?}",
            status.negotiated,
            self.peer().protocol
        );
        Ok(())
    }

    /// The peer's kernel took the connection for TCP.
    pub(crate) fn expect_tcp(&self) -> Result<()> {
        match &self.peer().protocol {
            Protocol::Tcp => self.expect_told("plain"),
            other => bail!("the kernel's socket is {other:?}: {}", self.kernel_evidence()),
        }
    }

    /// The smallest share of a path in what was carried in the directions that had data, in percent.
    pub(crate) fn smallest_share(&self) -> f64 {
        let direction = |bytes: u64, pick: fn(&(u64, u64)) -> u64| {
            let each: Vec<f64> = self.carried.iter().map(|carried| pick(carried) as f64).collect();
            let smallest = each.iter().copied().fold(f64::INFINITY, f64::min);
            (bytes > 0).then_some(100.0 * smallest / each.iter().sum::<f64>().max(1.0))
        };
        [direction(self.plan.up, |carried| carried.1), direction(self.plan.down, |carried| carried.0)]
            .into_iter()
            .flatten()
            .fold(f64::INFINITY, f64::min)
    }

    /// Megabits per second at the receivers, and their longest gap.
    pub(crate) fn speed(&self) -> String {
        let mut text = String::new();
        for (arrow, report) in [("up", &self.server), ("down", &self.client)] {
            if report.received > 0 {
                let _ = write!(
                    text,
                    "{arrow} {:.0} Mbit/s gap {} ms, ",
                    report.goodput_mbit(),
                    report.longest_gap_ms
                );
            }
        }
        text.trim_end_matches(", ").to_owned()
    }

    /// The longest gap at a receiver that was sent something, in milliseconds.
    pub(crate) fn longest_gap_ms(&self) -> u64 {
        let up = if self.plan.up > 0 { self.server.longest_gap_ms } else { 0 };
        up.max(if self.plan.down > 0 { self.client.longest_gap_ms } else { 0 })
    }

    /// The longest gap at the kernel's end in what the subject sent, in milliseconds.
    pub(crate) fn longest_gap_from_subject_ms(&self) -> u64 {
        self.peer().longest_gap_ms
    }

    /// Speed and the kernel's counters.
    pub(crate) fn evidence(&self) -> String {
        format!("{}{}\nkernel: {}", self.speed(), self.plait_evidence(), self.kernel_evidence())
    }

    /// The evidence in `plait`'s final status.
    fn plait_evidence(&self) -> String {
        let Some(status) = self.plait.as_ref().and_then(|end| end.status.as_ref()) else {
            return String::new();
        };
        let mut text = format!("\nplait: {}", status.negotiated);
        if let Some(reason) = &status.reason {
            let _ = write!(text, " ({reason})");
        }
        for path in &status.paths {
            let PathStatus { name, bytes_sent, bytes_received, bytes_reinjected, rtt_ms, loss } = path;
            let mib = |bytes: &u64| *bytes as f64 / 1_048_576.0;
            let _ =
                write!(text, ", {name} sent {:.1} received {:.1} MiB", mib(bytes_sent), mib(bytes_received));
            if *bytes_reinjected > 0 {
                let _ = write!(text, " reinjected {:.1} MiB", mib(bytes_reinjected));
            }
            if let Some(rtt) = rtt_ms {
                let _ = write!(text, " rtt {rtt:.1} ms");
            }
            if *loss > 0.0 {
                let _ = write!(text, " loss {:.2} %", 100.0 * loss);
            }
        }
        text
    }

    /// The peer's socket, counters and events.
    pub(crate) fn kernel_evidence(&self) -> String {
        let socket = match &self.peer().protocol {
            Protocol::Unknown => "?".to_owned(),
            Protocol::Tcp => "TCP".to_owned(),
            Protocol::Mptcp { subflows, checksum } => {
                format!("MPTCP {subflows} subflows{}", if *checksum { " checksum" } else { "" })
            }
        };
        let text = format!("{socket} {}", mptcp_counters(&self.counters));
        text.trim_end().to_owned() + &self.seen.evidence()
    }
}

/// The Multipath TCP counters that are not zero, but for those that only say how busy the receiver was.
pub(crate) fn mptcp_counters(counters: &Counters) -> String {
    const NOISE: [&str; 8] = [
        "OFO",
        "RcvWnd",
        "SndWnd",
        "WinProbe",
        "MPCurrEstab",
        "DuplicateData",
        "NoDSSInWindow",
        "MPTCPRetrans",
    ];
    let told = counters
        .nonzero("MPTcpExt")
        .filter(|(name, _)| !NOISE.iter().any(|noise| name.starts_with(noise)))
        .map(|(name, count)| format!("{name}={count}"));
    told.collect::<Vec<_>>().join(" ")
}
