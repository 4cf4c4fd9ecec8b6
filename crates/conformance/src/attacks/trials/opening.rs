//! One path is attacked while a sealed connection opens: it opens over the other, soon. Where every path is attacked there is an error
//! that says what each of them did. In neither case is a byte of the application on the wire in clear, which the captures show.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use lab::{Attack, AttackName, Direction, Expected, Needles, Run};
use wire::Flags;

use super::{Outcome, expected_to, outcome};
use crate::attacks::exchange::{self, Arrived, Exchange, Load, Source};
use crate::attacks::stage::{Ears, Side, Stage};
use crate::attacks::trial::{Context, Trial, Verdict};
use crate::attacks::wiretap::{self, Captured};
use lab::Program;

/// Bytes each way.
const SIZE: u64 = 1 << 20;
/// How much later than without an attack the first byte may come; and where the attacker lets the handshake pass.
const LATER: Duration = Duration::from_secs(1);
const LATER_AFTER_HANDSHAKE: Duration = Duration::from_secs(2);
/// How long a client may take to find out that no path works.
const GIVES_UP: Duration = Duration::from_secs(90);
/// How long a server may take, that has nobody to wait for any more, until it is ended.
const LINGERS: Duration = Duration::from_secs(3);
/// Words of the application, to be looked for in the captures.
const UP: &[u8] = b"what the client says is not for those on the way. ";
const DOWN: &[u8] = b"and nothing that the server answers is for them. ";

/// Where the attacker is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the path on which a connection opens if nothing is in the way.
    First,
    Second,
    Every,
}

impl Place {
    const ALL: [Self; 3] = [Self::First, Self::Second, Self::Every];

    fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Every => "every",
        }
    }

    fn has(self, path: &str) -> bool {
        match self {
            Self::First => path == "a",
            Self::Second => path == "b",
            Self::Every => true,
        }
    }
}

/// One case.
#[derive(Clone, Copy)]
struct Case {
    attack: AttackName,
    place: Place,
    /// Whose incoming packets are struck; `None`: both sides'.
    victim: Option<Side>,
    handshake: &'static str,
}

pub(crate) fn all() -> Vec<Trial> {
    let mut trials = Vec::new();
    for attack in [Expected::OpensElsewhere, Expected::OpensAfterHandshake].into_iter().flat_map(expected_to)
    {
        let handshakes: &[_] = if attack.runs(Run::BothHandshakes) { &["tls", "tcpcrypt"] } else { &["tls"] };
        for place in Place::ALL {
            let is_run = match place {
                Place::First => true,
                Place::Second => attack.runs(Run::SecondPath),
                // The others are the negotiation's.
                Place::Every => attack.runs(Run::BothHandshakes),
            };
            if !is_run {
                continue;
            }
            for victim in [None, Some(Side::Client), Some(Side::Server)] {
                for handshake in handshakes {
                    trials.push(trial(Case { attack, place, victim, handshake }));
                }
            }
        }
    }
    trials
}

fn trial(case: Case) -> Trial {
    let Case { attack, place, victim, handshake } = case;
    let towards = victim.map_or("both", Side::name);
    let name = format!("opening/{attack}-{}-{towards}-{handshake}", place.name());
    let about = match (place, attack.expected()) {
        (Place::Every, _) => "on every path: an error that says what each path did, and nothing in clear",
        (_, Expected::OpensAfterHandshake) => {
            "complete over the honest path, the first byte less than 2 s later"
        }
        _ => "complete over the honest path, the first byte less than 1 s later",
    };
    let run = move |context: &Context<'_>| match place {
        Place::First | Place::Second => opens(context, case),
        Place::Every => fails(context, case),
    };
    let is_quick = place == Place::First && victim.is_none() && attack.runs(Run::Quick);
    Trial::new(name, about, run).quick_if(is_quick)
}

impl Case {
    fn arm(self, stage: &Stage<'_>) -> Result<()> {
        let direction = self.victim.map(|victim| match victim {
            Side::Client => Direction::ToClient,
            Side::Server => Direction::ToServer,
        });
        for path in stage.lab.paths().iter().filter(|path| self.place.has(path.name())) {
            path.attack(Attack { direction, ..Attack::new(self.attack) })?;
        }
        Ok(())
    }

    fn options(self) -> [&'static str; 2] {
        ["--handshake", self.handshake]
    }
}

/// Two connections, of which only the second is attacked.
fn opens(context: &Context<'_>, case: Case) -> Result<Verdict> {
    let stage = Stage::up(context, Ears::Capture)?;
    let before = SystemTime::now();
    let undisturbed = transfer(&stage, case)?;
    let result = outcome(&undisturbed, SIZE);
    ensure!(result == Outcome::Equal, "without an attack: {result:?}");
    // A first contact: what the client remembers of the server would give the attacker away.
    let known = stage.file("client-keys");
    if known.exists() {
        std::fs::remove_dir_all(known)?;
    }
    case.arm(&stage)?;
    let between = SystemTime::now();
    let attacked = transfer(&stage, case)?;
    let struck = struck(&stage, case)?;
    let captured = Capture::of(&stage)?;
    captured.is_sealed()?;
    match outcome(&attacked, SIZE) {
        Outcome::Equal => {}
        Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => {
            bail!("{text}; {struck}; the client says: {}", attacked.client.said)
        }
    }
    let usual = first_byte(&undisturbed, captured.first_syn(before)?)?;
    let under = first_byte(&attacked, captured.first_syn(between)?)?;
    let allowed = match case.attack.expected() {
        Expected::OpensAfterHandshake => LATER_AFTER_HANDSHAKE,
        _ => LATER,
    };
    let words = format!("first byte after {} ms, undisturbed {} ms", under.as_millis(), usual.as_millis());
    ensure!(under < usual + allowed, "{words}: more than {} ms later; {struck}", allowed.as_millis());
    Ok(Verdict::Passed(format!("equal, {words}, {struck}")))
}

/// One connection that cannot be.
fn fails(context: &Context<'_>, case: Case) -> Result<Verdict> {
    let stage = Stage::up(context, Ears::Capture)?;
    case.arm(&stage)?;
    let exchange = transfer(&stage, case)?;
    let struck = struck(&stage, case)?;
    Capture::of(&stage)?.is_sealed()?;
    let Exchange { up, down, client, server, .. } = &exchange;
    for (who, arrived, ending) in [("the server", up, server), ("the client", down, client)] {
        if let Some(place) = arrived.first_wrong {
            bail!("wrong bytes: {who} got another byte at place {place}");
        }
        ensure!(ending.code != Some(0), "{who} takes it for an orderly end after {} bytes", arrived.bytes);
    }
    let said = &client.said;
    ensure!(client.code.is_some(), "the client does not end in {GIVES_UP:?}: {said}");
    for path in ["path a", "path b"] {
        ensure!(said.contains(path), "exit {:?}, and not a word of what {path} did: {said}", client.code);
    }
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Passed(format!("an error after {seconds:.1} s, {struck}: {said}")))
}

/// A transfer both ways that is left alone until the client has ended, or takes too long.
fn transfer(stage: &Stage<'_>, case: Case) -> Result<Exchange> {
    let mut server = stage.listen(&case.options())?;
    let mut client = stage.connect(&Stage::PATHS, &case.options())?;
    let [up, down] = [UP, DOWN].map(|text| Source::Text(Arc::from(text)));
    let running = exchange::start(&mut client, &mut server, &Load { up, down, size: SIZE })?;
    let patience = if ends(&mut client) { LINGERS } else { Duration::ZERO };
    running.finish(&mut client, &mut server, patience)
}

/// Whether the client ends before long.
fn ends(client: &mut Program) -> bool {
    client.wait(GIVES_UP).is_ok()
}

/// How often the attack has struck, by the injectors' own logs. An error if it never did where it could.
fn struck(stage: &Stage<'_>, case: Case) -> Result<String> {
    let mut count = 0;
    for path in stage.lab.paths() {
        count += path.injections()?.total;
    }
    ensure!(count > 0, "{} never reached the wire", case.attack);
    Ok(format!("struck {count} times"))
}

/// From the first SYN to the first byte that a program reads; the later one of both ends.
fn first_byte(exchange: &Exchange, syn: SystemTime) -> Result<Duration> {
    let after = |arrived: &Arrived| -> Result<Duration> {
        let at = arrived.first_at.context("nothing arrived")?;
        Ok(at.duration_since(syn).unwrap_or_default())
    };
    Ok(after(&exchange.up)?.max(after(&exchange.down)?))
}

/// What both captures show.
#[derive(Default)]
struct Capture {
    syns: Vec<SystemTime>,
    payload: u64,
    in_clear: u64,
}

impl Capture {
    fn of(stage: &Stage<'_>) -> Result<Self> {
        let words = Needles::of(&[UP, UP, DOWN, DOWN].concat());
        let mut all = Self::default();
        for path in stage.lab.paths() {
            path.flush()?;
            let file = stage.file(&format!("{}.pcapng", path.name()));
            wiretap::read_all(&file, |captured| all.add(captured, &words))?;
        }
        all.syns.sort();
        Ok(all)
    }

    fn add(&mut self, captured: &Captured, words: &Needles) {
        let Captured { at, is_injected, segment } = captured;
        if !is_injected && segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK) {
            self.syns.push(UNIX_EPOCH + *at);
        }
        self.payload += segment.payload.len() as u64;
        self.in_clear += words.count_in(&segment.payload);
    }

    fn is_sealed(&self) -> Result<()> {
        let Self { syns: _, payload, in_clear } = self;
        ensure!(*in_clear == 0, "words of the application in clear at {in_clear} places in {payload} bytes");
        Ok(())
    }

    fn first_syn(&self, since: SystemTime) -> Result<SystemTime> {
        self.syns.iter().copied().find(|at| *at >= since).context("no SYN in the captures")
    }
}
