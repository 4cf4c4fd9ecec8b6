//! A byte of the payload changed on the way, with DSS checksums on: the TCP checksum is right, only the DSS checksum is not.

use anyhow::{Result, ensure};

use super::transfer::{Direction, expect_join};
use crate::middlebox::corrupt_one_segment;
use crate::scenario::{BOTH, Context, Role, Scenario, Verdict};
use crate::session::{Outcome, Plan, Session};
use crate::testbed::{Shape, Testbed};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "mp-fail-by-peer",
        about: "the kernel finds a wrong DSS checksum on one of two subflows: nothing is lost",
        roles: BOTH,
        run: |context| one_of_two(context, Direction::FromSubject),
    },
    Scenario {
        name: "mp-fail-by-subject",
        about: "the subject finds a wrong DSS checksum on one of two subflows: nothing is lost",
        roles: BOTH,
        run: |context| one_of_two(context, Direction::ToSubject),
    },
    Scenario {
        name: "mp-fail-last-by-peer",
        about: "the kernel finds it on the only subflow: infinite mapping, or an end with an error",
        roles: BOTH,
        run: |context| only_one(context, Direction::FromSubject),
    },
    Scenario {
        name: "mp-fail-last-by-subject",
        about: "the subject finds it on the only subflow: infinite mapping, or an end with an error",
        roles: BOTH,
        run: |context| only_one(context, Direction::ToSubject),
    },
];

fn one_of_two(context: &Context<'_>, direction: Direction) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let plan = Plan::two_paths(context, &bed);
    let (outcome, changed) = corrupted(context, &bed, plan, direction, 2)?;
    ensure!(changed == 1, "{changed} segments were changed");
    outcome.verify()?;
    expect_join(context, &outcome)?;
    expect_fail(&outcome, direction)?;
    Ok(Verdict::Passed(outcome.evidence()))
}

fn only_one(context: &Context<'_>, direction: Direction) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(Verdict::NotApplicable(
            "two kernels (6.18) never end here: both fall back and wait for each other",
        ));
    }
    let bed = Testbed::new(Shape::Routed)?;
    let (outcome, changed) = corrupted(context, &bed, Plan::default(), direction, 1)?;
    ensure!(changed == 1, "{changed} segments were changed");
    expect_fail(&outcome, direction)?;
    let receiver =
        if outcome.client.received > outcome.server.received { &outcome.client } else { &outcome.server };
    let (differing, troubles) = (receiver.differing.unwrap_or(0), outcome.troubles());
    ensure!(
        !troubles.is_empty() || differing <= 1,
        "{differing} bytes differ and nobody complained; {}",
        outcome.evidence()
    );
    let text = if troubles.is_empty() { format!("{differing} byte differs; ") } else { troubles };
    Ok(Verdict::Passed(format!("{text}{}", outcome.evidence())))
}

/// Who received the change said so with MP_FAIL.
fn expect_fail(outcome: &Outcome, direction: Direction) -> Result<()> {
    match direction {
        Direction::ToSubject => outcome.expect("MPFailRx", 1),
        Direction::FromSubject | Direction::Both => {
            outcome.expect("DataCsumErr", 1)?;
            outcome.expect("MPFailTx", 1)
        }
    }
}

/// A transfer during which one segment on a path is changed, and how many were.
fn corrupted(
    context: &Context<'_>,
    bed: &Testbed,
    plan: Plan,
    direction: Direction,
    path: u8,
) -> Result<(Outcome, u64)> {
    bed.limit(100)?;
    let bytes = context.bytes_for(2, 200);
    let (up, down) = direction.split(context.role, bytes);
    let towards =
        match (direction, context.role) {
            (Direction::ToSubject, Role::Client)
            | (Direction::FromSubject | Direction::Both, Role::Server) => "c",
            (Direction::ToSubject, Role::Server)
            | (Direction::FromSubject | Direction::Both, Role::Client) => "s",
        };
    let mut session = Session::start(context, bed, Plan { checksum: true, ..plan }.moving(up, down))?;
    session.wait_for_bytes(bytes / 4)?;
    let rule = corrupt_one_segment(bed.router(path)?, towards)?;
    let outcome = session.finish()?;
    Ok((outcome, rule.packets()?))
}
