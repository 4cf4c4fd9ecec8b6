//! A connection in words and a table, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::shown::shown;

use super::datagrams::DatagramReport;
use super::report::{PathReport, Report, ScrambleReport, SealedReport};

impl Report {
    /// For people.
    pub(super) fn words(&self) -> String {
        let what = match (&self.version, &self.explanation) {
            (Some(version), _) => {
                format!(
                    "Multipath TCP version {version}{}",
                    if self.checksum { ", with data checksums" } else { "" }
                )
            }
            (None, Some(explanation)) => format!("plain TCP: {explanation}"),
            (None, None) => "not yet open".to_owned(),
        };
        let mut peer = self.peer.map(|peer| format!(" with {peer}")).unwrap_or_default();
        if let Some(destination) = &self.destination {
            peer += &format!(", to {}", shown(destination));
        }
        let mut text = format!(
            "plait: connection{peer}: {what}; sent {}, received {} in {:.1} s\n",
            amount(self.bytes_delivered),
            amount(self.bytes_read),
            self.age_ms / 1000.0
        );
        match (&self.sealed, &self.scrambling) {
            (Some(sealed), _) => text += &sealed.words(),
            (None, Some(scrambling)) => text += &scrambling.words(),
            (None, None) => text += "  not sealed: each host on the path can read and change the bytes\n",
        }
        let header = [
            "PATH",
            "CARRIER",
            "STATE",
            "SUBFLOWS",
            "SENT",
            "RECEIVED",
            "SHARE",
            "RTT",
            "LOSS",
            "SENT AGAIN",
        ];
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
        for path in &self.paths {
            for (carrier, why) in &path.not_used {
                let _ = writeln!(text, "  {} by {}, not by {carrier}: {why}", path.name, path.carrier);
            }
        }
        let shared: BTreeSet<_> = self.paths.iter().filter_map(|path| path.shares_network.as_ref()).collect();
        for network in shared {
            let _ = writeln!(text, "  {network}");
        }
        text += &self.datagrams.as_ref().map_or_else(String::new, DatagramReport::words);
        text += &counted("counted", &self.counters);
        text += &self.host.as_ref().map_or_else(String::new, |host| counted("strangers", &host.strangers));
        text
    }
}

/// The non-zero counters, in a line.
fn counted(what: &str, counters: &BTreeMap<&'static str, u64>) -> String {
    let unusual = counters.iter().filter(|(_, count)| **count > 0);
    let words: Vec<_> = unusual.map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    if words.is_empty() { String::new() } else { format!("  {what}: {}\n", words.join(", ")) }
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
        let resumed = if self.resumed { " (resumed)" } else { "" };
        let peer = match self.peer.as_str() {
            "anonymous" => "encrypted, not authenticated".to_owned(),
            peer => format!("peer {peer}"),
        };
        let elsewhere = match (self.blocks_elsewhere, self.blocks_sealed + self.blocks_opened) {
            (0, _) => String::new(),
            (elsewhere, all) => format!(", {elsewhere} of {all} blocks by other threads"),
        };
        format!(
            "  sealed: {suite} after {handshake}{resumed}, {peer}, keys {}/{} with shares of {} paths{elsewhere}\n",
            self.generations[0],
            self.generations[1],
            self.mixed_paths[0].min(self.mixed_paths[1]),
        )
    }
}

impl PathReport {
    fn row(&self) -> [String; 10] {
        let state = match (self.up, self.backup) {
            (false, _) => "down",
            (true, true) => "backup",
            (true, false) => "up",
        };
        let subflows = match (self.subflows_open, self.subflows) {
            (open, all) if open == all => all.to_string(),
            (open, all) => format!("{open} of {all}"),
        };
        [
            self.name.clone(),
            self.carrier.clone(),
            state.to_owned(),
            subflows,
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::report::{HostReport, PathReport, Report, ScrambleReport};
    use super::amount;

    fn path(name: &str) -> PathReport {
        PathReport {
            name: name.to_owned(),
            carrier: "udp".to_owned(),
            class: "trusted".to_owned(),
            up: true,
            ..PathReport::default()
        }
    }

    fn report() -> Report {
        Report {
            negotiated: "multipath",
            version: Some(1),
            bytes_delivered: 3 << 20,
            bytes_read: 512,
            age_ms: 2500.0,
            counters: BTreeMap::from([("stalls", 2), ("bad_keys", 0)]),
            paths: vec![path("eth0"), path("wlan0")],
            ..Report::default()
        }
    }

    #[test]
    fn people_read_what_was_agreed_on_and_why_not_more() {
        let text = Report { checksum: true, ..report() }.words();
        let first = "plait: connection: Multipath TCP version 1, with data checksums; sent 3.0 MiB, received 512 B in 2.5 s\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("\n  wlan0  udp      up "), "{text}");
        assert!(text.ends_with("\n  counted: stalls 2\n"), "{text}");
        let explanation = Some("the peer fell back".to_owned());
        let text = Report { version: None, explanation, ..report() }.words();
        assert!(text.contains("plain TCP: the peer fell back"), "{text}");
    }

    #[test]
    fn subflows_that_have_ended_do_not_count_as_open() {
        let of = |name, subflows_open| PathReport { subflows: 14, subflows_open, ..path(name) };
        let text = Report { paths: vec![of("eth0", 1), of("wlan0", 14)], ..report() }.words();
        assert!(text.contains("eth0   udp      up     1 of 14 "), "{text}");
        assert!(text.contains("wlan0  udp      up     14 "), "{text}");
    }

    #[test]
    fn paths_that_count_as_one_are_named_once_with_the_reason() {
        let why = "eth0 and wlan0 count as one path: eth0 and wlan0 have the gateway 192.168.1.1 (02:00:00:00:00:0a)";
        let shared = |name| PathReport { shares_network: Some(why.to_owned()), ..path(name) };
        let report = Report { paths: vec![shared("eth0"), shared("wlan0"), path("wwan0")], ..report() };
        let text = report.words();
        assert_eq!(text.matches(&format!("\n  {why}\n")).count(), 1, "{text}");
        let value = serde_json::to_value(&report).expect("JSON");
        assert_eq!(value["paths"][1]["shares_network"], why);
        assert!(value["paths"][2]["shares_network"].is_null(), "{value}");
    }

    #[test]
    fn what_strangers_were_refused_is_told_to_people_and_to_programs() {
        let strangers = BTreeMap::from([("syn_cookies_sent", 7), ("unknown_token", 0)]);
        let now = BTreeMap::from([("connections", 1)]);
        let report = Report { host: Some(HostReport { now, strangers }), ..report() };
        let text = report.words();
        assert!(text.ends_with("\n  strangers: syn cookies sent 7\n"), "{text}");
        let value = serde_json::to_value(&report).expect("JSON");
        assert_eq!(value["host"]["strangers"]["syn_cookies_sent"], 7);
        assert_eq!(value["host"]["strangers"]["unknown_token"], 0, "programs get all of them");
        assert_eq!(value["host"]["now"]["connections"], 1);
    }

    #[test]
    fn scrambling_is_never_called_more_than_it_is() {
        let scrambling =
            ScrambleReport { start: "key8", trusted_paths: "gone", stalled: false, bytes_degraded: 2048 };
        let report = Report { scrambling: Some(scrambling), ..report() };
        let text = report.words();
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
        let report = Report { negotiated: "plain", reason: Some("no-dss"), ..report() };
        let line = serde_json::to_string(&report).expect("JSON");
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["negotiated"], "plain");
        assert_eq!(value["reason"], "no-dss");
        assert_eq!(value["paths"][0]["name"], "eth0");
        assert!(value.get("explanation").is_none(), "that is for people");
    }

    #[test]
    fn amounts_have_the_unit_that_fits() {
        assert_eq!(amount(0), "0 B");
        assert_eq!(amount(1023), "1023 B");
        assert_eq!(amount(1536), "1.5 KiB");
        assert_eq!(amount(u64::MAX), "16777216.0 TiB");
    }
}
