//! The paths of a host: a device and its use.

use plait_base::PathId;
use plait_mptcp::PathClass;

use crate::error::Error;
use crate::sys::fault_of;

/// A device to use as a path. It need not exist yet: it is used when it appears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PathSpec {
    device: String,
    class: PathClass,
    use_as: Use,
}

/// Whether a path waits for the others to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Regular,
    Backup,
}

impl PathSpec {
    /// Returns a path over the device called `device`, trusted and not a backup.
    ///
    /// # Errors
    /// No device can have that name.
    pub(crate) fn new(device: &str) -> Result<Self, Error> {
        if let Some(reason) = fault_of(device) {
            return Err(Error::DeviceName { name: device.to_owned(), reason });
        }
        Ok(Self { device: device.to_owned(), class: PathClass::default(), use_as: Use::Regular })
    }

    /// Sets the class.
    pub(crate) fn with_class(mut self, class: PathClass) -> Self {
        self.class = class;
        self
    }

    /// Makes the path a backup, used only when no other path works.
    pub(crate) fn into_backup(mut self) -> Self {
        self.use_as = Use::Backup;
        self
    }

    /// The device.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// The trust level.
    pub(crate) fn class(&self) -> PathClass {
        self.class
    }

    /// Whether it is used only when no other path works.
    pub(crate) fn is_backup(&self) -> bool {
        self.use_as == Use::Backup
    }
}

/// The word for a class on the command line.
pub(crate) fn class_word(class: PathClass) -> &'static str {
    match class {
        PathClass::Trusted => "trusted",
        PathClass::Untrusted => "untrusted",
        PathClass::Never => "never",
    }
}

/// A path of a carrier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NumberedPath {
    pub(crate) id: PathId,
    pub(crate) spec: PathSpec,
    /// Whether the path may be used: its device is there or expected.
    pub(crate) is_selected: bool,
}
