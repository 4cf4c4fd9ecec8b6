//! Keeps the host from routing between its networks while the devices of its paths forward for the stack.
//!
//! Segments for the stack arrive on the device of a path, so that device must forward. The kernel would then forward everything else that
//! arrives there, too. Each device with forwarding switched on by us is therefore closed first: what arrives on it leaves by a TUN device
//! of ours or is dropped. A device that forwarded before is not closed.
//!
//! Two independent mechanisms close a device, because each of them can be removed by other programs:
//!
//! - a table of nftables, which drops in every case, and which a firewall removes when it is reloaded;
//! - a rule of policy routing per device, which drops before the kernel sends redirects and other errors of a router, and which
//!   network managers may remove.
//!
//! The guard is shared by all hosts of a network namespace. What it closes follows from the journal of settings alone
//! ([`Closed::noted_in`]), so all hosts put the same rules. The journal has an entry before a setting is changed and until it is put back;
//! the guard is there before the first change, and is removed after the last setting was put back. A killed host leaves all three.

use std::collections::BTreeSet;
use std::fmt::Write;

use netlink_bindings::rt_rule::{self, FibRuleHdr, FrAct};

use super::super::netlink::Netlink;
use super::path_tables::PROTOCOL;
use super::script::{run_with_input, try_run};
use super::sysctl::Journal;
use crate::error::Error;
use crate::log::debug;
use crate::sys::linux::NAME_PREFIX;
use crate::sys::linux::setup::command::run;
use crate::sys::linux::setup::snapshot::Family;

/// Not a number behind the prefix of our tables: no host takes it for the table of a killed one.
const TABLE: &str = "plait-guard";

/// Behind the rules that lead to the stack, before the main table and before the rules of VPNs.
const PREFERENCE: u32 = 7441;

/// The setting that makes all devices forward IPv6.
pub(super) const ALL_V6: &str = "net/ipv6/conf/all/forwarding";

/// Everything but local output; used where all devices forward.
const NOT_FROM_HERE: &str = "not iif lo";

/// The devices with closed forwarding: packets that arrive on them must not be forwarded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Closed {
    v4: BTreeSet<String>,
    v6: BTreeSet<String>,
    /// We switched forwarding of IPv6 on for all devices (before Linux 6.17).
    all_v6: bool,
}

/// The rules as they were put last.
#[derive(Default, Debug)]
pub(super) struct Guard {
    closed: Closed,
    /// The table as `nft` lists it while it is whole.
    whole: Option<String>,
}

impl Closed {
    /// The devices with forwarding switched on by us or by another host of ours.
    pub(super) fn noted_in(journal: &Journal) -> Self {
        let mut closed = Self::default();
        for name in journal.noted("1") {
            if name == ALL_V6 {
                closed.all_v6 = true;
            } else if let Some(device) = device_of(&name, V4).filter(|device| !is_ours(device)) {
                closed.v4.insert(device);
            } else if let Some(device) = device_of(&name, V6).filter(|device| !is_ours(device)) {
                closed.v6.insert(device);
            }
        }
        closed
    }

    fn is_empty(&self) -> bool {
        let Self { v4, v6, all_v6 } = self;
        v4.is_empty() && v6.is_empty() && !all_v6
    }

    /// The selectors of the routing rules for what comes in.
    fn selectors(&self, family: Family) -> BTreeSet<String> {
        let of = |devices: &BTreeSet<String>| devices.iter().map(|device| format!("iif {device}")).collect();
        match family {
            Family::V4 => of(&self.v4),
            Family::V6 if self.all_v6 => BTreeSet::from([NOT_FROM_HERE.to_owned()]),
            Family::V6 => of(&self.v6),
        }
    }

    /// The table, added to what is there or put in its place, for one transaction.
    fn script(&self) -> String {
        let both = self.v4.union(&self.v6);
        // A bridge passes packets between its ports, and to this chain if br_netfilter is in use. They are not routed.
        let bridged: BTreeSet<_> = both.map(|device| format!("\"{device}\" . \"{device}\"")).collect();
        let quoted =
            |devices: &BTreeSet<String>| devices.iter().map(|device| format!("\"{device}\"")).collect();
        let mut script = format!("add table inet {TABLE}\n");
        let sets: [(&str, &str, BTreeSet<String>); 3] = [
            ("v4", "ifname", quoted(&self.v4)),
            ("v6", "ifname", quoted(&self.v6)),
            ("bridged", "ifname . ifname", bridged),
        ];
        for (set, kind, elements) in sets {
            let _ = writeln!(
                script,
                "add set inet {TABLE} {set} {{ type {kind}; }}\nflush set inet {TABLE} {set}"
            );
            if !elements.is_empty() {
                let elements: Vec<_> = elements.into_iter().collect();
                let _ = writeln!(script, "add element inet {TABLE} {set} {{ {} }}", elements.join(", "));
            }
        }
        let out = format!("oifname != \"{NAME_PREFIX}*\"");
        let hook = "type filter hook forward priority -10; policy accept;";
        let _ = writeln!(
            script,
            "add chain inet {TABLE} forwarded {{ {hook} }}
flush chain inet {TABLE} forwarded
add rule inet {TABLE} forwarded iifname . oifname @bridged accept
add rule inet {TABLE} forwarded meta nfproto ipv4 iifname @v4 {out} drop
add rule inet {TABLE} forwarded meta nfproto ipv6 iifname @v6 {out} drop"
        );
        if self.all_v6 {
            let rule = format!("meta nfproto ipv6 iifname != \"{NAME_PREFIX}*\" {out} drop");
            let _ = writeln!(script, "add rule inet {TABLE} forwarded {rule}");
        }
        script
    }
}

impl Guard {
    /// Closes what `closed` says, and opens what it does not say any more. Does nothing where that is so already.
    pub(super) fn close(&mut self, closed: Closed) -> Result<(), Error> {
        if closed.is_empty() && self.closed.is_empty() {
            return Ok(());
        }
        for family in Family::BOTH {
            put_rules(family, &closed.selectors(family))?;
        }
        if closed == self.closed && self.whole.is_some() {
            return Ok(());
        }
        self.closed = closed;
        run_with_input("nft", "-f -", &self.closed.script())?;
        self.note_listing()
    }

    /// The table for a transaction that puts other rules of ours, too; behind it, [`Guard::note_listing`] is due.
    pub(super) fn script(&self) -> String {
        if self.closed.is_empty() { String::new() } else { self.closed.script() }
    }

    /// Notes how the table is listed that was put a moment ago.
    pub(super) fn note_listing(&mut self) -> Result<(), Error> {
        self.whole = list()?;
        Ok(())
    }

    /// Whether the table is there as it was put.
    pub(super) fn is_whole(&self) -> Result<bool, Error> {
        Ok(self.closed.is_empty() || (self.whole.is_some() && list()? == self.whole))
    }
}

/// Whether a device that is closed still forwards: another plait has switched that on, and has its notes elsewhere. For a service of systemd,
/// `/run/plait` is a directory of its own.
pub(super) fn is_needed(journal: &Journal) -> bool {
    let is_on = |setting: &str| journal.value(setting).as_deref() == Some("1");
    let forwards = |family: Family, selector: &str| match (selector.strip_prefix("iif "), family) {
        (None, _) => is_on(ALL_V6),
        (Some(device), Family::V4) => is_on(&setting(device, V4)),
        (Some(device), Family::V6) => is_on(&setting(device, V6)),
    };
    // Without an answer they stay closed.
    Family::BOTH.into_iter().any(|family| {
        rules(family).map_or(true, |closed| closed.iter().any(|selector| forwards(family, selector)))
    })
}

/// Removes the guard: nothing forwards any more that did not before.
pub(super) fn remove() {
    for family in Family::BOTH {
        if let Err(error) = put_rules(family, &BTreeSet::new()) {
            debug!(%error, "rules of the guard stay");
        }
    }
    try_run("nft", &format!("delete table inet {TABLE}"));
}

/// The table as `nft` lists it; none if there is none.
fn list() -> Result<Option<String>, Error> {
    match run("nft", &format!("--stateless list table inet {TABLE}")) {
        Ok(listing) => Ok(Some(listing)),
        Err(Error::Program { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the routing rules of the guard those with these selectors.
fn put_rules(family: Family, wanted: &BTreeSet<String>) -> Result<(), Error> {
    let present = rules(family)?;
    let rest = format!("blackhole preference {PREFERENCE} protocol {PROTOCOL}");
    let mut script = String::new();
    for selector in wanted.difference(&present) {
        let _ = writeln!(script, "rule add {selector} {rest}");
    }
    for selector in present.difference(wanted) {
        let _ = writeln!(script, "rule delete {selector} {rest}");
    }
    if script.is_empty() {
        return Ok(());
    }
    // -force: another host may be doing the same. What counts is what is there afterwards.
    let result = run_with_input("ip", &format!("{} -force -batch -", family.option()), &script);
    if wanted.is_subset(&rules(family)?) { Ok(()) } else { result.map(drop) }
}

/// The selectors of the rules that are there. Asked over netlink, because a look at them comes before each change and behind it.
fn rules(family: Family) -> Result<BTreeSet<String>, Error> {
    let header = FibRuleHdr { family: family.number(), ..FibRuleHdr::new() };
    let question = rt_rule::Request::new().op_getrule_dump(&header);
    let rules = Netlink::open()?.ask(&question, |(header, facts)| {
        let is_ours = header.family == family.number()
            && header.action == FrAct::Blackhole as u8
            && facts.get_priority() == Ok(PREFERENCE);
        let device = facts.get_iifname().ok().filter(|_| is_ours)?;
        Some(selector(device.to_str().ok()?))
    })?;
    Ok(rules.into_iter().collect())
}

/// The selector of a rule of the guard for what arrives on this device; for `lo`, the rule says that it is not this one.
fn selector(device: &str) -> String {
    if device == "lo" { NOT_FROM_HERE.to_owned() } else { format!("iif {device}") }
}

/// Before and behind the name of a device in the settings that make it forward.
pub(super) const V4: [&str; 2] = ["net/ipv4/conf/", "/forwarding"];
pub(super) const V6: [&str; 2] = ["net/ipv6/conf/", "/force_forwarding"];

/// The setting that makes a device forward.
pub(super) fn setting(device: &str, [before, behind]: [&str; 2]) -> String {
    format!("{before}{device}{behind}")
}

fn device_of(setting: &str, [before, behind]: [&str; 2]) -> Option<String> {
    setting.strip_prefix(before)?.strip_suffix(behind).map(str::to_owned)
}

/// Whether it is a TUN device of ours: only the stack sends by it.
fn is_ours(device: &str) -> bool {
    device.strip_prefix(NAME_PREFIX).is_some_and(|number| number.parse::<u8>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(v4: &[&str], v6: &[&str], all_v6: bool) -> Closed {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Closed { v4: set(v4), v6: set(v6), all_v6 }
    }

    #[test]
    fn the_settings_of_devices_close_them_and_those_of_our_own_do_not() {
        assert_eq!(device_of("net/ipv4/conf/eth0.7/forwarding", V4).as_deref(), Some("eth0.7"));
        assert_eq!(device_of("net/ipv6/conf/eth0/forwarding", V6), None, "it says nothing about forwarding");
        assert!(is_ours("plait0") && !is_ours("plait") && !is_ours("plaiting") && !is_ours("eth0"));
    }

    #[test]
    fn each_device_is_closed_for_the_families_that_it_was_opened_for() {
        let script = closed(&["eth0", "wlan0"], &["wlan0"], false).script();
        assert!(script.contains("plait-guard v4 { \"eth0\", \"wlan0\" }"), "{script}");
        assert!(script.contains("plait-guard v6 { \"wlan0\" }"), "{script}");
        assert!(script.contains("iifname @v4 oifname != \"plait*\" drop"), "{script}");
        assert!(!script.contains("iifname !="), "{script}");
    }

    #[test]
    fn where_all_devices_forward_all_are_closed() {
        let closed = closed(&["eth0"], &[], true);
        let script = closed.script();
        assert!(script.contains("ipv6 iifname != \"plait*\" oifname != \"plait*\" drop"), "{script}");
        assert_eq!(closed.selectors(Family::V6), BTreeSet::from(["not iif lo".to_owned()]));
        assert_eq!(closed.selectors(Family::V4), BTreeSet::from(["iif eth0".to_owned()]));
    }

    #[test]
    fn the_selectors_that_are_read_are_those_that_are_put() {
        let put = closed(&["eth0"], &["wlan0"], false);
        assert_eq!(put.selectors(Family::V4), BTreeSet::from([selector("eth0")]));
        assert_eq!(closed(&[], &[], true).selectors(Family::V6), BTreeSet::from([selector("lo")]));
    }
}
