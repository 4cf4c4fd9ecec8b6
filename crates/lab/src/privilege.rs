//! Whether this user may have a lab here, and how to get one without being root.

use std::ffi::OsStr;
use std::process::Command;

use nix::unistd::geteuid;

use crate::{Error, Result};

/// Set for processes that [`in_user_namespace`] starts: the directory for the control socket.
pub(crate) const RUNTIME_VARIABLE: &str = "PLAIT_LAB_RUNTIME";

/// Whether a lab can be made by this process.
///
/// # Errors
/// [`Error::Lack`]: what is missing, and the line that helps.
pub fn check() -> Result<()> {
    if !geteuid().is_root() {
        return Err(Error::Lack(
            "a lab needs root, or root in a user namespace: try `sudo plait lab up`".to_owned(),
        ));
    }
    check_tun()
}

/// Whether TUN devices can be opened by this user.
///
/// # Errors
/// [`Error::Lack`]: what is missing, and the line that helps.
pub fn check_tun() -> Result<()> {
    netns::tun::permitted().map_err(|error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "load the driver: `sudo modprobe tun`",
            std::io::ErrorKind::PermissionDenied => {
                "let users open it (it gives them no rights outside their own namespaces): `sudo chmod 0666 /dev/net/tun`"
            }
            _ => "see `plait doctor`",
        };
        Error::Lack(format!("cannot open /dev/net/tun: {error}; {remedy}"))
    })
}

/// Whether this process is an ordinary user's, who needs [`in_user_namespace`] to have a lab.
pub fn is_ordinary_user() -> bool {
    !geteuid().is_root()
}

/// A command that runs `program` as root of new user, network and mount namespaces, with a `/run` of its own, so that an ordinary user
/// can have a lab in it.
///
/// # Errors
/// [`Error::Lack`] if the kernel does not let this user make namespaces or open TUN devices.
pub fn in_user_namespace(program: impl AsRef<OsStr>) -> Result<Command> {
    check_tun()?;
    let allowed = Command::new("unshare").args(["--user", "--map-root-user", "--net", "true"]).output();
    let output = allowed.map_err(Error::system("start `unshare` (install util-linux)"))?;
    if !output.status.success() {
        return Err(Error::Lack(format!(
            "this user may not make user namespaces ({}); `sudo sysctl -w kernel.unprivileged_userns_clone=1` (Debian) or \
             `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu) permits it",
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--net", "--mount", "--", "sh", "-c"])
        .arg("mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"")
        .arg(program)
        .env(RUNTIME_VARIABLE, crate::control::runtime_directory());
    Ok(command)
}
