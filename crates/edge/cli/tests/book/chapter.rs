//! The blocks of the chapters and their commands.
//!
//! A line `laptop$ COMMAND` is a command of the ordinary user of the laptop, `server# COMMAND` one of root on the server. What follows a
//! command is its output; without output in the block, only the exit status counts. It must be 0, unless the next command is `echo $?`. With
//! `<<'END'` the lines up to `END` belong to the command.
//!
//! Words behind `console` say more: `keeps-running` for a block whose last command does not end, and `not-run=REASON`.

use std::fs;
use std::path::Path;

use super::place;

/// A block of the kind `console`.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) place: String,
    words: Vec<String>,
    lines: Vec<(String, String)>,
}

/// A command with its output.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) place: String,
    pub(super) host: String,
    pub(super) is_root: bool,
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

/// All blocks, in the order of the book.
pub(super) fn blocks_of_the_book() -> Vec<Block> {
    chapters().iter().flat_map(|file| Block::all_in(file, &page(file))).collect()
}

/// The chapters, by their names below `docs`.
fn chapters() -> Vec<String> {
    let summary = page("SUMMARY.md");
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let chapters: Vec<_> =
        links.map(|(file, _)| file.to_owned()).filter(|file| file.starts_with("book/")).collect();
    let all = fs::read_dir(documents().join("book")).expect("the chapters").count();
    assert_eq!(chapters.len(), all, "each file of docs/book is in docs/SUMMARY.md");
    chapters
}

/// A page below `docs`.
pub(super) fn page(file: &str) -> String {
    fs::read_to_string(documents().join(file)).unwrap_or_else(|error| panic!("docs/{file}: {error}"))
}

fn documents() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs")
}

impl Block {
    pub(super) fn all_in(file: &str, text: &str) -> Vec<Self> {
        let mut blocks = Vec::new();
        let mut lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
        while let Some((number, line)) = lines.next() {
            let Some(kind) = line.strip_prefix("```") else { continue };
            let inside: Vec<_> = lines
                .by_ref()
                .take_while(|(_, line)| *line != "```")
                .map(|(number, line)| (place(file, number), line.to_owned()))
                .collect();
            let mut words = kind.split(' ').map(str::to_owned);
            if words.next().as_deref() == Some("console") {
                blocks.push(Self { place: place(file, number), words: words.collect(), lines: inside });
            } else {
                let command = inside.iter().find(|(_, line)| prompt(line).is_some());
                assert!(command.is_none(), "a command in a block of another kind: {command:?}");
            }
        }
        blocks
    }

    /// The reason not to run it.
    pub(super) fn reason(&self) -> Option<&str> {
        self.words.iter().find(|word| word.starts_with("not-run")).map(String::as_str)
    }

    pub(super) fn keeps_running(&self) -> bool {
        self.words.iter().any(|word| word == "keeps-running")
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut lines = self.lines.iter();
        while let Some((place, line)) = lines.next() {
            let Some((host, is_root, command)) = prompt(line) else {
                let step = steps.last_mut().unwrap_or_else(|| panic!("{place}: output before a command"));
                step.output.push(line.clone());
                continue;
            };
            let mut command = command.to_owned();
            if command.contains("<<'END'") {
                for (_, line) in lines.by_ref() {
                    command.push('\n');
                    command.push_str(line);
                    if line == "END" {
                        break;
                    }
                }
            }
            let (place, host) = (place.clone(), host.to_owned());
            steps.push(Step { place, host, is_root, command, output: Vec::new() });
        }
        steps
    }
}

impl Step {
    /// Whether it shows the exit status of the other one.
    pub(super) fn asks_for_the_status(&self, of: &Self) -> bool {
        self.command == "echo $?" && self.host == of.host
    }

    /// Whether it only looks, and may be run again until it sees what the block shows: paths come up and connections end in their time.
    pub(super) fn only_looks(&self) -> bool {
        ["plait status", "plait health", "plait key list", "plait check", "cat "]
            .iter()
            .any(|start| self.command.starts_with(start))
            || self.command == "plait path"
    }
}

/// The host, whether the user is root, and the command.
fn prompt(line: &str) -> Option<(&str, bool, &str)> {
    super::hosts::NAMES.iter().find_map(|host| {
        let rest = line.strip_prefix(host)?;
        let (is_root, command) = match rest.split_at_checked(2)? {
            ("$ ", command) => (false, command),
            ("# ", command) => (true, command),
            _ => return None,
        };
        // A remark behind two spaces is for people.
        let command = command.split_once("   # ").map_or(command, |(command, _)| command);
        Some((*host, is_root, command.trim_end()))
    })
}
