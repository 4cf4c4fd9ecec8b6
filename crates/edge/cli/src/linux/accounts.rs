//! The accounts of clients: what each has carried in each month.
//!
//! The figures in memory count on ([`Tallies`]); what was added since the last write is added to the file, by this server or another one that
//! shares the file.

mod book;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use self::book::{Accounts, Month};
use crate::linux::state_file::StateFile;
use crate::linux::usage;
use crate::running::{Carried, Tallies};

/// Time between two writes of the file.
const WRITE_EVERY: Duration = Duration::from_secs(30);
/// The largest file that is read.
const MOST_BYTES: u64 = 32 << 20;
/// Most months of all clients together, about 100 bytes each: the oldest ones are dropped.
const MOST_MONTHS: usize = 100_000;

/// The writer of the file.
#[derive(Debug)]
pub(crate) struct Accounting {
    file: StateFile,
    tallies: Arc<Tallies>,
    /// What the file includes, by the bytes of the fingerprint.
    written: BTreeMap<[u8; 32], Carried>,
}

/// The place of the file: a name alone is in the directory of state.
pub(crate) fn place(file: &Path) -> PathBuf {
    if file.components().count() == 1 && file.is_relative() {
        usage::directory().join(file)
    } else {
        file.to_owned()
    }
}

/// The current month by UTC.
fn this_month() -> String {
    Timestamp::now().to_zoned(TimeZone::UTC).strftime("%Y-%m").to_string()
}

impl Accounting {
    /// Adds to this file. An invalid file is renamed, and counting begins at zero.
    pub(crate) fn open(file: &Path, tallies: Arc<Tallies>) -> Self {
        let (file, _): (_, Accounts) = StateFile::open(place(file), "the accounts of clients", MOST_BYTES);
        Self { file, tallies, written: BTreeMap::new() }
    }

    /// Writes now and then, and when this is dropped. Never returns.
    pub(crate) async fn keep(self) {
        let (mut look, mut accounting) = (interval(WRITE_EVERY), Some(self));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let Some(mut own) = accounting.take() else { return };
            // A disk may be slow. Nothing waits for it: no lock is held, and no thread of a connection writes.
            let written = spawn_blocking(move || {
                own.write(&this_month());
                own
            });
            accounting = written.await.ok();
        }
    }

    /// Adds to the file what was carried since the last time.
    fn write(&mut self, month: &str) {
        let now = self.tallies.carried();
        let added: Vec<_> = now
            .iter()
            .map(|(key, name, carried)| {
                let before = self.written.get(key.as_bytes()).copied().unwrap_or_default();
                (key.to_string(), name, since(before, *carried))
            })
            .filter(|(_, _, added)| *added != Month::default())
            .collect();
        if added.is_empty() {
            return;
        }
        let change = |all: &mut Accounts| {
            for (key, name, added) in &added {
                all.add(key, name, month, *added);
            }
            all.shorten(MOST_MONTHS);
        };
        if self.file.change(change).is_some() {
            self.written = now.into_iter().map(|(key, _, carried)| (*key.as_bytes(), carried)).collect();
        }
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        self.write(&this_month());
    }
}

fn since(before: Carried, now: Carried) -> Month {
    Month {
        connections: now.connections.saturating_sub(before.connections),
        received: now.received.saturating_sub(before.received),
        sent: now.sent.saturating_sub(before.sent),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plait::Fingerprint;

    use super::*;

    fn read(file: &Path) -> Accounts {
        serde_json::from_str(&fs::read_to_string(file).expect("read")).expect("JSON")
    }

    fn key(number: u8) -> Fingerprint {
        Fingerprint::new([number; 32])
    }

    #[test]
    fn each_byte_counts_once_in_its_month_over_restarts_and_beside_another_server() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("state/accounts.json");
        let start = || {
            let tallies = Arc::new(Tallies::default());
            (tallies.of(key(1), "ada"), Accounting::open(&file, tallies))
        };
        let (ada, mut one) = start();
        let served = ada.serves(None).expect("no limit");
        ada.receives(5);
        one.write("2026-11");
        one.write("2026-11");
        ada.sends(7);
        drop(served);
        one.write("2026-12");
        let (again, mut other) = start();
        again.receives(100);
        other.write("2026-12");
        ada.receives(1);
        one.write("2026-12");
        // At the end there is nothing more to add.
        drop((one, other));
        let account = &read(&file).clients[&key(1).to_string()];
        assert_eq!(account.name, "ada");
        let months: Vec<_> = account.months.iter().map(|(name, month)| (name.as_str(), *month)).collect();
        let month = |connections, received, sent| Month { connections, received, sent };
        assert_eq!(months, [("2026-11", month(1, 5, 0)), ("2026-12", month(0, 101, 7))]);
    }

    #[test]
    fn what_cannot_be_written_is_added_later_and_an_invalid_file_is_kept_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("accounts.json");
        fs::write(&file, "{ \"clients\": {").expect("cut");
        let tallies = Arc::new(Tallies::default());
        let ada = tallies.of(key(1), "ada");
        let mut accounting = Accounting::open(&file, tallies);
        assert_eq!(fs::read_to_string(file.with_extension("json.bad")).expect("kept"), "{ \"clients\": {");
        ada.receives(5);
        // Not a file to be replaced.
        fs::create_dir(&file).expect("made");
        accounting.write("2026-11");
        ada.receives(6);
        accounting.write("2026-11");
        fs::remove_dir(&file).expect("empty");
        accounting.write("2026-11");
        assert_eq!(read(&file).clients[&key(1).to_string()].months["2026-11"].received, 11);
    }

    #[test]
    fn the_oldest_months_are_dropped_and_two_clients_of_one_name_have_two_accounts() {
        let mut accounts = Accounts::default();
        let carried = Month { connections: 1, received: 1, sent: 1 };
        for month in ["2026-11", "2026-10", "2026-12"] {
            for key in ["SHA256:a", "SHA256:b"] {
                accounts.add(key, "ada", month, carried);
            }
        }
        accounts.add("SHA256:c", "gone", "2026-10", carried);
        accounts.shorten(5);
        let months: Vec<_> = accounts.clients.values().map(|account| account.months.len()).collect();
        assert_eq!(months, [2, 2], "two clients, each with the last two months");
    }
}
