//! The memory of a running program: all of a core dump, and more.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem::Finder;
use nix::sys::signal::Signal;

use crate::attacks::secrets::Secret;
use plait_lab::Program;

/// Bytes read at a time.
const WINDOW: usize = 8 << 20;
/// Interval of the checks whether a program is stopped.
const INTERVAL: Duration = Duration::from_millis(2);

/// A place in memory at which a secret was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) secret: String,
    pub(crate) address: u64,
    /// `[heap]`, `[stack]`, a file, or nothing for other mappings.
    pub(crate) mapping: String,
}

/// The extent and the results of a search.
pub(crate) struct Search {
    pub(crate) bytes: u64,
    pub(crate) places: Vec<Place>,
}

/// Stops the program, searches every readable mapping, and continues it.
pub(crate) fn search<'a>(
    program: &mut Program,
    secrets: impl IntoIterator<Item = &'a Secret>,
) -> Result<Search> {
    let secrets: Vec<(&Secret, Finder<'_>)> =
        secrets.into_iter().map(|secret| (secret, Finder::new(&secret.bytes))).collect();
    program.signal(Signal::SIGSTOP);
    let found = wait_until_stopped(program).and_then(|()| search_stopped(program.pid(), &secrets));
    program.signal(Signal::SIGCONT);
    found.with_context(|| format!("reading the memory of {}", program.name()))
}

/// A stop is not complete when `kill` returns; all threads must be stopped.
fn wait_until_stopped(program: &mut Program) -> Result<()> {
    let tasks = format!("/proc/{}/task", program.pid());
    loop {
        ensure!(!program.has_ended()?, "it has ended");
        let mut all_stand = true;
        for task in std::fs::read_dir(&tasks)? {
            let stat = std::fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
            // Behind the name, which is in parentheses and may contain anything.
            let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
            all_stand &= state == Some("T");
        }
        if all_stand {
            return Ok(());
        }
        sleep(INTERVAL);
    }
}

/// Checks that no writable page of the program, its keys among them, can be swapped: each such mapping has the flag of locked memory
/// (`lo` in /proc/PID/smaps). The error names a mapping without it.
pub(crate) fn is_locked(program: &Program) -> Result<()> {
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", program.pid()))?;
    match unlocked(&maps) {
        Ok(0) => bail!("{} has no memory that can be written", program.name()),
        Ok(_) => Ok(()),
        Err(mapping) => bail!("memory of {} may be swapped: {mapping}", program.name()),
    }
}

/// Private writable mappings, if all of them are locked; otherwise the first that is not.
fn unlocked(maps: &str) -> std::result::Result<usize, &str> {
    let (mut count, mut mapping) = (0, None);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            // Shared mappings are files and rings; secrets are in neither.
            (Some(range), Some(modes)) if range.contains('-') => {
                mapping = (modes.starts_with("rw") && modes.ends_with('p')).then_some(line);
            }
            (Some("VmFlags:"), Some(_)) => {
                let Some(mapping) = mapping.take() else { continue };
                if !line.split_whitespace().any(|flag| flag == "lo") {
                    return Err(mapping);
                }
                count += 1;
            }
            _ => {}
        }
    }
    Ok(count)
}

fn search_stopped(pid: u32, secrets: &[(&Secret, Finder<'_>)]) -> Result<Search> {
    let longest = secrets.iter().map(|(secret, _)| secret.bytes.len()).max().unwrap_or(1);
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let (mut room, mut result) = (vec![0; WINDOW], Search { bytes: 0, places: Vec::new() });
    for (range, mapping) in maps.lines().filter_map(readable) {
        let mut at = range.start;
        while at < range.end {
            let count = usize::try_from(range.end - at).unwrap_or(WINDOW).min(WINDOW);
            let Ok(count @ 1..) = memory.read_at(&mut room[..count], at) else { break };
            for (secret, finder) in secrets {
                let places = finder.find_iter(&room[..count]).map(|place| Place {
                    secret: secret.name.clone(),
                    address: at + place as u64,
                    mapping: mapping.to_owned(),
                });
                result.places.extend(places);
            }
            result.bytes += count as u64;
            let end = at + count as u64;
            // A match across two windows is found in the second.
            at = if end < range.end { end - (longest as u64 - 1).min(count as u64 - 1) } else { end };
        }
    }
    ensure!(result.bytes > 0, "there is none");
    result.places.sort_by_key(|place| place.address);
    result.places.dedup();
    Ok(result)
}

/// Range and name of a mapping, if it can be read: the kernel's own pages cannot.
fn readable(line: &str) -> Option<(std::ops::Range<u64>, &str)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_readable = words.next()?.starts_with('r');
    let name = words.nth(3).unwrap_or_default();
    let number = |hex| u64::from_str_radix(hex, 16).ok();
    let is_kernels = name.starts_with("[vvar") || name == "[vsyscall]";
    (is_readable && !is_kernels).then_some((number(start)?..number(end)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_locked_only_if_each_mapping_that_can_be_written_is() {
        let heap = "5581c0a00000-5581c0a21000 rw-p 00000000 00:00 0 [heap]\nSize: 4 kB\n";
        let code =
            "5581c0b00000-5581c0b21000 r-xp 00000000 00:00 0 /bin/plait\nSize: 4 kB\nVmFlags: rd ex mr\n";
        let [locked, open] = ["VmFlags: rd wr mr lo lf ac\n", "VmFlags: rd wr mr ac\n"];
        assert_eq!(unlocked(&format!("{heap}{locked}{code}{heap}{locked}")), Ok(2));
        assert_eq!(
            unlocked(&format!("{code}{heap}{locked}{heap}{open}")),
            Err(heap.lines().next().expect("one"))
        );
        assert_eq!(unlocked(code), Ok(0));
    }

    #[test]
    fn mappings_that_can_be_read_are_read() {
        let heap = "5581c0a00000-5581c0a21000 rw-p 00000000 00:00 0                          [heap]";
        assert_eq!(readable(heap), Some((0x5581_c0a0_0000..0x5581_c0a2_1000, "[heap]")));
        let nameless = "7f00aa000000-7f00aa021000 rw-p 00000000 00:00 0 ";
        assert_eq!(readable(nameless).map(|(_, name)| name), Some(""));
        assert_eq!(readable("7f00aa000000-7f00aa021000 ---p 00000000 00:00 0 "), None);
        assert_eq!(readable("7ffd1f5f0000-7ffd1f5f4000 r--p 00000000 00:00 0    [vvar]"), None);
    }
}
