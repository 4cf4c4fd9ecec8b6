//! One HTML file that opens without network, and beside it all figures as JSON.

mod bytes;
mod matrix;
mod pictures;
mod story;
mod topology;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use plait_bench::digits;
use plait_report::escape;

use crate::overheard::Overheard;
use crate::system::System;
use crate::walkthrough::Walkthrough;

/// The styles of this page. Everything with a colour says the same in words or by a sign.
const STYLE: &str = "
.headline { font-size: 1.15rem; font-weight: 600; border-left: 5px solid var(--good); padding: .4rem .8rem; background: var(--panel) }
.warning { border-left: 5px solid var(--bad); padding: .4rem .8rem; background: var(--panel) }
#attacks { table-layout: fixed } #attacks th, #attacks td { overflow-wrap: normal } #attacks th:first-child { width: 20% } #attacks td { text-align: center; font-size: .92rem } #attacks thead th { text-align: center }
td.intact { background: var(--fine) } td.broken { background: var(--lost) } td.forged { background: var(--worst) }
td b, td small { display: block } td.intact b { color: var(--good) } td.broken b, td.forged b { color: var(--bad) } td.intact small, td.broken small, td.forged small { color: var(--ink) }
:root { --fine: #e3f4ec; --lost: #fdeee4; --worst: #f9d9d4 }
@media screen and (prefers-color-scheme: dark) { :root { --fine: #14332a; --lost: #3a2619; --worst: #4a1d1d } }
details { margin: .4rem 0 1rem } summary { cursor: pointer; color: var(--soft) } h3 { margin: 1rem 0 .2rem; font-size: 1.02rem } .story { margin: .2rem 0 }
.scroll { overflow-x: auto } .scroll table { table-layout: auto; font-size: .88rem } .number { text-align: right; white-space: nowrap }
.topology { max-width: 640px; margin: 1rem 0 } #repair { max-width: 560px } .dump { font-size: .74rem; line-height: 1.3; max-height: none; white-space: pre }
.triple { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 250px), 1fr)); gap: .8rem; margin: .4rem 0 1.2rem } .triple > div { min-width: 0 } .triple p { margin: 0; font-size: .9rem }
dl.made { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem } dl.made dt { color: var(--soft) } dl.made dd { margin: 0; overflow-wrap: anywhere }
@media (max-width: 480px) { body { padding: 0 .7rem } h1 { font-size: 1.35rem } th, td { padding: .25rem .3rem; font-size: .8rem } #attacks td, #attacks th { font-size: .68rem; padding: .25rem .1rem } #attacks td small { font-size: .66rem } dl.made { grid-template-columns: 1fr } dl.made dd { margin-bottom: .5rem } }
@media print { td.intact, td.broken, td.forged, .headline { print-color-adjust: exact } details > :not(summary) { display: block } }
";

/// Writes the report of `walkthrough` to `file`, and all figures of all runs beside it, as JSON: the names of both.
///
/// # Errors
/// A picture cannot be drawn, or a file not be written.
pub fn write(walkthrough: &Walkthrough, file: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let raw = file.with_extension("json");
    let name = raw.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let save = |file: &Path, text: String| {
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    };
    save(file, page(walkthrough, &name)?)?;
    save(&raw, serde_json::to_string(walkthrough)? + "\n")?;
    Ok([file.to_owned(), raw])
}

fn page(walkthrough: &Walkthrough, raw: &str) -> anyhow::Result<String> {
    let mut html = String::new();
    head(walkthrough, &mut html)?;
    topology::draw(&mut html);
    matrix::table(walkthrough, &mut html)?;
    matrix::each_attack(walkthrough, &mut html)?;
    goals(walkthrough, &mut html)?;
    pictures::all(walkthrough, &mut html)?;
    bytes::section(walkthrough, &mut html)?;
    eavesdroppers(walkthrough, &mut html)?;
    made(walkthrough, raw, &mut html)?;
    plait_report::page(
        "plait: what each path saw, and what attacks did",
        STYLE,
        &html,
        &without_points(walkthrough),
    )
}

/// The data of the pictures is in the file beside the page; the page has the figures.
fn without_points(walkthrough: &Walkthrough) -> Walkthrough {
    let mut few = walkthrough.clone();
    let readings = few.readings.iter_mut().map(|reading| &mut reading.run);
    for run in readings.chain(few.trials.iter_mut().flat_map(|trial| &mut trial.runs)) {
        run.arrivals.clear();
        run.rates.clear();
    }
    few
}

fn head(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    let Walkthrough { provenance, strain, .. } = walkthrough;
    write!(
        html,
        "<h1>What each path saw, and what attacks on one path did</h1><p class=\"headline\" id=\"headline\">{}</p>\
         <p class=\"lead\">curl fetches a page of {} MB from a web server over two paths of {} Mbit/s and 20 ms round trip, by four systems. \
         Path <b>a</b> is trusted, path <b>b</b> is not. Figures are medians of {} {}, in which the systems take turns.</p>",
        escape(&walkthrough.headline()),
        digits(provenance.size as f64 / 1e6),
        crate::run::RATE,
        provenance.runs,
        if provenance.runs == 1 { "run" } else { "runs" }
    )?;
    let mut warn = |text: &str| html.push_str(&format!("<p class=\"warning\">{text}</p>"));
    if strain.was_busy {
        warn(
            "<b>The machine was busy</b> with something else meanwhile: what happened did happen, but times and rates are nothing to rely on.",
        );
    }
    if !provenance.is_optimised {
        warn("This program was built without optimisation, which slows plait down: build it with --release.");
    }
    if provenance.runs < 5 {
        warn("Fewer than five runs: the medians are nothing to rely on.");
    }
    Ok(())
}

fn goals(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    html.push_str(
        "<h2>How fast sealed is, and how soon it goes on</h2><p class=\"note\">In peace it is to be no more than 10 % slower than TLS over the kernel's \
         Multipath TCP, which has the same congestion control, CUBIC; under attack it is to carry what path a alone carries, less 15 %. Goodput is that of the page, from its first byte at the client \
         to its last. The longest gap is the longest time in which the client got nothing in between.</p>\
         <div class=\"scroll\"><table id=\"goals\"><thead><tr><th>situation</th><th class=\"number\">sealed, Mbit/s</th><th class=\"number\">goal</th><th>met</th>\
         <th class=\"number\">longest gap, sealed</th><th class=\"number\">the same, TLS over kernel MPTCP</th></tr></thead><tbody>",
    );
    let number = |value: Option<f64>, unit: &str, none: &str| {
        value.map_or(none.to_owned(), |value| format!("{}{unit}", digits(value)))
    };
    for goal in walkthrough.goals() {
        let met = match goal.is_met() {
            true => "<span class=\"good\">✓ met</span>",
            false => "<span class=\"bad\">✗ missed</span>",
        };
        write!(
            html,
            "<tr><th>{}</th><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{met}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            escape(story::title(&goal.situation)),
            number(goal.reached, "", "nothing arrived"),
            number(goal.least, "", "–"),
            number(goal.gaps[0], " ms", "–"),
            number(goal.gaps[1], " ms", "broken off")
        )?;
    }
    html.push_str("</tbody></table></div>");
    Ok(())
}

fn eavesdroppers(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    html.push_str(
        "<h2>What the eavesdroppers read</h2><p class=\"note\">In peace: a page of English text, 200 KB. Scrambling is obfuscation and no encryption: what one path \
         carried of it in a row is read from that path alone, without any key. The share beside it is of the bytes that this path carried.</p>",
    );
    for reading in &walkthrough.readings {
        write!(html, "<section class=\"heard\"><h3>{}</h3><div class=\"triple\">", reading.system.name())?;
        for path in &reading.overheard {
            heard(path, html)?;
        }
        html.push_str("</div></section>");
    }
    Ok(())
}

fn heard(path: &Overheard, html: &mut String) -> anyhow::Result<()> {
    let class = if path.is_trusted { "trusted" } else { "untrusted" };
    write!(html, "<div><p>path {}, {class}: {} bytes of payload, ", escape(&path.path), path.payload)?;
    match (&path.recovered, path.matches) {
        (Some((text, share)), _) => write!(
            html,
            "<span class=\"bad\">{:.1} % recovered by the attack</span></p><pre>{}</pre></div>",
            share * 100.0,
            escape(text)
        )?,
        (None, 0) => write!(html, "<span class=\"good\">no eight bytes of the page</span></p></div>")?,
        (None, _) => write!(
            html,
            "<span class=\"bad\">in clear</span></p><pre>{}</pre></div>",
            escape(&path.verbatim)
        )?,
    }
    Ok(())
}

fn made(walkthrough: &Walkthrough, raw: &str, html: &mut String) -> anyhow::Result<()> {
    let Walkthrough { provenance, strain, .. } = walkthrough;
    let machine = &provenance.machine;
    let unread: u64 = walkthrough.trials.iter().flat_map(|trial| &trial.runs).map(|run| run.unread).sum();
    html.push_str("<h2>How this was made</h2><dl class=\"made\" id=\"made\">");
    let entries = [
        ("date", provenance.date.clone()),
        ("command", provenance.command.clone()),
        (
            "plait",
            format!(
                "{}, commit {}, {}",
                provenance.version,
                provenance.commit,
                if provenance.is_optimised { "optimised" } else { "not optimised" }
            ),
        ),
        ("processor", format!("{}, {} to be had", machine.processor, machine.processors)),
        ("kernel", machine.kernel.clone()),
        ("programs", format!("{}; {}", machine.openssl, machine.python)),
        ("seed", provenance.seed.to_string()),
        (
            "runs",
            format!(
                "{} of each of {} systems in each of {} situations",
                provenance.runs,
                System::ALL.len(),
                walkthrough.attacks().len() + 1
            ),
        ),
        ("load", strain.to_string()),
        (
            "eavesdroppers",
            match unread {
                0 => "read everything that passed".to_owned(),
                bytes => format!("had no time for {bytes} bytes: they passed unread"),
            },
        ),
    ];
    for (what, text) in entries {
        write!(html, "<dt>{what}</dt><dd>{}</dd>", escape(&text))?;
    }
    write!(
        html,
        "<dt>raw data</dt><dd><a href=\"{0}\" download>{0}</a>: every run with its arrivals and rates, beside this page</dd></dl>",
        escape(raw)
    )?;
    Ok(())
}

#[cfg(test)]
mod tests;
