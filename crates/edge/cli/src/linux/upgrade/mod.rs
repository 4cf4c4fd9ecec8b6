//! `plait upgrade`: replaces a running `plait serve` by the program on disk, without cutting a connection.
//!
//! Four processes take part. The command asks the running server, the *predecessor*, at its control socket. The predecessor asks its
//! [`starter`], which was started before the sandbox was entered, for a *successor*: the same command line and environment. The successor
//! starts as any server does, and does not listen before it has taken the ports over. The two servers talk over a [`line`] that no other
//! process has. Whatever fails before the successor listens ends the successor only.

mod line;
mod predecessor;
pub(crate) mod starter;
mod successor;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::linux::asking;
use crate::linux::control::Question;
use crate::linux::directory::{self, Socket};
use crate::output;

pub(super) use self::predecessor::{Event, OPENINGS, Successor, Upgrades, answer};
pub(crate) use self::successor::report_failure;
pub(super) use self::successor::{Succession, tell_predecessor};

/// The variable with the process that is replaced, for a successor.
const VARIABLE: &str = "PLAIT_PREDECESSOR";

/// The version of the messages on the line and on the channel of the hosts. A successor of another version is refused.
const VERSION: u32 = 1;

/// Time limit for a successor: it may have to look up names, and to wait for `ip` and `nft` on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Messages between predecessor and successor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    /// The successor is ready to take the ports over.
    Ready { version: u32 },
    /// The predecessor gives its ports: a descriptor comes with this.
    Ports,
    /// The successor listens.
    Listening,
    /// The successor ends, for this reason.
    Failed { why: String },
    /// The predecessor has left the ports: the successor is the server.
    Go,
    /// The successor stops, and the predecessor must, too.
    Stop,
}

/// Replace a running plait serve by the program on disk, with the same command line and environment, without cutting a connection.
///
/// The new process takes the listening addresses. The old process serves its connections until they end, or until --upgrade-drain of serve is
/// over. If the new process does not become ready, the old one continues unchanged, and this command reports the reason.
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// The process, as plait status lists it [default: the only plait serve that runs].
    #[arg(value_name = "PID")]
    pid: Option<u32>,
    /// Print as JSON: {"pid": 123}, the new process.
    #[arg(long)]
    json: bool,
}

/// The answer to the command.
#[derive(Debug, Serialize, Deserialize)]
struct Upgraded {
    #[serde(default)]
    pid: Option<u32>,
    #[serde(default)]
    error: Option<String>,
}

impl Upgrade {
    /// Asks for the upgrade and waits for its end.
    ///
    /// # Errors
    /// The process cannot be asked, or goes on as it is, for the reason in the error.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (pid, stream) = self.connect()?;
        let answer = ask(stream).with_context(|| format!("process {pid} does not answer"))?;
        let Upgraded { pid: new, error } =
            serde_json::from_value(answer).context("the answer is none that this version understands")?;
        match (new, error) {
            (Some(new), None) if self.json => output::result(format!("{}\n", json!({ "pid": new }))),
            (Some(new), None) => output::result(format!(
                "process {new} is the server now; process {pid} serves its connections to their end\n"
            )),
            (_, Some(error)) => {
                bail!("process {pid} goes on as it is: {}", asking::shown_lines(&error))
            }
            (None, None) => bail!("the answer is none that this version understands"),
        }
    }

    fn connect(&self) -> anyhow::Result<(u32, UnixStream)> {
        let pid = match self.pid {
            Some(pid) => pid,
            None => only_server()?,
        };
        let sockets = directory::sockets();
        let Some(socket) = sockets.iter().find(|socket| socket.pid == pid) else {
            bail!("no plait of this user runs as process {pid}\n  fix: plait status lists those that do");
        };
        Ok((pid, socket.connect().with_context(|| format!("cannot ask process {pid}"))?))
    }
}

/// The state of a process, and its kind.
fn state_of(socket: &Socket) -> Option<(String, String)> {
    let status = asking::ask_socket(socket, &Question::Status, &mut asking::Budget::new()).ok()?;
    let word = |name: &str| status[name].as_str().map(str::to_owned);
    Some((word("state")?, word("kind")?))
}

/// The sockets of the process with this number; without one, of all processes but those that were replaced and serve their last
/// connections.
pub(super) fn candidates(pid: Option<u32>) -> Vec<Socket> {
    let mut sockets = directory::sockets();
    if let Some(wanted) = pid {
        sockets.retain(|socket| socket.pid == wanted);
    } else if sockets.len() > 1 {
        sockets.retain(|socket| state_of(socket).is_none_or(|(state, _)| state != "draining"));
    }
    sockets
}

fn only_server() -> anyhow::Result<u32> {
    let sockets = directory::sockets();
    let is_server = |socket: &&Socket| {
        state_of(socket).is_some_and(|(state, kind)| kind == "serve" && state != "draining")
    };
    let servers: Vec<u32> = sockets.iter().filter(is_server).map(|socket| socket.pid).collect();
    match servers[..] {
        [pid] => Ok(pid),
        [] => bail!(
            "no plait serve of this user runs\n  fix: run this command as the user that started it; root sees all"
        ),
        _ => bail!("several servers run: {servers:?}\n  fix: say which: plait upgrade PID"),
    }
}

fn ask(mut stream: UnixStream) -> anyhow::Result<Value> {
    stream.set_write_timeout(Some(LIMIT))?;
    // Somewhat longer than the predecessor waits for its successor.
    stream.set_read_timeout(Some(LIMIT + LIMIT / 2))?;
    writeln!(stream, "{}", json!(Question::Upgrade))?;
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(&stream, 1 << 16), &mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}
