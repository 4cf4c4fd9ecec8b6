//! A lab in a background process, and the requests of other processes to it.
//!
//! The process listens on a unix socket in [`runtime_directory`]; each line is a [`Request`] in JSON, answered by one line:
//! `{"ok": ...}` or `{"error": "..."}`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::privilege::{OWNER_VARIABLE, RUNTIME_VARIABLE};
use crate::{Attack, Conditions, Direction, Error, Lab, LabConfig, Path, Result, Summary};

/// Time limit of the other side for a line.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the start of the background process.
const COMING_UP: Duration = Duration::from_secs(20);
/// Longest request: a configuration of a path is far shorter.
const LONGEST_REQUEST: u64 = 65_536;

/// The requests to the background process. Without `path`: every path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The status of the paths: [`Status`].
    Status,
    /// Arms an attack.
    Attack {
        /// The path.
        path: Option<String>,
        /// The attack.
        attack: Attack,
    },
    /// Disarms all attacks.
    CallOff {
        /// The path.
        path: Option<String>,
    },
    /// Cuts paths, for a time or until they are restored.
    Cut {
        /// The path.
        path: Option<String>,
        /// Milliseconds.
        lasting: Option<u64>,
    },
    /// Ends a cut.
    Restore {
        /// The path.
        path: Option<String>,
    },
    /// Changes the conditions of a path.
    Set {
        /// The path.
        path: Option<String>,
        /// One direction, or both.
        direction: Option<Direction>,
        /// The new conditions.
        conditions: Conditions,
    },
    /// Changes the named conditions of a path, and leaves the others.
    Change {
        /// The path.
        path: Option<String>,
        /// One direction, or both.
        direction: Option<Direction>,
        /// As in [`Conditions::change`].
        words: Vec<String>,
    },
    /// The text that an eavesdropper has read.
    Text {
        /// The name of the path.
        path: String,
        /// The direction.
        direction: Direction,
        /// Most bytes.
        limit: usize,
    },
    /// Lines of text since the last question: [`crate::Line`].
    Lines {
        /// The path.
        path: String,
    },
    /// The arrivals over time.
    Series {
        /// The path.
        path: String,
    },
    /// The packets that the injector put on the wire.
    Injections {
        /// The path.
        path: String,
    },
    /// Flushes the captures.
    Flush,
    /// Ends the lab.
    Down,
}

/// The status of the lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The background process.
    pub process: u32,
    /// Time since its start.
    pub elapsed: Duration,
    /// The namespaces of client and server, as `ip netns` knows them.
    pub hosts: [String; 2],
    /// The paths.
    pub paths: Vec<Summary>,
}

/// Directory of the control socket and the log of the background process: `/run/plait-lab` for root, otherwise a directory of the
/// user's.
pub fn runtime_directory() -> PathBuf {
    if let Some(directory) = std::env::var_os(RUNTIME_VARIABLE) {
        return directory.into();
    }
    if geteuid().is_root() { "/run/plait-lab".into() } else { format!("/tmp/plait-lab-{}", geteuid()).into() }
}

fn socket() -> PathBuf {
    runtime_directory().join("control")
}

/// Starts a lab in a background process. `daemon` must be a command that ends up in [`serve`], such as this program with a hidden
/// subcommand (for an ordinary user made with [`crate::privilege::in_user_namespace`]).
///
/// # Errors
/// There is one already, or it does not start: the error has its output.
pub fn up_detached(mut daemon: Command, config: &LabConfig) -> Result<Status> {
    if let Ok(running) = status() {
        return Err(Error::Background(format!(
            "a lab is up already (process {}); `plait-lab down` ends it",
            running.process
        )));
    }
    make_directory()?;
    let log = runtime_directory().join("log");
    let output = fs::File::create(&log).map_err(Error::system(format!("write {}", log.display())))?;
    let errors = output.try_clone().map_err(Error::system("duplicate a descriptor"))?;
    // A process group of its own: it does not get an interrupt at the terminal.
    daemon.stdin(Stdio::piped()).stdout(output).stderr(errors).process_group(0);
    let mut child = daemon.spawn().map_err(Error::system("start the background process"))?;
    if let Some(mut input) = child.stdin.take() {
        let text = serde_json::to_vec(config).map_err(|error| Error::Background(error.to_string()))?;
        // If it does not read, it has ended, and the log has the reason.
        let _ = input.write_all(&text);
    }
    let start = Instant::now();
    while start.elapsed() < COMING_UP {
        if let Ok(status) = status() {
            return Ok(status);
        }
        if let Ok(Some(ended)) = child.try_wait() {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Err(Error::Background(format!("the lab did not come up ({ended}): {}", said.trim())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // It is ours and not reaped yet: the number is still its own.
    let _ = child.kill();
    let _ = child.wait();
    Err(Error::Background(format!("the lab did not come up in time; see {}", log.display())))
}

/// The background process: reads a [`LabConfig`] in JSON from standard input, and carries packets until it is told
/// [`Request::Down`].
///
/// # Errors
/// The lab does not start, or the socket cannot be created.
pub fn serve() -> Result<()> {
    let text = std::io::read_to_string(std::io::stdin()).map_err(Error::system("read the configuration"))?;
    let config: LabConfig = serde_json::from_str(&text).map_err(|error| Error::Config(error.to_string()))?;
    let lab = Lab::up(config)?;
    make_directory()?;
    // No process answers there, or `up_detached` would have reported it.
    let _ = fs::remove_file(socket());
    let listener = UnixListener::bind(socket()).map_err(Error::system("make the control socket"))?;
    fs::set_permissions(socket(), fs::Permissions::from_mode(0o600))
        .map_err(Error::system("protect the control socket"))?;
    for client in listener.incoming() {
        let is_down = client.and_then(|client| converse(&lab, &client)).unwrap_or_else(|error| {
            tracing::debug!(%error, "a conversation ended early");
            false
        });
        if is_down {
            break;
        }
    }
    let _ = fs::remove_file(socket());
    Ok(())
}

/// Answers requests until the other side has no more; returns whether one of them was the last.
fn converse(lab: &Lab, mut client: &UnixStream) -> std::io::Result<bool> {
    client.set_read_timeout(Some(TIMEOUT))?;
    client.set_write_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(std::io::Read::take(client, LONGEST_REQUEST));
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let request = serde_json::from_str::<Request>(&line);
        let is_down = matches!(request, Ok(Request::Down));
        let answer = match request.map_err(|error| Error::Background(error.to_string())) {
            Ok(request) => answer(lab, request),
            Err(error) => Err(error),
        };
        let answer = match answer {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        writeln!(client, "{answer}")?;
        if is_down {
            return Ok(true);
        }
        line.clear();
        reader.get_mut().set_limit(LONGEST_REQUEST);
    }
    Ok(false)
}

fn answer(lab: &Lab, request: Request) -> Result<Value> {
    let each = |name: Option<String>, what: &dyn Fn(&Path) -> Result<()>| match name {
        Some(name) => what(lab.path(&name)?),
        None => lab.paths().iter().try_for_each(what),
    };
    match request {
        Request::Status => return value(&status_of(lab)?),
        Request::Text { path, direction, limit } => return value(&lab.path(&path)?.text(direction, limit)?),
        Request::Lines { path } => return value(&lab.path(&path)?.lines()?),
        Request::Series { path } => return value(&lab.path(&path)?.series()?),
        Request::Injections { path } => return value(&lab.path(&path)?.injections()?),
        Request::Attack { path, attack } => each(path, &|path| path.attack(attack.clone()))?,
        Request::CallOff { path } => each(path, &Path::call_off)?,
        Request::Cut { path, lasting: Some(time) } => {
            each(path, &|path| path.cut_for(Duration::from_millis(time)))?;
        }
        Request::Cut { path, lasting: None } => each(path, &Path::cut)?,
        Request::Restore { path } => each(path, &Path::restore)?,
        Request::Set { path, direction, conditions } => each(path, &|path| {
            let both =
                Direction::BOTH.into_iter().filter(|one| direction.is_none_or(|wanted| wanted == *one));
            both.into_iter().try_for_each(|direction| path.set(direction, &conditions))
        })?,
        Request::Change { path, direction, words } => each(path, &|path| path.change(direction, &words))?,
        Request::Flush => each(None, &Path::flush)?,
        Request::Down => {}
    }
    Ok(Value::Null)
}

fn status_of(lab: &Lab) -> Result<Status> {
    let name = |host: &crate::Host| host.namespace().name().unwrap_or_default().to_owned();
    Ok(Status {
        process: std::process::id(),
        elapsed: lab.elapsed(),
        hosts: [name(lab.client()), name(lab.server())],
        paths: lab.paths().iter().map(Path::summary).collect::<Result<_>>()?,
    })
}

fn value(of: &impl Serialize) -> Result<Value> {
    serde_json::to_value(of).map_err(|error| Error::Background(error.to_string()))
}

/// Sends a request to the background process and returns the answer.
///
/// # Errors
/// No lab runs, or it refuses.
pub fn ask(request: &Request) -> Result<Value> {
    let wrong = |error: String| Error::Background(format!("no answer from the lab: {error}"));
    let mut stream = UnixStream::connect(socket())
        .map_err(|_| Error::Background("no lab is up; `plait-lab up` starts one".to_owned()))?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(|error| wrong(error.to_string()))?;
    let mut text = serde_json::to_string(request).map_err(|error| wrong(error.to_string()))?;
    text.push('\n');
    stream.write_all(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(|error| wrong(error.to_string()))?;
    let mut answer: Value = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(Error::Background(error.to_owned())),
        None => Ok(answer.get_mut("ok").map(Value::take).unwrap_or_default()),
    }
}

/// Returns the status of the lab.
///
/// # Errors
/// No lab runs.
pub fn status() -> Result<Status> {
    serde_json::from_value(ask(&Request::Status)?).map_err(|error| Error::Background(error.to_string()))
}

/// Arms an attack given in words (see [`Attack::parse`]), on one path or all.
///
/// # Errors
/// No lab runs, or there is no such attack or path.
pub fn attack<'a>(path: Option<&str>, words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let attack = Attack::parse(words)?;
    ask(&Request::Attack { path: path.map(str::to_owned), attack }).map(drop)
}

/// Ends the lab, and removes what crashed labs left. Returns the names of removed leftovers; none is no error.
///
/// # Errors
/// The lab does not end, or leftovers cannot be removed.
pub fn down() -> Result<Vec<String>> {
    if let Ok(running) = status() {
        ask(&Request::Down)?;
        let process = PathBuf::from(format!("/proc/{}", running.process));
        let start = Instant::now();
        while process.exists() && socket().exists() && start.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        // The namespaces go when the process ends, a moment after the socket.
        while running.hosts.iter().any(|name| PathBuf::from("/run/netns").join(name).exists()) {
            if start.elapsed() > TIMEOUT {
                return Err(Error::Background(format!("process {} does not end", running.process)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    crate::sweep()
}

/// Returns a command for a shell, or another program, in a host of the lab in the background: the caller starts it.
///
/// # Errors
/// No lab runs, or there is no such host.
pub fn shell(host: &str) -> Result<Command> {
    let Status { process, hosts, .. } = status()?;
    let [client, server] = hosts;
    let name = match host {
        "client" => client,
        "server" => server,
        _ => {
            let known = "client, server".to_owned();
            return Err(Error::Unknown { kind: "host", name: host.to_owned(), known });
        }
    };
    let mut command = if geteuid().is_root() {
        Command::new("ip")
    } else {
        // The names are in the mount namespace of the user's own lab.
        let mut command = Command::new("nsenter");
        // Entering a mount namespace leads to its root; a shell should start in the current directory.
        command.args(["--preserve-credentials", "--user", "--mount", "--net", "--wd=.", "--target"]);
        command.args([process.to_string().as_str(), "--", "ip"]);
        command.env(OWNER_VARIABLE, process.to_string());
        command
    };
    command.args(["netns", "exec", &name]);
    command.arg(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()));
    Ok(command)
}

fn make_directory() -> Result<()> {
    let directory = runtime_directory();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(Error::system(format!("make the directory {}", directory.display())))
}
