//! Kinds of interference on one path of two, while the other one is honest: they may cost that path, and nothing more.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName, Conditions, Direction};

use super::{Injections, Outcome, TIMEOUT, outcome_of};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Exchange, Load};
use crate::attacks::fixture::{Fixture, Listening};

/// Rate of each path and direction, and the one-way delay.
const MEGABITS: u64 = 25;
const DELAY_MS: u64 = 10;
/// The longest that the second path may take to join, and between two looks.
const JOINING: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
/// Bytes each way as an ordinary case.
const SMALL: u64 = 1 << 20;

/// One kind of interference.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    attack: AttackName,
    /// The attacker's path.
    path: &'static str,
    /// Only what goes this way.
    to: Option<Direction>,
    when: When,
    often: Often,
    lasting: Option<Duration>,
    /// The honest path is only a backup.
    is_backup: bool,
    is_quick: bool,
}

/// When it begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// With the first SYN.
    Start,
    Middle,
    /// When little is left to send.
    End,
}

/// How often it acts.
#[derive(Clone, Copy)]
enum Often {
    /// As the attack itself has it.
    Usual,
    /// On each packet that fits.
    Each,
    /// Two hundred times or so in a transfer.
    Again,
    /// Twenty times or so.
    Seldom,
}

use AttackName as A;
use Direction::{ToClient, ToServer};
use When::{End, Middle, Start};

/// The kinds, in the order of the table: lies about delivery, delays, what does not pass, edits, forgeries, repetitions.
pub(crate) const KINDS: &[Kind] = &[
    on("b", A::SwallowAndAck, Middle).quick(),
    on("b", A::SwallowAndAck, Start).to(ToServer),
    on("a", A::SwallowAndAck, Middle).to(ToClient),
    on("b", A::SwallowAndAck, End),
    on("b", A::SwallowAndAck, Middle).beside_backup(),
    on("b", A::AckEarly, Start),
    on("a", A::AckEarly, Middle).to(ToServer),
    on("b", A::LieInSack, Middle),
    on("b", A::AckSlowly, Start).quick(),
    on("a", A::AckSlowly, Middle),
    on("b", A::AckSlowly, End).to(ToServer),
    on("b", A::FreezeAcks, Middle).to(ToClient),
    on("b", A::StripDataAck, Start),
    on("a", A::StripDataAck, Middle),
    on("b", A::DelayRamp, Middle),
    on("a", A::DelayRamp, Start),
    on("b", A::DelayJump, Middle).quick(),
    on("a", A::DelayJump, Middle).to(ToClient),
    on("b", A::DelayJump, End),
    on("b", A::DelayByChance, Middle),
    on("b", A::Throttle, Middle),
    on("a", A::Throttle, Middle).beside_backup(),
    on("b", A::Silence, Middle).to(ToServer),
    on("a", A::Silence, Middle).to(ToClient),
    on("a", A::Silence, End),
    on("a", A::Silence, Middle).beside_backup(),
    on("b", A::Drop, Middle).each(),
    on("b", A::Lose, Start),
    on("b", A::Cut, Middle).seldom().lasting(300),
    on("b", A::CloseWindow, Middle),
    on("b", A::AgeEchoes, Start),
    on("b", A::Flip, Middle).again(),
    on("a", A::BlocksAlteredAlways, Start),
    on("b", A::Truncate, Middle).again(),
    on("b", A::Strip, Middle),
    on("a", A::ForgeDss, Middle).each(),
    on("b", A::Insert, Middle).again(),
    on("a", A::Rst, Middle).each(),
    on("b", A::Fastclose, Middle).again(),
    on("a", A::ForgeAck, Middle).again(),
    on("b", A::DataFin, End).each(),
    on("b", A::JoinFlood, Start),
    on("b", A::Multiply, Middle).each(),
    on("a", A::Replay, Middle).again(),
];

const fn on(path: &'static str, attack: AttackName, when: When) -> Kind {
    let often = Often::Usual;
    Kind { attack, path, to: None, when, often, lasting: None, is_backup: false, is_quick: false }
}

impl Kind {
    const fn to(self, direction: Direction) -> Self {
        Self { to: Some(direction), ..self }
    }

    const fn each(self) -> Self {
        Self { often: Often::Each, ..self }
    }

    const fn again(self) -> Self {
        Self { often: Often::Again, ..self }
    }

    const fn seldom(self) -> Self {
        Self { often: Often::Seldom, ..self }
    }

    const fn lasting(self, milliseconds: u64) -> Self {
        Self { lasting: Some(Duration::from_millis(milliseconds)), ..self }
    }

    const fn beside_backup(self) -> Self {
        Self { is_backup: true, ..self }
    }

    const fn quick(self) -> Self {
        Self { is_quick: true, ..self }
    }

    /// Its name: the attack, its path, its direction, its start.
    pub(crate) fn name(&self) -> String {
        let to = match self.to {
            Some(ToServer) => "to-server",
            Some(ToClient) => "to-client",
            None => "both",
        };
        let when = match self.when {
            Start => "start",
            Middle => "middle",
            End => "end",
        };
        let backup = if self.is_backup { "-beside-backup" } else { "" };
        format!("{}-{}-{to}-{when}{backup}", self.attack, self.path)
    }

    /// The same for traffic of the client only: attacks on payloads act on those to the server.
    pub(crate) const fn with_a_silent_server(self) -> Self {
        match self.attack {
            A::SwallowAndAck | A::AckEarly | A::LieInSack | A::AckSlowly | A::FreezeAcks => self.to(ToServer),
            _ => self,
        }
    }

    fn honest(&self) -> &'static str {
        if self.path == "a" { "b" } else { "a" }
    }

    /// The paths as options of both programs.
    fn options(&self) -> [String; 4] {
        let option = |name: &str, class| {
            let backup = if self.is_backup && name == self.honest() { ",backup" } else { "" };
            format!("{name}={class}{backup}")
        };
        ["--path".into(), option("a", "trusted"), "--path".into(), option("b", "untrusted")]
    }

    /// When so many bytes are to be sent in all.
    fn armed(&self, total: u64) -> Attack {
        // The attacked path carries half of it, or all.
        let carried = if self.is_backup { total } else { total / 2 };
        let after = match self.when {
            Start => 0,
            Middle => carried / 3,
            End => carried * 4 / 5,
        };
        let attack = Attack { direction: self.to, lasting: self.lasting, ..Attack::new(self.attack) };
        let attack = attack.after(after);
        match self.often {
            Often::Usual => attack,
            Often::Each => attack.every(0),
            Often::Again => attack.every(carried / 200),
            Often::Seldom => attack.every(carried / 20),
        }
    }
}

/// The result of a transfer.
pub(crate) struct Measured {
    pub(crate) outcome: Outcome,
    /// From the first byte written to the last one read.
    pub(crate) time: Duration,
    /// From there to the end of both programs.
    pub(crate) ending: Duration,
    /// Longest gap at a reader.
    pub(crate) gap: Duration,
    /// The actions of the injector, and the bytes of the honest path; an error if it did nothing.
    pub(crate) evidence: Result<String>,
}

impl Measured {
    fn of(exchange: &Exchange, sizes: [u64; 2], evidence: Result<String>) -> Self {
        let last = exchange.up.last_at.max(exchange.down.last_at);
        let is_whole = exchange.up.is_equal && exchange.down.is_equal;
        // Where bytes are missing there was no end, and the transfer took until it was given up.
        let ending = last
            .filter(|_| is_whole)
            .map_or(Duration::ZERO, |last| exchange.ended_at.saturating_duration_since(last));
        Self {
            // Programs that do not end have still read every byte.
            outcome: if is_whole && exchange.hung { Outcome::Equal } else { outcome_of(exchange, sizes) },
            time: exchange.time.saturating_sub(ending),
            ending,
            gap: exchange.up.longest_gap.max(exchange.down.longest_gap),
            evidence,
        }
    }
}

fn fixture<'a>(context: &'a Context<'a>) -> Result<Fixture<'a>> {
    Fixture::up_with(context, Listening::Closed, &Conditions::megabits(MEGABITS, DELAY_MS))
}

/// A transfer over one path alone, without an attack.
pub(crate) fn alone(context: &Context<'_>, path: &str, sizes: [u64; 2]) -> Result<Measured> {
    let fixture = fixture(context)?;
    let option = format!("{path}=trusted");
    let mut server = fixture.listen_on(&["--path", &option], &[])?;
    let mut client = fixture.connect_to(path, &["--path", &option], &[])?;
    let running = exchange::start(&mut client, &mut server, &Load::sized(sizes))?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    Ok(Measured::of(&exchange, sizes, Ok(String::new())))
}

/// A transfer over both paths under this kind of interference; killed when it takes longer than `limit`.
pub(crate) fn under(
    context: &Context<'_>,
    kind: &Kind,
    sizes: [u64; 2],
    limit: Duration,
) -> Result<Measured> {
    let fixture = fixture(context)?;
    let options = kind.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut server = fixture.listen_on(&options, &[])?;
    fixture.path(kind.path)?.attack(kind.armed(sizes.iter().sum()))?;
    let control = fixture.control();
    let control = control.to_str().context("the directory's name is text")?;
    let mut client = fixture.connect(&options, &["--control", control])?;
    let before = match kind.attack {
        AttackName::JoinFlood => Some(leave_and_join_again(&fixture, kind)?),
        _ => None,
    };
    let running = exchange::start(&mut client, &mut server, &Load::sized(sizes))?;
    let exchange = running.finish_within(&mut client, &mut server, TIMEOUT, limit)?;
    Ok(Measured::of(&exchange, sizes, evidence(&fixture, kind, before)))
}

/// Takes the honest path away and adds it again once joins are invented: the flood is about whether it can still join. Before, the
/// connection opens over it, so that the attacker sees a join at all. Returns the flows that the path had before.
fn leave_and_join_again(fixture: &Fixture<'_>, kind: &Kind) -> Result<u32> {
    let attacked = fixture.path(kind.path)?;
    let deadline = Instant::now() + JOINING;
    while Injections::on(attacked, kind.attack).is_err() {
        ensure!(Instant::now() < deadline, "no join crossed path {} within {JOINING:?}", kind.path);
        std::thread::sleep(POLL);
    }
    let honest = kind.honest();
    let flows = fixture.path(honest)?.summary()?.flows;
    fixture.change_path(&format!("{honest}=never"))?;
    fixture.change_path(&format!("{honest}=trusted"))?;
    Ok(flows)
}

/// By the injector's own log, and what has arrived over the honest path.
fn evidence(fixture: &Fixture<'_>, kind: &Kind, flows_before: Option<u32>) -> Result<String> {
    let injections = Injections::on(fixture.path(kind.path)?, kind.attack)?;
    let mut carried = Vec::new();
    for name in [kind.honest(), kind.path] {
        let summary = fixture.path(name)?.summary()?;
        carried.push(summary.carried_to_server.delivered_bytes + summary.carried_to_client.delivered_bytes);
    }
    let share = carried[0] * 100 / (carried[0] + carried[1]).max(1);
    // It is about the honest path's joining, before there was anything to carry.
    if let Some(before) = flows_before {
        let flows = fixture.path(kind.honest())?.summary()?.flows;
        ensure!(flows > before, "the honest path never joined again");
    }
    ensure!(flows_before.is_none() || share >= 10, "the honest path never came to carry anything: {share} %");
    Ok(format!("{}, honest path {share} %", injections.words()))
}

/// Each kind as a case of its own, small: every byte arrives. Times are the table's.
pub(crate) fn all() -> Vec<Case> {
    let about = "on one path of two: every byte arrives (--table measures)";
    let case = |kind: &'static Kind| {
        let run = move |context: &Context<'_>| small(context, kind);
        Case::new(format!("interference/{}", kind.name()), about, run).quick_if(kind.is_quick)
    };
    KINDS.iter().map(case).collect()
}

fn small(context: &Context<'_>, kind: &Kind) -> Result<Verdict> {
    let size = context.settings.size.min(SMALL);
    let Measured { outcome, time, ending: _, gap, evidence } = under(context, kind, [size; 2], TIMEOUT)?;
    let (seconds, gap) = (time.as_secs_f64(), gap.as_millis());
    match (outcome, evidence) {
        (Outcome::Equal, evidence) => {
            Ok(Verdict::Passed(format!("equal in {seconds:.1} s, longest gap {gap} ms, {}", evidence?)))
        }
        (Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text), Ok(evidence)) => {
            bail!("{text} after {seconds:.1} s; {evidence}")
        }
        (Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text), Err(error)) => {
            bail!("{text} after {seconds:.1} s; {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_forty_kinds_or_more_and_no_two_are_called_the_same() {
        let names: BTreeSet<String> = KINDS.iter().map(Kind::name).collect();
        assert_eq!(names.len(), KINDS.len());
        assert!(names.len() >= 40, "{}", names.len());
    }

    #[test]
    fn every_position_of_the_attacker_is_among_the_kinds() {
        for path in ["a", "b"] {
            for to in [None, Some(ToServer), Some(ToClient)] {
                assert!(KINDS.iter().any(|kind| kind.to == to && kind.path == path));
            }
            for when in [Start, Middle, End] {
                assert!(KINDS.iter().any(|kind| kind.when == when && kind.path == path));
            }
            assert!(KINDS.iter().any(|kind| kind.is_backup && kind.path == path));
        }
    }
}
