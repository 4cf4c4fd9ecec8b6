//! The place that a stream was joined to, which later rules may forbid.

use std::net::SocketAddr;

use crate::convert::Destination;
use crate::rules::{self, Rule, allow, allow_resolved};

/// The destination of a stream that was joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reached(Place);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Resolver,
    Address(SocketAddr),
    /// A name that this server has looked up.
    Name(String, SocketAddr),
    /// An address with names of which the client has spoken: at least one of these rules of the client applies, as a nameserver has said.
    Named(Vec<Rule>, SocketAddr),
    /// The path of a socket.
    Socket(String),
    /// The name of a service.
    Service(String),
    /// A port of this server.
    Remote(SocketAddr),
}

impl Reached {
    /// A destination that a client has asked for, at this address.
    pub(crate) fn asked(destination: &Destination, own_rules: Option<&[Rule]>, at: SocketAddr) -> Self {
        Self(match destination {
            Destination::Resolver | Destination::Nowhere | Destination::Datagrams => Place::Resolver,
            Destination::Socket(path) => Place::Socket(path.clone()),
            Destination::Service(name) => Place::Service(name.clone()),
            Destination::Remote(at) => Place::Remote(*at),
            Destination::Address(_) => Place::Address(at),
            Destination::Name(name, _) => Place::Name(name.clone(), at),
            Destination::Named(asked, names) => {
                let own = own_rules.unwrap_or_default();
                Place::Named(rules::by_name(own, names, asked.port()), at)
            }
        })
    }

    /// The nameserver of this server.
    pub(crate) fn resolver() -> Self {
        Self(Place::Resolver)
    }

    /// A socket in the file system.
    pub(crate) fn socket(path: &str) -> Self {
        Self(Place::Socket(path.to_owned()))
    }

    /// A service by name.
    pub(crate) fn named(name: &str) -> Self {
        Self(Place::Service(name.to_owned()))
    }

    /// A port of this server that leads to the client.
    pub fn remote(at: SocketAddr) -> Self {
        Self(Place::Remote(at))
    }

    /// The one service of a forwarder, `HOST:PORT`, at this address.
    pub(crate) fn service(to: &str, at: SocketAddr) -> Self {
        let name = to.rsplit_once(':').map_or(to, |(name, _)| name);
        Self(Place::Name(name.to_owned(), at))
    }

    /// Whether a client with these rules of its own may stay there. What the client has said of names is believed no more than before.
    #[must_use]
    pub fn is_allowed(&self, own_rules: Option<&[Rule]>) -> bool {
        let Some(own) = own_rules else { return true };
        match &self.0 {
            Place::Resolver => allow(own, &Destination::Resolver),
            Place::Address(at) => allow(own, &Destination::Address(*at)),
            Place::Socket(path) => allow(own, &Destination::Socket(path.clone())),
            Place::Remote(at) => allow(own, &Destination::Remote(*at)),
            Place::Service(name) => allow(own, &Destination::Service(name.clone())),
            Place::Name(name, at) => allow_resolved(own, name, at.ip(), at.port()),
            Place::Named(granting, at) => {
                let is_kept = || !granting.is_empty() && granting.iter().all(|rule| own.contains(rule));
                allow(own, &Destination::Address(*at)) || is_kept()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    #[test]
    fn a_stream_may_stay_where_the_later_rules_of_its_client_would_let_it_go() {
        let at: SocketAddr = "192.0.2.1:443".parse().expect("an address");
        let by_address = Reached::asked(&Destination::Address(at), None, at);
        let by_name = Reached::asked(&Destination::Name("a.example".into(), 443), None, at);
        let service = Reached::service("a.example:443", at);
        for (own, expected) in [
            (&["192.0.2.0/24:443"][..], [true, true, true]),
            (&["*.example:443"], [false, true, true]),
            (&["*.example:80"], [false, false, false]),
            (&["*.invalid:443", "10.0.0.0/8:*"], [false, false, false]),
        ] {
            let own = rules(own);
            let found = [&by_address, &by_name, &service].map(|reached| reached.is_allowed(Some(&own)));
            assert_eq!(found, expected, "{own:?}");
            assert!(by_address.is_allowed(None), "the rules of the server are judged at the request");
        }
    }

    #[test]
    fn a_name_that_the_client_has_only_spoken_of_keeps_no_stream_open() {
        let at: SocketAddr = "192.0.2.1:443".parse().expect("an address");
        let names = || vec!["a.example".to_owned(), "lie.invalid".to_owned()];
        let before = rules(&["*.example:443", "10.0.0.0/8:*"]);
        let reached = Reached::asked(&Destination::Named(at, names()), Some(&before), at);
        assert!(reached.is_allowed(Some(&rules(&["*.example:443"]))));
        assert!(reached.is_allowed(Some(&rules(&["192.0.2.1:443"]))));
        assert!(!reached.is_allowed(Some(&rules(&["lie.invalid:443"]))));
        let unbound = Reached::asked(&Destination::Named(at, names()), None, at);
        assert!(!unbound.is_allowed(Some(&rules(&["lie.invalid:443"]))));
    }
}
