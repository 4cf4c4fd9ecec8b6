//! The kernel's counters of one namespace.

use std::collections::BTreeMap;
use std::fs;

use crate::{Error, Namespace, Result};

/// All counters of `/proc/net/netstat`, `/proc/net/snmp` and `/proc/net/snmp6`, named as `nstat` names them (`MPTcpExtMPJoinSynRx`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// One counter; a counter this kernel does not have reads as zero.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// How much each counter grew since `earlier`. Gauges that fell (`MPCurrEstab`) read as zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(
            self.0
                .iter()
                .map(|(name, now)| (name.clone(), now.saturating_sub(earlier.count(name))))
                .collect(),
        )
    }

    /// The non-zero counters with names that begin with `prefix`, in alphabetical order, named without it.
    pub fn nonzero<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        self.0.iter().filter_map(move |(name, &count)| {
            let rest = name.strip_prefix(prefix)?;
            (count != 0).then_some((rest, count))
        })
    }

    /// Reads pairs of lines: the names of a group, then their values.
    fn add(&mut self, text: &str) {
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let Some((group, names)) = names.split_once(':') else { continue };
            let Some((_, values)) = values.split_once(':') else { continue };
            for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
                // `Tcp: MaxConn` is -1: not a count.
                if let Ok(value) = value.parse() {
                    self.0.insert(format!("{group}{name}"), value);
                }
            }
        }
    }

    /// Reads lines of a name and its value.
    fn add_lines(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) {
                self.0.insert(name.to_owned(), value);
            }
        }
    }
}

/// What one device counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Bytes that arrived.
    pub received_bytes: u64,
    /// Packets that arrived; a super-segment counts as one.
    pub received_packets: u64,
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Packets that left; a super-segment counts as one.
    pub sent_packets: u64,
}

impl Namespace {
    /// The protocol counters now.
    ///
    /// # Errors
    /// `/proc` is not readable.
    pub fn counters(&self) -> Result<Counters> {
        let mut counters = Counters::default();
        for file in ["netstat", "snmp"] {
            counters.add(&self.proc_net(file)?);
        }
        // Absent where the kernel has no IPv6.
        if let Ok(text) = self.proc_net("snmp6") {
            counters.add_lines(&text);
        }
        Ok(counters)
    }

    /// The counters of each device now.
    ///
    /// # Errors
    /// `/proc` is not readable.
    pub fn interface_counters(&self) -> Result<BTreeMap<String, InterfaceCounters>> {
        let text = self.proc_net("dev")?;
        Ok(text.lines().filter_map(interface_line).collect())
    }

    fn proc_net(&self, file: &str) -> Result<String> {
        let path = format!("/proc/thread-self/net/{file}");
        self.enter(|| fs::read_to_string(&path))?
            .map_err(|error| Error::system(format!("read {path}"), error))
    }
}

/// `name: rx-bytes rx-packets 6-more tx-bytes tx-packets ...`; the two heading lines have no colon before numbers.
fn interface_line(line: &str) -> Option<(String, InterfaceCounters)> {
    let (name, rest) = line.split_once(':')?;
    let numbers: Vec<u64> = rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[received_bytes, received_packets, _, _, _, _, _, _, sent_bytes, sent_packets, ..] =
        numbers.as_slice()
    else {
        return None;
    };
    Some((
        name.trim().to_owned(),
        InterfaceCounters { received_bytes, received_packets, sent_bytes, sent_packets },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_like_nstat_and_differences_never_underflow() {
        let mut before = Counters::default();
        before.add("TcpExt: A B\nTcpExt: 1 9\nMPTcpExt: JoinRx\nMPTcpExt: 4\nTcp: MaxConn\nTcp: -1\n");
        let mut after = before.clone();
        after.add("TcpExt: A B\nTcpExt: 3 2\n");
        let grown = after.since(&before);
        assert_eq!((grown.count("TcpExtA"), grown.count("TcpExtB")), (2, 0));
        assert_eq!(before.nonzero("MPTcpExt").collect::<Vec<_>>(), [("JoinRx", 4)]);
        assert_eq!(before.count("TcpMaxConn"), 0);
    }

    #[test]
    fn counters_of_ipv6_have_a_line_each() {
        let mut counters = Counters::default();
        counters.add_lines("Ip6InReceives                   \t10\nIp6InCEPkts                     \t3\n\n");
        assert_eq!((counters.count("Ip6InReceives"), counters.count("Ip6InCEPkts")), (10, 3));
    }

    #[test]
    fn device_lines_are_read_and_headings_skipped() {
        assert_eq!(interface_line(" face |bytes    packets errs"), None);
        let (name, counters) =
            interface_line("  p1: 10 2 0 0 0 0 0 0 30 4 0 0 0 0 0 0").expect("a device line");
        assert_eq!((name.as_str(), counters.received_bytes, counters.sent_packets), ("p1", 10, 4));
    }
}
