//! Whether a firewall drops what plait forwards between its TUN device and the paths.
//!
//! A verdict to accept in one table of nftables does not bind the others: if another table drops a packet by its policy, it is
//! lost whatever our own table says. Docker and many distributions' firewalls have such a policy.

use std::process::{Command, Stdio};

use anyhow::Context;

use crate::linux::plaits::Fault;

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
    /// The zones of firewalld, which keeps its table for itself.
    Firewalld,
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
    fn rules(&self) -> Vec<Vec<String>> {
        let commands = match self {
            Self::Nft(table, chain) => ["iifname", "oifname"]
                .map(|which| format!("nft --echo --handle insert rule {table} {chain} {which} plait* accept"))
                .to_vec(),
            Self::Legacy => ["-i", "-o"]
                .map(|which| format!("iptables-legacy -I FORWARD {which} plait+ -j ACCEPT"))
                .to_vec(),
            Self::Firewalld => vec!["firewall-cmd --zone=trusted --add-interface=plait+".to_owned()],
        };
        commands.iter().map(|command| command.split(' ').map(str::to_owned).collect()).collect()
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
            Self::Firewalld => {
                Some(rule.iter().map(|word| word.replace("--add-interface", "--remove-interface")).collect())
            }
        }
    }
}

/// A command as users type it: a star is quoted, and output options for programs are left out.
fn quoted(words: &[String]) -> String {
    let of = |word: &String| if word.contains('*') { format!("'{word}'") } else { word.clone() };
    words
        .iter()
        .filter(|word| !["--echo", "--handle"].contains(&word.as_str()))
        .map(of)
        .collect::<Vec<_>>()
        .join(" ")
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

/// A chain of nftables at a hook that drops what no rule of it accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Dropping<'a> {
    /// Its table, family first.
    table: &'a str,
    name: &'a str,
    /// By its policy, or by its last rule.
    by: &'static str,
    /// Whether a rule of it accepts what comes from our devices, and what goes to them.
    accepts: [bool; 2],
}

impl Dropping<'_> {
    /// The chains of a listing by nft that drop at the hook of this name.
    fn at<'a>(hook: &str, listing: &'a str) -> Vec<Dropping<'a>> {
        let hook = format!("hook {hook} ");
        let mut found = Vec::new();
        let (mut table, mut name, mut last) = ("", "", "");
        let (mut is_at_hook, mut by_policy, mut accepts) = (false, false, [false; 2]);
        for line in listing.lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("table ").and_then(|rest| rest.strip_suffix(" {")) {
                (table, name) = (words, "");
            } else if let Some(words) = line.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {")) {
                (name, last, is_at_hook, by_policy, accepts) = (words, "", false, false, [false; 2]);
            } else if line.contains(&hook) {
                // Rules of the family `bridge` see no routed packets.
                let family = table.split_whitespace().next();
                is_at_hook = ["ip", "ip6", "inet"].iter().any(|routed| family == Some(*routed));
                by_policy = line.contains("policy drop");
            } else if line == "}" && !name.is_empty() {
                let by = match (by_policy, is_refusal(last)) {
                    (true, _) => Some("the policy"),
                    (false, true) => Some("the last rule"),
                    (false, false) => None,
                };
                found.extend(by.filter(|_| is_at_hook).map(|by| Dropping { table, name, by, accepts }));
                (name, is_at_hook) = ("", false);
            } else {
                if line.ends_with("accept") {
                    accepts =
                        [accepts[0] || line.starts_with(OURS), accepts[1] || line.starts_with(OURS_BACK)];
                }
                last = line;
            }
        }
        found
    }

    fn why(&self, listing: &str) -> String {
        let program = match () {
            () if self.is_firewalld() => " (firewalld)",
            () if is_of_ufw(listing) => " (ufw)",
            () => "",
        };
        let Self { table, name, by, accepts: _ } = self;
        let verb = if *by == "the policy" { "is drop" } else { "refuses the rest" };
        format!("{by} of chain {name} in table {table}{program} {verb}")
    }

    fn is_firewalld(&self) -> bool {
        self.table.ends_with(" firewalld")
    }
}

/// Whether a rule drops or rejects every packet that reaches it.
fn is_refusal(rule: &str) -> bool {
    let words: Vec<&str> = rule.split_whitespace().collect();
    let rest = match words[..] {
        ["counter", "packets", _, "bytes", _, ..] => &words[5..],
        ["counter", ..] => &words[1..],
        _ => &words[..],
    };
    matches!(rest.first(), Some(&"drop" | &"reject"))
}

fn is_of_ufw(listing: &str) -> bool {
    listing.contains("chain ufw")
}

/// The chains of a listing by nft that drop at the forward hook.
fn in_nftables(listing: &str) -> Vec<Obstacle> {
    // firewalld accepts all from the devices of this zone; it writes the pattern as nft does.
    let is_trusted = listing.lines().any(|line| line.trim().starts_with(OURS) && line.contains("_trusted"));
    let of = |dropping: Dropping<'_>| {
        if dropping.is_firewalld() {
            return Obstacle::of(dropping.why(listing), Chain::Firewalld, is_trusted);
        }
        let place = Chain::Nft(dropping.table.to_owned(), dropping.name.to_owned());
        Obstacle::of(dropping.why(listing), place, dropping.accepts == [true; 2])
    };
    Dropping::at("forward", listing).into_iter().map(of).collect()
}

/// The reason that clients do not reach a server at `port` of this host over UDP, and the fix: a chain drops what comes in, and no rule
/// names the port.
pub(crate) fn obstacle_of_clients(port: u16) -> Option<Fault> {
    clients_in(&output("nft", &["list", "ruleset"]), port)
}

fn clients_in(listing: &str, port: u16) -> Option<Fault> {
    let names_port = |line: &str| {
        let is_port = |word: &str| word.trim_matches([',', '{', '}']) == port.to_string();
        line.contains("dport") && line.contains("accept") && line.split_whitespace().any(is_port)
    };
    if listing.lines().any(names_port) {
        return None;
    }
    let dropping = Dropping::at("input", listing).into_iter().next()?;
    let fix = if dropping.is_firewalld() {
        format!("firewall-cmd --add-port={port}/udp")
    } else if is_of_ufw(listing) {
        format!("ufw allow {port}/udp")
    } else {
        format!("nft insert rule {} {} udp dport {port} accept", dropping.table, dropping.name)
    };
    Some((format!("{}, and no rule accepts port {port}", dropping.why(listing)), fix))
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

    const FIREWALLD: &str = "table inet firewalld {
\tchain filter_INPUT {
\t\ttype filter hook input priority filter + 10; policy accept;
\t\tct state { established, related } accept
\t\tjump filter_INPUT_POLICIES
\t\treject with icmpx admin-prohibited
\t}

\tchain filter_FORWARD {
\t\ttype filter hook forward priority filter + 10; policy accept;
\t\tct state { established, related } accept
\t\tjump filter_FORWARD_POLICIES
\t\treject with icmpx admin-prohibited
\t}
}
";

    #[test]
    fn a_chain_of_firewalld_that_rejects_the_rest_is_found_with_a_command_of_firewalld() {
        let [obstacle] = &in_nftables(FIREWALLD)[..] else { panic!("one chain forwards") };
        assert_eq!(
            obstacle.why,
            "the last rule of chain filter_FORWARD in table inet firewalld (firewalld) refuses the rest"
        );
        assert_eq!(obstacle.fix, "firewall-cmd --zone=trusted --add-interface=plait+");
        let trusted =
            FIREWALLD.replace("jump filter_INPUT_POLICIES", "iifname \"plait*\" goto filter_IN_trusted");
        assert!(!is_shut(&in_nftables(&trusted)));
        let limited = FIREWALLD.replace("reject with", "ct state invalid reject with");
        assert_eq!(in_nftables(&limited), [], "it refuses some packets only");
    }

    #[test]
    fn a_chain_that_drops_clients_is_found_unless_a_rule_names_the_port() {
        let (why, fix) = clients_in(FIREWALLD, 7443).expect("it rejects");
        assert!(why.ends_with("(firewalld) refuses the rest, and no rule accepts port 7443"), "{why}");
        assert_eq!(fix, "firewall-cmd --add-port=7443/udp");
        let ufw = DOCKER
            .replace("FORWARD", "INPUT")
            .replace("hook forward", "hook input")
            .replace("DOCKER", "ufw-user-input");
        let (why, fix) = clients_in(&ufw, 7443).expect("it drops");
        assert!(why.contains("table ip filter (ufw) is drop") && fix == "ufw allow 7443/udp", "{why}; {fix}");
        for rule in [
            "udp dport 7443 accept",
            "meta l4proto { tcp, udp } th dport { 22, 7443 } counter packets 0 bytes 0 accept",
        ] {
            assert_eq!(clients_in(&ufw.replace("iifname \"docker0\" accept", rule), 7443), None, "{rule}");
        }
        assert_eq!(clients_in(DOCKER, 7443), None, "it concerns forwarded packets");
    }

    #[test]
    fn the_older_iptables_is_understood() {
        assert!(is_shut(in_iptables("-P FORWARD DROP\n").as_slice()));
        assert_eq!(in_iptables("-P FORWARD ACCEPT\n"), None);
        let rules = "-P FORWARD DROP\n-A FORWARD -i plait+ -j ACCEPT\n-A FORWARD -o plait+ -j ACCEPT\n";
        assert!(!is_shut(in_iptables(rules).as_slice()));
    }
}
