//! What killed hosts have left in this network namespace, removed without a new host.

use std::collections::BTreeMap;

use netlink_bindings::rt_rule::{self, FibRuleHdr};

use super::super::netlink::Netlink;
use super::path_tables::PROTOCOL;
use super::sweep;
use super::sysctl::Journal;
use crate::error::Error;
use crate::sys::linux::NAME_PREFIX;
use crate::sys::linux::setup::command::run;
use crate::sys::linux::setup::snapshot::{Family, Snapshot};

/// Removes the tables of nftables, the rules and tables of routing, and the changed kernel settings of hosts over TCP that were killed. Those of
/// running hosts stay. Returns what was removed, a few words each.
///
/// # Errors
/// The programs `ip` and `nft` cannot be run, or the kernel does not answer questions about its devices and routes.
pub fn remove_leftovers() -> Result<Vec<String>, Error> {
    let journal = Journal::open()?;
    let _turn = Journal::turn();
    let before = traces(&journal)?;
    sweep(&Snapshot::take()?, None, &journal)?;
    let after = traces(&journal)?;
    let gone = before.into_iter().filter_map(|(what, count)| {
        let removed = count.saturating_sub(after.get(&what).copied().unwrap_or_default());
        match removed {
            0 => None,
            1 => Some(what),
            _ => Some(format!("{what} ({removed})")),
        }
    });
    Ok(gone.collect())
}

/// What hosts have in this namespace, and how often.
fn traces(journal: &Journal) -> Result<BTreeMap<String, usize>, Error> {
    let mut traces = BTreeMap::new();
    let tables = run("nft", "list tables inet")?;
    for table in tables.lines().filter_map(|line| line.split_whitespace().last()) {
        let name = table.strip_prefix(NAME_PREFIX).and_then(|rest| rest.strip_prefix('-'));
        if name.is_some_and(|name| name == "guard" || name.parse::<u8>().is_ok()) {
            traces.insert(format!("table inet {table}"), 1);
        }
    }
    for family in Family::BOTH {
        let header = FibRuleHdr { family: family.number(), ..FibRuleHdr::new() };
        let question = rt_rule::Request::new().op_getrule_dump(&header);
        let ours = Netlink::open()?.ask(&question, |(header, facts)| {
            (header.family == family.number() && facts.get_protocol() == Ok(PROTOCOL)).then_some(())
        })?;
        traces.insert(format!("routing rules (ip {} rule)", family.option()), ours.len());
    }
    traces.insert("changed kernel settings".to_owned(), journal.noted("1").len() + journal.noted("2").len());
    Ok(traces)
}
