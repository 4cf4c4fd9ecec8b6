//! The live view of `plait monitor` on a terminal.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use serde_json::Value;

use super::TICK;
use super::differences::Seen;
use super::view::View;
use crate::linux::asking::Found;
use crate::output::say;
use crate::runtime::until_interrupted;

/// The alternate screen, left when this is dropped.
struct Screen;

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The reason that the view has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    ByKey,
    ProcessEnded,
}

/// Shows the process until it ends or a key ends the view.
///
/// # Errors
/// The terminal cannot be used, or a signal came.
pub(super) fn show(found: Found, first: Value) -> anyhow::Result<()> {
    let screen = Screen;
    let pid = first["pid"].to_string();
    let mut left = Left::ByKey;
    let shown = until_interrupted(async {
        let showing = tokio::task::spawn_blocking(move || draw_all(&found, &first));
        left = showing.await??;
        Ok(())
    });
    drop(screen);
    if left == Left::ProcessEnded {
        say(&format!("process {pid} has ended"));
    }
    shown
}

fn draw_all(found: &Found, first: &Value) -> io::Result<Left> {
    let mut terminal = ratatui::try_init()?;
    let (mut seen, watching) = Seen::begin(first);
    let mut view = View::new(first);
    view.look(first, &[watching], Duration::ZERO);
    let mut looked_at = Instant::now();
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        let rest = TICK.saturating_sub(looked_at.elapsed());
        if !rest.is_zero() && poll(rest)? {
            // Other events, such as a new size, draw again.
            if let Event::Key(key) = read()?
                && !obeyed(key, &mut view)
            {
                return Ok(Left::ByKey);
            }
            continue;
        }
        match found.status() {
            Ok(status) if status["pid"] == first["pid"] && status["started"] == first["started"] => {
                let events = seen.look(&status);
                view.look(&status, &events, looked_at.elapsed());
                looked_at = Instant::now();
            }
            Ok(_) | Err(_) => return Ok(Left::ProcessEnded),
        }
    }
}

/// Obeys a key; returns false if it ends the view.
fn obeyed(key: KeyEvent, view: &mut View) -> bool {
    if key.kind == KeyEventKind::Release {
        return true;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Up => view.move_by(-1),
        KeyCode::Down => view.move_by(1),
        KeyCode::PageUp => view.move_by(-10),
        KeyCode::PageDown => view.move_by(10),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_the_view_or_move_it() {
        let mut view = View::new(&Value::Null);
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert!(obeyed(key(KeyCode::Down), &mut view) && obeyed(key(KeyCode::Char('x')), &mut view));
        assert!(!obeyed(key(KeyCode::Char('q')), &mut view));
        assert!(!obeyed(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &mut view));
    }
}
