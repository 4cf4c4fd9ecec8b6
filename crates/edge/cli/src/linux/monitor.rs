//! `plait monitor`: the events of a running plait.
//!
//! The process is asked for its status twice a second. It keeps its last events itself (connections, certificates), so that none is missed
//! between two looks; the other events are differences between two answers. Only the last answer is kept.

mod differences;
#[cfg(feature = "live")]
mod live;
#[cfg(feature = "live")]
mod view;

use std::io;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use plait_console::exit::Interrupted;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;

use self::differences::{Seen, process_ended};
use crate::exit;
use crate::linux::asking::{Found, Whom, word};
use crate::output;

/// Time between two looks.
const TICK: Duration = Duration::from_millis(500);

/// Print what happens in a running plait: a line for each event, until the process ends. plait monitor asks the process twice a second.
///
/// On a terminal, a program built with the feature live shows a live view instead: throughput, connections, attacks and the last events. q
/// quits; the arrow keys scroll the connections.
#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION_OF_MONITOR)]
pub(crate) struct MonitorArguments {
    #[command(flatten)]
    whom: Whom,
    /// Print each event as a JSON object (docs/status.md).
    #[arg(long)]
    json: bool,
    /// Print lines on a terminal, too.
    #[arg(long)]
    lines: bool,
}

impl MonitorArguments {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let found = self.whom.find()?;
        let first = found.status()?;
        #[cfg(feature = "live")]
        if !self.json && !self.lines && io::IsTerminal::is_terminal(&io::stdout()) {
            return live::show(found, first);
        }
        self.print_events(&found, &first)
    }

    fn print_events(&self, found: &Found, first: &Value) -> anyhow::Result<()> {
        let (mut seen, watching) = Seen::begin(first);
        self.print(&[watching])?;
        loop {
            sleep(TICK);
            if has_no_reader() {
                return Err(Interrupted::by_closed_pipe().into());
            }
            match found.status() {
                // Another process may have the socket now.
                Ok(status) if status["pid"] == first["pid"] && status["started"] == first["started"] => {
                    self.print(&seen.look(&status))?;
                }
                Ok(_) | Err(_) => return self.print(&[process_ended(first)]),
            }
        }
    }

    fn print(&self, events: &[Value]) -> anyhow::Result<()> {
        let lines: String = events
            .iter()
            .map(|event| if self.json { format!("{event}\n") } else { format!("{}\n", line(event)) })
            .collect();
        if lines.is_empty() { Ok(()) } else { output::result(lines) }
    }
}

/// `2026-09-02T10:00:00Z path-down path=wlan0`.
fn line(event: &Value) -> String {
    let mut text = format!("{} {}", word(&event["at"]), word(&event["event"]));
    for (name, value) in event.as_object().into_iter().flatten() {
        if !["schema", "pid", "at", "event", "number"].contains(&name.as_str()) && !value.is_null() {
            let value = word(value);
            let value = if value.contains(' ') { format!("\"{value}\"") } else { value };
            text += &format!(" {name}={value}");
        }
    }
    text
}

/// Whether the reader of standard output has gone: without events, no write reports it.
fn has_no_reader() -> bool {
    let output = io::stdout();
    let mut fds = [PollFd::new(&output, PollFlags::empty())];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line_and_a_terminal_obeys_nothing_of_it() {
        let event = json!({ "schema": 1, "pid": 7, "at": "2026-09-02T10:00:00Z", "event": "path-down", "path": "a\u{1b}[2J", "text": "b c" });
        assert_eq!(line(&event), "2026-09-02T10:00:00Z path-down path=a\u{fffd}[2J text=\"b c\"");
    }
}
