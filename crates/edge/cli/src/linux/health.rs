//! `plait health`: whether a running plait is healthy, for probes.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::exit::{self, Exit};
use crate::linux::asking::{Whom, word};
use crate::output;
use crate::status::SCHEMA;

/// Report whether a running plait is healthy, in one line and by the exit status.
///
/// The process is healthy if it answers, accepts connections (connect, run, proxy and forward: its server has answered), has a path that is
/// up, and has no health message of the level error.
#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION_OF_HEALTH)]
pub(crate) struct Health {
    #[command(flatten)]
    whom: Whom,
    /// Print as JSON: {"schema": 1, "kind": "health", "healthy": true, ...} (docs/status.md).
    #[arg(long)]
    json: bool,
}

/// A reason against the health of a process: a name for programs, and a text for people.
type Fault = (String, String);

impl Health {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let asked = self.whom.find().and_then(|found| found.status());
        let (about, faults) = match &asked {
            Ok(status) => (status, faults(status)),
            Err(error) => {
                let why = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                (&Value::Null, vec![("no-answer".to_owned(), why)])
            }
        };
        let text = if self.json { object(about, &faults) } else { line(about, &faults) };
        output::result(text + "\n")?;
        Ok(if faults.is_empty() { Exit::Success } else { Exit::Failure }.into())
    }
}

/// The reasons against the health of a process, by its status.
fn faults(status: &Value) -> Vec<Fault> {
    let fault = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let mut faults = Vec::new();
    if status["state"] == "draining" {
        faults.push(fault("draining", "another process has replaced it"));
    } else if status["state"] != "running" {
        faults.push(fault("stopping", "it is stopping"));
    } else if status["ready"] != true {
        faults.push(fault("not-ready", "it does not accept connections yet"));
    }
    faults.extend(messages(status, "error").map(|message| (word(&message["name"]), word(&message["text"]))));
    faults
}

fn messages<'a>(status: &'a Value, level: &'static str) -> impl Iterator<Item = &'a Value> {
    let messages = status["health"].as_array().into_iter().flatten();
    messages.filter(move |message| message["level"] == level)
}

fn line(status: &Value, faults: &[Fault]) -> String {
    let process = match status {
        Value::Null => String::new(),
        status => format!(": process {} ({})", word(&status["pid"]), word(&status["kind"])),
    };
    let verdict = if faults.is_empty() { "healthy" } else { "unhealthy" };
    let warnings = messages(status, "warning").map(|message| format!("warning: {}", word(&message["text"])));
    let rest: Vec<_> = faults.iter().map(|(_, text)| text.clone()).chain(warnings).collect();
    let rest = if rest.is_empty() { rest.concat() } else { format!(": {}", rest.join("; ")) };
    format!("{verdict}{process}{rest}")
}

fn object(status: &Value, faults: &[Fault]) -> String {
    let reasons: Vec<_> = faults.iter().map(|(name, text)| json!({ "name": name, "text": text })).collect();
    json!({
        "schema": SCHEMA,
        "kind": "health",
        "healthy": faults.is_empty(),
        "pid": status["pid"],
        "command": status["kind"],
        "reasons": reasons,
        "warnings": messages(status, "warning").collect::<Vec<_>>(),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        json!({ "pid": 7, "kind": "serve", "state": "running", "ready": true, "health": [] })
    }

    #[test]
    fn a_process_is_healthy_if_it_runs_is_ready_and_has_no_error() {
        assert_eq!(line(&status(), &faults(&status())), "healthy: process 7 (serve)");
        let warned = json!([{ "level": "warning", "name": "path-down", "text": "these paths are down: a" }]);
        let status = |changes: Value| {
            let mut status = status();
            for (name, value) in changes.as_object().expect("an object") {
                status[name] = value.clone();
            }
            status
        };
        let is_healthy = |changes: Value| faults(&status(changes)).is_empty();
        assert!(is_healthy(json!({ "health": warned })), "a warning is shown and changes nothing");
        assert!(!is_healthy(json!({ "ready": false })));
        assert!(!is_healthy(json!({ "state": "stopping" })));
        assert!(!is_healthy(json!({ "ready": null })), "an earlier version does not say it");
        let broken = json!({ "health": [{ "level": "error", "name": "no-path", "text": "no path is up" }] });
        let broken = status(broken);
        assert_eq!(line(&broken, &faults(&broken)), "unhealthy: process 7 (serve): no path is up");
        let object: Value = serde_json::from_str(&object(&broken, &faults(&broken))).expect("JSON");
        assert_eq!((&object["healthy"], &object["reasons"][0]["name"]), (&json!(false), &json!("no-path")));
    }

    #[test]
    fn a_process_that_does_not_answer_is_unhealthy_in_one_line() {
        let faults = [("no-answer".to_owned(), "no plait runs".to_owned())];
        assert_eq!(line(&Value::Null, &faults), "unhealthy: no plait runs");
    }
}
