//! What holds for configurations and files of state. The fuzz targets and the replay of their corpora call the same functions, which return
//! whether anything was understood, so that a corpus can be seen to work.

use std::path::Path;

use crate::book::{Accounts, Month};
use crate::clients::CLIENT;
use crate::document::{Document, Section, Value};
use crate::volumes::{Volumes, merge};

/// The bytes of a configuration.
pub(crate) fn configuration(bytes: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(bytes) else { return false };
    let (document, problems) = Document::parse(Path::new("gw.toml"), text.to_owned());
    for problem in &problems {
        assert!(document.shown(problem).starts_with("gw.toml:"), "each mistake has a place");
    }
    let tables = document.commands.values().chain(document.servers.values());
    let sections: Vec<&Section> = tables.chain([&document.common, &document.hooks]).collect();
    for entry in sections.iter().flat_map(|section| &section.entries) {
        assert!(text.get(entry.key_at.clone()).is_some() && text.get(entry.value_at.clone()).is_some());
        assert!(document.line(&entry.value_at) <= text.lines().count().max(1));
        if let (CLIENT, Value::Many(lines)) = (entry.key.as_str(), &entry.value) {
            assert_eq!(lines.len(), entry.parts.len(), "each client has its place");
        }
    }
    problems.is_empty() && sections.iter().any(|section| !section.entries.is_empty())
}

/// The bytes of a file of state: `[which, bytes...]`.
pub(crate) fn state(input: &[u8]) -> bool {
    let [which, bytes @ ..] = input else { return false };
    if which % 2 == 0 { accounts(bytes) } else { volumes(bytes) }
}

fn accounts(bytes: &[u8]) -> bool {
    let Ok(mut accounts) = serde_json::from_slice::<Accounts>(bytes) else { return false };
    let written = serde_json::to_vec(&accounts).expect("JSON");
    assert_eq!(serde_json::from_slice::<Accounts>(&written).expect("as it is written"), accounts);
    let most = Month { connections: u64::MAX, received: u64::MAX, sent: u64::MAX };
    accounts.add("SHA256:x", "x", "2026-11", most);
    accounts.shorten(3);
    assert!(accounts.clients.values().map(|account| account.months.len()).sum::<usize>() <= 3);
    true
}

fn volumes(bytes: &[u8]) -> bool {
    let Ok(volumes) = serde_json::from_slice::<Volumes>(bytes) else { return false };
    let written = serde_json::to_vec(&volumes).expect("JSON");
    assert_eq!(serde_json::from_slice::<Volumes>(&written).expect("as it is written"), volumes);
    let unwritten = volumes.devices.keys().map(|name| (name.clone(), (name.clone(), u64::MAX))).collect();
    let mut all = volumes.clone();
    merge(&mut all, (&volumes, &unwritten, &volumes.counters));
    assert!(
        volumes.devices.iter().all(|(name, volume)| all.devices[name].bytes >= volume.bytes),
        "bytes are lost"
    );
    true
}
