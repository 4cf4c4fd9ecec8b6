//! Missing prerequisites of a machine, found by trying: for `plait doctor`, and for commands that fail because of one.

use std::io::Write;
use std::process::{Command, Stdio};

pub(crate) use plait_console::prerequisite::MissingPrerequisite;
use plait_console::prerequisite::{self, AS_ROOT, Found, is_ordinary_user, may_change_the_network};

use crate::exit::Exit;
use crate::linux::{asking, firewall, machine, plaits, run, sandbox, tracking, up};
use crate::options::Options;

/// One prerequisite to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    Privileges,
    Tun,
    Ip,
    Nft,
    PrivateNetwork,
    Translation,
    Forwarding,
    Tracking,
    Clients,
    Conntrack,
    Clock,
    Sandbox,
}

impl Check {
    /// All prerequisites, in the order of the report.
    pub(crate) const ALL: [Self; 12] = [
        Self::Privileges,
        Self::Tun,
        Self::Ip,
        Self::Nft,
        Self::PrivateNetwork,
        Self::Translation,
        Self::Forwarding,
        Self::Tracking,
        Self::Clients,
        Self::Conntrack,
        Self::Clock,
        Self::Sandbox,
    ];

    /// The prerequisites of the stack on this machine.
    pub(crate) const STACK: [Self; 5] = [Self::Privileges, Self::Tun, Self::Ip, Self::Nft, Self::Translation];

    /// Whether connections of this user to other hosts fail without it: over UDP alone without root.
    pub(crate) fn is_required(self) -> bool {
        match self {
            Self::Clients | Self::Clock | Self::Sandbox => false,
            Self::Conntrack => true,
            Self::Privileges
            | Self::Tun
            | Self::Ip
            | Self::Nft
            | Self::PrivateNetwork
            | Self::Translation
            | Self::Forwarding
            | Self::Tracking => !is_ordinary_user(),
        }
    }

    /// Its name.
    fn name(self) -> &'static str {
        match self {
            Self::Privileges => "privileges",
            Self::Tun => "TUN device",
            Self::Ip => "ip",
            Self::Nft => "nft",
            Self::PrivateNetwork => "private network",
            Self::Translation => "address translation",
            Self::Forwarding => "forwarding",
            Self::Tracking => "tracking",
            Self::Clients => "incoming",
            Self::Conntrack => "conntrack",
            Self::Clock => "clock",
            Self::Sandbox => "sandbox",
        }
    }

    /// The commands that need it.
    fn needed_by(self) -> &'static str {
        match self {
            Self::Privileges | Self::Tun | Self::Translation | Self::Forwarding | Self::Tracking => {
                "all connections over TCP; --carrier udp does without"
            }
            Self::Ip | Self::Nft => {
                "all connections over TCP (--carrier udp does without), plait run, plait up, plait gateway"
            }
            Self::Conntrack => "all connections",
            Self::Clients => "plait serve and listen over UDP",
            Self::Clock => "certificates (--ca), keys in DNS",
            Self::PrivateNetwork => "plait run",
            Self::Sandbox => "nothing; it confines plait serve, proxy and forward",
        }
    }

    /// Tries it: returns what is present, or what is missing.
    pub(crate) fn check(self) -> Result<String, MissingPrerequisite> {
        match self {
            Self::Privileges => prerequisite::privileges(),
            Self::Tun => prerequisite::tun(),
            Self::Ip => prerequisite::ip(),
            Self::Nft => prerequisite::program("nft", &["--version"], "nftables"),
            Self::PrivateNetwork => private_network(),
            Self::Translation => translation(),
            Self::Forwarding => forwarding(),
            Self::Tracking => tracked(),
            Self::Clients => clients(),
            Self::Conntrack => machine::conntrack(),
            Self::Clock => machine::clock(),
            Self::Sandbox => sandbox::of_kernel(),
        }
        .map_err(|missing| MissingPrerequisite::named(self.name(), missing))
    }

    /// The line of `plait doctor`.
    pub(crate) fn line(self, outcome: &Result<String, MissingPrerequisite>) -> String {
        prerequisite::line(self.name(), self.needed_by(), outcome)
    }
}

impl Check {
    /// The same for programs.
    pub(crate) fn json(self, outcome: &Outcome) -> serde_json::Value {
        json_of(self.name(), self.is_required(), self.needed_by(), outcome)
    }
}

/// What a check has found, or what is missing.
type Outcome = Result<String, MissingPrerequisite>;

fn json_of(name: &str, is_required: bool, needed_by: &str, outcome: &Outcome) -> serde_json::Value {
    let mut value = serde_json::json!({
        "name": name,
        "ok": outcome.is_ok(),
        "required": is_required,
        "needed_by": needed_by,
    });
    match outcome {
        Ok(found) => value["found"] = found.as_str().into(),
        Err(missing) => {
            value["why"] = missing.why.as_str().into();
            value["fix"] = missing.fix.as_str().into();
        }
    }
    value
}

/// The name of the check of the paths, and the commands that need it.
const PATHS: [&str; 2] = ["paths", "connections over several paths"];

/// Whether an obstacle on this machine stops the packets of these paths.
pub(crate) fn paths(devices: Result<Vec<String>, String>) -> Outcome {
    let found = devices.and_then(|devices| {
        let mut obstacles = plait::path_obstacles(&devices, None).map_err(|error| error.to_string())?;
        // Without TCP, what stops TCP only stops nothing.
        obstacles.retain(|obstacle| may_change_the_network() || obstacle.concerns(plait::Carrier::Udp));
        Ok((devices, obstacles))
    });
    let missing = |why: String, fix: String| Err(MissingPrerequisite::named(PATHS[0], (why, fix.into())));
    match found {
        Ok((devices, obstacles)) if obstacles.is_empty() => {
            Ok(format!("nothing on this machine stops {}", devices.join(", ")))
        }
        Ok((_, obstacles)) => {
            let all = |text: fn(&plait::PathObstacle) -> String| {
                obstacles.iter().map(text).collect::<Vec<_>>().join("; ")
            };
            missing(all(plait::PathObstacle::why), all(plait::PathObstacle::fix))
        }
        Err(why) => missing(why, "name the devices to use with --path".to_owned()),
    }
}

/// The line of `plait doctor` about the paths.
pub(crate) fn line_of_paths(outcome: &Outcome) -> String {
    prerequisite::line(PATHS[0], PATHS[1], outcome)
}

/// The same for programs.
pub(crate) fn json_of_paths(outcome: &Outcome) -> serde_json::Value {
    json_of(PATHS[0], false, PATHS[1], outcome)
}

/// The name of the check of what runs, and what it is about.
const RUNNING: [&str; 2] = ["running", "the plaits of this user that run"];

/// The faults of the plaits of this user that run.
pub(crate) fn running() -> Outcome {
    let told = asking::own_plaits();
    let mut faults = plaits::faults(&told);
    faults.extend(up::fault());
    if faults.is_empty() {
        return Ok(match told.len() {
            0 => "no plait of this user runs".to_owned(),
            1 => "one plait runs, with all its paths".to_owned(),
            several => format!("{several} plaits run, each with all its paths"),
        });
    }
    let (whys, fixes): (Vec<_>, Vec<_>) = faults.into_iter().unzip();
    Err(MissingPrerequisite::named(RUNNING[0], (whys.join("; "), fixes.join("; ").into())))
}

/// The line of `plait doctor` about what runs.
pub(crate) fn line_of_running(outcome: &Outcome) -> String {
    prerequisite::line(RUNNING[0], RUNNING[1], outcome)
}

/// The same for programs.
pub(crate) fn json_of_running(outcome: &Outcome) -> serde_json::Value {
    json_of(RUNNING[0], false, RUNNING[1], outcome)
}

impl Options {
    /// The prerequisites of the stack with these options.
    pub(crate) fn checks(&self) -> &'static [Check] {
        if self.carrier == plait::Carriers::Tcp { &Check::STACK } else { &[] }
    }
}

/// A missing prerequisite of the required carrier, before a file is written in vain.
pub(crate) fn of_carrier(options: &Options) -> anyhow::Result<()> {
    let needs_root = options.carrier == plait::Carriers::Tcp;
    let missing = needs_root.then(|| first(&[Check::Privileges])).flatten();
    missing.map_or(Ok(()), |missing| Err(missing.into()))
}

/// The first of `checks` that fails.
pub(crate) fn first(checks: &[Check]) -> Option<MissingPrerequisite> {
    checks.iter().find_map(|check| check.check().err())
}

/// Returns `error`, or the missing prerequisite that causes it: one of `checks`, or if no host could be reached a firewall, or a rule that
/// exempts packets from connection tracking.
pub(crate) fn explain(error: anyhow::Error, checks: &[Check]) -> anyhow::Error {
    let missing = match Exit::from(&error) {
        Exit::Missing => first(checks),
        // Without the capability plait sends through sockets: no packet is forwarded here.
        Exit::Unreachable if !may_change_the_network() => None,
        Exit::Unreachable => first(&[Check::Forwarding, Check::Tracking]),
        Exit::Success | Exit::Failure | Exit::Identity | Exit::Policy | Exit::PerhapsDelivered => None,
    };
    missing.map_or(error, anyhow::Error::from)
}

const KERNEL_NAT: &str =
    "install nftables and use a kernel with nf_tables and nf_nat (modprobe nft_chain_nat nft_redir nft_masq)";

/// Creates a namespace as `plait run` does: for an ordinary user that takes a user namespace.
fn private_network() -> Found {
    let Err(error) = run::probe() else {
        return Ok(
            if is_ordinary_user() { "can be made in a user namespace" } else { "can be made" }.to_owned()
        );
    };
    let (name, namespaces) = if is_ordinary_user() {
        ("user namespaces", prerequisite::user_namespaces())
    } else {
        ("network namespaces", prerequisite::network_namespaces())
    };
    if let Err((why, fix)) = namespaces {
        return Err((format!("{name}: {why}"), fix));
    }
    Err(match first(&[Check::Ip, Check::Nft]) {
        Some(missing) => (format!("{}: {}", missing.what, missing.why), missing.fix.into()),
        None => {
            let said = error.to_string();
            (said.lines().next().unwrap_or_default().trim().to_owned(), KERNEL_NAT.into())
        }
    })
}

/// Whether nft accepts a translating rule, in a namespace where it does no harm. CAP_NET_ADMIN alone makes no namespace: then the rule is
/// only checked.
fn translation() -> Found {
    if is_ordinary_user() && may_change_the_network() {
        return accepts_translation(&["--check", "-f", "-"]);
    }
    prerequisite::in_namespace(|| accepts_translation(&["-f", "-"]))
}

fn accepts_translation(words: &[&str]) -> Found {
    const TABLE: &[u8] = b"table inet plait_doctor {\nchain c { type nat hook postrouting priority 100; oifname \"lo\" masquerade; }\n}\n";
    let child = Command::new("nft")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let output = child.and_then(|mut child| {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(TABLE)?;
        }
        child.wait_with_output()
    });
    match output {
        Ok(output) if output.status.success() => Ok("nat and masquerade of nf_tables".to_owned()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err((format!("nft: {}", said.lines().next().unwrap_or_default().trim()), KERNEL_NAT.into()))
        }
        Err(error) => Err((format!("nft: {error}"), KERNEL_NAT.into())),
    }
}

const UNSEEN: &str = "the firewall's rules can only be seen with CAP_NET_ADMIN";

fn forwarding() -> Found {
    if !may_change_the_network() {
        return Err((UNSEEN.to_owned(), AS_ROOT.into()));
    }
    match firewall::obstacle() {
        None => Ok("no firewall drops what plait forwards".to_owned()),
        Some(obstacle) => Err((obstacle.why, obstacle.fix.into())),
    }
}

fn tracked() -> Found {
    if !may_change_the_network() {
        return Err((UNSEEN.to_owned(), AS_ROOT.into()));
    }
    match tracking::obstacle(PORT) {
        None => Ok(format!("no rule exempts connections at port {PORT} over TCP from it")),
        Some((why, fix)) => Err((why, fix.into())),
    }
}

/// The port of `plait serve` if no other is given.
const PORT: u16 = 7443;

fn clients() -> Found {
    if !may_change_the_network() {
        return Err((UNSEEN.to_owned(), AS_ROOT.into()));
    }
    match firewall::obstacle_of_clients(PORT) {
        None => Ok(format!("no firewall drops clients at port {PORT} over UDP")),
        Some((why, fix)) => Err((why, fix.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_each_check_is_one_line_and_one_value() {
        // That one starts this program once more, which is another one here.
        for check in Check::ALL.into_iter().filter(|check| *check != Check::PrivateNetwork) {
            let outcome = check.check();
            assert!(!check.line(&outcome).contains('\n'), "{outcome:?}");
            let json = check.json(&outcome);
            assert_eq!(
                (json["ok"] == true, json["fix"].is_string()),
                (outcome.is_ok(), outcome.is_err()),
                "{json}"
            );
            // That would be a mistake of ours.
            assert!(!check.line(&outcome).contains("syntax error"), "{outcome:?}");
        }
    }

    #[test]
    fn an_error_that_comes_from_no_lack_stays() {
        let error = explain(anyhow::anyhow!("something else"), &Check::ALL);
        assert_eq!(error.to_string(), "something else");
    }
}
