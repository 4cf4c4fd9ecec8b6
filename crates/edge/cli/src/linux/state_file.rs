//! Files of state: JSON that survives restarts, and that several plaits of a user may share.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use plait_keys::{ReadListError, lock_list, read_state, replace_file};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::output::say;

/// A file, and what is known of it.
#[derive(Debug)]
pub(crate) struct StateFile {
    file: PathBuf,
    /// Its contents, for people.
    what: &'static str,
    /// The largest file that is read, in bytes.
    most: u64,
    /// The last failure to write, which is logged once.
    failure: Option<String>,
}

impl StateFile {
    /// Opens a file, and returns its contents. An invalid file is renamed, and counting begins at zero. A file that cannot be read stays.
    pub(crate) fn open<T: DeserializeOwned + Default>(
        file: PathBuf,
        what: &'static str,
        most: u64,
    ) -> (Self, T) {
        let state = Self { file, what, most, failure: None };
        let contents = state.read().unwrap_or_else(|error| {
            let kept = match is_invalid(&error).then(|| aside(&state.file)) {
                Some(Ok(aside)) => format!("it is {} now", aside.display()),
                Some(Err(error)) => format!("it stays, {error}"),
                // It may be readable again later, and then counts.
                None => "it stays".to_owned(),
            };
            say(&format!("warning: {what} are counted from zero: {error:#}; {kept}"));
            T::default()
        });
        (state, contents)
    }

    fn read<T: DeserializeOwned + Default>(&self) -> anyhow::Result<T> {
        let Some(text) = read_state(&self.file, self.most)? else { return Ok(T::default()) };
        serde_json::from_str(&text)
            .with_context(|| format!("{} is no file of {}", self.file.display(), self.what))
    }

    /// Changes the contents, as the file has them now, and returns them. A failure is logged once, and `None` returned: nothing is changed
    /// then.
    pub(crate) fn change<T: DeserializeOwned + Default + Serialize>(
        &mut self,
        change: impl FnOnce(&mut T),
    ) -> Option<T> {
        match self.changed(change) {
            Ok(contents) => {
                self.failure = None;
                Some(contents)
            }
            Err(error) => {
                let failure = format!("{error:#}");
                if self.failure.as_ref() != Some(&failure) {
                    tracing::error!("{} are not written, and are tried again: {failure}", self.what);
                }
                self.failure = Some(failure);
                None
            }
        }
    }

    fn changed<T: DeserializeOwned + Default + Serialize>(
        &self,
        change: impl FnOnce(&mut T),
    ) -> anyhow::Result<T> {
        let place = || format!("cannot write {}", self.file.display());
        if let Some(directory) = self.file.parent() {
            fs::create_dir_all(directory).with_context(place)?;
        }
        let _lock = lock_list(&self.file).with_context(place)?;
        let mut contents = self.read()?;
        change(&mut contents);
        let text = serde_json::to_string_pretty(&contents)? + "\n";
        replace_file(&self.file, text.as_bytes(), 0o600).with_context(place)?;
        Ok(contents)
    }
}

/// Whether the contents of a file are at fault, or the file is none: not the disk, and not the permission to read it.
fn is_invalid(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<ReadListError>() {
        Some(ReadListError::Io { source, .. }) => {
            matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::FileTooLarge | ErrorKind::Other)
        }
        // Another user may have written it; or it is no JSON.
        Some(_) | None => true,
    }
}

/// Renames an invalid file, and returns its new name.
fn aside(file: &Path) -> std::io::Result<PathBuf> {
    let mut aside = file.as_os_str().to_owned();
    aside.push(".bad");
    fs::rename(file, &aside)?;
    Ok(aside.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    type Counts = BTreeMap<String, u64>;
    const MOST: u64 = 1 << 16;

    fn open(file: &Path) -> (StateFile, Counts) {
        StateFile::open(file.to_owned(), "the counts of a test", MOST)
    }

    /// What may be in the place of a state file, and whether it is put aside.
    /// Makes a bad file of a path.
    type Spoil = fn(&Path);
    const BAD: [(&str, Spoil, bool); 10] = [
        ("empty", |file| fs::write(file, "").expect("written"), true),
        ("cut", |file| fs::write(file, "{\"a\": 1").expect("written"), true),
        ("of another form", |file| fs::write(file, "{\"a\": -1}").expect("written"), true),
        ("no text", |file| fs::write(file, [0xff; 9]).expect("written"), true),
        ("huge", |file| fs::File::create(file).and_then(|file| file.set_len(1 << 40)).expect("sparse"), true),
        ("deep", |file| fs::write(file, "[".repeat(1 << 15)).expect("written"), true),
        (
            "writable by others",
            |file| {
                fs::write(file, "{\"a\": 9}").expect("written");
                fs::set_permissions(file, fs::Permissions::from_mode(0o666)).expect("ours");
            },
            true,
        ),
        ("a directory", |file| fs::create_dir(file).expect("made"), true),
        ("a pipe", |file| mkfifo(file, Mode::S_IRWXU).expect("made"), true),
        ("a link to itself", |file| symlink(file, file).expect("made"), false),
    ];

    #[test]
    fn nothing_in_the_place_of_a_state_file_stops_or_delays_the_start_or_is_lost() {
        for (what, make, is_put_aside) in BAD {
            let scratch = tempfile::tempdir().expect("a directory");
            let file = scratch.path().join("counts.json");
            make(&file);
            let (mut state, contents) = open(&file);
            assert_eq!(contents, Counts::new(), "{what}");
            let aside = scratch.path().join("counts.json.bad");
            assert_eq!(fs::symlink_metadata(&aside).is_ok(), is_put_aside, "{what}");
            let add = |counts: &mut Counts| *counts.entry("a".to_owned()).or_default() += 1;
            if is_put_aside {
                assert_eq!(state.change(add).expect(what)["a"], 1);
                assert_eq!(open(&file).1["a"], 1, "{what}");
            } else {
                assert_eq!(state.change(add), None, "{what}");
            }
        }
    }

    #[test]
    fn a_file_that_goes_bad_while_it_is_in_use_stays_and_nothing_is_written() {
        for (what, make, _) in BAD {
            let scratch = tempfile::tempdir().expect("a directory");
            let file = scratch.path().join("counts.json");
            let (mut state, _) = open(&file);
            make(&file);
            let before = fs::symlink_metadata(&file).expect("there").len();
            let add = |counts: &mut Counts| *counts.entry("a".to_owned()).or_default() += 1;
            assert_eq!(state.change(add), None, "{what}");
            assert!(state.failure.is_some());
            assert_eq!(fs::symlink_metadata(&file).expect("there").len(), before, "{what}");
        }
    }

    #[test]
    fn a_lock_that_is_a_pipe_delays_nothing() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("counts.json");
        let (mut state, _) = open(&file);
        mkfifo(&scratch.path().join("counts.json.lock"), Mode::S_IRWXU).expect("made");
        assert_eq!(state.change(|_: &mut Counts| {}), None);
    }
}
