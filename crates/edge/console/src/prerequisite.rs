//! Prerequisites of a machine that both programs have, found by trying.

use std::borrow::Cow;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};

/// What is present, or the reason why not and the fix.
pub type Found = Result<String, (String, Cow<'static, str>)>;

/// A missing prerequisite and its fix. Its text is the same line wherever it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingPrerequisite {
    /// Its name.
    pub what: &'static str,
    /// The reason.
    pub why: String,
    /// What the user can do.
    pub fix: String,
}

impl MissingPrerequisite {
    /// Returns a missing prerequisite with this name, reason and fix.
    pub fn named(what: &'static str, (why, fix): (String, Cow<'static, str>)) -> Self {
        Self { what, why, fix: fix.into_owned() }
    }
}

impl fmt::Display for MissingPrerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missing: {}: {}; fix: {}", self.what, self.why, self.fix)
    }
}

impl std::error::Error for MissingPrerequisite {}

/// The line about one prerequisite in a report for people.
pub fn line(name: &str, needed_by: &str, outcome: &Result<String, MissingPrerequisite>) -> String {
    match outcome {
        Ok(detail) => format!("ok: {name}: {detail}"),
        Err(missing) => format!("{missing} [{needed_by}]"),
    }
}

/// The fix for an ordinary user.
pub const AS_ROOT: &str = "run as root (with sudo)";

const CAP_NET_ADMIN: u32 = 12;

/// Whether this process does not run as root.
pub fn is_ordinary_user() -> bool {
    !nix::unistd::geteuid().is_root()
}

/// Whether this process may change the network: it has CAP_NET_ADMIN, as root or otherwise.
pub fn may_change_the_network() -> bool {
    has_capability(CAP_NET_ADMIN)
}

/// Tries whether this process, and the programs that it starts, may change the network: with CAP_NET_ADMIN.
///
/// # Errors
/// What is missing, and its fix.
pub fn privileges() -> Found {
    match (is_ordinary_user(), may_change_the_network()) {
        (false, true) => return Ok("root".to_owned()),
        (true, true) if is_inherited(CAP_NET_ADMIN) => {
            return Ok("CAP_NET_ADMIN, which the started programs inherit".to_owned());
        }
        (true, true) => {
            let why = "CAP_NET_ADMIN without root is not ambient: ip and nft do not inherit it";
            let fix =
                "make it ambient (setpriv --ambient-caps, or AmbientCapabilities of systemd), or run as root";
            return Err((why.to_owned(), fix.into()));
        }
        (true, false) => {
            let why = "neither root nor CAP_NET_ADMIN";
            return Err((why.to_owned(), AS_ROOT.into()));
        }
        (false, false) => {}
    }
    let fix = "give the container the capability (docker run --cap-add NET_ADMIN)";
    Err(("root without CAP_NET_ADMIN".to_owned(), fix.into()))
}

fn has_capability(number: u32) -> bool {
    is_in_set("CapEff:", number)
}

/// Whether programs that this process starts have a capability without being root.
fn is_inherited(number: u32) -> bool {
    is_in_set("CapAmb:", number)
}

fn is_in_set(set: &str, number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix(set));
    capabilities
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|bits| bits >> number & 1 == 1)
}

/// Tries to open the TUN device.
///
/// # Errors
/// What is missing, and its fix.
pub fn tun() -> Found {
    match OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Ok("/dev/net/tun".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err((
            "there is no /dev/net/tun".to_owned(),
            "modprobe tun, or give the container the device (docker run --device /dev/net/tun)".into(),
        )),
        Err(error) => Err((
            format!("/dev/net/tun: {error}"),
            "run as root, or chmod 666 /dev/net/tun (it gives users no rights outside their own namespaces)"
                .into(),
        )),
    }
}

/// Tries to start a program of a Debian package.
///
/// # Errors
/// What is missing, and its fix.
pub fn program(name: &'static str, arguments: &[&str], package: &str) -> Found {
    let fix = format!("install the package {package}");
    let output = Command::new(name).args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Ok(text.lines().next().unwrap_or_default().trim().to_owned())
        }
        Ok(output) => Err((format!("{name} ends with {}", output.status), fix.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(("not installed".to_owned(), fix.into()))
        }
        Err(error) => Err((error.to_string(), fix.into())),
    }
}

/// Tries to start `ip`.
///
/// # Errors
/// What is missing, and its fix.
pub fn ip() -> Found {
    program("ip", &["-Version"], "iproute2")
}

/// Tries to make a network namespace.
///
/// # Errors
/// What is missing, and its fix.
pub fn network_namespaces() -> Found {
    in_namespace(|| Ok("can be made".to_owned()))
}

/// Runs `work` in a network namespace of its own, which ends with it.
///
/// # Errors
/// That of `work`, or what is missing for a namespace.
pub fn in_namespace(work: impl FnOnce() -> Found + Send) -> Found {
    // A namespace belongs to a thread: the caller's thread stays in its own.
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let refused = |error: nix::Error| -> (String, Cow<'static, str>) {
                if is_ordinary_user() {
                    return ("not root".to_owned(), AS_ROOT.into());
                }
                let why = format!("the kernel refuses a network namespace: {}", error.desc());
                let fix = "give the container the capability (docker run --cap-add SYS_ADMIN)";
                (why, fix.into())
            };
            unshare(CloneFlags::CLONE_NEWNET).map_err(refused)?;
            work()
        });
        inside.join().unwrap_or_else(|_| Err(("a thread panicked".to_owned(), "report it".into())))
    })
}

/// Tries to make a user namespace.
///
/// # Errors
/// What is missing, and its fix.
pub fn user_namespaces() -> Found {
    let switch = |file: &str| std::fs::read_to_string(file).map(|text| text.trim().to_owned()).ok();
    if switch("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return Err(("switched off".to_owned(), "sysctl kernel.unprivileged_userns_clone=1".into()));
    }
    if switch("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        let fix = "sysctl kernel.apparmor_restrict_unprivileged_userns=0";
        return Err(("restricted by AppArmor".to_owned(), fix.into()));
    }
    match switch("/proc/sys/user/max_user_namespaces").as_deref() {
        Some("0") => Err(("none allowed".to_owned(), "sysctl user.max_user_namespaces=10000".into())),
        Some(_) => try_user_namespace(),
        None => Err(("this kernel has none".to_owned(), "use a kernel with CONFIG_USER_NS".into())),
    }
}

/// Other obstacles (seccomp in a container, SELinux) show only in a trial.
fn try_user_namespace() -> Found {
    let words = ["--user", "--map-root-user", "--net", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/run"];
    match Command::new("unshare").args(words).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok("can be made".to_owned()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().next().unwrap_or("the kernel refuses one").trim().to_owned();
            Err((why, "let the container make them (docker run --security-opt seccomp=unconfined)".into()))
        }
        Err(_) => Err(("unshare is not installed".to_owned(), "install the package util-linux".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_is_one_line_with_its_remedy() {
        let missing = MissingPrerequisite {
            what: "nft",
            why: "not installed".to_owned(),
            fix: "install the package nftables".to_owned(),
        };
        assert_eq!(missing.to_string(), "missing: nft: not installed; fix: install the package nftables");
        assert_eq!(line("nft", "plait run", &Err(missing.clone())), format!("{missing} [plait run]"));
        assert_eq!(line("nft", "plait run", &Ok("v1".to_owned())), "ok: nft: v1");
    }

    #[test]
    fn a_program_that_is_not_there_is_a_lack() {
        let (why, _) = program("plait-no-such-program", &[], "none").expect_err("there is none");
        assert_eq!(why, "not installed");
    }
}
