//! The options of `serve` about single clients.

use clap::Args;
use plait_proxy::clients::{AuthorizedClient, twins};

#[derive(Debug, Args)]
pub(crate) struct GuestOptions {
    /// A client to accept beside those in authorized_clients, as a line of that file has it: [allow=RULES] [expires=DATE] [connections=N]
    /// plait-ed25519 KEY NAME (repeatable; in a file, [[serve.client]]; in a variable, between semicolons).
    #[arg(long, value_name = "CLIENT", value_parser = client, conflicts_with = "anyone")]
    pub(crate) client: Vec<AuthorizedClient>,
}

impl GuestOptions {
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
