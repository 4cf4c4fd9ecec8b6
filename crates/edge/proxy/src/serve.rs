//! The server's side of one client's stream, after its request ([`asked`](crate::asked)).

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::asked::{Asked, refuse};
use crate::convert::{Destination, ErrorCode, Instance};
use crate::destination::{Unreached, connect, resolve, resolve_service};
use crate::introduction::Introduction;
use crate::nameservers::Nameservers;
use crate::outlet::{Outlet, open_socket};
use crate::reached::Reached;
use crate::relay::{Abort, relay};
use crate::request;
use crate::rules::{Rule, allow};
use crate::services::Services;
use crate::silence::SilenceLimit;
use crate::target::{Place, Target};

/// The service of a server for its clients.
#[derive(Clone, Debug)]
pub enum Service {
    /// All streams go to one service, whatever clients ask for. Streams without the Convert protocol are
    /// joined with it from their first byte on.
    Forward(Target),
    /// Clients name the destination, or a service by its name; these rules decide.
    Proxy {
        /// The allowed destinations.
        rules: Vec<Rule>,
        /// The nameservers for DNS queries.
        nameservers: Nameservers,
        /// The services by name. Rules of the client apply by name, those of the server do not.
        services: Services,
    },
}

/// One client, as the server sees it.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    /// The instance that the client is told.
    pub instance: Option<Instance>,
    /// For services that learn their clients.
    pub introduction: Introduction<'a>,
    /// Rules for this client in addition to those of the service.
    pub own_rules: Option<&'a [Rule]>,
    /// Called when the destination of the client is known.
    pub heard: &'a (dyn Fn(&str) + Sync),
    /// Called when the destination is connected, before bytes go there.
    pub joined: &'a (dyn Fn(Reached) + Sync),
    /// The time limit for silence once one direction has ended.
    pub silence: &'a SilenceLimit,
}

/// The end of a stream, for the log.
#[derive(Debug)]
pub enum Outcome {
    /// Both directions ended in order; with the bytes from and to the client.
    Complete {
        /// The destination.
        destination: String,
        /// Bytes from the client.
        received: u64,
        /// Bytes to the client.
        sent: u64,
    },
    /// Refused, and the client was told.
    Refused {
        /// The destination, if the client named one.
        destination: String,
        /// The error code that it was told.
        code: ErrorCode,
    },
    /// This host has no descriptor, no port or no memory left for its connection; the client was told.
    Exhausted {
        /// The destination.
        destination: String,
        /// The missing resource.
        error: io::Error,
    },
}

impl Outcome {
    /// The connection to the client's destination failed.
    fn without(destination: String, unreached: Unreached) -> Self {
        match unreached {
            Unreached::Refused(code) => Self::Refused { destination, code },
            Unreached::Exhausted(error) => Self::Exhausted { destination, error },
        }
    }
}

/// Serves one stream to its end, after its request.
///
/// # Errors
/// The stream, or the connection to its destination, broke in the middle; both ends were reset.
pub async fn serve<S>(
    stream: &mut S,
    asked: Asked,
    service: &Service,
    client: Client<'_>,
) -> io::Result<Outcome>
where
    S: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let ((destination, first), offer) = match (asked, service) {
        (Asked::Nothing, _) => {
            let destination = Destination::Nowhere.to_string();
            (client.heard)(&destination);
            return Ok(Outcome::Complete { destination, received: 0, sent: 0 });
        }
        (Asked::Nonsense, _) => {
            stream.shutdown().await?;
            return Ok(nonsense());
        }
        (Asked::For(Destination::Resolver, _), Service::Forward(_)) => {
            return turned_down(stream, &Destination::Resolver, ErrorCode::DestinationUnreachable).await;
        }
        // A service for flows has its own function.
        (Asked::For(Destination::Datagrams, _), _) => {
            return turned_down(stream, &Destination::Datagrams, ErrorCode::NotAuthorized).await;
        }
        (Asked::For(_, first), Service::Forward(to)) => {
            return forward(stream, to, (true, first), client).await;
        }
        (Asked::Speaks(first), Service::Forward(to)) => {
            return forward(stream, to, (false, first), client).await;
        }
        // The forwarder that it was spoken to has become a proxy.
        (Asked::Speaks(_), Service::Proxy { .. }) => {
            refuse(stream, ErrorCode::MalformedMessage).await?;
            return Ok(nonsense());
        }
        (Asked::For(to, first), Service::Proxy { rules, nameservers, services }) => {
            ((to, first), Offer { rules, nameservers, services })
        }
    };
    let to = destination.to_string();
    (client.heard)(&to);
    let opened = reach(&destination, offer, &client).await;
    if let Ok((_, Some(reached))) = &opened {
        (client.joined)(reached.clone());
    }
    join(stream, opened, (to, first), client).await
}

/// What a proxy offers.
#[derive(Clone, Copy)]
struct Offer<'a> {
    rules: &'a [Rule],
    nameservers: &'a Nameservers,
    services: &'a Services,
}

/// A connection to a destination, and its place for later rules; a connection that has failed since has none.
type Opened = Result<(Outlet, Option<Reached>), Unreached>;

/// Connects to the destination that a client has asked for, as far as the rules allow.
async fn reach(
    destination: &Destination,
    Offer { rules, nameservers, services }: Offer<'_>,
    client: &Client<'_>,
) -> Opened {
    let own_rules = client.own_rules;
    if let Destination::Service(name) = destination {
        // A client that may not use it does not learn whether it exists.
        if !own_rules.is_none_or(|own| allow(own, destination)) {
            return Err(Unreached::Refused(ErrorCode::NotAuthorized));
        }
        let found = services.find(name);
        let target = found.ok_or(Unreached::Refused(ErrorCode::DestinationUnreachable))?;
        let (outlet, _) = reach_service(target, &Client { own_rules: None, ..*client }).await?;
        return Ok((outlet, Some(Reached::named(name))));
    }
    let addresses = resolve(destination, rules, own_rules, nameservers).await?;
    match destination {
        Destination::Resolver => {
            let none = Unreached::Refused(ErrorCode::DestinationUnreachable);
            let nameserver = nameservers.connect().await.ok_or(none)?;
            Ok((Outlet::Nameserver(nameserver), Some(Reached::resolver())))
        }
        Destination::Socket(path) => Ok((open_socket(path).await?, Some(Reached::socket(path)))),
        Destination::Address(_)
        | Destination::Named(..)
        | Destination::Name(..)
        | Destination::Service(_)
        | Destination::Remote(_)
        | Destination::Datagrams
        | Destination::Nowhere => {
            let stream = connect(addresses).await?;
            let at = stream.peer_addr().ok();
            let reached = at.map(|at| Reached::asked(destination, own_rules, at));
            Ok((Outlet::Tcp(stream), reached))
        }
    }
}

/// Connects to a service as far as the rules of the client allow, and introduces the client if the service wants that.
async fn reach_service(to: &Target, client: &Client<'_>) -> Opened {
    let (mut outlet, reached) = reach_place(&to.place, client.own_rules).await?;
    if to.is_introduced() {
        outlet.write_all(&client.introduction.header()).await?;
    }
    Ok((outlet, reached))
}

async fn reach_place(place: &Place, own_rules: Option<&[Rule]>) -> Opened {
    match place {
        Place::Tcp(to) => {
            let stream = connect(resolve_service(to, own_rules).await?).await?;
            let reached = stream.peer_addr().ok().map(|at| Reached::service(to, at));
            Ok((Outlet::Tcp(stream), reached))
        }
        Place::Socket(path) => {
            let socket = Destination::Socket(path.clone());
            if !own_rules.is_none_or(|own| allow(own, &socket)) {
                return Err(Unreached::Refused(ErrorCode::NotAuthorized));
            }
            Ok((open_socket(path).await?, Some(Reached::socket(path))))
        }
    }
}

/// Refuses a client that has asked for this.
async fn turned_down<S>(stream: &mut S, asked: &Destination, code: ErrorCode) -> io::Result<Outcome>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    refuse(stream, code).await?;
    Ok(Outcome::Refused { destination: asked.to_string(), code })
}

fn nonsense() -> Outcome {
    Outcome::Refused { destination: "unknown".into(), code: ErrorCode::MalformedMessage }
}

/// Joins a client with the destination that it asked for; `first` are its bytes behind the request.
async fn join<S>(
    stream: &mut S,
    opened: Opened,
    (destination, first): (String, Vec<u8>),
    client: Client<'_>,
) -> io::Result<Outcome>
where
    S: AsyncRead + AsyncWrite + Abort + Unpin,
{
    match opened {
        Ok((mut target, _)) => {
            request::reply(stream, Ok(client.instance)).await?;
            finish(destination, (stream, &mut target), first, client.silence).await
        }
        Err(unreached) => {
            refuse(stream, unreached.code()).await?;
            Ok(Outcome::without(destination, unreached))
        }
    }
}

/// Joins a client with the one service there is.
async fn forward<S>(
    stream: &mut S,
    to: &Target,
    (is_asking, first): (bool, Vec<u8>),
    client: Client<'_>,
) -> io::Result<Outcome>
where
    S: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let destination = to.to_string();
    (client.heard)(&destination);
    let opened = reach_service(to, &client).await;
    if let Ok((_, Some(reached))) = &opened {
        (client.joined)(reached.clone());
    }
    match opened {
        opened if is_asking => join(stream, opened, (destination, first), client).await,
        Ok((mut target, _)) => finish(destination, (stream, &mut target), first, client.silence).await,
        Err(unreached) => {
            stream.abort();
            Ok(Outcome::without(destination, unreached))
        }
    }
}

/// Joins both; the bytes that the client has already sent go first.
async fn finish<S, T>(
    destination: String,
    (stream, target): (&mut S, &mut T),
    first: Vec<u8>,
    silence: &SilenceLimit,
) -> io::Result<Outcome>
where
    S: AsyncRead + AsyncWrite + Abort + Unpin,
    T: AsyncRead + AsyncWrite + Abort + Unpin,
{
    target.write_all(&first).await?;
    let before = first.len() as u64;
    // A connection may be open for days.
    drop(first);
    let (received, sent) = relay(stream, target, silence).await?;
    Ok(Outcome::Complete { destination, received: received + before, sent })
}

#[cfg(test)]
mod tests;
