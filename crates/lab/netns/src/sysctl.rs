//! Kernel settings of one namespace.

use std::fs;

use crate::{Error, Namespace, Result};

impl Namespace {
    /// Sets a kernel setting of this namespace, by its dotted name (`net.ipv4.ip_forward`); a device name with dots is written
    /// with slashes, as `sysctl` takes it.
    ///
    /// # Errors
    /// The setting does not exist, is not one of the namespace, or the value is refused.
    pub fn set_sysctl(&self, name: &str, value: impl std::fmt::Display) -> Result<()> {
        let (path, value) = (path_of(name), value.to_string());
        self.enter(|| fs::write(&path, &value))?
            .map_err(|error| Error::system(format!("set {name} to {value}"), error))
    }

    /// Reads a kernel setting of this namespace, without the line's end.
    ///
    /// # Errors
    /// The setting does not exist.
    pub fn sysctl(&self, name: &str) -> Result<String> {
        let path = path_of(name);
        let text = self
            .enter(|| fs::read_to_string(&path))?
            .map_err(|error| Error::system(format!("read {name}"), error))?;
        Ok(text.trim_end().to_owned())
    }
}

fn path_of(name: &str) -> String {
    let relative = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    format!("/proc/sys/{relative}")
}
