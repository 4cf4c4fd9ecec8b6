//! The events between two answers of a running plait.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::status::SCHEMA;

/// What the last answer said, as far as a difference is an event.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pid: Value,
    /// The number of the next event that the process keeps.
    next: u64,
    /// Whether each path is up.
    paths: BTreeMap<String, bool>,
    /// Each subflow by connection and number.
    subflows: BTreeMap<(u64, u64), Subflow>,
    /// Blocks and tags that failed, by path and carrier.
    forgeries: BTreeMap<(String, String), u64>,
    refusals: BTreeMap<String, u64>,
    /// Level and text, by name.
    health: BTreeMap<String, (String, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Subflow {
    path: String,
    carrier: String,
    remote: String,
    is_up: bool,
    end: Option<String>,
}

impl Seen {
    /// Begins with an answer, and returns the first event: the process that is watched.
    pub(super) fn begin(status: &Value) -> (Self, Value) {
        let seen =
            Self { next: events(status).next_back().map_or(0, |(number, _)| number + 1), ..Self::of(status) };
        let watching = seen.event("watching", json!({ "kind": status["kind"], "what": status["what"] }));
        (seen, watching)
    }

    fn of(status: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |name: &str| status[name].as_array().map_or(&[][..], Vec::as_slice);
        let figure = |value: &Value| value.as_u64().unwrap_or_default();
        let paths = list("paths").iter().map(|path| (text(&path["name"]), path["up"] == true)).collect();
        let forged = |path: &Value| {
            let name = (text(&path["name"]), text(&path["carrier"]));
            (name, figure(&path["blocks_failed"]) + figure(&path["tags_failed"]))
        };
        let refused = status["host"]["strangers"].as_object().into_iter().flatten();
        let of_health =
            |message: &Value| (text(&message["name"]), (text(&message["level"]), text(&message["text"])));
        let subflows = list("connections").iter().flat_map(|connection| {
            let number = figure(&connection["number"]);
            let all = connection["subflows"].as_array().into_iter().flatten();
            all.map(move |subflow| ((number, figure(&subflow["id"])), Subflow::of(subflow)))
        });
        Self {
            pid: status["pid"].clone(),
            next: 0,
            paths,
            subflows: subflows.collect(),
            forgeries: list("traffic").iter().map(forged).collect(),
            refusals: refused.map(|(name, count)| (name.clone(), figure(count))).collect(),
            health: list("health").iter().map(of_health).collect(),
        }
    }

    /// Compares an answer with the last one. Events of the process come first, in their order.
    pub(super) fn look(&mut self, status: &Value) -> Vec<Value> {
        let next = Self::of(status);
        let mut found = self.kept(status);
        found.extend(self.of_paths(&next));
        found.extend(self.of_subflows(&next));
        found.extend(self.of_attacks(&next));
        found.extend(self.of_health(&next));
        *self = Self { next: self.next, ..next };
        found
    }

    /// The events that the process keeps and that are new.
    fn kept(&mut self, status: &Value) -> Vec<Value> {
        let mut found = Vec::new();
        for (number, kept) in events(status).filter(|(number, _)| *number >= self.next).collect::<Vec<_>>() {
            if number > self.next {
                found.push(self.event("missed", json!({ "count": number - self.next })));
            }
            let mut event = kept.clone();
            event["schema"] = json!(SCHEMA);
            event["pid"] = self.pid.clone();
            found.push(event);
            self.next = number + 1;
        }
        found
    }

    fn of_paths(&self, next: &Self) -> Vec<Value> {
        let changed = next.paths.iter().filter(|(path, is_up)| self.paths.get(*path) != Some(is_up));
        let changed = changed.map(|(path, is_up)| {
            self.event(if *is_up { "path-up" } else { "path-down" }, json!({ "path": path }))
        });
        let removed = self.paths.keys().filter(|path| !next.paths.contains_key(*path));
        let removed = removed.map(|path| self.event("path-removed", json!({ "path": path })));
        changed.chain(removed).collect()
    }

    fn of_subflows(&self, next: &Self) -> Vec<Value> {
        let is_up = |seen: Option<&Subflow>| seen.is_some_and(|subflow| subflow.is_up);
        let changed = next.subflows.iter().filter(|(key, now)| now.is_up != is_up(self.subflows.get(key)));
        let of = |((connection, number), now): (&(u64, u64), &Subflow)| {
            let Subflow { path, carrier, remote, is_up, end } = now;
            let mut about = json!({ "connection": connection, "subflow": number, "path": path, "carrier": carrier, "remote": remote });
            if !is_up {
                about["reason"] = json!(end);
            }
            self.event(if *is_up { "subflow-up" } else { "subflow-down" }, about)
        };
        changed.map(of).collect()
    }

    fn of_attacks(&self, next: &Self) -> Vec<Value> {
        let forged = next.forgeries.iter().filter_map(|(name, count)| {
            let more = count.saturating_sub(self.forgeries.get(name).copied().unwrap_or_default());
            let (path, carrier) = name;
            let about = || json!({ "path": path, "carrier": carrier, "count": more });
            (more > 0).then(|| self.event("forgery", about()))
        });
        let refused = next.refusals.iter().filter_map(|(reason, count)| {
            let more = count.saturating_sub(self.refusals.get(reason).copied().unwrap_or_default());
            (more > 0).then(|| self.event("refusal", json!({ "reason": reason, "count": more })))
        });
        forged.chain(refused).collect()
    }

    fn of_health(&self, next: &Self) -> Vec<Value> {
        let new = next.health.iter().filter(|(name, message)| self.health.get(*name) != Some(message));
        let new = new.map(|(name, (level, text))| {
            self.event("health", json!({ "name": name, "level": level, "text": text }))
        });
        let over = self.health.keys().filter(|name| !next.health.contains_key(*name));
        let over = over.map(|name| self.event("health-over", json!({ "name": name })));
        new.chain(over).collect()
    }

    fn event(&self, event: &str, about: Value) -> Value {
        event_of(&self.pid, event, about)
    }
}

impl Subflow {
    fn of(subflow: &Value) -> Self {
        let text = |name: &str| subflow[name].as_str().map(str::to_owned);
        Self {
            path: text("path").unwrap_or_default(),
            carrier: text("carrier").unwrap_or_default(),
            remote: text("remote").unwrap_or_default(),
            is_up: subflow["usable"] == true && subflow["end"].is_null(),
            end: text("end"),
        }
    }
}

/// The event after which nothing is watched.
pub(super) fn process_ended(status: &Value) -> Value {
    event_of(&status["pid"], "process-ended", json!({}))
}

fn event_of(pid: &Value, event: &str, about: Value) -> Value {
    let now = Timestamp::now();
    let at = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let mut whole = json!({ "schema": SCHEMA, "pid": pid, "at": at, "event": event });
    for (name, value) in about.as_object().into_iter().flatten() {
        whole[name] = value.clone();
    }
    whole
}

/// The events that the process keeps, each with its number.
fn events(status: &Value) -> impl DoubleEndedIterator<Item = (u64, &Value)> {
    let all = status["events"].as_array().into_iter().flatten();
    all.filter_map(|event| Some((event["number"].as_u64()?, event)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        json!({
            "pid": 7, "kind": "serve", "what": "port 7443", "health": [],
            "paths": [{ "name": "a", "up": true }, { "name": "b", "up": true }],
            "traffic": [{ "name": "a", "carrier": "udp", "blocks_failed": 1, "tags_failed": 0 }],
            "host": { "strangers": { "unknown_token": 3, "malformed": 0 } },
            "connections": [{ "number": 4, "subflows": [
                { "id": 0, "path": "a", "carrier": "udp", "remote": "192.0.2.1:4", "usable": true, "end": null }] }],
            "events": [{ "number": 8, "at": "t", "event": "connection-opened", "connection": 4 }],
        })
    }

    fn names(events: &[Value]) -> Vec<&str> {
        events.iter().map(|event| event["event"].as_str().expect("a name")).collect()
    }

    #[test]
    fn an_answer_that_is_the_same_has_no_event() {
        let (mut seen, first) = Seen::begin(&status());
        assert_eq!((&first["event"], &first["kind"]), (&json!("watching"), &json!("serve")));
        assert_eq!(seen.look(&status()), [] as [Value; 0]);
    }

    #[test]
    fn each_difference_is_one_event() {
        let (mut seen, _) = Seen::begin(&status());
        let mut next = status();
        next["paths"] = json!([{ "name": "a", "up": false }, { "name": "c", "up": true }]);
        next["traffic"][0]["tags_failed"] = json!(2);
        next["host"]["strangers"]["unknown_token"] = json!(5);
        next["connections"][0]["subflows"][0]["usable"] = json!(false);
        next["connections"][0]["subflows"][0]["end"] = json!("reset");
        next["health"] = json!([{ "name": "path-down", "level": "warning", "text": "a is down" }]);
        next["events"] = json!([{ "number": 9, "at": "t", "event": "connection-ended", "connection": 4, "reason": "failed" }]);
        let found = seen.look(&next);
        let expected = [
            "connection-ended",
            "path-down",
            "path-up",
            "path-removed",
            "subflow-down",
            "forgery",
            "refusal",
            "health",
        ];
        assert_eq!(names(&found), expected);
        assert!(
            found.iter().all(|event| event["schema"] == 1 && event["pid"] == 7 && event["at"].is_string())
        );
        assert_eq!(
            (&found[4]["reason"], &found[5]["count"], &found[6]["count"]),
            (&json!("reset"), &json!(2), &json!(2))
        );
        next["health"] = json!([]);
        assert_eq!(names(&seen.look(&next)), ["health-over"]);
        assert_eq!(seen.look(&next), [] as [Value; 0]);
    }

    #[test]
    fn events_that_the_process_no_longer_keeps_are_counted() {
        let (mut seen, _) = Seen::begin(&status());
        let mut next = status();
        next["events"] = json!([{ "number": 20, "at": "t", "event": "certificate-read" }]);
        let found = seen.look(&next);
        assert_eq!((names(&found), &found[0]["count"]), (vec!["missed", "certificate-read"], &json!(11)));
    }

    #[test]
    fn an_answer_that_lacks_everything_is_an_answer() {
        let (mut seen, _) = Seen::begin(&json!({}));
        assert_eq!(seen.look(&json!({ "paths": 3, "events": [1], "connections": [{}] })), [] as [Value; 0]);
    }
}
