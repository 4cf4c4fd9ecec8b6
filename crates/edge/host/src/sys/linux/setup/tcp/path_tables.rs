//! Policy routing: packets from the address of a path leave over that path's device, or not at all.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use netlink_bindings::rt_rule::{self, FibRuleHdr};

use super::super::addresses::Prefix;
use super::super::netlink::Netlink;
use super::super::routes::TABLES;
use super::super::snapshot::{Family, Snapshot};
use super::script::{run_batch, run_with_input};
use crate::error::Error;
use crate::ranges::MAX_PATHS;

/// Marks our rules and routes (`rtm_protocol`), so that leftovers differ from those of other programs.
pub(super) const PROTOCOL: u8 = 74;

/// Before the main table (32766) and before what VPNs put in front of it (wg-quick: 32764 and below).
const PREFERENCE: u32 = 7440;

/// The route of lowest preference: used if the device has no route to a destination. Without it the search
/// would continue in the main table, and the packet would leave over the device of another path.
const NO_WAY_OUT: &str = "unreachable default metric 4294967294";

/// The table of one path.
#[derive(Debug)]
pub(super) struct PathTable {
    device: String,
    number: u32,
    /// Routes in it, by family, so that routes that are gone elsewhere can be removed.
    installed: [BTreeSet<String>; 2],
    /// Whether the routes are those of another device, or of none yet.
    is_stale: bool,
}

impl PathTable {
    /// Adds the rules that send all packets from `addresses` to a table of its own, which has only the
    /// last-resort route.
    pub(super) fn install(
        device: &str,
        tun_number: u8,
        path: u8,
        addresses: [IpAddr; 2],
    ) -> Result<Self, Error> {
        let number = TABLES + u32::from(tun_number) * 256 + u32::from(path);
        for (family, address) in Family::BOTH.into_iter().zip(addresses) {
            let script = format!(
                "route replace {NO_WAY_OUT} table {number} protocol {PROTOCOL}\n\
                 rule add from {address} lookup {number} preference {PREFERENCE} protocol {PROTOCOL}\n"
            );
            if let Err(error) = run_batch(family, &script) {
                // A rule that stays would stop the next attempt.
                Family::BOTH.into_iter().for_each(|family| remove_table(family, number));
                return Err(error);
            }
        }
        Ok(Self { device: device.to_owned(), number, installed: Default::default(), is_stale: true })
    }

    /// Copies the routes over the device into the table, whichever table they are in; none if the path may not be used. Routes that vanished
    /// with their device are added when it returns; a route that stays is never absent in between.
    pub(super) fn refresh(&mut self, snapshot: &Snapshot, is_used: bool) {
        let number = self.number;
        self.is_stale = false;
        for (family, installed) in Family::BOTH.into_iter().zip(&mut self.installed) {
            let wanted = if is_used { snapshot.routes_over(&self.device, family) } else { Vec::new() };
            let mut script = String::new();
            for route in &wanted {
                let _ = writeln!(script, "route replace {route} table {number} protocol {PROTOCOL}");
            }
            let wanted: BTreeSet<String> = wanted.into_iter().collect();
            for route in installed.difference(&wanted) {
                let _ = writeln!(script, "route delete {route} table {number}");
            }
            if !script.is_empty() {
                // -force: a route that cannot be copied or is gone already does not stop the others.
                let words = format!("{} -force -batch -", family.option());
                if let Err(error) = run_with_input("ip", &words, &script) {
                    crate::log::debug!(%error, device = self.device, "some routes were not copied");
                }
            }
            *installed = wanted;
        }
    }

    /// Leads over this device, or nowhere, from the next refresh on.
    pub(super) fn lead_over(&mut self, device: &str, is_used: bool) {
        self.is_stale |= self.device != device || self.installed.iter().all(BTreeSet::is_empty) == is_used;
        device.clone_into(&mut self.device);
    }

    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    pub(super) fn remove(&self) {
        for family in Family::BOTH {
            remove_table(family, self.number);
        }
    }
}

/// The route to the stack: packets to its addresses are routed to the TUN device before any other rule
/// applies.
#[derive(Debug)]
pub(super) struct Entrance {
    number: u32,
}

/// Number of the table of that route, after those of the paths.
const ENTRANCE: u8 = u8::MAX;
const _: () = assert!(MAX_PATHS < ENTRANCE as usize);

impl Entrance {
    /// The route of a TUN device, which its [`Entrance::script`] makes.
    pub(super) fn of(tun_number: u8) -> Self {
        Self { number: TABLES + u32::from(tun_number) * 256 + u32::from(ENTRANCE) }
    }

    /// The commands of `ip` that route this subnet to the TUN device.
    pub(super) fn script(&self, device: &str, subnet: Prefix) -> String {
        let Self { number } = self;
        format!(
            "route replace {subnet} dev {device} table {number} protocol {PROTOCOL}\n\
             rule add to {subnet} lookup {number} preference {PREFERENCE} protocol {PROTOCOL}\n"
        )
    }

    pub(super) fn remove(&self) {
        for family in Family::BOTH {
            remove_table(family, self.number);
        }
    }
}

/// Removes the rules and tables of devices with these numbers.
pub(super) fn remove_tables_of(is_stale: impl Fn(u8) -> bool) -> Result<(), Error> {
    for family in Family::BOTH {
        for table in BTreeSet::from_iter(ruled_tables(family)?) {
            // Ours only: the preference and the range of numbers both fit.
            let Some(offset) = table.checked_sub(TABLES).filter(|offset| *offset < 1 << 16) else { continue };
            if is_stale((offset >> 8) as u8) {
                remove_table(family, table);
            }
        }
    }
    Ok(())
}

fn remove_table(family: Family, number: u32) {
    let script = format!("rule delete preference {PREFERENCE} lookup {number}\nroute flush table {number}\n");
    // -force: the table goes where the rule has gone already.
    if let Err(error) = run_with_input("ip", &format!("{} -force -batch -", family.option()), &script) {
        crate::log::debug!(%error, "not needed");
    }
}

/// The tables that rules of our preference choose.
fn ruled_tables(family: Family) -> Result<Vec<u32>, Error> {
    let header = FibRuleHdr { family: family.number(), ..FibRuleHdr::new() };
    let question = rt_rule::Request::new().op_getrule_dump(&header);
    Netlink::open()?.ask(&question, |(header, facts)| {
        let is_ours = header.family == family.number() && facts.get_priority() == Ok(PREFERENCE);
        facts.get_table().ok().filter(|_| is_ours)
    })
}
