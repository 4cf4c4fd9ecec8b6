//! Examples, files and variables in the manual pages.

use plait_console::manual::{Entry, Supplement};

use crate::exit;

/// Command lines for each command that has options of its own, and what they do.
const EXAMPLES: &[(&str, &[Entry])] = &[
    (
        "plait",
        &[
            (
                "plait serve --proxy --anyone --allow *:443",
                "A server for every client, to HTTPS anywhere. It prints its address and key.",
            ),
            (
                "plait run -s plait://gw.example:7443 -- curl https://example.org",
                "A program with its connections through that server, over all paths of this machine.",
            ),
        ],
    ),
    (
        "plait-connect",
        &[
            (
                "plait connect gw.example 4242 --path eth0=trusted --path wlan0=untrusted",
                "Standard input and output over two paths, sealed.",
            ),
            (
                "plait connect gw.example 4242 --server-key SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                "To the host with this key only; its plait listen has printed it.",
            ),
            (
                "plait connect gw.example 4242 --accept-new --require-pq",
                "Believe a key that is new if two paths lead to it, and agree on keys that a quantum computer does not break later.",
            ),
            (
                "plait connect kernel.example 5201 --protect plain",
                "A host with the Multipath TCP of Linux, in clear.",
            ),
        ],
    ),
    (
        "plait-listen",
        &[
            ("plait listen 4242", "The words that connect needs, key included, are printed."),
            ("plait listen 4242 --echo --count 10", "Send back what ten clients say."),
            (
                "plait listen 4242 --require-paths 2",
                "Take no byte before two disjoint paths have given a share to the keys.",
            ),
        ],
    ),
    (
        "plait-run",
        &[
            (
                "plait run -s gw.example --path eth0 --path wlan0=backup -- git fetch",
                "wlan0 carries data only while eth0 does not work.",
            ),
            (
                "plait run -s gw.example --status -- ssh host.example",
                "What each path carried is said at the end.",
            ),
        ],
    ),
    (
        "plait-serve",
        &[
            ("plait serve --forward 127.0.0.1:80 --anyone", "One service, for every client."),
            (
                "plait serve --proxy --allow 192.0.2.0/24:22",
                "SSH to one network, for the clients in authorized_clients.",
            ),
        ],
    ),
    (
        "plait-proxy",
        &[(
            "plait proxy -s gw.example --socks 127.0.0.1:1080",
            "For browsers: SOCKS5 at port 1080, names resolved by the server.",
        )],
    ),
    (
        "plait-forward",
        &[(
            "plait forward -s gw.example -L 8080:intranet.example:80",
            "http://127.0.0.1:8080 is the intranet.",
        )],
    ),
    (
        "plait-up",
        &[
            (
                "plait up -s gw.example --path eth0 --path wlan0 --lan direct",
                "All programs of this host through that server; printers and file servers of the local network stay reachable.",
            ),
            (
                "plait up -s gw.example --wait --direct-mark 51820 --direct-device wg0",
                "Beside a VPN of wg-quick, which keeps its networks; nothing leaves in clear before the server answers.",
            ),
        ],
    ),
    (
        "plait-gateway",
        &[
            (
                "plait gateway -s gw.example --lan-device br0 --path eth0 --path wlan0",
                "All devices behind the bridge br0 through that server.",
            ),
            (
                "plait gateway -s gw.example --lan-device br0 --path eth0 --path wlan0=untrusted --device 02:00:00:00:00:01=direct \
                 --device 192.168.7.32/27=paths=eth0",
                "One device past the server, and a part of the network over the first path alone.",
            ),
        ],
    ),
    ("plait-down", &[("plait down", "End plait up or plait gateway, whatever its server is.")]),
    (
        "plait-cleanup",
        &[("plait cleanup", "After a crash: let programs use the network without plait again.")],
    ),
    (
        "plait-check",
        &[
            (
                "plait check plait://gw.example:7443",
                "A table: each path of this machine, over TCP and over UDP.",
            ),
            (
                "plait check --path wlan0 --idle 35 --json gw.example",
                "One path, and whether a NAT there forgets UDP within 35 seconds, for a program to read.",
            ),
        ],
    ),
    (
        "plait-status",
        &[
            (
                "plait status",
                "A line for each plait that runs as this user: what it does, and over which paths.",
            ),
            ("plait status all", "All their connections: client, destination, protection, bytes."),
            ("plait status --json 4711", "Everything about process 4711, for programs (docs/status.md)."),
        ],
    ),
    (
        "plait-health",
        &[("plait health --pid 4711", "For a probe: the exit status is 0 if process 4711 is healthy.")],
    ),
    (
        "plait-monitor",
        &[
            ("plait monitor", "What happens in the only plait that runs, until it ends."),
            ("plait monitor --pid 4711 --json", "The same of process 4711, an object a line, for programs."),
        ],
    ),
    (
        "plait-path",
        &[
            ("plait path", "How the only plait that runs uses its paths."),
            (
                "plait path --pid 4711 wlan0=untrusted,backup",
                "Process 4711 uses wlan0 otherwise from now on.",
            ),
            ("plait path add 'usb*=backup'", "Telephones that are plugged in are backup paths from now on."),
            ("plait path remove wlan0", "wlan0 is no path any more."),
            ("plait path --control /run/plait.sock", "The one that was started with that --control."),
        ],
    ),
    (
        "plait-key",
        &[
            ("plait key gen", "Make a key, and show the line for authorized_clients."),
            (
                "plait key list",
                "The known servers and clients, and the basis of each key: given by hand, or the number of paths it was seen over.",
            ),
            (
                "plait key authorize --name laptop --allow *:443 plait-ed25519 AAAAC3NzaC1lZDI1NTE5",
                "Let a client in to plait serve, to HTTPS only; revoke laptop takes it out again.",
            ),
            ("plait key forget gw.example:7443", "After the server was set up anew."),
            (
                "plait key trust --also plait://gw.example:7443#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                "Before the server changes its key: both are accepted, until plait key forget removes one.",
            ),
        ],
    ),
    (
        "plait-reload",
        &[(
            "plait reload",
            "The only plait that runs reads its configuration again, and reports what has changed.",
        )],
    ),
    (
        "plait-upgrade",
        &[(
            "plait upgrade",
            "The program on disk takes the place of the only plait serve that runs; no connection is cut.",
        )],
    ),
    (
        "plait-config",
        &[
            ("plait config check work", "Each mistake in work.toml, with its place."),
            (
                "plait config show serve --listen 443",
                "What plait serve --listen 443 would use, and where each option comes from.",
            ),
        ],
    ),
    (
        "plait-wireshark",
        &[
            ("plait wireshark --install", "Wireshark and tshark of this user show plait from now on."),
            (
                "plait wireshark --install --directory /usr/lib/x86_64-linux-gnu/wireshark/plugins",
                "The same for every user (wireshark -G folders names the directory).",
            ),
        ],
    ),
    (
        "plait-doctor",
        &[
            ("plait doctor", "Missing prerequisites of this machine, each with its fix."),
            (
                "plait doctor -s plait://gw.example:7443",
                "The same, and what each path lets through to that server, as plait check says it.",
            ),
        ],
    ),
];

/// The files in `--keys DIR`.
const FILES: &[Entry] = &[
    (
        "~/.config/plait, for root /etc/plait",
        "The directory of all these, unless --keys or PLAIT_KEYS names another; known_peers, which is learned, is in ~/.local/state/plait, \
         for root in /etc/plait too.",
    ),
    (
        "/run/user/UID/plait/PID.sock, for root /run/plait/PID.sock",
        "Where plait status and plait path ask a running plait. For its user and root only; gone when it ends.",
    ),
    (
        "plait.toml, NAME.toml",
        "Configurations, in that directory or in /etc/plait: options by their names. plait.toml is used unless --config names another one. \
         Used only if no other user can write it.",
    ),
    ("identity", "Our Ed25519 key: PKCS#8 in PEM. Used only if no other user can read it."),
    ("identity.pub", "Our public key, for the authorized_clients of others: plait-ed25519 BASE64 COMMENT."),
    (
        "known_peers",
        "Servers that are known: HOST:PORT SHA256:FINGERPRINT DATE [paths=N] [names=BASIS], one a line; # starts a remark. paths=N says \
         over how many disjoint paths the key was seen when it was believed; a key without it was given. names=BASIS says what the addresses \
         rested on: given, agreed (several paths named them) or one-path; dnssec: the DNS zone publishes the key itself. Believed only if no other user can write it.",
    ),
    (
        "authorized_clients",
        "Clients that plait serve lets in: [allow=RULE,RULE] [expires=DATE] [connections=N] plait-ed25519 BASE64 NAME, one a line. Read anew when it changes.",
    ),
];

const ENVIRONMENT: &[Entry] = &[
    ("PLAIT_CONFIG", "The configuration, where --config is not given."),
    (
        "PLAIT_OPTION",
        "Any option with a long name: PLAIT_KEEP_ALIVE=60 is --keep-alive 60, PLAIT_MESH=yes is --mesh, PLAIT_PATH='eth0 wlan0=backup' is a list.",
    ),
    (
        "PLAIT_SERVER",
        "The server of run, proxy, forward and doctor, or several for the first three, where --server is not given.",
    ),
    ("PLAIT_KEYS", "The directory of keys, where --keys is not given."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "In place of ~/.config and ~/.local/state, not for root."),
    ("XDG_RUNTIME_DIR", "In place of /run/user/UID, not for root; without both a directory in /tmp."),
    (
        "SUDO_UID",
        "The user that called sudo: plait run runs its program as this user, unless --user names another.",
    ),
    ("PLAIT_CARRIER", "tcp, udp or auto, where --carrier is not given."),
    (
        "SSLKEYLOGFILE",
        "A file that the secrets of connections are written to: a reader of that file can decrypt everything. For root only with --allow-key-log.",
    ),
    ("RUST_LOG", "What is logged on standard error, as in plait=debug; counts more than -v."),
];

/// The text of the section SEE ALSO.
const SEE_ALSO: &str = "plait-lab(1); docs/protocol.md, docs/security.md, docs/metrics.md, docs/status.md, docs/transport.md, docs/udp.md and docs/wireshark.md of the project; RFC 8684, RFC 9293.";

/// The parts of the pages that `--help` does not have.
pub(crate) const SUPPLEMENT: Supplement = Supplement {
    examples: EXAMPLES,
    files: FILES,
    environment: ENVIRONMENT,
    statuses: |page| match page {
        "plait-check" => exit::EXPLANATION_OF_CHECK,
        "plait-doctor" => exit::EXPLANATION_OF_DOCTOR,
        "plait-health" => exit::EXPLANATION_OF_HEALTH,
        "plait-monitor" => exit::EXPLANATION_OF_MONITOR,
        _ => exit::EXPLANATION,
    },
    see_also: SEE_ALSO,
};

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;
    use crate::linux::arguments::Arguments;

    #[test]
    fn every_command_that_people_can_use_has_a_page() {
        let pages = SUPPLEMENT.pages(Arguments::command()).expect("pages");
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let (_, page) = pages
                .iter()
                .find(|(file, _)| *file == format!("plait-{name}.1"))
                .unwrap_or_else(|| panic!("{name}"));
            let page = String::from_utf8_lossy(page);
            for section in ["OPTIONS", "FILES", "ENVIRONMENT", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
                assert!(page.contains(&format!(".SH {section}")), "{name}: {section}");
            }
        }
    }

    #[test]
    fn every_example_is_of_a_page_and_a_command_line_that_is_understood() {
        let pages = SUPPLEMENT.pages(Arguments::command()).expect("pages");
        for (name, examples) in EXAMPLES {
            assert!(pages.iter().any(|(file, _)| *file == format!("{name}.1")), "{name}");
            for (line, _) in *examples {
                // As a shell reads them.
                let words = line.split(' ').map(|word| word.trim_matches('\'').into());
                if let Err(error) = Arguments::read(words) {
                    panic!("{line}: {error}");
                }
            }
        }
        // Commands with options of their own have one.
        for command in [
            "connect", "listen", "run", "serve", "proxy", "forward", "up", "gateway", "down", "cleanup",
            "check", "status", "health", "monitor", "path", "key", "config", "reload", "upgrade",
        ] {
            assert!(EXAMPLES.iter().any(|(name, _)| *name == format!("plait-{command}")), "{command}");
        }
    }

    #[test]
    fn every_variable_that_an_option_goes_by_is_in_the_pages() {
        fn variables(command: &Command, into: &mut Vec<String>) {
            let own = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
            into.extend(own.map(str::to_owned));
            command.get_subcommands().for_each(|below| variables(below, into));
        }
        let mut found = Vec::new();
        variables(&Arguments::command(), &mut found);
        assert!(!found.is_empty());
        for name in found {
            assert!(ENVIRONMENT.iter().any(|(known, _)| *known == name), "{name}");
        }
    }
}
