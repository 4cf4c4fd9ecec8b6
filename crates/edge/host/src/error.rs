//! Errors of setting up a host. Each error names its cause, its place and its fix.

use std::io;
use std::process::ExitStatus;

use crate::carriers::CarrierKind;

/// An error of setting up a host or a listener.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The TUN device cannot be made.
    #[error("cannot create a TUN device: {source}\n  fix: {fix}")]
    Tun {
        /// The kernel's answer.
        source: io::Error,
        /// The fix.
        fix: &'static str,
    },
    /// This build of plait has no such carrier.
    #[error(
        "this build of plait has no {carrier}\n  fix: build it with the feature `{carrier}`, or choose another carrier"
    )]
    NotBuilt {
        /// The carrier.
        carrier: CarrierKind,
    },
    /// A program that sets up the network failed.
    #[error("`{command}` failed ({status}): {message}")]
    Program {
        /// The command line.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error.
        message: String,
    },
    /// A program is not installed, or may not be executed.
    #[error("cannot start `{program}`: {source}\n  fix: {}", fix_of_start(source))]
    MissingProgram {
        /// Its name.
        program: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A kernel setting cannot be changed.
    #[error("cannot set {name} to {value}: {source}\n  fix: run as root, with /proc/sys and /run writable")]
    Setting {
        /// Its path below `/proc/sys`.
        name: String,
        /// The value that is needed.
        value: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A path has an invalid device name.
    #[error("`{name}` cannot be the name of a device: {reason}")]
    DeviceName {
        /// The name as given.
        name: String,
        /// The reason.
        reason: &'static str,
    },
    /// The same devices twice.
    #[error("the path {name} is given twice")]
    DuplicatePath {
        /// The devices, as in the text of the rule.
        name: String,
    },
    /// There is no rule to remove.
    #[error(
        "no path was given as {devices}\n  fix: give it as it was added, or keep one device of a pattern away by {devices}=never"
    )]
    NoSuchRule {
        /// The devices, as in the text of the rule.
        devices: String,
    },
    /// The path to change does not exist.
    #[error("this host has no path {name}\n  fix: name one that it has, or add this one")]
    UnknownPath {
        /// The device.
        name: String,
    },
    /// A host needs a path, and has room for a limited number of them.
    #[error("{count} paths: a host has between 1 and {max}\n  fix: name the devices to use with --path")]
    PathCount {
        /// How many were given.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// Every private range that was tried is in use on this host.
    #[error(
        "all private ranges for the addresses of the stack overlap with routes of this host\n  fix: give a free one with --range"
    )]
    NoFreeRange,
    /// The port is taken.
    #[error("port {port} is in use: {holder}\n  fix: end it, or choose another port")]
    PortInUse {
        /// The port.
        port: u16,
        /// The program that holds it.
        holder: &'static str,
    },
    /// The capture file cannot be written.
    #[error("cannot write the capture {file}: {source}")]
    Capture {
        /// Its name.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// Some other call to the system failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action, as the end of the sentence "cannot ...".
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The host has ended: its device was deleted, or it was shut down.
    #[error("the host has been shut down")]
    Gone,
}

/// What helps if a program of the network cannot be started.
fn fix_of_start(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "install the package that has it (iproute2 or nftables)",
        io::ErrorKind::PermissionDenied => "let this user execute it",
        // It is installed, and a limit of this process is reached: too many open files, too many processes.
        _ => "see the limits of this process (ulimit -n and -u; LimitNOFILE= and LimitNPROC= of systemd)",
    }
}

impl Error {
    pub(crate) fn tun(source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let fix = match source.kind() {
            io::ErrorKind::PermissionDenied => {
                "run as root, or give the program CAP_NET_ADMIN and access to /dev/net/tun"
            }
            io::ErrorKind::NotFound => {
                "load the module (modprobe tun), or give the container the device /dev/net/tun"
            }
            io::ErrorKind::InvalidInput => {
                "use a kernel with TUN devices that know virtio-net headers (Linux 4.1 or newer)"
            }
            io::ErrorKind::Unsupported => "let UDP carry the connections",
            _ => "see the kernel's log (dmesg)",
        };
        Self::Tun { source, fix }
    }

    pub(crate) fn system(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { action, source: source.into() }
    }

    /// Whether a privilege, a device, a program or a feature of this build is missing, as opposed to a wrong request.
    #[must_use]
    pub fn is_missing_privilege_or_feature(&self) -> bool {
        match self {
            Self::Tun { .. }
            | Self::NotBuilt { .. }
            | Self::MissingProgram { .. }
            | Self::Setting { .. }
            | Self::Program { .. } => true,
            Self::DeviceName { .. }
            | Self::DuplicatePath { .. }
            | Self::UnknownPath { .. }
            | Self::NoSuchRule { .. }
            | Self::PathCount { .. }
            | Self::NoFreeRange
            | Self::PortInUse { .. }
            | Self::Capture { .. }
            | Self::System { .. }
            | Self::Gone => false,
        }
    }
}
