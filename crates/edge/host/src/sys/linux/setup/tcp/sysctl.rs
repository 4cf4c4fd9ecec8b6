//! Kernel settings that forwarding needs, and their restoration.
//!
//! Several hosts may run side by side and need the same setting, and a host may be killed. So the previous value of a
//! setting is written to a file per network namespace before the change. The last host to leave, or the first to start
//! after a crash, restores all values.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::net::if_::{if_indextoname, if_nametoindex};

use super::cookie;
use crate::error::Error;
use crate::log::{debug, info};

/// Directory of the files: on a file system that is emptied at each boot.
const DIRECTORY: &str = "/run/plait";
const SETTINGS: &str = "/proc/sys";
/// The network namespace of this thread: a lock on it locks its set-up, and leaves no file behind.
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

/// The value of a setting that is removed from the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leave {
    /// The value before our change.
    AsBefore,
    /// The current value.
    AsItIs,
}

/// One changed setting.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    name: String,
    before: String,
    ours: String,
    /// The kernel's number of its device, if it is a setting of one: a device takes its settings along to another name.
    device: Option<u32>,
}

impl Journal {
    /// The journal of the network namespace of this thread.
    pub(super) fn open() -> Result<Self, Error> {
        let cookie = cookie::namespace_cookie()
            .map_err(|source| Error::system("name the network namespace", source))?;
        Ok(Self::at(Path::new(DIRECTORY), cookie, Path::new(SETTINGS)))
    }

    pub(super) fn at(directory: &Path, cookie: u64, settings: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            file: directory.join(format!("settings-{cookie}")),
            settings: settings.to_owned(),
        }
    }

    /// Waits until no other host sets up or cleans up in this network namespace. `None` if locks are not available.
    pub(super) fn turn() -> Turn {
        Flock::lock(File::open(NAMESPACE).ok()?, FlockArg::LockExclusive).ok()
    }

    /// Sets a setting, if its value differs. Returns `false` if there is no such setting.
    pub(super) fn set(&self, name: &str, value: &'static str) -> Result<bool, Error> {
        let Some(before) = self.value(name) else { return Ok(false) };
        if before == value {
            return Ok(true);
        }
        let entry = Entry::new(name, before, value);
        if let Err(error) = self.note(&entry) {
            debug!(%error, name, "will not be put back: the previous value is noted nowhere");
        }
        self.write(&entry, value).map(|()| true)
    }

    /// Sets settings that open something. Settings with another value are noted first; then `guard` closes what they
    /// open, according to the journal; then they are changed. Returns whether any of them exists.
    ///
    /// # Errors
    /// A setting cannot be noted or changed, or `guard` failed: nothing was opened without being closed. What was not changed is not noted.
    pub(super) fn open_behind(
        &self,
        names: &[String],
        value: &'static str,
        guard: impl FnOnce() -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let found: Vec<_> = names.iter().filter_map(|name| Some((name, self.value(name)?))).collect();
        let others = found.iter().filter(|(_, before)| before != value);
        let entry = |(name, before): &(&String, String)| Entry::new(name, before.clone(), value);
        let entries: Vec<Entry> = others.map(entry).collect();
        let mut noted: Vec<&str> = Vec::new();
        let result = self.note_and_open(&entries, value, guard, &mut noted);
        if result.is_err() && !noted.is_empty() {
            // A note without a change would later be taken for one.
            if let Err(error) = self.forget(|name| noted.contains(&name), Leave::AsItIs) {
                debug!(%error, ?noted, "stays noted");
            }
        }
        result.map(|()| !found.is_empty())
    }

    /// Notes these changes, and makes them behind `guard`. Leaves in `noted` what is new in the journal and not changed.
    fn note_and_open<'a>(
        &self,
        entries: &'a [Entry],
        value: &'static str,
        guard: impl FnOnce() -> Result<(), Error>,
        noted: &mut Vec<&'a str>,
    ) -> Result<(), Error> {
        for entry in entries {
            let unnoted = |source: io::Error| {
                let told = format!("its value cannot be noted in {}: {source}", self.file.display());
                Error::Setting {
                    name: entry.name.clone(),
                    value,
                    source: io::Error::new(source.kind(), told),
                }
            };
            if self.note(entry).map_err(unnoted)? {
                noted.push(&entry.name);
            }
        }
        guard()?;
        for entry in entries {
            self.write(entry, value)?;
            noted.retain(|name| *name != entry.name);
        }
        Ok(())
    }

    /// The value of a setting; none if there is no such setting.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.settings.join(name)).ok().map(|text| text.trim().to_owned())
    }

    fn write(&self, entry: &Entry, value: &'static str) -> Result<(), Error> {
        let Entry { name, before, .. } = entry;
        debug!(name, before, value, "kernel setting");
        let failed = |source| Error::Setting { name: name.clone(), value, source };
        fs::write(self.settings.join(name), value).map_err(failed)
    }

    /// The settings that are noted as changed to `value`.
    pub(super) fn noted(&self, value: &str) -> Vec<String> {
        let entries = self.entries().into_iter().filter(|entry| entry.ours == value);
        entries.map(|entry| entry.name).collect()
    }

    /// Removes the settings that match from the journal, and sets them to `then`.
    ///
    /// # Errors
    /// A setting cannot be written, or the file cannot be replaced; then nothing is removed.
    pub(super) fn forget(&self, is_forgotten: impl Fn(&str) -> bool, then: Leave) -> io::Result<()> {
        let (forgotten, rest): (Vec<_>, Vec<_>) =
            self.entries().into_iter().partition(|entry| is_forgotten(&entry.name));
        for entry in forgotten {
            match then {
                Leave::AsBefore => fs::write(self.settings.join(&entry.name), &entry.before)?,
                Leave::AsItIs => {}
            }
        }
        self.replace(&rest)
    }

    /// Replaces the entries of the file.
    fn replace(&self, entries: &[Entry]) -> io::Result<()> {
        let text: String = entries.iter().map(Entry::line).collect();
        let replacement = self.file.with_extension("new");
        let _ = fs::remove_file(&replacement);
        private().create_new(true).write(true).open(&replacement)?.write_all(text.as_bytes())?;
        fs::rename(&replacement, &self.file)
    }

    /// Moves the entries of devices to the names that these have now, and removes those of devices that are gone: a new device of the same
    /// name has settings of its own. In one pass, from the kernel's numbers alone: whichever host of a namespace does it, and however
    /// often, the result is the same. Called in a turn.
    ///
    /// # Errors
    /// The file cannot be replaced; then nothing has changed.
    pub(super) fn follow_devices(&self) -> io::Result<()> {
        let entries = self.entries();
        let followed: Vec<_> = entries.iter().filter_map(Entry::followed).collect();
        if followed == entries { Ok(()) } else { self.replace(&followed) }
    }

    fn entries(&self) -> Vec<Entry> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().filter_map(Entry::parse).collect()
    }

    /// Restores all settings, except those that others changed since. Returns whether none is left with our value.
    pub(super) fn restore(&self) -> bool {
        let mut is_restored = true;
        // In reverse order: a setting that changes others comes after them.
        for entry in self.entries().iter().rev() {
            if self.value(&entry.name).as_ref() == Some(&entry.ours) {
                debug!(name = entry.name, value = entry.before, "kernel setting put back");
                is_restored &= fs::write(self.settings.join(&entry.name), &entry.before).is_ok();
            }
        }
        if is_restored {
            let _ = fs::remove_file(&self.file);
            // The directory stays while hosts of other namespaces have files in it.
            let _ = fs::remove_dir(&self.directory);
        }
        is_restored
    }

    /// Notes the previous value of a setting, the first time only: then it returns true. All of a line is written or nothing.
    fn note(&self, entry: &Entry) -> io::Result<bool> {
        if self.entries().iter().any(|other| other.name == entry.name) {
            return Ok(false);
        }
        let mut file = self.create().or_else(|_| self.create())?;
        let before = file.metadata()?.len();
        let written = file.write_all(entry.line().as_bytes());
        if written.is_err() {
            // The rest of a line would be part of the next one.
            file.set_len(before)?;
        }
        written.map(|()| true)
    }

    /// Opens the file. A host of another namespace may remove the directory at the same time, once.
    fn create(&self) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.directory)?;
        private().create(true).append(true).open(&self.file)
    }
}

impl Entry {
    fn new(name: &str, before: String, ours: &str) -> Self {
        let device = device_in(name).and_then(|device| if_nametoindex(device).ok());
        Self { name: name.to_owned(), before, ours: ours.to_owned(), device }
    }

    /// All our settings are single words.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let [name, before, ours] = [words.next()?, words.next()?, words.next()?].map(str::to_owned);
        let device = words.next().map(str::parse).transpose().ok()?;
        let is_below =
            Path::new(&name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let is_whole = is_below && words.next().is_none();
        is_whole.then_some(Self { name, before, ours, device })
    }

    fn line(&self) -> String {
        let Self { name, before, ours, device } = self;
        let device = device.map(|device| format!(" {device}")).unwrap_or_default();
        format!("{name} {before} {ours}{device}\n")
    }

    /// The entry under the present name of its device; `None` if the device is gone.
    fn followed(&self) -> Option<Self> {
        let (Some(index), Some(old)) = (self.device, device_in(&self.name)) else {
            return Some(self.clone());
        };
        let new = if_indextoname(index).ok()?;
        // A number of no device has an empty name in some versions of the library.
        let new = new.to_str().ok().filter(|new| !new.is_empty())?;
        if new != old {
            info!(old, new, setting = self.name, "a device has another name: its settings are followed");
        }
        let words =
            self.name.split('/').enumerate().map(|(place, word)| if place == DEVICE { new } else { word });
        Some(Self { name: words.collect::<Vec<_>>().join("/"), ..self.clone() })
    }
}

/// The place of the device in the name of a setting: `net/ipv4/conf/DEVICE/rp_filter`.
const DEVICE: usize = 3;

/// The device of a setting, if it is one of a device.
fn device_in(setting: &str) -> Option<&str> {
    let words: Vec<&str> = setting.split('/').collect();
    let is_of_device = words.len() == DEVICE + 2 && words[..DEVICE].last() == Some(&"conf");
    is_of_device.then(|| words[DEVICE]).filter(|device| !["all", "default"].contains(device))
}

/// The files tell root which values to write: no other user may write the files.
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
    fn a_setting_that_opens_something_is_noted_before_it_is_closed_and_changed_after() {
        let fixture = Fixture::new("guarded");
        let names = ["net/forwarding".to_owned(), "net/lacking".to_owned()];
        let guard = || {
            assert_eq!(fixture.journal.noted("1"), ["net/forwarding"]);
            assert_eq!(fixture.read("forwarding"), "0");
            Ok(())
        };
        assert!(fixture.journal.open_behind(&names, "1", guard).expect("writable"));
        assert_eq!(fixture.read("forwarding"), "1");
        assert!(fixture.journal.restore());
        assert_eq!(fixture.read("forwarding"), "0");
    }

    #[test]
    fn what_cannot_be_closed_or_noted_is_not_opened() {
        let fixture = Fixture::new("not_guarded");
        let names = ["net/forwarding".to_owned()];
        let refused = fixture.journal.open_behind(&names, "1", || Err(Error::NoFreeRange));
        assert!(matches!(refused, Err(Error::NoFreeRange)));
        assert_eq!(fixture.read("forwarding"), "0");
        let nowhere = Path::new("/proc/no/such/directory");
        let journal =
            Journal { directory: nowhere.to_owned(), file: nowhere.join("file"), ..fixture.journal.clone() };
        let refused = journal.open_behind(&names, "1", || Ok(()));
        assert!(matches!(refused, Err(Error::Setting { .. })), "{refused:?}");
        assert_eq!(fixture.read("forwarding"), "0");
    }

    #[test]
    fn entries_move_with_their_device_in_one_pass_and_leave_with_it() {
        let fixture = Fixture::new("devices");
        let lo = if_nametoindex("lo").expect("each namespace has it");
        // As after a chain of renames: the second device has the name that the first one had.
        let text = format!(
            "net/ipv4/conf/old/forwarding 0 1 {lo}\n\
             net/ipv4/conf/lo/forwarding 0 1 4000000000\n\
             net/ipv6/conf/all/forwarding 0 1\n"
        );
        fs::write(&fixture.journal.file, text).expect("written");
        for _ in 0..2 {
            fixture.journal.follow_devices().expect("written");
            assert_eq!(
                fixture.journal.noted("1"),
                ["net/ipv4/conf/lo/forwarding", "net/ipv6/conf/all/forwarding"]
            );
        }
        assert_eq!(device_in("net/ipv4/conf/conf/rp_filter"), Some("conf"));
        assert_eq!(device_in("net/netfilter/nf_conntrack_tcp_be_liberal"), None);
        assert_eq!(device_in("net/ipv6/conf/all/forwarding"), None);
    }

    #[test]
    fn a_setting_that_could_not_be_changed_is_not_noted() {
        let fixture = Fixture::new("unchanged");
        // Readable, and not even root can write it.
        let fixed = fixture.directory.join("net/fixed");
        std::os::unix::fs::symlink("/proc/sys/kernel/ostype", fixed).expect("a link");
        let names = ["net/forwarding", "net/fixed"].map(str::to_owned);
        let refused = fixture.journal.open_behind(&names, "1", || Ok(()));
        assert!(matches!(refused, Err(Error::Setting { name, .. }) if name == "net/fixed"));
        assert_eq!(fixture.journal.noted("1"), ["net/forwarding"], "that one was changed");
    }

    #[test]
    fn a_setting_that_has_become_another_program_s_is_left_or_put_back_at_once() {
        for (then, value) in [(Leave::AsItIs, "1"), (Leave::AsBefore, "0")] {
            let fixture = Fixture::new(&format!("forgotten-{value}"));
            fixture.write("other", "0");
            for name in ["net/forwarding", "net/other"] {
                fixture.journal.set(name, "1").expect("writable");
            }
            fixture.journal.forget(|name| name == "net/forwarding", then).expect("writable");
            assert_eq!(fixture.journal.noted("1"), ["net/other"]);
            assert_eq!((fixture.read("forwarding").as_str(), fixture.read("other").as_str()), (value, "1"));
            assert!(fixture.journal.restore());
            assert_eq!((fixture.read("forwarding").as_str(), fixture.read("other").as_str()), (value, "0"));
        }
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
