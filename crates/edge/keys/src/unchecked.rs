//! Key files on systems without permission bits: readers and writers of a file are not checked, and a warning reports it. On Windows the
//! files of a user's profile are inherited as private to that user, until the permissions are changed.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::UNIX_EPOCH;

use tempfile::NamedTempFile;

use crate::key_log::OpenKeyLogError;
use crate::secret::ForeignFile;

/// Returns `None`, with a warning that the check is not possible.
pub(crate) fn exposed(_open: &File, name: &Path, _bits: u32) -> io::Result<Option<u32>> {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        crate::log::warn!(
            file = %name.display(),
            "this system does not check whether other users can read key files or change lists of trusted keys"
        );
    });
    Ok(None)
}

/// Returns `None`: the check is not possible, as [`exposed`] reports.
pub(crate) fn foreign(_open: &File, _name: &Path) -> io::Result<Option<ForeignFile>> {
    Ok(None)
}

/// Returns numbers that distinguish a file from an earlier one of the same name: its time of creation.
pub(crate) fn number(found: &Metadata) -> io::Result<[i64; 3]> {
    let since = found.created()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok([since.as_secs().cast_signed(), since.subsec_nanos().into(), 0])
}

/// Opens a file for reading.
pub(crate) fn open_at_once(file: &Path) -> io::Result<File> {
    File::open(file)
}

/// Makes a directory, and those above it, with the permissions that are inherited.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)
}

/// A file in `directory` under a name of its own, with the permissions that are inherited.
pub(crate) fn new_file(directory: &Path, _mode: u32) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(".plait-").tempfile_in(directory)
}

/// A directory cannot be opened to be synchronised: its names are on the disk when the system has them there.
pub(crate) fn sync_directory(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// Opens a file that only has a lock, or makes it.
pub(crate) fn open_lock(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(file)
}

/// Refuses a key log: it decrypts all connections, and its readers could not be checked.
pub(crate) fn open_key_log(path: &Path) -> Result<File, OpenKeyLogError> {
    Err(OpenKeyLogError::Unchecked { file: path.to_owned() })
}
