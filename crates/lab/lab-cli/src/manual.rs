//! Examples, files and variables in the manual pages.

use plait_console::manual::{Entry, Supplement};

/// The text about exit statuses in `--help` and the manual.
pub(crate) const EXIT_STATUS: &str = "Exit status: 0; 1 for any other error; 2 for errors of usage; 7 if a privilege, a program or a \
    feature of the kernel is missing; 128+N if signal N ended it, for example 141 after the reader of standard output has gone.";

/// The parts of the pages that `--help` does not have.
pub(crate) const SUPPLEMENT: Supplement = Supplement {
    examples: EXAMPLES,
    files: FILES,
    environment: ENVIRONMENT,
    statuses: |_| EXIT_STATUS,
    see_also: "plait(1); docs/laboratory.md and docs/scrambling.md of the project.",
};

const EXAMPLES: &[(&str, &[Entry])] = &[
    (
        "plait-lab",
        &[
            ("plait-lab up", "Two hosts, two paths, an eavesdropper and an injector on each."),
            ("plait-lab shell client", "A shell in one of the hosts; plait runs there as on a machine."),
            ("plait-lab down", "The end of the lab, and of all programs in it."),
        ],
    ),
    (
        "plait-lab-up",
        &[(
            "plait-lab up --path dsl=50mbit,10ms,trusted --path lte=30mbit,40ms,1%,10ms,128kB",
            "Paths of one's own: rate, delay one way, loss, jitter, queue.",
        )],
    ),
    ("plait-lab-path", &[("plait-lab path lte loss=2% delay=80ms", "The path gets worse while it is used.")]),
    (
        "plait-lab-attack",
        &[(
            "plait-lab attack --path b flip every=100000",
            "A bit in each hundred thousandth byte on path b.",
        )],
    ),
    (
        "plait-lab-figures",
        &[
            (
                "plait-lab figures --out figures",
                "All figures of the papers, as figures/figures.html to read and figures/figures.json.",
            ),
            ("plait-lab figures --only kato-table2 --runs 15", "One of them, more often."),
        ],
    ),
    (
        "plait-lab-demo",
        &[("plait-lab demo --report report.html", "All systems under all attacks, as a page to read.")],
    ),
    (
        "plait-lab-scramble",
        &[("plait-lab scramble path-b.pcapng --plain sent.txt", "How much of it is right.")],
    ),
];

const FILES: &[Entry] = &[(
    "/tmp/plait-lab-UID, for root /run/plait-lab",
    "The control socket and the log of the lab that is up.",
)];

const ENVIRONMENT: &[Entry] = &[
    ("SHELL", "The shell of plait-lab shell."),
    ("PLAIT_LAB_RUNTIME", "The directory of the control socket and the log, in place of the one above."),
    ("RUST_LOG", "What is logged on standard error, as in plait_lab=debug; counts more than -v."),
];

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_command_has_a_page_and_every_example_is_understood() {
        let pages = SUPPLEMENT.pages(Arguments::command()).expect("pages");
        let has = |name: &str| pages.iter().any(|(file, _)| *file == format!("{name}.1"));
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(has(&format!("plait-lab-{}", command.get_name())), "{}", command.get_name());
        }
        for (name, examples) in EXAMPLES {
            assert!(has(name), "{name}");
            for (line, _) in *examples {
                if let Err(error) = Arguments::try_parse_from(line.split(' ')) {
                    panic!("{line}: {error}");
                }
            }
        }
    }
}
