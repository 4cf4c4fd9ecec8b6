//! The options of `serve` about single clients.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use plait_proxy::clients::{AuthorizedClient, twins};

use crate::linux::accounts::Accounting;
use crate::running::Tallies;

#[derive(Debug, Args)]
pub(crate) struct GuestOptions {
    /// A client to accept beside those in authorized_clients, as a line of that file has it: [allow=RULES] [expires=DATE] [connections=N]
    /// plait-ed25519 KEY NAME (repeatable; in a file, [[serve.client]]; in a variable, between semicolons).
    #[arg(long, value_name = "CLIENT", value_parser = client, conflicts_with = "anyone")]
    pub(crate) client: Vec<AuthorizedClient>,
    /// Add the connections and bytes of each client and month to FILE (JSON, docs/use.md). A name alone is in the directory of state,
    /// /var/lib/plait for root.
    #[arg(long, value_name = "FILE", conflicts_with = "anyone")]
    pub(crate) accounts: Option<PathBuf>,
}

impl GuestOptions {
    /// The writer of accounts, if they are kept.
    pub(crate) fn accounting(&self, tallies: &Arc<Tallies>) -> Option<Accounting> {
        self.accounts.as_ref().map(|file| Accounting::open(file, Arc::clone(tallies)))
    }

    /// Two clients that cannot be told apart.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let (first, second, what) = twins(&self.client).into_iter().next()?;
        let [first, second] = [first, second].map(|at| name(&self.client[at], at));
        Some(format!("--client: {first} and {second} have one {what}"))
    }
}

/// The client for people: its name, or else its place.
fn name(client: &AuthorizedClient, at: usize) -> String {
    match client.comment.as_str() {
        "" => format!("client number {}", at + 1),
        name => format!("client number {} ({name})", at + 1),
    }
}

fn client(text: &str) -> Result<AuthorizedClient, String> {
    let read = text.parse().and_then(|client: AuthorizedClient| client.check_name().map(|()| client));
    read.map_err(|error| format!("{error:#}"))
}
