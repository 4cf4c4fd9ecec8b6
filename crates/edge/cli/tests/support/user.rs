//! Ordinary users, each with a directory and keys of their own.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plait_lab::{End, Program};

use super::PLAIT;

/// An ordinary user with a directory of its own. If the test runs as root it becomes that user, without any capability; otherwise
/// every user is the one that runs the test.
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) directory: PathBuf,
}

impl User {
    pub(crate) fn new(name: &'static str, world: &Path) -> Self {
        let directory = world.join(name);
        fs::create_dir_all(&directory).expect("a directory");
        if is_root() {
            let id = |of: &str| {
                let output = Command::new("id").args([of, name]).output().expect("coreutils");
                String::from_utf8_lossy(&output.stdout).trim().parse().expect("every system has that user")
            };
            chown(&directory, Some(id("-u")), Some(id("-g"))).expect("root can");
        } else {
            println!("NOT SHOWN: that {name} is another user, because the test does not run as root");
        }
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("ours");
        Self { name, directory }
    }

    /// `plait` with these words, as this user, from `input` if there is some.
    pub(crate) fn plait(&self, world: &Path, what: &str, words: &[&str], input: Option<&Path>) -> Program {
        let command = self.command(world, words);
        Program::start_here(world, what, command, given(input), End::Own).expect("started")
    }

    /// The same, to be started elsewhere.
    pub(crate) fn command(&self, world: &Path, words: &[&str]) -> Command {
        let program = world.join("plait");
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            let user = [format!("--reuid={}", self.name), "--clear-groups".to_owned()];
            command.args(user).args(["--regid=nogroup", "--inh-caps=-all", "--bounding-set=-all"]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(words).env("PLAIT_KEYS", self.directory.join("keys")).env_remove("SSLKEYLOGFILE");
        command
    }
}

pub(crate) fn given(input: Option<&Path>) -> End {
    End::Given(input.map_or_else(Stdio::null, |input| File::open(input).expect("there").into()))
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A directory with a copy of the program that every user can start.
pub(crate) fn place(label: &str) -> PathBuf {
    let world = std::env::temp_dir().join(format!("plait-{label}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&world);
    fs::create_dir_all(&world).expect("a directory");
    fs::set_permissions(&world, Permissions::from_mode(0o755)).expect("ours");
    install(&world.join("plait"));
    world
}

/// Copies the program to a place where every user can start it. Another program does the copy: a child that another thread starts
/// would briefly inherit our descriptor open for writing, and the file could not be executed.
pub(crate) fn install(to: &Path) {
    assert!(Command::new("cp").arg(PLAIT).arg(to).status().expect("coreutils").success());
}
