//! Rules that exempt packets from connection tracking (`notrack`).
//!
//! plait over TCP needs the kernel to translate addresses between its TUN device and the paths. The kernel translates tracked packets only. A
//! rule with `notrack` at the hook `prerouting` sees the packets of the TUN device, and the answers of the peer.

use std::process::{Command, Stdio};

use crate::linux::plaits::Fault;

/// Statements of rules that exempt packets: nftables, and the targets of iptables.
const NOTRACK: [&str; 3] = ["notrack", "--notrack", "NOTRACK"];
/// Protocols that are not TCP, as rules name them.
const OTHERS: [&str; 7] = ["udp", "icmp", "icmpv6", "ipv6-icmp", "ah", "esp", "gre"];

/// A rule that stops the translation for connections to or from `port` over TCP, as the reason and the fix.
pub(crate) fn obstacle(port: u16) -> Option<Fault> {
    let in_nftables = in_nftables(&output("nft", &["--handle", "list", "ruleset"]), port);
    // A query would load the modules of the old tables: query only if they are in use.
    let is_in_use = |file: &str| {
        std::fs::read_to_string(file).is_ok_and(|tables| tables.lines().any(|table| table == "raw"))
    };
    in_nftables.or_else(|| {
        let old = [
            ("iptables-legacy", "/proc/net/ip_tables_names"),
            ("ip6tables-legacy", "/proc/net/ip6_tables_names"),
        ];
        let mut old = old.into_iter().filter(|(_, names)| is_in_use(names));
        old.find_map(|(program, _)| {
            in_iptables(program, &output(program, &["-t", "raw", "-S", "PREROUTING"]), port)
        })
    })
}

fn output(program: &str, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    ran.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// The first such rule in a listing by `nft --handle`. A chain without a hook counts: another chain jumps to it.
fn in_nftables(listing: &str, port: u16) -> Option<Fault> {
    let (mut table, mut chain, mut is_elsewhere) = ("", "", false);
    for line in listing.lines().map(str::trim) {
        let (line, handle) = line.split_once(" # handle ").unwrap_or((line, ""));
        if let Some(words) = line.strip_prefix("table ").and_then(|rest| rest.strip_suffix(" {")) {
            (table, chain) = (words, "");
        } else if let Some(words) = line.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {")) {
            (chain, is_elsewhere) = (words, false);
        } else if line.starts_with("type ") && line.contains(" hook ") {
            is_elsewhere = !line.contains(" hook prerouting ");
        } else if !chain.is_empty() && !is_elsewhere && exempts(line, port) {
            let why = why(&format!("in chain {chain} of table {table}"), line);
            return Some((why, format!("nft delete rule {table} {chain} handle {handle}, or --carrier udp")));
        }
    }
    None
}

/// The same for the rules of the older iptables.
fn in_iptables(program: &str, rules: &str, port: u16) -> Option<Fault> {
    let rule = rules.lines().find(|line| line.starts_with("-A PREROUTING") && exempts(line, port))?;
    let delete = rule.replacen("-A", "-D", 1);
    Some((why(&format!("of {program}"), rule), format!("{program} -t raw {delete}, or --carrier udp")))
}

fn why(place: &str, rule: &str) -> String {
    format!(
        "the rule `{rule}` {place} exempts packets from connection tracking: the kernel does not translate those of plait over TCP"
    )
}

/// Whether a rule may exempt segments to or from this port.
fn exempts(rule: &str, port: u16) -> bool {
    let words: Vec<&str> = rule.split_whitespace().collect();
    let is_about_loopback = ["iif", "iifname", "-i"]
        .iter()
        .any(|name| words.windows(2).any(|pair| pair[0] == *name && pair[1].trim_matches('"') == "lo"));
    let protocols: Vec<&str> = words.iter().map(|word| word.trim_matches([',', '{', '}'])).collect();
    let names_others = || protocols.iter().any(|word| OTHERS.contains(word)) && !protocols.contains(&"tcp");
    words.iter().any(|word| NOTRACK.contains(word))
        && !is_about_loopback
        && !names_others()
        && may_have(&words, port)
}

/// Whether the ports that a rule names, if it names any, have this one.
fn may_have(words: &[&str], port: u16) -> bool {
    let mut named = Vec::new();
    for (place, _) in
        words.iter().enumerate().filter(|(_, word)| word.ends_with("dport") || word.ends_with("sport"))
    {
        let values = words[place + 1..].iter().map(|word| word.trim_matches([',', '{', '}']));
        named.extend(values.filter(|word| !word.is_empty()).map_while(range));
    }
    named.is_empty() || named.iter().any(|(first, last)| (*first..=*last).contains(&port))
}

/// A port, or a range of ports in the words of nft or iptables.
fn range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once(['-', ':']).unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(rule: &str) -> String {
        format!(
            "table inet guard {{ # handle 3\n\tchain raw {{ # handle 1\n\t\ttype filter hook prerouting priority raw; policy accept;\n\
             \t\t{rule} # handle 7\n\t}}\n}}\n"
        )
    }

    #[test]
    fn a_rule_is_found_if_it_may_exempt_segments_of_plait() {
        for (rule, is_found) in [
            ("notrack", true),
            ("counter packets 3 bytes 180 notrack", true),
            ("tcp dport 7443 notrack", true),
            ("tcp dport 7443 notrack comment \"no hook here\"", true),
            ("tcp dport { 80, 7000-8000 } notrack", true),
            ("meta l4proto { tcp, udp } notrack", true),
            ("ip saddr 10.0.0.0/8 tcp flags syn notrack", true),
            ("tcp dport { 80, 443 } notrack", false),
            ("tcp sport 53 notrack", false),
            ("udp dport 53 notrack", false),
            ("meta l4proto udp notrack", false),
            ("iifname \"lo\" notrack", false),
            ("tcp dport 7443 accept", false),
        ] {
            let found = in_nftables(&listing(rule), 7443);
            assert_eq!(found.is_some(), is_found, "{rule}: {found:?}");
        }
        let (why, fix) = in_nftables(&listing("notrack"), 7443).expect("it is found");
        assert!(why.starts_with("the rule `notrack` in chain raw of table inet guard exempts"), "{why}");
        assert_eq!(fix, "nft delete rule inet guard raw handle 7, or --carrier udp");
    }

    #[test]
    fn what_this_host_sends_itself_is_of_no_concern() {
        assert_eq!(in_nftables(&listing("notrack").replace("hook prerouting", "hook output"), 7443), None);
    }

    #[test]
    fn rules_of_the_older_iptables_are_found() {
        let rules = "-P PREROUTING ACCEPT\n-A PREROUTING -p udp -j NOTRACK\n-A PREROUTING -p tcp -m tcp --dport 7443 -j CT --notrack\n";
        let (_, fix) = in_iptables("iptables-legacy", rules, 7443).expect("it is found");
        assert_eq!(
            fix,
            "iptables-legacy -t raw -D PREROUTING -p tcp -m tcp --dport 7443 -j CT --notrack, or --carrier udp"
        );
        assert_eq!(in_iptables("iptables-legacy", rules, 80), None);
    }
}
