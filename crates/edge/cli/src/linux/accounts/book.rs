//! The contents of a file of accounts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The file of accounts.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Accounts {
    /// By the fingerprint of the key: a client cannot choose that of another one.
    pub(crate) clients: BTreeMap<String, Account>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    /// The last name of the client.
    #[serde(default)]
    pub(crate) name: String,
    /// By the month, as `2026-11`.
    pub(crate) months: BTreeMap<String, Month>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Month {
    /// Connections with a request.
    pub(crate) connections: u64,
    /// Bytes from the client.
    pub(crate) received: u64,
    /// Bytes to the client.
    pub(crate) sent: u64,
}

impl Accounts {
    /// Adds to the month of a client.
    pub(crate) fn add(&mut self, key: &str, name: &str, month: &str, added: Month) {
        let account = self.clients.entry(key.to_owned()).or_default();
        name.clone_into(&mut account.name);
        let sum = account.months.entry(month.to_owned()).or_default();
        sum.connections = sum.connections.saturating_add(added.connections);
        sum.received = sum.received.saturating_add(added.received);
        sum.sent = sum.sent.saturating_add(added.sent);
    }

    /// Drops the oldest months of all clients until at most this many are left.
    pub(crate) fn shorten(&mut self, most: usize) {
        let count =
            |accounts: &Self| accounts.clients.values().map(|account| account.months.len()).sum::<usize>();
        while count(self) > most {
            let oldest =
                self.clients.values().filter_map(|account| account.months.keys().next()).min().cloned();
            let Some(oldest) = oldest else { return };
            for account in self.clients.values_mut() {
                account.months.remove(&oldest);
            }
            self.clients.retain(|_, account| !account.months.is_empty());
        }
    }
}
