//! The services of a server by name.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::convert::is_service;
use crate::target::Target;

/// A service with its name: `NAME=HOST:PORT` or `NAME=unix:/PATH`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedService {
    /// Its name.
    pub name: String,
    /// Its place.
    pub target: Target,
}

/// All services that have a name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Services(BTreeMap<String, Target>);

impl Services {
    /// Of two services with one name the last counts ([`twin`]).
    pub fn new(all: impl IntoIterator<Item = NamedService>) -> Self {
        Self(all.into_iter().map(|NamedService { name, target }| (name, target)).collect())
    }

    /// The service with this name.
    pub fn find(&self, name: &str) -> Option<&Target> {
        self.0.get(name)
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The first name that two services have.
pub fn twin(all: &[NamedService]) -> Option<&str> {
    let is_repeated = |at: usize| all[..at].iter().any(|other| other.name == all[at].name);
    (0..all.len()).find(|at| is_repeated(*at)).map(|at| all[at].name.as_str())
}

impl FromStr for NamedService {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, target) = text.split_once('=').ok_or("not NAME=HOST:PORT, as in web=127.0.0.1:80")?;
        if !is_service(name) {
            let why = "is not the name of a service: letters, digits, -, _ and ., a letter first, at most 63";
            return Err(format!("{name:?} {why}"));
        }
        Ok(Self { name: name.to_owned(), target: target.parse()? })
    }
}

/// As it is read.
impl fmt::Display for NamedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_a_name_and_a_place() {
        let parse = |text: &str| text.parse::<NamedService>();
        for text in ["web=127.0.0.1:80", "db=unix:/run/db.sock"] {
            assert_eq!(parse(text).expect(text).to_string(), text);
        }
        for bad in ["", "web", "=127.0.0.1:80", "80=h:80", "web=", "web=host", "a b=h:80"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let all = ["a=h:1", "b=h:2", "a=h:3"].map(|text| parse(text).expect(text));
        assert_eq!((twin(&all), twin(&all[..2])), (Some("a"), None));
        assert_eq!(Services::new(all).names().collect::<Vec<_>>(), ["a", "b"]);
    }
}
