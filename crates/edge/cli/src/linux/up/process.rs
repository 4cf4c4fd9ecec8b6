//! The processes of `plait up` and `plait gateway` in this network namespace, according to the rules in the kernel.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use anyhow::bail;

use super::rules::PROCESS;
use super::table::list;
use crate::output::say;

/// A command that keeps rules in the kernel. A network namespace has one of them at a time: the chain of `plait up` for what is forwarded would
/// refuse what `plait gateway` lets pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Owner {
    Up,
    Gateway,
}

/// CAP_NET_ADMIN in the sets of `/proc/PID/status` (linux/capability.h).
const NET_ADMIN: u64 = 1 << 12;

/// What the rules say.
#[derive(Debug)]
pub(in crate::linux) enum State {
    /// There are none.
    Down,
    /// The process that has put them runs.
    Up(u32),
    /// It has ended without removing them.
    Crashed,
}

impl Owner {
    pub(in crate::linux) const ALL: [Self; 2] = [Self::Up, Self::Gateway];

    /// The command for people.
    pub(in crate::linux) fn name(self) -> &'static str {
        match self {
            Self::Up => "plait up",
            Self::Gateway => "plait gateway",
        }
    }

    /// The word of its command line.
    fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Gateway => "gateway",
        }
    }

    /// The table that a crash leaves.
    pub(in crate::linux) fn table(self) -> &'static str {
        match self {
            Self::Up => "plait-up",
            Self::Gateway => "plait-gateway",
        }
    }

    /// The same rules once more, in a table that other programs cannot remove (`flags owner`). It ends with its process.
    pub(in crate::linux) fn held_table(self) -> &'static str {
        match self {
            Self::Up => "plait-up-held",
            Self::Gateway => "plait-gateway-held",
        }
    }

    /// Reports a crash of an earlier process of this command.
    ///
    /// # Errors
    /// The command, or another one with rules, is there.
    pub(in crate::linux) fn require_alone(self) -> anyhow::Result<()> {
        let name = self.name();
        match State::of(self) {
            State::Up(pid) => {
                bail!("{name} runs in this network namespace already, as process {pid}\n  fix: plait down");
            }
            State::Crashed => say(&format!("an earlier {name} has crashed: its rules are replaced")),
            State::Down => {}
        }
        for other in Self::ALL.into_iter().filter(|other| *other != self) {
            match State::of(other) {
                State::Up(pid) => bail!(
                    "{name} cannot run beside {}, which runs in this network namespace as process {pid}\n  fix: plait down",
                    other.name()
                ),
                State::Crashed => {
                    bail!("{} has crashed: its rules are in effect\n  fix: plait cleanup", other.name())
                }
                State::Down => {}
            }
        }
        Ok(())
    }
}

impl State {
    pub(in crate::linux) fn of(owner: Owner) -> Self {
        let Some(table) = list(owner.table()) else { return Self::Down };
        match process_in(&table).filter(|pid| is_up(owner, *pid)) {
            Some(pid) => Self::Up(pid),
            None => Self::Crashed,
        }
    }
}

/// The number in the name of a chain.
fn process_in(table: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let name = line.trim().strip_prefix("chain ")?.strip_prefix(PROCESS)?;
        name.split_whitespace().next()?.parse().ok()
    })
}

/// Whether the process is one of this command in this network namespace: numbers of processes come back, also to other users.
pub(super) fn is_up(owner: Owner, pid: u32) -> bool {
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    words(pid).iter().any(|word| word == owner.word())
        && network(&pid.to_string()) == network("self")
        && is_plait(pid)
        && may_have_put_rules(pid)
}

/// Whether the process may change the rules of this network: another user can give any program the name and the words of plait.
fn may_have_put_rules(pid: u32) -> bool {
    let users = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set & NET_ADMIN != 0) && users(&pid.to_string()) == users("self")
}

/// The words of its command line.
pub(super) fn words(pid: u32) -> Vec<OsString> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// A program that was replaced meanwhile is `plait (deleted)`.
fn is_plait(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_else(|_| PathBuf::new());
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("plait"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_in_the_name_of_a_chain() {
        let table = "table inet plait-up {\n\tchain process-4711 {\n\t}\n\n\tchain refuse {\n\t}\n}\n";
        assert_eq!(process_in(table), Some(4711));
        assert_eq!(process_in("table inet plait-up {\n}\n"), None);
        assert!(!is_up(Owner::Up, std::process::id()), "a test");
    }
}
