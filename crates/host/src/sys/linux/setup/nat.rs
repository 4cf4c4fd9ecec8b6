//! Address translation: the stack's private addresses become those of the devices, and back.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::addresses::Subnets;
use super::command::{run, run_with_input, try_run};
use crate::error::Error;
use crate::sys::linux::tun::NAME_PREFIX;

/// Our tables are called this and the number of their device.
const TABLE_PREFIX: &str = "plait-";

/// One table of nftables; everything of ours is in it, and nothing of others is touched.
#[derive(Debug)]
pub(super) struct Nat {
    table: String,
    number: u8,
    subnets: Subnets,
    paths: Vec<Translation>,
    router: RouterV6,
    /// The table as `nft` lists it while it is whole.
    whole: String,
}

/// What the rules need to know about a path.
#[derive(Clone, Debug)]
pub(super) struct Translation {
    pub(super) device: String,
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
}

/// Whether this host was a router for IPv6 before we came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RouterV6 {
    /// Only our devices forward, or all did already.
    Untouched,
    /// We had to switch forwarding on for all devices: all but ours is to stay as it was.
    MadeByUs,
}

impl Nat {
    /// Installs the table in one transaction.
    pub(super) fn install(
        number: u8,
        subnets: Subnets,
        paths: Vec<Translation>,
        router: RouterV6,
    ) -> Result<Self, Error> {
        let table = table_name(number);
        let mut nat = Self { table, number, subnets, paths, router, whole: String::new() };
        nat.put(&BTreeSet::new(), &BTreeSet::new())?;
        Ok(nat)
    }

    /// Whether the table is there with all its chains and rules: whoever flushes the ruleset, as a firewall does that is
    /// loaded anew, removes it.
    pub(super) fn is_whole(&self) -> Result<bool, Error> {
        match list(&self.table) {
            Ok(listing) => Ok(listing == self.whole),
            Err(Error::Program { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Installs the table, in place of the one that is there if there is one, in one transaction. Connections to the
    /// ports `listening` are the stack's, and joins to the ports `opened` that it has opened connections from.
    pub(super) fn put(&mut self, listening: &BTreeSet<u16>, opened: &BTreeSet<u16>) -> Result<(), Error> {
        run_with_input("nft", "-f -", &self.ruleset(listening, opened))?;
        self.whole = match list(&self.table) {
            Ok(listing) => listing,
            // It is gone again already. No listing is empty: the next look, which the announcement of that leads to, finds
            // it missing.
            Err(Error::Program { .. }) => String::new(),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Connections to `port` of the paths' devices are the stack's from now on.
    pub(super) fn open(&self, port: u16) -> Result<(), Error> {
        run("nft", &format!("add element inet {} listening {{ {port} }}", self.table)).map(drop)
    }

    /// New connections to `port` are the kernel's again.
    pub(super) fn close(&self, port: u16) {
        try_run("nft", &format!("delete element inet {} listening {{ {port} }}", self.table));
    }

    pub(super) fn remove(&self) {
        try_run("nft", &format!("delete table inet {}", self.table));
    }

    fn ruleset(&self, listening: &BTreeSet<u16>, opened: &BTreeSet<u16>) -> String {
        let Self { table, number, subnets, paths, router, whole: _ } = self;
        let (v4, v6) = (subnets.v4(), subnets.v6());
        let tun = format!("{NAME_PREFIX}{number}");
        let (mut arriving, mut leaving, mut own) = (String::new(), String::new(), String::new());
        // This host's own programs come to any of its addresses, and always over the first path.
        if let Some(Translation { v4, v6, .. }) = paths.first() {
            let own_port = "fib daddr type local tcp dport @listening";
            let _ = writeln!(own, "  ip daddr != 127.0.0.0/8 {own_port} dnat ip to {v4}");
            let _ = writeln!(own, "  ip6 daddr != ::1 {own_port} dnat ip6 to {v6}");
        }
        for Translation { device, v4, v6 } in paths {
            let ours = format!("iifname \"{device}\" fib daddr type local");
            // A join (subtype 1, RFC 8684, section 8) that the peer starts goes to the port that the first subflow came from.
            for ports in ["tcp dport @listening", "tcp option mptcp subtype 1 tcp dport @opened"] {
                let _ = writeln!(arriving, "  {ours} {ports} dnat ip to {v4}");
                let _ = writeln!(arriving, "  {ours} {ports} dnat ip6 to {v6}");
            }
            let _ = writeln!(leaving, "  ip saddr {v4} oifname \"{device}\" masquerade");
            let _ = writeln!(leaving, "  ip6 saddr {v6} oifname \"{device}\" masquerade");
        }
        let not_a_router = match router {
            RouterV6::Untouched => "",
            RouterV6::MadeByUs => "  meta nfproto ipv6 iifname != \"plait*\" oifname != \"plait*\" drop\n",
        };
        // Destination addresses change before routing (-100), source addresses after it (100); what still has a
        // private source then (300) could not be translated, and nobody could answer it.
        // To be replaced it has to be there: it is added before it is deleted.
        let (listening, opened) = (elements(listening), elements(opened));
        format!(
            "table inet {table} {{ }}
delete table inet {table}
table inet {table} {{
 set listening {{ type inet_service;{listening} }}
 set opened {{ type inet_service; flags dynamic,timeout; timeout {OPENED_TIMEOUT}; size 65535;{opened} }}
 chain arriving {{
  type nat hook prerouting priority -100; policy accept;
{arriving} }}
 chain own {{
  type nat hook output priority -100; policy accept;
{own} }}
 chain forwarded {{
  type filter hook forward priority -10; policy accept;
{not_a_router}  iifname \"{tun}\" tcp flags & (syn | ack) == syn update @opened {{ tcp sport }}
 }}
 chain leaving {{
  type nat hook postrouting priority 100; policy accept;
{leaving} }}
 chain astray {{
  type filter hook postrouting priority 300; policy accept;
  ip saddr {v4} oifname != \"{tun}\" drop
  ip6 saddr {v6} oifname != \"{tun}\" drop
 }}
}}
"
        )
    }
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

/// How long a port that the stack has opened a connection from can be joined from outside: as long as
/// anybody keeps one open, and yet not for ever.
const OPENED_TIMEOUT: &str = "7d";

/// The chains and rules of a table, without what changes by itself.
fn list(table: &str) -> Result<String, Error> {
    run("nft", &format!("--stateless --terse list table inet {table}"))
}

/// The elements that a set begins with.
fn elements(ports: &BTreeSet<u16>) -> String {
    if ports.is_empty() {
        return String::new();
    }
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    format!(" elements = {{ {} }}", ports.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::Ranges;

    fn text(number: u8, subnets: Subnets, paths: Vec<Translation>, router: RouterV6) -> String {
        let nat = Nat { table: table_name(number), number, subnets, paths, router, whole: String::new() };
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
            })
            .collect();
        let text = text(2, subnets, paths, RouterV6::Untouched);
        assert!(text.contains("ip saddr 198.18.2.10 oifname \"eth0\" masquerade"), "{text}");
        assert!(text.contains("ip saddr 198.18.2.11 oifname \"wlan0\" masquerade"), "{text}");
        assert!(text.contains("ip saddr 198.18.2.0/24 oifname != \"plait2\" drop"), "{text}");
        assert!(text.contains("set listening { type inet_service; elements = { 443, 7443 } }"), "{text}");
        assert!(!text.contains("nfproto"), "what was no router's business stays so: {text}");
    }

    #[test]
    fn a_host_that_was_no_router_does_not_become_one_for_others() {
        let subnets = Subnets::choose(&Ranges::default(), 0, &[]).expect("free");
        let text = text(0, subnets, Vec::new(), RouterV6::MadeByUs);
        assert!(text.contains("iifname != \"plait*\" oifname != \"plait*\" drop"), "{text}");
    }
}
