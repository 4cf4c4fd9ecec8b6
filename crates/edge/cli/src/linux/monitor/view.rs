//! The picture of a running plait: its paths, connections, attacks and last events.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use serde_json::Value;

use super::line;
use crate::linux::asking::word;

/// Looks whose throughput is kept for the curve: those of a minute.
const HISTORY: usize = 120;
/// Most events that are kept: a tall terminal.
const MAX_EVENTS: usize = 100;

/// The state of the picture.
#[derive(Debug)]
pub(super) struct View {
    title: String,
    health: String,
    is_healthy: bool,
    paths: BTreeMap<(String, String), Traffic>,
    /// The words of each connection, the oldest first.
    connections: Vec<String>,
    open: String,
    /// The first connection that is shown.
    first: usize,
    refusals: BTreeMap<String, u64>,
    events: VecDeque<String>,
}

/// A path over one carrier.
#[derive(Clone, Default, Debug)]
struct Traffic {
    state: String,
    sent: u64,
    received: u64,
    forgeries: u64,
    rtt_ms: Option<f64>,
    subflows_open: u64,
    /// Bits per second, sent and received.
    rates: [u64; 2],
    history: VecDeque<u64>,
}

impl View {
    pub(super) fn new(status: &Value) -> Self {
        let of = |name: &str| word(&status[name]);
        Self {
            title: format!("plait {} {}: {}", of("kind"), of("pid"), of("what")),
            health: String::new(),
            is_healthy: true,
            paths: BTreeMap::new(),
            connections: Vec::new(),
            open: String::new(),
            first: 0,
            refusals: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes an answer, the events in it, and the time since the last answer.
    pub(super) fn look(&mut self, status: &Value, events: &[Value], passed: Duration) {
        let messages: Vec<_> = list(status, "health").iter().map(|message| word(&message["text"])).collect();
        self.is_healthy = list(status, "health").iter().all(|message| message["level"] != "error");
        self.health = if messages.is_empty() { "healthy".to_owned() } else { messages.join("; ") };
        self.take_paths(status, passed);
        self.connections = list(status, "connections").iter().map(of_connection).collect();
        self.open =
            format!("{} open of {}", word(&status["connections_open"]), word(&status["connections_opened"]));
        let refusals = status["host"]["strangers"].as_object().into_iter().flatten();
        let counts = refusals.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default()));
        self.refusals = counts.filter(|(_, count)| *count > 0).collect();
        self.events.extend(events.iter().map(line));
        self.events.drain(..self.events.len().saturating_sub(MAX_EVENTS));
        self.move_by(0);
    }

    fn take_paths(&mut self, status: &Value, passed: Duration) {
        let mut before = std::mem::take(&mut self.paths);
        let is_up: BTreeMap<_, _> =
            list(status, "paths").iter().map(|path| (word(&path["name"]), path["up"] == true)).collect();
        for path in list(status, "traffic") {
            let figure = |name: &str| path[name].as_u64().unwrap_or_default();
            let name = (word(&path["name"]), word(&path["carrier"]));
            let (sent, received) = (figure("bytes_sent"), figure("bytes_received"));
            let earlier = before.remove(&name);
            let rate = |now: u64, before: u64| {
                let seconds = passed.as_secs_f64();
                let bits = now.saturating_sub(before) as f64 * 8.0;
                if seconds > 0.0 { (bits / seconds) as u64 } else { 0 }
            };
            let rates = earlier
                .as_ref()
                .map_or([0, 0], |before| [rate(sent, before.sent), rate(received, before.received)]);
            let mut history = earlier.map(|before| before.history).unwrap_or_default();
            history.push_back(rates[0] + rates[1]);
            history.drain(..history.len().saturating_sub(HISTORY));
            let state = match is_up.get(&name.0) {
                Some(true) => "up",
                Some(false) => "down",
                None => "removed",
            };
            let traffic = Traffic {
                state: state.to_owned(),
                sent,
                received,
                forgeries: figure("blocks_failed") + figure("tags_failed"),
                rtt_ms: path["rtt_ms"].as_f64(),
                subflows_open: figure("subflows_open"),
                rates,
                history,
            };
            self.paths.insert(name, traffic);
        }
        // Paths that have carried nothing yet.
        for (name, is_up) in is_up {
            if !self.paths.keys().any(|(known, _)| *known == name) {
                let state = if is_up { "up" } else { "down" }.to_owned();
                self.paths.insert((name, "-".to_owned()), Traffic { state, ..Traffic::default() });
            }
        }
    }

    /// Moves the list of connections.
    pub(super) fn move_by(&mut self, lines: isize) {
        let last = self.connections.len().saturating_sub(1);
        self.first = self.first.saturating_add_signed(lines).min(last);
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let paths = u16::try_from(self.paths.len()).unwrap_or(u16::MAX).clamp(1, 8);
        let attacks = Constraint::Length(if frame.area().height < 40 { 3 } else { 6 });
        let [head, health, table, connections, refusals, events, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(paths + 3),
            Constraint::Fill(2),
            attacks,
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Line::styled(&*self.title, Modifier::BOLD), head);
        let color = if self.is_healthy { Color::Green } else { Color::Red };
        frame.render_widget(Line::styled(&*self.health, color), health);
        self.draw_paths(frame, table);
        let title = format!("Connections: {}", self.open);
        let lines: Vec<_> = self.connections[self.first.min(self.connections.len())..]
            .iter()
            .map(|words| Line::raw(words.as_str()))
            .collect();
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), connections);
        self.draw_attacks(frame, refusals);
        let room = usize::from(events.height.saturating_sub(2));
        let begin = self.events.len().saturating_sub(room);
        let lines: Vec<_> = self.events.iter().skip(begin).map(|words| Line::raw(words.as_str())).collect();
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("Events")), events);
        frame.render_widget(Line::raw("q: end  Up, Down: move the connections"), foot);
    }

    fn draw_paths(&self, frame: &mut Frame<'_>, area: Rect) {
        // The curve is beside the table if there is room for both.
        let [table, curve] = Layout::horizontal([Constraint::Length(78), Constraint::Fill(1)]).areas(area);
        let header = ["path", "carrier", "state", "sent/s", "received/s", "rtt", "subflows", "forged"];
        let rows = self.paths.iter().map(|((name, carrier), path)| {
            let rtt = path.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1} ms"));
            let [sent, received] = path.rates.map(bits);
            let color = if path.forgeries > 0 { Color::Red } else { Color::Reset };
            let cells = [
                name.clone(),
                carrier.clone(),
                path.state.clone(),
                sent,
                received,
                rtt,
                path.subflows_open.to_string(),
                path.forgeries.to_string(),
            ];
            Row::new(cells.map(Cell::from)).style(Style::from(color))
        });
        let widths = [12, 7, 7, 10, 10, 10, 8, 6].map(Constraint::Length);
        let table_of_paths = Table::new(rows, widths)
            .header(Row::new(header).style(Modifier::BOLD))
            .block(Block::bordered().title("Paths"));
        frame.render_widget(table_of_paths, table);
        if curve.width < 10 || curve.height < 3 {
            return;
        }
        let block = Block::bordered().title("Throughput of all paths");
        let inner = usize::from(curve.width.saturating_sub(2));
        let mut sums = vec![0; inner.min(HISTORY)];
        for path in self.paths.values() {
            for (sum, rate) in sums.iter_mut().rev().zip(path.history.iter().rev()) {
                *sum += rate;
            }
        }
        frame.render_widget(Sparkline::default().data(&sums).block(block), curve);
    }

    fn draw_attacks(&self, frame: &mut Frame<'_>, area: Rect) {
        let forged: u64 = self.paths.values().map(|path| path.forgeries).sum();
        let refused = self.refusals.iter().map(|(name, count)| format!("{name} {count}"));
        let words: Vec<_> = std::iter::once(format!("forgeries {forged}")).chain(refused).collect();
        let paragraph = Paragraph::new(words.join(", ")).wrap(ratatui::widgets::Wrap { trim: true });
        frame.render_widget(paragraph.block(Block::bordered().title("Attacks and refusals")), area);
    }
}

fn list<'a>(status: &'a Value, name: &str) -> &'a [Value] {
    status[name].as_array().map_or(&[], Vec::as_slice)
}

fn of_connection(connection: &Value) -> String {
    let or = |name: &str| (!connection[name].is_null()).then(|| word(&connection[name]));
    let end = or("destination").or_else(|| or("peer")).unwrap_or_else(|| "-".to_owned());
    let client = or("client").map_or_else(String::new, |client| format!(" from {client}"));
    let sealed = if connection["sealed"].is_null() { "not sealed" } else { "sealed" };
    format!(
        "{} {end}{client}: {sealed}, sent {}, received {}",
        word(&connection["number"]),
        word(&connection["bytes_delivered"]),
        word(&connection["bytes_read"])
    )
}

/// A rate with its unit.
fn bits(rate: u64) -> String {
    match rate {
        0..1_000 => format!("{rate} b"),
        1_000..1_000_000 => format!("{:.1} kb", rate as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mb", rate as f64 / 1e6),
        _ => format!("{:.1} Gb", rate as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn status(bytes_sent: u64, forged: u64) -> Value {
        json!({
            "pid": 7, "kind": "serve", "what": "port 7443\u{1b}[2J", "connections_open": 30, "connections_opened": 40,
            "health": [{ "level": "error", "name": "no-path", "text": "no path is up" }],
            "paths": [{ "name": "eth0", "up": true }, { "name": "wlan0", "up": false }],
            "traffic": [{ "name": "eth0", "carrier": "udp", "bytes_sent": bytes_sent, "bytes_received": 0, "blocks_failed": forged,
                          "tags_failed": 0, "rtt_ms": 12.34, "subflows_open": 2 }],
            "host": { "strangers": { "unknown_token": 5, "malformed": 0 } },
            "connections": (0..30).map(|number| json!({ "number": number, "destination": "files.example:443", "client": "laptop",
                "sealed": {}, "bytes_delivered": 1, "bytes_read": 2 })).collect::<Vec<_>>(),
        })
    }

    fn view() -> View {
        let mut view = View::new(&status(0, 0));
        view.look(&status(0, 0), &[], Duration::ZERO);
        let event = json!({ "at": "2026-09-02T10:00:00Z", "event": "path-down", "path": "wlan0" });
        view.look(&status(1_000_000, 3), &[event], Duration::from_secs(1));
        view
    }

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn a_small_and_a_large_terminal_show_paths_connections_attacks_and_events() {
        for (width, height) in [(80, 24), (200, 50)] {
            let text = drawn(&view(), width, height);
            for words in [
                "plait serve 7: port 7443\u{fffd}[2J",
                "no path is up",
                "8.0 Mb",
                "12.3 ms",
                "wlan0",
                "down",
                "Connections: 30 open of 40",
                "0 files.example:443 from laptop: sealed, sent 1, received 2",
                "forgeries 3, unknown_token 5",
                "2026-09-02T10:00:00Z path-down path=wlan0",
                "q: end",
            ] {
                assert!(text.contains(words), "{width}x{height}: {words}\n{text}");
            }
            assert_eq!(text.contains("Throughput of all paths"), width == 200, "{text}");
        }
    }

    #[test]
    fn the_arrows_move_the_connections_and_stop_at_the_ends() {
        let mut view = view();
        view.move_by(-5);
        assert!(drawn(&view, 80, 24).contains("0 files.example"));
        view.move_by(3);
        let text = drawn(&view, 80, 24);
        assert!(!text.contains("│0 files") && text.contains("3 files.example"), "{text}");
        view.move_by(1000);
        assert!(drawn(&view, 80, 24).contains("29 files.example"));
        view.look(&json!({}), &[], Duration::from_secs(1));
        drawn(&view, 80, 24);
    }

    #[test]
    fn the_smallest_terminal_is_no_panic() {
        for (width, height) in [(1, 1), (10, 3), (20, 8)] {
            drawn(&view(), width, height);
        }
    }
}
