//! `--device WHICH=HOW`: how the packets of a device are treated.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use plait::Path;
use plait_proxy::prefix::Prefix;

use super::rules::Fate;
use crate::running::devices::Mac;

/// Most sets of paths: each is a stack of its own.
const MAX_SETS: usize = 4;

/// One device, or some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Mac(Mac),
    Network(Prefix),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum How {
    Tunnel,
    Direct,
    Never,
    /// Through the server, over these of the paths alone.
    Paths(Vec<String>),
}

/// An option of the command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DeviceRule {
    which: Which,
    how: How,
}

impl FromStr for DeviceRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (which, how) = text.split_once('=').ok_or("not WHICH=HOW, as in 192.168.7.20=direct")?;
        let which = which.parse()?;
        let how = match how.split_once('=') {
            None if how == "tunnel" => How::Tunnel,
            None if how == "direct" => How::Direct,
            None if how == "never" => How::Never,
            Some(("paths", names)) if !names.split('+').any(str::is_empty) => {
                How::Paths(names.split('+').map(str::to_owned).collect())
            }
            _ => return Err(format!("{how} is not one of tunnel, direct, never, paths=NAME+NAME")),
        };
        Ok(Self { which, how })
    }
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = || text.parse().map(Self::Network);
        text.parse()
            .map(Self::Mac)
            .or_else(|_: &str| network())
            .map_err(|_: &str| format!("{text} is neither a link-layer address nor an address nor a network"))
    }
}

/// As nftables matches it.
impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => write!(f, "ether saddr {mac}"),
            Self::Network(network) if network.is_v6() => write!(f, "ip6 saddr {network}"),
            Self::Network(network) => write!(f, "ip saddr {network}"),
        }
    }
}

impl DeviceRule {
    pub(super) fn is_direct(&self) -> bool {
        self.how == How::Direct
    }
}

/// What becomes of the devices.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) fates: Vec<(Which, Fate)>,
    /// The paths of the doors after the first one.
    pub(super) sets: Vec<Vec<Path>>,
}

/// Decides about the devices by the options.
///
/// # Errors
/// A path is none of these, or there are too many sets.
pub(super) fn decide(rules: &[DeviceRule], paths: &[Path]) -> anyhow::Result<Decided> {
    let mut sets: Vec<Vec<Path>> = Vec::new();
    let mut fates = Vec::new();
    for DeviceRule { which, how } in rules {
        let fate = match how {
            How::Tunnel => Fate::Door(0),
            How::Direct => Fate::Direct,
            How::Never => Fate::Never,
            How::Paths(names) => {
                if let Some(name) =
                    names.iter().find(|name| !paths.iter().any(|path| path.devices() == **name))
                {
                    bail!("--device names the path {name}, which no --path has");
                }
                let set: Vec<_> =
                    paths.iter().filter(|path| names.contains(&path.devices())).cloned().collect();
                let index = sets.iter().position(|other| *other == set).unwrap_or_else(|| {
                    sets.push(set);
                    sets.len() - 1
                });
                Fate::Door(1 + index)
            }
        };
        fates.push((*which, fate));
    }
    if sets.len() > MAX_SETS {
        bail!(
            "--device names {} sets of paths, and there may be {MAX_SETS}: each takes a stack of its own",
            sets.len()
        );
    }
    Ok(Decided { fates, sets })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> DeviceRule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_rule_is_a_device_and_what_becomes_of_it() {
        assert_eq!(rule("02:00:00:00:00:AA=direct").which.to_string(), "ether saddr 02:00:00:00:00:aa");
        assert_eq!(rule("192.168.7.0/24=never").which.to_string(), "ip saddr 192.168.7.0/24");
        assert_eq!(rule("fd00::7=tunnel").which.to_string(), "ip6 saddr fd00::7/128");
        for bad in
            ["fd00::7", "x=direct", "10.0.0.1=", "10.0.0.1=other", "10.0.0.1=paths=", "10.0.0.1=paths=a++b"]
        {
            assert!(bad.parse::<DeviceRule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn equal_sets_of_paths_are_one_stack_and_keep_the_use_of_each_path() {
        let paths: Vec<Path> =
            ["a", "b=untrusted", "c=backup"].iter().map(|text| text.parse().expect("a path")).collect();
        let rules =
            ["10.0.0.1=paths=a", "10.0.0.2=paths=c+b", "10.0.0.3=paths=b+c", "10.0.0.4=tunnel"].map(rule);
        let Decided { fates, sets } = decide(&rules, &paths).expect("decided");
        let doors: Vec<_> = fates.iter().map(|(_, fate)| *fate).collect();
        assert_eq!(doors, [1, 2, 2, 0].map(Fate::Door));
        assert_eq!(sets, [paths[..1].to_vec(), paths[1..].to_vec()]);
        assert!(decide(&[rule("10.0.0.1=paths=d")], &paths).is_err());
    }
}
