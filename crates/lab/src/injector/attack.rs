//! The attacks by name, and when they strike.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Direction, Error};

/// What an attacker on the path does. All of it is done knowing only what has crossed this path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttackName {
    /// One byte of a payload is changed, all checksums are mended (Jadin et al., section V).
    Flip,
    /// Forged bytes with the sequence numbers of a payload arrive just before it.
    Insert,
    /// A forged reset, at the next sequence number.
    Rst,
    /// A forged FIN, at the next sequence number.
    Fin,
    /// A forged Data-ACK for all that was ever mapped, and every second time for more.
    ForgeAck,
    /// The mapping of a payload is changed to another place in the stream.
    ForgeDss,
    /// A forged ADD_ADDR; with a valid HMAC if both keys have crossed this path.
    AddAddr,
    /// A forged REMOVE_ADDR for the address ids 0 to 8.
    RemoveAddr,
    /// A forged MP_PRIO: this path is only a backup.
    Prio,
    /// A forged MP_FASTCLOSE; with the right key if it has crossed this path.
    Fastclose,
    /// A forged DATA_FIN where the payload that it precedes begins.
    DataFin,
    /// A captured ADD_ADDR again. Like all replays of options it waits until there is one.
    ReplayAddAddr,
    /// A captured REMOVE_ADDR again.
    ReplayRemoveAddr,
    /// A captured MP_PRIO again.
    ReplayPrio,
    /// A captured MP_FASTCLOSE again, or on another connection.
    ReplayFastclose,
    /// A captured DATA_FIN again, or on another connection.
    ReplayDataFin,
    /// A captured Data-ACK on a new segment.
    ReplayAck,
    /// A captured mapping on a new segment without payload.
    ReplayDss,
    /// An old payload again: every second time as it was, else with its options at the current sequence number.
    Replay,
    /// All payloads that have crossed from the first time that this was armed to its first strike, one at a strike, in their order and
    /// as they were; short ones, as control records are, also with their options at the current sequence number.
    ReplayAll,
    /// Options of kind 30 are removed from everything but SYNs.
    Strip,
    /// TCP-ENO (kind 69) is removed from SYNs.
    StripEno,
    /// Options of kind 30 are removed from SYNs.
    StripCapable,
    /// MP_CAPABLE of version 2 becomes version 1.
    Downgrade,
    /// The first of the encryption protocols offered or chosen by TCP-ENO is removed; a single one becomes another.
    RewriteTep,
    /// One of tcpcrypt's encryption protocols is added to those offered or chosen by TCP-ENO.
    AddTep,
    /// A payload loses its second half.
    Truncate,
    /// A segment is held back until eight others have passed, 50 ms at most.
    Reorder,
    /// A segment becomes two, with the same options.
    Split,
    /// A segment and the next become one, with the options of the first.
    Merge,
    /// The path is dead for a time.
    Cut,
    /// All paths are dead for a time.
    CutAll,
}

impl AttackName {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 32] = [
        Self::Flip,
        Self::Insert,
        Self::Rst,
        Self::Fin,
        Self::ForgeAck,
        Self::ForgeDss,
        Self::AddAddr,
        Self::RemoveAddr,
        Self::Prio,
        Self::Fastclose,
        Self::DataFin,
        Self::ReplayAddAddr,
        Self::ReplayRemoveAddr,
        Self::ReplayPrio,
        Self::ReplayFastclose,
        Self::ReplayDataFin,
        Self::ReplayAck,
        Self::ReplayDss,
        Self::Replay,
        Self::ReplayAll,
        Self::Strip,
        Self::StripEno,
        Self::StripCapable,
        Self::Downgrade,
        Self::RewriteTep,
        Self::AddTep,
        Self::Truncate,
        Self::Reorder,
        Self::Split,
        Self::Merge,
        Self::Cut,
        Self::CutAll,
    ];

    /// The name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flip => "flip",
            Self::Insert => "insert",
            Self::Rst => "rst",
            Self::Fin => "fin",
            Self::ForgeAck => "forge-ack",
            Self::ForgeDss => "forge-dss",
            Self::AddAddr => "add-addr",
            Self::RemoveAddr => "remove-addr",
            Self::Prio => "prio",
            Self::Fastclose => "fastclose",
            Self::DataFin => "data-fin",
            Self::ReplayAddAddr => "replay-add-addr",
            Self::ReplayRemoveAddr => "replay-remove-addr",
            Self::ReplayPrio => "replay-prio",
            Self::ReplayFastclose => "replay-fastclose",
            Self::ReplayDataFin => "replay-data-fin",
            Self::ReplayAck => "replay-ack",
            Self::ReplayDss => "replay-dss",
            Self::Replay => "replay",
            Self::ReplayAll => "replay-all",
            Self::Strip => "strip",
            Self::StripEno => "strip-eno",
            Self::StripCapable => "strip-capable",
            Self::Downgrade => "downgrade",
            Self::RewriteTep => "rewrite-tep",
            Self::AddTep => "add-tep",
            Self::Truncate => "truncate",
            Self::Reorder => "reorder",
            Self::Split => "split",
            Self::Merge => "merge",
            Self::Cut => "cut",
            Self::CutAll => "cut-all",
        }
    }

    /// Which packets it can strike.
    pub(crate) const fn prey(self) -> Prey {
        match self {
            Self::StripEno | Self::StripCapable | Self::Downgrade | Self::RewriteTep | Self::AddTep => {
                Prey::Syn
            }
            Self::Flip
            | Self::Insert
            | Self::ForgeDss
            | Self::Replay
            | Self::ReplayAll
            | Self::Truncate
            | Self::Reorder
            | Self::Split
            | Self::Merge => Prey::Payload,
            Self::Rst
            | Self::Fin
            | Self::ForgeAck
            | Self::AddAddr
            | Self::RemoveAddr
            | Self::Prio
            | Self::Fastclose
            | Self::DataFin
            | Self::ReplayAddAddr
            | Self::ReplayRemoveAddr
            | Self::ReplayPrio
            | Self::ReplayFastclose
            | Self::ReplayDataFin
            | Self::ReplayAck
            | Self::ReplayDss
            | Self::Strip
            | Self::Cut
            | Self::CutAll => Prey::Established,
        }
    }

    /// Whether it goes on until it is called off, unless a number is given: middleboxes do not tire.
    const fn is_steady(self) -> bool {
        matches!(self.prey(), Prey::Syn) || matches!(self, Self::Strip)
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
        let found = Self::ALL.into_iter().find(|attack| attack.as_str() == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|attack| attack.as_str()).collect();
            Error::Attack(format!("there is no attack `{name}`; there are: {}", known.join(", ")))
        })
    }
}

/// The packets an attack can strike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prey {
    /// Segments with SYN.
    Syn,
    /// Segments with payload.
    Payload,
    /// Segments without SYN and RST.
    Established,
}

/// An attack and when it strikes.
///
/// Time is counted in bytes of TCP payload that have crossed the path, both directions together, since the attack
/// was armed: an attack strikes at the first fitting packet after `after` bytes, and again every `every` bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// Which.
    pub name: AttackName,
    /// Only packets that go this way; `None`: both. What is forged goes the same way as the packet it follows.
    #[serde(default)]
    pub direction: Option<Direction>,
    /// Bytes of payload before the first strike.
    #[serde(default)]
    pub after: u64,
    /// Bytes of payload between two strikes; 0: every packet.
    #[serde(default)]
    pub every: u64,
    /// How many strikes; `None`: until it is called off.
    #[serde(default)]
    pub count: Option<u64>,
    /// Only connections to this port.
    #[serde(default)]
    pub port: Option<u16>,
    /// How long a cut lasts.
    #[serde(default = "three_seconds")]
    pub lasting: Duration,
}

const fn three_seconds() -> Duration {
    Duration::from_secs(3)
}

impl Attack {
    /// The attack at the first occasion: once, or steadily for those that rewrite or strip options.
    pub const fn new(name: AttackName) -> Self {
        let count = if name.is_steady() { None } else { Some(1) };
        Self { name, direction: None, after: 0, every: 0, count, port: None, lasting: three_seconds() }
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

    /// So many times.
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

    /// How long a cut lasts.
    #[must_use]
    pub const fn lasting(mut self, time: Duration) -> Self {
        self.lasting = time;
        self
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
        for name in AttackName::ALL {
            assert_eq!(name.as_str().parse::<AttackName>().expect("its own name"), name);
            let text = serde_json::to_string(&name).expect("a name");
            assert_eq!(text, format!("\"{name}\""), "one name everywhere");
        }
        assert!("flipp".parse::<AttackName>().is_err());
    }

    #[test]
    fn words_say_when_and_where_an_attack_strikes() {
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
