//! One HTML file with all figures.

use std::fmt::Write as _;

use plait_report::escape;

use crate::claim::{Claim, Conclusion};
use crate::figure::{Figure, Row};
use crate::measure::{ENOUGH, Figures};
use plait_bench::digits;
use plait_lab::Strain;

const STYLE: &str = "
.warning { border-left: 4px solid var(--bad); padding: .3rem .8rem; background: var(--panel) }
td.number, th.number { text-align: right } table { font-size: .92rem; margin: .8rem 0 } .numbers th:first-child, .numbers td:first-child { width: 46% }
nav li { margin: .15rem 0 } .claim { border-left: 4px solid var(--line); padding: .1rem .8rem; margin: .8rem 0 } .claim p { margin: .2rem 0 }
details { margin: .6rem 0 } summary { cursor: pointer; color: var(--soft) } dl { margin: .4rem 0 } dt { color: var(--soft); font-size: .9rem } dd { margin: 0 0 .5rem }
.dump { font-size: .66rem; max-height: none; line-height: 1.35 } figure { max-width: 560px } .pair { align-items: start; margin: .8rem 0 }
@media (max-width: 480px) { th, td { padding: .25rem .35rem; font-size: .8rem } .dump { font-size: .52rem } }
";

/// The page.
pub(crate) fn page(figures: &Figures) -> anyhow::Result<String> {
    let mut html = String::from("<h1>The figures of the papers, measured again</h1>");
    head(figures, &mut html)?;
    for figure in &figures.figures {
        section(figure, &mut html)?;
    }
    plait_report::page("plait: the figures of the papers, measured again", STYLE, &html, figures)
}

fn head(figures: &Figures, html: &mut String) -> anyhow::Result<()> {
    let Figures { version, machine, runs, is_quick, is_optimised, seconds, was_busy, figures } = figures;
    write!(
        html,
        "<p class=\"lead\">plait {} on {}, {} processors, Linux {}; {}; {}. Medians of {runs} {}, in which all systems take turns; {:.0} s in all. \
         Every number under \"here\" was measured by this run of <code>plait-lab figures</code>; those under \"paper\" stand in the paper that is named.</p>",
        escape(version),
        escape(&machine.processor),
        machine.processors,
        escape(&machine.kernel),
        escape(&machine.openssl),
        escape(&machine.python),
        if *runs == 1 { "run" } else { "runs" },
        seconds
    )?;
    if *is_quick {
        html.push_str("<p class=\"warning\">Small sizes (--quick): this shows that all of it works, and no number is one to rely on.</p>");
    }
    if !is_optimised {
        html.push_str(
            "<p class=\"warning\">This program was built without optimisation: build it with --release.</p>",
        );
    }
    if *runs < ENOUGH {
        write!(
            html,
            "<p class=\"warning\">Fewer than {ENOUGH} runs: the medians are nothing to rely on.</p>"
        )?;
    }
    if *was_busy {
        html.push_str("<p class=\"warning\">The machine was busy while some of the figures were measured; these say so. Measure them again.</p>");
    }
    html.push_str("<nav><ul>");
    for figure in figures {
        let (id, source, title) = (figure.id.as_str(), escape(&figure.source), escape(&figure.title));
        write!(html, "<li><a href=\"#{id}\">{source}: {title}</a>: {}</li>", conclusion(figure.conclusion))?;
    }
    html.push_str("</ul></nav>");
    Ok(())
}

fn conclusion(conclusion: Conclusion) -> String {
    let class = match conclusion {
        Conclusion::Holds => "good",
        Conclusion::Differs => "bad",
        Conclusion::Unstated => "note",
    };
    format!("<span class=\"{class}\">{}</span>", conclusion.word())
}

fn section(figure: &Figure, html: &mut String) -> anyhow::Result<()> {
    let (id, title, source) = (figure.id.as_str(), escape(&figure.title), escape(&figure.source));
    let (published, made) = (escape(&figure.published), escape(&figure.made));
    write!(
        html,
        "<section id=\"{id}\"><h2>{title}</h2><p class=\"note\">{source}. {}</p><dl><dt>The paper</dt><dd>{published}</dd><dt>Here</dt><dd>{made}</dd></dl>",
        strain(&figure.strain)
    )?;
    html.push_str("<div class=\"pair\">");
    for picture in &figure.pictures {
        // Pictures and captions are made here, with what came from outside escaped in them.
        write!(html, "<figure>{}<figcaption>{}</figcaption></figure>", picture.svg, picture.caption)?;
    }
    html.push_str("</div>");
    for claim in &figure.claims {
        tell(claim, html)?;
    }
    numbers(&figure.rows, html)?;
    for exhibit in &figure.exhibits {
        let (title, text) = (escape(&exhibit.title), escape(&exhibit.text));
        write!(html, "<p class=\"note\">{title}</p><pre class=\"dump\">{text}</pre>")?;
    }
    for departure in &figure.departures {
        write!(html, "<p class=\"note\">Otherwise than in the paper: {}</p>", escape(departure))?;
    }
    if !figure.commands.is_empty() {
        let commands = escape(&figure.commands.join("\n"));
        write!(html, "<details><summary>Command lines, of one run</summary><pre>{commands}</pre></details>")?;
    }
    html.push_str("</section>");
    Ok(())
}

fn strain(strain: &Strain) -> String {
    match strain.was_busy {
        true => format!("{strain} <span class=\"bad\">The machine was busy.</span>"),
        false => strain.to_string(),
    }
}

fn tell(claim: &Claim, html: &mut String) -> anyhow::Result<()> {
    let Claim { paper, measured, rule, conclusion: verdict, why } = claim;
    write!(
        html,
        "<div class=\"claim\"><p>{} {}</p><p>Here: {}.",
        escape(paper),
        conclusion(*verdict),
        escape(measured)
    )?;
    if !rule.is_empty() {
        write!(html, " <small>It holds if: {}.</small>", escape(rule))?;
    }
    html.push_str("</p>");
    if !why.is_empty() {
        write!(html, "<p>Why: {}</p>", escape(why))?;
    }
    html.push_str("</div>");
    Ok(())
}

fn numbers(rows: &[Row], html: &mut String) -> anyhow::Result<()> {
    html.push_str(
        "<table class=\"numbers\"><tr><th>measured</th><th class=\"number\">paper</th><th class=\"number\">here, median</th>\
         <th class=\"number\">least to most</th></tr>",
    );
    let mut group = "";
    for row in rows {
        if row.group != group {
            group = &row.group;
            write!(html, "<tr><th colspan=\"4\">{}</th></tr>", escape(group))?;
        }
        let paper =
            row.paper.map_or_else(|| "–".to_owned(), |paper| format!("{} {}", digits(paper), row.unit));
        let (name, unit) = (escape(&row.name), escape(&row.unit));
        let (median, least, most) =
            (digits(row.measured.median), digits(row.measured.least), digits(row.measured.most));
        write!(
            html,
            "<tr><td>{name}</td><td class=\"number\">{}</td><td class=\"number\">{median} {unit}</td><td class=\"number\">{least} to {most}</td></tr>",
            escape(&paper)
        )?;
    }
    html.push_str("</table>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Exhibit, Id, Picture};
    use plait_bench::Spread;
    use plait_lab::Machine;

    fn figures(was_busy: bool) -> Figures {
        let machine = Machine {
            processor: "a <processor>".into(),
            processors: 2,
            kernel: "6.1".into(),
            openssl: "OpenSSL 3".into(),
            python: "Python 3".into(),
        };
        let strain = Strain {
            load_before: [0.5; 3],
            load_after: [1.5; 3],
            steal: 0.01,
            others: 0.02,
            seconds: 7.0,
            was_busy,
        };
        let figure = |id: Id| Figure {
            id,
            title: format!("title of {}", id.as_str()),
            source: "a paper, Figure 1".into(),
            published: "it was so".into(),
            made: "by <us>".into(),
            commands: vec!["plait listen 1".into()],
            departures: vec!["smaller".into()],
            rows: vec![Row {
                group: "all".into(),
                name: "speed".into(),
                unit: "Mbit/s".into(),
                paper: Some(90.0),
                measured: Spread::of([93.0, 95.0, 94.0]).expect("numbers"),
            }],
            claims: vec![Claim::judged("it is fast", "94".into(), "over 100", false, "because it is slow")],
            conclusion: Conclusion::Differs,
            pictures: vec![Picture { svg: "<svg></svg>".into(), caption: "a picture".into() }],
            exhibits: vec![Exhibit { title: "bytes".into(), text: "<script>alert(1)</script>".into() }],
            strain: strain.clone(),
        };
        Figures {
            version: "0.1.0".into(),
            machine,
            runs: 5,
            is_quick: false,
            is_optimised: true,
            seconds: 60.0,
            was_busy,
            figures: Id::ALL.map(figure).into(),
        }
    }

    #[test]
    fn every_figure_has_the_papers_number_ours_and_what_follows() {
        let html = page(&figures(false)).expect("a page");
        for id in Id::ALL {
            assert_eq!(
                html.matches(&format!("<section id=\"{}\"", id.as_str())).count(),
                1,
                "{}",
                id.as_str()
            );
        }
        for text in [
            "90.0 Mbit/s",
            "94.0 Mbit/s",
            "93.0 to 95.0",
            "because it is slow",
            "steal 1.0 %",
            "by &lt;us&gt;",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert!(!html.contains("was busy"));
    }

    #[test]
    fn a_busy_machine_is_told_at_the_top_and_with_the_figure() {
        let html = page(&figures(true)).expect("a page");
        assert!(html.contains("The machine was busy while some"));
        assert_eq!(html.matches("The machine was busy.</span>").count(), Id::ALL.len());
    }

    #[test]
    fn the_page_stands_alone_and_shows_what_was_heard_as_text() {
        let html = page(&figures(false)).expect("a page");
        for outside in ["src=", "http://", "https://", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("&lt;script&gt;alert(1)") && !html.contains("<script>alert"));
    }

    #[test]
    fn few_runs_and_small_sizes_are_told() {
        let html = page(&Figures { runs: 1, is_quick: true, ..figures(false) }).expect("a page");
        assert!(html.contains("Fewer than 5 runs") && html.contains("--quick"));
    }
}
