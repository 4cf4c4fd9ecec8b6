//! A connection in words and a table, for people.

use std::fmt::Write as _;

use plait_host::{Negotiated, PlainReason};

use super::report::{PathReport, Report, ScrambleReport, SealedReport};

impl Report {
    /// For people.
    pub(super) fn words(&self, negotiated: Negotiated) -> String {
        let what = match negotiated {
            Negotiated::Opening => "not yet open".to_owned(),
            Negotiated::Multipath { version, checksum } => {
                format!(
                    "Multipath TCP version {version}{}",
                    if checksum { ", with data checksums" } else { "" }
                )
            }
            Negotiated::Plain(reason) => format!("plain TCP: {}", explanation(reason)),
        };
        let peer = self.peer.map(|peer| format!(" with {peer}")).unwrap_or_default();
        let mut text = format!(
            "plait: connection{peer}: {what}; sent {}, received {} in {:.1} s\n",
            amount(self.bytes_delivered),
            amount(self.bytes_read),
            self.age_ms / 1000.0
        );
        match (&self.sealed, &self.scrambling) {
            (Some(sealed), _) => text += &sealed.words(),
            (None, Some(scrambling)) => text += &scrambling.words(),
            (None, None) => text += "  not sealed: everybody on the way can read and change the bytes\n",
        }
        let header = ["PATH", "STATE", "SUBFLOWS", "SENT", "RECEIVED", "SHARE", "RTT", "LOSS", "SENT AGAIN"];
        let mut rows = vec![header.map(str::to_owned)];
        rows.extend(self.paths.iter().map(PathReport::row));
        let widths: Vec<usize> = (0..header.len())
            .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        for row in rows {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
        }
        let unusual: Vec<_> = self.counters.iter().filter(|(_, count)| **count > 0).collect();
        if !unusual.is_empty() {
            let words: Vec<_> =
                unusual.iter().map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
            let _ = writeln!(text, "  counted: {}", words.join(", "));
        }
        text
    }
}

impl ScrambleReport {
    fn words(&self) -> String {
        let mut words = "  scrambled (obfuscation, not encryption)".to_owned();
        if self.bytes_degraded > 0 {
            let bytes = amount(self.bytes_degraded);
            let _ = write!(words, "; DEGRADED: {bytes} over untrusted paths without any trusted one");
        }
        words + "\n"
    }
}

impl SealedReport {
    /// For people.
    fn words(&self) -> String {
        let suite = self.suite.unwrap_or("nothing yet");
        let handshake = self.handshake.unwrap_or("no handshake yet");
        let peer = match self.peer.as_str() {
            "anonymous" => "encrypted, not authenticated".to_owned(),
            peer => format!("peer {peer}"),
        };
        let elsewhere = match (self.blocks_elsewhere, self.blocks_sealed + self.blocks_opened) {
            (0, _) => String::new(),
            (elsewhere, all) => format!(", {elsewhere} of {all} blocks by other threads"),
        };
        format!(
            "  sealed: {suite} after {handshake}, {peer}, keys {}/{}{elsewhere}\n",
            self.generations[0], self.generations[1]
        )
    }
}

impl PathReport {
    fn row(&self) -> [String; 9] {
        let state = match (self.up, self.backup) {
            (false, _) => "down",
            (true, true) => "backup",
            (true, false) => "up",
        };
        [
            self.name.clone(),
            state.to_owned(),
            self.subflows.to_string(),
            amount(self.bytes_sent),
            amount(self.bytes_received),
            format!("{:.0}%", self.share * 100.0),
            self.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1}ms")),
            format!("{:.2}%", self.loss * 100.0),
            amount(self.bytes_retransmitted + self.bytes_reinjected),
        ]
    }
}

/// Bytes with a unit, three digits or so.
fn amount(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

fn explanation(reason: PlainReason) -> &'static str {
    match reason {
        PlainReason::NotOffered => "Multipath TCP was not offered here",
        PlainReason::PeerPlain => {
            "the peer did not offer Multipath TCP, or its offer was stripped on the way"
        }
        PlainReason::NotInSynAck => {
            "the peer does not speak Multipath TCP, or its answer was stripped on the way"
        }
        PlainReason::SynDropped => "something on the way drops SYNs that offer Multipath TCP",
        PlainReason::NotInAck => "the options of the handshake's last segment were stripped on the way",
        PlainReason::NoDss => "the options of data segments are stripped on the way",
        PlainReason::Unsupported => "the peer asks for a kind of Multipath TCP that is unknown here",
        PlainReason::ChecksumFailed => "data was changed on the way, and there was no other path",
        PlainReason::PeerFellBack => "the peer fell back",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plait_host::{
        Negotiated, Path, PathClass, PlainReason, ScrambleStart, ScrambleStatus, Status, StatusCounters,
        TrustedPaths,
    };

    use super::{Report, amount};

    fn path(name: &str, id: u8) -> Path {
        Path {
            id: plait_host::PathId(id),
            name: name.to_owned(),
            class: PathClass::Trusted,
            backup: false,
            v4: None,
            v6: None,
            public_v4: None,
            public_v6: None,
            mtu: 1500,
            up: true,
        }
    }

    fn status(negotiated: Negotiated) -> Status {
        Status {
            negotiated,
            scrambling: None,
            sealed: None,
            attempts: Vec::new(),
            subflows: Vec::new(),
            bytes_delivered: 3 << 20,
            bytes_read: 512,
            age: Duration::from_millis(2500),
            counters: StatusCounters { stalls: 2, ..StatusCounters::default() },
        }
    }

    #[test]
    fn people_read_what_was_agreed_on_and_why_not_more() {
        let paths = [path("eth0", 0), path("wlan0", 1)];
        let multipath = Negotiated::Multipath { version: 1, checksum: true };
        let text = Report::new(&paths, None, &status(multipath)).words(multipath);
        let first = "plait: connection: Multipath TCP version 1, with data checksums; sent 3.0 MiB, received 512 B in 2.5 s\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("\n  wlan0  up "), "{text}");
        assert!(text.ends_with("\n  counted: stalls 2\n"), "{text}");
        let plain = Negotiated::Plain(PlainReason::NotInSynAck);
        let text = Report::new(&paths, None, &status(plain)).words(plain);
        assert!(text.contains("plain TCP: the peer does not speak Multipath TCP"), "{text}");
    }

    #[test]
    fn scrambling_is_never_called_more_than_it_is() {
        let negotiated = Negotiated::Multipath { version: 2, checksum: false };
        let scrambling = ScrambleStatus {
            start: ScrambleStart::Key8,
            trusted: TrustedPaths::Gone,
            stalled: false,
            degraded: 2048,
        };
        let status = Status { scrambling: Some(scrambling), ..status(negotiated) };
        let report = Report::new(&[path("eth0", 0)], None, &status);
        let text = report.words(negotiated);
        let words = "\n  scrambled (obfuscation, not encryption); DEGRADED: 2.0 KiB over untrusted paths";
        assert!(text.contains(words) && !text.contains("not sealed"), "{text}");
        let value = serde_json::to_value(&report).expect("JSON");
        assert_eq!(
            (&value["sealed"], &value["scrambling"]["start"]),
            (&serde_json::Value::Null, &"key8".into())
        );
        assert_eq!(value["paths"][0]["class"], "trusted");
    }

    #[test]
    fn programs_read_one_object_in_a_line() {
        let report = Report::new(&[path("eth0", 0)], None, &status(Negotiated::Plain(PlainReason::NoDss)));
        let line = serde_json::to_string(&report).expect("JSON");
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["negotiated"], "plain");
        assert_eq!(value["reason"], "no-dss");
        assert_eq!(value["paths"][0]["name"], "eth0");
    }

    #[test]
    fn amounts_have_the_unit_that_fits() {
        assert_eq!(amount(0), "0 B");
        assert_eq!(amount(1023), "1023 B");
        assert_eq!(amount(1536), "1.5 KiB");
        assert_eq!(amount(u64::MAX), "16777216.0 TiB");
    }
}
