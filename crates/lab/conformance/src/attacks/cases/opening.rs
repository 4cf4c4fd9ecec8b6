//! One path is attacked while a sealed connection opens: it opens over the other, soon. Where every path is attacked there is an error
//! that says what each of them did. In neither case is a byte of the application on the wire in clear, which the captures show.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName, Direction, Expected, Needles, Run};
use plait_wire::Flags;

use super::{Outcome, expected_to, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Arrived, Exchange, Load, Source};
use crate::attacks::fixture::{Fixture, Listening, Side};
use crate::attacks::wiretap::{self, Captured};

/// Bytes each way.
const SIZE: u64 = 1 << 20;
/// How much later than without an attack the first byte may come; and where the attacker lets the handshake pass.
const LATER: Duration = Duration::from_secs(1);
const LATER_AFTER_HANDSHAKE: Duration = Duration::from_secs(2);
/// How long a client may take to find out that no path works; and that none works any more once the connection is open for it: the
/// two minutes after which a connection takes all its paths for dead, and some seconds for the last join.
const GIVES_UP: Duration = Duration::from_secs(90);
const GIVES_UP_WHEN_OPEN: Duration = Duration::from_secs(130);
/// Time that a server may run without a peer to wait for, until it is ended; also the time limit if no result is expected.
const LINGERS: Duration = Duration::from_secs(20);
const LINGERS_IN_VAIN: Duration = Duration::from_millis(300);
/// Words of the application, to be looked for in the captures.
const UP: &[u8] = b"what the client says is not for those on the way. ";
const DOWN: &[u8] = b"and nothing that the server answers is for them. ";

/// The position of the attacker.
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
struct Opening {
    attack: AttackName,
    place: Place,
    /// The side with the injected incoming packets; `None`: both sides.
    victim: Option<Side>,
    handshake: &'static str,
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
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
                    cases.push(case(Opening { attack, place, victim, handshake }));
                }
            }
        }
    }
    cases
}

fn case(opening: Opening) -> Case {
    let Opening { attack, place, victim, handshake } = opening;
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
        Place::First | Place::Second => opens(context, opening),
        Place::Every => fails(context, opening),
    };
    let is_quick = match place {
        Place::First => victim.is_none() && attack.runs(Run::Quick),
        Place::Second => false,
        // Those in which the client need not wait until it gives up.
        Place::Every => victim.is_none() && attack.runs(Run::QuickOnEveryPath),
    };
    Case::new(name, about, run).quick_if(is_quick)
}

impl Opening {
    fn arm(self, fixture: &Fixture<'_>) -> Result<()> {
        let direction = self.victim.map(|victim| match victim {
            Side::Client => Direction::ToClient,
            Side::Server => Direction::ToServer,
        });
        for path in fixture.lab.paths().iter().filter(|path| self.place.has(path.name())) {
            path.attack(Attack { direction, ..Attack::new(self.attack) })?;
        }
        Ok(())
    }

    /// Whether the client gets the server's authenticated answer all the same, as the SYN of a join brings the server what it waits for: what
    /// follows happens to an open connection.
    fn leaves_it_open(self) -> bool {
        self.place == Place::Every && self.attack.expected() == Expected::OpensAfterHandshake
    }

    fn gives_up(self) -> Duration {
        if self.leaves_it_open() { GIVES_UP_WHEN_OPEN } else { GIVES_UP }
    }

    fn options(self) -> [&'static str; 2] {
        ["--handshake", self.handshake]
    }
}

/// Two connections, of which only the second is attacked.
fn opens(context: &Context<'_>, opening: Opening) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Capture)?;
    let before = SystemTime::now();
    let undisturbed = transfer(&fixture, opening, LINGERS)?;
    let result = outcome(&undisturbed, SIZE);
    ensure!(result == Outcome::Equal, "without an attack: {result:?}");
    // A first contact: what the client remembers of the server would give the attacker away.
    let known = fixture.file("client-keys");
    if known.exists() {
        std::fs::remove_dir_all(known)?;
    }
    opening.arm(&fixture)?;
    let between = SystemTime::now();
    let attacked = transfer(&fixture, opening, LINGERS)?;
    let injected = injected(&fixture, opening)?;
    let captured = Capture::of(&fixture)?;
    captured.is_sealed()?;
    match outcome(&attacked, SIZE) {
        Outcome::Equal => {}
        Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => {
            bail!("{text}; {injected}; the client says: {}", attacked.client.said)
        }
    }
    let usual = first_byte(&undisturbed, captured.first_syn(before)?)?;
    let under = first_byte(&attacked, captured.first_syn(between)?)?;
    let allowed = match opening.attack.expected() {
        Expected::OpensAfterHandshake => LATER_AFTER_HANDSHAKE,
        _ => LATER,
    };
    let words = format!("first byte after {} ms, undisturbed {} ms", under.as_millis(), usual.as_millis());
    let is_soon = under < usual + allowed || !context.settings.judges_times;
    ensure!(is_soon, "{words}: more than {} ms later; {injected}", allowed.as_millis());
    Ok(Verdict::Passed(format!("equal, {words}, {injected}")))
}

/// One connection that cannot be.
fn fails(context: &Context<'_>, opening: Opening) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Capture)?;
    opening.arm(&fixture)?;
    let exchange = transfer(&fixture, opening, LINGERS_IN_VAIN)?;
    let injected = injected(&fixture, opening)?;
    Capture::of(&fixture)?.is_sealed()?;
    let Exchange { up, down, client, server, .. } = &exchange;
    for (end, arrived, ending) in [("the server", up, server), ("the client", down, client)] {
        if let Some(place) = arrived.first_wrong {
            bail!("wrong bytes: {end} got another byte at place {place}");
        }
        ensure!(ending.code != Some(0), "{end} takes it for an orderly end after {} bytes", arrived.bytes);
    }
    let said = &client.said;
    ensure!(client.code.is_some(), "the client does not end in {:?}: {said}", opening.gives_up());
    // One line for each attempt, or for each path of a connection that was open, which begins with the path.
    for path in ["a", "b"] {
        let names = [format!("{path}: "), format!("{path} over UDP: ")];
        let is_named = said.split(" | ").any(|line| names.iter().any(|name| line.starts_with(name)));
        ensure!(is_named, "exit {:?}, and not a word of what path {path} did: {said}", client.code);
    }
    let seconds = exchange.time.as_secs_f64();
    Ok(Verdict::Passed(format!("an error after {seconds:.1} s, {injected}: {said}")))
}

/// A transfer both ways that is left alone until the client has ended, or takes too long.
fn transfer(fixture: &Fixture<'_>, opening: Opening, lingers: Duration) -> Result<Exchange> {
    let mut server = fixture.listen(&opening.options())?;
    let mut client = fixture.connect(&Fixture::PATHS, &opening.options())?;
    let [up, down] = [UP, DOWN].map(|text| Source::Text(Arc::from(text)));
    let running =
        exchange::start(&mut client, &mut server, &Load { up, down, sizes: [SIZE; 2], holds_down_at: None })?;
    let timeout = if client.wait(opening.gives_up()).is_ok() { lingers } else { Duration::ZERO };
    running.finish(&mut client, &mut server, timeout)
}

/// How often the attack has injected, by the injectors' own logs. An error if it never did where it could.
fn injected(fixture: &Fixture<'_>, opening: Opening) -> Result<String> {
    let mut count = 0;
    for path in fixture.lab.paths() {
        count += path.injections()?.total;
    }
    ensure!(count > 0, "{} never reached the wire", opening.attack);
    Ok(format!("injected {count} times"))
}

/// From the first SYN to the first byte that a program reads; the later one of both ends.
fn first_byte(exchange: &Exchange, syn: SystemTime) -> Result<Duration> {
    let after = |arrived: &Arrived| -> Result<Duration> {
        let at = arrived.first_at.context("nothing arrived")?;
        Ok(at.duration_since(syn).unwrap_or_default())
    };
    Ok(after(&exchange.up)?.max(after(&exchange.down)?))
}

/// The contents of both captures.
#[derive(Default)]
struct Capture {
    syns: Vec<SystemTime>,
    payload: u64,
    in_clear: u64,
}

impl Capture {
    fn of(fixture: &Fixture<'_>) -> Result<Self> {
        let words = Needles::of(&[UP, UP, DOWN, DOWN].concat());
        let mut all = Self::default();
        for path in fixture.lab.paths() {
            path.flush()?;
            let file = fixture.file(&format!("{}.pcapng", path.name()));
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
