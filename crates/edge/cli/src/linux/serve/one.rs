//! One connection of a client of `serve`.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use plait::{Peer, Stream};
use plait_proxy::asked::{Asked, asked, turn_away};
use plait_proxy::clients::AuthorizedClient;
use plait_proxy::convert::Destination;
use plait_proxy::flows::server::{serve_flows, without_flows};
use plait_proxy::introduction::Introduction;
use plait_proxy::serve::{Client, Outcome, serve};
use tokio::time::{Instant, timeout};

use super::Shared;
use super::bound::Bound;
use super::flows::FlowGuest;
use super::remote;
use crate::linux::access::{self, Access};
use crate::linux::metered::Metered;
use crate::running::{End, Listed, Open, Tally};
use crate::server_identity::shown_by;

/// How long a connection that was ended may take to tell its destination.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection that its client has proved a key on.
struct Guest {
    bound: Bound,
    tally: Arc<Tally>,
    _open: Open,
}

/// What is noted about a connection while it is served.
struct Notes<'a> {
    access: &'a mut Access,
    listed: &'a OnceLock<Listed>,
    guest: Option<&'a Guest>,
}

/// Serves one connection to its end, and notes it in the log. The end comes early if its client may not have it any more.
pub(super) async fn serve_one(shared: Arc<Shared>, mut stream: Stream) {
    let mut access = shared.access.begin(&stream);
    if let Some(wanted) = shared.at
        && stream.local_addr().ip() != wanted
    {
        access.ends(access::End::Refused, "it came to another address");
        return shared.refuse(&stream, "refused: it came to another address");
    }
    // The list may have changed since the client was judged.
    let Ok(client) = shared.door.find(stream.peer_identity()) else {
        return refuse(&shared, &mut access, &stream);
    };
    let guest = shared.door.key_of(&stream).map(|key| {
        let name = client.as_ref().map_or("", |client| client.comment.as_str());
        let tally = shared.running.clients().of(key, name);
        Guest { bound: Bound::new(Arc::clone(&shared.door), key), _open: tally.opens(), tally }
    });
    let (from, listed, monitor) = (stream.peer_addr(), OnceLock::new(), stream.monitor());
    let over = {
        let notes = Notes { access: &mut access, listed: &listed, guest: guest.as_ref() };
        let mut served = pin!(serve_noted(&shared, &mut stream, notes));
        let over = async {
            match &guest {
                Some(guest) => guest.bound.over().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            over = over => {
                monitor.abort();
                // Its destination learns that this is no end in order.
                let _ = timeout(FAREWELL, served).await;
                Some(over)
            }
            () = &mut served => None,
        }
    };
    let Some(over) = over else { return };
    access.ends(access::End::Revoked, over);
    if let Some(listed) = listed.get() {
        listed.ends(End::Revoked);
    }
    if let Some(more_like_it) = shared.strangers.note("a connection was ended") {
        let client = name_of(client.as_deref(), stream.peer_identity());
        tracing::warn!(%from, client, reason = %over, more_like_it, "a connection was ended");
    }
}

fn refuse(shared: &Shared, access: &mut Access, stream: &Stream) {
    access.ends(access::End::Refused, "not an authorized client any more");
    shared.refuse(stream, "refused: not an authorized client any more");
}

async fn serve_noted(shared: &Arc<Shared>, stream: &mut Stream, notes: Notes<'_>) {
    let Notes { access, listed, guest } = notes;
    let (from, instance) = (stream.peer_addr(), Some(shared.instance));
    let waiting = shared.waiting.client(stream);
    let wait = || waiting.wait(shared.door.most());
    let tally = guest.map(|guest| Arc::clone(&guest.tally));
    let datagrams = stream.datagrams();
    let mut metered = Metered::new(&mut *stream, tally.clone());
    let service = shared.service();
    let request = without_flows(&datagrams, asked(&mut metered, &service, instance, wait)).await;
    drop(service);
    drop(waiting);
    // The list may have changed while the connection waited.
    let Ok(client) = shared.door.find(stream.peer_identity()) else { return refuse(shared, access, stream) };
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
    let listed = listed.get_or_init(|| shared.running.list(stream.monitor(), Some(from)));
    if let Some(name) = named {
        listed.comes_from(name);
    }
    let started = Instant::now();
    let key = guest.and(shown_by(stream.peer_identity())).map(|key| key.to_string());
    let as_seen = Client {
        instance,
        introduction: Introduction { from, to: stream.local_addr(), name: named, key: key.as_deref() },
        own_rules: client.as_ref().and_then(|client| client.allow.as_deref()),
        heard: &|destination| {
            listed.goes_to(destination);
            access.hears(destination);
        },
        joined: &|reached| {
            if let Some(guest) = guest {
                guest.bound.reaches(reached);
            }
        },
        silence: &shared.silence,
    };
    let listens = matches!(request, Ok(Asked::For(Destination::Remote(_), _)));
    let (waiting, owner) = (listens.then(|| shared.waiting.client(stream)), shared.door.key_of(stream));
    let most = client.as_ref().and_then(|client| client.connections).map(NonZeroU32::get);
    let flow_guest = FlowGuest::of(shared, stream, (&request, tally.clone()));
    let mut metered = Metered::new(&mut *stream, tally);
    let outcome = match request {
        Err(error) => Err(error),
        Ok(asked) => match guest.map(|guest| guest.tally.serves(most)) {
            Some(None) => {
                shared.running.clients().refuses("too-many");
                turn_away(&mut metered, asked).await
            }
            // It counts until its end.
            place @ (None | Some(Some(_))) => {
                let service = shared.service();
                let outcome = match (flow_guest, asked) {
                    (Some(flows), _) => serve_flows(&mut metered, &datagrams, &flows, as_seen).await,
                    (None, Asked::For(Destination::Remote(at), _)) => {
                        let over = waiting.as_ref().and_then(|waiting| waiting.wait(shared.door.most()));
                        let (remotes, with) = (&shared.remotes, (as_seen, over));
                        remote::serve(&mut metered, at, (remotes, owner, &service), with).await
                    }
                    (None, asked) => {
                        without_flows(&datagrams, serve(&mut metered, asked, &service, as_seen)).await
                    }
                };
                drop(place);
                outcome
            }
        },
    };
    listed.ends(end_of(&outcome));
    let name = name_of(client.as_deref(), stream.peer_identity());
    log_end(shared, access, outcome, (from, &name, started.elapsed()));
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
