//! Ends that are not a quiet close: aborts, resets, half-closed connections.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;

use super::outage::GAP_GOAL_MS;
use super::transfer::{Direction, expect_join};
use crate::interop::middlebox::reset_everything;
use crate::interop::scenario::{BOTH, Context, Scenario, Verdict};
use crate::interop::session::{Plan, Session};
use plait_lab::wired::{Shape, Testbed};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "half-close",
        about: "one direction ends long before the other",
        roles: BOTH,
        run: half_close,
    },
    Scenario {
        name: "empty",
        about: "a connection that carries nothing closes at once",
        roles: BOTH,
        run: empty,
    },
    Scenario {
        name: "fastclose-by-peer",
        about: "the kernel aborts in mid-transfer: the subject ends at once, with an error",
        roles: BOTH,
        run: fastclose_by_peer,
    },
    Scenario {
        name: "fastclose-by-subject",
        about: "the subject is interrupted in mid-transfer: the kernel's end learns of it at once",
        roles: BOTH,
        run: fastclose_by_subject,
    },
    Scenario {
        name: "subflow-reset",
        about: "one subflow is reset from outside; the connection goes on",
        roles: BOTH,
        run: subflow_reset,
    },
];

fn half_close(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let (first, second) = (context.size() / 8, context.size() / 8);
    let mut plan = Plan::two_paths(context, &bed).moving(first, second);
    plan.peer_words.push("--close-last".to_owned());
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    outcome.expect_mptcp()?;
    Ok(Verdict::Passed(outcome.evidence()))
}

fn empty(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let began = Instant::now();
    let outcome = Session::run(context, &bed, Plan::default())?;
    outcome.verify()?;
    let text = format!("{} ms in all; kernel: {}", began.elapsed().as_millis(), outcome.kernel_evidence());
    Ok(Verdict::Passed(text))
}

fn fastclose_by_peer(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(200)?;
    let (up, down) = Direction::FromSubject.split(context.role, context.bytes_for(5, 400));
    let mut plan = Plan::two_paths(context, &bed).moving(up, down);
    plan.peer_words.extend(["--abort-after".to_owned(), "20000000".to_owned()]);
    let began = Instant::now();
    let outcome = Session::run(context, &bed, plan)?;
    let seconds = began.elapsed().as_secs_f64();
    outcome.expect("MPFastcloseTx", 1)?;
    ensure!(seconds < 4.0 || !context.judges_time(), "the subject went on for {seconds:.1} s");
    let told = outcome.troubles();
    ensure!(!told.is_empty(), "the subject did not notice; {}", outcome.evidence());
    Ok(Verdict::Passed(format!("over after {seconds:.1} s; {told}")))
}

fn fastclose_by_subject(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(200)?;
    let (up, down) = Direction::ToSubject.split(context.role, context.bytes_for(5, 400));
    let mut plan = Plan::two_paths(context, &bed).moving(up, down);
    plan.baseline_words.extend(["--abort-after".to_owned(), "20000000".to_owned()]);
    let mut session = Session::start(context, &bed, plan)?;
    session.wait_for_bytes(18_000_000)?;
    if !context.is_baseline() {
        session.signal_subject(Signal::SIGINT);
    }
    let interrupted = Instant::now();
    let outcome = session.finish()?;
    let ms = interrupted.elapsed().as_millis();
    outcome.expect("MPFastcloseRx", 1)?;
    ensure!(outcome.peer().error.is_some(), "the kernel's end saw a quiet close; {}", outcome.evidence());
    Ok(Verdict::Passed(format!("{ms} ms until both ends were over; {}", outcome.troubles())))
}

fn subflow_reset(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(100)?;
    let bytes = context.bytes_for(3, 100);
    let plan = Plan::two_paths(context, &bed).moving(bytes, bytes);
    let mut session = Session::start(context, &bed, plan)?;
    session.wait_for_bytes(bytes / 2)?;
    let resets = reset_everything(bed.router(2)?)?;
    sleep(Duration::from_millis(100));
    let reset = resets.packets()?;
    drop(resets);
    let outcome = session.finish()?;
    outcome.verify()?;
    expect_join(context, &outcome)?;
    ensure!(reset > 0, "no packet came by to be reset");
    outcome.expect_event("SF_CLOSED")?;
    let gap = outcome.longest_gap_from_subject_ms();
    let text = format!(
        "longest gap in what the subject sent {gap} ms; {reset} packets answered with resets; {}",
        outcome.evidence()
    );
    // How soon the kernel sends again what was lost is not ours to judge.
    ensure!(gap <= GAP_GOAL_MS || !context.judges_time(), "{text}");
    Ok(Verdict::Passed(text))
}
