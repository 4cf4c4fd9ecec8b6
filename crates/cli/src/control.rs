//! The control socket of a running plait, and `plait path`, which asks it how the paths are used and changes that.
//!
//! A request is one line: paths to be used differently, as `DEV=HOW` with spaces between them, or nothing. The answer is a line
//! per path, or one that begins with `error: `. Then the connection ends.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use plait::{Host, PathControl, PathState};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::options::Options;

/// Longest request: as many paths as a host can have, with the longest names.
const MAX_REQUEST: u64 = 4096;
/// Who is slower than this at asking is let go, so that the next can ask.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What an answer begins with that is none.
const ERROR: &str = "error: ";

/// Show how a running plait uses its paths, or change it.
#[derive(Debug, Args)]
pub(crate) struct PathArguments {
    /// The socket that it was given with --control.
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// Paths to be used differently from now on, as for --path: DEV[=trusted|untrusted|never][,backup].
    #[arg(value_name = "DEV[=HOW]")]
    changes: Vec<plait::Path>,
}

/// Answers until it is dropped, which removes the socket.
pub(crate) struct Control {
    place: PathBuf,
    task: JoinHandle<()>,
}

/// The socket that the options ask for, if they do.
pub(crate) fn open(options: &Options, host: &Host) -> anyhow::Result<Option<Control>> {
    let Some(place) = &options.control else { return Ok(None) };
    let listener = bind(place).with_context(|| format!("cannot listen on {}", place.display()))?;
    let task = tokio::spawn(answer_all(listener, host.path_control()));
    Ok(Some(Control { place: place.clone(), task }))
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        // Somebody may have removed it before us.
        let _ = fs::remove_file(&self.place);
    }
}

/// Listens. A socket that nobody listens on any more was left by a plait that was killed.
fn bind(place: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(place) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(place) => {
            fs::remove_file(place)?;
            UnixListener::bind(place)?
        }
        other => other?,
    };
    fs::set_permissions(place, Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn is_abandoned(place: &Path) -> bool {
    // To connect to a file of another kind is refused as well.
    fs::symlink_metadata(place).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(place).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

async fn answer_all(listener: UnixListener, control: PathControl) {
    loop {
        let answered = match listener.accept().await {
            Ok((stream, _)) => timeout(TIMEOUT, answer(stream, &control)).await,
            Err(error) => {
                tracing::warn!(%error, "the control socket no longer works");
                return;
            }
        };
        // Who asks and does not wait for the answer does no harm.
        tracing::debug!(?answered, "asked about paths");
    }
}

/// Answers this user and root: until its permissions are set, others may have come to the socket.
async fn answer(mut stream: tokio::net::UnixStream, control: &PathControl) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    if user != 0 && user != nix::unistd::geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let (read, mut write) = stream.split();
    let mut request = String::new();
    BufReader::new(read.take(MAX_REQUEST)).read_line(&mut request).await?;
    let text = if !request.ends_with('\n') {
        // The end of what was cut off may have said `backup`.
        format!("{ERROR}a request is one line of at most {MAX_REQUEST} bytes\n")
    } else if let Err(error) = change(&request, control).await {
        format!("{ERROR}{error}\n")
    } else {
        listing(&control.paths())
    };
    write.write_all(text.as_bytes()).await
}

/// All of the changes are understood before the first is made.
async fn change(request: &str, control: &PathControl) -> Result<(), plait::Error> {
    let changes: Vec<plait::Path> = request.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    for change in changes {
        control.set(change).await?;
    }
    Ok(())
}

/// Whether a path is one to tell people of: a device is told once, whatever can carry its segments.
pub(crate) fn is_told(path: &PathState, paths: &[PathState]) -> bool {
    let is_first = |first: &PathState| first == path;
    paths.iter().find(|other| other.device() == path.device()).is_some_and(is_first)
}

/// `wlan0=untrusted,backup up 192.0.2.2 2001:db8::2`, a line each.
fn listing(paths: &[PathState]) -> String {
    let mut text = String::new();
    for path in paths.iter().filter(|path| is_told(path, paths)) {
        let backup = if path.is_backup() { ",backup" } else { "" };
        let state = if path.is_up() { "up" } else { "down" };
        // Writing to a String cannot fail.
        let over = if path.carrier() == plait::Carrier::Udp { " over udp" } else { "" };
        let _ = write!(text, "{}={}{backup} {state}{over}", path.device(), path.trust_level());
        for address in [path.ipv4().map(Into::into), path.ipv6().map(Into::into)] {
            let _ = address.map(|address: std::net::IpAddr| write!(text, " {address}"));
        }
        text.push('\n');
    }
    text
}

impl PathArguments {
    /// Asks and prints the answer.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let place = self.control.display();
        let mut stream = UnixStream::connect(&self.control).with_context(|| {
            format!("no plait listens on {place}\n  fix: start it with --control {place}")
        })?;
        let words: Vec<String> = self.changes.iter().map(plait::Path::to_string).collect();
        let mut answer = String::new();
        let asked = stream
            .write_all(format!("{}\n", words.join(" ")).as_bytes())
            .and_then(|()| stream.shutdown(Shutdown::Write))
            .and_then(|()| stream.read_to_string(&mut answer));
        asked.with_context(|| format!("the plait behind {place} does not answer"))?;
        match answer.strip_prefix(ERROR) {
            Some(error) => bail!("{}", error.trim_end()),
            None => io::stdout().write_all(answer.as_bytes()).context("cannot write to standard output"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of this test alone.
    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("plait-control-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        directory
    }

    #[tokio::test]
    async fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let directory = directory("stale");
        let place = directory.join("socket");
        drop(bind(&place).expect("nobody is there"));
        assert!(place.exists(), "as a killed process leaves it");
        let listener = bind(&place).expect("nobody listens on it");
        assert_eq!(fs::metadata(&place).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&place).expect_err("in use").kind(), ErrorKind::AddrInUse);
        drop(listener);
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let directory = directory("file");
        let place = directory.join("letter");
        fs::write(&place, "dear").expect("written");
        assert_eq!(bind(&place).expect_err("in use").kind(), ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&place).expect("still there"), "dear");
        fs::remove_dir_all(&directory).expect("ours");
    }
}
