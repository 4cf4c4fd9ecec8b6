//! The files of configurations: `NAME.toml` in the directories of the user and of the system.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use plait_keys::read_state;

use crate::protection::default_store;

/// The largest file that is read: a thousand rules have 40 KiB.
const MOST_BYTES: u64 = 1 << 20;
/// The configuration that is used if none is named.
const DEFAULT: &str = "plait";
/// The configurations of the system.
const SYSTEM: &str = "/etc/plait";

/// Returns the file that `--config` means; `None` for an empty text, which means no file, and if the default configuration does not exist
/// or is in a directory that this user cannot look into.
///
/// # Errors
/// There is no configuration with this name.
pub(crate) fn find(named: Option<&OsStr>) -> anyhow::Result<Option<PathBuf>> {
    let Some(named) = named else {
        // The home may be that of another user, as after su, and root's directory of keys is closed to others.
        return Ok(places(DEFAULT).into_iter().find(|file| fs::metadata(file).is_ok()));
    };
    if named.is_empty() {
        return Ok(None);
    }
    let file = Path::new(named);
    if file.components().count() > 1 || file.extension().is_some_and(|extension| extension == "toml") {
        return Ok(Some(file.to_owned()));
    }
    let Some(name) = named.to_str() else { bail!("{} is no name of a configuration", file.display()) };
    let places = places(name);
    let listed = || places.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and no ");
    match places.iter().find(|file| exists(file)) {
        Some(file) => Ok(Some(file.clone())),
        None => bail!("there is no configuration {name}: no {}", listed()),
    }
}

/// The files with this name, the first one that exists counts.
fn places(name: &str) -> Vec<PathBuf> {
    let file = format!("{name}.toml");
    let mut places = vec![default_store().path(&file)];
    let system = Path::new(SYSTEM).join(file);
    if !places.contains(&system) {
        places.push(system);
    }
    places
}

/// A file that cannot be looked at exists: reading it names the reason.
fn exists(file: &Path) -> bool {
    match fs::metadata(file) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Reads a configuration that no other user can change: it names programs and servers.
///
/// # Errors
/// It is missing, unreadable, not a regular file, too large, not UTF-8, or another user can change it.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    read_state(file, MOST_BYTES)?
        .with_context(|| format!("cannot read {}: it does not exist", file.display()))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_path_or_an_ending_means_a_file_and_other_words_a_name() {
        let found = |named: &str| find(Some(OsStr::new(named)));
        assert_eq!(found("./gw").expect("a path"), Some(PathBuf::from("./gw")));
        assert_eq!(found("gw.toml").expect("a file"), Some(PathBuf::from("gw.toml")));
        assert_eq!(found("").expect("none"), None);
        let error = found("surely-not-here").expect_err("no such name").to_string();
        assert!(error.contains("surely-not-here.toml"), "{error}");
    }

    #[test]
    fn only_regular_files_of_moderate_size_are_read_that_no_other_user_can_change() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("gw.toml");
        let failure = |file: &Path| format!("{:#}", read(file).expect_err("refused"));
        assert!(failure(&file).contains("cannot read"), "it is missing");
        assert!(failure(scratch.path()).contains("not a regular file"));
        fs::write(&file, "carrier = \"udp\"\n").expect("written");
        assert_eq!(read(&file).expect("good"), "carrier = \"udp\"\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("ours");
        assert!(failure(&file).contains("fix: chmod"), "{}", failure(&file));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
        fs::write(&file, [0xff, 0xfe]).expect("written");
        assert!(failure(&file).contains("UTF-8"), "{}", failure(&file));
        fs::File::create(&file).and_then(|file| file.set_len(MOST_BYTES + 1)).expect("sparse");
        assert!(failure(&file).contains("larger than"));
        let pipe = scratch.path().join("pipe.toml");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert!(failure(&pipe).contains("not a regular file"), "it must not wait for a writer");
    }
}
