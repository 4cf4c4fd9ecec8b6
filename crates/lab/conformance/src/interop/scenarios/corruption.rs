//! A byte of the payload changed on the way, with DSS checksums on: the TCP checksum is right, only the DSS checksum is not.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use plait_netns::nft::Table;

use super::transfer::{Direction, expect_join};
use crate::interop::middlebox::corrupt_one_segment;
use crate::interop::scenario::{BOTH, Context, Role, Scenario, Verdict};
use crate::interop::session::{Outcome, Plan, Session, mptcp_counters, peer_namespace};
use plait_lab::wait_until;
use plait_lab::wired::{Shape, Testbed};

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
        run: only_one_to_peer,
    },
    Scenario {
        name: "mp-fail-last-by-subject",
        about: "the subject finds it on the only subflow and says so; the kernel answers with its infinite mapping",
        roles: BOTH,
        run: only_one_to_subject,
    },
];

fn one_of_two(context: &Context<'_>, direction: Direction) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let plan = Plan::two_paths(context, &bed);
    let (session, rule) = corrupted(context, &bed, plan, direction, 2)?;
    let outcome = session.finish()?;
    ensure!(rule.packets()? == 1, "{} segments were changed", rule.packets()?);
    outcome.verify()?;
    expect_join(context, &outcome)?;
    expect_fail(&outcome, direction)?;
    Ok(Verdict::Passed(outcome.evidence()))
}

/// The kernel is the receiver: it says MP_FAIL, the subject goes on with an infinite mapping or gives up; it never hangs.
fn only_one_to_peer(context: &Context<'_>) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(Verdict::NotApplicable("the kernel (6.18) does not go on after its infinite mapping"));
    }
    let bed = Testbed::new(Shape::Routed)?;
    let (session, rule) = corrupted(context, &bed, Plan::default(), Direction::FromSubject, 1)?;
    let outcome = session.finish()?;
    ensure!(rule.packets()? == 1, "{} segments were changed", rule.packets()?);
    expect_fail(&outcome, Direction::FromSubject)?;
    let (differing, troubles) = (outcome.peer().differing.unwrap_or(0), outcome.troubles());
    ensure!(
        !troubles.is_empty() || differing <= 1,
        "{differing} bytes differ and no side reported it; {}",
        outcome.evidence()
    );
    let text = if troubles.is_empty() { format!("{differing} byte differs; ") } else { troubles };
    Ok(Verdict::Passed(format!("{text}{}", outcome.evidence())))
}

/// The subject is the receiver: it says MP_FAIL, and the kernel answers with its infinite mapping. The transfer is not
/// waited for: the kernel (6.18) does not go on from there, to another kernel no more than to plait, and may not even hear
/// of a reset. What has come by then must be right but for the byte that was changed, which plain TCP would have delivered
/// too: the subject is interrupted, and its bytes are looked at. The kernel's end may only not take it for the end of the
/// stream.
fn only_one_to_subject(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let before = peer_namespace(&bed, context.role).counters()?;
    let mut plan = Plan::default();
    plan.peer_words.extend(["--timeout".to_owned(), "7".to_owned()]);
    let (mut session, rule) = corrupted(context, &bed, plan, Direction::ToSubject, 1)?;
    let counters = || Ok::<_, anyhow::Error>(session.peer().counters()?.since(&before));
    wait_until("MP_FAIL at the kernel and its infinite mapping", Duration::from_secs(60), || {
        let counters = counters()?;
        anyhow::Ok(counters.count("MPTcpExtMPFailRx") > 0 && counters.count("MPTcpExtInfiniteMapTx") > 0)
    })?;
    ensure!(rule.packets()? == 1, "{} segments were changed", rule.packets()?);
    let told = mptcp_counters(&counters()?);
    if context.is_baseline() {
        return Ok(Verdict::Passed(format!("kernel: {told}")));
    }
    session.signal_subject(Signal::SIGINT);
    let outcome = session.finish()?;
    let (received, differing) = (outcome.subject().received, outcome.subject().differing);
    let text = format!("{received} bytes were delivered until then; {}", outcome.evidence());
    let is_right = received > 0 && differing.is_some_and(|bytes| bytes <= 1);
    ensure!(is_right, "{differing:?} of them are wrong: {text}");
    ensure!(outcome.peer().error.is_some(), "the kernel's end saw a quiet close: {text}");
    Ok(Verdict::Passed(text))
}

/// The receiver of the change has sent MP_FAIL.
fn expect_fail(outcome: &Outcome, direction: Direction) -> Result<()> {
    match direction {
        Direction::ToSubject => outcome.expect("MPFailRx", 1),
        Direction::FromSubject | Direction::Both => {
            outcome.expect("DataCsumErr", 1)?;
            outcome.expect("MPFailTx", 1)
        }
    }
}

/// A transfer under way during which one segment on a path is changed.
fn corrupted<'a>(
    context: &Context<'_>,
    bed: &'a Testbed,
    plan: Plan,
    direction: Direction,
    path: u8,
) -> Result<(Session<'a>, Table)> {
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
    Ok((session, rule))
}
