//! The directory where the running plaits of a user can be asked, each at a socket that is called after its process.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// How the name of a socket ends.
const SUFFIX: &str = ".sock";

/// Where this user's are: `/run/plait` for root, else in the directory of the session, or one in the place for temporary files.
pub(crate) fn own() -> PathBuf {
    let user = geteuid();
    if user.is_root() {
        return PathBuf::from("/run/plait");
    }
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || Some(PathBuf::from(format!("/run/user/{user}"))).filter(|path| path.is_dir());
    match session.or_else(usual) {
        Some(session) => session.join("plait"),
        None => std::env::temp_dir().join(format!("plait-{user}")),
    }
}

/// Those that this user may ask: root asks everybody's.
fn all() -> Vec<PathBuf> {
    let mut directories = vec![own()];
    if geteuid().is_root() {
        let sessions = fs::read_dir("/run/user").into_iter().flatten().flatten();
        directories.extend(sessions.map(|session| session.path().join("plait")));
    }
    directories
}

/// Listens as the process `pid` in `directory`, which is made if there is none. The name is there when the socket answers, not sooner.
///
/// # Errors
/// The directory is somebody else's, or cannot be made.
pub(crate) fn listen(directory: &Path, pid: u32) -> io::Result<(UnixListener, PathBuf)> {
    make(directory)?;
    let place = directory.join(format!("{pid}{SUFFIX}"));
    let unfinished = directory.join(format!("{pid}.new"));
    // An earlier process of this number was killed.
    let _ = fs::remove_file(&unfinished);
    let listener = UnixListener::bind(&unfinished)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
    fs::rename(&unfinished, &place)?;
    listener.set_nonblocking(true)?;
    Ok((listener, place))
}

/// A directory that nobody else can use: where everybody can make files, somebody may have made it before us.
fn make(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "it is somebody else's"));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The sockets of running plaits and their processes, in the order of these.
pub(crate) fn sockets() -> Vec<(u32, PathBuf)> {
    let mut found: Vec<_> = all().iter().flat_map(|directory| sockets_in(directory)).collect();
    found.sort();
    found
}

/// Those of a directory. Names that killed processes have left are removed.
fn sockets_in(directory: &Path) -> Vec<(u32, PathBuf)> {
    let process = |file: fs::DirEntry| {
        let is_socket = file.file_type().is_ok_and(|kind| kind.is_socket());
        let pid = file.file_name().to_str()?.strip_suffix(SUFFIX)?.parse().ok().filter(|_| is_socket)?;
        Some((pid, file.path()))
    };
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    files.filter_map(process).filter(|(_, place)| answers(place)).collect()
}

fn answers(place: &Path) -> bool {
    match UnixStream::connect(place) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let _ = fs::remove_file(place);
            false
        }
        // Gone meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        // Whoever wants to ask it learns why not.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_listens_is_found_by_its_process_and_what_was_left_behind_is_removed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path().join("plait");
        let (listener, place) = listen(&directory, 42).expect("ours");
        assert_eq!(fs::metadata(&directory).expect("made").mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&place).expect("made").mode() & 0o777, 0o600);
        assert_eq!(sockets_in(&directory), [(42, place.clone())]);
        drop(listener);
        assert!(place.exists(), "as a killed process leaves it");
        assert_eq!(sockets_in(&directory), []);
        assert!(!place.exists());
        let (_again, place) = listen(&directory, 42).expect("a number comes back");
        assert_eq!(sockets_in(&directory), [(42, place)]);
    }

    #[test]
    fn a_directory_that_others_could_use_is_closed_and_what_is_no_directory_is_refused() {
        let scratch = tempfile::tempdir().expect("a directory");
        let open = scratch.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("ours");
        drop(listen(&open, 1).expect("ours"));
        assert_eq!(fs::metadata(&open).expect("there").mode() & 0o777, 0o700);
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&open, &link).expect("made");
        assert_eq!(listen(&link, 1).expect_err("it leads elsewhere").kind(), ErrorKind::PermissionDenied);
    }
}
