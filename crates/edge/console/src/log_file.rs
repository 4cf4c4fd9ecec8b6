//! Log files: appended to, and opened again at a signal, as logrotate expects.
//!
//! Each line is one write in append mode. So a program that copies a file and then empties it (`copytruncate`) leaves no gap, and a full
//! disk costs lines and nothing else.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;

/// All open files, for the signal.
static OPEN: Mutex<Vec<Arc<LogFile>>> = Mutex::new(Vec::new());

/// A file that lines are appended to. It stays open to the end of the program.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Whether the last line may lack its end, because the disk was full.
    is_torn: bool,
}

impl LogFile {
    /// Opens a file, and creates it if it is missing, with mode 0640.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> anyhow::Result<Arc<Self>> {
        let file = append_to(path).with_context(|| format!("cannot write to {}", path.display()))?;
        let file = Mutex::new(Open { file, is_torn: false });
        let log = Arc::new(Self { path: path.to_owned(), file });
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&log));
        Ok(log)
    }

    /// Appends a line, with its end. A line that cannot be written is dropped.
    pub fn append(&self, line: &[u8]) {
        let mut open = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Open { file, is_torn } = &mut *open;
        if *is_torn && file.write_all(b"\n").is_err() {
            return;
        }
        *is_torn = file.write_all(line).is_err();
    }

    /// Opens the file of this name again. If that fails, lines go on into the earlier one.
    fn reopen(&self) -> io::Result<()> {
        let file = append_to(&self.path)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Open { file, is_torn: false };
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

/// Whether there is a file to open again.
#[must_use]
pub fn is_any_open() -> bool {
    !OPEN.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Opens all files again. Returns those that could not be opened, with the reason.
#[must_use]
pub fn reopen_all() -> Vec<(PathBuf, io::Error)> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    open.iter().filter_map(|log| log.reopen().err().map(|error| (log.path.clone(), error))).collect()
}

/// A log file as the log of the program.
#[derive(Clone, Debug)]
pub struct Appender(pub Arc<LogFile>);

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("plait-log-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_file_that_was_emptied_or_renamed_has_no_gap() {
        let (path, old) = (scratch("rotated"), scratch("rotated.1"));
        let log = LogFile::open(&path).expect("opened");
        log.append(b"one\n");
        fs::write(&path, "").expect("emptied");
        log.append(b"two\n");
        assert_eq!(fs::read_to_string(&path).expect("read"), "two\n", "not after a gap of zeros");
        fs::rename(&path, &old).expect("renamed");
        log.append(b"three\n");
        assert_eq!(fs::read_to_string(&old).expect("read"), "two\nthree\n");
        assert!(is_any_open() && reopen_all().is_empty());
        log.append(b"four\n");
        assert_eq!(fs::read_to_string(&path).expect("read"), "four\n");
        for file in [path, old] {
            fs::remove_file(file).expect("removed");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_costs_the_line_and_a_missing_directory_is_an_error() {
        let log = LogFile::open(Path::new("/dev/full")).expect("every Linux has it");
        log.append(b"one\n");
        log.append(b"two\n");
        let error = LogFile::open(Path::new("/nonexistent/log")).expect_err("no directory");
        assert_eq!(error.to_string(), "cannot write to /nonexistent/log");
    }
}
