//! The systems and the attacks they survived: a coloured table, and each attack with its figures
//! folded away.

use std::fmt::Write as _;

use plait_bench::{Spread, digits};
use plait_report::{Bar, Scale, bars, escape};

use super::story;
use crate::run::Verdict;
use crate::system::System;
use crate::trial::{Outcome, Trial};
use crate::walkthrough::Walkthrough;

/// Attacks from top to bottom, systems from left to right, peace first.
pub(super) fn table(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    html.push_str(
        "<h2>Attacks on path b, by system</h2><p class=\"note\">Each attack strikes once, when path b has carried an eighth of the page; where what was forged was lost in a full queue, again and a little later. \
         <b>Intact</b>: every byte arrived, in every run. <b>Broken off</b>: the connection ended and the program said so. <b>Accepted forged data</b>: \
         the program was given bytes that the server never sent, and was not told.</p><table id=\"attacks\"><thead><tr><th>attack</th>",
    );
    for system in System::ALL {
        write!(html, "<th scope=\"col\">{}</th>", system.short_name())?;
    }
    html.push_str("</tr></thead><tbody>");
    for attack in std::iter::once(None).chain(walkthrough.attacks().into_iter().map(Some)) {
        let title = attack.map_or("in peace", story::title);
        write!(html, "<tr><th scope=\"row\">{}</th>", escape(title))?;
        for system in System::ALL {
            match walkthrough.trial(system, attack) {
                Some(trial) => cell(trial, html)?,
                None => html.push_str("<td>not run</td>"),
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    Ok(())
}

fn cell(trial: &Trial, html: &mut String) -> anyhow::Result<()> {
    let (outcome, times) = trial.outcome();
    let (class, sign) = match outcome {
        Outcome::Intact => ("intact", "✓"),
        Outcome::BrokenOff => ("broken", "✗"),
        Outcome::AcceptedForged | Outcome::Truncated => ("forged", "✗✗"),
    };
    let often = match times == trial.runs.len() {
        true => String::new(),
        false => format!("<small>{times} of {} runs</small>", trial.runs.len()),
    };
    let speed = match trial.goodput().filter(|_| outcome == Outcome::Intact) {
        Some(goodput) => format!("<small>{:.0} Mbit/s</small>", goodput.median),
        None => String::new(),
    };
    write!(html, "<td class=\"{class}\"><b>{sign} {}</b>{often}{speed}</td>", outcome.words())?;
    Ok(())
}

/// Each attack in a sentence, its figures folded, and the time to repair of the systems that
/// survived it.
pub(super) fn each_attack(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    html.push_str("<h2>What each attack is</h2>");
    for attack in std::iter::once(None).chain(walkthrough.attacks().into_iter().map(Some)) {
        let title = attack
            .map_or("in peace".to_owned(), |name| format!("{} <small>({name})</small>", story::title(name)));
        write!(
            html,
            "<section class=\"attack\"><h3>{title}</h3><p class=\"story\">{}</p><details><summary>Figures of each system</summary>",
            story::of(attack)
        )?;
        figures(walkthrough, attack, html)?;
        html.push_str("</details></section>");
    }
    repairs(walkthrough, html)
}

fn figures(walkthrough: &Walkthrough, attack: Option<&str>, html: &mut String) -> anyhow::Result<()> {
    html.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>system</th><th>outcome</th><th class=\"number\">goodput, Mbit/s</th><th class=\"number\">longest gap, ms</th>\
         <th class=\"number\">to repair, ms</th><th class=\"number\">bytes lost</th><th class=\"number\">packets touched</th></tr></thead><tbody>",
    );
    for system in System::ALL {
        let Some(trial) = walkthrough.trial(system, attack) else { continue };
        let (outcome, times) = trial.outcome();
        let lost = trial.runs.iter().map(|run| run.lost).max().unwrap_or(0);
        write!(
            html,
            "<tr><th>{}</th><td>{} in {times} of {}{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{lost}</td><td class=\"number\">{}</td></tr>",
            system.name(),
            outcome.words(),
            trial.runs.len(),
            said(trial),
            spread(trial.goodput()),
            spread(trial.gap()),
            spread(trial.repair()),
            trial.injected()
        )?;
    }
    html.push_str("</tbody></table></div><p class=\"note\">Median (least to most) of the runs in which the whole page arrived; the most bytes lost, the fewest packets touched.</p>");
    Ok(())
}

/// The error message of a program that broke off.
fn said(trial: &Trial) -> String {
    let words = trial.runs.iter().find_map(|run| match &run.verdict {
        Verdict::Died(said) => Some(said),
        Verdict::Survived | Verdict::WrongBytes | Verdict::Truncated => None,
    });
    words.map_or(String::new(), |said| format!("<br><small>{}</small>", escape(said)))
}

fn spread(spread: Option<Spread>) -> String {
    spread.map_or("–".to_owned(), |Spread { median, least, most, runs: _ }| {
        format!("{} ({} to {})", digits(median), digits(least), digits(most))
    })
}

/// How soon the page goes on: sealed, and beside it TLS over the kernel's Multipath TCP.
fn repairs(walkthrough: &Walkthrough, html: &mut String) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for attack in walkthrough.attacks() {
        for (colour, system) in [(2, System::Sealed), (4, System::TlsOverKernel)] {
            let Some(trial) = walkthrough.trial(system, Some(attack)) else { continue };
            let repair = trial.repair().filter(|_| trial.is_intact());
            all.push(Bar {
                name: format!("{}: {}", story::title(attack), system.short_name()),
                value: repair.as_ref().map_or(0.0, |spread| spread.median),
                text: repair.as_ref().map_or(trial.outcome().0.words().to_owned(), |spread| {
                    format!("{} ms", digits(spread.median))
                }),
                spread: repair.map(|spread| (spread.least, spread.most)),
                reference: None,
                colour,
            });
        }
    }
    write!(
        html,
        "<h2>Time to repair</h2><p class=\"note\">From the strike until the page goes on at the client: the end of the longest pause behind it.</p>\
         <figure id=\"repair\">{}<figcaption>Medians; the thin line is from the least to the most.{}</figcaption></figure>",
        bars(&all, Scale::Linear),
        plait_report::key([(2, System::Sealed.name()), (4, System::TlsOverKernel.name())])
    )?;
    Ok(())
}
