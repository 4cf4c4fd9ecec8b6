//! The life of subflows: the attacker of one path ends joins at one end only and speaks for that end at the other one. The connection carries
//! on over the honest path, and moves from there to a third path at once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName, Conditions, Direction, Program};

use super::{Outcome, TIMEOUT, outcome_of};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Arrived, Load, Running};
use crate::attacks::fixture::{Fixture, Listening};

/// Rate of each path and direction, and the one-way delay.
const MEGABITS: u64 = 25;
const DELAY_MS: u64 = 10;
/// Bytes sent at first in each direction, and bytes sent on the new path.
const GREETING: u64 = 100;
/// Bytes of a message under traffic, and the interval of messages.
const MESSAGE: u64 = 20_000;
const RHYTHM: Duration = Duration::from_millis(200);
/// Bytes sent at the end in each direction.
const REST: u64 = 1 << 20;
/// How long the first bytes may take.
const OPENING: Duration = Duration::from_secs(20);
/// Subflows with one end from which on a peer that counts them has no room (8 of a connection, one of which is honest), and how long the
/// attacker gathers them.
const ENOUGH: usize = 7;
const GATHERING: Duration = Duration::from_secs(8);
/// How long an attack goes on that is about patience, and with --quick.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(12);
/// How long an answer is held at most, and with --quick. A client that tries three addresses of the server, each a second after the last
/// time, has joined 65 times in 10 s.
const HELD: Duration = Duration::from_secs(100);
const HELD_SHORT: Duration = Duration::from_secs(30);
/// How long the connection has to go on behind the answer that was held.
const BEHIND: Duration = Duration::from_secs(3);
/// The longest time to the first byte on the new path; on a machine that does other work; and when it is given up: later than the connection
/// itself would give up.
const HAND_OVER: Duration = Duration::from_millis(300);
const HAND_OVER_QUICK: Duration = Duration::from_secs(2);
const NEVER: Duration = Duration::from_secs(90);
/// The longest time without a message under traffic.
const LONGEST_GAP: Duration = Duration::from_secs(1);
/// Between two looks.
const POLL: Duration = Duration::from_millis(1);

/// The side that sends while the attack goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Traffic {
    Idle,
    Up,
    Down,
    Both,
}

impl Traffic {
    const ALL: [Self; 4] = [Self::Idle, Self::Up, Self::Down, Self::Both];

    const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Up => "up",
            Self::Down => "down",
            Self::Both => "both",
        }
    }

    const fn directions(self) -> &'static [Direction] {
        match self {
            Self::Idle => &[],
            Self::Up => &[Direction::ToServer],
            Self::Down => &[Direction::ToClient],
            Self::Both => &Direction::BOTH,
        }
    }
}

/// An attack on the life of subflows.
#[derive(Clone, Copy)]
struct Variant {
    attack: AttackName,
    /// Leads to the end that is reset.
    victim: Direction,
    traffic: Traffic,
    handshake: &'static str,
}

impl Variant {
    fn name(&self, group: &str) -> String {
        let victim = match (self.attack, self.victim) {
            (AttackName::HeldExchange, _) => "",
            (_, Direction::ToClient) => "-client",
            (_, Direction::ToServer) => "-server",
        };
        format!("{group}/{}{victim}-{}", self.traffic.name(), self.handshake)
    }

    /// A server that has nothing to say notices nothing by itself.
    fn is_quick(&self) -> bool {
        (self.victim, self.traffic, self.handshake) == (Direction::ToClient, Traffic::Idle, "tls")
    }
}

/// For the short ones each with each; for those of ten minutes, each kind of traffic with one of the handshakes.
fn variants(attack: AttackName, with_each: bool) -> impl Iterator<Item = Variant> {
    let victims = [Direction::ToClient, Direction::ToServer].into_iter();
    let fits = move |variant: &Variant| {
        let is_even = matches!(variant.traffic, Traffic::Idle | Traffic::Both);
        let is_about_client = attack != AttackName::HeldExchange || variant.victim == Direction::ToClient;
        is_about_client && (with_each || is_even == (variant.handshake == "tls"))
    };
    let all = victims.flat_map(move |victim| {
        Traffic::ALL.into_iter().flat_map(move |traffic| {
            ["tls", "tcpcrypt"].map(|handshake| Variant { attack, victim, traffic, handshake })
        })
    });
    all.filter(fits)
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let about = "one end of each join on path b is reset: from path a to path c in 300 ms";
    for variant in variants(AttackName::HalfReset, true) {
        let run = move |context: &Context<'_>| one_sided(context, variant, Gathering::Enough);
        let name = variant.name("zombie-subflows");
        cases.push(Case::new(name, about, run).quick_if(variant.is_quick()));
    }
    let about = "the same for ten minutes (12 s with --quick): messages over path a go on, then over path c";
    for variant in variants(AttackName::HalfReset, false) {
        let run = move |context: &Context<'_>| one_sided(context, variant, Gathering::Patient);
        let quick = (variant.victim, variant.traffic) == (Direction::ToClient, Traffic::Up);
        cases.push(Case::new(variant.name("half-reset"), about, run).quick_if(quick));
    }
    let about = "the same, and the last tagged option is repeated each second";
    for variant in variants(AttackName::CheckReplay, false) {
        let run = move |context: &Context<'_>| one_sided(context, variant, Gathering::Patient);
        cases.push(Case::new(variant.name("check-replay"), about, run).quick_if(variant.is_quick()));
    }
    let about = "an answer to a share is held until its sender has forgotten it: the connection goes on";
    for variant in variants(AttackName::HeldExchange, true) {
        let run = move |context: &Context<'_>| held(context, variant);
        cases.push(Case::new(variant.name("held-exchange"), about, run).quick_if(variant.is_quick()));
    }
    cases
}

/// How long subflows with one end are gathered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gathering {
    /// Until there are enough of them.
    Enough,
    /// For ten minutes.
    Patient,
}

/// A connection over paths a and b, of which b is attacked; c is there and not used.
struct Attacked<'a> {
    fixture: Fixture<'a>,
    client: Program,
    server: Program,
    running: Running,
    /// Bytes up, and bytes down.
    sizes: [u64; 2],
}

impl<'a> Attacked<'a> {
    /// Opens it; the attack is there from the start.
    fn open(context: &'a Context<'a>, variant: Variant, attack: Attack, longest: Duration) -> Result<Self> {
        let conditions = Conditions::megabits(MEGABITS, DELAY_MS);
        let paths = ["a", "b", "c"].map(|name| (name, conditions.clone()));
        let fixture = Fixture::up_along(context, Listening::Closed, &paths)?;
        let options = ["--handshake", variant.handshake];
        let all = ["--path", "a=trusted", "--path", "b=untrusted", "--path", "c=trusted"];
        let mut server = fixture.listen_on(&all, &options)?;
        fixture.path("b")?.attack(attack)?;
        let control = fixture.control().display().to_string();
        let options = [&options[..], &["--control", &control]].concat();
        // It opens over path a, so that what crosses path b are joins.
        let one = ["--path", "a=trusted", "--path", "b=never", "--path", "c=never"];
        let mut client = fixture.connect(&one, &options)?;
        let messages = longest.div_duration_f64(RHYTHM).ceil() as u64;
        let sizes = Direction::BOTH.map(|direction| {
            let speaks = variant.traffic.directions().contains(&direction);
            2 * GREETING + REST + if speaks { messages * MESSAGE } else { 0 }
        });
        let running = exchange::start_held(&mut client, &mut server, &Load::sized(sizes), [GREETING; 2])?;
        running.wait_for(2 * GREETING, OPENING).context("the first bytes")?;
        fixture.change_path("b=untrusted")?;
        Ok(Self { fixture, client, server, running, sizes })
    }

    /// Makes both ends send until `is_over`, or for this time.
    fn talk(
        &mut self,
        traffic: Traffic,
        longest: Duration,
        mut is_over: impl FnMut(&Fixture<'_>) -> Result<bool>,
    ) -> Result<Duration> {
        let began = Instant::now();
        while began.elapsed() < longest && !is_over(&self.fixture)? {
            for direction in traffic.directions() {
                self.running.allow(*direction, MESSAGE);
            }
            std::thread::sleep(RHYTHM);
            self.is_alive(began)?;
        }
        Ok(began.elapsed())
    }

    /// An error once either program has ended.
    fn is_alive(&mut self, since: Instant) -> Result<()> {
        if !self.client.has_ended()? && !self.server.has_ended()? {
            return Ok(());
        }
        let seconds = since.elapsed().as_secs_f64();
        // The other one is told, or finds out.
        std::thread::sleep(RHYTHM);
        let (client, server) = (self.client.last_words(), self.server.last_words());
        let struck = strikes(&self.fixture)?;
        bail!("ended {seconds:.1} s later, after {struck} resets: client: {client}; server: {server}");
    }

    /// Path a goes dead and is taken away, path c is there: the time to a question at the server, and to the answer at the client.
    fn hand_over(&mut self) -> Result<[Duration; 2]> {
        let struck = strikes(&self.fixture)?;
        self.fixture.path("a")?.cut()?;
        self.fixture.change_path("a=never")?;
        let decided = Instant::now();
        self.fixture.change_path("c=trusted")?;
        let mut took = [Duration::ZERO; 2];
        // The server has nothing to say before it is asked.
        for direction in Direction::BOTH {
            let before = self.running.arrived(direction);
            self.running.allow(direction, GREETING);
            while self.running.arrived(direction) == before {
                self.is_alive(decided)?;
                let waited = decided.elapsed();
                ensure!(waited < NEVER, "nothing over path c after {waited:?} and {struck} resets");
                std::thread::sleep(POLL);
            }
            took[direction.index()] = decided.elapsed();
        }
        Ok(took)
    }

    /// The rest of both streams; what arrived.
    fn finish(mut self) -> Result<(Fixture<'a>, [Arrived; 2])> {
        self.running.let_go();
        let exchange = self.running.finish(&mut self.client, &mut self.server, TIMEOUT)?;
        match outcome_of(&exchange, self.sizes) {
            Outcome::Equal => Ok((self.fixture, [exchange.up, exchange.down])),
            Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => {
                bail!("at the end: {text}")
            }
        }
    }
}

/// Ends that were reset on the attacked path.
fn strikes(fixture: &Fixture<'_>) -> Result<usize> {
    let log = fixture.path("b")?.injections()?;
    Ok(log.entries.iter().filter(|entry| entry.what.starts_with("reset of")).count())
}

fn one_sided(context: &Context<'_>, variant: Variant, gathering: Gathering) -> Result<Verdict> {
    let is_short = !context.settings.judges_times;
    let longest = match gathering {
        Gathering::Enough => GATHERING,
        Gathering::Patient if is_short => SHORT,
        Gathering::Patient => LONG,
    };
    let attack = Attack::new(variant.attack).towards(variant.victim);
    let mut attacked = Attacked::open(context, variant, attack, longest)?;
    let is_enough = |fixture: &Fixture<'_>| Ok(gathering == Gathering::Enough && strikes(fixture)? >= ENOUGH);
    let gathered = attacked.talk(variant.traffic, longest, is_enough)?;
    let struck = strikes(&attacked.fixture)?;
    ensure!(struck > 0, "no join completed on path b in {gathered:?}: nothing was attacked");
    let handed_over = Instant::now();
    let [up, down] = attacked.hand_over()?;
    let (fixture, arrived) = attacked.finish()?;
    let gap = longest_gap(&arrived, variant.traffic, handed_over);
    let forged = fixture.path("b")?.injections()?.total;
    let words = format!(
        "equal; {struck} joins with one end and {forged} forged segments in {:.0} s, longest gap {} ms; \
         from path a to c in {} ms up and {} ms down",
        gathered.as_secs_f64(),
        gap.as_millis(),
        up.as_millis(),
        down.as_millis()
    );
    let limit = if is_short { HAND_OVER_QUICK } else { HAND_OVER };
    ensure!(up.max(down) < limit, "too slow: {words}");
    ensure!(gap < LONGEST_GAP || is_short, "stood still: {words}");
    Ok(Verdict::Passed(words))
}

/// The longest time without a message where there was to be one, until a moment.
fn longest_gap(arrived: &[Arrived; 2], traffic: Traffic, until: Instant) -> Duration {
    let gaps = traffic.directions().iter().flat_map(|direction| &arrived[direction.index()].gaps);
    gaps.filter(|(end, _)| *end < until).map(|(_, gap)| *gap).max().unwrap_or_default()
}

fn held(context: &Context<'_>, variant: Variant) -> Result<Verdict> {
    let held = if context.settings.judges_times { HELD } else { HELD_SHORT };
    let attack = Attack::new(variant.attack).lasting(held);
    let mut attacked = Attacked::open(context, variant, attack, held + 2 * BEHIND)?;
    let released = |fixture: &Fixture<'_>| -> Result<Option<String>> {
        let log = fixture.path("b")?.injections()?;
        Ok(log.entries.into_iter().map(|entry| entry.what).find(|what| what.starts_with("the held answer")))
    };
    let took = attacked.talk(variant.traffic, held + BEHIND, |fixture| Ok(released(fixture)?.is_some()))?;
    let what = released(&attacked.fixture)?.context("no answer was held: nothing was attacked")?;
    attacked.talk(variant.traffic, BEHIND, |_| Ok(false)).with_context(|| what.clone())?;
    attacked.finish().with_context(|| what.clone())?;
    Ok(Verdict::Passed(format!("equal; after {:.0} s {what}", took.as_secs_f64())))
}
