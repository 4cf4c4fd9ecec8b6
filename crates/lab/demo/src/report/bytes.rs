//! The same 64 bytes at the client and on the paths.

use std::fmt::Write as _;

use plait_report::escape;

use crate::overheard::{Excerpt, Seen};
use crate::walkthrough::Walkthrough;

/// Bytes in a line: short enough for a telephone.
const LINE: usize = 8;

/// Per system what the client has, and what crossed each path there.
pub(super) fn section(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    html.push_str(
        "<h2>The same 64 bytes, on each path and at the client</h2><p class=\"note\">Out of the middle of a page of text that crosses both paths. Each byte of the stream crosses one \
         path; of the other path the bytes nearest to that place are shown.</p>",
    );
    for reading in &walkthrough.readings {
        let Some(excerpt) = &reading.excerpt else { continue };
        write!(html, "<section class=\"bytes\"><h3>{}</h3><div class=\"triple\">", reading.system.name())?;
        write!(
            html,
            "<div><p>at the client, bytes {} to {}</p><pre class=\"dump\">{}</pre></div>",
            excerpt.offset,
            excerpt.offset + excerpt.client.len() as u64,
            dump(&excerpt.client)
        )?;
        for seen in &excerpt.paths {
            write!(
                html,
                "<div><p>{}</p><pre class=\"dump\">{}</pre></div>",
                caption(seen, excerpt),
                dump(&seen.bytes)
            )?;
        }
        html.push_str("</div></section>");
    }
    Ok(())
}

fn caption(seen: &Seen, excerpt: &Excerpt) -> String {
    let path = escape(&seen.path);
    match (seen.away, seen.bytes == excerpt.client) {
        (0, true) => format!("on path {path}: <span class=\"bad\">the same</span>"),
        (0, false) => {
            format!(
                "on path {path}, at this place of the stream (to within {} bytes of headers and tags)",
                excerpt.overhead
            )
        }
        (away, _) => format!("on path {path}, {away} bytes away: these 64 did not cross it"),
    }
}

/// In hexadecimal, and beside it what is printable.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(LINE) {
        for byte in line {
            text.push_str(&format!("{byte:02x} "));
        }
        text.push(' ');
        text.extend(line.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '·',
        }));
        text.push('\n');
    }
    escape(&text)
}
