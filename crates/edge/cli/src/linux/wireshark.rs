//! `plait wireshark`: the dissector for Wireshark and tshark, which is a part of the program.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use crate::output;

/// A file of the dissector, and its name.
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../wireshark/", $name)))),+]
    };
}

/// The dissector: Wireshark loads all files of a folder of plugins, and `plait.lua` uses the others.
const FILES: [(&str, &str); 16] = files![
    "plait.lua",
    "plait_bits.lua",
    "plait_ciphers.lua",
    "plait_connection.lua",
    "plait_datagram.lua",
    "plait_exposure.lua",
    "plait_fields.lua",
    "plait_flow.lua",
    "plait_handshake.lua",
    "plait_hash.lua",
    "plait_keys.lua",
    "plait_packet.lua",
    "plait_records.lua",
    "plait_show.lua",
    "plait_stream.lua",
    "plait_tracker.lua",
];

/// Where Wireshark looks for the plugins of a user, below the home directory.
const PLUGINS: &str = ".local/lib/wireshark/plugins";
/// The folder of the dissector there.
const FOLDER: &str = "plait";

/// The arguments of `wireshark`.
#[derive(Debug, Args)]
#[command(
    after_help = "Decrypt with a key log: SSLKEYLOGFILE=keys plait connect …, and wireshark -o plait.keylog:keys CAPTURE."
)]
pub(crate) struct Wireshark {
    /// Write the dissector, in place of an earlier one; without it, only the place is printed.
    #[arg(long)]
    install: bool,
    /// Directory of Wireshark's plugins; the dissector goes into its folder `plait` [default: ~/.local/lib/wireshark/plugins].
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Wireshark {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no home directory, or a file cannot be written.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let place = self.place()?.join(FOLDER);
        let mut words = String::new();
        if self.install {
            install(&place).with_context(|| format!("cannot write the dissector to {}", place.display()))?;
            let _ = writeln!(words, "wrote {} files to {}", FILES.len(), place.display());
            let _ = writeln!(words, "restart Wireshark, or Analyze > Reload Lua Plugins");
        } else {
            let _ = writeln!(words, "plait wireshark --install writes the dissector to {}", place.display());
        }
        let _ = writeln!(words, "decrypt:  tshark -o plait.keylog:KEYLOG -r CAPTURE -Y plait -V");
        output::result(words)
    }

    fn place(&self) -> anyhow::Result<PathBuf> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Ok(Path::new(&home).join(PLUGINS)),
            None => bail!(
                "HOME is not set\n  fix: plait wireshark --directory DIR, the directory of Wireshark's plugins"
            ),
        }
    }
}

/// Writes all files, each as a whole, and removes those that only earlier versions had.
fn install(place: &Path) -> io::Result<()> {
    fs::create_dir_all(place)?;
    for (name, text) in FILES {
        // Wireshark loads names that end in .lua.
        let new = place.join(format!(".{name}.new"));
        fs::write(&new, text)?;
        fs::rename(&new, place.join(name))?;
    }
    for entry in fs::read_dir(place)? {
        let name = entry?.file_name();
        let known = |name: &str| FILES.iter().any(|(file, _)| *file == name);
        let is_old = name
            .to_str()
            .is_some_and(|name| name.starts_with("plait_") && name.ends_with(".lua") && !known(name));
        if is_old {
            fs::remove_file(place.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_dissector_is_a_part_of_the_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("wireshark");
        let found = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").file_name());
        let mut found: Vec<_> = found.map(|name| name.into_string().expect("a name")).collect();
        // Only tests run it.
        found.retain(|name| name != "selftest.lua");
        found.sort();
        assert_eq!(found, FILES.map(|(name, _)| name));
    }
}
