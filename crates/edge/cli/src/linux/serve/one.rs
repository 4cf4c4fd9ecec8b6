//! One connection of a client of `serve`.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use plait::{Peer, Stream};
use plait_proxy::asked::{Asked, asked};
use plait_proxy::clients::AuthorizedClient;
use plait_proxy::convert::Destination;
use plait_proxy::serve::{Client, Outcome, serve};
use tokio::time::Instant;

use super::Shared;
use crate::linux::access::{self, Access};
use crate::running::End;
use crate::server_identity::shown_by;

/// Serves one connection to its end, and notes it in the log.
pub(super) async fn serve_one(shared: Arc<Shared>, mut stream: Stream) {
    let from = stream.peer_addr();
    let mut access = shared.access.begin(&stream);
    if let Some(wanted) = shared.at
        && stream.local_addr().ip() != wanted
    {
        access.ends(access::End::Refused, "it came to another address");
        return shared.refuse(&stream, "refused: it came to another address");
    }
    let refuse = |access: &mut Access, stream: &Stream| {
        access.ends(access::End::Refused, "not an authorized client any more");
        shared.refuse(stream, "refused: not an authorized client any more");
    };
    // The list may have changed since the client was judged, and may change while the connection waits.
    if shared.door.find(stream.peer_identity()).is_err() {
        return refuse(&mut access, &stream);
    }
    let (waiting, instance) = (shared.waiting.client(&stream), Some(shared.instance));
    let wait = || waiting.wait(shared.door.most());
    let request = asked(&mut stream, &shared.service(), instance, wait).await;
    drop(waiting);
    let Ok(client) = shared.door.find(stream.peer_identity()) else { return refuse(&mut access, &stream) };
    if let Ok(Asked::For(..) | Asked::Speaks(_)) = request {
        access.begins_now();
    }
    let named = client.as_ref().map(|client| client.comment.as_str()).filter(|name| !name.is_empty());
    if let Some(name) = named {
        access.comes_from(name);
    }
    if let Ok(Asked::Nothing) = request {
        access.hears(&Destination::Nowhere.to_string());
        access.is_complete((0, 0));
        return stream.status().iter().for_each(|status| shared.running.adds(status));
    }
    let listed = shared.running.list(stream.monitor(), Some(from));
    if let Some(name) = named {
        listed.comes_from(name);
    }
    let started = Instant::now();
    let as_seen = Client {
        instance,
        own_rules: client.as_ref().and_then(|client| client.allow.as_deref()),
        heard: &|destination| {
            listed.goes_to(destination);
            access.hears(destination);
        },
        silence: &shared.silence,
    };
    let outcome = match request {
        Ok(asked) => serve(&mut stream, asked, &shared.service(), as_seen).await,
        Err(error) => Err(error),
    };
    listed.ends(end_of(&outcome));
    let name = name_of(client.as_ref(), stream.peer_identity());
    log_end(&shared, &mut access, outcome, (from, &name, started.elapsed()));
    if let Some(status) = stream.status() {
        let mut reporter = shared.reporter.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = reporter.report(&shared.host, &listed.about(), &status) {
            tracing::warn!(%error, "no status");
        }
    }
}

/// Writes a line for each connection that has ended; of those that unknown peers can repeat as often as they like, for some.
fn log_end(
    shared: &Shared,
    access: &mut Access,
    outcome: io::Result<Outcome>,
    (from, client, took): (SocketAddr, &str, Duration),
) {
    let seconds = took.as_secs_f64();
    match outcome {
        Ok(Outcome::Complete { destination, received, sent }) => {
            access.is_complete((received, sent));
            tracing::info!(%from, client, destination, received, sent, seconds, "served");
        }
        Ok(Outcome::Refused { destination, code }) => {
            access.ends(access::End::Refused, code);
            if let Some(more_like_it) = shared.strangers.note("a client was refused") {
                tracing::info!(%from, client, destination, reason = %code, more_like_it, "a client was refused");
            }
        }
        Ok(Outcome::Exhausted { destination, error }) => {
            access.ends(access::End::Refused, &error);
            if let Some(more_like_it) = shared.strangers.note("nothing left to connect with") {
                tracing::warn!(%from, client, destination, %error, more_like_it, "a client was refused: nothing is left to connect with");
            }
        }
        Err(error) => {
            access.ends(access::End::Broken, &error);
            if let Some(more_like_it) = shared.strangers.note("a client's connection has ended early") {
                tracing::info!(%from, client, %error, seconds, more_like_it, "a client's connection has ended early");
            }
        }
    }
}

fn end_of<E>(outcome: &Result<Outcome, E>) -> End {
    match outcome {
        Ok(Outcome::Complete { .. }) => End::Complete,
        Ok(Outcome::Refused { .. }) => End::Refused,
        Ok(Outcome::Exhausted { .. }) => End::Exhausted,
        Err(_) => End::Failed,
    }
}

/// Returns the name of a client in the log: its name in authorized_clients, otherwise its key.
fn name_of(client: Option<&AuthorizedClient>, peer: &Peer) -> String {
    match (client, shown_by(peer)) {
        (Some(client), _) if !client.comment.is_empty() => client.comment.clone(),
        (_, Some(key)) => key.to_string(),
        (_, None) => "unknown".to_owned(),
    }
}
