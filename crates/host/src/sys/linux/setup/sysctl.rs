//! Kernel settings that forwarding needs, and their return to what they were.
//!
//! Several hosts may run side by side and need the same setting, and a host may be killed. So what a setting
//! was before is written to a file per network namespace before it is changed; the last host to leave, or the
//! first to come after a crash, puts everything back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use tracing::debug;

use crate::error::Error;
use crate::sys::linux::cookie;

/// Where the files are: on a file system that does not outlive the machine's run.
const DIRECTORY: &str = "/run/plait";
const SETTINGS: &str = "/proc/sys";
/// The network namespace of this thread: a lock on it is one on its set-up, and leaves no file behind.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The file of this network namespace.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    directory: PathBuf,
    file: PathBuf,
    settings: PathBuf,
}

/// Keeps other hosts from setting up or cleaning up at the same time.
pub(super) type Turn = Option<Flock<File>>;

/// One changed setting.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    name: String,
    before: String,
    ours: String,
}

impl Journal {
    /// The journal of the network namespace of this thread.
    pub(super) fn open() -> Result<Self, Error> {
        let cookie = cookie::namespace_cookie()
            .map_err(|source| Error::system("name the network namespace", source))?;
        Ok(Self::at(Path::new(DIRECTORY), cookie, Path::new(SETTINGS)))
    }

    fn at(directory: &Path, cookie: u64, settings: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            file: directory.join(format!("settings-{cookie}")),
            settings: settings.to_owned(),
        }
    }

    /// Waits until no other host sets up or cleans up in this network namespace. `None` where locks cannot be had.
    pub(super) fn turn() -> Turn {
        Flock::lock(File::open(NAMESPACE).ok()?, FlockArg::LockExclusive).ok()
    }

    /// Gives a setting a value, if it has another. `false` if there is no such setting.
    pub(super) fn set(&self, name: &str, value: &'static str) -> Result<bool, Error> {
        let path = self.settings.join(name);
        let before = match fs::read_to_string(&path) {
            Ok(text) => text.trim().to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(Error::Setting { name: name.to_owned(), value, source }),
        };
        if before == value {
            return Ok(true);
        }
        debug!(name, before, value, "kernel setting");
        let entry = Entry { name: name.to_owned(), before, ours: value.to_owned() };
        if let Err(error) = self.note(&entry) {
            debug!(%error, "will not be put back after a crash");
        }
        fs::write(&path, value).map_err(|source| Error::Setting { name: name.to_owned(), value, source })?;
        Ok(true)
    }

    /// Puts back everything, unless it was changed by others since.
    pub(super) fn restore(&self) {
        let Ok(text) = fs::read_to_string(&self.file) else { return };
        // Backwards: a setting that changes others comes after those it changes.
        for entry in text.lines().rev().filter_map(Entry::parse) {
            let path = self.settings.join(&entry.name);
            let now = fs::read_to_string(&path).unwrap_or_default();
            if now.trim() == entry.ours {
                debug!(name = entry.name, value = entry.before, "kernel setting put back");
                let _ = fs::write(&path, &entry.before);
            }
        }
        let _ = fs::remove_file(&self.file);
        // It stays while hosts of other namespaces have files in it.
        let _ = fs::remove_dir(&self.directory);
    }

    /// Remembers what a setting was, the first time only.
    fn note(&self, entry: &Entry) -> io::Result<()> {
        let known = fs::read_to_string(&self.file).unwrap_or_default();
        if known.lines().filter_map(Entry::parse).any(|other| other.name == entry.name) {
            return Ok(());
        }
        let mut file = self.create().or_else(|_| self.create())?;
        writeln!(file, "{} {} {}", entry.name, entry.before, entry.ours)
    }

    /// Opens the file. A host of another namespace may take the directory away at the same time, once.
    fn create(&self) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.directory)?;
        private().create(true).append(true).open(&self.file)
    }
}

impl Entry {
    /// All our settings are single words.
    fn parse(line: &str) -> Option<Self> {
        let [name, before, ours] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let is_below =
            Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        is_below.then(|| Self { name: name.to_owned(), before: before.to_owned(), ours: ours.to_owned() })
    }
}

/// The files tell root what to write where: nobody else may write them.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        directory: PathBuf,
        journal: Journal,
    }

    impl Fixture {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("plait-sysctl-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir_all(directory.join("net")).expect("a directory");
            let journal = Journal::at(&directory, 1, &directory);
            let fixture = Self { directory, journal };
            fixture.write("forwarding", "0\n");
            fixture
        }

        fn write(&self, name: &str, value: &str) {
            fs::write(self.directory.join("net").join(name), value).expect("written");
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.directory.join("net").join(name)).expect("there").trim().to_owned()
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn a_changed_setting_is_put_back() {
        let fixture = Fixture::new("back");
        assert!(fixture.journal.set("net/forwarding", "1").expect("writable"));
        assert_eq!(fixture.read("forwarding"), "1");
        fixture.journal.restore();
        assert_eq!(fixture.read("forwarding"), "0");
        assert!(!fixture.journal.file.exists());
    }

    #[test]
    fn the_second_host_does_not_take_the_firsts_value_for_the_original() {
        let fixture = Fixture::new("second");
        fixture.journal.set("net/forwarding", "1").expect("writable");
        fixture.write("forwarding", "2");
        fixture.journal.clone().set("net/forwarding", "1").expect("writable");
        fixture.journal.restore();
        assert_eq!(fixture.read("forwarding"), "0");
    }

    #[test]
    fn what_others_changed_since_stays() {
        let fixture = Fixture::new("others");
        fixture.journal.set("net/forwarding", "1").expect("writable");
        fixture.write("forwarding", "7");
        fixture.journal.restore();
        assert_eq!(fixture.read("forwarding"), "7");
    }

    #[test]
    fn a_setting_that_the_kernel_lacks_is_no_error() {
        let fixture = Fixture::new("lacking");
        assert!(!fixture.journal.set("net/force_forwarding", "1").expect("just not there"));
    }

    #[test]
    fn a_journal_that_leads_elsewhere_is_not_followed() {
        assert_eq!(Entry::parse("../../etc/passwd 0 1"), None);
        assert_eq!(Entry::parse("/etc/passwd 0 1"), None);
        assert_eq!(Entry::parse("net/ipv4/x 0"), None);
        assert!(Entry::parse("net/ipv4/conf/eth0/forwarding 0 1").is_some());
    }
}
