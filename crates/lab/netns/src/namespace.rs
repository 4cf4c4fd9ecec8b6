//! Handles on network namespaces, and work done inside them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns, unshare};

use crate::{Error, Result, program};

/// All names made here begin with this; [`crate::sweep`] touches nothing else.
pub const NAME_PREFIX: &str = "plait-";

/// Where `ip netns` keeps its names.
pub(crate) const DIRECTORY: &str = "/run/netns";

/// One network stack. Clones share it; when the last clone is dropped, a namespace made here is deleted.
///
/// The kernel keeps a deleted namespace alive while a process still runs in it.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Made by us under [`DIRECTORY`]: visible to `ip netns`, removed on drop.
    Named(String),
    /// Made by us without a name: gone with the last descriptor.
    Anonymous,
    /// Created by another program: left as it is.
    Foreign,
}

impl Namespace {
    /// Makes a namespace `plait-PID-SERIAL-LABEL` that `ip netns exec` can enter, with its loopback up.
    ///
    /// # Errors
    /// The label is not a name, or the process is not allowed to make namespaces.
    pub fn named(label: &str) -> Result<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        check_label(label)?;
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME_PREFIX}{}-{serial}-{label}", std::process::id());
        program::run("ip", &format!("netns add {name}"))?;
        let path = Path::new(DIRECTORY).join(&name);
        let file = File::open(&path)
            .map_err(|error| Error::system(format!("open the new namespace {}", path.display()), error))?;
        Self(Arc::new(Inner { file, kind: Kind::Named(name) })).with_loopback()
    }

    /// Makes a namespace without a name, with its loopback up. It needs no writable `/run`.
    ///
    /// # Errors
    /// The process is not allowed to make namespaces.
    pub fn anonymous() -> Result<Self> {
        let made = on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|error| Error::system("make a network namespace (are you root?)", error))?;
            open_own()
        })?;
        Self(Arc::new(Inner { file: made?, kind: Kind::Anonymous })).with_loopback()
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not readable.
    pub fn current() -> Result<Self> {
        Ok(Self(Arc::new(Inner { file: open_own()?, kind: Kind::Foreign })))
    }

    fn with_loopback(self) -> Result<Self> {
        self.ip("link set lo up")?;
        Ok(self)
    }

    /// The name under which `ip netns` knows it, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.0.kind {
            Kind::Named(name) => Some(name),
            Kind::Anonymous | Kind::Foreign => None,
        }
    }

    /// A path other processes of this user can open while this handle lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.file.as_raw_fd()))
    }

    /// Runs `work` on a thread inside the namespace and waits for it. Files, sockets and children that `work` opens stay in
    /// the namespace after it returns.
    ///
    /// # Errors
    /// The namespace cannot be entered. A panic of `work` continues in the caller.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_own_thread(|| {
            setns(&self.0.file, CloneFlags::CLONE_NEWNET)
                .map_err(|error| Error::system("enter a network namespace (are you root?)", error))?;
            Ok(work())
        })?
    }

    /// Starts a program inside. The caller owns the child: it is not killed with the namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered or the program not started.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.enter(|| command.spawn())?.map_err(|source| Error::MissingProgram { program, source })
    }

    /// Runs a program with its words split at white space, and returns its standard output.
    ///
    /// # Errors
    /// The program is missing or ended with a failure.
    pub fn run(&self, program: &str, words: &str) -> Result<String> {
        self.enter(|| program::run(program, words))?
    }

    /// Runs `ip` with these words, for what has no method of its own.
    ///
    /// # Errors
    /// As [`Namespace::run`].
    pub fn ip(&self, words: &str) -> Result<String> {
        self.run("ip", words)
    }

    /// The processes inside (only of a named namespace).
    ///
    /// # Errors
    /// `ip netns pids` fails.
    pub fn processes(&self) -> Result<Vec<i32>> {
        let Some(name) = self.name() else { return Ok(Vec::new()) };
        let listed = program::run("ip", &format!("netns pids {name}"))?;
        Ok(listed.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Kind::Named(name) = &self.kind else { return };
        if let Err(error) = program::run("ip", &format!("netns del {name}")) {
            tracing::warn!(%error, "a namespace stays behind; the next sweep removes it");
        }
    }
}

fn check_label(label: &str) -> Result<()> {
    let fits = !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits {
        return Ok(());
    }
    Err(Error::Name { name: label.to_owned(), reason: "only letters, digits and underscores, at least one" })
}

fn open_own() -> Result<File> {
    File::open("/proc/thread-self/ns/net")
        .map_err(|error| Error::system("open /proc/thread-self/ns/net", error))
}

/// A namespace is a property of the thread, so a thread that changes it must not return to the caller.
fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, work)
            .map_err(|error| Error::system("start a thread", error))?;
        thread.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}
