//! The arrangement of the help: `-h` has the most used options with one sentence each, `--help` has all of them under headings.

use clap::{Arg, Command};

/// Headings of `--help`, and the options under each. Options of a command that are not here are its own, and come first.
const HEADINGS: [(&str, &[&str]); 6] = [
    (
        "Paths and carriers",
        &[
            "paths",
            "caps",
            "carrier",
            "scheduler",
            "datagrams",
            "mesh",
            "join_announced",
            "no_join_data",
            "congestion",
            "ecn",
            "checksum",
            "plain",
            "require_multipath",
            "ipv4",
            "ipv6",
            "ranges",
            "nameservers",
            "open_firewall",
        ],
    ),
    (
        "Protection and identity",
        &[
            "protect",
            "policy",
            "allow_plain",
            "handshake",
            "ciphers",
            "require_paths",
            "require_pq",
            "accept_new",
            "server_key",
            "key",
            "keys",
            "ca",
            "server_name",
            "dnssec_anchors",
            "certificate",
            "certificate_key",
            "allow_key_log",
            "no_sandbox",
            "sandbox_writable",
        ],
    ),
    ("Scrambling", &["scramble_start", "trusted_bytes", "untrusted_only"]),
    (
        "Times",
        &["connect_timeout", "dead_after", "half_closed_timeout", "keep_alive", "drain", "upgrade_drain"],
    ),
    ("Memory and threads", &["send_buffer", "receive_buffer", "crypto_threads"]),
    (
        "Log, status and captures",
        &[
            "verbose",
            "quiet",
            "log_format",
            "log_file",
            "config",
            "status",
            "status_json",
            "access_log",
            "metrics",
            "control",
            "pcap",
        ],
    ),
];

/// The options under these headings that `-h` has.
const MOST_USED: [&str; 7] =
    ["paths", "carrier", "protect", "accept_new", "connect_timeout", "verbose", "status"];

/// Own options of commands that only `--help` has.
const RARE: [&str; 19] = [
    "max_half_open",
    "max_handshakes",
    "max_per_network",
    "max_backlog",
    "max_memory",
    "max_connections",
    "max_flows",
    "max_device_connections",
    "max_device_questions",
    "cgroups",
    "devices",
    "direct",
    "marks",
    "never",
    "portal_probe",
    "proxy_protocol",
    "server_choice",
    "socket_mode",
    "users",
];

/// Returns the command line of the program with its help arranged.
pub(crate) fn arranged(program: Command) -> Command {
    let names: Vec<_> = program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let program = program.mut_args(arrange);
    names.into_iter().fold(program, |program, name| program.mut_subcommand(name, of_command))
}

/// Commands with few options have one list of them.
fn of_command(command: Command) -> Command {
    if !command.get_arguments().any(|argument| argument.get_id() == "keep_alive") {
        return command;
    }
    let more = format!("All options, and the exit status: plait {} --help", command.get_name());
    let statuses = command.get_after_help().cloned().unwrap_or_default();
    command.after_help(more).after_long_help(statuses).mut_args(arrange).mut_args(shorten)
}

fn arrange(argument: Arg) -> Arg {
    let id = argument.get_id().as_str();
    let heading = HEADINGS.iter().find(|(_, ids)| ids.contains(&id)).map(|(heading, _)| *heading);
    let is_hidden = heading.is_some() && !MOST_USED.contains(&id) || RARE.contains(&id);
    match heading {
        Some(heading) => argument.help_heading(heading).hide_short_help(is_hidden),
        None => argument.hide_short_help(is_hidden),
    }
}

/// The first sentence is the help of `-h`.
fn shorten(argument: Arg) -> Arg {
    let Some(text) = argument.get_help().map(ToString::to_string) else { return argument };
    let short = first_sentence(&text);
    let is_complete = short.len() == text.len();
    if is_complete { argument } else { argument.help(short).long_help(text) }
}

fn first_sentence(text: &str) -> String {
    let starts_another = |rest: &str| rest.starts_with(|letter: char| letter.is_uppercase());
    let end = text.match_indices(". ").find(|(at, _)| starts_another(&text[at + 2..]));
    let short = end.map_or(text, |(at, _)| &text[..at]);
    // A default is at the end.
    let default = text.rfind(" [default: ").filter(|at| *at > short.len()).map_or("", |at| &text[at..]);
    let is_short = default.len() < 40;
    format!("{short}{}", if is_short { default } else { "" })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::system::arguments::Arguments;

    #[test]
    fn an_option_that_is_arranged_is_one_of_the_program() {
        let program = Arguments::command();
        let ids: Vec<_> = program
            .get_subcommands()
            .chain([&program])
            .flat_map(Command::get_arguments)
            .map(|argument| argument.get_id().to_string())
            .collect();
        let named = HEADINGS.iter().flat_map(|(_, ids)| *ids).chain(&MOST_USED);
        // One of the feature `dnssec`, and one of Linux.
        let optional = ["dnssec_anchors", "drain", "upgrade_drain", "certificate", "certificate_key"];
        for id in named.filter(|id| !optional.contains(id)) {
            assert!(ids.iter().any(|other| other == id), "{id}: {ids:?}");
        }
    }

    #[test]
    fn the_short_help_is_a_sentence_with_its_default() {
        assert_eq!(first_sentence("Do this"), "Do this");
        assert_eq!(
            first_sentence("Do this, e.g. that. Then more [default: 3]"),
            "Do this, e.g. that [default: 3]"
        );
        assert_eq!(first_sentence("Do this [default: 3]"), "Do this [default: 3]");
    }
}
