//! Joins over an attacked path of a connection that was opened over an honest one: resets of one side, forged acknowledgments, kept and
//! repeated messages, exchanges of keys; then a handover of the honest path, or talk.

use plait_base::Duration;
use plait_mptcp::{Capability, Config, Protect, Ratchet};
use plait_tcp::FourTuple;
use std::collections::BTreeSet;

use crate::applications::Application;
use crate::attacker::{Action, Slot};
use crate::explorer::{Choices, Scenario, Trace, Violation};
use crate::segments::{Kind, Side};
use crate::settings::sealed;
use crate::world::{Setup, SleepClock, World, client_address};

/// Bytes that the client writes at first, and each talker each second.
const GREETING: usize = 6;
/// Bytes that each side writes at the end.
const WORDS: usize = 100;
/// Within this time words arrive over an honest path.
const WORDS_BOUND: Duration = Duration::from_secs(2);
/// Within this time words arrive behind a handover. Without an attacker it takes 60 ms.
const HANDOVER_BOUND: Duration = Duration::from_millis(300);
/// Within this time both ends know which subflows live: a silent subflow is asked after half a minute, three times.
const AGREEMENT: Duration = Duration::from_secs(40);
/// How long keys serve where the keys have to move on, in place of two minutes.
const RATCHET: Duration = Duration::from_secs(20);
/// Each asks the next subflow in turn, and one that the attacker keeps alive does not answer.
const RATCHET_ROUNDS: usize = 4;
/// An error that the end of the attack brings about is there by then.
const AFTERMATH: Duration = Duration::from_secs(70);

/// Path 2 is down at first.
pub(crate) const SETUP: Setup = Setup {
    servers: 1,
    leads: |_, _| true,
    attacked: 1,
    paths_up: 2,
    alphabet: on_joins,
    sleeps: &[0],
    sleep_clock: SleepClock::GoesOn,
    may_restart: false,
    twins: false,
};

/// The phases after the attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    Nothing,
    Release,
    Replay(Side, Kind),
}

/// The check at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The honest path goes away without a word, and another one comes up.
    Handover,
    /// Both ends must agree on the live subflows.
    Agreement,
    /// Both sides say something, over the paths that there are.
    Talk,
    /// The same, and the keys have to move on.
    Ratchet,
}

/// A connection with joins over one path that are attacked for this time.
#[derive(Clone, Copy)]
pub(crate) struct Joins {
    /// The attacker's path. If it is that of the opening, the handshake is left alone.
    pub(crate) attacked: usize,
    pub(crate) attack: Duration,
    pub(crate) alphabet: fn(Slot) -> &'static [Action],
    /// How long the client may sleep behind it, in seconds; 0 comes first.
    pub(crate) sleeps: &'static [u64],
    /// Sides that say something each second.
    pub(crate) talkers: &'static [Side],
    /// Whether both ends list the authenticated life of subflows.
    pub(crate) verifies_life: bool,
    pub(crate) end: End,
}

/// Joins and what follows on them: resets of one end or both, silence, loss.
pub(crate) fn on_joins(slot: Slot) -> &'static [Action] {
    use Action::{Cut, CutBoth, Drop, Pass, Silence};
    match slot.kind {
        Kind::JoinSyn | Kind::JoinSynAck => &[Pass, Drop, Silence],
        Kind::JoinAck => &[Pass, Drop, Cut(Side::Client), Cut(Side::Server)],
        Kind::PathKey => &[Pass, Drop, Silence, Cut(Side::Client), Cut(Side::Server), CutBoth],
        Kind::ControlBlock | Kind::DataBlock | Kind::Tagged => {
            &[Pass, Silence, Cut(Side::Client), Cut(Side::Server)]
        }
        Kind::Syn | Kind::SynAck | Kind::Handshake | Kind::Ack | Kind::Fin | Kind::Reset => &[Pass],
    }
}

/// Exchanges of keys: messages that are lost, late, or kept until the other end has forgotten them.
pub(crate) fn on_exchanges(slot: Slot) -> &'static [Action] {
    use Action::{CutBoth, Drop, Hold, KeepAndCut, Pass, Silence};
    const LATE: Action = Hold(Duration::from_secs(5));
    match (slot.kind, slot.from) {
        (Kind::PathKey, Side::Server) => &[Pass, Drop, LATE, KeepAndCut(Side::Server), CutBoth],
        (Kind::PathKey, Side::Client) => &[Pass, Drop, LATE, KeepAndCut(Side::Client), CutBoth],
        (Kind::ControlBlock, Side::Client | Side::Server) => &[Pass, Drop, Silence, CutBoth],
        (
            Kind::Syn
            | Kind::SynAck
            | Kind::JoinSyn
            | Kind::JoinSynAck
            | Kind::JoinAck
            | Kind::Handshake
            | Kind::DataBlock
            | Kind::Tagged
            | Kind::Ack
            | Kind::Fin
            | Kind::Reset,
            Side::Client | Side::Server,
        ) => &[Pass],
    }
}

impl Scenario for Joins {
    fn run(&self, choices: &mut Choices, trace: &mut Trace) -> Result<(), Violation> {
        let setup = Setup { attacked: self.attacked, alphabet: self.alphabet, ..SETUP };
        let mut world = World::new(setup, self.configs(), choices, trace);
        world.connect(GREETING, false);
        world.phase = "attack";
        self.attack(&mut world)?;
        if world.choices.is_cut() {
            return Ok(());
        }
        world.phase = "sleep";
        world.may_sleep(self.sleeps);
        world.run(Duration::from_secs(1000), |world| !world.sleeps() || failed(world).is_some());
        no_error(&world)?;
        world.phase = "last action";
        match last_action(&mut world) {
            Last::Nothing => {}
            Last::Release => world.release(),
            Last::Replay(from, kind) => world.replay(from, kind),
        }
        world.run(Duration::from_secs(1), |world| failed(world).is_some());
        no_error(&world)?;
        world.phase = "end";
        match self.end {
            End::Handover => hand_over(&mut world)?,
            End::Agreement => agree(&mut world)?,
            End::Talk => say_words(&mut world, WORDS_BOUND, "words arrive in time over the honest path")?,
            End::Ratchet => keys_move(&mut world)?,
        }
        in_step(&mut world)
    }
}

impl Joins {
    fn configs(&self) -> [Config; 2] {
        let mut both = sealed();
        for config in &mut both {
            let Protect::Sealed(settings) = &mut config.protect else { continue };
            if self.end == End::Ratchet {
                settings.ratchet = Ratchet { age: RATCHET, ..Ratchet::default() };
            }
            if !self.verifies_life {
                settings.capabilities = settings.capabilities.without(Capability::Life);
            }
        }
        both
    }

    /// Lets the attack run, while the talkers talk.
    fn attack(&self, world: &mut World<'_>) -> Result<(), Violation> {
        let end = world.now + self.attack;
        let pause = if self.talkers.is_empty() { self.attack } else { Duration::from_secs(1) };
        while world.now < end && !world.choices.is_cut() {
            world.run(pause, |world| failed(world).is_some());
            no_error(world)?;
            self.talkers.iter().for_each(|side| world.say(*side, GREETING));
        }
        if world.choices.is_cut() {
            return Ok(());
        }
        if world.accepted.is_empty() {
            let detail = format!("not within {:?}", self.attack);
            return Err(Violation {
                invariant: "the connection is shown to the server's application",
                detail,
            });
        }
        let [client, server] = living(world).map(|living| living.len());
        let flows = world.attacker.flows.len();
        world.tell(|| {
            format!("by now {flows} subflows over the attacked path; living: {client} for the client, {server} for the server")
        });
        Ok(())
    }
}

fn last_action(world: &mut World<'_>) -> Last {
    let mut options = vec![Last::Nothing];
    if world.attacker.flows.values().any(|flow| !flow.kept.is_empty()) {
        options.push(Last::Release);
    }
    let replays = [
        (Side::Client, Kind::JoinSyn),
        (Side::Client, Kind::JoinAck),
        (Side::Client, Kind::PathKey),
        (Side::Server, Kind::PathKey),
        (Side::Client, Kind::ControlBlock),
        (Side::Server, Kind::ControlBlock),
    ];
    let known = replays.into_iter().filter(|(from, kind)| world.has_recorded(*from, *kind));
    options.extend(known.map(|(from, kind)| Last::Replay(from, kind)));
    world.decide(&options, "last action")
}

/// The honest path carries nothing any more, and the client knows; another path is up.
fn hand_over(world: &mut World<'_>) -> Result<(), Violation> {
    let honest = 1 - world.setup.attacked;
    world.tell(|| format!("path {honest} goes away without a word, path 2 comes up"));
    world.dead[honest] = true;
    world.set_path(honest, false);
    world.set_path(2, true);
    say_words(world, HANDOVER_BOUND, "a handover is through in time")
}

/// The attacker lets everything pass. Words arrive, and each direction gets other keys.
pub(crate) fn keys_move(world: &mut World<'_>) -> Result<(), Violation> {
    world.attacker.has_stopped = true;
    let before = generations(world);
    for _ in 0..RATCHET_ROUNDS {
        say_words(world, WORDS_BOUND, "words arrive in time over the honest path")?;
        world.run(RATCHET + WORDS_BOUND, |world| failed(world).is_some());
        no_error(world)?;
        let now = generations(world);
        if world.choices.is_cut()
            || now.iter().flatten().zip(before.iter().flatten()).all(|(now, before)| now > before)
        {
            return Ok(());
        }
    }
    let detail = format!("generations were {before:?} and are {:?}", generations(world));
    Err(Violation { invariant: "keys move on", detail })
}

/// Generations of the client and of the server: its own keys and those of the peer.
fn generations(world: &World<'_>) -> [[u64; 2]; 2] {
    ends(world).map(|one| {
        let host = &world.hosts[one.host];
        let sealed = one.status(host.clock(world.now), &host.endpoint).and_then(|status| status.sealed);
        sealed.map(|sealed| sealed.generations).unwrap_or_default()
    })
}

/// The applications of the connection, that of the client first.
fn ends<'w>(world: &'w World<'_>) -> [&'w Application; 2] {
    [world.client.as_ref().expect("it was opened"), world.accepted.first().expect("it was shown")]
}

/// The subflows that live for the client, and for the server.
fn living(world: &World<'_>) -> [BTreeSet<(String, String)>; 2] {
    ends(world).map(|one| {
        let host = &world.hosts[one.host];
        one.living(host.clock(world.now), &host.endpoint)
    })
}

/// Both sides say something, and hear it in time.
pub(crate) fn say_words(
    world: &mut World<'_>,
    bound: Duration,
    invariant: &'static str,
) -> Result<(), Violation> {
    let before = heard(world);
    world.say(Side::Client, WORDS);
    world.say(Side::Server, WORDS);
    let hear_all = move |world: &World<'_>| heard(world) == before.map(|heard| heard + WORDS);
    let in_time = world.run(bound, hear_all);
    if world.choices.is_cut() {
        return Ok(());
    }
    let late = if in_time { Duration::ZERO } else { AFTERMATH };
    world.run(late, |world| hear_all(world) || failed(world).is_some());
    let took = format!("heard by client and server {:?}", heard(world));
    no_error(world)?;
    if in_time {
        Ok(())
    } else {
        Err(Violation { invariant, detail: format!("not within {bound:?}: {took}") })
    }
}

/// Bytes that the client and the server have heard.
fn heard(world: &World<'_>) -> [usize; 2] {
    ends(world).map(|one| one.heard)
}

fn failed<'w>(world: &'w World<'_>) -> Option<&'w Application> {
    world.client.iter().chain(&world.accepted).find(|one| one.error().is_some())
}

fn no_error(world: &World<'_>) -> Result<(), Violation> {
    let Some(application) = failed(world) else { return Ok(()) };
    let invariant = "no error while the honest path works";
    Err(Violation { invariant, detail: format!("{}: {:?}", application.name(), application.error()) })
}

/// Both ends agree in time on which subflows live.
fn agree(world: &mut World<'_>) -> Result<(), Violation> {
    let [client, server] = living(world);
    let mut disputed: Vec<_> = client.symmetric_difference(&server).cloned().collect();
    let end = world.now + AGREEMENT;
    while !disputed.is_empty() && world.now < end && !world.choices.is_cut() {
        world.run_for(Duration::from_secs(1));
        let [client, server] = living(world);
        disputed.retain(|subflow| client.contains(subflow) != server.contains(subflow));
    }
    if disputed.is_empty() || world.choices.is_cut() {
        return Ok(());
    }
    let [client, server] = living(world);
    let detail = format!(
        "after {AGREEMENT:?} the client has {} living subflows and the server {}; they differ about {disputed:?}",
        client.len(),
        server.len()
    );
    Err(Violation { invariant: "both ends agree on which subflows live", detail })
}

/// Once what is in the air has arrived, both ends are in step. If a KEY_UPDATE is on its way just then, they are when it has come.
fn in_step(world: &mut World<'_>) -> Result<(), Violation> {
    world.run_for(Duration::from_secs(1));
    world.run(Duration::from_secs(1), |world| compare_ends(world).is_ok());
    if world.choices.is_cut() { Ok(()) } else { compare_ends(world) }
}

/// Generations of both ends are the same, no block of the honest paths has failed, and no byte was wrong.
pub(crate) fn compare_ends(world: &World<'_>) -> Result<(), Violation> {
    let broken = |invariant, detail| Err(Violation { invariant, detail });
    let [client, server] = ends(world);
    if client.wrong_at.is_some() || server.wrong_at.is_some() || world.accepted.len() > 1 {
        let shown = world.accepted.len();
        return broken(
            "no byte is changed or delivered twice",
            format!("{:?} {:?} {shown}", client.wrong_at, server.wrong_at),
        );
    }
    let status = |one: &Application| {
        let host = &world.hosts[one.host];
        one.status(host.clock(world.now), &host.endpoint).expect("it is held")
    };
    let (of_client, of_server) = (status(client), status(server));
    let [ours, [own, peer]] = generations(world);
    if ours != [peer, own] {
        return broken(
            "keys are in step",
            format!("own and peer's: client {ours:?}, server {:?}", [own, peer]),
        );
    }
    for status in [&of_client, &of_server] {
        let attacked = client_address(world.setup.attacked).into();
        let is_attacked = |tuple: FourTuple| [tuple.local.ip(), tuple.remote.ip()].contains(&attacked);
        let honest = status.subflows.iter().filter(|subflow| !is_attacked(subflow.tuple));
        let bad: Vec<_> = honest.filter(|subflow| subflow.blocks_failed + subflow.tags_failed > 0).collect();
        if !bad.is_empty() {
            return broken("each block verifies", format!("failed on honest paths: {bad:?}"));
        }
    }
    Ok(())
}
