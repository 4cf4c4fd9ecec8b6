//! Address translation: the stack's private addresses become those of the devices, and back.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::script::{run_with_input, try_run};
use super::subnets::Subnets;
use crate::error::Error;
use crate::sys::linux::NAME_PREFIX;
use crate::sys::linux::setup::command::run;

/// The prefix of our tables; the number of their device follows.
const TABLE_PREFIX: &str = "plait-";

/// One table of nftables with all our rules; the tables of others are not touched.
#[derive(Debug)]
pub(super) struct Nat {
    table: String,
    number: u8,
    subnets: Subnets,
    paths: Vec<Translation>,
    /// The table as `nft` lists it while it is complete.
    whole: String,
}

/// The facts about a path for the rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Translation {
    pub(super) device: String,
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
    /// The address to translate to, if all that the device has are deprecated: the kernel would take a preferred one of another device.
    pub(super) deprecated: Option<Ipv6Addr>,
}

impl Nat {
    /// Installs the table in one transaction.
    pub(super) fn install(number: u8, subnets: Subnets, paths: Vec<Translation>) -> Result<Self, Error> {
        let table = table_name(number);
        let mut nat = Self { table, number, subnets, paths, whole: String::new() };
        nat.put(&BTreeSet::new(), &BTreeSet::new(), "")?;
        Ok(nat)
    }

    /// Whether the table exists with all its chains and rules. A program that flushes the ruleset, such as a firewall that
    /// reloads, removes it.
    pub(super) fn is_whole(&self) -> Result<bool, Error> {
        match list(&self.table) {
            Ok(listing) => Ok(listing == self.whole),
            Err(Error::Program { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Installs the table, or replaces it, in one transaction. Connections to the ports `listening` are the stack's, and so are
    /// joins to the ports `opened` that it has opened connections from. `others` are added in the same transaction.
    pub(super) fn put(
        &mut self,
        listening: &BTreeSet<u16>,
        opened: &BTreeSet<u16>,
        others: &str,
    ) -> Result<(), Error> {
        run_with_input("nft", "-f -", &(others.to_owned() + &self.ruleset(listening, opened)))?;
        self.whole = match list(&self.table) {
            Ok(listing) => listing,
            // The table is gone again. No listing is empty: the next look, triggered by that announcement, finds it missing.
            Err(Error::Program { .. }) => String::new(),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Redirects connections to `port` of the paths' devices to the stack from now on.
    pub(super) fn open(&self, port: u16) -> Result<(), Error> {
        run("nft", &format!("add element inet {} listening {{ {port} }}", self.table)).map(drop)
    }

    /// Leaves new connections to `port` to the kernel again.
    pub(super) fn close(&self, port: u16) {
        try_run("nft", &format!("delete element inet {} listening {{ {port} }}", self.table));
    }

    /// Translates for these paths from now on, in one transaction. What runs keeps its translation.
    ///
    /// # Errors
    /// The table is not there, or cannot be changed. Nothing has changed.
    pub(super) fn set_paths(&mut self, paths: Vec<Translation>) -> Result<(), Error> {
        if paths == self.paths {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.paths, paths);
        let changed = run_with_input("nft", "-f -", &self.changes()).and_then(|_| list(&self.table));
        match changed {
            Ok(listing) => {
                self.whole = listing;
                Ok(())
            }
            Err(error) => {
                self.paths = before;
                Err(error)
            }
        }
    }

    pub(super) fn remove(&self) {
        try_run("nft", &format!("delete table inet {}", self.table));
    }

    fn ruleset(&self, listening: &BTreeSet<u16>, opened: &BTreeSet<u16>) -> String {
        let Self { table, number, .. } = self;
        let tun = format!("{NAME_PREFIX}{number}");
        let Rules { stray, arriving, own, leaving, astray } = self.rules();
        let [stray, arriving, own, leaving, astray] =
            [stray, arriving, own, leaving, astray].map(|rules| rules.join("\n  "));
        let (listening, opened, deprecated) = (elements(listening), elements(opened), self.deprecated());
        // Destination addresses change before routing (-100), source addresses after it (100); what still has a
        // private source then (300) could not be translated: no answer would arrive. What has a private destination before
        // (-110) was sent by a neighbour that knows our addresses.
        // To be replaced it has to be there: it is added before it is deleted.
        format!(
            "table inet {table} {{ }}
delete table inet {table}
table inet {table} {{
 set listening {{ type inet_service;{listening} }}
 set opened {{ type inet_service; flags dynamic,timeout; timeout {OPENED_TIMEOUT}; size 65535;{opened} }}
 map deprecated {{ type ipv6_addr : ipv6_addr;{deprecated} }}
 chain stray {{
  type filter hook prerouting priority -110; policy accept;
  {stray}
 }}
 chain arriving {{
  type nat hook prerouting priority -100; policy accept;
  {arriving}
 }}
 chain own {{
  type nat hook output priority -100; policy accept;
  {own}
 }}
 chain forwarded {{
  type filter hook forward priority -10; policy accept;
  iifname \"{tun}\" tcp flags & (syn | ack) == syn update @opened {{ tcp sport }}
 }}
 chain leaving {{
  type nat hook postrouting priority 100; policy accept;
  {leaving}
 }}
 chain astray {{
  type filter hook postrouting priority 300; policy accept;
  {astray}
 }}
}}
"
        )
    }

    /// What changes a table that is there to that of these paths.
    fn changes(&self) -> String {
        let Self { table, .. } = self;
        let Rules { stray, arriving, own, leaving, astray: _ } = self.rules();
        let mut script = format!("flush map inet {table} deprecated\n");
        let deprecated = self.deprecated();
        if let Some((_, elements)) = deprecated.split_once('=') {
            let _ = writeln!(script, "add element inet {table} deprecated {elements}");
        }
        for (chain, rules) in [("stray", stray), ("arriving", arriving), ("own", own), ("leaving", leaving)] {
            let _ = writeln!(script, "flush chain inet {table} {chain}");
            for rule in rules {
                let _ = writeln!(script, "add rule inet {table} {chain} {rule}");
            }
        }
        script
    }

    /// The initial elements of the map of that name.
    fn deprecated(&self) -> String {
        let deprecated = |path: &Translation| Some(format!("{} : {}", path.v6, path.deprecated?));
        elements(&self.paths.iter().filter_map(deprecated).collect::<BTreeSet<String>>())
    }

    /// The rules of the chains.
    fn rules(&self) -> Rules {
        let Self { number, subnets, paths, .. } = self;
        let (v4, v6) = (subnets.v4(), subnets.v6());
        let tun = format!("{NAME_PREFIX}{number}");
        let mut rules = Rules {
            stray: vec![
                format!("ip daddr {v4} iifname != \"{tun}\" drop"),
                format!("ip6 daddr {v6} iifname != \"{tun}\" drop"),
            ],
            astray: vec![
                format!("ip saddr {v4} oifname != \"{tun}\" drop"),
                format!("ip6 saddr {v6} oifname != \"{tun}\" drop"),
            ],
            ..Rules::default()
        };
        // This host's own programs reach all its addresses, and always over the first path.
        if let Some(Translation { v4, v6, .. }) = paths.first() {
            let own_port = "fib daddr type local tcp dport @listening";
            rules.own.push(format!("ip daddr != 127.0.0.0/8 {own_port} dnat ip to {v4}"));
            rules.own.push(format!("ip6 daddr != ::1 {own_port} dnat ip6 to {v6}"));
        }
        paths.iter().for_each(|path| path.add_to(&mut rules));
        rules
    }
}

impl Translation {
    /// Adds the rules for this path.
    fn add_to(&self, Rules { stray, arriving, own: _, leaving, astray: _ }: &mut Rules) {
        let Self { device, v4, v6, deprecated: _ } = self;
        let ours = format!("iifname \"{device}\" fib daddr type local");
        // Chains of type nat do not see packets that connection tracking calls invalid. The host's own TCP would answer them
        // with a reset of an unknown connection; the stack answers as RFC 9293 and RFC 5961 say.
        for ports in ["@listening", "@opened"] {
            let invalid = format!("{ours} ct state invalid tcp dport {ports}");
            stray.push(format!("meta nfproto ipv4 {invalid} ip daddr set {v4}"));
            stray.push(format!("meta nfproto ipv6 {invalid} ip6 daddr set {v6}"));
        }
        // A join (subtype 1, RFC 8684, section 8) that the peer starts goes to the port of the first subflow.
        for ports in ["tcp dport @listening", "tcp option mptcp subtype 1 tcp dport @opened"] {
            arriving.push(format!("{ours} {ports} dnat ip to {v4}"));
            arriving.push(format!("{ours} {ports} dnat ip6 to {v6}"));
        }
        leaving.push(format!("ip saddr {v4} oifname \"{device}\" masquerade"));
        leaving.push(format!("ip6 saddr {v6} oifname \"{device}\" snat ip6 to ip6 saddr map @deprecated"));
        leaving.push(format!("ip6 saddr {v6} oifname \"{device}\" masquerade"));
    }
}

/// The rules of the chains with this name.
#[derive(Default)]
struct Rules {
    stray: Vec<String>,
    arriving: Vec<String>,
    own: Vec<String>,
    leaving: Vec<String>,
    astray: Vec<String>,
}

/// Removes the tables of devices with these numbers.
pub(super) fn remove_tables_of(is_stale: impl Fn(u8) -> bool) -> Result<(), Error> {
    let tables = run("nft", "list tables inet")?;
    for line in tables.lines() {
        let name = line.split_whitespace().last().unwrap_or_default();
        let number = name.strip_prefix(TABLE_PREFIX).and_then(|number| number.parse().ok());
        if number.is_some_and(&is_stale) {
            try_run("nft", &format!("delete table inet {name}"));
        }
    }
    Ok(())
}

fn table_name(number: u8) -> String {
    format!("{TABLE_PREFIX}{number}")
}

/// How long a port that the stack has opened a connection from can be joined from outside: as long as a connection lasts in
/// practice, and yet not for ever.
const OPENED_TIMEOUT: &str = "7d";

/// The chains and rules of a table, without the parts that change by themselves.
fn list(table: &str) -> Result<String, Error> {
    run("nft", &format!("--stateless --terse list table inet {table}"))
}

/// The initial elements of a set.
fn elements(all: &BTreeSet<impl ToString>) -> String {
    if all.is_empty() {
        return String::new();
    }
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    format!(" elements = {{ {} }}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::Ranges;

    fn text(number: u8, subnets: Subnets, paths: Vec<Translation>) -> String {
        let nat = Nat { table: table_name(number), number, subnets, paths, whole: String::new() };
        nat.ruleset(&BTreeSet::from([443, 7443]), &BTreeSet::new())
    }

    #[test]
    fn each_path_leaves_by_its_own_device_only() {
        let subnets = Subnets::choose(&Ranges::default(), 2, &[]).expect("free");
        let paths: Vec<_> = ["eth0", "wlan0"]
            .into_iter()
            .zip(0..)
            .map(|(device, path)| Translation {
                device: device.to_owned(),
                v4: subnets.stack_v4(path),
                v6: subnets.stack_v6(path),
                deprecated: (path == 1).then_some("2001:db8::9".parse().expect("an address")),
            })
            .collect();
        let text = text(2, subnets, paths);
        assert!(text.contains("ip saddr 198.18.2.10 oifname \"eth0\" masquerade"), "{text}");
        assert!(text.contains("ip saddr 198.18.2.11 oifname \"wlan0\" masquerade"), "{text}");
        assert!(text.contains("elements = { fd70:6c61:6974:2::b : 2001:db8::9 }"), "{text}");
        assert!(text.contains("ip saddr 198.18.2.0/24 oifname != \"plait2\" drop"), "{text}");
        assert!(text.contains("set listening { type inet_service; elements = { 443, 7443 } }"), "{text}");
    }
}
