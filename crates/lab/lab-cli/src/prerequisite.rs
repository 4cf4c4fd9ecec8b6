//! Missing prerequisites of the laboratory, found by trying.

use clap::Args;
use plait_console::output;
use plait_console::prerequisite::{self, Found, MissingPrerequisite, is_ordinary_user};

use crate::plait::Plait;

/// One prerequisite to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Privileges,
    Tun,
    Ip,
    Namespaces,
    UserNamespaces,
    KernelMultipath,
}

/// The prerequisites of a lab, for root.
const OF_ROOT: &[Check] = &[Check::Privileges, Check::Tun, Check::Ip, Check::Namespaces];

/// The same for an ordinary user, which is root in a user namespace there.
const OF_USER: &[Check] = &[Check::Tun, Check::Ip, Check::UserNamespaces];

impl Check {
    /// Returns the prerequisites of a lab of this user.
    fn of_lab() -> &'static [Self] {
        if is_ordinary_user() { OF_USER } else { OF_ROOT }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Privileges => "privileges",
            Self::Tun => "TUN device",
            Self::Ip => "ip",
            Self::Namespaces => "network namespaces",
            Self::UserNamespaces => "user namespaces",
            Self::KernelMultipath => "Multipath TCP of the kernel",
        }
    }

    /// The commands that need it.
    fn needed_by(self) -> &'static str {
        match self {
            Self::Privileges | Self::Tun | Self::Ip | Self::Namespaces | Self::UserNamespaces => {
                "up, demo, figures"
            }
            Self::KernelMultipath => "only for demo and figures, to compare with the kernel",
        }
    }

    /// Tries it: returns what is present, or what is missing.
    fn check(self) -> Result<String, MissingPrerequisite> {
        match self {
            Self::Privileges => prerequisite::privileges(),
            Self::Tun => prerequisite::tun(),
            Self::Ip => prerequisite::ip(),
            Self::Namespaces => prerequisite::network_namespaces(),
            Self::UserNamespaces => prerequisite::user_namespaces(),
            Self::KernelMultipath => kernel_multipath(),
        }
        .map_err(|missing| MissingPrerequisite::named(self.name(), missing))
    }
}

/// Reports the prerequisites of this user, a line each. Exit status 7 if a lab cannot be started, or if the program plait is missing.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    plait: Plait,
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut first = None;
        let plait = self.plait.find().map(|file| file.display().to_string());
        output::result(prerequisite::line("plait", "demo, figures", &plait) + "\n")?;
        for check in Check::of_lab().iter().chain(&[Check::KernelMultipath]) {
            let outcome = check.check();
            output::result(prerequisite::line(check.name(), check.needed_by(), &outcome) + "\n")?;
            if *check != Check::KernelMultipath {
                first = first.or(outcome.err());
            }
        }
        first.or(plait.err()).map_or(Ok(()), |missing| Err(missing.into()))
    }
}

/// Fails with the first missing prerequisite of a lab of this user.
pub(crate) fn of_lab() -> anyhow::Result<()> {
    Ok(Check::of_lab().iter().try_for_each(|check| check.check().map(drop))?)
}

/// The same for the figures of the papers, with measurements of the kernel's Multipath TCP.
pub(crate) fn of_figures() -> anyhow::Result<()> {
    of_lab()?;
    Ok(Check::KernelMultipath.check().map(drop)?)
}

fn kernel_multipath() -> Found {
    const FIX: &str = "sysctl net.mptcp.enabled=1, with a kernel that has CONFIG_MPTCP";
    match std::fs::read_to_string("/proc/sys/net/mptcp/enabled") {
        Ok(text) if text.trim() == "1" => Ok("enabled".to_owned()),
        Ok(_) => Err(("switched off".to_owned(), FIX.into())),
        Err(_) => Err(("this kernel has none".to_owned(), FIX.into())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        doctor: Doctor,
    }

    #[test]
    fn doctor_fails_if_the_program_plait_is_not_found() {
        let line = Line::try_parse_from(["doctor", "--plait", "/nowhere/plait"]).expect("valid");
        let error = line.doctor.run().expect_err("it is missing");
        // Where no lab can be started, the error names the first reason for that.
        assert!(error.is::<MissingPrerequisite>(), "{error}");
        assert!(error.to_string().contains("/nowhere/plait") || of_lab().is_err(), "{error}");
    }
}
