//! The book (`docs/SUMMARY.md`): each command of its chapters is run, and each message that it explains is one of the programs, and the
//! reference of the configuration is that of the program.
//!
//! The commands are in blocks of the kind `console`, and run in the order of the book on two hosts ([`hosts`]). [`chapter`] describes how a
//! block is written and how its output is compared.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod chapter;
mod hosts;
mod messages;
mod reference;
mod shown;
#[path = "../support/mod.rs"]
mod support;

use chapter::{Block, Step};
use hosts::Hosts;

/// Blocks that no test can run: what they do would change the machine of the test.
const MOST_NOT_RUN: usize = 6;
/// The reasons that such a block may have.
const REASONS: [&str; 2] = ["not-run=installs", "not-run=systemd"];

#[test]
fn a_block_is_run_or_says_why_not_and_few_are_not_run() {
    let blocks = chapter::blocks_of_the_book();
    let (skipped, run): (Vec<_>, Vec<_>) = blocks.iter().partition(|block| block.reason().is_some());
    for block in &skipped {
        let reason = block.reason().expect("one of those");
        assert!(REASONS.contains(&reason), "{}: {reason}", block.place);
    }
    assert!(skipped.len() <= MOST_NOT_RUN, "{} blocks are not run", skipped.len());
    for block in run.iter().filter(|block| block.keeps_running()) {
        let steps = block.steps();
        let output = &steps.last().expect("a command").output;
        // Otherwise the test would not wait until it is ready.
        assert!(output.iter().any(|line| line != "…"), "{}: no output is shown", block.place);
    }
    let commands: usize = run.iter().map(|block| block.steps().len()).sum();
    assert!(commands >= 40, "{commands} commands in {} blocks", run.len());
}

#[test]
#[ignore = "needs root"]
fn each_command_of_the_book_does_what_the_book_says() {
    let mut hosts = Hosts::new();
    let (mut failures, mut count) = (Vec::new(), 0);
    for block in chapter::blocks_of_the_book().iter().filter(|block| block.reason().is_none()) {
        let steps = block.steps();
        for (number, step) in steps.iter().enumerate() {
            count += 1;
            let next = steps.get(number + 1);
            let keeps_running = block.keeps_running() && next.is_none();
            // The next command shows the status.
            let may_fail = next.is_some_and(|next| next.asks_for_the_status(step));
            if let Err(why) = run(&mut hosts, step, keeps_running, may_fail) {
                failures.push(format!("{}: {}\n{why}", step.place, step.command));
            }
        }
    }
    println!("{count} commands of the book were run");
    assert!(failures.is_empty(), "{} of {count} commands:\n{}", failures.len(), failures.join("\n"));
}

fn run(hosts: &mut Hosts, step: &Step, keeps_running: bool, may_fail: bool) -> Result<(), String> {
    if keeps_running { hosts.start(step) } else { hosts.run(step, may_fail) }
}

/// For the messages of failures.
fn place(file: &str, line: usize) -> String {
    format!("docs/{file}:{line}")
}

#[test]
fn a_command_has_its_host_its_user_and_its_output() {
    let text = "```console keeps-running\nlaptop$ plait key gen   # a remark\nSHA256:…\nserver# cat >f <<'END'\na\nEND\n```\n";
    let blocks = Block::all_in("x.md", text);
    let [block] = &blocks[..] else { panic!("{blocks:?}") };
    assert!(block.keeps_running() && block.reason().is_none());
    let steps = block.steps();
    let [gen_key, cat] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(
        (gen_key.host.as_str(), gen_key.is_root, gen_key.place.as_str()),
        ("laptop", false, "docs/x.md:2")
    );
    assert_eq!(gen_key.output, ["SHA256:…"]);
    assert_eq!((cat.host.as_str(), cat.is_root), ("server", true));
    assert_eq!(cat.command, "cat >f <<'END'\na\nEND");
    assert!(cat.output.is_empty());
}
