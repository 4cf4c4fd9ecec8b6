//! The sockets of a running plait, one in the runtime directory and the one of `--control` if given. They report its connections and
//! the use of its paths, and change that use.
//!
//! A question is one line of JSON, an answer another; then the connection ends.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use anyhow::Context;
use plait::{Host, PathControl, PathState};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::linux::directory::{self, Socket};
use crate::linux::metrics::{self, Metrics};
use crate::linux::upgrade;
use crate::metrics_place::MetricsPlace;
use crate::options::Options;
use crate::running::{Level, Message, PathLoad, PathName, PathSum, Running, Survey};
use crate::session::is_told;
use crate::status::{HostReport, Report, SCHEMA, shared_network_of};

/// Longest question: as many paths as a host can have, with the longest names.
const MAX_QUESTION: u64 = 4096;
/// Time limit for a status query.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_secs(1);

/// The questions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Question {
    /// The connections of the process.
    Status,
    /// The use of the paths, after these changes.
    Paths(Vec<String>),
    /// The use of the paths, after these were added.
    Add(Vec<String>),
    /// The use of the paths, after these were removed.
    Remove(Vec<String>),
    /// The options that have changed, after the configuration was read again.
    Reload,
    /// The process that has replaced this one, after it has.
    Upgrade,
}

/// The use of a path.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PathNow {
    pub(crate) name: String,
    /// `tcp` or `udp`.
    pub(crate) carrier: String,
    /// `trusted`, `untrusted` or `never`.
    pub(crate) class: String,
    pub(crate) backup: bool,
    pub(crate) up: bool,
    pub(crate) addresses: Vec<IpAddr>,
    /// The devices that count as one path with this one, and why, for people.
    #[serde(default)]
    pub(crate) shares_network: Option<String>,
}

/// Answers questions until it is dropped, which removes the sockets.
#[must_use = "questions are no longer answered when it is dropped"]
pub(crate) struct Control {
    public: Public,
    _own: Option<Answering>,
    running: Running,
    // Dropped after those that ask it.
    _host: Arc<Host>,
}

/// The sockets that one process at a time can have: that of `--control`, and that of the metrics.
#[derive(Clone)]
pub(crate) struct Public {
    named: Option<PathBuf>,
    metrics: Option<MetricsPlace>,
    /// Whether this process writes a capture, which only one process can.
    has_capture: bool,
    subject: Subject,
    opened: Arc<Mutex<Opened>>,
}

#[derive(Default)]
struct Opened {
    named: Option<Answering>,
    metrics: Option<Metrics>,
}

/// The process that is asked.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) running: Running,
    pub(crate) control: PathControl,
    /// An answer in progress does not keep the stack alive.
    pub(crate) host: Weak<Host>,
}

/// The traffic over a path.
#[derive(Debug, Serialize)]
struct Traffic {
    name: String,
    carrier: String,
    #[serde(flatten)]
    sum: PathSum,
    #[serde(flatten)]
    load: PathLoad,
}

struct Answering {
    place: Place,
    task: JoinHandle<()>,
}

/// The files to remove at the end.
enum Place {
    /// The socket of `--control`.
    Named(PathBuf),
    /// The socket in the runtime directory.
    Own(Socket),
}

/// Answers queries about what `running` does on `host`.
///
/// # Errors
/// The socket, or the place of the metrics, in the options cannot be listened on. Without a runtime directory, no query can be sent there.
pub(crate) fn open(options: &Options, host: &Host, running: &Running) -> anyhow::Result<Control> {
    running.uses(host);
    let kept = Arc::new(host.clone());
    let subject =
        Subject { running: running.clone(), control: host.path_control(), host: Arc::downgrade(&kept) };
    let (named, metrics) = (options.control.clone(), options.metrics.clone());
    let has_capture = options.pcap.is_some();
    let public = Public { named, metrics, has_capture, subject: subject.clone(), opened: Arc::default() };
    public.open()?;
    let directory = directory::own();
    let own = Socket::listen(&directory, std::process::id());
    let own =
        own.and_then(|(listener, socket)| Answering::start(listener, Place::Own(socket), subject.clone()));
    if let Err(error) = &own {
        tracing::warn!(%error, directory = %directory.display(), "plait status cannot ask here");
    }
    Ok(Control { public, _own: own.ok(), running: running.clone(), _host: kept })
}

impl Control {
    /// Lets another process use the socket of `--control`; queries about the remaining work are still answered.
    pub(crate) fn release(&mut self) {
        self.public.opened().named = None;
        self.running.stops();
    }

    /// The sockets that another process can have in place of this one.
    pub(crate) fn public(&self) -> Public {
        self.public.clone()
    }
}

impl Public {
    /// Whether this process writes a file that no other process can write beside it.
    pub(crate) fn has_capture(&self) -> bool {
        self.has_capture
    }

    /// Opens the sockets.
    ///
    /// # Errors
    /// Another process has them.
    pub(crate) fn open(&self) -> anyhow::Result<()> {
        let subject = || self.subject.clone();
        let metrics = self.metrics.as_ref().map(|place| metrics::serve(place, subject())).transpose()?;
        let named = self.named.as_ref().map(|place| {
            let listening = bind(place)
                .and_then(|listener| Answering::start(listener, Place::Named(place.clone()), subject()));
            listening.with_context(|| format!("cannot listen on {}", place.display()))
        });
        *self.opened() = Opened { named: named.transpose()?, metrics };
        Ok(())
    }

    /// Closes the sockets: another process can open them when this returns.
    pub(crate) async fn close(&self) {
        let Opened { named, metrics } = std::mem::take(&mut *self.opened());
        if let Some(mut named) = named {
            named.task.abort();
            let _ = (&mut named.task).await;
        }
        if let Some(metrics) = metrics {
            metrics.end().await;
        }
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answering {
    fn start(listener: UnixListener, place: Place, subject: Subject) -> io::Result<Self> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        Ok(Self { place, task: tokio::spawn(answer_all(listener, subject)) })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.task.abort();
        match &self.place {
            // It may have been removed before.
            Place::Named(place) => drop(fs::remove_file(place)),
            Place::Own(socket) => socket.remove(),
        }
    }
}

/// Listens. A socket without a listener was left by a plait that was killed.
pub(super) fn bind(place: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(place) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(place) => {
            fs::remove_file(place)?;
            UnixListener::bind(place)?
        }
        other => other?,
    };
    fs::set_permissions(place, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn is_abandoned(place: &Path) -> bool {
    // A connection to a file of another kind is refused as well.
    fs::symlink_metadata(place).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(place).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

async fn answer_all(listener: tokio::net::UnixListener, subject: Subject) {
    loop {
        let answered = match listener.accept().await {
            Ok((stream, _)) => timeout(TIMEOUT, answer(stream, &subject)).await,
            // Most likely out of descriptors: the client waits until one is free.
            Err(error) => {
                tracing::warn!(%error, "a status query must wait");
                sleep(PAUSE).await;
                continue;
            }
        };
        // A client that does not wait for the answer does no harm.
        tracing::debug!(?answered, "asked what is done");
    }
}

/// Answers this user and root: until its permissions are set, other users may have connected to the socket.
async fn answer(mut stream: tokio::net::UnixStream, subject: &Subject) -> io::Result<()> {
    check_user(&stream)?;
    let control = &subject.control;
    let (read, _) = stream.split();
    let mut question = String::new();
    BufReader::new(read.take(MAX_QUESTION)).read_line(&mut question).await?;
    if question.is_empty() {
        // The client only tested whether the process is there.
        return Ok(());
    }
    let question: Result<Question, _> = serde_json::from_str(&question);
    if let Ok(question @ (Question::Paths(_) | Question::Add(_) | Question::Remove(_) | Question::Reload)) =
        &question
    {
        tokio::spawn(upgrade::tell_predecessor(question.clone()));
    }
    let answer = match question {
        Ok(Question::Upgrade) => {
            // It takes its time, and other questions are answered meanwhile.
            tokio::spawn(upgrade::answer(stream));
            return Ok(());
        }
        Ok(Question::Status) => status(subject),
        Ok(Question::Paths(changes)) => changed(&changes, control, PathControl::set).await,
        Ok(Question::Add(paths)) => changed(&paths, control, PathControl::add).await,
        Ok(Question::Remove(paths)) => {
            changed(&paths, control, async |control, path| control.remove(&path).await).await
        }
        Ok(Question::Reload) => json!(subject.running.reload().ask().await),
        // The missing end of a truncated question may have been `backup`.
        Err(error) => json!({ "error": format!("not a question: {error}") }),
    };
    stream.write_all(format!("{answer}\n").as_bytes()).await
}

/// # Errors
/// The other end belongs to another user, and not to root.
pub(super) fn check_user(stream: &tokio::net::UnixStream) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    let may_ask = user == 0 || user == nix::unistd::geteuid().as_raw();
    if may_ask { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// Makes these changes by `make`, and returns the use of the paths then. All changes are parsed before the first is made.
async fn changed(
    changes: &[String],
    control: &PathControl,
    make: impl AsyncFn(&PathControl, plait::Path) -> Result<(), plait::Error>,
) -> serde_json::Value {
    let made = async {
        let changes = changes.iter().map(|change| change.parse()).collect::<Result<Vec<plait::Path>, _>>()?;
        for change in changes {
            make(control, change).await?;
        }
        Ok::<_, plait::Error>(())
    };
    match made.await {
        Ok(()) => json!({ "schema": SCHEMA, "paths": paths(control) }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

fn status(subject: &Subject) -> serde_json::Value {
    let Subject { running, control, host } = subject;
    let mut connections = Vec::new();
    let survey = running.survey(|about, status| connections.push(json!(Report::new(None, about, status))));
    let paths = paths(control);
    let (clients, clients_known) = running.clients().reports();
    json!({
        "schema": SCHEMA,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "kind": running.kind(),
        "what": running.what(),
        "started": running.started(),
        "state": state_of(running),
        "ready": running.is_ready(),
        "health": health(running, &paths),
        "connections_opened": survey.opened,
        "connections_open": survey.open,
        "connections_ready": survey.ready,
        "traffic": traffic(&survey),
        "paths": paths,
        "connections": connections,
        "clients": clients,
        "clients_known": clients_known,
        "clients_refused": running.clients().refused(),
        "devices": running.devices().reports(),
        "host": host.upgrade().map(|host| HostReport::from(&*host)),
        "events": running.events(),
    })
}

fn state_of(running: &Running) -> &'static str {
    match (running.is_stopping(), running.is_replaced()) {
        (true, _) => "stopping",
        (false, true) => "draining",
        (false, false) => "running",
    }
}

fn traffic(survey: &Survey) -> Vec<Traffic> {
    let of = |((name, carrier), sum): (&PathName, &PathSum)| {
        let load = survey.load.get(&(name.clone(), carrier.clone())).copied().unwrap_or_default();
        Traffic { name: name.clone(), carrier: carrier.clone(), sum: *sum, load }
    };
    survey.sums.paths.iter().map(of).collect()
}

/// The messages of the process, and those about its paths now.
pub(super) fn health(running: &Running, paths: &[PathNow]) -> Vec<Message> {
    let message = |level, name, text| Message { level, name, text, since: None };
    let mut messages = running.messages();
    let used: Vec<_> = paths.iter().filter(|path| path.class != "never").collect();
    let down: Vec<_> = used.iter().filter(|path| !path.up).map(|path| path.name.as_str()).collect();
    if down.len() == used.len() {
        messages.push(message(Level::Error, "no-path", "no path is up".to_owned()));
    } else if !down.is_empty() {
        let text = format!("these paths are down: {}", down.join(", "));
        messages.push(message(Level::Warning, "path-down", text));
    }
    messages
}

pub(super) fn paths(control: &PathControl) -> Vec<PathNow> {
    let (paths, shared) = (control.paths(), control.shared_networks());
    let of = |path: &PathState| PathNow {
        name: path.device().to_owned(),
        carrier: path.carrier().to_string(),
        class: path.trust_level().to_string(),
        backup: path.is_backup(),
        up: path.is_up(),
        addresses: path.ipv4().map(IpAddr::from).into_iter().chain(path.ipv6().map(IpAddr::from)).collect(),
        shares_network: shared_network_of(path.device(), &shared),
    };
    paths.iter().filter(|path| is_told(path, &paths)).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("socket");
        drop(bind(&place).expect("no listener is left"));
        assert!(place.exists(), "as a killed process leaves it");
        let _listener = bind(&place).expect("no listener is left");
        assert_eq!(fs::metadata(&place).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&place).expect_err("in use").kind(), ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("letter");
        fs::write(&place, "dear").expect("written");
        assert_eq!(bind(&place).expect_err("in use").kind(), ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&place).expect("still there"), "dear");
    }

    #[test]
    fn a_question_that_was_cut_off_is_none() {
        let whole = serde_json::to_string(&Question::Paths(vec!["eth0=untrusted,backup".to_owned()]));
        let whole = whole.expect("written");
        assert!(serde_json::from_str::<Question>(&whole).is_ok());
        for len in 0..whole.len() {
            assert!(serde_json::from_str::<Question>(&whole[..len]).is_err(), "{len}");
        }
    }
}
