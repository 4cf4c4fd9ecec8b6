//! The attacks by name, and their triggers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Direction, Error};

/// One row per attack: its name here and on the command line, which packets it acts on, how often unless told otherwise, what a sealed
/// connection has to make of it, and how the attack tests run it. Everything that lists attacks is made of this.
macro_rules! attacks {
    ($($(#[doc = $about:literal])+
       $attack:ident = $name:literal, $target:ident, $rhythm:ident, $expected:ident, [$($run:ident),*];)+) => {
        /// The actions of an attacker on the path. All use only what has crossed this path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum AttackName {
            $($(#[doc = $about])+ #[serde(rename = $name)] $attack,)+
        }

        impl AttackName {
            /// All of them, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$attack,)+];

            const fn row(self) -> Row {
                match self {
                    $(Self::$attack => Row {
                        name: $name,
                        about: concat!($($about,)+),
                        target: Target::$target,
                        rhythm: Rhythm::$rhythm,
                        expected: Expected::$expected,
                        runs: &[$(Run::$run,)*],
                    },)+
                }
            }
        }
    };
}

attacks! {
    /// One byte of a payload is changed, all checksums are mended (Jadin et al., section V).
    Flip = "flip", Payload, Once, Survives, [Quick, EveryPath];
    /// Forged bytes with the sequence numbers of a payload arrive just before it.
    Insert = "insert", Payload, Once, Survives, [Quick, EveryPath];
    /// A forged reset, at the next sequence number.
    Rst = "rst", Established, Once, Survives, [Quick, EveryPath];
    /// A forged FIN, at the next sequence number.
    Fin = "fin", Established, Once, Survives, [EveryPath];
    /// A forged Data-ACK for all that was ever mapped, and every second time for more.
    ForgeAck = "forge-ack", Established, Once, Survives, [EveryPath];
    /// The mapping of a payload is changed to another place in the stream.
    ForgeDss = "forge-dss", Payload, Once, Survives, [Quick, EveryPath];
    /// A forged ADD_ADDR; with a valid HMAC if both keys have crossed this path.
    AddAddr = "add-addr", Established, Once, Survives, [];
    /// A forged REMOVE_ADDR for the address ids 0 to 8.
    RemoveAddr = "remove-addr", Established, Once, Survives, [];
    /// A forged MP_PRIO: this path is only a backup.
    Prio = "prio", Established, Once, Survives, [];
    /// A forged MP_FASTCLOSE; with the right key if it has crossed this path.
    Fastclose = "fastclose", Established, Once, Survives, [Quick, EveryPath];
    /// A forged DATA_FIN where the payload that it precedes begins.
    DataFin = "data-fin", Established, Once, Survives, [Quick, EveryPath];
    /// A captured ADD_ADDR again. Like all replays of options it waits until there is one.
    ReplayAddAddr = "replay-add-addr", Established, Once, NothingToCapture, [];
    /// A captured REMOVE_ADDR again.
    ReplayRemoveAddr = "replay-remove-addr", Established, Once, NothingToCapture, [];
    /// A captured MP_PRIO again.
    ReplayPrio = "replay-prio", Established, Once, NothingToCapture, [];
    /// A captured MP_FASTCLOSE again, or on another connection.
    ReplayFastclose = "replay-fastclose", Established, Once, SurvivesEarlier, [];
    /// A captured DATA_FIN again, or on another connection.
    ReplayDataFin = "replay-data-fin", Established, Once, SurvivesEarlier, [];
    /// A captured Data-ACK on a new segment.
    ReplayAck = "replay-ack", Established, Once, Survives, [];
    /// A captured mapping on a new segment without payload.
    ReplayDss = "replay-dss", Established, Once, Survives, [];
    /// An old payload again: every second time as it was, else with its options at the current sequence number.
    Replay = "replay", Payload, Once, Survives, [Quick];
    /// All payloads that have crossed from the first time that this was armed to its first injection, one at a time, in their order and
    /// as they were; short ones, as control records are, also with their options at the current sequence number.
    ReplayAll = "replay-all", Payload, Once, IgnoresRecords, [];
    /// Options of kind 30 are removed from everything but SYNs.
    Strip = "strip", Established, Always, Survives, [Quick, EveryPath];
    /// TCP-ENO (kind 69) is removed from SYNs.
    StripEno = "strip-eno", Syn, Always, OpensElsewhere, [];
    /// Options of kind 30 are removed from SYNs.
    StripCapable = "strip-capable", Syn, Always, OpensElsewhere, [SecondPath];
    /// MP_CAPABLE of version 2 becomes version 1.
    Downgrade = "downgrade", Syn, Always, OpensElsewhere, [];
    /// The first of the encryption protocols offered or chosen by TCP-ENO is removed; a single one becomes another.
    RewriteTep = "rewrite-tep", Syn, Always, OpensElsewhere, [];
    /// One of tcpcrypt's encryption protocols is added to those offered or chosen by TCP-ENO.
    AddTep = "add-tep", Syn, Always, OpensAfterHandshake, [];
    /// A payload loses its second half.
    Truncate = "truncate", Payload, Once, Survives, [EveryPath];
    /// A segment is held back until eight others have passed, 50 ms at most.
    Reorder = "reorder", Payload, Once, Survives, [];
    /// A segment becomes two, with the same options.
    Split = "split", Payload, Once, Survives, [];
    /// A segment and the next become one, with the options of the first.
    Merge = "merge", Payload, Once, Survives, [];
    /// The path is dead for a time.
    Cut = "cut", Established, Once, Survives, [EveryPath];
    /// All paths are dead for a time.
    CutAll = "cut-all", Established, Once, Survives, [];
    /// The SYN/ACK becomes a bare SYN, as of a peer that opens at the same moment, and a bare ACK; nothing else passes. With to=server:
    /// so do the segments behind the client's SYN.
    SynCrossing = "syn-crossing", Any, Always, OpensElsewhere, [Quick, QuickOnEveryPath, BothHandshakes, SecondPath];
    /// The SYN/ACK loses all options of Multipath TCP and TCP-ENO. With to=server: the SYN.
    SynAckBare = "synack-bare", Syn, Always, OpensElsewhere, [Quick, QuickOnEveryPath, BothHandshakes, SecondPath];
    /// SYN and SYN/ACK pass, and nothing more.
    SynAckThenSilence = "synack-then-silence", Any, Always, OpensElsewhere, [Quick, BothHandshakes, SecondPath];
    /// Everything passes until the first payload with a mapping, which is the end of a sealed handshake; and nothing more.
    HandshakeThenSilence = "handshake-then-silence", Any, Always, OpensAfterHandshake, [Quick, BothHandshakes, SecondPath];
    /// One byte of each payload without a mapping, as a sealed handshake has, is changed, all checksums are mended.
    HandshakeAlteredAlways = "handshake-altered-always", Payload, Always, OpensElsewhere, [Quick, QuickOnEveryPath, BothHandshakes];
    /// One byte of each payload with a mapping is changed, from the first one on, all checksums are mended.
    BlocksAlteredAlways = "blocks-altered-always", Payload, Always, OpensAfterHandshake, [Quick, BothHandshakes, SecondPath];
    /// Payloads are swallowed, and acknowledged in the receiver's name.
    SwallowAndAck = "swallow-and-ack", BothWays, Always, KeepsPace, [];
    /// Payloads pass and are acknowledged in the receiver's name at once: what the link then drops is never sent again.
    AckEarly = "ack-early", BothWays, Always, KeepsPace, [];
    /// Payloads are swallowed; of all but the first of them a selective acknowledgment in the receiver's name says that they have arrived.
    LieInSack = "lie-in-sack", BothWays, Always, KeepsPace, [];
    /// Acknowledgments are held back; one segment more is acknowledged in 140 ms, or in `lasting`.
    AckSlowly = "ack-slowly", BothWays, Always, KeepsPace, [];
    /// Acknowledgments stay where they are: segments without payload are swallowed, those with payload repeat the first acknowledgment.
    FreezeAcks = "freeze-acks", BothWays, Always, KeepsPace, [];
    /// Data-ACKs are removed; mappings stay.
    StripDataAck = "strip-data-ack", Established, Always, KeepsPace, [];
    /// The window becomes zero.
    CloseWindow = "close-window", Established, Always, KeepsPace, [];
    /// Echoes of timestamps go back by `lasting`, in milliseconds: the path looks so much longer.
    AgeEchoes = "age-echoes", Established, Always, KeepsPace, [];
    /// A delay that grows by a second in two, up to `lasting`, 5 s.
    DelayRamp = "delay-ramp", Any, Always, KeepsPace, [];
    /// A delay of `lasting`, 5 s, from now on.
    DelayJump = "delay-jump", Any, Always, KeepsPace, [];
    /// Each segment is delayed by chance, by 0 to `lasting`, 2 s.
    DelayByChance = "delay-by-chance", Any, Always, KeepsPace, [];
    /// One segment passes in 140 ms, or in `lasting`; the others wait for their turn.
    Throttle = "throttle", Payload, Always, KeepsPace, [];
    /// Nothing passes any more; with `to`, in one direction.
    Silence = "silence", Any, Always, KeepsPace, [];
    /// Payloads are swallowed.
    Drop = "drop", Payload, Once, KeepsPace, [];
    /// Three of ten payloads are swallowed, by chance.
    Lose = "lose", Payload, Always, KeepsPace, [];
    /// A payload arrives ten times.
    Multiply = "multiply", Payload, Once, KeepsPace, [];
    /// Once an MP_JOIN has gone by, invented SYNs try to join the same connection: one in 2.5 ms, or in `lasting`.
    JoinFlood = "join-flood", Any, Always, KeepsPace, [];
    /// The first SYN of a connection is swallowed, and from then on SYNs like it arrive from invented addresses: one in 0.1 ms, or in `lasting`.
    SynFlood = "syn-flood", Any, Always, KeepsPace, [];
    /// A FIN or DATA_FIN becomes a reset, and another one goes back to its sender.
    ResetAtEnd = "reset-at-end", Established, Always, EndsSoon, [];
    /// Segments with a FIN or DATA_FIN are swallowed.
    DropEnds = "drop-ends", Established, Always, EndsSoon, [];
    /// Once a FIN or DATA_FIN goes by, `to` one end or either, it becomes a reset for both ends, and so does all that follows on any path.
    ResetBothAtEnd = "reset-both-at-end", AnyBothWays, Always, EndsInTime, [];
    /// Once a FIN or DATA_FIN goes by, `to` one end or either, nothing passes on any path any more.
    CutBothAtEnd = "cut-both-at-end", AnyBothWays, Always, EndsInTime, [];
    /// One end of each join that completes is reset, the client or with to=server the server; the other is kept alive by forged
    /// acknowledgments, and left no room for a block.
    HalfReset = "half-reset", AnyBothWays, Always, CarriesOn, [];
    /// The same, and the last tagged option of the end that was reset is repeated each second.
    CheckReplay = "check-replay", AnyBothWays, Always, CarriesOn, [];
    /// The client's answer to the first share of the keys is held, and the client reset; the server is kept alive by forged
    /// acknowledgments. The answers on 65 more joins become resets. Then, or after `lasting`, 100 s, the held answer goes on.
    HeldExchange = "held-exchange", AnyBothWays, Always, CarriesOn, [];
    /// Once a payload with a mapping goes to the server, nothing passes to the client any more.
    SwallowAnswers = "swallow-answers", AnyBothWays, Always, DeliversOnce, [];
}

struct Row {
    name: &'static str,
    about: &'static str,
    target: Target,
    rhythm: Rhythm,
    expected: Expected,
    runs: &'static [Run],
}

/// The required result of a sealed connection with one attacked and one honest path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// In the middle of a transfer: every byte arrives, and the subflow on the honest path lives.
    Survives,
    /// The same with an option captured at the end of an earlier connection.
    SurvivesEarlier,
    /// There is nothing to capture: sealed connections send it inside their stream.
    NothingToCapture,
    /// Control records that come again change nothing.
    IgnoresRecords,
    /// It opens over the honest path at once.
    OpensElsewhere,
    /// The same, after a handshake that ended well on the attacked path.
    OpensAfterHandshake,
    /// Every byte arrives, hardly later than over the honest path alone.
    KeepsPace,
    /// Both programs end soon after both have said so, also where every path is attacked.
    EndsSoon,
    /// Both programs end within seconds, and say what they do not know.
    EndsInTime,
    /// The connection carries on over the honest path, and moves from there to another one at once.
    CarriesOn,
    /// No byte is delivered twice, whichever servers and paths there are.
    DeliversOnce,
}

/// How the attack tests run an attack, beyond what [`Expected`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// In CI as well.
    Quick,
    /// In CI on every path at once, too.
    QuickOnEveryPath,
    /// Also on every path at once: then there may be an error, but never other bytes.
    EveryPath,
    /// With each of the handshakes of sealed connections.
    BothHandshakes,
    /// Also on the path on which nothing opens while the first one is honest: it acts on joins as well.
    SecondPath,
}

/// How often an attack acts unless it is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rhythm {
    Once,
    /// Until it is called off: middleboxes do not tire.
    Always,
}

impl AttackName {
    /// The name on the command line.
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Its action, in a line or two.
    pub const fn about(self) -> &'static str {
        self.row().about.trim_ascii_start()
    }

    /// The required result of a sealed connection.
    pub const fn expected(self) -> Expected {
        self.row().expected
    }

    /// Whether the attack tests run it so.
    pub fn runs(self, run: Run) -> bool {
        self.row().runs.contains(&run)
    }

    /// The packets that it acts on.
    pub(crate) const fn target(self) -> Target {
        self.row().target
    }

    const fn is_steady(self) -> bool {
        matches!(self.row().rhythm, Rhythm::Always)
    }
}

impl fmt::Display for AttackName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

impl FromStr for AttackName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().copied().find(|attack| attack.as_str() == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|attack| attack.as_str()).collect();
            Error::Attack(format!("there is no attack `{name}`; there are: {}", known.join(", ")))
        })
    }
}

/// The packets an attack acts on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// Segments with SYN.
    Syn,
    /// Segments with payload.
    Payload,
    /// Segments without SYN and RST.
    Established,
    /// All segments.
    Any,
    /// Segments without SYN and RST in both directions; the direction of the attack is that of the payload that it is about.
    BothWays,
    /// All segments in both directions; the direction of the attack leads to the end that it is about.
    AnyBothWays,
}

/// An attack and when it acts.
///
/// Time is counted in bytes of TCP payload that have crossed the path, both directions together, since the attack
/// was armed: an attack acts on the first fitting packet after `after` bytes, and again every `every` bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// The attack.
    pub name: AttackName,
    /// Only packets that go this way; `None`: both. What is forged goes the same way as the packet it follows.
    #[serde(default)]
    pub direction: Option<Direction>,
    /// Bytes of payload before the first injection.
    #[serde(default)]
    pub after: u64,
    /// Bytes of payload between two injections; 0: every packet.
    #[serde(default)]
    pub every: u64,
    /// How many injections; `None`: until it is called off.
    #[serde(default)]
    pub count: Option<u64>,
    /// Only connections to this port.
    #[serde(default)]
    pub port: Option<u16>,
    /// How long a cut lasts, how long a delay is, or how far apart inventions are; `None`: as the attack has it.
    #[serde(default)]
    pub lasting: Option<Duration>,
}

impl Attack {
    /// The attack at the first occasion: once, or steadily for those that rewrite or strip options.
    pub const fn new(name: AttackName) -> Self {
        let count = if name.is_steady() { None } else { Some(1) };
        Self { name, direction: None, after: 0, every: 0, count, port: None, lasting: None }
    }

    /// Only packets that go this way.
    #[must_use]
    pub const fn towards(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }

    /// Not before this many bytes of payload.
    #[must_use]
    pub const fn after(mut self, bytes: u64) -> Self {
        self.after = bytes;
        self
    }

    /// Again and again, with this many bytes of payload between, until it is called off or [`Attack::times`] says otherwise.
    #[must_use]
    pub const fn every(mut self, bytes: u64) -> Self {
        self.every = bytes;
        self.count = None;
        self
    }

    /// Sets the number of strikes; forged packets that the queue of the path drops do not count.
    #[must_use]
    pub const fn times(mut self, count: u64) -> Self {
        self.count = Some(count);
        self
    }

    /// Only connections to this port.
    #[must_use]
    pub const fn on_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// How long a cut lasts, or how long a delay is.
    #[must_use]
    pub const fn lasting(mut self, time: Duration) -> Self {
        self.lasting = Some(time);
        self
    }

    /// The same, unless it was said: what the attack is known for.
    pub(crate) fn time(&self) -> Duration {
        self.lasting.unwrap_or(match self.name {
            AttackName::AckSlowly | AttackName::Throttle => Duration::from_millis(140),
            AttackName::DelayByChance => Duration::from_secs(2),
            AttackName::JoinFlood => Duration::from_micros(2500),
            AttackName::SynFlood => Duration::from_micros(100),
            AttackName::HeldExchange => Duration::from_secs(100),
            AttackName::DelayRamp | AttackName::DelayJump | AttackName::AgeEchoes => Duration::from_secs(5),
            _ => Duration::from_secs(3),
        })
    }

    /// An attack from words: its name, then `after=BYTES`, `every=BYTES`, `count=N`, `to=server|client`,
    /// `port=N` and `lasting=MILLISECONDS` in any order.
    ///
    /// # Errors
    /// An unknown name or word, or a value that is no number.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut words = words.into_iter();
        let name = words.next().ok_or_else(|| Error::Attack("which attack?".to_owned()))?;
        let mut attack = Self::new(name.parse()?);
        let mut given = None;
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or_else(|| Error::Attack(format!("`{word}` is not KEY=VALUE")))?;
            let number =
                || value.parse::<u64>().map_err(|_| Error::Attack(format!("`{value}` is no number")));
            match key {
                "after" => attack = attack.after(number()?),
                "every" => attack = Self { count: given, ..attack.every(number()?) },
                "count" => {
                    given = Some(number()?);
                    attack.count = given;
                }
                "to" => attack = attack.towards(value.parse()?),
                "lasting" => attack = attack.lasting(Duration::from_millis(number()?)),
                "port" => {
                    let port = u16::try_from(number()?);
                    attack =
                        attack.on_port(port.map_err(|_| Error::Attack(format!("`{value}` is no port")))?);
                }
                _ => return Err(Error::Attack(format!("an attack has no `{key}`"))),
            }
        }
        Ok(attack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_is_found_by_its_name_and_no_other() {
        for &name in AttackName::ALL {
            assert_eq!(name.as_str().parse::<AttackName>().expect("its own name"), name);
            let text = serde_json::to_string(&name).expect("a name");
            assert_eq!(text, format!("\"{name}\""), "one name everywhere");
        }
        assert!("flipp".parse::<AttackName>().is_err());
    }

    #[test]
    fn words_say_when_and_where_an_attack_acts() {
        let attack = Attack::parse(["flip", "after=1000", "every=500", "count=3", "to=client", "port=443"]);
        let expected = Attack::new(AttackName::Flip)
            .after(1000)
            .every(500)
            .times(3)
            .towards(Direction::ToClient)
            .on_port(443);
        assert_eq!(attack.expect("all known"), expected);
        let steady = Attack::parse(["flip", "every=500"]).expect("all known");
        assert_eq!(steady, Attack::new(AttackName::Flip).every(500), "again and again");
        for wrong in [&["flip", "after"][..], &["flip", "after=x"], &["flip", "when=1"], &[]] {
            assert!(Attack::parse(wrong.iter().copied()).is_err(), "{wrong:?}");
        }
    }
}
