//! One HTML file with everything in it: opens without network.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context;
use plait_report::{Axis, Chart, Line, Shape, escape};

use crate::run::{Overheard, Run, STEP, Verdict};
use crate::system::System;
use crate::walkthrough::Walkthrough;

/// Colours and columns that only this page has.
const STYLE: &str = "#attacks th:first-child, #eavesdroppers th:first-child { width: 9rem }";
/// Width and height of the pictures.
const SIZE: (u32, u32) = (560, 250);

/// Writes the report of `walkthrough` to `file`, and the figures beside it as JSON inside of the page.
///
/// # Errors
/// A picture cannot be drawn, or the file not be written.
pub fn write(walkthrough: &Walkthrough, file: &Path) -> anyhow::Result<()> {
    fs::write(file, page(walkthrough)?).with_context(|| format!("writing {}", file.display()))
}

fn page(walkthrough: &Walkthrough) -> anyhow::Result<String> {
    let mut html = String::from(
        "<h1>What each path saw, and what attacks on one path did</h1>\
         <p class=\"lead\">curl fetches pages from a web server over two paths of 50 Mbit/s and 20 ms. Path <b>a</b> is \
         trusted, path <b>b</b> is not: an eavesdropper listens on each, an injector attacks on b.</p>",
    );
    html.push_str(
        "<h2>Attacks on path b, by system</h2><p class=\"note\">Each strikes once, when path b has carried an eighth of the page. Its packets are \
         counted in the injector's own capture.</p>",
    );
    attacks(walkthrough, &mut html)?;
    html.push_str(
        "<h2>One changed byte in the middle of a page</h2><p class=\"note\">Where in the stream the bytes that arrive at the client \
         belong, over time. The dashed line is the attack: TLS ends there, plait sealed takes the block another way.</p>",
    );
    pictures(walkthrough, "flip", &System::ALL, &mut html)?;
    html.push_str(
        "<h2>Path b dies in the middle of a page</h2><p class=\"note\">From the dashed line on path b carries nothing. What was \
         lost on it is sent again on path a.</p>",
    );
    pictures(walkthrough, "cut", &[System::TlsOverKernel, System::Sealed], &mut html)?;
    html.push_str("<h2>What the eavesdroppers read</h2>");
    eavesdroppers(walkthrough, &mut html)?;
    plait_report::page("plait: what each path saw", STYLE, &html, walkthrough)
}

fn attacks(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    html.push_str("<table id=\"attacks\"><tr><th>attack</th>");
    for system in System::ALL {
        write!(html, "<th>{}</th>", system.name())?;
    }
    html.push_str("</tr>");
    for attack in walkthrough.attacks() {
        write!(html, "<tr><th>{attack}</th>")?;
        for system in System::ALL {
            match walkthrough.under(system, attack) {
                Some(run) => outcome(run, html)?,
                None => html.push_str("<td>not run</td>"),
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
    Ok(())
}

fn outcome(run: &Run, html: &mut String) -> anyhow::Result<()> {
    let (class, text) = match &run.verdict {
        Verdict::Survived => ("good", "survived"),
        Verdict::Died(_) => ("bad", "died"),
        Verdict::WrongBytes => ("bad", "took wrong bytes for right ones"),
        Verdict::Truncated => ("bad", "took a part for the whole"),
    };
    let said = match &run.verdict {
        Verdict::Died(said) => format!("<br><small>{}</small>", escape(said)),
        Verdict::Survived | Verdict::WrongBytes | Verdict::Truncated => String::new(),
    };
    let goodput = match &run.verdict {
        Verdict::Survived => format!("{:.0} Mbit/s<br>", run.goodput()),
        Verdict::Died(_) | Verdict::WrongBytes | Verdict::Truncated => String::new(),
    };
    write!(
        html,
        "<td><span class=\"{class}\">{text}</span><br><small>{} bytes lost<br>longest gap {:.0} ms<br>{goodput}{} forged or \
         touched</small>{said}</td>",
        run.lost,
        run.longest_gap * 1000.0,
        match run.injected {
            1 => "1 packet".to_owned(),
            number => format!("{number} packets"),
        }
    )?;
    Ok(())
}

fn pictures(
    walkthrough: &Walkthrough,
    attack: &str,
    systems: &[System],
    html: &mut String,
) -> anyhow::Result<()> {
    html.push_str("<div class=\"pair\">");
    let until = walkthrough.attacks_end(attack);
    for system in systems {
        let Some(run) = walkthrough.under(*system, attack) else { continue };
        let key = key(run);
        for (what, svg) in
            [("place in the stream", arrivals(run, until)?), ("throughput per path", rates(run, until)?)]
        {
            let name = system.name();
            write!(html, "<figure>{svg}<figcaption><b>{name}</b>: {what} {key}</figcaption></figure>")?;
        }
    }
    html.push_str("</div>");
    Ok(())
}

/// Which colour is which path.
fn key(run: &Run) -> String {
    let names: Vec<String> = run.overheard.iter().map(|path| format!("path {}", path.path)).collect();
    plait_report::key(names.iter().map(String::as_str).enumerate())
}

/// Place in the stream over time, a point per arrival, a colour per path: the paper's Figure 9.
fn arrivals(run: &Run, until: f64) -> anyhow::Result<String> {
    let points = |path: usize| -> Vec<(f64, f64)> {
        let mine = run.arrivals.iter().filter(|arrival| arrival.1 == path);
        mine.map(|(at, _, place)| (*at, *place as f64 / 1e6)).collect()
    };
    let y = Axis { unit: "MB of the stream", until: run.size.max(1) as f64 / 1e6 * 1.05 };
    draw(run, until, y, points, Shape::Points)
}

/// Mbit/s over time, a line per path.
fn rates(run: &Run, until: f64) -> anyhow::Result<String> {
    let points = |path: usize| -> Vec<(f64, f64)> {
        let step = STEP.as_secs_f64();
        let mine = run.rates.get(path).into_iter().flatten().enumerate();
        // A step's rate belongs to its middle.
        mine.map(|(at, rate)| ((at as f64 + 0.5) * step, *rate)).collect()
    };
    let highest = run.rates.iter().flatten().copied().fold(55.0, f64::max);
    draw(run, until, Axis { unit: "Mbit/s", until: highest * 1.05 }, points, Shape::Lines)
}

fn draw(
    run: &Run,
    until: f64,
    y: Axis<'_>,
    points: impl Fn(usize) -> Vec<(f64, f64)>,
    shape: Shape,
) -> anyhow::Result<String> {
    let line = |path| Line { colour: path, shape, points: points(path), spreads: Vec::new() };
    let lines = (0..run.overheard.len()).map(line).collect();
    Chart { x: Axis { unit: "seconds", until }, y, size: SIZE, mark: run.struck, lines }.draw()
}

fn eavesdroppers(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    html.push_str("<table id=\"eavesdroppers\"><tr><th>system</th><th>path a, trusted</th><th>path b, untrusted</th></tr>");
    for system in System::ALL {
        let Some(run) = walkthrough.baseline(system) else { continue };
        let speed = run.seconds;
        write!(html, "<tr><th>{}<br><small>{speed:.2} s</small></th>", system.name())?;
        for path in &run.overheard {
            heard(path, html)?;
        }
        html.push_str("</tr>");
    }
    html.push_str(
        "</table><p>Scrambling is obfuscation and no encryption: what one path carried of it in a row is read from that \
         path alone, without any key. The share beside it is of the bytes that this path carried.</p>",
    );
    Ok(())
}

fn heard(path: &Overheard, html: &mut String) -> anyhow::Result<()> {
    write!(html, "<td>{} bytes of payload, ", path.payload)?;
    match (&path.recovered, path.matches) {
        (Some((text, share)), _) => write!(
            html,
            "<span class=\"bad\">{:.1} % recovered by the attack</span><pre>{}</pre>",
            share * 100.0,
            escape(text)
        )?,
        (None, 0) => write!(html, "<span class=\"good\">no eight bytes of the page</span>")?,
        (None, _) => {
            write!(html, "<span class=\"bad\">in clear</span><pre>{}</pre>", escape(&path.verbatim))?;
        }
    }
    html.push_str("</td>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(system: System, attack: Option<&str>, verdict: Verdict) -> Run {
        let overheard = |path: &str| Overheard {
            path: path.into(),
            is_trusted: path == "a",
            payload: 1000,
            matches: u64::from(system == System::Plain),
            verbatim: "<script>alert(1)</script>".into(),
            recovered: None,
        };
        Run {
            system,
            attack: attack.map(Into::into),
            verdict,
            size: 1_000_000,
            lost: 7,
            seconds: 1.5,
            longest_gap: 0.25,
            injected: 1,
            struck: Some(0.7),
            overheard: vec![overheard("a"), overheard("b")],
            arrivals: (0..100usize).map(|n| (n as f64 / 50.0, n % 2, 1000 * n as u64)).collect(),
            rates: vec![vec![40.0; 30], vec![45.0; 20]],
        }
    }

    fn walkthrough() -> Walkthrough {
        let mut runs = Vec::new();
        for system in System::ALL {
            runs.push(run(system, None, Verdict::Survived));
            let verdict = match system {
                System::Sealed => Verdict::Survived,
                _ => Verdict::Died("curl: (56) <reset>".into()),
            };
            runs.push(run(system, Some("flip"), verdict.clone()));
            runs.push(run(system, Some("cut"), verdict));
        }
        Walkthrough { runs }
    }

    #[test]
    fn the_page_stands_alone_and_shows_what_was_heard_as_text() {
        let html = page(&walkthrough()).expect("a page");
        for outside in ["src=", "http://", "https://", "@import", "url("] {
            // The name space of SVG is a name and no address that is fetched.
            let html = html.replace("http://www.w3.org/2000/svg", "");
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("&lt;script&gt;alert(1)"));
        assert!(!html.contains("<script>alert"));
        assert_eq!(html.matches("<svg").count(), 12);
        assert!(html.matches("survived").count() >= 2);
    }

    #[test]
    fn a_walkthrough_that_contradicts_itself_says_where() {
        assert_eq!(walkthrough().contradictions(), Vec::<String>::new());
        let mut broken = walkthrough();
        broken.runs.iter_mut().filter(|e| e.system == System::Sealed).for_each(|run| {
            run.verdict = Verdict::WrongBytes;
            run.injected = 0;
            run.overheard[1].matches = 3;
        });
        assert_eq!(broken.contradictions().len(), 8, "{:#?}", broken.contradictions());
    }
}
