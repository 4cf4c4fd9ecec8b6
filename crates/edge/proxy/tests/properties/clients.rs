//! What holds for a line of allowed clients, in `authorized_clients` or in the configuration. It returns whether the line names a client.

use crate::entry::AuthorizedClient;

/// The bytes of a line.
pub(crate) fn allowed_client(bytes: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(bytes) else { return false };
    let Ok(client) = text.parse::<AuthorizedClient>() else { return false };
    let written = client.to_string();
    let again: AuthorizedClient = written.parse().expect("it is written as it is read");
    assert_eq!(again, client, "{written}");
    assert!(!written.contains('\n'), "a name cannot begin another line");
    true
}
