//! Bytes from one end to the other, over one subflow and over two.

use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};

use crate::interop::scenario::{BOTH, Context, Role, Scenario, Verdict};
use crate::interop::session::{Outcome, Plan, Session};
use plait_lab::wired::{Shape, Testbed};

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "one-subflow-send",
        about: "a full transfer from the subject over one subflow",
        roles: BOTH,
        run: |context| one_subflow(context, Direction::FromSubject),
    },
    Scenario {
        name: "one-subflow-receive",
        about: "a full transfer to the subject over one subflow",
        roles: BOTH,
        run: |context| one_subflow(context, Direction::ToSubject),
    },
    Scenario {
        name: "one-subflow-both",
        about: "full transfers both ways at once over one subflow",
        roles: BOTH,
        run: |context| one_subflow(context, Direction::Both),
    },
    Scenario {
        name: "two-subflows-send",
        about: "a full transfer from the subject; each path carries at least 30 % (10 in a quick run)",
        roles: BOTH,
        run: |context| two_subflows(context, Direction::FromSubject),
    },
    Scenario {
        name: "two-subflows-receive",
        about: "a full transfer to the subject; each path carries at least 30 % (10 in a quick run)",
        roles: BOTH,
        run: |context| two_subflows(context, Direction::ToSubject),
    },
    Scenario {
        name: "two-subflows-both",
        about: "full transfers both ways at once; each path carries at least 30 % (10 in a quick run)",
        roles: BOTH,
        run: |context| two_subflows(context, Direction::Both),
    },
    Scenario {
        name: "two-subflows-unshaped",
        about: "full transfers both ways at once over two paths without a rate limit",
        roles: BOTH,
        run: unshaped,
    },
    Scenario {
        name: "aggregate-send",
        about: "goodput from the subject over two 100 Mbit/s paths is at least 1.8 times that over one",
        roles: BOTH,
        run: |context| aggregate(context, Direction::FromSubject),
    },
    Scenario {
        name: "aggregate-receive",
        about: "goodput to the subject over two 100 Mbit/s paths is at least 1.8 times that over one",
        roles: BOTH,
        run: |context| aggregate(context, Direction::ToSubject),
    },
    Scenario {
        name: "dss-checksum",
        about: "both ways at once over two subflows with DSS checksums",
        roles: BOTH,
        run: dss_checksum,
    },
    Scenario {
        name: "round-robin",
        about: "the subject's round-robin scheduler, both ways at once",
        roles: BOTH,
        run: |context| scheduler(context, "round-robin"),
    },
    Scenario {
        name: "redundant",
        about: "the subject's redundant scheduler: every byte on both paths",
        roles: BOTH,
        run: |context| scheduler(context, "redundant"),
    },
];

/// The direction of the bytes, seen from the subject.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    FromSubject,
    ToSubject,
    Both,
}

impl Direction {
    /// `bytes` as (up, down).
    pub(crate) fn split(self, role: Role, bytes: u64) -> (u64, u64) {
        match (self, role) {
            (Self::Both, Role::Client | Role::Server) => (bytes, bytes),
            (Self::FromSubject, Role::Client) | (Self::ToSubject, Role::Server) => (bytes, 0),
            (Self::FromSubject, Role::Server) | (Self::ToSubject, Role::Client) => (0, bytes),
        }
    }
}

fn one_subflow(context: &Context<'_>, direction: Direction) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let (up, down) = direction.split(context.role, context.size());
    let outcome = Session::run(context, &bed, Plan::default().moving(up, down))?;
    outcome.verify()?;
    outcome.expect_mptcp()?;
    Ok(Verdict::Passed(outcome.evidence()))
}

fn two_subflows(context: &Context<'_>, direction: Direction) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(200)?;
    let (up, down) = direction.split(context.role, context.size());
    let outcome = Session::run(context, &bed, Plan::two_paths(context, &bed).moving(up, down))?;
    outcome.verify()?;
    expect_join(context, &outcome)?;
    let share = outcome.smallest_share();
    // A quick run is over in a second: one timeout of 200 ms takes a path below what it carries in the long run.
    let least = if context.judges_time() { 30.0 } else { 10.0 };
    ensure!(share >= least, "one path carried only {share:.0} %: {}", outcome.evidence());
    Ok(Verdict::Passed(format!("smaller share {share:.0} %, {}", outcome.evidence())))
}

fn unshaped(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    let plan = Plan::two_paths(context, &bed).moving(context.size(), context.size());
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    expect_join(context, &outcome)?;
    Ok(Verdict::Passed(outcome.evidence()))
}

/// The client's second subflow came up, as the peer's kernel counts it.
pub(crate) fn expect_join(context: &Context<'_>, outcome: &Outcome) -> Result<()> {
    outcome.expect_mptcp()?;
    outcome.expect_event("SF_ESTABLISHED")?;
    match context.role {
        Role::Client => outcome.expect("MPJoinAckRx", 1),
        Role::Server => outcome.expect("MPJoinSynAckRx", 1),
    }
}

/// So often the two are compared: what else the machine does at the time takes from one of them only.
const TRIES: usize = 3;

fn aggregate(context: &Context<'_>, direction: Direction) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(100)?;
    let bytes = context.bytes_for(if context.is_quick() { 3 } else { 8 }, 100);
    let (up, down) = direction.split(context.role, bytes);
    let goodput = |plan: Plan| {
        let outcome = Session::run(context, &bed, plan.moving(up, down))?;
        outcome.verify()?;
        outcome.expect_mptcp()?;
        let receiver = if up > 0 { &outcome.server } else { &outcome.client };
        Ok::<_, anyhow::Error>((receiver.goodput_mbit(), outcome.kernel_evidence()))
    };
    let mut tries = String::new();
    for _ in 0..TRIES {
        let (one, _) = goodput(Plan::default())?;
        let (two, kernel) = goodput(Plan::two_paths(context, &bed))?;
        let ratio = two / one;
        let _ = write!(tries, "one path {one:.1} Mbit/s, two {two:.1} Mbit/s, ratio {ratio:.2}; ");
        // A slow transfer over one path would make any ratio look good.
        let holds = ratio >= 1.8 && one >= 80.0;
        if holds || !context.judges_time() {
            return Ok(Verdict::Passed(format!("{tries}\nkernel: {kernel}")));
        }
    }
    bail!("{tries}")
}

fn dss_checksum(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(200)?;
    let bytes = context.size() / 2;
    let plan = Plan { checksum: true, ..Plan::two_paths(context, &bed) }.moving(bytes, bytes);
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    expect_join(context, &outcome)?;
    let evidence = outcome.evidence();
    ensure!(evidence.contains(" checksum"), "the kernel's connection has no checksums: {evidence}");
    ensure!(outcome.count("DataCsumErr") == 0, "the kernel found wrong checksums: {evidence}");
    Ok(Verdict::Passed(evidence))
}

fn scheduler(context: &Context<'_>, name: &'static str) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(Verdict::NotApplicable("the kernel has one scheduler"));
    }
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(100)?;
    let bytes = context.bytes_for(2, 100);
    let plan = Plan { scheduler: Some(name), ..Plan::two_paths(context, &bed) }.moving(bytes, bytes);
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    expect_join(context, &outcome)?;
    let from_subject = |path: usize| match context.role {
        Role::Client => outcome.carried[path].1,
        Role::Server => outcome.carried[path].0,
    };
    let percent = |path| 100 * from_subject(path) / bytes;
    let text =
        format!("paths carried {} % and {} % of the bytes, {}", percent(0), percent(1), outcome.evidence());
    let least = match (name, context.judges_time()) {
        ("redundant", _) => 60,
        (_, true) => 30,
        // As in `two_subflows`. Each path carries its acknowledgments through the queue of the other direction, too.
        (_, false) => 15,
    };
    ensure!(percent(0) >= least && percent(1) >= least, "{text}");
    Ok(Verdict::Passed(text))
}
