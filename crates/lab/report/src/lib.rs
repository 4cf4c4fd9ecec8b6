//! Pages that stand alone: one HTML file with everything in it, which opens without network, on a telephone, in the dark and on paper.
//!
//! [`page`] puts a head and the style around a body; [`chart`] draws pictures to be put into it as they are; [`escape`] keeps what
//! came from outside from being anything but text.

mod bars;
pub mod chart;

use serde::Serialize;

pub use bars::{Bar, Scale, bars};
pub use chart::{Axis, Chart, Level, Line, Shape, css as colour, key};

const STYLE: &str = "
:root { color-scheme: light dark; --paper: #ffffff; --panel: #f4f6f8; --ink: #1d2733; --soft: #5b6876; --line: #d8dee5; --good: #00694a; --bad: #a63a00 }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14191f; --panel: #1d242c; --ink: #e4e9ee; --soft: #9aa7b4; --line: #36414c; --good: #4cc79a; --bad: #ff9a66 } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1180px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { margin-top: 2.4rem; font-size: 1.25rem; margin-bottom: .4rem }
p.lead, p.note { color: var(--soft); margin: .2rem 0 .8rem }
table { border-collapse: collapse; width: 100%; table-layout: fixed } th, td { border: 1px solid var(--line); padding: .4rem .6rem; text-align: left; vertical-align: top; overflow-wrap: break-word }
th { background: var(--panel) } th small { font-weight: 400 } td small, th small { color: var(--soft) }
.good { color: var(--good); font-weight: 600 } .bad { color: var(--bad); font-weight: 600 }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 1rem }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: .6rem } figure svg { width: 100%; height: auto; display: block }
figcaption { color: var(--soft); font-size: .9rem } figcaption b { color: var(--ink) }
.entry { white-space: nowrap }
.key { display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin: 0 .25em 0 .6em }
.dashed, .dotted { display: inline-block; width: 1.4em; height: 0; margin: 0 .3em .25em .6em; border-top: 2px dashed rgb(210 50 50) } .dotted { border-top: 2px dotted var(--ink) }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--panel); border-radius: 6px; padding: .6rem; font-size: .78rem; max-height: 11rem; overflow: auto; margin: .3rem 0 }
@media print { body { max-width: none; margin: 0 } pre { max-height: none; overflow: visible } figure, tr, pre { break-inside: avoid } .key { print-color-adjust: exact } }
";

/// Nothing is fetched, even if captured text in the page asks for it; attempts are reported on the console.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A whole page: `body` is HTML, `style` comes behind the style that all pages have, and `figures` is put into the page as JSON.
///
/// # Errors
/// `figures` has no form in JSON.
pub fn page(title: &str, style: &str, body: &str, figures: &impl Serialize) -> anyhow::Result<String> {
    let title = escape(title);
    let figures = serde_json::to_string(figures)?.replace('<', "\\u003c");
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><link rel=\"icon\" href=\"data:,\">\
         <style>{STYLE}{style}</style></head><body>{body}\
         <script type=\"application/json\" id=\"figures\">{figures}</script></body></html>"
    ))
}

/// Text as HTML that shows it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_outside_is_text_in_the_page_and_in_its_figures() {
        let outside = "</script><script>alert(1)</script>";
        let html = page(outside, "", &escape(outside), &outside).expect("a page");
        assert_eq!(html.matches("<script").count(), 1, "{html}");
        assert_eq!(html.matches("</script>").count(), 1, "{html}");
    }

    #[test]
    fn a_page_names_nothing_outside_of_it() {
        let html = page("title", "td { color: red }", "<p>text</p>", &[1, 2]).expect("a page");
        for outside in ["src=", "http://", "https://", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
