//! Whether a firewall drops what plait forwards between its TUN device and the paths.
//!
//! A verdict to accept in one table of nftables is none for the others: what another table drops by its policy is lost whatever
//! our own table says. Docker and many distributions' firewalls have such a policy.

use std::process::{Command, Stdio};

/// Our devices, as rules name them.
const OURS: &str = "iifname \"plait*\"";
const OURS_BACK: &str = "oifname \"plait*\"";

/// A chain that drops, and the commands that let plait through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Obstacle {
    pub(crate) why: String,
    pub(crate) fix: String,
}

/// The first obstacle in this network namespace, as far as this user may see.
pub(crate) fn obstacle() -> Option<Obstacle> {
    in_nftables(&output("nft", &["list", "ruleset"])).or_else(|| {
        // Asking would load the old tables' modules: only where they are in use.
        let tables = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
        let is_used = tables.lines().any(|table| table == "filter");
        is_used.then(|| in_iptables(&output("iptables-legacy", &["-S", "FORWARD"]))).flatten()
    })
}

fn output(program: &str, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    ran.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// A chain of a listing by nft that drops at the forward hook and has no rules for our devices.
fn in_nftables(listing: &str) -> Option<Obstacle> {
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
            if drops && accepts != [true; 2] {
                let rule = |device: &str| format!("nft insert rule {table} {chain} {device} accept");
                return Some(Obstacle {
                    why: format!("the policy of chain {chain} in table {table} is drop"),
                    fix: format!("{}; {}", rule("iifname 'plait*'"), rule("oifname 'plait*'")),
                });
            }
            (chain, drops) = ("", false);
        }
    }
    None
}

/// The same for the rules of the older iptables.
fn in_iptables(rules: &str) -> Option<Obstacle> {
    let has = |wanted: &str| rules.lines().any(|line| line.starts_with(wanted));
    let is_let = has("-A FORWARD -i plait+ -j ACCEPT") && has("-A FORWARD -o plait+ -j ACCEPT");
    (has("-P FORWARD DROP") && !is_let).then(|| Obstacle {
        why: "the policy of chain FORWARD of iptables is DROP".to_owned(),
        fix: "iptables-legacy -I FORWARD -i plait+ -j ACCEPT; iptables-legacy -I FORWARD -o plait+ -j ACCEPT"
            .to_owned(),
    })
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

    #[test]
    fn a_policy_of_drop_is_found_with_the_rules_that_help() {
        let obstacle = in_nftables(DOCKER).expect("Docker's");
        assert_eq!(obstacle.why, "the policy of chain FORWARD in table ip filter is drop");
        assert!(obstacle.fix.starts_with("nft insert rule ip filter FORWARD iifname 'plait*' accept; nft"));
    }

    #[test]
    fn a_chain_that_lets_our_devices_pass_is_no_obstacle_and_half_a_permission_is_one() {
        let half = DOCKER.replace("policy drop;", "policy drop;\n\t\tiifname \"plait*\" accept");
        assert!(in_nftables(&half).is_some());
        let whole = half
            .replace("policy drop;", "policy drop;\n\t\toifname \"plait*\" counter packets 0 bytes 0 accept");
        assert_eq!(in_nftables(&whole), None);
    }

    #[test]
    fn chains_of_other_hooks_policies_and_families_are_no_obstacles() {
        for (ours, others) in [
            ("hook forward", "hook input"),
            ("policy drop", "policy accept"),
            ("table ip filter", "table bridge filter"),
        ] {
            assert_eq!(in_nftables(&DOCKER.replace(ours, others)), None, "{others}");
        }
        assert_eq!(in_nftables(""), None);
    }

    #[test]
    fn the_older_iptables_is_understood() {
        assert!(in_iptables("-P FORWARD DROP\n").is_some());
        assert_eq!(in_iptables("-P FORWARD ACCEPT\n"), None);
        let rules = "-P FORWARD DROP\n-A FORWARD -i plait+ -j ACCEPT\n-A FORWARD -o plait+ -j ACCEPT\n";
        assert_eq!(in_iptables(rules), None);
    }
}
