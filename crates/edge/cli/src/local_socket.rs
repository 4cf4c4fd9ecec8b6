//! Sockets in the file system at which programs connect: `plait forward -L /PATH:…`.
//!
//! A file is never replaced, except a socket of this user that no program listens on: an earlier plait was killed. At the end the file is
//! removed, if it is still the one that was made here.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::libc::mode_t;
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use tokio::net::UnixListener;

/// A program that has connected.
pub(crate) type Client = tokio::net::UnixStream;

/// A listening socket, whose file lasts as long as this value.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
    file: Identity,
}

/// Device and inode of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity(u64, u64);

impl LocalSocket {
    /// Listens at `path`. Programs of the users that `mode` names can connect.
    ///
    /// # Errors
    /// There is a file that this user's earlier plait has not left, or the directory cannot be written.
    pub(crate) fn listen(path: &Path, mode: u32) -> anyhow::Result<Self> {
        let context = || format!("cannot listen on {}", path.display());
        let listener = match bind(path, mode) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_abandoned(path).with_context(context)?;
                bind(path, mode)
            }
            bound => bound,
        };
        let listener = listener.with_context(context)?;
        let file = identity(path).with_context(context)?;
        Ok(Self { listener, path: path.to_owned(), file })
    }

    /// The next program.
    pub(crate) async fn accept(&self) -> io::Result<Client> {
        self.listener.accept().await.map(|(client, _)| client)
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.file)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "a socket is left behind");
        }
    }
}

/// The file has its mode from the start: another user must not connect before it is set.
fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    // This is the time of the start: no other thread makes files that others should see.
    // The type of these bits differs between systems; nine of them fit in each.
    let before = umask(Mode::from_bits_truncate((!mode & 0o777) as mode_t));
    let bound = UnixListener::bind(path);
    umask(before);
    bound
}

/// Removes a socket of this user without a listener.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let found = identity_of_abandoned(path)?;
    // Another plait may do the same at this moment, and listen there by now: only the file that was judged is removed.
    let aside = aside(path);
    fs::rename(path, &aside)?;
    if identity(&aside)? == found {
        return fs::remove_file(&aside);
    }
    // Of two names one is removed; a link does not replace a file.
    fs::hard_link(&aside, path)?;
    fs::remove_file(&aside)?;
    Err(in_use("another program has just begun to listen there"))
}

/// # Errors
/// It is no socket, another user's, or a program listens there.
fn identity_of_abandoned(path: &Path) -> io::Result<Identity> {
    let file = fs::symlink_metadata(path)?;
    if !file.file_type().is_socket() {
        return Err(in_use("there is a file that is no socket\n  fix: another path"));
    }
    if file.uid() != geteuid().as_raw() {
        return Err(in_use("there is a socket of another user\n  fix: another path"));
    }
    match Probe::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Identity(file.dev(), file.ino())),
        Ok(_) | Err(_) => Err(in_use("a program listens there already\n  fix: end it, or use another path")),
    }
}

fn in_use(why: &str) -> io::Error {
    io::Error::new(ErrorKind::AddrInUse, why.to_owned())
}

fn aside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".plait-{}.old", std::process::id()))
}

fn identity(path: &Path) -> io::Result<Identity> {
    let file = fs::symlink_metadata(path)?;
    Ok(Identity(file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn listen(path: &Path) -> Result<LocalSocket, String> {
        LocalSocket::listen(path, 0o600).map_err(|error| format!("{error:#}"))
    }

    #[tokio::test]
    async fn a_file_that_is_no_dead_socket_of_ours_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("app");
        for make in [
            |path: &Path| fs::write(path, "precious").expect("written"),
            |path: &Path| fs::create_dir(path).expect("made"),
            |path: &Path| std::os::unix::fs::symlink("/nowhere", path).expect("made"),
        ] {
            make(&path);
            let before = identity(&path).expect("there");
            assert!(listen(&path).expect_err("in use").contains("no socket"));
            assert_eq!(identity(&path).expect("there"), before);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
        let alive = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        assert!(listen(&path).expect_err("in use").contains("a program listens there"));
        drop(alive);
        let ours = listen(&path).expect("the dead socket is replaced");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(listen(&path).expect_err("in use").contains("a program listens there"));
        drop(ours);
        assert!(!path.exists() && fs::read_dir(directory.path()).expect("there").next().is_none());
    }

    #[tokio::test]
    async fn a_file_that_has_taken_its_place_is_not_removed_at_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("app");
        let ours = LocalSocket::listen(&path, 0o660).expect("free");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o660);
        fs::remove_file(&path).expect("there");
        fs::write(&path, "another").expect("written");
        drop(ours);
        assert_eq!(fs::read_to_string(&path).expect("there"), "another");
    }
}
