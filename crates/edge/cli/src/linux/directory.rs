//! The directory with the control socket of each running plait of a user, named after its process.
//!
//! Other users can influence these directories: `/tmp` is open to every user, and a user owns the directory of its session, which root
//! looks into. A [`Directory`] is therefore opened once, without following a link, and checked. Each file that is read, made or removed in
//! it is named relative to the opened directory.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt::PeerCredentials,
};
use nix::unistd::{User, geteuid};

/// The file extension of a socket.
const SUFFIX: &str = ".sock";

/// The directory of the sockets of the services of systemd, and their user (packaging/systemd).
const SERVICES: &str = "/run/plait-services/plait";
const SERVICE_USER: &str = "plait";

/// Most sockets read in one directory: more plaits than a user runs.
const MAX_SOCKETS: usize = 4096;

/// An open directory of control sockets that belongs to the user of these processes.
#[derive(Debug)]
pub(crate) struct Directory {
    file: File,
    path: PathBuf,
    owner: u32,
}

/// The socket of a plait.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) pid: u32,
    directory: Arc<Directory>,
}

/// The directory of this user: `/run/plait` for root, otherwise in the directory of the session, or one in the directory of temporary
/// files.
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

/// Keeps the directory of root, which exists, until the socket of process `pid` is in it: a plait that ends removes an empty one.
pub(crate) fn hold(pid: u32) {
    if geteuid().is_root() {
        // `Socket::listen` removes the file. A file that a killed process with this number has left will do.
        let _ = File::create_new(own().join(format!("{pid}.new")));
    }
}

/// The directories that this user may query, with their owners: root queries the plaits of all users.
fn all() -> Vec<(PathBuf, u32)> {
    let user = geteuid();
    let mut directories = vec![(own(), user.as_raw())];
    if user.is_root() {
        let sessions = fs::read_dir("/run/user").into_iter().flatten().flatten();
        let of = |session: fs::DirEntry| {
            let owner = session.file_name().to_str()?.parse().ok()?;
            Some((session.path().join("plait"), owner))
        };
        directories.extend(sessions.filter_map(of));
        // The user of the units of systemd is there if the package is.
        let services = User::from_name(SERVICE_USER).ok().flatten();
        directories.extend(services.map(|user| (PathBuf::from(SERVICES), user.uid.as_raw())));
    }
    directories
}

/// The sockets of running plaits, in the order of their processes. Warns about unused directories that other users could influence.
pub(crate) fn sockets() -> Vec<Socket> {
    let mut found = Vec::new();
    for (path, owner) in all() {
        match Directory::open(&path, owner) {
            Ok(directory) => found.extend(Arc::new(directory).sockets()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, directory = %path.display(), "plaits that can be asked here are not told of");
            }
        }
    }
    found.sort_by_key(|socket| socket.pid);
    found
}

impl Directory {
    /// Opens the directory of `owner` at `path`. Removes the access of others to a directory of this user.
    ///
    /// # Errors
    /// The directory does not exist, is a link or no directory, belongs to another user, or others can write to it.
    pub(crate) fn open(path: &Path, owner: u32) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let refused = |why: &str| io::Error::new(ErrorKind::PermissionDenied, why.to_owned());
        let file = match fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
            Err(error)
                if [Errno::ELOOP, Errno::ENOTDIR]
                    .iter()
                    .any(|errno| error.raw_os_error() == Some(*errno as i32)) =>
            {
                return Err(refused("it is a link, or no directory\n  fix: remove it"));
            }
            other => other?,
        };
        let found = file.metadata()?;
        if found.uid() != owner {
            return Err(refused("it belongs to another user\n  fix: have it removed"));
        }
        if owner == geteuid().as_raw() {
            if found.mode() & 0o077 != 0 {
                file.set_permissions(Permissions::from_mode(0o700))?;
            }
        } else if found.mode() & 0o022 != 0 {
            return Err(refused("other users can write to it\n  fix: chmod 700"));
        }
        Ok(Self { file, path: path.to_owned(), owner })
    }

    /// Opens the directory of this user; creates it if it does not exist.
    fn make(path: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        Self::open(path, geteuid().as_raw())
    }

    /// A file of this name in the opened directory, wherever its path leads by now.
    fn place(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.file.as_raw_fd()))
    }

    fn is_own(&self) -> bool {
        self.owner == geteuid().as_raw()
    }

    /// The sockets of running plaits. Removes names that killed processes of this user have left.
    fn sockets(self: &Arc<Self>) -> Vec<Socket> {
        let pid = |file: fs::DirEntry| {
            let is_socket = file.file_type().is_ok_and(|kind| kind.is_socket());
            file.file_name().to_str()?.strip_suffix(SUFFIX)?.parse().ok().filter(|_| is_socket)
        };
        let files = fs::read_dir(self.place("")).into_iter().flatten().flatten();
        let sockets = files.filter_map(pid).take(MAX_SOCKETS);
        sockets.map(|pid| Socket { pid, directory: self.clone() }).filter(Socket::answers).collect()
    }
}

impl Socket {
    /// Listens as the process `pid` in `directory`, which is created if it does not exist. The name appears only when the socket answers.
    ///
    /// # Errors
    /// As [`Directory::open`], or the directory cannot be created.
    pub(crate) fn listen(directory: &Path, pid: u32) -> io::Result<(UnixListener, Self)> {
        let socket = Self { pid, directory: Arc::new(Directory::make(directory)?) };
        let unfinished = socket.directory.place(&format!("{pid}.new"));
        // An earlier process with this number was killed.
        let _ = fs::remove_file(&unfinished);
        let listener = UnixListener::bind(&unfinished)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
        fs::rename(&unfinished, socket.place())?;
        listener.set_nonblocking(true)?;
        Ok((listener, socket))
    }

    /// Connects without waiting: a listener with a full queue does not answer.
    ///
    /// # Errors
    /// There is no listener, it does not answer, or it runs as another user than the directory's.
    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(descriptor.as_raw_fd(), &UnixAddr::new(&self.place())?)?;
        if getsockopt(&descriptor, PeerCredentials)?.uid() != self.directory.owner {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "another user listens there"));
        }
        let stream = UnixStream::from(descriptor);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// The owner of the directory, if that is another user.
    pub(crate) fn other_owner(&self) -> Option<u32> {
        (!self.directory.is_own()).then_some(self.directory.owner)
    }

    /// Its name for people.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path.join(self.name())
    }

    /// Removes the name.
    pub(crate) fn remove(&self) {
        // Already removed.
        let _ = fs::remove_file(self.place());
    }

    fn name(&self) -> String {
        format!("{}{SUFFIX}", self.pid)
    }

    fn place(&self) -> PathBuf {
        self.directory.place(&self.name())
    }

    fn answers(&self) -> bool {
        match self.connect() {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                // Files of another user are for that user to remove.
                if self.directory.is_own() {
                    self.remove();
                }
                false
            }
            // Removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            // The question will return the reason.
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets_in(path: &Path) -> Vec<u32> {
        let directory = Directory::open(path, geteuid().as_raw()).expect("ours");
        Arc::new(directory).sockets().iter().map(|socket| socket.pid).collect()
    }

    /// The socket of a process that was killed.
    fn leave_socket(directory: &Path, name: &str) -> PathBuf {
        fs::create_dir_all(directory).expect("made");
        let place = directory.join(name);
        drop(UnixListener::bind(&place).expect("a free name"));
        place
    }

    #[test]
    fn a_listener_is_found_by_its_process_and_the_name_of_a_killed_one_is_removed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path().join("plait");
        let (listener, socket) = Socket::listen(&directory, 42).expect("ours");
        assert_eq!(fs::metadata(&directory).expect("made").mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(socket.path()).expect("made").mode() & 0o777, 0o600);
        assert_eq!(sockets_in(&directory), [42]);
        drop(listener);
        assert!(socket.path().exists(), "as a killed process leaves it");
        assert!(sockets_in(&directory).is_empty());
        assert!(!socket.path().exists());
        let (_again, socket) = Socket::listen(&directory, 42).expect("a number comes back");
        assert_eq!(sockets_in(&directory), [42]);
        socket.remove();
        assert!(!directory.join("42.sock").exists());
    }

    #[test]
    fn a_directory_that_others_could_use_is_closed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let open = scratch.path().join("open");
        for listens in [true, false] {
            let _ = fs::create_dir(&open);
            fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("ours");
            if listens {
                drop(Socket::listen(&open, 1).expect("ours"));
            } else {
                assert!(sockets_in(&open).is_empty());
            }
            assert_eq!(fs::metadata(&open).expect("there").mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn nothing_is_read_made_or_removed_through_a_link() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (elsewhere, link) = (scratch.path().join("elsewhere"), scratch.path().join("link"));
        let socket = leave_socket(&elsewhere, "7.sock");
        std::os::unix::fs::symlink(&elsewhere, &link).expect("made");
        let user = geteuid().as_raw();
        assert_eq!(Directory::open(&link, user).expect_err("a link").kind(), ErrorKind::PermissionDenied);
        assert_eq!(Socket::listen(&link, 1).expect_err("a link").kind(), ErrorKind::PermissionDenied);
        assert_eq!(Directory::open(&socket, user).expect_err("a socket").kind(), ErrorKind::PermissionDenied);
        assert!(socket.exists(), "another program has left it");
        assert_eq!(fs::read_dir(&elsewhere).expect("there").count(), 1);
    }

    #[test]
    fn a_directory_that_is_exchanged_for_a_link_once_it_is_open_leads_nowhere_else() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (elsewhere, place) = (scratch.path().join("elsewhere"), scratch.path().join("plait"));
        let socket = leave_socket(&elsewhere, "7.sock");
        leave_socket(&place, "7.sock");
        let directory = Arc::new(Directory::open(&place, geteuid().as_raw()).expect("ours"));
        fs::rename(&place, scratch.path().join("moved")).expect("renamed");
        std::os::unix::fs::symlink(&elsewhere, &place).expect("made");
        assert!(directory.sockets().is_empty());
        assert!(socket.exists(), "another program has left it");
        assert!(!scratch.path().join("moved/7.sock").exists(), "the one that was meant");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let scratch = tempfile::tempdir().expect("a directory");
        let other = geteuid().as_raw() + 1;
        let error = Directory::open(scratch.path(), other).expect_err("it is ours");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_another_user_has_left_is_not_removed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let place = leave_socket(&scratch.path().join("plait"), "7.sock");
        let mut directory = Directory::open(&scratch.path().join("plait"), geteuid().as_raw()).expect("ours");
        // The directory of a session as root sees it.
        directory.owner += 1;
        assert!(Arc::new(directory).sockets().is_empty());
        assert!(place.exists());
    }

    #[test]
    fn a_socket_that_leads_to_another_user_s_program_is_not_asked() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (_listener, socket) = Socket::listen(&scratch.path().join("plait"), 7).expect("ours");
        let mut directory = Directory::open(&scratch.path().join("plait"), geteuid().as_raw()).expect("ours");
        assert!(socket.connect().is_ok());
        directory.owner += 1;
        let socket = Socket { pid: 7, directory: Arc::new(directory) };
        assert_eq!(socket.connect().expect_err("not that user").kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_listener_that_takes_no_connection_holds_nothing_up() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (listener, socket) = Socket::listen(&scratch.path().join("plait"), 7).expect("ours");
        // The shortest queue, which holds one.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).expect("a number"))
            .expect("again");
        let connections: Vec<_> = (0..4).map(|_| socket.connect()).collect();
        let last = connections.into_iter().next_back().expect("four").expect_err("no room");
        assert_eq!(last.kind(), ErrorKind::WouldBlock);
    }
}
