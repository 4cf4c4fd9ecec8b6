//! Removing what a crashed process left behind.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::namespace::{DIRECTORY, NAME_PREFIX};
use crate::{Error, Result, program};

/// Deletes every namespace `plait-PID-...` without a living process PID, and ends the processes still
/// inside. Namespaces of living processes, and names of other forms, are not touched. Returns the removed
/// names.
///
/// # Errors
/// The directory of names cannot be read, or a namespace not be deleted.
pub fn sweep() -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::system(format!("read {DIRECTORY}"), error)),
    };
    let mut removed = Vec::new();
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(owner) = owner_of(&name) else { continue };
        if Path::new("/proc").join(owner.to_string()).exists() {
            continue;
        }
        match remove(&name) {
            Ok(()) => removed.push(name),
            // Another process that sweeps was faster.
            Err(_) if !Path::new(DIRECTORY).join(&name).exists() => {}
            Err(error) => return Err(error),
        }
    }
    removed.sort();
    Ok(removed)
}

/// Ends the processes inside a namespace and deletes it.
fn remove(name: &str) -> Result<()> {
    for pid in program::run("ip", &format!("netns pids {name}"))?.lines() {
        if let Ok(pid) = pid.trim().parse() {
            // It may have ended since it was listed: then there is nothing left to do.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    program::run("ip", &format!("netns del {name}"))?;
    Ok(())
}

/// The process id in a name of ours.
fn owner_of(name: &str) -> Option<u32> {
    let (owner, rest) = name.strip_prefix(NAME_PREFIX)?.split_once('-')?;
    let (serial, _label) = rest.split_once('-')?;
    serial.parse::<u32>().ok()?;
    owner.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::owner_of;

    #[test]
    fn only_names_of_our_form_have_an_owner() {
        assert_eq!(owner_of("plait-412-0-client"), Some(412));
        for foreign in ["plait-demo", "plait-x-0-client", "plait-412-client", "docker-412-0-client", "plait-"]
        {
            assert_eq!(owner_of(foreign), None, "{foreign}");
        }
    }
}
