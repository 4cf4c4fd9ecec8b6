//! Openings: attempts, claims, silence, delay, a client that sleeps, two servers of one name, a server that is started again.

use plait_base::Duration;
use plait_mptcp::Config;

use crate::attacker::{Action, Slot, Turn};
use crate::explorer::{Choices, Scenario, Trace, Violation};
use crate::segments::{Kind, Side};
use crate::settings::sealed;
use crate::world::{Restart, Setup, SleepClock, World};

/// Bytes that the client writes; then it finishes.
const BYTES: usize = 20;
/// Behind each of these times recorded segments may arrive again: in the midst of an opening, and when its claim is forgotten. The names
/// are those of what follows.
const PHASES: [(&str, Duration); 2] =
    [("after 3 s", Duration::from_secs(3)), ("after 123 s", Duration::from_secs(120))];
/// Then so long: until the longest sleep is over, and the time of an opening behind it.
const HORIZON: Duration = Duration::from_secs(90);
/// Time after which an attempt that is not settled ends (docs/protocol.md, section 6).
const LONG_SLEEP: Duration = Duration::from_secs(20);

/// Both paths lead to one server, and the attacker is on that of the first attempt.
pub(crate) const ONE_SERVER: Setup = Setup {
    servers: 1,
    leads: |_, _| true,
    attacked: 0,
    paths_up: 2,
    alphabet,
    sleeps: &[0, 10, 30, 130],
    sleep_clock: SleepClock::GoesOn,
    may_restart: false,
    twins: false,
};

/// The server may be started again between two attempts.
pub(crate) const STARTED_AGAIN: Setup = Setup { sleeps: &[0], may_restart: true, ..ONE_SERVER };

/// Two servers with one name and one key, each on both paths.
pub(crate) const TWO_SERVERS: Setup = Setup { servers: 2, sleeps: &[0], ..ONE_SERVER };

/// Two servers with one name and one key, each on a path of its own.
pub(crate) const TWO_SERVERS_APART: Setup = Setup { leads: |path, server| path == server, ..TWO_SERVERS };

/// Planted: servers that are indistinguishable.
pub(crate) const TWIN_SERVERS: Setup = Setup { twins: true, ..TWO_SERVERS };

/// Planted: a restarted server that is indistinguishable from its earlier run.
pub(crate) const TWIN_STARTS: Setup = Setup { twins: true, ..STARTED_AGAIN };

/// Planted: the client's clock stands still while it sleeps.
pub(crate) const CLOCK_STANDS_STILL: Setup = Setup { sleep_clock: SleepClock::StandsStill, ..ONE_SERVER };

fn alphabet(slot: Slot) -> &'static [Action] {
    use Action::{CutBoth, Drop, Hold, Pass, Silence};
    const SHORT: Action = Hold(Duration::from_secs(2));
    const LONG: Action = Hold(Duration::from_secs(130));
    const CUT_CLIENT: Action = Action::Cut(Side::Client);
    const CUT_SERVER: Action = Action::Cut(Side::Server);
    if slot.turn == Turn::Later {
        // Joins over the attacked path are left alone here.
        return &[Pass];
    }
    match (slot.from, slot.kind) {
        (Side::Client, Kind::Syn) => &[Pass, Drop, Silence, SHORT],
        (Side::Server, Kind::SynAck) => &[Pass, Drop, Silence, SHORT, CutBoth],
        (_, Kind::Handshake) => &[Pass, Drop, Silence, SHORT, LONG, CutBoth],
        (Side::Client, Kind::DataBlock) | (_, Kind::Tagged | Kind::ControlBlock) => {
            &[Pass, Drop, Silence, SHORT, LONG, CUT_CLIENT, CUT_SERVER, CutBoth]
        }
        (Side::Server, Kind::DataBlock) => &[Pass, Silence, CutBoth],
        (
            _,
            Kind::Syn
            | Kind::SynAck
            | Kind::JoinSyn
            | Kind::JoinSynAck
            | Kind::JoinAck
            | Kind::PathKey
            | Kind::Ack
            | Kind::Fin
            | Kind::Reset,
        ) => &[Pass],
    }
}

/// The client opens a connection, says its bytes and hears the answer.
pub(crate) struct Openings(pub(crate) Setup);

impl Scenario for Openings {
    fn run(&self, choices: &mut Choices, trace: &mut Trace) -> Result<(), Violation> {
        let configs: [Config; 2] = sealed();
        let mut world = World::new(self.0, configs, choices, trace);
        play(&mut world);
        if world.choices.is_cut() { Ok(()) } else { judge(&world) }
    }
}

/// A whole run.
pub(crate) fn play(world: &mut World<'_>) {
    world.connect(BYTES, true);
    for (phase, time) in PHASES {
        world.run_for(time);
        replay(world);
        world.phase = phase;
    }
    world.run_for(HORIZON);
}

/// The first recorded segment of a kind may arrive again.
fn replay(world: &mut World<'_>) {
    let kinds = [Kind::Syn, Kind::Handshake, Kind::ControlBlock, Kind::DataBlock];
    let known = kinds.into_iter().filter(|kind| world.has_recorded(Side::Client, *kind));
    let options: Vec<_> = [None].into_iter().chain(known.map(Some)).collect();
    if let Some(kind) = world.decide(&options, "replay") {
        world.replay(Side::Client, kind);
    }
}

/// The invariants at the end of a run.
pub(crate) fn judge(world: &World<'_>) -> Result<(), Violation> {
    let broken = |invariant, detail| Err(Violation { invariant, detail });
    let client = world.client.as_ref().expect("it was opened");
    let all = world.accepted.iter().chain([client]);
    if let Some((application, at)) = all.clone().find_map(|one| one.wrong_at.map(|at| (one, at))) {
        return broken("no byte is changed", format!("{}: byte {at}", application.name()));
    }
    let heard: Vec<_> = world.accepted.iter().filter(|one| one.heard > 0).collect();
    if heard.len() > 1 {
        let each: Vec<_> =
            heard.iter().map(|one| format!("{} has heard {}", one.name(), one.heard)).collect();
        return broken("no byte is delivered twice", each.join(", "));
    }
    if client.end.is_none() {
        return broken("the client is told an end", "nothing until the end of the run".to_owned());
    }
    let complete = heard.iter().any(|one| one.heard == BYTES && one.is_at_end);
    if client.error().is_none() && !(complete && client.is_at_end) {
        let each: Vec<_> = world.accepted.iter().map(|one| (one.name(), one.heard, one.is_at_end)).collect();
        return broken("nothing is lost silently", format!("the client had an orderly end; {each:?}"));
    }
    if let Some(short) = world.accepted.iter().find(|one| one.is_at_end && one.heard < BYTES) {
        return broken(
            "nothing ends silently",
            format!("{} heard the end behind {}", short.name(), short.heard),
        );
    }
    let error = all.filter(|one| one.side_has_spoken()).find_map(|one| one.error().map(|error| (one, error)));
    match error {
        Some((application, error)) if !may_fail(world) => {
            broken("no error while the honest path works", format!("{}: {error:?}", application.name()))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether an error is an honest answer: the server that may have heard the bytes cannot be reached any more, or the client
/// has slept for longer than an opening may take.
fn may_fail(world: &World<'_>) -> bool {
    let is_out_of_reach = !(world.setup.leads)(1 - world.setup.attacked, 0);
    is_out_of_reach || world.restart == Restart::Done || world.slept >= LONG_SLEEP
}
