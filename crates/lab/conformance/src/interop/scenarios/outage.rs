//! Paths that go away, with and without a word.

use anyhow::{Result, ensure};

use super::transfer::{Direction, expect_join};
use crate::interop::scenario::{BOTH, CLIENT, Context, Role, Scenario, Verdict};
use crate::interop::session::{Outcome, Plan, Session};
use plait_lab::wired::{Shape, Testbed};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "path-down-send",
        about: "a path is taken down while the subject sends: nothing lost, the gap beside the kernel's own",
        roles: BOTH,
        run: |context| outage(context, Outage::Down, Direction::FromSubject),
    },
    Scenario {
        name: "path-down-receive",
        about: "a path is taken down while the kernel sends",
        roles: BOTH,
        run: |context| outage(context, Outage::Down, Direction::ToSubject),
    },
    Scenario {
        name: "black-hole-send",
        about: "a path is silently black-holed while the subject sends",
        roles: BOTH,
        run: |context| outage(context, Outage::BlackHole, Direction::FromSubject),
    },
    Scenario {
        name: "black-hole-receive",
        about: "a path is silently black-holed while the kernel sends",
        roles: BOTH,
        run: |context| outage(context, Outage::BlackHole, Direction::ToSubject),
    },
    Scenario {
        name: "dead-first-path",
        about: "the first path is dead from the start: connected in less than 1.5 s",
        roles: CLIENT,
        run: dead_first_path,
    },
];

/// How the first path ends.
#[derive(Clone, Copy)]
enum Outage {
    /// Its device goes down at the client.
    Down,
    /// Its router swallows everything.
    BlackHole,
}

/// The goal for the longest gap in delivery.
pub(super) const GAP_GOAL_MS: u64 = 1000;

fn outage(context: &Context<'_>, outage: Outage, direction: Direction) -> Result<Verdict> {
    let outcome = interrupted(context, outage, direction)?;
    let gap = outcome.longest_gap_ms();
    if context.is_baseline() || !context.judges_time() {
        return Ok(Verdict::Passed(format!("longest gap {gap} ms; {}", outcome.evidence())));
    }
    // The kernel may take longer than the connection's patience: then there is only no figure to stand beside.
    let kernel =
        interrupted(&context.as_baseline(), outage, direction).map(|outcome| outcome.longest_gap_ms());
    let beside = kernel.as_ref().map_or_else(|error| format!("failed: {error:#}"), |gap| format!("{gap} ms"));
    let text = format!("longest gap {gap} ms, kernel to kernel {beside}; {}", outcome.evidence());
    // What the kernel sends waits for the kernel to notice; that is not ours to judge.
    let judged = direction == Direction::FromSubject;
    ensure!(!judged || gap <= GAP_GOAL_MS || kernel.is_ok_and(|kernel| gap <= kernel), "{text}");
    Ok(Verdict::Passed(text))
}

fn interrupted(context: &Context<'_>, outage: Outage, direction: Direction) -> Result<Outcome> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(100)?;
    let bytes = context.bytes_for(4, 100);
    let (up, down) = direction.split(context.role, bytes);
    let mut session = Session::start(context, &bed, Plan::two_paths(context, &bed).moving(up, down))?;
    session.wait_for_bytes(bytes / 3)?;
    let hole = match outage {
        Outage::Down => {
            bed.take_down(1)?;
            None
        }
        Outage::BlackHole => Some(bed.black_hole(1)?),
    };
    let outcome = session.finish()?;
    drop(hole);
    outcome.verify()?;
    expect_join(context, &outcome)?;
    Ok(outcome)
}

fn dead_first_path(context: &Context<'_>) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(Verdict::NotApplicable("the kernel sends its first SYN over one path only"));
    }
    debug_assert_eq!(context.role, Role::Client);
    let bed = Testbed::new(Shape::Routed)?;
    let hole = bed.black_hole(1)?;
    let outcome = Session::run(context, &bed, Plan::two_paths(context, &bed).moving(1_000_000, 1_000_000))?;
    outcome.verify()?;
    let (ms, swallowed) = (outcome.connect_ms, hole.packets()?);
    let text = format!("connected after {ms} ms ({swallowed} packets swallowed); {}", outcome.evidence());
    ensure!(ms < 1500 || !context.judges_time(), "{text}");
    Ok(Verdict::Passed(text))
}
