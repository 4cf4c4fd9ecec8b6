//! One allowed client, as a line of `authorized_clients` and of `--client` has it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use plait_handshake::PublicKey;

use crate::rules::Rule;

/// The prefix of a public key.
const KEY_TYPE: &str = "plait-ed25519";
/// The form of a line.
const FORM: &str = "a client is [allow=RULES] [expires=DATE] [connections=N] plait-ed25519 KEY NAME";

/// An allowed client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorizedClient {
    /// Its key.
    pub key: PublicKey,
    /// Its allowed destinations; `None`: those of the server's own rules.
    pub allow: Option<Vec<Rule>>,
    /// The time at which its access ends; `None`: never.
    pub expires: Option<Expiry>,
    /// Most connections that it may have open; `None`: as many as the server has room for.
    pub connections: Option<NonZeroU32>,
    /// Its name for people.
    pub comment: String,
}

/// The time at which access ends: the beginning of a day in UTC, or a time as RFC 3339 writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Expiry(Timestamp);

impl AuthorizedClient {
    /// A client with this key and this name, without limits.
    #[must_use]
    pub fn new(key: PublicKey, name: &str) -> Self {
        Self { key, allow: None, expires: None, connections: None, comment: name.to_owned() }
    }

    /// Whether its access has ended at this time.
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|Expiry(at)| at <= now)
    }

    /// Checks that a line can have its name.
    ///
    /// # Errors
    /// The name has a character that ends a line or begins a remark.
    pub fn check_name(&self) -> anyhow::Result<()> {
        let name = &self.comment;
        ensure!(
            !name.contains('#') && !name.contains(char::is_control),
            "{name:?} cannot stand behind a key: it has '#' or a control character"
        );
        Ok(())
    }
}

/// Parses a line without a remark.
impl FromStr for AuthorizedClient {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut words = text.split_ascii_whitespace();
        let (mut allow, mut expires, mut connections) = (None, None, None);
        loop {
            let word = words.next().context(FORM)?;
            if word == KEY_TYPE {
                break;
            }
            let (option, value) = word.split_once('=').context(FORM)?;
            let is_repeated = match option {
                "allow" => allow.replace(rules(value)?).is_some(),
                "expires" => expires.replace(value.parse::<Expiry>().map_err(anyhow::Error::msg)?).is_some(),
                "connections" => connections.replace(number(value)?).is_some(),
                _ => bail!("`{option}` is no option; {FORM}"),
            };
            ensure!(!is_repeated, "a second {option}=");
        }
        let encoded = words.next().context(FORM)?;
        let comment = words.collect::<Vec<_>>().join(" ");
        Ok(Self { key: format!("{KEY_TYPE} {encoded}").parse()?, allow, expires, connections, comment })
    }
}

fn rules(text: &str) -> anyhow::Result<Vec<Rule>> {
    let rules: Result<Vec<_>, _> = text.trim_matches('"').split(',').map(str::parse).collect();
    rules.context("a rule makes no sense")
}

fn number(text: &str) -> anyhow::Result<NonZeroU32> {
    text.parse().ok().with_context(|| format!("connections={text}: not a number from 1"))
}

/// As it can be parsed again.
impl fmt::Display for AuthorizedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(allow) = &self.allow {
            let rules: Vec<_> = allow.iter().map(Rule::to_string).collect();
            write!(f, "allow={} ", rules.join(","))?;
        }
        if let Some(expires) = self.expires {
            write!(f, "expires={expires} ")?;
        }
        if let Some(connections) = self.connections {
            write!(f, "connections={connections} ")?;
        }
        write!(f, "{}", self.key)?;
        if self.comment.is_empty() { Ok(()) } else { write!(f, " {}", self.comment) }
    }
}

impl FromStr for Expiry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let day = || {
            let day = text.parse::<Date>().ok().filter(|_| text.len() == 10)?;
            day.to_zoned(TimeZone::UTC).ok().map(|begin| begin.timestamp())
        };
        let found = text.parse::<Timestamp>().ok().or_else(day);
        found
            .map(Self)
            .ok_or_else(|| format!("{text}: not a day or a time, as in 2027-01-01 or 2027-01-01T12:00:00Z"))
    }
}

/// A day, if it is the beginning of one.
impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.0.to_zoned(TimeZone::UTC);
        if at.start_of_day().is_ok_and(|begin| begin == at) {
            write!(f, "{}", at.date())
        } else {
            write!(f, "{}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use plait_base::SeededRandom;
    use plait_handshake::Identity;

    use super::*;

    #[test]
    fn a_line_is_written_as_it_is_read() {
        let key = Identity::generate(&mut SeededRandom::from_number(1)).public_key();
        for options in [
            "",
            "allow=*:443,10.0.0.0/8:22 ",
            "expires=2027-01-01 ",
            "expires=2027-01-01T12:30:00Z connections=50 ",
            "allow=plait-ed25519.example:443 expires=2027-01-01 connections=1 ",
        ] {
            for name in ["", " ada", " phone of Eve"] {
                let line = format!("{options}{key}{name}");
                let client: AuthorizedClient = line.parse().expect(&line);
                assert_eq!(client.to_string(), line);
                assert_eq!(client.comment, name.trim());
            }
        }
    }

    #[test]
    fn an_option_that_is_unknown_invalid_or_repeated_makes_the_line_invalid() {
        let key = Identity::generate(&mut SeededRandom::from_number(1)).public_key();
        for options in [
            "alow=*:443",
            "allow=x",
            "allow=",
            "expires=tomorrow",
            "expires=2027-13-01",
            "expires=2027-01-01x",
            "expires=2027-01-01T12:30:00",
            "connections=0",
            "connections=-1",
            "connections=1 connections=2",
            "allow=*:1 allow=*:2",
            "expires=2027-01-01 expires=2028-01-01",
            "nonsense",
        ] {
            assert!(format!("{options} {key} eve").parse::<AuthorizedClient>().is_err(), "{options}");
        }
        for bad in ["", "plait-ed25519", "plait-ed25519 AAAA", "allow=*:1"] {
            assert!(bad.parse::<AuthorizedClient>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_has_nothing_that_ends_a_line_or_begins_a_remark() {
        let key = Identity::generate(&mut SeededRandom::from_number(1)).public_key();
        for (name, is_good) in
            [("phone of Eve", true), ("", true), ("a # b", false), ("a\nb", false), ("a\u{1b}", false)]
        {
            assert_eq!(AuthorizedClient::new(key, name).check_name().is_ok(), is_good, "{name:?}");
        }
    }

    #[test]
    fn access_ends_with_the_first_moment_of_its_day_in_utc() {
        let key = Identity::generate(&mut SeededRandom::from_number(1)).public_key();
        let client: AuthorizedClient = format!("expires=2027-01-01 {key}").parse().expect("good");
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert!(!client.has_expired(at("2026-12-31T23:59:59.999Z")));
        assert!(client.has_expired(at("2027-01-01T00:00:00Z")));
        assert!(!AuthorizedClient::new(key, "").has_expired(Timestamp::MAX));
    }
}
