//! The last events of a process, and the messages about its health.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Most events that are kept: more than a monitor misses between two looks, unless connections come by the hundred.
const MAX_EVENTS: usize = 256;

/// Something that has happened. Names that do not fit the event are missing.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Counted from 0 since the start of the process.
    pub(crate) number: u64,
    /// When it happened, in RFC 3339.
    pub(crate) at: String,
    /// `connection-opened`, `connection-ended` or `certificate-read`.
    pub(crate) event: String,
    /// The number of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connection: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) destination: Option<String>,
    /// The reason of the end, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_delivered: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_read: Option<u64>,
}

/// The reason that a connection has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum End {
    /// No error is known.
    #[default]
    Complete,
    /// The rules do not allow its destination, or the destination has refused it.
    Refused,
    /// This process had no descriptors or memory left for it.
    Exhausted,
    /// It was ended by an error.
    Failed,
    /// Its client may not have it any more.
    Revoked,
}

/// The urgency of a message about health.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Nothing fails yet.
    Warning,
    /// Connections fail.
    Error,
}

/// A state of the process that needs attention, while it lasts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Message {
    pub(crate) level: Level,
    /// One for each kind of message; stable.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) text: String,
    /// When it appeared, in RFC 3339, if that is known.
    pub(crate) since: Option<String>,
}

/// The last events and the current messages.
#[derive(Debug, Default)]
pub(super) struct Recent {
    next: u64,
    events: VecDeque<Event>,
    messages: BTreeMap<&'static str, Message>,
}

impl End {
    pub(crate) const ALL: [Self; 5] =
        [Self::Complete, Self::Refused, Self::Exhausted, Self::Failed, Self::Revoked];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Refused => "refused",
            Self::Exhausted => "exhausted",
            Self::Failed => "failed",
            Self::Revoked => "revoked",
        }
    }
}

impl Recent {
    /// Keeps an event; the oldest is dropped first.
    pub(super) fn note(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event { number: self.next, at: super::now(), ..event });
        self.next += 1;
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events.iter().cloned().collect()
    }

    /// Shows a message until it is taken back. The time of a message that is shown already stays.
    pub(super) fn warn(&mut self, level: Level, name: &'static str, text: String) {
        let since = self.messages.get(name).filter(|shown| shown.level == level);
        let since = since.map_or_else(|| Some(super::now()), |shown| shown.since.clone());
        self.messages.insert(name, Message { level, name, text, since });
    }

    pub(super) fn take_back(&mut self, name: &'static str) {
        self.messages.remove(name);
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        self.messages.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept_with_their_numbers() {
        let mut recent = Recent::default();
        for _ in 0..1000 {
            recent.note(Event::default());
        }
        let events = recent.events();
        assert_eq!(events.len(), MAX_EVENTS);
        assert_eq!(events.last().map(|event| event.number), Some(999));
    }

    #[test]
    fn a_message_is_there_once_until_it_is_taken_back() {
        let mut recent = Recent::default();
        recent.warn(Level::Warning, "certificate", "it ends soon".to_owned());
        recent.warn(Level::Error, "certificate", "it has ended".to_owned());
        assert_eq!(recent.messages().len(), 1);
        assert_eq!(recent.messages()[0].level, Level::Error);
        recent.take_back("certificate");
        assert!(recent.messages().is_empty());
    }
}
