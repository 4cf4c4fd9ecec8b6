//! The permissions for a lab, and a way to have a lab without being root.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::{Error, Result};

/// Set for processes that [`in_user_namespace`] starts: the directory for the control socket.
pub(crate) const RUNTIME_VARIABLE: &str = "PLAIT_LAB_RUNTIME";
/// In the environment of every process of an ordinary user's lab: the process that the lab belongs to.
pub(crate) const OWNER_VARIABLE: &str = "PLAIT_LAB_OWNER";

/// Whether this process can create a lab.
///
/// # Errors
/// [`Error::Prerequisite`]: the missing prerequisite and its fix.
pub fn check() -> Result<()> {
    if !geteuid().is_root() {
        return Err(Error::Prerequisite(
            "a lab needs root, or root in a user namespace: try `sudo plait-lab up`".to_owned(),
        ));
    }
    check_tun()
}

/// Whether this user can open TUN devices.
///
/// # Errors
/// [`Error::Prerequisite`]: the missing prerequisite and its fix.
pub fn check_tun() -> Result<()> {
    plait_netns::tun::permitted().map_err(|error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "load the driver: `sudo modprobe tun`",
            std::io::ErrorKind::PermissionDenied => {
                "let users open it (it gives them no rights outside their own namespaces): `sudo chmod 0666 /dev/net/tun`"
            }
            _ => "see `plait-lab doctor`",
        };
        Error::Prerequisite(format!("cannot open /dev/net/tun: {error}; {remedy}"))
    })
}

/// Whether this process belongs to an ordinary user, which needs [`in_user_namespace`] to have a lab.
pub fn is_ordinary_user() -> bool {
    !geteuid().is_root()
}

/// Returns a command that runs `program` as root of new user, network and mount namespaces, with a `/run` of its own, so that an
/// ordinary user can have a lab in it. Ends leftovers of a killed lab first.
///
/// # Errors
/// [`Error::Prerequisite`] if the kernel does not let this user create namespaces or open TUN devices.
pub fn in_user_namespace(program: impl AsRef<OsStr>) -> Result<Command> {
    check_tun()?;
    let allowed = Command::new("unshare").args(["--user", "--map-root-user", "--net", "true"]).output();
    let output = allowed.map_err(Error::system("start `unshare` (install util-linux)"))?;
    if !output.status.success() {
        return Err(Error::Prerequisite(format!(
            "this user may not make user namespaces ({}); `sudo sysctl -w kernel.unprivileged_userns_clone=1` (Debian) or \
             `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu) permits it",
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    end_leftovers();
    let mut command = Command::new("unshare");
    // No process forks here: the process keeps its number until it becomes `program`.
    command
        .args(["--user", "--map-root-user", "--net", "--mount", "--", "sh", "-c"])
        .arg(format!("mount -t tmpfs tmpfs /run && export {OWNER_VARIABLE}=$$ && exec \"$0\" \"$@\""))
        .arg(program)
        .env(RUNTIME_VARIABLE, crate::control::runtime_directory());
    Ok(command)
}

/// Ends the programs of this user's labs after their process has gone. Their namespaces have no names visible to others, and go with
/// the last of the programs. Returns the ended programs, for people.
pub(crate) fn end_leftovers() -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut ended = Vec::new();
    for process in numbers {
        let Some(owner) = owner_of(process) else { continue };
        // A number that now belongs to another process is not in a lab.
        if owner == process || owner_of(owner) == Some(owner) {
            continue;
        }
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        if kill(Pid::from_raw(process), Signal::SIGKILL).is_ok() {
            ended.push(format!("process {process} ({})", name.trim()));
        }
    }
    ended
}

/// Returns the lab process that a process belongs to, according to its environment.
fn owner_of(process: i32) -> Option<i32> {
    let environment = fs::read(Path::new("/proc").join(process.to_string()).join("environ")).ok()?;
    let mut words = environment.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
    words.find_map(|word| word.strip_prefix(OWNER_VARIABLE)?.strip_prefix('=')?.parse().ok())
}
