//! What killed hosts have left in this network namespace, removed without a new host.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::path_tables::PROTOCOL;
use super::script::ip_json;
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
    #[derive(Deserialize)]
    struct Rule {
        #[serde(default)]
        protocol: Option<String>,
    }
    let mut traces = BTreeMap::new();
    let tables = run("nft", "list tables inet")?;
    for table in tables.lines().filter_map(|line| line.split_whitespace().last()) {
        let name = table.strip_prefix(NAME_PREFIX).and_then(|rest| rest.strip_prefix('-'));
        if name.is_some_and(|name| name == "guard" || name.parse::<u8>().is_ok()) {
            traces.insert(format!("table inet {table}"), 1);
        }
    }
    for family in Family::BOTH {
        let rules: Vec<Rule> = ip_json(&format!("{} rule show", family.option()))?;
        let ours = PROTOCOL.to_string();
        let count = rules.iter().filter(|rule| rule.protocol.as_ref() == Some(&ours)).count();
        traces.insert(format!("routing rules (ip {} rule)", family.option()), count);
    }
    traces.insert("changed kernel settings".to_owned(), journal.noted("1").len() + journal.noted("2").len());
    Ok(traces)
}
