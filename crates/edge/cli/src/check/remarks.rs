//! The details of a path and carrier that have no place in the table.

use std::fmt::Write as _;

use super::{OptionReport, Way};

impl Way {
    /// Adds a line for each, and its fix.
    pub(super) fn remarks(&self, text: &mut String) {
        let place = format!("{} over {}", self.path, self.carrier);
        if let Some(reason) = &self.reason {
            let _ = writeln!(text, "{place}: {}", reason.replace('\n', "\n  "));
        }
        for OptionReport { option, change, at, certain } in &self.options {
            let at = match at.as_str() {
                "syn" => "in the SYN",
                "syn-ack" => "in the SYN/ACK",
                "later" => "behind the SYN/ACK",
                _ => "in the SYN or in the SYN/ACK",
            };
            let likely = if *certain { "" } else { ", as it seems" };
            let _ = writeln!(text, "{place}: {option} {change} {at}{likely}");
        }
        if let (Some(true), Some(seen), Some(local)) = (self.nat, &self.seen_from, &self.local) {
            let _ = writeln!(text, "{place}: a NAT makes {seen} of {local}");
        }
        let remarks = [self.about_forgetting_nat(), self.about_sizes().filter(|_| self.verdict == "usable")];
        for (remark, fix) in remarks.into_iter().flatten() {
            let _ = writeln!(text, "{place}: {remark}\n  fix: {fix}");
        }
    }

    fn about_forgetting_nat(&self) -> Option<(String, String)> {
        let keep_alive = "--keep-alive with fewer seconds than --idle had here";
        if let Some([before, after]) = &self.rebound {
            let remark = format!(
                "the NAT rebinds, as it seems: the server has seen {before} and does not know what came later; it sees {after} now"
            );
            return Some((remark, format!("a longer timeout for UDP at the NAT, or {keep_alive}")));
        }
        let words = "a NAT forgets the connection after some seconds of silence";
        (self.outlives_idle == Some(false)).then(|| (words.to_owned(), keep_alive.to_owned()))
    }

    fn about_sizes(&self) -> Option<(String, String)> {
        let (there, here) = (self.mtu?, self.received_mtu);
        let ends = self.link_mtu?.min(self.peer_link_mtu.unwrap_or(u16::MAX));
        let (narrow, wide, from, to) = match (self.narrows.as_deref(), here) {
            (Some("to-server"), Some(here)) => (there, here, "to the server", "from it"),
            (Some("from-server"), Some(here)) => (here, there, "from the server", "to it"),
            _ => return self.about_both_sizes(),
        };
        let remark = format!(
            "the path narrows in one direction: packets of {narrow} bytes come through {from}, and of {wide} {to}; the devices of both ends \
             take {ends}"
        );
        let fix = format!(
            "plait needs none; for other programs, ip link set dev {} mtu {narrow}, or a router that sends ICMP \"packet too big\"",
            self.path
        );
        Some((remark, fix))
    }

    fn about_both_sizes(&self) -> Option<(String, String)> {
        let (mtu, link) = (self.mtu?, self.link_mtu?);
        (mtu < link).then(|| {
            let remark = format!("packets of {mtu} bytes come through; the device takes {link}");
            let fix =
                format!("plait needs none; for other programs, ip link set dev {} mtu {mtu}", self.path);
            (remark, fix)
        })
    }
}
