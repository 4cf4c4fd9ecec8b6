//! More subflows: joins, announced and removed addresses, backup paths and priorities.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use plait_netns::mptcp::EndpointFlag;

use super::transfer::{Direction, expect_join};
use crate::interop::scenario::{BOTH, CLIENT, Context, Role, Scenario, Verdict};
use crate::interop::session::{Plan, Session, Use, endpoint, namespace_of};
use plait_lab::wired::{Shape, Testbed, device};

/// How long the shares of both paths are looked at, and how often until they are what they should be.
const LOOK: Duration = Duration::from_millis(300);
const MOST_LOOKS: usize = 6;

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "join-by-client",
        about: "the client joins from its second address; announcements are not followed",
        roles: BOTH,
        run: join_by_client,
    },
    Scenario {
        name: "add-addr-by-peer",
        about: "the kernel announces its second address: echoed, and joined if it listens there",
        roles: BOTH,
        run: announced_by_peer,
    },
    Scenario {
        name: "add-addr-with-port",
        about: "the kernel announces its second address with a port, without timestamps: joined there",
        roles: CLIENT,
        run: announced_with_port,
    },
    Scenario {
        name: "third-path-after-limit",
        about: "the kernel takes one more subflow and refuses the next; when a path is lost, that is joined",
        roles: CLIENT,
        run: third_after_limit,
    },
    Scenario {
        name: "add-addr-by-subject",
        about: "the subject announces its second address, with the right HMAC",
        roles: BOTH,
        run: announced_by_subject,
    },
    Scenario {
        name: "remove-addr-by-peer",
        about: "the kernel removes an address in mid-transfer",
        roles: BOTH,
        run: removed_by_peer,
    },
    Scenario {
        name: "remove-addr-by-subject",
        about: "the subject loses an address in mid-transfer and says so",
        roles: BOTH,
        run: removed_by_subject,
    },
    Scenario {
        name: "backup-path",
        about: "a backup path is idle until the other one is black-holed",
        roles: BOTH,
        run: backup,
    },
    Scenario {
        name: "mp-prio-by-peer",
        about: "the kernel makes a path a backup in mid-transfer, and takes it back",
        roles: BOTH,
        run: priority_by_peer,
    },
    Scenario {
        name: "mp-prio-by-subject",
        about: "the subject makes a path a backup in mid-transfer, and takes it back: the kernel obeys",
        roles: BOTH,
        run: priority_by_subject,
    },
];

/// The speed of each path here, in Mbit/s.
const RATE: u32 = 100;

fn shaped() -> Result<Testbed> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(RATE)?;
    Ok(bed)
}

fn join_by_client(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let mut plan =
        Plan::two_paths(context, &bed).moving(context.bytes_for(1, 200), context.bytes_for(1, 200));
    if context.is_baseline() && context.role == Role::Server {
        // The kernel needs no more to take a join over its other device; what plait announces is not followed.
        plan.subject_paths.truncate(1);
    }
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    expect_join(context, &outcome)?;
    Ok(Verdict::Passed(outcome.evidence()))
}

fn announced_by_peer(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let mut announced = endpoint(context, &bed, context.role.other(), &[EndpointFlag::Signal]);
    if context.role == Role::Server {
        // Only an address with a port makes the kernel's client listen.
        announced.port = Some(10_100);
        // ADD_ADDR with an IPv6 address, a port and the HMAC takes 32 bytes of option space: none is left for timestamps.
        bed.client.set_sysctl("net.ipv4.tcp_timestamps", 0)?;
    }
    let bytes = context.bytes_for(2, 100);
    let mut plan = Plan::two_paths(context, &bed).moving(bytes, bytes);
    (plan.peer_endpoints, plan.subject_meshes) = (vec![announced], true);
    if context.is_baseline() {
        // The path follows from the announcement alone.
        plan.subject_paths.truncate(1);
    }
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    outcome.expect("AddAddrTx", 1)?;
    outcome.expect("EchoAdd", 1)?;
    if context.role == Role::Client {
        outcome.expect("MPJoinAckRx", 1)?;
    }
    Ok(Verdict::Passed(outcome.evidence()))
}

/// ADD_ADDR with an IPv6 address, a port and the HMAC leaves no option space for timestamps.
fn announced_with_port(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    bed.server.set_sysctl("net.ipv4.tcp_timestamps", 0)?;
    let mut announced = endpoint(context, &bed, Role::Server, &[EndpointFlag::Signal]);
    announced.port = Some(10_100);
    let bytes = context.bytes_for(2, 100);
    let mut plan = Plan::two_paths(context, &bed).moving(bytes, bytes);
    (plan.peer_endpoints, plan.subject_meshes) = (vec![announced], true);
    if context.is_baseline() {
        plan.subject_paths.truncate(1);
    }
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    outcome.expect("AddAddrTx", 1)?;
    outcome.expect("EchoAdd", 1)?;
    outcome.expect("MPJoinPortAckRx", 1)?;
    Ok(Verdict::Passed(outcome.evidence()))
}

/// Linux says "administratively prohibited" of a join beyond its limit, as if that were so for good.
fn third_after_limit(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let bytes = context.bytes_for(6, 100);
    let mut plan = Plan::two_paths(context, &bed).moving(bytes, 0);
    (plan.peer_subflow_limit, plan.subject_meshes) = (1, true);
    let mut session = Session::start(context, &bed, plan)?;
    // The second path has its subflow before there is an address for more.
    session.wait_for_bytes(bytes / 8)?;
    session.peer().add_mptcp_endpoint(&endpoint(context, &bed, Role::Server, &[EndpointFlag::Signal]))?;
    session.wait_for_bytes(bytes / 4)?;
    plait_netns::Link::existing(namespace_of(&bed, context.role), &device(2))?.down()?;
    let outcome = session.finish()?;
    outcome.verify()?;
    if !context.is_baseline() {
        outcome.expect("MPJoinRejected", 1)?;
        outcome.expect("MPJoinAckRx", 2)?;
    }
    Ok(Verdict::Passed(outcome.evidence()))
}

fn announced_by_subject(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let bytes = context.bytes_for(2, 100);
    let mut plan = Plan::two_paths(context, &bed).moving(bytes, bytes);
    (plan.peer_endpoints, plan.peer_accepts_announced, plan.subject_announces) = (Vec::new(), true, true);
    let outcome = Session::run(context, &bed, plan)?;
    outcome.verify()?;
    outcome.expect("AddAddr", 1)?;
    outcome.expect_event("ANNOUNCED")?;
    outcome.expect("EchoAddTx", 1)?;
    if context.role == Role::Server {
        outcome.expect("MPJoinSynAckRx", 1)?;
    }
    Ok(Verdict::Passed(outcome.evidence()))
}

fn removed_by_peer(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let bytes = context.bytes_for(3, 200);
    let (up, down) = Direction::FromSubject.split(context.role, bytes);
    let mut plan = Plan::two_paths(context, &bed).moving(up, down);
    if context.role == Role::Client {
        plan.peer_endpoints = vec![endpoint(context, &bed, Role::Server, &[EndpointFlag::Signal])];
    }
    let mut session = Session::start(context, &bed, plan)?;
    session.wait_for_bytes(bytes / 3)?;
    session.peer().remove_mptcp_endpoint(2)?;
    let outcome = session.finish()?;
    outcome.verify()?;
    outcome.expect("RmAddrTx", 1)?;
    Ok(Verdict::Passed(outcome.evidence()))
}

fn removed_by_subject(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let bytes = context.bytes_for(3, 200);
    let (up, down) = Direction::FromSubject.split(context.role, bytes);
    let mut plan = Plan::two_paths(context, &bed).moving(up, down);
    plan.peer_accepts_announced = true;
    let mut session = Session::start(context, &bed, plan)?;
    session.wait_for_bytes(bytes / 3)?;
    let subject = namespace_of(&bed, context.role);
    if context.is_baseline() {
        subject.remove_mptcp_endpoint(2)?;
    } else {
        plait_netns::Link::existing(subject, &device(2))?.down()?;
    }
    let outcome = session.finish()?;
    outcome.verify()?;
    outcome.expect("RmAddr", 1)?;
    outcome.expect_event("REMOVED")?;
    Ok(Verdict::Passed(outcome.evidence()))
}

/// The client's second path is the backup: the subject's own as a client, the kernel's when the subject listens.
fn backup(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let bytes = context.bytes_for(3, 100);
    let (up, down) = Direction::FromSubject.split(context.role, bytes);
    let mut plan = Plan::two_paths(context, &bed).moving(up, down);
    match context.role {
        Role::Client => plan.subject_paths[1].1 = Use::Backup,
        Role::Server => {
            if context.is_baseline() {
                plan.subject_paths.truncate(1);
            }
            plan.peer_endpoints[0].flags.push(EndpointFlag::Backup);
        }
    }
    let mut session = Session::start(context, &bed, plan)?;
    session.wait_for_bytes(bytes / 2)?;
    let carried = session.carried()?;
    let on = |path: usize| carried[path].0 + carried[path].1;
    let share = 100 * on(1) / (on(0) + on(1));
    ensure!(share < 5, "the backup path carried {share} % while the other was well");
    let hole = bed.black_hole(1)?;
    let outcome = session.finish()?;
    drop(hole);
    outcome.verify()?;
    match context.role {
        Role::Client => outcome.expect("MPJoinSynBackupRx", 1)?,
        Role::Server => outcome.expect("MPJoinSynAckRx", 1)?,
    }
    let text = format!("backup carried {share} % before, then all; {}", outcome.evidence());
    Ok(Verdict::Passed(text))
}

/// Which of its subflows the kernel can give a priority depends on its side: as a client, the one from its second
/// address, so what the subject then sends there can be watched; as a server, those to its announced address.
fn priority_by_peer(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let bytes = context.bytes_for(if context.is_quick() { 4 } else { 6 }, 200);
    let (up, down) = Direction::FromSubject.split(context.role, bytes);
    let mut plan = Plan::two_paths(context, &bed).moving(up, down);
    match context.role {
        Role::Client => {
            plan.peer_endpoints = vec![endpoint(context, &bed, Role::Server, &[EndpointFlag::Signal])];
            plan.subject_meshes = true;
            if context.is_baseline() {
                plan.subject_paths.truncate(1);
            }
        }
        Role::Server if context.is_baseline() => plan.subject_paths.truncate(1),
        Role::Server => {}
    }
    let mut session = Session::start(context, &bed, plan)?;
    session.wait_for_bytes(bytes / 4)?;
    session.peer().set_mptcp_backup(2, true)?;
    let share = share_of_second(&session, is_idle)?;
    session.peer().set_mptcp_backup(2, false)?;
    let again = share_of_second(&session, is_used)?;
    let outcome = session.finish()?;
    outcome.verify()?;
    outcome.expect("MPPrioTx", 2)?;
    let text =
        format!("second path carried {share} % as a backup, {again} % afterwards; {}", outcome.evidence());
    if context.role == Role::Server {
        ensure!(is_idle(share) && is_used(again), "{text}");
    }
    Ok(Verdict::Passed(text))
}

/// The kernel sends, and the subject says by MP_PRIO how its second path is to be used.
fn priority_by_subject(context: &Context<'_>) -> Result<Verdict> {
    let bed = shaped()?;
    let bytes = context.bytes_for(if context.is_quick() { 4 } else { 6 }, 200);
    let (up, down) = Direction::ToSubject.split(context.role, bytes);
    let mut plan = Plan { is_controlled: true, ..Plan::two_paths(context, &bed) }.moving(up, down);
    if context.role == Role::Server {
        // The second subflow goes to the second address of the subject, which is the one that the priority is for.
        (plan.peer_endpoints, plan.peer_accepts_announced) = (Vec::new(), true);
    }
    let mut session = Session::start(context, &bed, plan)?;
    session.wait_for_bytes(bytes / 4)?;
    session.use_second_path(Use::Backup)?;
    let share = share_of_second(&session, is_idle)?;
    let sockets = session.sockets()?;
    session.use_second_path(Use::Regular)?;
    let again = share_of_second(&session, is_used)?;
    let outcome = session.finish()?;
    outcome.verify()?;
    outcome.expect("MPPrioRx", 2)?;
    let text = format!(
        "second path carried {share} % as a backup, {again} % afterwards; {}\nss, as a backup: {}",
        outcome.evidence(),
        sockets.evidence()
    );
    ensure!(sockets.has_subflow_with('B'), "no subflow is a backup by the subject's word: {text}");
    ensure!(is_idle(share) && is_used(again), "{text}");
    Ok(Verdict::Passed(text))
}

/// Whether a share of the second path, in percent, is that of a backup; and whether it is that of a regular subflow.
fn is_idle(share: u64) -> bool {
    share < 10
}

fn is_used(share: u64) -> bool {
    share > 20
}

/// The second path's share in what is carried, in percent, once it is as expected: what is queued on the path has to drain, and a
/// busy machine takes its time.
fn share_of_second(session: &Session<'_>, is_expected: impl Fn(u64) -> bool) -> Result<u64> {
    let mut share = 0;
    for _ in 0..MOST_LOOKS {
        let before = session.carried()?;
        sleep(LOOK);
        let after = session.carried()?;
        let grown = |path: usize| after[path].0 + after[path].1 - before[path].0 - before[path].1;
        share = 100 * grown(1) / (grown(0) + grown(1)).max(1);
        if is_expected(share) {
            break;
        }
    }
    Ok(share)
}
