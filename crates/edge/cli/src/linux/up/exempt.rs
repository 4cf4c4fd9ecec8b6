//! What does not go through the server: options, and the networks of devices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use nix::unistd::{Uid, User};
use plait_proxy::direct::DirectRule;
use plait_proxy::prefix::Prefix;
use serde_json::Value;

use super::rules::{Group, Networks};

/// Where `nft` looks for control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What leaves this host in clear, or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub(super) struct ExemptOptions {
    /// Let packets to these addresses leave directly (repeatable). They have no protection, and questions of DNS are among them. @FILE is a
    /// list of networks, one a line. Names are not possible here: the kernel sees addresses.
    #[arg(long = "direct", value_name = "NETWORK|@FILE")]
    networks: Vec<DirectRule>,
    /// Let packets of this user leave directly (repeatable). A name or a number.
    #[arg(long = "direct-user", value_name = "USER")]
    users: Vec<String>,
    /// Let packets of this control group (version 2) leave directly (repeatable). PATH is relative to the root of the groups, as in
    /// system.slice/backup.service. It may come, go and return.
    #[arg(long = "direct-cgroup", value_name = "PATH")]
    cgroups: Vec<String>,
    /// Let packets leave by this device to the networks that routes lead to over it, default routes excluded (repeatable). For another VPN, or
    /// the bridge of containers.
    #[arg(long = "direct-device", value_name = "DEV", value_parser = device)]
    devices: Vec<String>,
    /// Let packets with this mark leave directly (repeatable). Another VPN marks its own packets: wg-quick with 51820.
    #[arg(long = "direct-mark", value_name = "MARK", value_parser = mark)]
    marks: Vec<u32>,
    /// Refuse packets to these addresses, also if another option lets them leave (repeatable).
    #[arg(long, value_name = "CIDR")]
    never: Vec<Prefix>,
    /// UDP, except for DNS. Refuse it, so that programs use TCP, or let it leave directly and without protection.
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    udp: Udp,
    /// Local networks: private ones that devices are attached to, and multicast. Refuse packets to them, or let them leave directly and without
    /// protection. Questions of DNS go through the server in both cases.
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    lan: Lan,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Udp {
    /// Refused with ICMP.
    #[default]
    Refuse,
    /// In clear.
    Direct,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Lan {
    /// Refused.
    #[default]
    Refuse,
    /// In clear.
    Direct,
}

/// The options, with names looked up.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Exempt {
    pub(super) networks: Vec<Prefix>,
    pub(super) users: Vec<u32>,
    pub(super) cgroups: Vec<String>,
    pub(super) devices: Vec<String>,
    pub(super) marks: Vec<u32>,
    pub(super) never: Vec<Prefix>,
    pub(super) has_udp: bool,
    pub(super) lan: Lan,
}

impl ExemptOptions {
    /// # Errors
    /// A user does not exist, the path of a control group is none, or a name should be direct.
    pub(super) fn look_up(&self) -> anyhow::Result<Exempt> {
        let Self { networks, users, cgroups, devices, marks, never, udp, lan } = self.clone();
        let networks = networks.iter().map(addresses_of).collect::<anyhow::Result<Vec<_>>>()?.concat();
        let users = users.iter().map(|name| user(name)).collect::<anyhow::Result<Vec<_>>>()?;
        let cgroups = cgroups.iter().map(|path| cgroup(path)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Exempt { networks, users, cgroups, devices, marks, never, has_udp: udp == Udp::Direct, lan })
    }
}

fn addresses_of(rule: &DirectRule) -> anyhow::Result<Vec<Prefix>> {
    rule.networks().map_err(|name| {
        anyhow!("{name} cannot be direct with plait up, where the kernel sees addresses and no names\n  fix: its network")
    })
}

fn user(name: &str) -> anyhow::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = User::from_name(name).with_context(|| format!("cannot look up the user {name}"))?;
    let uid = found.map(|user| user.uid).map(Uid::as_raw);
    uid.with_context(|| format!("there is no user {name} on this machine (--direct-user)"))
}

fn cgroup(path: &str) -> anyhow::Result<String> {
    let path = path.trim_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.-_@:\\".contains(c);
    if path.is_empty()
        || !path.chars().all(is_plain)
        || path.split('/').any(|part| part.is_empty() || part == "..")
    {
        bail!(
            "{path} is not the path of a control group (--direct-cgroup)\n  fix: as in system.slice/backup.service"
        );
    }
    Ok(path.to_owned())
}

/// The name of a device.
///
/// # Errors
/// It cannot be one.
pub(in crate::linux) fn device(text: &str) -> Result<String, &'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    let is_name = (1..=15).contains(&text.len()) && text.chars().all(fits) && !text.starts_with(['-', '.']);
    if is_name { Ok(text.to_owned()) } else { Err("not the name of a device") }
}

fn mark(text: &str) -> Result<u32, &'static str> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    // Without a mark is what all programs send.
    number.ok().filter(|mark| *mark != 0).ok_or("not a mark, as in 51820 or 0xca6c")
}

/// The groups that are there.
pub(super) fn present(paths: &[String]) -> Vec<Group> {
    let group = |path: &String| {
        let number = fs::metadata(Path::new(CGROUPS).join(path)).ok()?.ino();
        Some(Group { path: path.clone(), number })
    };
    paths.iter().filter_map(group).collect()
}

impl Networks {
    /// Reads the networks of the devices, and the routes over these. Nothing about a device that is not there.
    pub(in crate::linux) fn read(devices: &[String]) -> Self {
        let attached =
            ip(&["address", "show"]).iter().filter(|link| !is_own(link)).flat_map(addresses).collect();
        let routes = |device: &String| {
            let of = |family| ip(&[family, "route", "show", "dev", device]);
            let there = [of("-4"), of("-6")].concat();
            let there: Vec<_> =
                there.iter().filter_map(|route| route["dst"].as_str()?.parse().ok()).collect();
            (device.clone(), there.into_iter().filter(|network: &Prefix| !network.is_default()).collect())
        };
        Self { attached, of_devices: devices.iter().map(routes).collect() }
    }
}

/// Whether it is the TUN device of a plait, or the loopback device.
fn is_own(link: &Value) -> bool {
    let name = link["ifname"].as_str().unwrap_or_default();
    name == plait::LOOPBACK || name.strip_prefix("plait").is_some_and(|number| number.parse::<u8>().is_ok())
}

fn addresses(link: &Value) -> Vec<Prefix> {
    let addresses = link["addr_info"].as_array().into_iter().flatten();
    let network = |address: &Value| {
        let bits = u8::try_from(address["prefixlen"].as_u64()?).ok()?;
        Prefix::new(address["local"].as_str()?.parse().ok()?, bits)
    };
    addresses.filter_map(network).collect()
}

/// The answer of `ip` in JSON; nothing if it has none.
pub(in crate::linux) fn ip(words: &[&str]) -> Vec<Value> {
    let output = Command::new("ip").arg("-json").args(words).output();
    let answer = output.ok().filter(|done| done.status.success());
    answer.and_then(|done| serde_json::from_slice(&done.stdout).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_shell_do_not_become_rules() {
        assert!(device("wg0").is_ok() && device("eth0\" accept").is_err() && device("").is_err());
        assert!(cgroup("../x").is_err() && cgroup("a\" accept").is_err());
        assert_eq!(cgroup("/a.slice/b.service/").expect("a path"), "a.slice/b.service");
        assert_eq!((mark("0xca6c"), mark("51820")), (Ok(51820), Ok(51820)));
        assert!(mark("0").is_err() && mark("x").is_err());
        assert!(user("no-such-user-here").is_err() && user("0").is_ok_and(|root| root == 0));
    }

    #[test]
    fn networks_of_devices_are_those_of_their_addresses_except_our_own() {
        let link = |name: &str| serde_json::json!({ "ifname": name, "addr_info": [{ "local": "192.168.7.9", "prefixlen": 24 }] });
        assert_eq!(addresses(&link("eth0")), ["192.168.7.0/24".parse().expect("one")]);
        assert!(is_own(&link("plait0")) && is_own(&link("lo")) && !is_own(&link("plaiting")));
    }
}
