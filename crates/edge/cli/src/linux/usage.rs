//! The volumes that devices have carried this month, and the paths beyond theirs.
//!
//! A device's own counters count (`/proc/net/dev`), as its provider does: traffic of other programs as well. The file of volumes belongs to all
//! plaits of a user. It has the counters that it includes, so that bytes which several plaits see count once.

mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use plait::{Path, PathControl};
use tokio::time::{MissedTickBehavior, interval};

use self::volumes::{Counters, Volume, Volumes, merge};
use crate::caps::{self, Cap};
use crate::linux::state_file::StateFile;
use crate::options::Options;
use crate::reload::Reload;
use crate::unix::is_root;

/// Time between two looks at the counters.
const LOOK: Duration = Duration::from_secs(1);
/// Looks between two writes of the file.
const WRITE_EVERY: u32 = 30;
/// The largest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The volumes, and what was added to them since the file was written.
#[derive(Debug)]
struct Usage {
    file: StateFile,
    /// With what was added.
    volumes: Volumes,
    /// The bytes of each device that were added, and the devices of the volume that they belong to.
    unwritten: BTreeMap<String, (String, u64)>,
    /// The counters at the last look.
    counters: Counters,
}

/// The use of the paths with the volumes as they are at the start.
pub(crate) fn within_caps(options: &Options, paths: Vec<Path>) -> anyhow::Result<Vec<Path>> {
    if options.caps.is_empty() {
        return Ok(paths);
    }
    caps::check(&options.caps, &options.paths).map_err(anyhow::Error::msg)?;
    let usage = Usage::open(file());
    let today = today();
    Ok(paths.iter().map(|path| usage.in_effect(path, &options.caps, today)).collect())
}

/// Counts, and changes the use of paths whose volume is used up or begins anew. Never returns.
pub(crate) async fn keep(reload: Reload, control: PathControl) {
    let mut usage = Usage::open(file());
    let mut in_effect: BTreeMap<String, Path> = BTreeMap::new();
    // The failure of a path is logged once.
    let mut failed = BTreeSet::new();
    let mut before = reload.paths_and_caps();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for looks in 1.. {
        look.tick().await;
        let now = reload.paths_and_caps();
        // A reload may have set the paths.
        let is_reloaded = now != before;
        before.clone_from(&now);
        let (paths, caps) = now;
        if caps.is_empty() && in_effect.is_empty() {
            continue;
        }
        let today = today();
        usage.count(&caps, counters().unwrap_or_default(), today);
        in_effect.retain(|devices, _| paths.iter().any(|path| path.devices() == *devices));
        for path in paths {
            let devices = path.devices();
            let is_capped = caps.iter().any(|cap| cap.devices == devices);
            let wanted = usage.in_effect(&path, &caps, today);
            let is_set = in_effect.get(&devices).unwrap_or(&path) == &wanted;
            if !is_set || (is_reloaded && (is_capped || in_effect.contains_key(&devices))) {
                if let Err(error) = control.set(wanted.clone()).await {
                    if failed.insert(devices) {
                        tracing::error!(%error, "{wanted}: the path is not used as its volume asks; it is tried again each second");
                    }
                    continue;
                }
                failed.remove(&devices);
                if !is_set {
                    let volume = usage.volumes.devices.get(&devices).map_or(0, |volume| volume.bytes);
                    tracing::warn!("{wanted} from now on: {devices} has carried {volume} bytes this month");
                }
            }
            if is_capped {
                in_effect.insert(devices, wanted);
            } else {
                in_effect.remove(&devices);
            }
        }
        if looks % WRITE_EVERY == 0 {
            usage.write();
        }
    }
}

/// The file of volumes.
fn file() -> PathBuf {
    directory().join("volumes.json")
}

/// The directory of that file. The first of: the state directory of a unit of systemd, that of root, that of the user.
pub(crate) fn directory() -> PathBuf {
    let of = |variable: &str| {
        let given = std::env::var_os(variable).map(PathBuf::from);
        given.filter(|path| path.is_absolute())
    };
    of("STATE_DIRECTORY").unwrap_or_else(|| match is_root() {
        true => PathBuf::from("/var/lib/plait"),
        false => {
            let home = || of("HOME").unwrap_or_else(|| PathBuf::from("/")).join(".local/state");
            of("XDG_STATE_HOME").unwrap_or_else(home).join("plait")
        }
    })
}

/// By UTC.
fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}

impl Usage {
    /// The volumes in the file. An invalid file is renamed, and counting begins at zero.
    fn open(file: PathBuf) -> Self {
        let (file, volumes): (_, Volumes) = StateFile::open(file, "the volumes of this month", MOST_BYTES);
        let counters = volumes.counters.clone();
        Self { file, volumes, unwritten: BTreeMap::new(), counters }
    }

    /// The use of a path with the volume that it has carried.
    fn in_effect(&self, path: &Path, caps: &[Cap], today: Date) -> Path {
        let devices = path.devices();
        let Some(cap) = caps.iter().find(|cap| cap.devices == devices) else { return path.clone() };
        let is_over = self
            .volumes
            .devices
            .get(&devices)
            .is_some_and(|volume| volume.since == cap.since(today) && volume.bytes >= cap.bytes);
        if is_over { cap.beyond(path) } else { path.clone() }
    }

    /// Adds what the devices of the volumes have carried since the last look.
    fn count(&mut self, caps: &[Cap], now: Counters, today: Date) {
        let is_first = self.counters.of != now.of;
        for cap in caps {
            let devices = Path::new(&cap.devices).and_then(|path| Path::present(&[path])).unwrap_or_default();
            for device in devices.iter().map(Path::devices) {
                let Some(counter) = now.bytes.get(&device) else { continue };
                let bytes = match self.counters.bytes.get(&device) {
                    // What was there before is not ours.
                    _ if is_first => 0,
                    Some(before) if before <= counter => counter - before,
                    // The device is a new one, or was reset.
                    Some(_) | None => *counter,
                };
                self.add(cap, &device, bytes, today);
            }
        }
        self.counters = now;
    }

    fn add(&mut self, cap: &Cap, device: &str, bytes: u64, today: Date) {
        let since = cap.since(today);
        let volume = self.volumes.devices.entry(cap.devices.clone()).or_insert(Volume { since, bytes: 0 });
        if volume.since != since {
            *volume = Volume { since, bytes: 0 };
            self.unwritten.retain(|_, (devices, _)| *devices != cap.devices);
        }
        volume.bytes = volume.bytes.saturating_add(bytes);
        let unwritten = self.unwritten.entry(device.to_owned()).or_insert((cap.devices.clone(), 0));
        unwritten.1 = unwritten.1.saturating_add(bytes);
    }

    /// Adds what was seen to the file, which other plaits write as well.
    fn write(&mut self) {
        if self.unwritten.values().all(|(_, bytes)| *bytes == 0) {
            return;
        }
        let Self { file, volumes, unwritten, counters } = self;
        if let Some(all) = file.change(|all| merge(all, (volumes, unwritten, counters))) {
            self.volumes = all;
            self.unwritten.clear();
        }
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.write();
    }
}

fn counters() -> io::Result<Counters> {
    let text = fs::read_to_string("/proc/self/net/dev")?;
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::read_link("/proc/self/ns/net")?;
    let of = format!("{} {}", start.trim(), namespace.display());
    Ok(Counters { of, bytes: text.lines().filter_map(counter).collect() })
}

/// `wwan0: 1 2 3 4 5 6 7 8 9 …`: the first number is received bytes, the ninth is sent bytes.
fn counter(line: &str) -> Option<(String, u64)> {
    let (name, numbers) = line.split_once(':')?;
    let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
    Some((name.trim().to_owned(), numbers.first()?.saturating_add(*numbers.get(8)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(month: i8, day: i8) -> Date {
        Date::new(2026, month, day).expect("a day")
    }

    fn usage(directory: &tempfile::TempDir) -> Usage {
        Usage::open(directory.path().join("state/volumes.json"))
    }

    #[test]
    fn a_line_of_the_kernel_has_both_directions() {
        let line = "  wan1: 1000      10    0    0    0     0          0         0     2000      20    0    0    0     0       0          0";
        assert_eq!(counter(line), Some(("wan1".to_owned(), 3000)));
        assert_eq!(
            counter("Inter-|   Receive                                                |  Transmit"),
            None
        );
    }

    #[test]
    fn a_path_beyond_its_volume_is_a_backup_until_the_next_month() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut usage = usage(&directory);
        let cap: Cap = "wwan0=1MB/month@5".parse().expect("good");
        let never: Cap = "wwan0=1MB/month@5,never".parse().expect("good");
        let path: Path = "wwan0=untrusted".parse().expect("good");
        let shown = |usage: &Usage, cap: &Cap, today| {
            usage.in_effect(&path, std::slice::from_ref(cap), today).to_string()
        };
        usage.add(&cap, "wwan0", 999_999, date(3, 5));
        assert_eq!(shown(&usage, &cap, date(3, 20)), "wwan0=untrusted");
        usage.add(&cap, "wwan0", 1, date(4, 4));
        assert_eq!(shown(&usage, &cap, date(4, 4)), "wwan0=untrusted,backup");
        assert_eq!(shown(&usage, &never, date(4, 4)), "wwan0=never");
        assert_eq!(shown(&usage, &cap, date(4, 5)), "wwan0=untrusted", "another month");
        usage.add(&cap, "wwan0", 7, date(4, 5));
        assert_eq!(usage.volumes.devices["wwan0"], Volume { since: date(4, 5), bytes: 7 });
    }

    /// The counters of the device `lo`, which every namespace has.
    fn seen(bytes: u64) -> Counters {
        Counters { of: "this start".to_owned(), bytes: BTreeMap::from([("lo".to_owned(), bytes)]) }
    }

    #[test]
    fn volumes_survive_a_restart_and_bytes_that_two_plaits_see_count_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let cap: Cap = "lo=1MB/month".parse().expect("good");
        let caps = std::slice::from_ref(&cap);
        let (mut one, mut other) = (usage(&directory), usage(&directory));
        let day = date(3, 2);
        for plait in [&mut one, &mut other] {
            plait.count(caps, seen(100), day);
            plait.count(caps, seen(110), day);
            assert_eq!(plait.volumes.devices["lo"].bytes, 10, "what was there before does not count");
        }
        one.write();
        other.count(caps, seen(115), day);
        other.write();
        assert_eq!(other.volumes.devices["lo"].bytes, 15);
        one.count(caps, seen(120), day);
        drop((one, other));
        let mut again = usage(&directory);
        assert_eq!(again.volumes.devices["lo"].bytes, 20);
        // While no plait ran.
        again.count(caps, seen(150), day);
        assert_eq!(again.volumes.devices["lo"].bytes, 50);
        again.write();
        // The machine was started again.
        let mut later = usage(&directory);
        let restarted = |bytes| Counters { of: "another start".to_owned(), ..seen(bytes) };
        later.count(caps, restarted(3), day);
        later.count(caps, restarted(5), day);
        later.write();
        assert_eq!(usage(&directory).volumes.devices["lo"].bytes, 52);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_put_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("state");
        fs::create_dir(&state).expect("made");
        let file = state.join("volumes.json");
        for text in ["", "{", "[]", "{\"devices\": {\"a\": {\"since\": \"2026-02-30\", \"bytes\": 1}}}"] {
            fs::write(&file, text).expect("written");
            assert_eq!(usage(&directory).volumes, Volumes::default(), "{text}");
            assert_eq!(fs::read_to_string(state.join("volumes.json.bad")).expect("kept"), text);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_costs_no_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let cap: Cap = "lo=1MB/month".parse().expect("good");
        let mut usage = usage(&directory);
        fs::write(directory.path().join("state"), "in the way").expect("written");
        usage.count(&[cap], seen(0), date(3, 1));
        usage.add(&"lo=1MB/month".parse().expect("good"), "lo", 10, date(3, 1));
        usage.write();
        assert!(!usage.unwritten.is_empty());
        fs::remove_file(directory.path().join("state")).expect("removed");
        usage.write();
        assert_eq!(self::usage(&directory).volumes.devices["lo"].bytes, 10);
    }
}
