//! Whether a firewall drops what plait forwards between its TUN device and the paths.
//!
//! A verdict to accept in one table of nftables does not bind the others: if another table drops a packet by its policy, it is
//! lost whatever our own table says. Docker and many distributions' firewalls have such a policy.

use std::process::{Command, Stdio};

use anyhow::Context;

/// Our devices, as rules name them.
const OURS: &str = "iifname \"plait*\"";
const OURS_BACK: &str = "oifname \"plait*\"";

/// A chain that drops, and the commands that let plait through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Obstacle {
    pub(crate) why: String,
    pub(crate) fix: String,
    chain: Chain,
    /// Whether another program has added those rules: another plait may remove them when it ends.
    is_open: bool,
}

/// The chain for the rules that let plait through.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Chain {
    /// A table, family first, and a chain of nftables.
    Nft(String, String),
    /// FORWARD of the older iptables.
    Legacy,
}

/// Our rules in a firewall of another program, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Opening {
    undo: Vec<Vec<String>>,
}

/// The first obstacle in this network namespace that is not open, as far as this user may see.
pub(crate) fn obstacle() -> Option<Obstacle> {
    all().into_iter().find(|obstacle| !obstacle.is_open)
}

/// All chains that drop forwarded packets.
fn all() -> Vec<Obstacle> {
    let mut found = in_nftables(&output("nft", &["list", "ruleset"]));
    // A query would load the modules of the old tables: query only if they are in use.
    let tables = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    if tables.lines().any(|table| table == "filter") {
        found.extend(in_iptables(&output("iptables-legacy", &["-S", "FORWARD"])));
    }
    found
}

impl Obstacle {
    fn of(why: String, chain: Chain, is_open: bool) -> Self {
        let commands: Vec<String> = chain.rules().iter().map(|words| quoted(words)).collect();
        Self { why, fix: commands.join("; "), chain, is_open }
    }
}

impl Opening {
    /// Lets plait through every chain that drops forwarded packets, by rules of its own in each.
    ///
    /// # Errors
    /// The rules cannot be added.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let mut opening = Self { undo: Vec::new() };
        for Obstacle { chain, .. } in all() {
            for words in chain.rules() {
                let said = run(&words)?;
                opening.undo.extend(chain.undo(&words, &said));
            }
        }
        Ok(opening)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        for words in self.undo.drain(..) {
            // A program that reloaded the firewall has removed it.
            if let Err(error) = run(&words) {
                tracing::info!(%error, "a rule of ours is no longer in the firewall");
            }
        }
    }
}

impl Chain {
    /// The commands that add the rules, in words.
    fn rules(&self) -> [Vec<String>; 2] {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        match self {
            Self::Nft(table, chain) => ["iifname", "oifname"].map(|which| {
                words(&format!("nft --echo --handle insert rule {table} {chain} {which} plait* accept"))
            }),
            Self::Legacy => ["-i", "-o"]
                .map(|which| words(&format!("iptables-legacy -I FORWARD {which} plait+ -j ACCEPT"))),
        }
    }

    /// The command that removes a rule, after nft has returned its handle.
    fn undo(&self, rule: &[String], said: &str) -> Option<Vec<String>> {
        match self {
            Self::Nft(table, chain) => {
                let (_, handle) = said.rsplit_once("# handle ")?;
                let handle = handle.split_whitespace().next()?;
                let text = format!("nft delete rule {table} {chain} handle {handle}");
                Some(text.split(' ').map(str::to_owned).collect())
            }
            Self::Legacy => {
                let other = |word: &String| if word == "-I" { "-D".to_owned() } else { word.clone() };
                Some(rule.iter().map(other).collect())
            }
        }
    }
}

/// A command as users type it: a star is quoted, and output options for programs are left out.
fn quoted(words: &[String]) -> String {
    let of = |word: &String| if word.contains('*') { format!("'{word}'") } else { word.clone() };
    words.iter().filter(|word| !word.starts_with("--")).map(of).collect::<Vec<_>>().join(" ")
}

fn run(words: &[String]) -> anyhow::Result<String> {
    let (program, arguments) = words.split_first().context("a command has a name")?;
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = ran.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        anyhow::bail!("{}: {}", quoted(words), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn output(program: &str, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    ran.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// The chains of a listing by nft that drop at the forward hook.
fn in_nftables(listing: &str) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let (mut table, mut chain) = ("", "");
    let (mut drops, mut accepts) = (false, [false; 2]);
    for line in listing.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ").and_then(|rest| rest.strip_suffix(" {")) {
            (table, chain) = (name, "");
        } else if let Some(name) = line.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {")) {
            (chain, drops, accepts) = (name, false, [false; 2]);
        } else if line.contains("hook forward") {
            // Rules of the family `bridge` see no routed packets.
            drops = line.contains("policy drop")
                && ["ip", "ip6", "inet"]
                    .iter()
                    .any(|family| table.split_whitespace().next() == Some(*family));
        } else if line.ends_with("accept") {
            accepts = [accepts[0] || line.starts_with(OURS), accepts[1] || line.starts_with(OURS_BACK)];
        } else if line == "}" && !chain.is_empty() {
            if drops {
                let why = format!("the policy of chain {chain} in table {table} is drop");
                let place = Chain::Nft(table.to_owned(), chain.to_owned());
                found.push(Obstacle::of(why, place, accepts == [true; 2]));
            }
            (chain, drops) = ("", false);
        }
    }
    found
}

/// The same for the rules of the older iptables.
fn in_iptables(rules: &str) -> Option<Obstacle> {
    let has = |wanted: &str| rules.lines().any(|line| line.starts_with(wanted));
    let is_let = has("-A FORWARD -i plait+ -j ACCEPT") && has("-A FORWARD -o plait+ -j ACCEPT");
    let why = || "the policy of chain FORWARD of iptables is DROP".to_owned();
    has("-P FORWARD DROP").then(|| Obstacle::of(why(), Chain::Legacy, is_let))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCKER: &str = "table ip filter {
\tchain DOCKER {
\t\tiifname \"docker0\" accept
\t}

\tchain FORWARD {
\t\ttype filter hook forward priority filter; policy drop;
\t\tcounter packets 0 bytes 0 jump DOCKER
\t}
}
";

    fn is_shut(found: &[Obstacle]) -> bool {
        found.iter().any(|obstacle| !obstacle.is_open)
    }

    #[test]
    fn a_policy_of_drop_is_found_with_the_rules_that_help() {
        let [obstacle] = &in_nftables(DOCKER)[..] else { panic!("Docker's") };
        assert_eq!(obstacle.why, "the policy of chain FORWARD in table ip filter is drop");
        assert!(obstacle.fix.starts_with("nft insert rule ip filter FORWARD iifname 'plait*' accept; nft"));
    }

    #[test]
    fn a_chain_that_lets_our_devices_pass_is_no_obstacle_and_half_a_permission_is_one() {
        let half = DOCKER.replace("policy drop;", "policy drop;\n\t\tiifname \"plait*\" accept");
        assert!(is_shut(&in_nftables(&half)));
        let whole = half
            .replace("policy drop;", "policy drop;\n\t\toifname \"plait*\" counter packets 0 bytes 0 accept");
        assert!(!is_shut(&in_nftables(&whole)) && in_nftables(&whole).len() == 1, "it is found all the same");
    }

    #[test]
    fn chains_of_other_hooks_policies_and_families_are_no_obstacles() {
        for (ours, others) in [
            ("hook forward", "hook input"),
            ("policy drop", "policy accept"),
            ("table ip filter", "table bridge filter"),
        ] {
            assert_eq!(in_nftables(&DOCKER.replace(ours, others)), [], "{others}");
        }
        assert_eq!(in_nftables(""), []);
    }

    #[test]
    fn the_older_iptables_is_understood() {
        assert!(is_shut(in_iptables("-P FORWARD DROP\n").as_slice()));
        assert_eq!(in_iptables("-P FORWARD ACCEPT\n"), None);
        let rules = "-P FORWARD DROP\n-A FORWARD -i plait+ -j ACCEPT\n-A FORWARD -o plait+ -j ACCEPT\n";
        assert!(!is_shut(in_iptables(rules).as_slice()));
    }
}
