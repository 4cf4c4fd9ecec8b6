//! The devices of a host, and their use.

use std::fmt;
use std::str::FromStr;

use plait_base::PathId;
use plait_mptcp::{Path, PathClass};

use crate::error::Error;
use crate::sys::fault_of;

/// A device to use as a path. It need not exist yet: it is used when it appears.
///
/// ```
/// use plait_host::{PathClass, PathSpec};
///
/// let path: PathSpec = "wwan0=untrusted,backup".parse()?;
/// assert_eq!(path.device(), "wwan0");
/// assert_eq!(path.class(), PathClass::Untrusted);
/// assert!(path.is_backup());
/// # Ok::<(), plait_host::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathSpec {
    device: String,
    class: PathClass,
    use_as: Use,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Regular,
    Backup,
}

impl PathSpec {
    /// Returns a path over the device called `device`, trusted and not a backup.
    ///
    /// # Errors
    /// No device can have that name.
    pub fn new(device: &str) -> Result<Self, Error> {
        if let Some(reason) = fault_of(device) {
            return Err(Error::DeviceName { name: device.to_owned(), reason });
        }
        Ok(Self { device: device.to_owned(), class: PathClass::default(), use_as: Use::Regular })
    }

    /// Sets the class.
    #[must_use]
    pub fn with_class(mut self, class: PathClass) -> Self {
        self.class = class;
        self
    }

    /// Makes the path a backup, used only when no other path works.
    #[must_use]
    pub fn as_backup(mut self) -> Self {
        self.use_as = Use::Backup;
        self
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The trust level.
    #[must_use]
    pub fn class(&self) -> PathClass {
        self.class
    }

    /// Whether it is used only when no other path works.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.use_as == Use::Backup
    }
}

/// As it can be parsed again.
impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.class {
            PathClass::Trusted => "trusted",
            PathClass::Untrusted => "untrusted",
            PathClass::Never => "never",
        };
        write!(f, "{}={class}{}", self.device, if self.is_backup() { ",backup" } else { "" })
    }
}

/// `DEV`, or `DEV=` and some of `trusted`, `untrusted`, `never`, `backup` with commas between them.
impl FromStr for PathSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (device, attributes) = text.split_once('=').unwrap_or((text, ""));
        let mut path = Self::new(device)?;
        for attribute in attributes.split(',').filter(|attribute| !attribute.is_empty()) {
            path = match attribute {
                "trusted" => path.with_class(PathClass::Trusted),
                "untrusted" => path.with_class(PathClass::Untrusted),
                "never" => path.with_class(PathClass::Never),
                "backup" => path.as_backup(),
                _ => {
                    let reason = "behind '=' stand trusted, untrusted, never or backup";
                    return Err(Error::DeviceName { name: text.to_owned(), reason });
                }
            };
        }
        Ok(path)
    }
}

/// A path of a carrier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NumberedPath {
    pub(crate) id: PathId,
    pub(crate) spec: PathSpec,
}

/// Sets the class and use of the path of a device, among paths with their present state. Returns the changed path, if it has been looked at
/// yet.
///
/// # Errors
/// No path is over that device.
pub(crate) fn use_path<'a>(
    mut paths: impl Iterator<Item = (&'a mut PathSpec, &'a mut Option<Path>)>,
    spec: PathSpec,
) -> Result<Option<Path>, Error> {
    let Some((old, current)) = paths.find(|(old, _)| old.device() == spec.device()) else {
        return Err(Error::UnknownPath { name: spec.device });
    };
    if let Some(current) = current {
        (current.class, current.backup) = (spec.class(), spec.is_backup());
    }
    *old = spec;
    Ok(current.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_stand_behind_the_device() {
        let plain: PathSpec = "eth0".parse().expect("a device");
        assert_eq!((plain.class(), plain.is_backup()), (PathClass::Trusted, false));
        let backup: PathSpec = "eth0.7=backup".parse().expect("a device");
        assert_eq!(backup.to_string(), "eth0.7=trusted,backup");
        assert_eq!((backup.class(), backup.is_backup()), (PathClass::Trusted, true));
        let never: PathSpec = "wlp3s0=never".parse().expect("a device");
        assert_eq!(never.class(), PathClass::Never);
    }

    #[test]
    fn names_that_would_be_read_otherwise_by_other_programs_are_refused() {
        for name in ["", "-all", "a b", "x\"; drop", "../eth0", "..", "abcdefghijklmnop", "eth0;", "é"] {
            assert!(PathSpec::new(name).is_err(), "{name:?}");
        }
        assert!("eth0=fast".parse::<PathSpec>().is_err());
    }
}
