//! `plait run`: an unmodified program with its connections through plait.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use nix::unistd::{Uid, User};
use plait::Carriers;
use plait_proxy::client::{self, Dialer as _, ForwardError};
use plait_proxy::convert::Destination;
use plait_proxy::direct::{Direct, DirectRule, connect_directly};
use plait_proxy::dns;
use plait_proxy::names::Names;
use plait_proxy::relay::{Abort, relay};
use plait_proxy::run::{Enclosed, Listeners, enclose, exit, original_destination};
use plait_proxy::silence::SilenceLimit;
use plait_proxy::socket;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::dial::{Dial, Towards};
use crate::linux::limits;
use crate::linux::prerequisite::{self, Check};
use crate::linux::waiting::{Reached, Waiting};
use crate::listening::accept;
use crate::output::say;
use crate::reload::Reload;
use crate::running::Running;
use crate::shortage::Shortage;

/// Most connections of the program at a time; more wait in the kernel.
const MAX_CONNECTIONS: usize = 8192;
/// How long connections that the program has left behind may stall.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long the subflows below them may take to close.
const PARTING: Duration = Duration::from_secs(1);
/// A program that ends within this time, and has used no network, may have handed its work over.
const AT_ONCE: Duration = Duration::from_secs(3);
const HANDED_OVER: &str = "the program has ended at once and opened nothing; perhaps it has handed over to an instance that runs outside of \
     plait\n  fix: close that instance, or start one apart from it (firefox --no-remote --profile DIR, code --user-data-dir DIR, ssh -S none)";
/// Name of the command that the child is started with.
const CHILD: &str = "__enclosed";

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: the program's own; 128+N if signal N ended it; 125 if plait failed, 126 if \
                        the program cannot be executed, 127 if there is no such program."
)]
pub(crate) struct Run {
    #[command(flatten)]
    towards: Towards,
    /// Connect to these destinations directly and without protection (repeatable): NAME, *.NAME for all names below it, a network, or @FILE
    /// with such values, one a line. The nameservers of this host answer for the names. An address with several names goes directly if all
    /// of them do.
    #[arg(long, value_name = "WHAT")]
    direct: Vec<DirectRule>,
    /// Run the program as this user, while plait stays root [default: the user that called sudo, otherwise the user that runs
    /// plait].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    program: Vec<OsString>,
}

/// The child of [`Run`], before it becomes the program.
#[derive(Debug, Args)]
pub(crate) struct Child {
    #[arg(long)]
    user: Option<String>,
    control: i32,
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

impl Child {
    /// Becomes the program. Must be called before any thread is started: namespaces belong to a thread.
    pub(crate) fn run(self) -> ExitCode {
        let user = match self.user.as_deref().map(found).transpose() {
            Ok(user) => user,
            Err(error) => return failed(&error),
        };
        code(enclose(self.control, &self.program, user.as_ref()))
    }
}

impl Run {
    pub(crate) fn towards(&self) -> &Towards {
        &self.towards
    }

    /// Runs the program to its end and returns the exit status.
    pub(crate) async fn run(self, reload: Reload) -> anyhow::Result<ExitCode> {
        let checks = self.checks();
        self.run_enclosed(reload).await.map_err(|error| prerequisite::explain(error, &checks))
    }

    /// The prerequisites of the stack, and the private network of the program.
    fn checks(&self) -> Vec<Check> {
        [self.towards.options.checks(), &[Check::PrivateNetwork]].concat()
    }

    async fn run_enclosed(self, reload: Reload) -> anyhow::Result<ExitCode> {
        // Listen from the start, so that a signal leaves no half-built network behind.
        let mut interrupted = tokio::spawn(crate::exit::interrupted());
        let Self { towards, direct, user, program } = self;
        let towards = Arc::new(towards);
        let needs_root = towards.options.carrier == Carriers::Tcp;
        if let Some(missing) = prerequisite::first(if needs_root { &[Check::Privileges] } else { &[] }) {
            return Err(missing.into());
        }
        let what = program.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let dial = tokio::select! {
            dial = towards.open(Running::new("run", what, reload)) => Arc::new(dial?),
            signal = &mut interrupted => return Err(signal?.into()),
        };
        let user = user.or_else(caller_of_sudo);
        user.as_deref().map(found).transpose()?;
        let mut child = child();
        if let Some(user) = user {
            child.args(["--user", &user]);
        }
        let (mut enclosed, listeners) = Enclosed::start(child, &program)?;
        limits::raise_open_files();
        if interrupted.is_finished() {
            return Err(interrupted.await?.into());
        }
        let direct = Direct::new(&direct);
        if let Some(warning) = direct.warning() {
            say(&warning);
        }
        enclosed.go().context("the program's process has ended")?;
        let mut flows = JoinSet::new();
        let ended = serve_until_it_ends(&mut enclosed, listeners, direct.into(), &dial, &mut flows).await?;
        // After an end by a signal, do not wait for what the program left.
        farewell(&dial, &mut flows, if ended > 128 { PARTING } else { FAREWELL }).await;
        Ok(code(ended))
    }
}

/// Whether a private network can be made here.
///
/// # Errors
/// It cannot be made here, for this reason.
pub(crate) fn probe() -> anyhow::Result<()> {
    plait_proxy::run::probe(child())
}

fn child() -> Command {
    // A binary installed meanwhile over our own must not become the child.
    let mut child = Command::new("/proc/self/exe");
    child.arg(CHILD);
    child
}

/// Returns the user that called sudo: the program should run as this user.
fn caller_of_sudo() -> Option<String> {
    let is_root = nix::unistd::geteuid().is_root();
    let uid = std::env::var("SUDO_UID").ok().filter(|uid| is_root && uid != "0")?;
    let user = User::from_uid(Uid::from_raw(uid.parse().ok()?)).ok()??;
    Some(user.name)
}

fn found(name: &str) -> anyhow::Result<User> {
    let looked_up = User::from_name(name).with_context(|| format!("cannot look up the user {name}"))?;
    let user = looked_up.with_context(|| format!("there is no user {name} on this machine (--user)"))?;
    let own = nix::unistd::geteuid();
    if !own.is_root() && own != user.uid {
        anyhow::bail!("only root can run a program as {name}\n  fix: sudo plait run --user {name} ...");
    }
    Ok(user)
}

/// Carries the connections of the program until it ends, and returns its exit code.
async fn serve_until_it_ends(
    enclosed: &mut Enclosed,
    listeners: Listeners,
    direct: Arc<Direct>,
    dial: &Arc<Dial>,
    flows: &mut JoinSet<()>,
) -> anyhow::Result<i32> {
    let Listeners { tcp4, dns, dns_tcp, v6, gate } = listeners;
    let (tcp6, dns6) = v6.unzip();
    let mut end = pin!(enclosed.wait());
    let names = Arc::<Names>::default();
    let mut queries =
        pin!(dns::serve_queries((dns, dns6), dns_tcp, dial.clone(), (names.clone(), direct.clone())));
    let mut waiting = Waiting::new(gate, dial.clone(), (direct.clone(), names.clone()));
    let (begun, mut has_opened) = (Instant::now(), false);
    let mut shortage = Shortage::default();
    loop {
        let has_room = flows.len() + waiting.len() < MAX_CONNECTIONS;
        let accepted = tokio::select! {
            ended = &mut end => {
                let ended = ended?;
                let is_idle = !has_opened && !waiting.has_begun() && names.answers() == 0;
                if ended == 0 && is_idle && begun.elapsed() < AT_ONCE {
                    say(HANDED_OVER);
                }
                return Ok(ended);
            }
            failed = &mut queries => return Err(failed.err().unwrap_or(io::ErrorKind::Other.into()).into()),
            Some(_) = flows.join_next() => continue,
            stepped = waiting.step(has_room) => {
                stepped?;
                continue;
            }
            accepted = tcp4.accept(), if has_room => accepted,
            accepted = accept(tcp6.as_ref()), if has_room => accepted,
        };
        match accepted {
            Ok((program, from)) => {
                has_opened = true;
                let Ok(to) = original_destination(&program) else { continue };
                let reached = waiting.take(from, to);
                let destination = names.destination(to);
                flows.spawn(carry(program, (destination, to, reached), dial.clone(), direct.clone()));
            }
            Err(error) => shortage.wait(&error).await,
        }
    }
}

/// One connection of the program, to its end.
async fn carry(
    mut program: TcpStream,
    (destination, to, reached): (Destination, SocketAddr, Option<Reached>),
    dial: Arc<Dial>,
    direct: Arc<Direct>,
) {
    socket::prepare(&program);
    let result = match reached {
        Some(Reached::Server(opened)) => client::join(&*dial, &mut program, *opened).await,
        Some(Reached::Directly(target)) => relay_directly(&mut program, target, &dial.silence_limit()).await,
        None if direct.takes(&destination) => {
            tracing::info!(%destination, "a connection goes directly");
            match connect_directly(&destination).await {
                Ok(target) => relay_directly(&mut program, target, &dial.silence_limit()).await,
                Err(error) => {
                    program.abort();
                    Err(error.into())
                }
            }
        }
        None => client::forward(&*dial, &mut program, destination).await,
    };
    match result {
        Ok((sent, received)) => tracing::debug!(%to, sent, received, "a connection has ended"),
        Err(ForwardError::Program(error)) => {
            tracing::debug!(%to, %error, "the program has ended a connection");
        }
        Err(ForwardError::Reset(error)) => tracing::debug!(%to, %error, "a connection was reset"),
        Err(error @ ForwardError::Silent { .. }) => {
            tracing::info!("a half-closed connection of the program was reset: {error}");
            tracing::debug!(%to, "it went there");
        }
        Err(ForwardError::Server(error)) => {
            tracing::warn!("a connection of the program was reset: {error}");
            tracing::debug!(%to, "it was to go there");
        }
    }
}

async fn relay_directly(
    program: &mut TcpStream,
    mut target: TcpStream,
    silence: &SilenceLimit,
) -> Result<(u64, u64), ForwardError> {
    relay(program, &mut target, silence).await.map_err(ForwardError::Program)
}

/// Data that the program wrote before its end is still delivered, as long as it progresses within `patience`; a signal ends the
/// wait.
async fn farewell(dial: &Dial, flows: &mut JoinSet<()>, patience: Duration) {
    dial.close();
    let delivered = async {
        loop {
            let moved = dial.moved();
            match timeout(patience, async { while flows.join_next().await.is_some() {} }).await {
                Ok(()) => break,
                Err(_) if dial.moved() == moved => break,
                Err(_) => {}
            }
        }
        // All data is delivered; the rest is reset.
        let _ = timeout(PARTING, dial.drained()).await;
    };
    tokio::select! {
        () = delivered => {}
        _ = crate::exit::interrupted() => {}
    }
}

/// The exit status of failures of plait itself, usage errors included: 2 may be the program's own.
pub(crate) const FAILED: u8 = exit::FAILED as u8;

/// Whether this invalid command line is meant for `plait run`.
pub(crate) fn is_meant(words: impl IntoIterator<Item = OsString>) -> bool {
    words
        .into_iter()
        .skip(1)
        .find(|word| !word.to_string_lossy().starts_with('-'))
        .is_some_and(|word| word == "run")
}

/// Failures of plait itself have one exit status.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    if let Some(signal) = crate::exit::Interrupted::within(error) {
        return signal.exit_code();
    }
    crate::exit::Exit::from(error).report(error);
    FAILED.into()
}

fn code(number: i32) -> ExitCode {
    u8::try_from(number).unwrap_or(u8::MAX).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_usage_are_told_from_exit_codes_of_the_program() {
        let is_meant = |words: &str| is_meant(words.split(' ').map(OsString::from));
        assert!(is_meant("plait run --bogus") && is_meant("plait -v run") && !is_meant("plait serve run"));
    }
}
