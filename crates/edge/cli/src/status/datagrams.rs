//! Datagrams of a connection, for people and for programs.

use plait::{DatagramTotals, DatagramsOnPath};
use serde::Serialize;

/// The datagrams beside a stream. One copy, or one piece, is one datagram.
#[derive(Debug, Default, Serialize)]
pub(super) struct DatagramReport {
    /// Flows that have not ended.
    flows_open: usize,
    /// Sent beside the stream, and inside it because there was no path over UDP.
    sent: u64,
    sent_in_stream: u64,
    /// Given to the flows of this host.
    received: u64,
    /// Sent, and lost by the reports of the peer.
    lost: u64,
    /// Sent, and not reported in time.
    unreported: u64,
    /// Arrived after the end of their flow.
    late: u64,
    /// Arrived more than once, or too late to know.
    repeated: u64,
    /// Arrived with a wrong tag, malformed, or without keys.
    forged: u64,
    /// Dropped before they were sent.
    dropped: u64,
    /// Dropped after they had arrived.
    dropped_arrived: u64,
    /// Those of each open subflow that has carried some.
    subflows: Vec<OnPath>,
}

/// Datagrams over one subflow.
#[derive(Debug, Default, Serialize)]
struct OnPath {
    path: String,
    sent: u64,
    arrived: u64,
    lost: u64,
}

impl From<DatagramTotals> for DatagramReport {
    fn from(totals: DatagramTotals) -> Self {
        Self {
            flows_open: totals.flows_open,
            sent: totals.sent,
            sent_in_stream: totals.sent_in_stream,
            received: totals.received,
            lost: totals.lost,
            unreported: totals.unreported,
            late: totals.late,
            repeated: totals.repeated,
            forged: totals.forged,
            dropped: totals.dropped,
            dropped_arrived: totals.dropped_arrived,
            subflows: totals.subflows.into_iter().map(OnPath::from).collect(),
        }
    }
}

impl From<DatagramsOnPath> for OnPath {
    fn from(on: DatagramsOnPath) -> Self {
        Self { path: on.path, sent: on.sent, arrived: on.arrived, lost: on.lost }
    }
}

impl DatagramReport {
    /// For people: what there always is, and what is unusual.
    pub(super) fn words(&self) -> String {
        let mut words =
            format!("  datagrams: {} flows, sent {}, received {}", self.flows_open, self.sent, self.received);
        for (name, count) in [
            ("sent in the stream", self.sent_in_stream),
            ("lost", self.lost),
            ("unreported", self.unreported),
            ("late", self.late),
            ("repeated", self.repeated),
            ("forged", self.forged),
            ("dropped", self.dropped),
            ("dropped after arrival", self.dropped_arrived),
        ] {
            if count > 0 {
                words += &format!(", {name} {count}");
            }
        }
        for OnPath { path, sent, arrived, lost } in &self.subflows {
            words += &format!("; {path}: sent {sent}, arrived {arrived}, lost {lost}");
        }
        words + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_was_carried_and_what_is_unusual() {
        let on = |path: &str| OnPath { path: path.to_owned(), sent: 4, arrived: 2, lost: 1 };
        let report = DatagramReport {
            flows_open: 2,
            sent: 8,
            received: 3,
            repeated: 1,
            subflows: vec![on("eth0"), on("wlan0")],
            ..DatagramReport::default()
        };
        assert_eq!(
            report.words(),
            "  datagrams: 2 flows, sent 8, received 3, repeated 1; eth0: sent 4, arrived 2, lost 1; wlan0: sent 4, arrived 2, lost 1\n"
        );
    }
}
