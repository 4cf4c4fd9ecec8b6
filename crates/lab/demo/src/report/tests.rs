use super::*;
use crate::overheard::{Excerpt, Seen};
use crate::provenance::Provenance;
use crate::run::{Run, Verdict};
use crate::trial::Trial;
use crate::walkthrough::{ATTACKS, Reading};

/// A run of 4 MB with so many points and words as a real one has.
fn run(verdict: Verdict, attack: Option<&str>) -> Run {
    Run {
        verdict,
        size: 4_000_000,
        lost: 7,
        seconds: 1.5,
        goodput: 71.0,
        longest_gap: 0.25,
        repair: attack.map(|_| 0.12),
        injected: 1,
        struck: attack.map(|_| 0.7),
        matches: 0,
        unread: 0,
        arrivals: (0..1200usize).map(|n| (n as f64 / 800.0, n % 2, 3000 * n as u64)).collect(),
        rates: vec![(0..75).map(|step| f64::from(step % 50)).collect(); 2],
    }
}

fn reading(system: System) -> Reading {
    let overheard = |path: &str| Overheard {
        path: path.into(),
        is_trusted: path == "a",
        payload: 1000,
        matches: u64::from(system == System::Plain),
        verbatim: "<script>alert(1)</script> and what else is read of a diary, ".repeat(12),
        recovered: None,
    };
    let seen =
        |path: &str, away| Seen { path: path.into(), away, bytes: (0..64).map(|byte| byte * 3).collect() };
    let excerpt = Excerpt {
        offset: 100_000,
        overhead: 210,
        client: b"<b>sixty-four bytes</b> of a page that ought to be text &c, right".to_vec(),
        paths: vec![seen("a", 1234), seen("b", 0)],
    };
    let mut run = run(Verdict::Survived, None);
    run.matches = u64::from(system == System::Plain);
    Reading { system, run, overheard: vec![overheard("a"), overheard("b")], excerpt: Some(excerpt) }
}

pub(super) fn walkthrough() -> Walkthrough {
    let mut trials = Vec::new();
    for attack in std::iter::once(None).chain(ATTACKS.into_iter().map(|name| Some(name.as_str()))) {
        for system in System::ALL {
            let verdict = match (system, attack) {
                (System::Sealed, _) | (_, None) => Verdict::Survived,
                (System::Plain, Some("flip")) => Verdict::WrongBytes,
                _ => Verdict::Died("curl: (56) <reset>".into()),
            };
            let mut one = run(verdict, attack);
            one.matches = u64::from(system == System::Plain);
            trials.push(Trial { system, attack: attack.map(Into::into), runs: vec![one; 5] });
        }
    }
    let mut strain = plait_lab::Watch::start().end();
    strain.was_busy = false;
    Walkthrough {
        provenance: Provenance::look(1, 5, 4_000_000),
        strain,
        readings: System::ALL.map(reading).to_vec(),
        trials,
    }
}

#[test]
fn the_page_stands_alone_is_small_and_shows_what_was_heard_as_text() {
    let html = page(&walkthrough(), "report.json").expect("a page");
    for outside in ["src=", "http://", "https://", "@import", "url("] {
        // The name space of SVG is a name and no address that is fetched.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("&lt;script&gt;alert(1)") && html.contains("&lt;b&gt;sixty"));
    assert!(!html.contains("<script>alert"));
    assert_eq!(html.matches("<svg").count(), 2 + 2 * (2 + 4 + 2));
    assert!(html.len() < 400_000, "{} bytes", html.len());
}

#[test]
fn the_headline_counts_intact_systems_and_forged_data_is_called_so() {
    let html = page(&walkthrough(), "report.json").expect("a page");
    assert!(html.contains(
        "6 attacks, 4 systems: sealed 6/6 intact; scrambled 0/6 intact; plain 0/6 intact; TLS over kernel MPTCP 0/6 intact"
    ));
    assert!(html.contains("✗✗ accepted forged data"));
    for name in ATTACKS.map(plait_lab::AttackName::as_str) {
        assert_ne!(story::of(Some(name)), story::of(Some("another")), "{name} is explained");
        assert_ne!(story::title(name), name);
    }
}

#[test]
fn a_walkthrough_on_a_busy_machine_of_one_run_says_both() {
    let mut doubtful = walkthrough();
    let sound = page(&doubtful, "report.json").expect("a page");
    assert!(!sound.contains("The machine was busy</b>") && !sound.contains("Fewer than five runs"));
    doubtful.strain.was_busy = true;
    doubtful.provenance.runs = 1;
    let html = page(&doubtful, "report.json").expect("a page");
    assert!(html.contains("The machine was busy</b>") && html.contains("Fewer than five runs"));
}

#[test]
fn a_walkthrough_that_contradicts_itself_says_where() {
    assert_eq!(walkthrough().contradictions(), Vec::<String>::new());
    let mut broken = walkthrough();
    for trial in broken.trials.iter_mut().filter(|trial| trial.system == System::Sealed) {
        trial.runs.truncate(1);
        trial.runs[0].verdict = Verdict::WrongBytes;
        trial.runs[0].injected = 0;
        trial.runs[0].matches = 3;
    }
    // In clear: seven; not whole: seven; never on the wire: six.
    assert_eq!(broken.contradictions().len(), 20, "{:#?}", broken.contradictions());
}

#[test]
fn goals_are_missed_where_sealed_is_too_slow_or_nothing_arrives() {
    let mut walkthrough = walkthrough();
    assert!(walkthrough.goals().iter().all(crate::Goal::is_met), "{:#?}", walkthrough.goals());
    for trial in &mut walkthrough.trials {
        match (trial.system, trial.attack.as_deref()) {
            (System::TlsOverKernel, None) => trial.runs.iter_mut().for_each(|run| run.goodput = 80.0),
            (System::Sealed, Some("rst")) => trial.runs.iter_mut().for_each(|run| run.goodput = 40.0),
            (System::Sealed, Some("cut")) => {
                trial.runs.iter_mut().for_each(|run| run.verdict = Verdict::Truncated);
            }
            _ => {}
        }
    }
    let missed: Vec<String> =
        walkthrough.goals().into_iter().filter(|goal| !goal.is_met()).map(|goal| goal.situation).collect();
    assert_eq!(missed, ["peace", "rst", "cut"]);
}
